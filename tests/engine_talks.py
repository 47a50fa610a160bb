"""A small engine, and conversations played with it to their end, for the tests of decoding."""

import collections
import dataclasses
import functools

import numpy as np
import pytest
from tiny_models import random_params, tiny

from dfc.config import SamplingConfig
from dfc.inference.engine import Engine

CONFIG = tiny()
MAX_LENGTH = 48
PREFILL_BUCKETS, STEPS = (2, 4), 3
STOPS = frozenset({3, 11, 12, 29, 30, 31, 44})
TEMPERATURE = 0.8
SAMPLING = SamplingConfig(temperature=TEMPERATURE)
weights = functools.partial(random_params, CONFIG)


@pytest.fixture(scope="module")
def params():
    return weights(0)


def make(params, *, stops=STOPS, **changes):
    settings = {
        "slots": 4,
        "max_length": MAX_LENGTH,
        "stop_token_ids": stops,
        "sampling": SAMPLING,
        "prefill_buckets": PREFILL_BUCKETS,
        "decode_steps": STEPS,
        "plain_logprobs": True,
    }
    return Engine(CONFIG, params, **settings | changes)


@dataclasses.dataclass
class Talk:
    """What is said to one conversation, and what came back."""

    seed: int
    observations: list[list[int]]
    cap: int = 6
    adapter: int = 0
    token_ids: list[int] = dataclasses.field(default_factory=list)
    mask: list[bool] = dataclasses.field(default_factory=list)
    sampled_logprobs: list[float] = dataclasses.field(default_factory=list)
    plain: list[float] = dataclasses.field(default_factory=list)
    replies: list = dataclasses.field(default_factory=list)
    refused: bool = False

    def fresh(self):
        return Talk(self.seed, self.observations, self.cap, self.adapter)

    def same(self, other):
        assert self.token_ids == other.token_ids
        assert self.mask == other.mask
        assert self.refused == other.refused
        np.testing.assert_allclose(self.sampled_logprobs, other.sampled_logprobs, atol=1e-4, rtol=0)
        np.testing.assert_allclose(self.plain, other.plain, atol=1e-4, rtol=0)


def talks(count, seed=0, turns=5):
    rng = np.random.default_rng(seed)
    return [
        Talk(
            seed=1000 * seed + index,
            observations=[
                rng.integers(0, CONFIG.vocabulary, size=rng.choice([1, 2, 3, 7, 13])).tolist()
                for _ in range(rng.integers(1, turns + 1))
            ],
            cap=int(rng.choice([1, 3, 6])),
        )
        for index in range(count)
    ]


def start(engine, slot, talk):
    observation = talk.observations[len(talk.replies)]
    engine.append(slot, observation)
    talk.token_ids += observation
    talk.mask += [False] * len(observation)
    return engine.ask(slot, talk.cap)


def take(talk, reply):
    talk.replies.append(reply)
    talk.token_ids += reply.token_ids
    talk.mask += [True] * len(reply.token_ids)
    talk.sampled_logprobs += reply.sampled_logprobs
    talk.plain += reply.plain_logprobs


def run(engine, waiting, *, at_once=99, pause=0):
    """Plays every talk to its end, at most `at_once` together, a new one at most every `pause` calls."""
    waiting, live, calls = collections.deque(waiting), {}, 0
    while waiting or live:
        while waiting and engine.free and len(live) < at_once and (not live or calls >= pause):
            slot, talk, calls = engine.open(waiting[0].seed, adapter=waiting[0].adapter), waiting.popleft(), 0
            live[slot] = talk
            talk.refused = not start(engine, slot, talk)
        for slot, talk in list(live.items()):
            if talk.refused:
                engine.close(slot)
                del live[slot]
        for reply in engine.step():
            talk = live[reply.slot]
            take(talk, reply)
            if len(talk.replies) == len(talk.observations):
                engine.close(reply.slot)
                del live[reply.slot]
            else:
                talk.refused = not start(engine, reply.slot, talk)
        calls += 1
