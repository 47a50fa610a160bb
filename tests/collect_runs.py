"""A small collection, and what it wrote, for the tests of collecting."""

import dataclasses

import numpy as np
import recipe_runs

from dfc.config import Collect, MeshConfig, RolloutConfig
from dfc.records.trajectory_files import read_trajectories

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


def run(path, config=CONFIG, stop=None):
    return recipe_runs.run(path, config, stop)


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
