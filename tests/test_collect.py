"""Collecting trajectories: which games are played, what a stop, a kill or an outage changes, what it costs."""

import collections
import dataclasses
import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from chat_server import completion, fails, serving

from dfc.config import (
    Collect,
    CollectConfig,
    EndpointConfig,
    MeshConfig,
    RolloutConfig,
    SamplingConfig,
)
from dfc.data import attempts, collection, task_groups, trajectory_files
from dfc.data.attempts import CollectionStatistics, TaskSample, TrajectorySummary
from dfc.data.collection import Collection
from dfc.data.trajectory_files import DatasetError, read_trajectories
from dfc.errors import ConfigError, DfcError, RunFolderError
from dfc.games import registry
from dfc.games.paprika.twenty_questions import TwentyQuestions
from dfc.games.replay import replay
from dfc.models import huggingface, model_folders
from dfc.recipes import collect
from dfc.rollout.workers import PolicyWeights, RolloutWorkers
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Interrupted, Stop

ROOT = Path(__file__).parent.parent
GAMES = {"Nim-v0": {}, "TicTacToe-v0": {}, "TowerOfHanoi-v0": {"max_turns": 3}}
ROLLOUT = RolloutConfig(
    slots=8, max_length=96, max_reply_length=4, stop=("]",), prefill_buckets=(16,), cache_buckets=(0, 96)
)
CONFIG = Collect(
    name="c",
    seed=5,
    games=GAMES,
    mesh=MeshConfig(data=2),
    rollout=ROLLOUT,
    tasks=3,
    samples=3,
    samples_of={"TowerOfHanoi-v0": 2},
    opponent="random_legal",
    episodes_per_chunk=10,
)
EXPECTED = {  # (game, task, sample): 3 tasks each
    *((game, task, sample) for game in ("Nim-v0", "TicTacToe-v0") for task in range(3) for sample in range(3)),
    *(("TowerOfHanoi-v0", task, sample) for task in range(3) for sample in range(2)),
}


