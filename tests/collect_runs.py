"""A small collection, and what it wrote, for the tests of collecting."""

import dataclasses
import json
import signal

import numpy as np

from dfc.config import Collect, MeshConfig, RolloutConfig
from dfc.records.trajectory_files import read_trajectories
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.stages import collect

GAMES = {"Nim-v0": {}, "TicTacToe-v0": {}, "TowerOfHanoi-v0": {"max_turns": 3}}
ROLLOUT = RolloutConfig(slots=8, max_length=96, max_reply_length=4, stop=("]",), prefill_buckets=(16,))
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
