"""What `import dfc` offers: runs from Python, files of configurations, games and rewards of one's own."""

import json
from pathlib import Path

import jax
import pytest

import dfc
from dfc.config import (
    AcceptanceConfig,
    BatchConfig,
    DivideFuseConquer,
    EvaluationConfig,
    Grpo,
    OptimizerConfig,
    RewardConfig,
    RolloutConfig,
    TrainingConfig,
)
from dfc.errors import ConfigError, TrainingError
from dfc.training.episode_rewards import rewards_of

GAME = f"{Path(__file__).parent / 'sound_games.py'}:Countdown"


def config(**more):
    return Grpo(
        games={GAME: {}},
        rollout=RolloutConfig(slots=8, max_length=128, max_reply_length=4, stop=("]",)),
        optimizer=OptimizerConfig(learning_rate=1e-3),
        batch=BatchConfig(row_length=128, micro_batch_rows=8),
        training=TrainingConfig(scan_layers=False, remat="none"),
        seeds_per_game=2,
        trajectories_per_seed=2,
        acceptance=AcceptanceConfig(games=2),
        evaluation=EvaluationConfig(games=2, stage_games=2),
        **{"iterations": 1, "opponent": "initial", **more},
    )


@pytest.fixture
def rewards(tmp_path):
    """A file with rewards; the first one writes down what it was asked about."""
    path = tmp_path / "mine.py"
    path.write_text(
        "asked = []\n"
        "def steps(episode):\n    asked.append(episode.game)\n    return -episode.steps\n"
        "def nan(episode):\n    return float('nan')\n"
        "def broken(episode):\n    return episode.no_such_thing\n"
        "number = 3\n"
    )
    return path


def test_a_run_from_python_trains_on_a_game_and_a_reward_of_ones_own(tmp_path, rewards, capsys):
    wanted = config(reward=RewardConfig(function=f"{rewards}:steps"))
    with jax.numpy_dtype_promotion("standard"):
        folder = dfc.run(wanted, workdir=tmp_path / "run")
    assert folder == tmp_path / "run"
    records = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    trained = [record for record in records if record["kind"] == "train"]
    assert {record["game"] for record in trained} == {GAME}
    assert all(record["reward"] == -sum(seat == record["seat"] for seat, *_ in record["replies"]) for record in trained)
    assert (folder / "policy" / "model.safetensors").exists()
    assert "dfc.run(Grpo(...)" in (folder / "versions.json").read_text()
    capsys.readouterr()
    assert dfc.run(wanted, workdir=folder) == folder
    assert "holds this run, finished" in capsys.readouterr().out


def test_what_cannot_be_run_is_told_before_anything_is_made(tmp_path):
    wrong = config(iterations=-1, reward=RewardConfig(function="nowhere.py:f"), opponent="champion")
    with pytest.raises(ConfigError) as caught:
        dfc.run(wrong, workdir=tmp_path / "run")
    keys = ("iterations=-1", "reward.function='nowhere.py:f'", "opponent='champion'")
    assert all(any(problem.startswith(key) for problem in caught.value.problems) for key in keys)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mine", "must be FILE.py:NAME"),
        ("{}:none", "no function 'none'"),
        ("{}:number", "no function 'number'"),
    ],
)
def test_a_reward_that_is_none_is_a_sentence(tmp_path, rewards, name, says):
    with pytest.raises(ConfigError, match=says):
        dfc.run(config(reward=RewardConfig(function=name.format(rewards))), workdir=tmp_path / "run")


@pytest.mark.parametrize(("name", "says"), [("nan", "returned nan for a game"), ("broken", "raised AttributeError")])
def test_a_reward_that_fails_ends_the_run(rewards, name, says):
    class Played:
        game, steps = "x", 1

    with pytest.raises(TrainingError, match=says):
        rewards_of([Played()], RewardConfig(function=f"{rewards}:{name}"))


def test_a_file_is_loaded_with_other_values():
    found = dfc.load_config("configs/smoke.py", {"optimizer.learning_rate": 1, "games.Nim-v0": {}}, seed=7)
    assert isinstance(found, DivideFuseConquer)
    assert (found.seed, repr(found.optimizer.learning_rate)) == (7, "1.0")
    assert found.games["Nim-v0"] == {}
    assert found.batch == dfc.load_config("configs/smoke.py").batch


def test_keys_that_are_not_there_are_all_told():
    with pytest.raises(ConfigError) as caught:
        dfc.load_config("configs/smoke.py", {"optimizer.learning_rat": 1, "seed.x": 2}, learning_rate=3)
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "optimizer.learning_rat",
        "seed.x",
        "learning_rate",
    ]
    assert "did you mean 'optimizer.learning_rate'?" in caught.value.problems[2]


def test_a_game_is_made_by_id_or_by_place():
    assert dfc.make_game("TowerOfHanoi-v0", max_turns=9).max_game_length == 9
    assert type(dfc.make_game(GAME)).__name__ == "Countdown"
    with pytest.raises(ValueError, match="no game"):
        dfc.make_game("Nothing-v0")
