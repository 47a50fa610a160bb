"""The curriculum over task groups: what a round is made of, what it starts from, what a stop or an outage changes."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import recipe_runs
from chat_server import completion, serving
from recipe_runs import StopsAfter, lines, untimed

from dfc import validation
from dfc.config import (
    CollectRound,
    EndpointConfig,
    ModelConfig,
    RolloutConfig,
    RowsAdapterConfig,
    SelectionLimits,
    TaskCurriculum,
)
from dfc.errors import ConfigError, DfcError
from dfc.methods import task_curriculum
from dfc.records import collection
from dfc.records.task_groups import task_groups
from dfc.records.trajectory_files import DatasetError, read_trajectories
from dfc.rollout.workers import RolloutWorkers
from dfc.runs.progress import Progress
from dfc.runs.stop_signals import Interrupted


def config(**settings):
    return TaskCurriculum(**{"games": {"twenty_questions": {}}, "samples": 4, **settings})


def test_the_arms_of_twenty_questions_are_its_difficulties():
    arms = task_groups(config().games, dataclasses.replace(config().collect, tasks=0))
    assert list(arms) == [f"twenty_questions {label}" for label in ("easy", "medium", "hard")]
    tasks = [task for members in arms.values() for task in members]
    assert len(tasks) == len(set(tasks)) == 1055


# ---- rounds ---------------------------------------------------------------------------------------------------------


def test_each_round_starts_from_the_last_one_and_is_its_own_reference():
    run = config(rounds=2, model=ModelConfig(path="start"), seed=7)
    stages = {stage.name: stage.config for stage in task_curriculum.stages(run, Path("runs/x"))}
    assert list(stages) == [
        *(f"round_{n}/{name}" for n in (1, 2) for name in ("collect", "build_data", "sft", "rpo")),
        "evaluate_tasks",
    ]
    assert stages["round_1/collect"].model.path == "start"
    assert stages["round_1/sft"].model.path == "start"
    assert stages["round_1/rpo"].model.path == "runs/x/round_1/sft/policy"
    assert stages["round_2/collect"].model.path == "runs/x/round_1/rpo/policy"
    assert stages["round_2/sft"].model.path == "runs/x/round_1/rpo/policy"
    assert stages["round_2/rpo"].data == "runs/x/round_2/build_data"
    assert stages["round_2/build_data"].trajectories == "runs/x/round_2/collect"
    assert stages["evaluate_tasks"].policies == (
        "base=start",
        "round_1=runs/x/round_1/rpo",
        "round_2=runs/x/round_2/rpo",
    )
    assert stages["round_1/collect"].seed != stages["round_2/collect"].seed
    assert stages["evaluate_tasks"].seed == 7


def test_pairs_alone_leave_supervised_training_out():
    run = config(rounds=1, objective="rpo")
    names = [stage.name for stage in task_curriculum.stages(run, Path("x"))]
    assert names == ["round_1/collect", "round_1/build_data", "round_1/rpo", "evaluate_tasks"]


def built(folder, *, sft, pairs):
    """Puts the files of a round's build that is finished."""
    (folder / "build_data" / "data").mkdir(parents=True)
    statistics = {"groups": [{"game": "g", "sft": sft, "pairs": pairs}, {"game": "h", "sft": 0, "pairs": 0}]}
    (folder / "build_data" / "data" / "statistics.json").write_text(json.dumps(statistics))
    (folder / "build_data" / "finished.json").write_text("{}")


@pytest.mark.parametrize(
    ("rows", "trained", "second", "policies"),
    [
        ({"sft": 0, "pairs": 0}, [], "start", ("base=start",)),
        ({"sft": 0, "pairs": 4}, ["rpo"], "{}/round_1/rpo/policy", ("base=start", "round_1={}/round_1/rpo")),
        ({"sft": 2, "pairs": 0}, ["sft"], "{}/round_1/sft/policy", ("base=start", "round_1={}/round_1/sft")),
    ],
)
def test_a_round_without_rows_trains_nothing_and_the_next_starts_from_the_same_policy(
    tmp_path, rows, trained, second, policies
):
    run = config(rounds=2, model=ModelConfig(path="start"))
    assert len(task_curriculum.stages(run, tmp_path)) == 9  # what is built is not known yet
    built(tmp_path / "round_1", **rows)
    stages = {stage.name: stage.config for stage in task_curriculum.stages(run, tmp_path)}
    assert [name for name in stages if name.startswith("round_1/")] == [
        "round_1/collect",
        "round_1/build_data",
        *(f"round_1/{name}" for name in trained),
    ]
    assert stages["round_2/collect"].model.path == second.format(tmp_path)
    expected = tuple(policy.format(tmp_path) for policy in policies)
    assert stages["evaluate_tasks"].policies == (*expected, f"round_2={tmp_path}/round_2/rpo")


