"""Slots of a runner, its calls in flight, versions of drawn ids, and replies restricted to legal actions."""

import dataclasses

import numpy as np
import pytest
import watched_runners
from watched_runners import GAMES, ROLLOUT, SLOTS, make, same, specs, weights

from dfc.games.replay import replay
from dfc.games.scripted import RandomLegal
from dfc.rollout.runner import MOST_ACTIONS, EpisodeSpec

tokenizer = watched_runners.tokenizer  # the fixture


def test_a_seat_that_is_never_asked_takes_no_slot(tokenizer):
    runner, engine = make(tokenizer, RandomLegal())
    assert all(e.generated_tokens == 0 for e in runner.play(specs(6, random_action_rate=1.0)))
    assert engine.opened == 0
    runner, engine = make(tokenizer, "policy")
    runner.play(specs(6, random_action_rate=1.0))
    assert engine.opened == 6  # the other seat's


@pytest.mark.parametrize("free", [2, 3, 7])
def test_episodes_do_not_depend_on_how_many_games_fit(tokenizer, free):
    expected = make(tokenizer, "policy")[0].play(specs(8))
    runner, engine = make(tokenizer, "policy", free=free)
    for found, whole in zip(runner.play(specs(8)), expected, strict=True):
        same(found, whole)
    assert (engine.opened, engine.parked, engine.free) == (16, 0, free)


def test_no_more_games_are_in_flight_than_configured(tokenizer):
    runner, engine = make(tokenizer, RandomLegal(), rollout=dataclasses.replace(ROLLOUT, slots=3))
    taken = []
    launch = engine.launch
    engine.launch = lambda: taken.append(SLOTS - engine.free) or launch()
    runner.play(specs(8))
    assert max(taken) == 3


def test_one_call_computes_while_the_games_of_another_move_on(tokenizer):
    runner, engine = make(tokenizer, "policy")
    runner.play(specs(8))
    assert engine.most_in_flight == 2


def test_every_drawn_id_carries_the_version_it_was_drawn_under(tokenizer):
    runner, engine = make(tokenizer, "policy")
    _, params = weights(tokenizer.vocabulary, seed=1)
    engine.set_params(weights(tokenizer.vocabulary)[1], 3)

    def listed():
        yield from specs(5)
        engine.set_params(params, 4)
        yield from specs(8)[5:]

    found = runner.play(listed())
    for episode in found:
        assert episode.sample.versions.dtype == np.int32
        np.testing.assert_array_equal(episode.sample.versions == -1, ~episode.sample.mask)
        sampled = episode.sample.versions[episode.sample.mask]
        assert (np.diff(sampled) >= 0).all()
        assert episode.policy_version == sampled[0]
    assert {e.policy_version for e in found} == {3, 4}
    assert any(len(set(e.sample.versions[e.sample.mask].tolist())) == 2 for e in found)  # some were under way


@pytest.mark.parametrize("game", GAMES)
def test_replies_restricted_to_legal_actions_are_legal(tokenizer, game):
    free, _ = make(tokenizer, "policy", rollout=dataclasses.replace(ROLLOUT, legal_only=False))
    assert all(e.malformed or e.forfeited_by is not None for e in free.play(specs(6, game)))  # what weights do alone
    runner, _ = make(tokenizer, "policy")
    for episode in runner.play(specs(6, game)):
        assert (episode.forfeited_by, episode.illegal_tries) == (None, 0)
        assert episode.outcome in ("win", "draw", "loss")
        assert {str(turn.verdict) for turn in replay(episode.record())} == {"played"}


@pytest.mark.parametrize("actions", [MOST_ACTIONS, MOST_ACTIONS + 1])
def test_too_many_actions_are_not_restricted(tokenizer, actions):
    runner, engine = make(tokenizer, None)
    seen = []
    ask = engine.ask
    engine.ask = lambda slot, most, trie=None: seen.append(trie) or ask(slot, most, trie)
    spec = EpisodeSpec("GuessTheNumber-v0", {"max_number": actions}, 0, 0, 0, 0)
    runner.play([spec])
    assert (seen[0] is None) == (actions > MOST_ACTIONS)


def test_a_position_that_comes_back_has_the_same_constraint(tokenizer):
    runner, engine = make(tokenizer, "policy")
    seen = []
    ask = engine.ask
    engine.ask = lambda slot, most, trie=None: seen.append(trie) or ask(slot, most, trie)
    runner.play(specs(4, seat=0))
    assert len({id(trie) for trie in seen}) < len(seen)
    assert len({trie.nodes for trie in seen}) == len({id(trie) for trie in seen})
