"""How games are dealt to workers and mixed changes neither the episodes nor their order."""

import dataclasses

import pytest

from dfc.config import PlayingRun, RolloutConfig, SamplingConfig
from dfc.errors import ConfigError
from dfc.evaluation.matches import match_specs
from dfc.rollout.workers import PolicyWeights, RolloutWorkers

GAMES = {"TicTacToe-v0": {}, "GuessTheNumber-v0": {}, "Nim-v0": {}}
ROLLOUT = RolloutConfig(slots=4, max_length=96, max_reply_length=4, stop=("]",), mix_games=False)


def workers_of(rollout=ROLLOUT, **given):
    return RolloutWorkers(PlayingRun(games=GAMES, rollout=rollout), sampling=SamplingConfig(), **given)


def played(rollout, opponent):
    workers = workers_of(rollout)
    specs = match_specs(GAMES, 6, 0, "table")
    episodes = workers.play(specs, PolicyWeights(workers.initial_params), opponent)
    assert [(e.game, e.game_seed, e.seat) for e in episodes] == [(j.game, j.game_seed, j.seat) for j in specs]
    return [(e.replies, e.outcomes, e.token_ids.tolist()) for e in episodes]


@pytest.mark.parametrize("opponent", ["initial", "random_legal"])
def test_workers_and_mixing_do_not_change_an_episode(opponent):
    alone = played(ROLLOUT, opponent)
    assert played(dataclasses.replace(ROLLOUT, workers=3, slots=2), opponent) == alone
    assert played(dataclasses.replace(ROLLOUT, mix_games=True, workers=2), opponent) == alone


def test_playing_itself_from_the_initial_weights_is_playing_the_initial_policy():
    assert played(ROLLOUT, "itself") == played(ROLLOUT, "initial")


def test_a_key_that_is_missing_shows_before_the_first_game(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    workers = workers_of(key_variable="NO_SUCH_KEY")
    with pytest.raises(ConfigError, match="NO_SUCH_KEY"):
        workers.seat("http://127.0.0.1:1/v1#m")


def test_an_unknown_opponent_is_named_with_those_there_are():
    workers = workers_of()
    with pytest.raises(ValueError, match="champion: must be random_legal, simple, strong, or a chat endpoint"):
        workers.play([], PolicyWeights(workers.initial_params), "champion")