def test_a_training_that_is_finished_does_not_need_its_rows_any_more(tmp_path):
    built(tmp_path / "round_1", sft=1, pairs=1)
    whole = [stage.name for stage in task_curriculum.stages(config(rounds=1), tmp_path)]
    for name in ("sft", "rpo"):
        (tmp_path / "round_1" / name).mkdir()
        (tmp_path / "round_1" / name / "finished.json").write_text("{}")
    (tmp_path / "round_1" / "build_data" / "data" / "statistics.json").unlink()
    assert [stage.name for stage in task_curriculum.stages(config(rounds=1), tmp_path)] == whole


def test_a_build_that_cannot_be_read_is_named_with_the_cure(tmp_path):
    built(tmp_path / "round_1", sft=1, pairs=1)
    (tmp_path / "round_1" / "build_data" / "data" / "statistics.json").write_text("{")
    with pytest.raises(DatasetError, match=r"statistics\.json: cannot be read .*delete .*build_data to build it again"):
        task_curriculum.stages(config(rounds=1), tmp_path)


def test_rounds_that_have_all_built_nothing_end_the_run_with_the_place_of_the_reasons(tmp_path):
    for number in (1, 2):
        built(tmp_path / f"round_{number}", sft=0, pairs=0)
    with pytest.raises(DatasetError, match=r"no round built a row to train on, see .*round_2/build_data/tables\.md"):
        task_curriculum.stages(config(rounds=2), tmp_path)


def test_one_trajectory_of_a_task_is_refused():
    assert any(problem.startswith("samples=1") for problem in validation.problems(config(samples=1)))


def test_tasks_are_chosen_from_the_games_that_are_learned_from_and_all_are_evaluated():
    games = {game: {} for game in ("TowerOfHanoi-v0", "GuessTheNumber-v0", "twenty_questions")}
    for build, learned in (
        (SelectionLimits(), [*games]),
        (SelectionLimits(leave_out=("GuessTheNumber-v0",)), ["TowerOfHanoi-v0", "twenty_questions"]),
        (SelectionLimits(leave_out=("GuessTheNumber-v0", "TowerOfHanoi-v0")), ["twenty_questions"]),
    ):
        run = config(rounds=1, games=games, build_data=build)
        stages = {stage.name: stage.config for stage in task_curriculum.stages(run, Path("x"))}
        assert list(stages["round_1/collect"].games) == learned
        assert list(stages["evaluate_tasks"].games) == list(games)


def test_what_is_played_is_the_weights_as_they_are_stored():
    adapter = RowsAdapterConfig(rank=2, base="nf4")
    run = config(rounds=1, adapter=adapter)
    stages = {stage.name: stage.config for stage in task_curriculum.stages(run, Path("x"))}
    played = {"round_1/collect", "evaluate_tasks"}
    assert {name for name in stages if not name.endswith("build_data")} == played | {"round_1/sft", "round_1/rpo"}
    assert not any(hasattr(stages[name], "adapter") for name in played)
    assert stages["round_1/sft"].adapter == stages["round_1/rpo"].adapter == adapter


# ---- a round that plays ---------------------------------------------------------------------------------------------

ROLLOUT = RolloutConfig(slots=4, max_length=96, max_reply_length=4, stop=("]",), prefill_buckets=(16,))
ROUND = CollectRound(
    name="round_1",
    games={
        "TowerOfHanoi-v0": {"num_disks": 1, "max_turns": 3},
        "GuessTheNumber-v0": {"max_turns": 4, "max_number": 9},
    },
    rollout=ROLLOUT,
    tasks=2,
    episodes_per_chunk=2,
    steps=5,
    tasks_at_once=2,
    samples=2,
)  # steps of 2, 2 and 1 tasks; a chunk is one task


def collect(path, config=ROUND, stop=None):
    return recipe_runs.run(path, config, stop)


