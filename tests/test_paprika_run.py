"""Paprika from end to end on a tiny model: every stage for real, once undisturbed and once with stops in it."""

import json
import signal

import numpy as np
import pytest
import recipe_runs
from safetensors.numpy import load_file

from dfc.config import (
    BatchConfig,
    BuildDataConfig,
    CollectConfig,
    EvaluateTasksConfig,
    MeshConfig,
    Paprika,
    PreferenceConfig,
    RolloutConfig,
    ScheduledOptimizerConfig,
    SftConfig,
    TrainingConfig,
)
from dfc.models import huggingface
from dfc.records.trajectory_files import read_trajectories
from dfc.runs.stop_signals import Interrupted, Stop

STAGES = ("collect", "build_data", "sft", "rpo", "evaluate_tasks")
CONFIG = Paprika(
    name="p",
    games={"TowerOfHanoi-v0": {"max_turns": 14}, "GuessTheNumber-v0": {}},
    rollout=RolloutConfig(slots=32, max_length=256, max_reply_length=4, stop=("]",), prefill_buckets=(32,)),
    mesh=MeshConfig(data=-1, fsdp=1),
    batch=BatchConfig(row_length=512),
    training=TrainingConfig(scan_layers=False, remat="none"),
    collect=CollectConfig(tasks=8, samples=6, samples_of={}, episodes_per_chunk=48),
    build_data=BuildDataConfig(rejected_failures=("malformed", "illegal", "truncated")),
    sft=SftConfig(batch_size=8, optimizer=ScheduledOptimizerConfig(learning_rate=3e-3)),
    rpo=PreferenceConfig(epochs=2, batch_size=8, optimizer=ScheduledOptimizerConfig(learning_rate=1e-3)),
    evaluate_tasks=EvaluateTasksConfig(tasks=6, tasks_of={}, trajectories=2),
)


class StopsIn(Stop):
    """Asks for a stop within a stage: at the second look after the stage has begun."""

    def __init__(self, path, stage):
        super().__init__()
        self.begun, self.looks = path / stage / "config.json", 2

    @property
    def requested(self):
        if self.looks and self.begun.exists():
            self.looks -= 1
        if not self.looks:
            self._noted = signal.SIGTERM
        return super().requested


def run(path, stop=None):
    return recipe_runs.run(path, CONFIG, stop, promotion="standard")


def results(path):
    """Returns the results of the evaluation without the names of folders."""
    found = json.loads((path / "evaluate_tasks" / "results.json").read_text())
    found.pop("who")
    return found


def policies(path):
    return [path / stage / "policy" for stage in ("sft", "rpo")]


def weights(folder):
    return {name: values for part in folder.glob("*.safetensors") for name, values in load_file(part).items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole") / "run")


def test_every_stage_does_its_part(whole):
    assert all((whole / stage / "finished.json").exists() for stage in STAGES)
    rows = list(read_trajectories(whole / "collect" / "trajectories"))
    assert len(rows) == 2 * 8 * 6
    base, sft, rpo = (weights(place) for place in (huggingface.resolve("tiny_player"), *policies(whole)))
    assert base.keys() == sft.keys() == rpo.keys()
    for one, other in ((base, sft), (sft, rpo)):
        assert any(not np.array_equal(one[name], other[name]) for name in one)
    found = results(whole)
    assert [setting["policy"] for setting in found["arms"]] == ["base", "sft", "rpo"]
    for setting in found["arms"]:
        assert {game: figures["games"] for game, figures in setting["groups"].items()} == dict.fromkeys(
            CONFIG.games, 12
        )


def test_stops_within_stages_change_nothing(whole, tmp_path):
    path = tmp_path / "run"
    for stage in STAGES:
        if stage == "build_data":  # in one go
            continue
        with pytest.raises(Interrupted):
            run(path, StopsIn(path, stage))
        assert (path / stage / "config.json").exists()
        assert not (path / stage / "finished.json").exists()
    run(path)
    for stopped, undisturbed in zip(policies(path), policies(whole), strict=True):
        mine, expected = weights(stopped), weights(undisturbed)
        assert mine.keys() == expected.keys()
        for name in expected:
            np.testing.assert_array_equal(mine[name], expected[name], err_msg=f"{undisturbed.parent.name} {name}")
    assert results(path) == results(whole)
