"""Limits of a game that runs: actions, context, input and reply lengths, replies without an action."""

import dataclasses

import numpy as np
import pytest
import runner_models
from runner_models import ROLLOUT, Model, first_observation, played, specs, turns

from dfc.config import OpponentReplyConfig, RewardConfig, SamplingConfig
from dfc.games.game import Verdict
from dfc.games.replay import replay
from dfc.games.scripted import RandomLegal
from dfc.packing import pack, segment
from dfc.rollout.runner import RolloutRunner
from dfc.scoring.episode_rewards import reward
from dfc.training import rl

tokenizer = runner_models.tokenizer  # the fixture


@pytest.fixture(scope="module")
def model(tokenizer):
    return Model(tokenizer)


@pytest.mark.parametrize("limit", [1, 3])
def test_a_game_for_two_without_a_lead_that_takes_too_many_actions_is_no_result(tokenizer, model, limit):
    runner = model.runner(RandomLegal(), rollout=dataclasses.replace(ROLLOUT, max_actions=limit))
    longer = {e.game_seed: e for e in played(tokenizer, "scripted")}
    cut = 0
    for episode in runner.play(specs(36, random_action_rate=0.2)):
        whole = longer[episode.game_seed]
        legal = np.cumsum([turn.verdict is Verdict.PLAYED for turn in replay(whole.record())])
        within = int(np.searchsorted(legal, limit)) + 1  # illegal tries are replies, but no actions
        assert episode.replies == whole.replies[:within]
        if len(whole.replies) > within:
            cut += 1
            assert set(episode.outcomes) == {"truncated"}
            assert (episode.forfeited_by, episode.overrun_by) == (None, None)
            assert episode.counted == (len(episode.outcomes) == 1)  # alone nobody else can have delayed it
        else:
            assert episode.outcomes == whole.outcomes
        list(replay(episode.record()))
    assert cut > 3


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_a_full_context_truncates_and_nothing_is_drawn_behind_it(model, rate):
    limit = 26
    runner = model.runner(RandomLegal(), rollout=dataclasses.replace(ROLLOUT, max_length=limit))
    episodes = runner.play(specs(24, random_action_rate=rate))
    cut = [e for e in episodes if e.outcome == "truncated"]
    assert 3 < len(cut) < 24
    for episode in cut:
        assert set(episode.outcomes) == {"truncated"}
        assert len(episode.sample.token_ids) >= limit
        list(replay(episode.record()))
    for episode in episodes:
        assert not episode.sample.mask[limit:].any()
        assert (episode.outcome == "truncated") or len(episode.sample.token_ids) <= limit
    assert runner.engine.free == 8
    pack([segment(e.sample, 1.0) for e in episodes], limit, 1)  # rows of max_length suffice


def test_a_reply_cut_by_a_full_context_truncates_instead_of_forfeiting(tokenizer):
    talker = Model(tokenizer, only="x", end=-9.0)
    limit = len(tokenizer.first_turn(first_observation("GuessTheNumber-v0"))) + 3  # room for 3 of the 4 ids of a reply
    runner = talker.runner(rollout=dataclasses.replace(ROLLOUT, max_length=limit))
    for episode in runner.play(specs(3, ("GuessTheNumber-v0",))):
        assert (episode.outcome, episode.malformed, episode.forfeited_by) == ("truncated", False, None)
        assert (episode.overrun_by, episode.overran, reward(episode, RewardConfig())) == (0, True, -1.0)
        assert episode.record()["overrun_by"] == 0
        assert len(episode.sample.token_ids) == limit
        assert episode.sample.mask[-3:].all()
        assert episode.replies == []
        list(replay(episode.record()))
    assert runner.engine.free == 8


def test_a_reply_that_had_all_its_room_is_unreadable_whatever_the_context(tokenizer):
    """Cut by its own limit, it must not be worth more because the context is full as well."""
    talker = Model(tokenizer, only="x", end=-9.0)
    limit = len(tokenizer.first_turn(first_observation("GuessTheNumber-v0"))) + ROLLOUT.max_reply_length
    runner = talker.runner(rollout=dataclasses.replace(ROLLOUT, max_length=limit))
    for episode in runner.play(specs(3, ("GuessTheNumber-v0",))):
        assert (episode.outcome, episode.malformed, episode.overrun_by) == ("invalid", True, None)
        assert reward(episode, RewardConfig()) == -2.0


