"""Building rows as a recipe: which games are chosen from, what is written, refused, and not built again."""

import dataclasses
import json
import shutil

import pyarrow.parquet as pq
import pytest
import recipe_runs
from trajectory_rows import PROVENANCE, row

from dfc.config import BuildData
from dfc.errors import ConfigError
from dfc.records.trajectory_files import DatasetError, TrajectoryWriter
from dfc.rows import training_rows
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.stages import build_rows


@pytest.fixture
def collected(tmp_path):
    """A run of collect: in every game one task solved in 2 and in 4 turns, one solved once and failed once."""
    with TrajectoryWriter(tmp_path / "collect" / "trajectories", PROVENANCE) as writer:
        for game in ("wordle", "mastermind", "battleship"):
            writer.write(row(game, 0, 0, turns=2))
            writer.write(row(game, 0, 1, turns=4))
            writer.write(row(game, 1, 0, turns=3))
            writer.write(row(game, 1, 1, turns=6, success=False))
    return tmp_path / "collect"


def run(path, trajectories, *, seed=0, **settings):
    config = BuildData(name="b", seed=seed, trajectories=str(trajectories), **settings)
    return recipe_runs.run(path, config) / "data"


def games(data):
    return pq.read_table(data / "sft.parquet")["game"].to_pylist()


def test_rows_pairs_and_tables_are_written(tmp_path, collected, capsys):
    data = run(tmp_path / "run", collected)
    sft = pq.read_table(data / "sft.parquet").select(["game", "task", "turns"]).to_pylist()
    expected = [(game, *pair) for game in ("battleship", "mastermind", "wordle") for pair in ((0, 2), (0, 4), (1, 3))]
    assert sorted(tuple(line.values()) for line in sft) == expected
    pairs = pq.read_table(data / "pairs.parquet")
    assert (
        pairs.select(["task", "chosen_turns", "rejected_turns"]).to_pylist()
        == [
            {"task": 0, "chosen_turns": 2, "rejected_turns": 4},
            {"task": 1, "chosen_turns": 3, "rejected_turns": 6},
        ]
        * 3
    )
    tables = (tmp_path / "run" / "tables.md").read_text()
    assert "| wordle | 100.0% | 3 | 2 | 2 | 4 | 3 |" in tables
    assert "| total |  | 9 | 6 | 6 | 12 | 9 |" in tables
    assert tables in capsys.readouterr().out
    assert (tmp_path / "run" / "finished.json").exists()


def test_a_run_and_its_folder_of_parts_are_the_same_place(tmp_path, collected):
    one, other = run(tmp_path / "1", collected), run(tmp_path / "2", collected / "trajectories")
    assert (one / "pairs.parquet").read_bytes() == (other / "pairs.parquet").read_bytes()


def test_single_games_are_chosen_or_left_out(tmp_path, collected):
    assert set(games(run(tmp_path / "one", collected, game_groups=("wordle",)))) == {"wordle"}
    assert set(games(run(tmp_path / "out", collected, leave_out=("wordle",)))) == {"mastermind", "battleship"}
    assert "Without wordle, of which" in (tmp_path / "out" / "tables.md").read_text()


def test_settings_and_seed_decide(tmp_path, collected):
    data = run(tmp_path / "run", collected, seed=7, turn_ratio=0.0, sft_tokens=99, pair_tokens=98)
    assert pq.read_table(data / "pairs.parquet")["task"].to_pylist() == [1, 1, 1]  # failures only
    settings = json.loads((data / "statistics.json").read_text())["settings"]
    assert settings == {
        "sft_tokens": 99, "pair_tokens": 98, "turn_ratio": "inf", "rejected_failures": [], "seed": 7
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"game_groups": ("wordle", "bandit")}, "no trajectory of bandit, there are battleship, mastermind, wordle"),
        ({"leave_out": ("wordle", "mastermind", "battleship")}, "no trajectory remains; leave out fewer games"),
        (
            {"sft_tokens": 9, "pair_tokens": 9},
            r"nothing to imitate \(.*wordle: 3 successes in 4 trajectories, 2 of 2 tasks solved, 3 suc",
        ),
        (
            {"sft_tokens": 9, "pair_tokens": 9},
            r"nothing to imitate .*no pair .*wordle: 2 of 2 tasks solved, 0 of them .*, 4 trajectories too long",
        ),
    ],
)
def test_what_leaves_nothing_is_refused(tmp_path, collected, settings, message):
    with pytest.raises(DatasetError, match=message):
        run(tmp_path / "run", collected, **settings)
    assert not (tmp_path / "run" / "data").exists()
    assert not (tmp_path / "run" / "finished.json").exists()


@pytest.mark.parametrize(
    ("limit", "empty", "other", "words"),
    [("sft_tokens", "sft", "pairs", "nothing to imitate"), ("pair_tokens", "pairs", "sft", "no pair")],
)
def test_rows_for_one_training_suffice_unless_the_other_is_needed(
    tmp_path, collected, capsys, limit, empty, other, words
):
    with pytest.raises(DatasetError, match=words):
        run(tmp_path / "needed", collected, needed=empty, **{limit: 9})
    assert not (tmp_path / "needed" / "finished.json").exists()
    data = run(tmp_path / "run", collected, needed=other, **{limit: 9})
    assert f"{empty}.parquet has no row: {words}" in capsys.readouterr().out
    assert pq.read_table(data / f"{empty}.parquet").num_rows == 0
    assert pq.read_table(data / f"{other}.parquet").num_rows > 0
    with pytest.raises(DatasetError, match=rf"{empty}\.parquet: no row, so there is nothing to train on"):
        training_rows.read(data, pairs=empty == "pairs", vocabulary=100, row_length=100, tokenizer=None)