def rows(path):
    """Rows by attempt, without what depends on the batch they were played in."""
    found = list(read_trajectories(path / "trajectories"))
    by_task_sample = {
        (row.game, row.task, row.sample): (row.token_ids.tolist(), row.outcome, row.game_seed) for row in found
    }
    assert len(found) == len(by_task_sample)
    return by_task_sample


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return collect(tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.parametrize("looks", [3, 4])  # between two steps, and within one
def test_a_stop_changes_neither_rows_nor_lines_and_no_step_is_written_twice(tmp_path, whole, monkeypatch, looks):
    path = tmp_path / "parts"
    with pytest.raises(Interrupted):
        collect(path, stop=StopsAfter(looks))
    before = lines(path)
    assert [line["step"] for line in before] == [2]
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step":4,"sta')
    started = []

    def noting(self, *args, **options):
        started.append(options["start_step"])
        made(self, *args, **options)

    made = Progress.__init__
    monkeypatch.setattr(Progress, "__init__", noting)
    collect(path)
    assert started == [2]
    assert rows(path) == rows(whole)
    assert len(rows(path)) == 10
    assert untimed(path) == untimed(whole)
    assert lines(path)[0] == before[0]  # with its clock
    results = [json.loads((place / "choices.json").read_text()) for place in (path, whole)]
    assert [line["step"] for line in lines(whole)] == [2, 4, 5]
    assert results[0]["seconds"] == sum(line["clock"]["seconds"] for line in lines(path)) > 0
    for result in results:
        result.pop("seconds")
    assert results[0] == results[1]
    assert any(results[0]["scores"].values())  # so that what is chosen depends on what was played


def test_a_step_whose_trajectories_are_gone_is_played_again(tmp_path, whole):
    path = shutil.copytree(whole, tmp_path / "run")
    (path / "finished.json").unlink()
    parts = sorted((path / "trajectories").glob("*.parquet"))
    parts[2].unlink()  # of the second step
    first = lines(path)[0]
    collect(path)
    assert rows(path) == rows(whole)
    assert untimed(path) == untimed(whole)
    assert lines(path)[0] == first


def test_the_table_is_closed_where_the_weights_cannot_be_told(tmp_path, monkeypatch):
    closed, close = [], RolloutWorkers.close

    def closing(self):
        closed.append(self)
        close(self)

    def fails(*_):
        raise OSError("the disk is gone")

    monkeypatch.setattr(RolloutWorkers, "close", closing)
    monkeypatch.setattr(collection, "make_provenance", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        collect(tmp_path / "run")
    assert len(closed) == 1


def test_games_for_two_are_refused_before_anything_is_made():
    with pytest.raises(ConfigError, match=r"games\.Nim-v0: is for two players"):
        validation.check(config(games={"Nim-v0": {}, **ROUND.games}))


# ---- simulators -----------------------------------------------------------------------------------------------------


def with_simulators(url):
    endpoint = EndpointConfig(input_price=1, output_price=2, retries=0)
    return dataclasses.replace(
        ROUND,
        games={"twenty_questions": {"max_turns": 2}},
        rollout=dataclasses.replace(ROLLOUT, max_length=448, max_reply_length=8, prefill_buckets=(64,)),
        simulators=f"{url}#m",
        endpoints={"simulators": endpoint},
        tasks=0,
        steps=2,
        tasks_at_once=2,
    )


def test_money_of_all_starts_is_counted_and_shown(tmp_path, capsys):
    def answers(handler, body):
        judged = "referee" in body["messages"][0]["content"]
        handler.send(200, json.dumps(completion("<NOTVALID>" if judged else "No")).encode())

    with serving(usual=answers) as server:
        run = with_simulators(server.url)
        with pytest.raises(Interrupted):
            collect(tmp_path, run, StopsAfter(2))  # after one task of a step of two
        first = len(server.requests)
        assert first > 0
        assert json.loads((tmp_path / "costs.json").read_text())["requests/simulators"] == first
        collect(tmp_path, run)
        requests = len(server.requests)
    assert requests > first
    result = json.loads((tmp_path / "choices.json").read_text())
    assert result["cost"]["requests/simulators"] == requests
    assert result["cost"]["money/simulators"] == pytest.approx(requests * (10 * 1 + 3 * 2) / 1e6)
    (line,) = lines(tmp_path)
    assert line["metrics"]["requests/simulators"] == requests
    said = capsys.readouterr().out
    assert f"cost so far: {requests} requests, money {requests * 16e-6:.6g}" in said
    assert f"\ncost: {requests} requests" in said


def test_simulators_of_no_use_stop_a_round(tmp_path):
    def useless(handler, _):
        handler.send(200, json.dumps(completion("Perhaps")).encode())

    with serving(usual=useless) as server:
        run = with_simulators(server.url)
        long = dataclasses.replace(run, steps=40, tasks_at_once=4, samples=3)
        with pytest.raises(DfcError, match=r"twenty_questions: all 24 trajectories are inconclusive .*\(24 discarded"):
            collect(tmp_path / "long", long)
        with pytest.raises(DfcError, match=r"twenty_questions: all 4 trajectories are inconclusive"):
            collect(tmp_path / "short", run)
    assert not (tmp_path / "long" / "choices.json").exists()
