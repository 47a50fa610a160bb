"""Games between engines: every id of an episode is accounted for, and no episode depends on another."""

import collections
import dataclasses
import math
import re

import jax
import numpy as np
import pytest
import runner_models
from runner_models import MAX_LENGTH, ROLLOUT, Model, played, specs, turns

from dfc.games import registry
from dfc.games.game import Verdict
from dfc.games.replay import replay
from dfc.games.scripted import RandomLegal
from dfc.packing import pack, segment
from dfc.rollout.match import EpisodeSpec, Match
from dfc.rollout.runner import THINK_PROMPT, system_prompt
from dfc.training.batch_logprobs import batch_logprobs

tokenizer = runner_models.tokenizer  # the fixture


@pytest.fixture(scope="module")
def model(tokenizer):
    return Model(tokenizer)


KINDS = {
    "other": {"opponent": "other"},
    "itself": {"opponent": "policy"},
    "scripted": {"opponent": "scripted"},
    "closed by the end id": {"opponent": "other", "stop": (), "end": 0.5},
    "never disturbed": {"opponent": "scripted", "random_action_rate": 0.0},
}


def rendered(tokenizer, episode):
    """Walks through an episode's ids next to its replay; returns how its replies ended."""
    token_ids, sampled = episode.sample.token_ids.tolist(), episode.sample.mask.tolist()
    at, closed, ends = 0, False, collections.Counter()
    for number, turn in enumerate(turns(episode)):
        context = tokenizer.next_turn(turn.observation, closed=closed) if number else None
        context = tokenizer.first_turn(turn.observation) if context is None else context
        assert token_ids[at : at + len(context)] == context
        assert not any(sampled[at : at + len(context)])
        at += len(context)
        closed = False
        if turn.status == "replaced":
            reply = tokenizer.encode_reply(turn.reply)
            assert token_ids[at : at + len(reply)] == reply
            assert not any(sampled[at : at + len(reply)])
            at += len(reply)
            continue
        end = at
        while end < len(token_ids) and sampled[end]:
            end += 1
        reply = token_ids[at:end]
        assert 1 <= len(reply) <= ROLLOUT.max_reply_length
        closed = reply[-1] in tokenizer.end_token_ids
        assert tokenizer.decode(reply) == turn.reply  # an end id has no text
        ends["closed" if closed else "stopped" if "]" in turn.reply else "cut"] += 1
        at = end
    return at, closed, ends


def last_observation(episode):
    """What the policy's seat was to see when a game was truncated."""
    game = registry.make(episode.game, **episode.options)
    game.reset(episode.game_seed)
    for reply in episode.replies:
        game.step(reply.text)
    return game.observation(episode.seat)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_every_id_is_what_the_replay_of_the_game_says(tokenizer, kind):
    ends, several = collections.Counter(), 0
    for episode in played(tokenizer, **kind):
        at, closed, found = rendered(tokenizer, episode)
        ends += found
        several += sum(found.values()) > 2
        if episode.outcome == "truncated":  # what it was asked, or nothing if the other seat was to move
            asked = tokenizer.next_turn(last_observation(episode), closed=closed)
            rest = episode.sample.token_ids[at:][~episode.sample.mask[at:]].tolist()
            if rest[len(asked) :]:  # a replaced action found no room
                assert len(episode.sample.token_ids) > MAX_LENGTH
                assert tokenizer.decode(rest[len(asked) :]).startswith("[")
                del rest[len(asked) :]
            assert rest in ([], asked)
        else:
            assert at == len(episode.sample.token_ids)
    assert several
    assert ends["closed" if kind.get("stop") == () else "stopped"] > 10


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_log_probabilities_stand_at_drawn_ids_and_nowhere_else(tokenizer, kind):
    for episode in played(tokenizer, **kind):
        shape = episode.sample.token_ids.shape
        assert {episode.sample.mask.shape, episode.sample.sampled_logprobs.shape} == {shape}
        assert (episode.sample.token_ids.dtype, episode.sample.mask.dtype, episode.sample.sampled_logprobs.dtype) == (
            np.int32,
            bool,
            np.float32,
        )
        np.testing.assert_array_equal(episode.sample.sampled_logprobs != 0, episode.sample.mask)
        assert (episode.sample.sampled_logprobs <= 0).all()
        spoken = sum(reply.speaker == "policy" for reply in episode.replies)
        assert (episode.generated_tokens > 0) == (spoken > 0) or episode.outcome == "truncated"


