"""Collecting trajectories: which games are played, what a stop, a kill or a full disk changes, what is refused."""

import collections
import dataclasses
import functools
import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from collect_runs import CONFIG, GAMES, rows, run, same
from processes import free_port, joining, programs_in, started
from recipe_runs import StopsAfter, untimed

from dfc.config import SamplingConfig
from dfc.errors import RunFolderError
from dfc.games import registry
from dfc.games.replay import replay
from dfc.models import huggingface, model_folders
from dfc.records import collection, trajectory_files
from dfc.records.attempts import TaskSample, TrajectorySummary
from dfc.records.collection import Collection
from dfc.records.trajectory_files import DatasetError
from dfc.rollout.host import PolicyWeights
from dfc.rollout.workers import RolloutWorkers
from dfc.runs.stop_signals import Interrupted, Stop

ROOT = Path(__file__).parent.parent
EXPECTED = {  # (game, task, sample): 3 tasks each
    *((game, task, sample) for game in ("Nim-v0", "TicTacToe-v0") for task in range(3) for sample in range(3)),
    *(("TowerOfHanoi-v0", task, sample) for task in range(3) for sample in range(2)),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A collection that nothing disturbed."""
    return run(tmp_path_factory.mktemp("whole") / "run")


# ---- what is played --------------------------------------------------------------------------------------------


def test_every_task_is_played_as_often_as_configured(whole):
    assert rows(whole).keys() == EXPECTED
    assert (whole / "finished.json").exists()
    assert (whole / "report.html").exists()


def test_all_samples_of_a_task_are_one_deal_from_one_seat_and_seats_alternate(whole):
    for (game, task, _), row in rows(whole).items():
        assert row.game_seed == task
        assert row.seat == (task % 2 if registry.make(game).seats == 2 else 0)
        assert row.opponent == ("random_legal" if registry.make(game).seats == 2 else "none")
        assert row.policy_version == 0


def test_rows_prove_themselves_and_say_where_they_come_from(whole):
    for row in rows(whole).values():
        assert list(replay(row.record()))
        assert (row.provenance.model, row.provenance.seed) == ("tiny_player", 5)
        assert row.provenance.model_hash == model_folders.weights_hash(huggingface.resolve("tiny_player"))
        sampling = {name: row.provenance.sampling[name] for name in ("temperature", "min_p", "top_k", "top_p")}
        assert sampling == {"temperature": 1.5, "min_p": 0.3, "top_k": 0, "top_p": 1.0}
        assert row.provenance.sampling["simulators"] == "script"
        assert (
            row.provenance.sampling["max_length"]
            == json.loads((whole / "config.json").read_text())["rollout"]["max_length"]
        )


def test_the_samples_of_a_task_differ_and_the_coldest_do_not(tmp_path, whole):
    hot = {row.token_ids.tobytes() for (game, task, _), row in rows(whole).items() if (game, task) == ("Nim-v0", 0)}
    assert len(hot) > 1
    config = dataclasses.replace(
        CONFIG,
        games={"TowerOfHanoi-v0": {"max_turns": 3}},
        sampling=SamplingConfig(temperature=0.0, min_p=0.3),
        tasks=1,
        samples_of={},
    )
    assert len({row.token_ids.tobytes() for row in rows(run(tmp_path / "cold", config)).values()}) == 1


def test_the_report_shows_what_was_collected_and_no_sections_of_matches(whole):
    result = json.loads((whole / "collection.json").read_text())
    page = (whole / "report.html").read_text()
    assert "Not evaluated yet" not in page
    assert 'id="stages"' not in page
    assert 'id="games"' not in page
    assert f"{sum(row['trajectories'] for row in result['games'].values()):,} trajectories" in page
    for game, row in result["games"].items():
        assert re.search(
            rf'{game}</th><td class="n">{row["trajectories"]}</td>\s*'
            rf'<td class="n">{100 * row["success_rate"]:.1f} %</td>'
            rf'\s*<td class="n">{row["turns_played"]:.1f}</td><td class="n">{row["generated_tokens"]:,}</td>',
            page,
        )


def test_the_result_counts_what_lies_in_the_folder(whole):
    result = json.loads((whole / "collection.json").read_text())
    for game in GAMES:
        own = [row for (name, _, _), row in rows(whole).items() if name == game]
        solved = {row.task for row in own if row.outcome == "win"}
        expected = {
            "tasks": 3,
            "trajectories": len(own),
            "successes": sum(row.outcome == "win" for row in own),
            "success_rate": sum(row.outcome == "win" for row in own) / len(own),
            "best_of_k": len(solved) / 3,
            "turns_played": sum(row.turns for row in own) / len(own),
            "failures": {
                label: sum(row.failure == label for row in own)
                for label in ("malformed", "illegal", "truncated", "discarded", "failed")
            },
            "generated_tokens": sum(int(row.mask.sum()) for row in own),
        }
        assert result["games"][game] == expected
    assert sum(game["successes"] for game in result["games"].values()) > 0  # so that the comparison says something
    assert result["cost"] == {}


# ---- going on --------------------------------------------------------------------------------------------------


@pytest.fixture
def specs(monkeypatch):
    """Counts the games that are played, by (game, task), and the sizes of calls."""
    seen, sizes, play = collections.Counter(), [], RolloutWorkers.play

    def counting(self, specs, *args, **options):
        seen.update((spec.game, spec.game_seed) for spec in specs)
        sizes.append(len(specs))
        return play(self, specs, *args, **options)

    monkeypatch.setattr(RolloutWorkers, "play", counting)
    seen.sizes = sizes
    return seen


def test_a_stop_changes_nothing(tmp_path, whole, specs, capsys):
    path = tmp_path / "parts"
    for looks in (2, 2):
        with pytest.raises(Interrupted):
            run(path, stop=StopsAfter(looks))
    capsys.readouterr()
    run(path)
    assert "24 trajectories of 9 tasks of 3 games; 20 of them are on disk" in capsys.readouterr().out
    assert specs.sizes == [10, 10, 4]
    same(rows(path), rows(whole))
    assert untimed(path) == untimed(whole)
    result, expected = (json.loads((place / "collection.json").read_text()) for place in (path, whole))
    assert result["games"] == expected["games"]


def test_a_finished_run_is_shown_and_nothing_is_played(tmp_path, whole, specs, capsys):
    path = shutil.copytree(whole, tmp_path / "again")
    run(path)
    assert not specs
    assert "holds this run, finished" in capsys.readouterr().out


def test_a_kill_loses_the_chunk_that_was_being_written(tmp_path, whole, monkeypatch):
    path, write = tmp_path / "killed", trajectory_files.write_atomically

    class Killed(BaseException):
        pass

    def dies_within_the_second(table, target, **options):
        if target.name.endswith("000001.parquet"):
            target.with_name(f".{target.name}.partial").write_bytes(b"half")
            raise Killed
        write(table, target, **options)

    monkeypatch.setattr(trajectory_files, "write_atomically", dies_within_the_second)
    with pytest.raises(Killed):
        run(path)
    monkeypatch.undo()
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step":20,"sta')
    assert len(rows(path)) == 10
    same(rows(run(path)), rows(whole))
    assert untimed(path) == untimed(whole)


def test_tasks_of_a_part_that_was_deleted_are_collected_again(tmp_path, whole, specs):
    path = shutil.copytree(whole, tmp_path / "damaged")
    (path / "finished.json").unlink()
    part = sorted((path / "trajectories").glob("*.parquet"))[1]
    table = pq.read_table(part, columns=["game", "task"]).to_pylist()
    part.unlink()
    run(path)
    assert specs == collections.Counter((row["game"], row["task"]) for row in table)
    same(rows(path), rows(whole), atol=1e-5)


def test_a_full_disk_is_told_and_the_same_command_goes_on(tmp_path, whole, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trajectory_files, "write_atomically", full)
    with pytest.raises(DatasetError, match="trajectories: cannot be written to: No space left on device"):
        run(tmp_path / "full")
    monkeypatch.undo()
    same(rows(run(tmp_path / "full")), rows(whole))


def change_last_byte(file):
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_other_weights_under_the_same_name_are_refused(tmp_path):
    model = shutil.copytree(huggingface.resolve("tiny_player"), tmp_path / "model")
    config = dataclasses.replace(CONFIG, model=dataclasses.replace(CONFIG.model, path=str(model)))
    with pytest.raises(Interrupted):
        run(tmp_path / "run", config, StopsAfter(2))
    change_last_byte(model / "model.safetensors")
    with pytest.raises(DatasetError, match=r"part-00000-of-00001-000000\.parquet, row 0: model_hash is"):
        run(tmp_path / "run", config)


def test_an_opponent_whose_weights_have_changed_is_refused(tmp_path):
    model = shutil.copytree(huggingface.resolve("tiny_player"), tmp_path / "model")
    config = dataclasses.replace(CONFIG, opponent=str(model))
    with pytest.raises(Interrupted):
        run(tmp_path / "run", config, StopsAfter(2))
    change_last_byte(model / "model.safetensors")
    with pytest.raises(RunFolderError, match=r"policies\.json: opponent is not the policy that played the games on"):
        run(tmp_path / "run", config)


def test_the_hash_of_weights_is_of_every_byte_and_of_weights_only(tmp_path):
    one = shutil.copytree(huggingface.resolve("tiny_player"), tmp_path / "one")
    before = model_folders.weights_hash(one)
    (one / "tokenizer_config.json").write_text("{}")
    (one / "notes.safetensors").write_bytes(b"no part of the model")
    assert model_folders.weights_hash(one) == before
    data = (one / "model.safetensors").read_bytes()
    (one / "model.safetensors").write_bytes(data[: len(data) // 2] + b"\x00\x01" + data[len(data) // 2 + 2 :])
    assert model_folders.weights_hash(one) != before


# ---- several processes -----------------------------------------------------------------------------------------

CONFIG_FILE = """
from dfc.config import *

def get_config():
    return {config!r}
"""


def launch(place, workdir, process, port):
    words = ["-m", "dfc.launch", f"--config={place / 'config.py'}", f"--workdir={workdir}", *joining(port, process)]
    return started(place, *words, devices=4, **programs_in(place))


def test_two_processes_go_on_with_what_one_began_and_each_writes_its_own_tasks(tmp_path, whole):
    path = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(path, stop=StopsAfter(2))
    (tmp_path / "config.py").write_text(CONFIG_FILE.format(config=CONFIG))
    port = free_port()
    both = [launch(tmp_path, path, process, port) for process in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    same(rows(path), rows(whole), atol=1e-5)
    for host in range(2):
        written = [
            task
            for part in (path / "trajectories").glob(f"part-{host:05d}-of-00002-*.parquet")
            for task in pq.read_table(part, columns=["task"])["task"].to_pylist()
        ]
        assert written
        assert {task % 2 for task in written} == {host}
    result, expected = (json.loads((place / "collection.json").read_text()) for place in (path, whole))
    assert result["games"] == expected["games"]


# ---- parts for other recipes -----------------------------------------------------------------------------------


def test_attempts_that_are_there_are_not_played_again_and_have_their_summaries(tmp_path, whole, specs):
    shutil.copytree(whole / "trajectories", tmp_path / "t")
    config = dataclasses.replace(CONFIG, tasks=4)
    workers = RolloutWorkers(config, sampling=SamplingConfig())
    wanted = [TaskSample("TowerOfHanoi-v0", task, 0) for task in (3, 0, 3)]
    play = functools.partial(workers.play, policy=PolicyWeights(workers.initial_params), opponent=config.opponent)
    with Collection(config, play, tmp_path / "t", collection.make_provenance(config, workers.host.source)) as collected:
        assert collected.missing(wanted) == [wanted[0], wanted[2]]
        found = collected.play(wanted, stop=Stop())
    workers.close()
    assert specs == {("TowerOfHanoi-v0", 3): 1}
    row = rows(whole)["TowerOfHanoi-v0", 0, 0]
    assert found[1] == TrajectorySummary(
        wanted[1], row.turns, 3, success=False, failure=row.failure, generated_tokens=row.action_tokens
    )
    assert found[0] == found[2]
    assert found[0].task_sample == wanted[0]
    assert found[0].turns == 3
