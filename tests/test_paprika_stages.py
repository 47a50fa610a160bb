"""The chain of Paprika's stages: what each is given, what is skipped, and where it goes on."""

import dataclasses
import sys
import types
from pathlib import Path

import pytest
from trajectory_rows import PROVENANCE, row

from dfc import validation
from dfc.config import (
    BatchConfig,
    BuildData,
    BuildDataConfig,
    CollectConfig,
    ModelConfig,
    Paprika,
    PreferenceConfig,
    RolloutConfig,
    RowsAdapterConfig,
    ScheduledOptimizerConfig,
    SftConfig,
)
from dfc.methods import paprika
from dfc.records.trajectory_files import DatasetError, TrajectoryWriter
from dfc.runs.run_folder import RunFolder
from dfc.runs.stages import StageRun, run_stages
from dfc.runs.stop_signals import Interrupted, Stop

RUN = Paprika(
    games={"minesweeper": {}},
    model=ModelConfig(path="tiny_player"),
    collect=CollectConfig(tasks=2, samples=2, samples_of={}),
    batch=BatchConfig(row_length=16_384),
    sft=SftConfig(epochs=2, optimizer=ScheduledOptimizerConfig(learning_rate=3.0)),
    rpo=PreferenceConfig(epochs=3, optimizer=ScheduledOptimizerConfig(learning_rate=4.0), alpha=0.5, beta=0.3),
)


def by_name(config, folder="run"):
    return {stage.name: stage.config for stage in paprika.stages(config, Path(folder))}


def test_each_stage_reads_what_the_one_before_wrote():
    stages = by_name(RUN)
    assert list(stages) == ["collect", "build_data", "sft", "rpo", "evaluate_tasks"]
    assert [stage.recipe for stage in stages.values()] == [
        "collect",
        "build_data",
        "sft",
        "preference",
        "evaluate_tasks",
    ]
    assert stages["build_data"].trajectories == "run/collect"
    assert stages["sft"].data == stages["rpo"].data == "run/build_data"
    assert stages["sft"].model.path == "tiny_player"
    assert stages["rpo"].model.path == "run/sft/policy"
    assert stages["evaluate_tasks"].policies == ("base=tiny_player", "sft=run/sft", "rpo=run/rpo")


def test_the_two_trainings_have_rates_and_epochs_of_their_own():
    stages = by_name(RUN)
    sft, rpo = stages["sft"], stages["rpo"]
    assert (sft.optimizer.learning_rate, sft.epochs) == (3.0, 2)
    assert (rpo.optimizer.learning_rate, rpo.epochs) == (4.0, 3)
    assert (rpo.alpha, rpo.beta) == (0.5, 0.3)


def test_one_flag_leaves_a_group_out_and_shares_the_collection():
    build = BuildDataConfig(leave_out=("wordle",))
    stages = by_name(
        dataclasses.replace(RUN, stages=("build_data", "rpo"), collected="other/collect", build_data=build)
    )
    assert list(stages) == ["build_data", "rpo"]
    assert stages["build_data"].trajectories == "other/collect"
    assert stages["build_data"].leave_out == ("wordle",)
    assert stages["rpo"].model.path == "tiny_player"  # nothing came before


def test_adapters_are_for_training_only():
    adapter = RowsAdapterConfig(rank=4, base="nf4")
    stages = by_name(dataclasses.replace(RUN, adapter=adapter))
    assert {name for name, config in stages.items() if hasattr(config, "adapter")} == {"sft", "rpo"}
    assert stages["sft"].adapter == stages["rpo"].adapter == adapter


def test_rows_that_are_there_are_trained_on_without_building():
    stages = by_name(dataclasses.replace(RUN, stages=("sft", "rpo"), data="other/build_data"))
    assert stages["sft"].data == stages["rpo"].data == "other/build_data"


def test_building_refuses_what_a_later_training_would_find_empty(tmp_path):
    with TrajectoryWriter(tmp_path / "trajectories", PROVENANCE) as writer:
        writer.write(row("wordle", 0, 0))  # a success: something to imitate, no pair
    config = dataclasses.replace(RUN, stages=("build_data", "sft", "rpo"), collected=str(tmp_path / "trajectories"))
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
        ({"stages": ("rpo", "sft")}, "stages=('rpo', 'sft'): must be some of collect, build_data, sft, rpo, evaluate"),
        ({"stages": ()}, "stages=(): must be some of collect, build_data, sft, rpo, evaluate_tasks, each once"),
        ({"stages": ("fuse",)}, "stages=('fuse',) (tuple): must be a tuple such as ('collect', 'build_data')"),
        ({"sft": SftConfig(epochs=0)}, "sft.epochs=0"),
    ],
)
def test_wrong_stages_are_refused(change, words):
    found = validation.problems(dataclasses.replace(RUN, **change))
    assert any(words in problem for problem in found), found


def test_rows_that_training_would_refuse_are_refused_before_anything_is_collected():
    limits = BuildDataConfig(sft_tokens=12_000, pair_tokens=8_192)
    whole = dataclasses.replace(RUN, rollout=RolloutConfig(max_length=8_192), build_data=limits)
    short = dataclasses.replace(whole, batch=BatchConfig(row_length=12_287))
    found = " ".join(validation.problems(short))
    assert "must be at least 16384: both sides of the longest pair" in found
    assert "imitated" not in found
    found = " ".join(validation.problems(dataclasses.replace(whole, batch=BatchConfig(row_length=8_000))))
    assert "must be at least 8192, the longest trajectory that may be imitated" in found


def test_without_collecting_a_collection_must_be_named():
    config = dataclasses.replace(RUN, stages=("build_data",))
    assert any("collected is empty" in problem for problem in validation.path_problems(config))


# ---- running --------------------------------------------------------------------------------------------------------


@pytest.fixture
def recipe(monkeypatch):
    """Puts a recipe of the test's own where build_rows is; it notes what runs, and stops where it is told to."""
    module = types.ModuleType("dfc.stages.build_rows")
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
    return StageRun(f"deep/{name}", BuildData(name=name))


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
        changed = StageRun("deep/a", BuildData(name="a", seed=5))
        with pytest.raises(Exception, match="seed: the folder has 0, this run has 5"):
            run_stages(folder, lambda: [changed], stop)