def test_the_trainer_finds_the_log_probabilities_of_the_rollout(tokenizer, model):
    """Ids drawn one by one from a cache against whole packed rows."""
    episodes = played(tokenizer, "other")
    batch = pack([segment(e.sample, 1.0) for e in episodes], MAX_LENGTH, 4)
    assert batch.mask.sum() == sum(e.generated_tokens for e in episodes) > 50
    capacity = batch.mask.size
    found = jax.jit(lambda params: batch_logprobs(model.config, params, batch, capacity))(model.params)
    np.testing.assert_allclose(found, batch.sampled_logprobs, atol=1e-4, rtol=0)
    assert batch.sampled_logprobs.min() < -2


def test_the_games_end_in_every_way(tokenizer):
    """The tests above say little if all games end at once."""
    found = [e for kind in KINDS.values() for e in played(tokenizer, **kind)]
    ends = collections.Counter(str(e.outcome) for e in found)
    assert min(ends[outcome] for outcome in ("win", "loss", "invalid")) > 1
    assert sum(e.illegal_tries > 0 for e in found) > 3
    assert any(e.outcome == "invalid" and not e.malformed for e in found)
    assert any(e.malformed for e in found)
    for e in found:
        assert e.illegal_tries == sum(turn.verdict in ("illegal", "forfeit_illegal") for turn in turns(e))
        assert e.malformed == any(turn.verdict is Verdict.FORFEIT_MALFORMED for turn in turns(e))
        assert e.malformed <= (e.forfeited_by == e.seat)


# ---- who plays what ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opponent", ["other", "policy", "scripted"])
def test_episodes_come_in_the_order_of_the_jobs_and_seats_are_theirs(tokenizer, opponent):
    wanted = specs(36, random_action_rate=0.2)
    for spec, episode in zip(wanted, played(tokenizer, opponent), strict=True):
        found = (episode.game, episode.options, episode.game_seed, episode.seat, episode.group)
        assert found == (spec.game, spec.options, spec.game_seed, spec.seat, spec.group)
        speakers = {(reply.seat == spec.seat, reply.speaker) for reply in episode.replies}
        assert speakers <= {(True, "policy"), (True, "replaced"), (False, "opponent")}
        assert episode.opponent == ("none" if spec.game.startswith("Guess") else "other")
        assert len(episode.outcomes) == (1 if spec.game.startswith("Guess") else 2)
    assert {spec.seat for spec in wanted} == {0, 1}


def test_a_scripted_opponent_plays_its_seat_legally(tokenizer):
    verdicts = [
        turn.verdict for e in played(tokenizer, "scripted") for turn in replay(e.record()) if turn.seat != e.seat
    ]
    assert len(verdicts) > 10
    assert set(verdicts) == {Verdict.PLAYED}