def test_trajectories_of_a_game_for_evaluation_only_make_no_rows(tmp_path, collected):
    with TrajectoryWriter(collected / "trajectories", PROVENANCE) as writer:
        writer.write(row("bandit_regret", 0, 0, turns=2))
    wanted = r"trajectories of bandit_regret, which is for evaluation only; leave .*leave_out=wordle,bandit_regret"
    with pytest.raises(DatasetError, match=wanted):
        run(tmp_path / "run", collected, leave_out=("wordle",))
    data = run(tmp_path / "run", collected, leave_out=("bandit_regret",))
    assert set(games(data)) == {"mastermind", "battleship", "wordle"}


def test_a_game_that_was_not_collected_may_be_left_out(tmp_path, collected):
    data = run(tmp_path / "run", collected, leave_out=("bandit", "wordle"))
    assert set(games(data)) == {"mastermind", "battleship"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_hash": "def456"}, "model_hash is 'def456', but 'abc123' in"),
        ({"sampling": {"temperature": 1.0}}, r"sampling is '{\"temperature\":1.0}', but '{\"min_p\":0.3,"),
        ({"seed": 4}, "seed is 4, but 3 in"),
    ],
)
def test_parts_of_two_collections_are_not_mixed(tmp_path, collected, change, words):
    provenance = dataclasses.replace(PROVENANCE, **change)
    with TrajectoryWriter(tmp_path / "other", provenance) as writer:
        writer.write(dataclasses.replace(row("wordle", 5, 0), provenance=provenance))
    (part,) = (tmp_path / "other").glob("*.parquet")
    part.rename(collected / "trajectories" / "part-00001-of-00002-000000.parquet")
    with pytest.raises(DatasetError, match=rf"part-00001-of-00002-000000\.parquet, row 0: {words}"):
        run(tmp_path / "run", collected)


def test_a_collection_that_is_not_finished_is_refused_unless_its_parts_are_named(tmp_path, collected):
    (collected / "config.json").write_text("{}")
    with pytest.raises(DatasetError, match="collect: is not finished, 12 trajectories are there; start its command"):
        run(tmp_path / "run", collected)
    parts = run(tmp_path / "parts", collected / "trajectories")
    (collected / "finished.json").write_text("{}")
    assert games(run(tmp_path / "run", collected)) == games(parts)


def test_labels_that_say_nothing_are_no_worse_side(tmp_path, collected):
    with pytest.raises(ConfigError, match=r"rejected_failures must be among .* got failed"):
        run(tmp_path / "run", collected, rejected_failures=("failed",))


def test_a_build_that_was_refused_goes_on_with_more_trajectories(tmp_path):
    folder = tmp_path / "trajectories"
    with TrajectoryWriter(folder, PROVENANCE) as writer:
        writer.write(row("wordle", 0, 0))
    with pytest.raises(DatasetError, match="1 of 1 tasks solved, 1 of them without a clearly worse trajectory"):
        run(tmp_path / "run", folder, needed="pairs")
    with TrajectoryWriter(folder, PROVENANCE) as writer:
        writer.write(row("wordle", 0, 1, success=False))
    assert pq.read_table(run(tmp_path / "run", folder, needed="pairs") / "pairs.parquet").num_rows == 1


def test_nothing_to_train_on_is_told_where_nothing_is_needed(tmp_path, capsys):
    folder = tmp_path / "trajectories"
    with TrajectoryWriter(folder, PROVENANCE) as writer:
        writer.write(row("wordle", 0, 0, success=False))
    with pytest.raises(DatasetError, match=r"nothing to imitate.*no pair"):
        run(tmp_path / "run", folder)
    data = run(tmp_path / "none", folder, needed="none")
    assert pq.read_table(data / "sft.parquet").num_rows == pq.read_table(data / "pairs.parquet").num_rows == 0
    told = capsys.readouterr().out
    assert "sft.parquet has no row: nothing to imitate" in told
    assert "pairs.parquet has no row: no pair" in told


def test_a_finished_run_builds_nothing_again(tmp_path, collected, capsys):
    data = run(tmp_path / "run", collected)
    before = {file.name: file.stat().st_mtime_ns for file in data.iterdir()}
    shutil.rmtree(collected)
    capsys.readouterr()
    run(tmp_path / "run", collected)
    assert {file.name: file.stat().st_mtime_ns for file in data.iterdir()} == before
    assert "| total |" in capsys.readouterr().out


def test_a_process_that_does_not_write_builds_nothing(tmp_path, collected):
    config = BuildData(trajectories=str(collected))
    (tmp_path / "run").mkdir()
    build_rows.run(config, RunFolder.follow(tmp_path / "run", config, existed=True), Stop())
    assert not list((tmp_path / "run").iterdir())


def test_a_label_that_is_named_may_be_the_worse_side(tmp_path, collected):
    plain = run(tmp_path / "plain", collected)
    with TrajectoryWriter(collected / "trajectories", PROVENANCE) as writer:
        writer.write(row("wordle", 2, 0))
        writer.write(row("wordle", 2, 1, success=False, failure="malformed"))
    more = run(tmp_path / "more", collected, rejected_failures=("malformed",))
    assert pq.read_table(more / "pairs.parquet").num_rows == pq.read_table(plain / "pairs.parquet").num_rows + 1