class StopsAfter(Stop):
    """Asks for a stop at the n-th look."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    def check(self):
        self.looks -= 1
        if self.looks == 0:
            self._noted = signal.SIGTERM
        super().check()


def run(path, config=CONFIG, stop=None):
    with RunFolder.open(path, config, command="test") as folder:
        collect.run(config, folder, stop or Stop())
    return path


def rows(path):
    """Rows by (game, task, sample); no two are of one attempt."""
    found = list(read_trajectories(path / "trajectories"))
    by_task_sample = {(row.game, row.task, row.sample): row for row in found}
    assert len(found) == len(by_task_sample)
    return by_task_sample


def same(one, other, *, atol=0.0):
    """Compares rows, logs within a tolerance, and everything else exactly; where they were made does not count."""
    assert one.keys() == other.keys()
    for task_sample, row in one.items():
        twin = other[task_sample]
        for field in dataclasses.fields(row):
            value, second = getattr(row, field.name), getattr(twin, field.name)
            if field.name == "sampled_logprobs" and value is not None:
                np.testing.assert_allclose(value, second, atol=atol, rtol=0)
            elif isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, second)
            else:
                assert value == second, (task_sample, field.name)


def metrics(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def untimed(path):
    return [{name: value for name, value in line.items() if name != "clock"} for line in metrics(path)]


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
    environment = dict(os.environ, JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES="4", PYTHONPATH=str(ROOT))
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(place / "xla"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-m", "dfc.launch", f"--config={place / 'config.py'}", f"--workdir={workdir}"]
    command += ["--distributed=auto", f"--coordinator=127.0.0.1:{port}", "--processes=2", f"--process={process}"]
    return subprocess.Popen(command, cwd=place, env=environment, stderr=subprocess.PIPE, text=True)  # noqa: S603 - our own command


def test_two_processes_go_on_with_what_one_began_and_each_writes_its_own_tasks(tmp_path, whole):
    path = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(path, stop=StopsAfter(2))
    (tmp_path / "config.py").write_text(CONFIG_FILE.format(config=CONFIG))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
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


# ---- simulators ------------------------------------------------------------------------------------------------

ASKING = Collect(
    name="c",
    seed=5,
    games={"twenty_questions": {"max_turns": 2}},
    mesh=CONFIG.mesh,
    rollout=dataclasses.replace(
        ROLLOUT, max_length=448, max_reply_length=8, prefill_buckets=(64,), cache_buckets=(0, 448), slots=4
    ),
    tasks=2,
    samples=2,
    samples_of={},
)


def with_simulators(url, **settings):
    endpoint = EndpointConfig(input_price=1, output_price=2, retries=0, **settings)
    return dataclasses.replace(ASKING, simulators=f"{url}#m", endpoints={"simulators": endpoint})


def world_and_judge(handler, body):
    """Says no to every question and finds no guess right."""
    judged = "referee" in body["messages"][0]["content"]
    handler.send(200, json.dumps(completion("<NOTVALID>" if judged else "No")).encode())


def test_a_chat_server_is_world_and_judge_and_its_money_is_counted(tmp_path, capsys):
    with serving(usual=world_and_judge) as server:
        path = run(tmp_path / "run", dataclasses.replace(with_simulators(server.url), episodes_per_chunk=3))
    assert len(metrics(path)) == 2
    found = rows(path)
    assert found.keys() == {("twenty_questions", task, sample) for task in range(2) for sample in range(2)}
    assert all(row.outcome == "loss" and row.failure is None and row.turns == 2 for row in found.values())
    assert {reply[1] for row in found.values() for reply in row.replies if reply[0] == 1} == {"No"}
    # Every turn is a question to the world and one to the judge; each request has 10 ids in and 3 out.
    assert len(server.requests) == 4 * 2 * 2
    cost = json.loads((path / "collection.json").read_text())["cost"]
    assert cost["requests/simulators"] == 16
    assert (cost["input_tokens/simulators"], cost["output_tokens/simulators"]) == (160, 48)
    assert cost["money/simulators"] == pytest.approx((160 * 1 + 48 * 2) / 1e6)
    assert "money/simulators 0.000256" in capsys.readouterr().out


def test_games_that_failed_are_kept_beside_those_that_did_not(tmp_path):
    with serving(fails(400), usual=world_and_judge) as server:
        found = rows(run(tmp_path / "run", with_simulators(server.url, concurrency=1)))
    labels = collections.Counter(row.failure for row in found.values())
    assert labels == {"failed": 1, None: 3}
    (failed,) = (row for row in found.values() if row.failure is not None)
    assert "400" in failed.failure_reason
    figures = json.loads((tmp_path / "run" / "collection.json").read_text())["games"]["twenty_questions"]
    assert (figures["trajectories"], figures["failures"]["failed"]) == (4, 1)


def test_an_outage_stops_the_run_and_its_games_are_played_again(tmp_path):
    with serving(usual=fails(503)) as server:
        config = with_simulators(server.url)
        games = {"TowerOfHanoi-v0": {"max_turns": 3}, **config.games}
        config = dataclasses.replace(config, games=games)
        with pytest.raises(DfcError, match=r"every game of twenty_questions failed, the first one so: .*503"):
            run(tmp_path / "run", config)
        assert {game for game, _, _ in rows(tmp_path / "run")} == {"TowerOfHanoi-v0"}
        server.usual = world_and_judge
        found = rows(run(tmp_path / "run", config))
    assert len(found) == 8
    assert all(row.failure is None for row in found.values())


def test_simulators_of_no_use_are_reported_after_their_games_were_kept(tmp_path):
    with (
        serving(usual=lambda handler, _: handler.send(200, json.dumps(completion("Perhaps")).encode())) as server,
        pytest.raises(DfcError, match=r"twenty_questions: all 4 trajectories are inconclusive .*\(4 discarded"),
    ):
        run(tmp_path / "run", with_simulators(server.url))
    assert [row.failure for row in rows(tmp_path / "run").values()] == ["discarded"] * 4
    assert not (tmp_path / "run" / "finished.json").exists()


# ---- parts for other recipes -----------------------------------------------------------------------------------


def test_attempts_that_are_there_are_not_played_again_and_have_their_summaries(tmp_path, whole, specs):
    shutil.copytree(whole / "trajectories", tmp_path / "t")
    config = dataclasses.replace(CONFIG, tasks=4)
    workers = RolloutWorkers(config, sampling=SamplingConfig())
    wanted = [TaskSample("TowerOfHanoi-v0", task, 0) for task in (3, 0, 3)]
    play = functools.partial(workers.play, policy=PolicyWeights(workers.initial_params), opponent=config.opponent)
    with Collection(config, play, tmp_path / "t", collection.make_provenance(config, workers.source)) as collected:
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


@pytest.mark.parametrize(("arms", "label"), [("difficulty", "difficulty"), ("category", "group")])
def test_arms_are_the_labels_of_scenarios_within_each_game(arms, label):
    found = task_groups.task_groups({"twenty_questions": {}, "wordle": {}}, CollectConfig(tasks=0), arms)
    oracle = collections.defaultdict(set)
    for task, scenario in enumerate(TwentyQuestions.scenarios("train")):
        oracle[f"twenty_questions {getattr(scenario, label)}"].add(("twenty_questions", task))
    oracle["wordle"] = {("wordle", task) for task in range(1515)}
    assert {name: set(tasks) for name, tasks in found.items()} == oracle
    assert sum(map(len, found.values())) == 1055 + 1515
    if arms == "difficulty":
        assert list(found) == [*(f"twenty_questions {level}" for level in ("easy", "medium", "hard")), "wordle"]


def test_arms_are_games_of_the_first_tasks_where_that_is_configured():
    games = {"twenty_questions": {}, "Nim-v0": {}}
    assert task_groups.task_groups(games, CollectConfig(tasks=2), "game") == {
        "twenty_questions": [("twenty_questions", 0), ("twenty_questions", 1)],
        "Nim-v0": [("Nim-v0", 0), ("Nim-v0", 1)],
    }


def arms_of(joined=None):
    games = {"twenty_questions": {}, "wordle": {}, "mastermind": {}}
    return task_groups.task_groups(games, CollectConfig(tasks=4), "game", joined)


def test_joined_arms_are_one_with_all_their_tasks():
    apart = arms_of()
    assert arms_of({"codes": ("mastermind", "wordle")}) == {
        "twenty_questions": apart["twenty_questions"],
        "codes": apart["wordle"] + apart["mastermind"],
    }
    assert list(arms_of({"wordle": ("wordle", "mastermind")})) == ["twenty_questions", "wordle"]


@pytest.mark.parametrize(
    "joined",
    [
        {"codes": ()},
        {"": ("wordle",)},
        {"codes": ("wordle", "chess")},
        {"a": ("wordle",), "b": ("wordle",)},
        {"twenty_questions": ("wordle",)},
    ],
)
def test_joined_arms_that_are_none_are_refused(joined):
    with pytest.raises(ConfigError, match=r"1 problem(.|\n)*join_groups: "):
        arms_of(joined)


def test_the_split_is_the_collections_and_has_its_size():
    config = Collect(games={"mastermind": {}}, split="test", tasks=0)
    assert task_groups.tasks(config.games, config) == [("mastermind", task) for task in range(500)]
    assert task_groups.playing(config).games == {"mastermind": {"split": "test"}}


def test_every_part_of_the_list_has_its_share_of_every_game():
    found = task_groups.tasks({"wordle": {}, "bandit": {}, "customer_service": {}}, CollectConfig(tasks=0))
    sizes = collections.Counter(game for game, _ in found)
    assert sizes == {"wordle": 1515, "bandit": 81, "customer_service": 120}
    so_far = collections.Counter()
    for number, (game, _) in enumerate(found, start=1):
        so_far[game] += 1
        for name, size in sizes.items():
            assert abs(so_far[name] - number * size / len(found)) <= 2


def test_samples_of_single_games_differ_and_stand_together():
    settings = CollectConfig(tasks=2, samples=3, samples_of={"mastermind": 5})
    found = attempts.planned({"mastermind": {}, "bandit": {}}, settings)
    assert collections.Counter(task_sample.game for task_sample in found) == {"mastermind": 10, "bandit": 6}
    runs = [
        task_sample[:2]
        for task_sample, before in zip(found, [None, *found], strict=False)
        if task_sample[:2] != (before or ())[:2]
    ]
    assert len(runs) == len(set(runs)) == 4


def test_a_limit_that_cuts_many_trajectories_is_named():
    some = [
        TrajectorySummary(
            TaskSample("wordle", task, 0),
            1,
            6,
            success=False,
            failure="truncated" if task < 3 else None,
            generated_tokens=1,
        )
        for task in range(20)
    ]
    (said,) = collect.hints(CollectionStatistics(some).rows(), CONFIG.rollout)
    assert said.startswith("wordle: 15% were cut by a limit outside the rules (rollout.max_length=")
    assert collect.hints(CollectionStatistics(some[2:]).rows(), CONFIG.rollout) == []


def test_a_game_of_which_few_were_played_is_given_time():
    lost = [
        TrajectorySummary(TaskSample("wordle", task, 0), 1, 6, success=False, failure="discarded", generated_tokens=1)
        for task in range(19)
    ]
    planned = {"wordle": 100}
    CollectionStatistics(lost).refuse_inconclusive(planned)
    said = dataclasses.replace(lost[0], task_sample=TaskSample("wordle", 50, 0), failure="malformed")
    more = dataclasses.replace(lost[0], task_sample=TaskSample("wordle", 51, 0))
    CollectionStatistics([*lost, said, more]).refuse_inconclusive(planned)
    for known in (planned, None):
        with pytest.raises(DfcError, match="all 20 trajectories are inconclusive"):
            CollectionStatistics([*lost, more]).refuse_inconclusive(known)
    with pytest.raises(DfcError, match="all 3 trajectories are inconclusive"):
        CollectionStatistics(lost[:3]).refuse_inconclusive({"wordle": 3})
