"""The chain of Paprika's stages: what each is given, what is skipped, and where it goes on."""

import dataclasses
import sys
import types
from pathlib import Path

import pytest
from trajectory_rows import PROVENANCE, row

from dfc import validation
from dfc.config import AdapterConfig, BatchConfig, ModelConfig, OptimizerConfig, RunConfig
from dfc.data.trajectory_files import DatasetError, TrajectoryWriter
from dfc.recipes import paprika
from dfc.runs.run_folder import RunFolder
from dfc.runs.stages import StageRun, run_stages
from dfc.runs.stop_signals import Interrupted, Stop
from dfc.task_config import BuildDataConfig, CollectConfig, OfflineConfig, PaprikaConfig

RUN = RunConfig(
    recipe="paprika",
    games={"minesweeper": {}},
    model=ModelConfig(path="tiny_player"),
    collect=CollectConfig(tasks=2, samples=2, samples_of=()),
    optimizer=OptimizerConfig(learning_rate=1.0),
    batch=BatchConfig(row_length=16_384),
    offline=OfflineConfig(alpha=0.5, beta=0.3),
    paprika=PaprikaConfig(sft_learning_rate=3.0, rpo_learning_rate=4.0, sft_epochs=2, rpo_epochs=3),
)


def by_name(config, folder="run"):
    return {stage.name: stage.config for stage in paprika.stages(config, Path(folder))}


def test_each_stage_reads_what_the_one_before_wrote():
    stages = by_name(RUN)
    assert list(stages) == ["collect", "build_data", "sft", "rpo", "evaluate_tasks"]
    assert [stage.recipe for stage in stages.values()] == [
        "collect",
        "build_data",
        "offline",
        "offline",
        "evaluate_tasks",
    ]
    assert stages["build_data"].build_data.trajectories == "run/collect"
    assert stages["sft"].offline.data == stages["rpo"].offline.data == "run/build_data"
    assert stages["sft"].model.path == "tiny_player"
    assert stages["rpo"].model.path == "run/sft/policy"
    assert stages["evaluate_tasks"].policies == ("base=tiny_player", "sft=run/sft", "rpo=run/rpo")


def test_the_two_trainings_have_rates_and_epochs_of_their_own():
    stages = by_name(RUN)
    sft, rpo = stages["sft"], stages["rpo"]
    assert (sft.offline.objective, sft.optimizer.learning_rate, sft.offline.epochs) == ("supervised", 3.0, 2)
    assert (rpo.offline.objective, rpo.optimizer.learning_rate, rpo.offline.epochs) == ("preference", 4.0, 3)
    assert (rpo.offline.alpha, rpo.offline.beta) == (0.5, 0.3)


def test_one_flag_leaves_a_group_out_and_shares_the_collection():
    settings = PaprikaConfig(stages=("build_data", "rpo"), collected="other/collect")
    build = BuildDataConfig(leave_out=("wordle",))
    stages = by_name(dataclasses.replace(RUN, paprika=settings, build_data=build))
    assert list(stages) == ["build_data", "rpo"]
    assert stages["build_data"].build_data.trajectories == "other/collect"
    assert stages["build_data"].build_data.leave_out == ("wordle",)
    assert stages["rpo"].model.path == "tiny_player"  # nothing came before


def test_adapters_are_for_training_only():
    stages = by_name(dataclasses.replace(RUN, adapter=AdapterConfig(rank=4, base="nf4")))
    assert {name for name, config in stages.items() if config.adapter.rank} == {"build_data", "sft", "rpo"}


def test_rows_that_are_there_are_trained_on_without_building():
    stages = by_name(
        dataclasses.replace(
            RUN, paprika=PaprikaConfig(stages=("sft", "rpo")), offline=OfflineConfig(data="other/build_data")
        )
    )
    assert stages["sft"].offline.data == stages["rpo"].offline.data == "other/build_data"


