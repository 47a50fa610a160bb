"""A model that likes to write actions, its runners and the games they play, for the tests of the runner.

The model has random weights, but three dimensions of its embeddings are set by hand so that it prefers pieces that
spell actions: its games go on for a few turns and end in every way there is.
"""

import dataclasses
import functools
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import random_params, tiny

from dfc.config import RolloutConfig, SamplingConfig
from dfc.games import registry
from dfc.games.replay import replay
from dfc.games.scripted import RandomLegal
from dfc.inference.engine import Engine
from dfc.models.chat import ChatTokenizer
from dfc.rollout.runner import EpisodeSpec, RolloutRunner
from dfc.tools.small_models import build_tokenizer, transcripts

GAMES = {
    "TicTacToe-v0": {"illegal_allowance": 3},
    "GuessTheNumber-v0": {"max_number": 9, "illegal_allowance": 2},
    "Nim-v0": {"illegal_allowance": 3},
}
MAX_LENGTH = 128
ROLLOUT = RolloutConfig(slots=4, max_length=MAX_LENGTH, max_reply_length=4, stop=("]",))


@functools.cache
def games_tokenizer():
    """A tokenizer of texts of these games, one for all files of tests."""
    found = (
        t
        for game, options in GAMES.items()
        for seed in range(12)
        for t in transcripts.random_legal(game, options, seed, illegal_share=0.3)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_tokenizer.build(transcripts.texts(found), folder, size=600)
        return ChatTokenizer.load(folder)


@pytest.fixture(scope="module")
def tokenizer():
    return games_tokenizer()


class Model:
    """Weights that like to write actions, and engines for them."""

    def __init__(self, tokenizer, *, end=0.0, only=None, seed=0):
        self.tokenizer = tokenizer
        self.config = tiny(vocabulary=tokenizer.vocabulary)
        self.params = jax.tree.map(np.array, random_params(self.config, seed, 0.2))
        embedding, head = self.params["embed"]["embedding"], self.params["head"]["embedding"]

        def token_ids(texts, place):
            return sorted({tokenizer.encode_reply(text)[place] for text in texts})

        whole = token_ids([f"[{n}]" for n in range(10)] if only is None else [only], 0)  # one piece each
        opening, closing = (
            ([], []) if only else (token_ids([f"[{p} 1]" for p in range(3)], 0), token_ids(["[0 1]", "[0 2]"], 1))
        )
        # Dimension 0 is large everywhere, 1 behind the first piece of an action of two, 2 behind a whole action.
        embedding[:, 0], head[:, 0] = 8.0, -3.0 if only is None else -9.0
        head[whole, 0], head[opening, 0], head[closing, 0] = 1.0, 0.6, 0.0
        embedding[:, 1], head[:, 1] = 0.0, 0.0
        embedding[opening, 1], head[closing, 1] = 8.0, 3.0
        embedding[:, 2], head[:, 2] = 0.0, 0.0
        embedding[[*whole, *closing], 2] = 8.0
        head[tokenizer.end_token_ids[0]] = [end, 0.0, 8.0, *[0.0] * 29]
        self.params = jax.tree.map(jnp.asarray, self.params)

    def engine(self, slots=4, *, stop=("]",), max_length=MAX_LENGTH, sampling=None, rows=2):
        return Engine(
            self.config,
            self.params,
            slots=slots,
            max_length=max_length,
            stop_token_ids=self.tokenizer.stop_token_ids(stop),
            sampling=sampling or SamplingConfig(),
            prefill_buckets=(4,),
            rows=rows,
        )

    def runner(self, opponent=None, *, slots=8, rollout=ROLLOUT, name="other", other=None, both_seats=False, **engine):
        """A runner whose engine it keeps; the opponent "other" is a second policy, by default of the same weights."""
        engine = self.engine(slots, stop=rollout.stop, max_length=rollout.max_length, **engine)
        if opponent == "other":
            engine.set_params((other or self).params, 0, policy="other")
        runner = RolloutRunner(
            rollout, self.tokenizer, engine, opponent=opponent, opponent_name=name, both_seats=both_seats
        )
        runner.engine = engine
        return runner


def specs(count, games=tuple(GAMES), random_action_rate=0.0, seed=0):
    """Games in turn; the seat changes after each round of games, as does nothing else."""
    return [
        EpisodeSpec(
            game=games[n % len(games)],
            options=GAMES[games[n % len(games)]],
            game_seed=1000 * seed + n,
            seat=(n // len(games)) % registry.make(games[n % len(games)]).seats,
            group=n // 2,
            seed=5000 + 1000 * seed + n,
            random_action_rate=random_action_rate,
        )
        for n in range(count)
    ]


@functools.cache
def played(tokenizer, opponent, *, stop=("]",), end=0.0, count=36, random_action_rate=0.2):
    """A set of games that several tests look at."""
    rollout = dataclasses.replace(ROLLOUT, stop=stop)
    other = RandomLegal() if opponent == "scripted" else opponent
    runner = Model(tokenizer, end=end).runner(other, rollout=rollout)
    return runner.play(specs(count, random_action_rate=random_action_rate))


def turns(episode):
    """The policy's turns, from playing the record again."""
    return [turn for turn in replay(episode.record()) if turn.seat == episode.seat]


def first_observation(game_id):
    game = registry.make(game_id, **GAMES[game_id])
    game.reset(0)
    return game.observation(0)