def test_a_policy_that_rambles_has_lost_and_its_opponent_has_won_nothing(tokenizer):
    talker = Model(tokenizer, only="x", end=-9.0)
    limit = len(tokenizer.first_turn(first_observation("TicTacToe-v0"))) + 3
    rollout = dataclasses.replace(ROLLOUT, max_length=limit)
    pairs = talker.runner("policy", name="itself", both_seats=True, rollout=rollout).play_all(
        specs(4, ("TicTacToe-v0",))
    )
    for pair in pairs:
        first, second = sorted(pair, key=lambda e: e.seat)  # seat 0 moves first and never gets to its action
        assert {first.overrun_by, second.overrun_by} == {0}
        assert (first.overran, first.counted, second.overran, second.counted) == (True, True, False, False)
        assert (reward(first, RewardConfig()), second.generated_tokens) == (-1.0, 0)
    assert rl.win_rates([first for first, *_ in pairs]) == {"TicTacToe-v0": 0.0}
    runner = Model(tokenizer).runner("other", other=talker, rollout=rollout)  # the other seat rambles
    (episode,) = runner.play([dataclasses.replace(specs(1, ("TicTacToe-v0",))[0], seat=1)])
    assert (episode.overrun_by, episode.counted) == (0, False)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_an_input_above_its_limit_ends_the_game_before_the_engine_is_asked(tokenizer, model, rate):
    first = len(tokenizer.first_turn(first_observation("TicTacToe-v0")))
    rollout = dataclasses.replace(ROLLOUT, max_prompt_length=first)
    ended = 0
    for episode in model.runner(RandomLegal(), rollout=rollout).play(
        specs(8, ("TicTacToe-v0",), random_action_rate=rate)
    ):
        own = [turn for turn in turns(episode) if turn.seat == episode.seat]
        if episode.seat == 0 and episode.outcome == "truncated":
            ended += 1
            assert (episode.overrun_by, len(own), episode.overran) == (0, 1, True)
            assert len(episode.sample.token_ids) > first
            assert not episode.sample.mask[-1]  # the new observation is there, and no reply to it
        list(replay(episode.record()))
    assert ended == 4


def test_a_seat_that_could_not_even_begin_has_not_overrun_its_context(model):
    """What fills the context before a player's first word is not the player's doing."""
    rollout = dataclasses.replace(ROLLOUT, max_prompt_length=1)
    for episode in model.runner(RandomLegal(), rollout=rollout).play(specs(4, ("TicTacToe-v0",))):
        assert (episode.outcome, episode.overrun_by, episode.counted) == ("truncated", None, False)


def test_a_reply_without_an_action_is_malformed_and_ends_the_game(tokenizer):
    runner = Model(tokenizer, only="x", end=-9.0).runner(RandomLegal(), sampling=SamplingConfig(temperature=0.0))
    for spec, episode in zip(specs(6), runner.play(specs(6)), strict=True):
        assert "[" not in episode.replies[-1].text
        assert (episode.generated_tokens, episode.sample.mask[-4:].all()) == (4, True)  # cut at max_reply_length
        assert episode.malformed
        assert episode.forfeited_by == spec.seat
        assert episode.outcome == "invalid"
        assert all(outcome == "win" for seat, outcome in enumerate(episode.outcomes) if seat != spec.seat)


def test_an_empty_reply_is_malformed(tokenizer):
    runner = Model(tokenizer, only="x", end=20.0).runner(RandomLegal(), sampling=SamplingConfig(temperature=0.0))
    for episode in runner.play(specs(3)):
        assert (episode.replies[-1].text, episode.malformed, episode.generated_tokens) == ("", True, 1)


def test_the_other_seats_malformed_reply_is_not_the_policys(tokenizer, model):
    runner = model.runner("other", other=Model(tokenizer, only="x", end=-9.0))
    episodes = runner.play(specs(8, ("TicTacToe-v0",)))
    lost = [e for e in episodes if e.forfeited_by == 1 - e.seat]
    assert lost
    for episode in lost:
        assert (episode.outcome, episode.malformed) == ("win", False)
    early = [e for e in lost if e.seat == 1 and len(e.replies) == 1]
    assert early  # won before the first turn: nothing to train on
    assert all(e.sample.token_ids.size == 0 and e.steps == 0 for e in early)


@pytest.mark.parametrize("sampling", [SamplingConfig(temperature=0.0), SamplingConfig(top_k=1)])
def test_the_other_seats_policy_has_a_limit_and_a_sampling_of_its_own(tokenizer, sampling):
    talker = Model(tokenizer, only="x", end=-6.0)
    engine = talker.engine(8, stop=ROLLOUT.stop)
    reply = OpponentReplyConfig(max_length=2, sampling=sampling)
    runner = RolloutRunner(
        ROLLOUT, tokenizer, engine, opponent="policy", opponent_name="itself", both_seats=True, opponent_reply=reply
    )
    played_specs = specs(4, ("TicTacToe-v0",))
    for spec, pair in zip(played_specs, runner.play_all(played_specs), strict=True):
        for episode in pair:  # the seat that moves first forfeits by its first reply
            learner = episode.seat == spec.seat
            if episode.seat == 0:
                assert episode.generated_tokens == (ROLLOUT.max_reply_length if learner else 2)
                logprobs = episode.sample.sampled_logprobs[episode.sample.mask]
                assert (logprobs < 0).any() == learner  # the other one is certain of its token