def same(first, second):
    assert first.record() == second.record()
    assert first.sample.token_ids.tolist() == second.sample.token_ids.tolist()
    assert first.sample.mask.tolist() == second.sample.mask.tolist()
    np.testing.assert_allclose(first.sample.sampled_logprobs, second.sample.sampled_logprobs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("opponent", ["other", "policy", "scripted"])
def test_an_episode_does_not_depend_on_the_others(tokenizer, model, opponent):
    """Other neighbours, another order, one at a time: the same games, id for id."""
    wanted, expected = specs(36, random_action_rate=0.2), played(tokenizer, opponent)
    other = RandomLegal() if opponent == "scripted" else opponent
    runner = model.runner(other)
    around = specs(10, random_action_rate=0.2, seed=7)
    found = runner.play([*around, *reversed(wanted)])[len(around) :]
    for first, second in zip(expected, reversed(found), strict=True):
        same(first, second)
    for index in (3, 0, 7):
        same(runner.play([wanted[index]])[0], expected[index])


def test_an_episode_does_not_depend_on_the_number_of_slots(tokenizer, model):
    for first, second in zip(
        played(tokenizer, "other"), model.runner("other", slots=2).play(specs(36, random_action_rate=0.2)), strict=True
    ):
        same(first, second)


def test_an_opponent_of_the_policys_weights_plays_as_the_policy_itself(tokenizer):
    for first, second in zip(played(tokenizer, "other"), played(tokenizer, "policy"), strict=True):
        same(first, second)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_both_seats_of_the_policy_give_an_episode_each(tokenizer, model, rate):
    wanted = specs(18, random_action_rate=rate)
    alone = model.runner("policy", name="itself").play(wanted)
    pairs = model.runner("policy", name="itself", both_seats=True).play_all(wanted)
    several = 0
    for spec, before, (own, *others) in zip(wanted, alone, pairs, strict=True):
        assert own.record() == before.record()
        assert own.sample.token_ids.tolist() == before.sample.token_ids.tolist()
        assert len(others) == registry.make(spec.game).seats - 1
        for other in others:
            assert (other.seat, other.group, other.opponent) == (1 - own.seat, own.group, "itself")
            assert other.outcomes == own.outcomes
            mine = [reply.text for reply in other.replies if reply.speaker == "policy"]
            assert mine == [reply.text for reply in own.replies if reply.seat == other.seat]
            if other.outcome != "truncated" and mine:
                at, _, ends = rendered(tokenizer, other)
                assert at == len(other.sample.token_ids)
                several += sum(ends.values()) > 1
            turn_verdicts = [turn.verdict for turn in turns(other)]
            assert other.illegal_tries == sum(v in ("illegal", "forfeit_illegal") for v in turn_verdicts)
            assert other.malformed == (Verdict.FORFEIT_MALFORMED in turn_verdicts)
    assert several


def test_both_seats_need_the_policy_as_its_own_opponent(model):
    with pytest.raises(ValueError, match="both_seats needs the policy 'policy' as its own opponent, got 'other'"):
        model.runner("other", both_seats=True)


def test_a_bare_function_is_no_player_and_the_message_says_what_is(model):
    with pytest.raises(
        TypeError, match=r"got function; wrap a function: dfc.players.remote.FunctionPlayer\(function\)"
    ):
        model.runner(lambda _: "[1]")


def test_jobs_are_taken_as_slots_become_free(model):
    runner, taken = model.runner(), []

    def lazily():
        for spec in specs(12, ("GuessTheNumber-v0",)):
            assert runner.engine.free > 0  # asked for only when there is a place
            taken.append(spec.game_seed)
            yield spec

    assert [e.game_seed for e in runner.play(lazily())] == taken
    assert len(taken) == 12


def test_no_jobs_no_episodes(model):
    assert model.runner().play([]) == []


def test_the_policys_version_is_written_to_episodes(model):
    runner = model.runner()
    runner.engine.set_params(model.params, 5)
    assert {e.policy_version for e in runner.play(specs(2, ("GuessTheNumber-v0",)))} == {5}


# ---- disturbances -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opponent", [RandomLegal(), "other"], ids=["scripted", "model"])
def test_an_epsilon_of_1_replaces_every_action_by_a_legal_one(model, opponent):
    episodes = model.runner(opponent).play(specs(12, random_action_rate=1.0))
    for episode in episodes:
        assert not episode.sample.mask.any()
        assert not episode.sample.sampled_logprobs.any()
        own = turns(episode)
        assert {(turn.status, turn.verdict) for turn in own} <= {("replaced", Verdict.PLAYED)}
        assert episode.illegal_tries == 0
    assert sum(len(turns(e)) for e in episodes) > 12
    batch = pack([segment(e.sample, 1.0) for e in episodes], MAX_LENGTH, 1)
    assert not batch.mask.any()


def test_replaced_actions_are_drawn_uniformly_and_as_often_as_asked_for(model):
    episodes = model.runner(RandomLegal()).play(specs(150, ("TicTacToe-v0",), random_action_rate=1.0))
    first = collections.Counter(e.replies[0].text for e in episodes if e.seat == 0)
    assert sum(first.values()) == 75
    assert len(first) == 9
    assert max(first.values()) < 24  # expected 8.3, standard deviation 2.7
    mixed = model.runner(RandomLegal()).play(specs(40, random_action_rate=0.25, seed=3))
    speakers = collections.Counter(reply.speaker for e in mixed for reply in e.replies if reply.seat == e.seat)
    share = speakers["replaced"] / (speakers["replaced"] + speakers["policy"])
    assert 0.1 < share < 0.42


# ---- prompts and errors -----------------------------------------------------------------------------------------


def test_the_think_prompt_stands_before_the_first_observation_only(tokenizer, model):
    rollout = dataclasses.replace(ROLLOUT, prompt="think", max_length=2048)
    (episode,) = model.runner(RandomLegal(), rollout=rollout).play(specs(1, random_action_rate=1.0))
    observations = [turn.observation for turn in turns(episode)]
    start = tokenizer.first_turn(observations[0], system=THINK_PROMPT)
    assert episode.sample.token_ids[: len(start)].tolist() == start
    assert tokenizer.decode(episode.sample.token_ids).count("<think>") == THINK_PROMPT.count("<think>")


def test_the_language_of_thought_is_said_where_one_is_chosen():
    think = dataclasses.replace(ROLLOUT, prompt="think")
    assert system_prompt(ROLLOUT) is None
    assert system_prompt(think) == THINK_PROMPT
    chinese = system_prompt(dataclasses.replace(think, think_language="Chinese"))
    assert chinese == THINK_PROMPT + ". Think in Chinese."


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            {"game": "GuessTheNumber-v0", "seat": 1},
            "EpisodeSpec.seat=1: must be one of [0], GuessTheNumber-v0's seats",
        ),
        ({"seat": 2}, "EpisodeSpec.seat=2: must be one of [0, 1], TicTacToe-v0's seats"),
        ({"seat": -1}, "EpisodeSpec.seat=-1: must be one of [0, 1], TicTacToe-v0's seats"),
        ({"seat": "0"}, "EpisodeSpec.seat='0': must be one of [0, 1], TicTacToe-v0's seats"),
        ({"random_action_rate": 1.5}, "EpisodeSpec.random_action_rate=1.5: must be at least 0 and at most 1"),
        ({"random_action_rate": math.nan}, "EpisodeSpec.random_action_rate=nan: must be at least 0 and at most 1"),
        ({"game": "NoSuchGame-v0"}, "NoSuchGame-v0"),
    ],
)
def test_a_spec_that_cannot_be_played_is_named_before_any_game_of_the_call_begins(model, monkeypatch, wrong, text):
    begun, start = [], Match.start
    monkeypatch.setattr(Match, "start", lambda match: (begun.append(match), start(match))[1])
    right = EpisodeSpec("TicTacToe-v0", {}, 0, 0, 0, 0)
    runner = model.runner(RandomLegal())
    with pytest.raises(ValueError, match=re.escape(text)):
        runner.play([right] * 3 + [dataclasses.replace(right, **wrong)])
    assert not begun
    (episode,) = runner.play([right])  # the engine is free
    assert not episode.failed
    assert len(begun) == 1


def test_a_spec_that_comes_later_is_checked_before_its_game_begins(model):
    right = EpisodeSpec("GuessTheNumber-v0", {}, 0, 0, 0, 0)
    ended, rollout = {}, dataclasses.replace(ROLLOUT, slots=1)
    runner = model.runner(rollout=rollout)
    with pytest.raises(ValueError, match=r"must be one of \[0\], GuessTheNumber-v0's seats"):
        runner.play_all(iter([right, dataclasses.replace(right, seat=1)]), ended=ended)
    assert list(ended) == [0]


def test_a_game_for_two_needs_an_opponent(model):
    with pytest.raises(ValueError, match="TicTacToe-v0 has two seats and no opponent was given"):
        model.runner().play(specs(1, ("TicTacToe-v0",)))


def test_too_few_slots_are_refused_instead_of_waiting_for_ever(model):
    with pytest.raises(ValueError, match=r"a game keeps 2 conversations .* has 1 free slots; make an engine with"):
        model.runner("policy", slots=1).play(specs(1))
