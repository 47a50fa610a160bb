"""What `import dfc` offers: runs from Python, files of configurations, games and rewards of one's own."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import pytest
import recipe_runs
import rl_runs
from self_play_runs import make_model

import dfc
from dfc.config import (
    AcceptanceConfig,
    DivideFuseConquer,
    GamesRunConfig,
    Grpo,
    MatchesConfig,
    Paprika,
    RewardConfig,
)
from dfc.errors import ConfigError, TrainingError
from dfc.scoring.episode_rewards import rewards_of

GAME = f"{Path(__file__).parent / 'sound_games.py'}:Countdown"


def config(**more):
    make_model()
    return Grpo(
        games={GAME: {}},
        **rl_runs.SHAPES,
        groups_per_game=2,
        group_size=2,
        acceptance=AcceptanceConfig(games=2),
        evaluation=MatchesConfig(games=2),
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
    records = recipe_runs.lines(folder, "episodes")
    trained = [record for record in records if record["kind"] == "train"]
    assert {record["game"] for record in trained} == {GAME}
    decided = [record for record in trained if "truncated" not in record["outcomes"]]
    assert decided
    for record in decided:
        assert record["reward"] == -sum(seat == record["seat"] for seat, *_ in record["replies"])
    assert (folder / "policy" / "model.safetensors").exists()
    assert "dfc.run(Grpo(...)" in (folder / "versions.json").read_text()
    capsys.readouterr()
    assert dfc.run(wanted, workdir=folder) == folder
    assert "holds this run, finished" in capsys.readouterr().out


def test_what_cannot_be_run_is_told_before_anything_is_made(tmp_path):
    wrong = config(iterations=-1, reward=RewardConfig(function="nowhere.py:f"), random_action_rate=2.0)
    with pytest.raises(ConfigError) as caught:
        dfc.run(wrong, workdir=tmp_path / "run")
    keys = ("iterations=-1", "reward.function='nowhere.py:f'", "random_action_rate=2.0")
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
        game, steps, counted = "x", 1, True

    with pytest.raises(TrainingError, match=says):
        rewards_of([Played()], RewardConfig(function=f"{rewards}:{name}"))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("configs/smoke.py", "must be one of dfc.config.RECIPES, got str"),
        (Grpo(optimizer=None), "optimizer: expected OptimizerConfig(...) for recipe grpo, got None"),
        (Grpo(endpoints=None), "endpoints=None"),
        (GamesRunConfig(), "got GamesRunConfig"),
        (Paprika(games=5), "games=5: must be a mapping"),
    ],
)
def test_what_is_no_configuration_is_a_sentence(wrong, says, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(says)):
        dfc.run(wrong, workdir=tmp_path / "run")


def test_a_folder_that_cannot_be_and_another_thread_are_sentences(tmp_path):
    with pytest.raises(ConfigError, match="zero byte"):
        dfc.run(config(), workdir="a\0b")
    with ThreadPoolExecutor(1) as pool, pytest.raises(ConfigError, match="main thread"):
        pool.submit(dfc.run, config(), tmp_path / "run").result()


def test_an_option_of_a_game_is_set():
    found = dfc.load_config("configs/smoke.py", {"games.GuessTheNumber-v0.max_turns": 3})
    assert found.games["GuessTheNumber-v0"] == {"max_turns": 3}
    with pytest.raises(ConfigError, match="has no option 'max_turn'; did you mean 'max_turns'"):
        dfc.load_config("configs/smoke.py", {"games.GuessTheNumber-v0.max_turn": 3})
    broken = dfc.load_config("configs/smoke.py", {"optimizer": {"learning_rate": 1e-3}})
    with pytest.raises(ConfigError, match="optimizer: expected OptimizerConfig"):
        dfc.run(broken)


def test_a_reward_stays_what_it_was_when_its_file_is_edited(rewards):
    config = RewardConfig(function=f"{rewards}:steps")

    class Played:
        game, steps, counted = "x", 3, True

    assert rewards_of([Played()], config) == [-3]
    rewards.write_text("def steps(episode):\n    return 100 + episode.steps\n")
    assert rewards_of([Played()], config) == [-3]


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
    assert "; write optimizer.learning_rate" in caught.value.problems[2]


def test_a_game_is_made_by_id_or_by_place():
    assert dfc.make_game("TowerOfHanoi-v0", max_turns=9).max_game_length == 9
    assert type(dfc.make_game(GAME)).__name__ == "Countdown"
    with pytest.raises(ValueError, match="no game"):
        dfc.make_game("Nothing-v0")


def test_a_reward_that_returns_nothing_says_so_and_what_raises_says_where(tmp_path):
    class Played:
        game, steps, counted = "x", 1, True

    path = tmp_path / "mine.py"
    path.write_text("def nothing(episode):\n    pass\n\n\ndef wrong(episode):\n    return episode.no_such_thing\n")
    with pytest.raises(TrainingError, match="returned NoneType None; expected a number, or one for each reply"):
        rewards_of([Played()], RewardConfig(function=f"{path}:nothing"))
    with pytest.raises(TrainingError, match=rf"raised AttributeError.* \({re.escape(str(path))}:6 in wrong\)"):
        rewards_of([Played()], RewardConfig(function=f"{path}:wrong"))