def test_building_refuses_what_a_later_training_would_find_empty(tmp_path):
    with TrajectoryWriter(tmp_path / "trajectories", PROVENANCE) as writer:
        writer.write(row("wordle", 0, 0))  # a success: something to imitate, no pair
    settings = PaprikaConfig(stages=("build_data", "sft", "rpo"), collected=str(tmp_path / "trajectories"))
    config = dataclasses.replace(RUN, paprika=settings)
    stages = paprika.stages(config, tmp_path / "run")
    with (
        RunFolder.open(tmp_path / "run", config, command="") as folder,
        Stop() as stop,
        pytest.raises(DatasetError, match="no pair of a better and a worse trajectory"),
    ):
        run_stages(folder, lambda: stages[:1], stop)
    assert not (tmp_path / "run" / "build_data" / "finished.json").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stages": ("rpo", "sft")}, "paprika.stages"),
        ({"stages": ()}, "paprika.stages"),
        ({"stages": ("fuse",)}, "must be some of collect, build_data, sft, rpo, evaluate_tasks"),
        ({"sft_epochs": 0}, "paprika.sft_epochs=0"),
    ],
)
def test_wrong_stages_are_refused(change, words):
    config = dataclasses.replace(RUN, paprika=dataclasses.replace(RUN.paprika, **change))
    assert any(words in problem for problem in validation.problems(config))


def test_rows_that_training_would_refuse_are_refused_before_anything_is_collected():
    short = dataclasses.replace(RUN, batch=BatchConfig(row_length=12_287))
    found = " ".join(validation.problems(short))
    assert "must be at least 16384: both sides of the longest pair" in found
    assert "imitated" not in found
    found = " ".join(validation.problems(dataclasses.replace(RUN, batch=BatchConfig(row_length=8_000))))
    assert "must be at least 8192, the longest trajectory that may be imitated" in found


def test_without_collecting_a_collection_must_be_named():
    config = dataclasses.replace(RUN, paprika=PaprikaConfig(stages=("build_data",)))
    assert any("paprika.collected is empty" in problem for problem in validation.path_problems(config))


# ---- running --------------------------------------------------------------------------------------------------------


@pytest.fixture
def recipe(monkeypatch):
    """Puts a recipe of the test's own where build_data is; it notes what runs, and stops where it is told to."""
    module = types.ModuleType("dfc.recipes.build_data")
    module.seen, module.stops_in = [], None

    def run(config, folder, stop):
        del stop
        module.seen.append(config.name)
        if config.name == module.stops_in:
            folder.append("metrics", [{"step": 1}])
            raise Interrupted(15)
        folder.finish()

    module.run = run
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def stage(name):
    return StageRun(f"deep/{name}", RunConfig(name=name, recipe="build_data"))


def test_a_stopped_chain_goes_on_with_the_stage_that_was_stopped(tmp_path, recipe, capsys):
    stages = [stage(name) for name in "abc"]
    with RunFolder.open(tmp_path / "run", RUN, command="") as folder, Stop() as stop:
        recipe.stops_in = "b"
        with pytest.raises(Interrupted):
            run_stages(folder, lambda: stages, stop)
        recipe.stops_in = None
        run_stages(folder, lambda: stages, stop)
    assert recipe.seen == ["a", "b", "b", "c"]
    assert "[1/3] deep/a: finished" in capsys.readouterr().out


def test_what_a_stage_found_decides_which_come_behind_it(tmp_path, recipe):
    def plan():
        found = (tmp_path / "run" / "deep" / "a" / "finished.json").exists()
        return [stage(name) for name in ("acd" if found else "abcd")]

    with RunFolder.open(tmp_path / "run", RUN, command="") as folder, Stop() as stop:
        recipe.stops_in = "c"
        with pytest.raises(Interrupted):
            run_stages(folder, plan, stop)
        recipe.stops_in = None
        run_stages(folder, plan, stop)
    assert recipe.seen == ["a", "c", "c", "d"]


def test_a_stage_of_other_settings_is_not_continued(tmp_path, recipe):
    recipe.stops_in = "a"
    with RunFolder.open(tmp_path / "run", RUN, command="") as folder, Stop() as stop:
        with pytest.raises(Interrupted):
            run_stages(folder, lambda: [stage("a")], stop)
        changed = StageRun("deep/a", RunConfig(name="a", recipe="build_data", seed=5))
        with pytest.raises(Exception, match="seed: the folder has 0, this run has 5"):
            run_stages(folder, lambda: [changed], stop)
