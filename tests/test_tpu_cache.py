"""The engine as it runs on TPUs, on a CPU: its layout read in blocks, and by the TPU's kernel, interpreted."""

import contextlib
import functools

import hypothesis
import interpreted_tpu
import jax
import numpy as np
import pytest
from engine_schedules import FEW, Host, changing, make, some
from test_engine_schedules import close_to
from tiny_models import random_params, tiny

from dfc.config import SamplingConfig
from dfc.inference import engine as engines
from dfc.inference import programs as engine_programs
from dfc.inference.engine import Engine
from dfc.models import cached_attention
from dfc.models.cache_kernels import ragged
from dfc.models.sharding import make_mesh, param_shardings

# What the kernel takes: heads of 128.
LARGE = tiny(width=64, heads=8, kv_heads=4, head_dim=128, sliding_window=9, windowed_layers=(True, False))
PROMPTS = [list(range(5, 5 + length)) for length in (1, 19, 33, 40)]


@contextlib.contextmanager
def tpu(*, kernel=False):
    """Engines made here take this machine for a TPU; yields the shapes of queries that the kernel was traced for."""
    traced = []

    def interpreted(query, *given):
        traced.append(query.shape)
        return ragged(query, *given, interpret=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "platform_of", lambda _: "tpu")
        patch.setattr(engines, "programs", functools.lru_cache(engine_programs.Programs))
        if kernel:
            interpreted_tpu.lend(patch)
            patch.setattr(cached_attention, "ragged", interpreted)
        else:
            patch.setattr(cached_attention, "ragged_usable", lambda *_, **__: False)
        yield traced


@hypothesis.settings(FEW, max_examples=3)
@hypothesis.given(some, changing)
def test_every_reply_is_what_a_model_without_a_cache_says(scripts, schedule):
    """Forks, parking and rolling back, layers with a window and without, weights that change."""
    with tpu(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_programs, "layout_of", lambda *_: "paired")  # of such small heads it would not be
        engine = make()
        assert {layer.layout for layer in engine._cache} == {"paired"}
        found = Host(engine, scripts).play(schedule)
    close_to(found, Host(make(), scripts, check=False).play(schedule))


def conversations(config, weights, *, mesh=None, max_length=128):
    """Replies and log-probabilities of conversations that are forked, parked, rolled back and filled to the end."""
    engine = Engine(
        config,
        weights,
        slots=4 if mesh is None else 8,
        rows=2,  # few programs
        max_length=max_length,
        stop_token_ids=frozenset(),
        sampling=SamplingConfig(temperature=0.7),
        prefill_buckets=(8, 32),
        decode_steps=4,
        mesh=mesh,
        plain_logprobs=True,
    )
    assert engine._cache[0].layout == ("paired" if engines.platform_of(mesh) == "tpu" else "apart")
    said = {}

    def answer(turn):
        while engine.busy:
            for reply in engine.step():
                said[turn, names[reply.slot]] = (reply.token_ids, reply.sampled_logprobs, reply.plain_logprobs)

    names = {engine.open(seed): f"talk {seed}" for seed in range(len(PROMPTS))}
    for slot, prompt in zip(list(names), PROMPTS, strict=True):
        engine.append(slot, prompt)
        assert engine.ask(slot, 7)
    answer(0)
    first, second, third, fourth = names  # hold 8, 26, 40 and 47
    parked = engine.park(second)
    del names[second]
    fork = engine.fork(third, 77)  # on one device in the second one's slot
    names[fork] = "fork"
    engine.append(first, list(range(41, 9, -1)) * 3)
    engine.roll_back(fourth, 12)
    for slot in list(names):
        engine.append(slot, [3, 4])
        assert engine.ask(slot, 9)
    answer(1)
    engine.close(fork)
    del names[fork]
    names[engine.unpark(parked)] = "unparked"
    for slot in list(names):
        if names[slot] in ("unparked", "talk 0"):
            engine.append(slot, [6, 7, 8])
            assert engine.ask(slot, 12)  # the first one's slot is full before
    answer(2)
    assert max(len(engine.token_ids(slot)) for slot in names) == max_length
    return said


def same(found, expected):
    assert found.keys() == expected.keys()
    for key, (token_ids, *logprobs) in found.items():
        assert token_ids == expected[key][0], key
        for one, other in zip(logprobs, expected[key][1:], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4, rtol=0)


@pytest.fixture(scope="module")
def large():
    weights = random_params(LARGE, 0)
    return weights, conversations(LARGE, weights)


@pytest.mark.parametrize("kernel", [False, True], ids=["blocks", "kernel"])
def test_replies_are_those_of_a_cpu(large, kernel):
    weights, expected = large
    with tpu(kernel=kernel) as traced:
        same(conversations(LARGE, weights), expected)
    # Decoding and both widths of reading; (rows, heads, tokens, head size) where the kernel reads.
    assert {shape[2] for shape in traced} == ({1, 8, 32} if kernel else set())


def test_over_eight_devices_replies_are_those_of_a_cpu(large):
    weights, expected = large
    mesh = make_mesh(2, 2, 2, devices=jax.devices()[:8])
    split = jax.device_put(weights, param_shardings(LARGE, mesh))
    with tpu():
        same(conversations(LARGE, split, mesh=mesh), expected)
