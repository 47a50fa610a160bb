"""Runners whose engine counts what happens to its slots, for the tests of games that do not go well.

The model has random weights; replies restricted to legal actions make it play.
"""

import functools
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from tiny_models import random_params, tiny

from dfc.config import RolloutConfig, SamplingConfig
from dfc.inference.engine import Engine
from dfc.models.chat import ChatTokenizer
from dfc.rollout.runner import EpisodeSpec, RolloutRunner
from dfc.tools.small_models import build_tokenizer, transcripts

GAMES = {"TicTacToe-v0": {}, "Nim-v0": {"piles": (2, 2)}}
MAX_LENGTH, SLOTS = 128, 8
ROLLOUT = RolloutConfig(slots=4, max_length=MAX_LENGTH, max_reply_length=6, stop=("]",), legal_only=True)


@functools.cache
def games_tokenizer():
    """A tokenizer of texts of these games, one for all files of tests."""
    found = (
        t
        for game in (*GAMES, "GuessTheNumber-v0")
        for n in range(9)
        for t in transcripts.random_legal(game, {}, n, illegal_share=0.2)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_tokenizer.build(transcripts.texts(found), folder, size=560)
        return ChatTokenizer.load(folder)


@pytest.fixture(scope="module")
def tokenizer():
    return games_tokenizer()


class Watched(Engine):
    """Counts what happens to slots, and may be told to break."""

    opened = parked = unparked = most_in_flight = 0
    breaks = None

    def open(self, *arguments, **options):
        self.opened += 1
        return super().open(*arguments, **options)

    def park(self, slot):
        self.parked += 1
        return super().park(slot)

    def unpark(self, parked):
        self.unparked += 1
        return super().unpark(parked)

    def collect(self):
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        if self.breaks is not None:
            error, self.breaks = self.breaks, None
            raise error
        return super().collect()


@functools.cache
def weights(vocabulary, seed=0):
    smaller = {"width": 16, "layers": 1, "heads": 2, "kv_heads": 1, "feed_forward": 24}
    config = tiny(vocabulary=vocabulary, qkv_bias=False, tied_embedding=True, **smaller)
    return config, random_params(config, seed, 0.3)


def make(tokenizer, opponent, *, free=SLOTS, rollout=ROLLOUT, engine=None, **options):
    """Returns a runner and its engine.

    All engines have one shape, so that they share compiled programs: slots beyond `free` are taken, not left out.
    """
    if engine is None:
        config, params = weights(tokenizer.vocabulary)
        engine = Watched(
            config,
            params,
            slots=SLOTS,
            rows=1,
            max_length=rollout.max_length,
            stop_token_ids=tokenizer.stop_token_ids(rollout.stop),
            sampling=SamplingConfig(),
            prefill_buckets=(16,),
            decode_steps=8,
        )
        for _ in range(SLOTS - free):
            engine.open(0)
        engine.opened = 0
    return RolloutRunner(rollout, tokenizer, engine, opponent=opponent, opponent_name="other", **options), engine


def specs(count, game="TicTacToe-v0", seat=None, random_action_rate=0.0):
    return [
        EpisodeSpec(game, GAMES.get(game, {}), n, n % 2 if seat is None else seat, n, 100 + n, random_action_rate)
        for n in range(count)
    ]


def same(first, second):
    assert first.record() == second.record()
    assert first.sample.token_ids.tolist() == second.sample.token_ids.tolist()
    np.testing.assert_allclose(first.sample.sampled_logprobs, second.sample.sampled_logprobs, atol=1e-4, rtol=0)
    assert first.sample.versions.tolist() == second.sample.versions.tolist()


def first_free(messages):
    """Plays Tic Tac Toe from the chat alone: the lowest cell that nobody has named."""
    taken = {m["content"] for m in messages if m["role"] == "assistant"}
    for message in messages:
        if message["role"] == "user":
            taken.update(re.findall(r"Opponent plays (\[\d\])", message["content"]))
    return next(f"[{cell}]" for cell in range(9) if f"[{cell}]" not in taken)


class FirstFree:
    """The same as a scripted player."""

    def act(self, game, _):
        return game.legal_actions()[0]


def truncated(episode):
    return set(episode.outcomes) == {"truncated"}
