"""Small runs of self-play with a random model on one device: how they begin, stop and are compared."""

import contextlib
import dataclasses
import os
import signal
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
import recipe_runs
from offline_rows import save_model
from recipe_runs import untimed

from dfc import multihost
from dfc.config import AdapterConfig, BatchConfig, CheckpointConfig, ModelConfig, OptimizerConfig, TrainingConfig
from dfc.config.self_play import (
    AnswerRewardConfig,
    ChallengerConfig,
    LanguageSelfPlay,
    QueryTask,
    SelfPlayRolloutConfig,
    SelfRewardConfig,
)
from dfc.errors import Interrupted
from dfc.methods.language_self_play import self_play_run
from dfc.models import huggingface, sharding
from dfc.rollout import host
from dfc.runs.stop_signals import Stop

# One layer: tracing and compiling are nearly all that a run takes. Where all of the tests' workers find it.
MODEL = Path(os.environ["DFC_TESTS_CACHE"]) / "self_play_model"


def make_model():
    """Writes the model that the runs begin with, unless another worker has."""
    if not MODEL.exists():
        made = save_model(Path(tempfile.mkdtemp(dir=MODEL.parent)))
        with contextlib.suppress(OSError):  # another worker was faster
            made.rename(MODEL)


@pytest.fixture(scope="module", autouse=True)
def one_device():
    """Of the eight that tests have: programs for all of them take long to compile."""
    make_model()
    with pytest.MonkeyPatch.context() as patch:
        one = sharding.make_mesh(1, 1, 1, devices=jax.devices()[:1])
        patch.setattr(host.sharding, "make_mesh", lambda *_, **__: one)
        yield


def letters_of_the_answer(queries, answers):
    """A reward of one's own; one answer in a few cannot be scored."""
    assert len(queries) == len(answers)
    totals = [sum(map(ord, answer)) for answer in answers]
    return [float("nan") if total % 7 == 3 else total % 5 for total in totals]


BASE = LanguageSelfPlay(
    name="test",
    model=ModelConfig(path=str(MODEL)),
    method="lsp_zero",
    iterations=3,
    groups_per_iteration=2,
    group_size=2,
    tasks={"free": QueryTask("any"), "named": QueryTask("naming", "Name {thing}", 3.0)},
    challenger=ChallengerConfig(prompt="{task} {template}", bad_queries="as_is"),
    self_reward=SelfRewardConfig(prompt="{instruction}|{response}"),
    reward=AnswerRewardConfig(function=f"{__file__}:letters_of_the_answer"),
    rollout=SelfPlayRolloutConfig(
        slots=4,
        max_length=64,
        max_query_length=6,
        max_answer_length=6,
        max_judgement_length=4,
        decode_steps=2,
        prefill_buckets=(64,),
    ),
    batch=BatchConfig(row_length=64, micro_batch_rows=4),
    training=TrainingConfig(scan_layers=False, remat="none"),
    optimizer=OptimizerConfig(learning_rate=1e-2),
    checkpoint=CheckpointConfig(every=2),
)
ROLES = dataclasses.replace(BASE, adapter=AdapterConfig(rank=2), adapter_per_role=True)


def run(config, path, stop=None):
    # As optax wants it (see conftest.optax_promotion, which a fixture of a module cannot use).
    return recipe_runs.run(path, config, stop, promotion="standard")


def weights(path, policy="policy"):
    return huggingface.load(path / policy, dtype="float32")[1]


def same(path, other):
    assert untimed(path, "episodes") == untimed(other, "episodes")
    assert untimed(path) == untimed(other)
    for one, two in zip(*(list(leaves(weights(p))) for p in (path, other)), strict=True):
        np.testing.assert_array_equal(one, two)


def leaves(tree):
    for value in tree.values() if isinstance(tree, dict) else [tree]:
        yield from leaves(value) if isinstance(value, dict) else [np.asarray(value)]


@contextlib.contextmanager
def first_gradients():
    """Gives, by the names of their places, the gradients of the first step of a run within it.

    Adam's first moments are a tenth of them, after the clip; its step itself is none of their size.
    """
    found, save = {}, self_play_run.SelfPlayRun.save

    def noting(play, state):
        save(play, state)
        if state.done == 1:
            places = [(jax.tree_util.keystr(path), x) for path, x in jax.tree.leaves_with_path(state.optimizer)]
            found.update({name: multihost.to_host(x) for name, x in places if ".mu" in name})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(self_play_run.SelfPlayRun, "save", noting)
        yield found


class Killed(Exception):  # noqa: N818 - no error of ours
    """The process is gone."""


class Counting(Stop):
    """Counts how often a run looks whether it is to stop, and ends it at one of these."""

    def __init__(self, last=None, end=lambda: Interrupted(signal.SIGTERM)):
        super().__init__()
        self.looks, self.last, self.end = 0, last, end

    def check_stop(self):
        self.looks += 1
        if self.looks - 1 == self.last:
            raise self.end()
