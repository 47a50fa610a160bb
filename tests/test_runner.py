"""Games between engines: every id of an episode is accounted for, and no episode depends on another.

The model has random weights, but three dimensions of its embeddings are set by hand so that it prefers pieces that
spell actions: its games go on for a few turns and end in every way there is.
"""

import collections
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dfc.config import RewardConfig, RolloutConfig, SamplingConfig
from dfc.games import registry
from dfc.games.game import Verdict
from dfc.games.replay import replay
from dfc.games.scripted import RandomLegal
from dfc.inference.engine import Engine
from dfc.models.chat import ChatTokenizer
from dfc.models.config import DecoderConfig
from dfc.models.transformer import abstract_params
from dfc.rollout.runner import THINK_PROMPT, EpisodeSpec, RolloutRunner, system_prompt
from dfc.tiny_player import build_tokenizer, transcripts
from dfc.training import rl
from dfc.training.episode_rewards import reward
from dfc.training.packing import pack, segment
from dfc.training.trainer import batch_logprobs

GAMES = {
    "TicTacToe-v0": {"illegal_allowance": 3},
    "GuessTheNumber-v0": {"max_number": 9, "illegal_allowance": 2},
    "Nim-v0": {"illegal_allowance": 3},
}
MAX_LENGTH = 128
ROLLOUT = RolloutConfig(slots=4, max_length=MAX_LENGTH, max_reply_length=4, stop=("]",))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    found = (
        t
        for game, options in GAMES.items()
        for seed in range(12)
        for t in transcripts.random_legal(game, options, seed, illegal_share=0.3)
    )
    build_tokenizer.build(transcripts.texts(found), folder, size=600)
    return ChatTokenizer.load(folder)


class Model:
    """Weights that like to write actions, and engines for them."""

    def __init__(self, tokenizer, *, end=0.0, only=None, seed=0):
        self.tokenizer = tokenizer
        self.config = DecoderConfig(
            vocabulary=tokenizer.vocabulary,
            width=32,
            layers=2,
            heads=4,
            kv_heads=2,
            head_dim=8,
            feed_forward=48,
            rope_theta=1e4,
            norm_epsilon=1e-5,
            qkv_bias=True,
            tied_embedding=False,
        )
        rng = np.random.default_rng(seed)
        self.params = jax.tree.map(
            lambda leaf: (0.2 * rng.normal(size=leaf.shape) + (leaf.ndim == 1)).astype(np.float32),
            abstract_params(self.config),
        )
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
            cache_buckets=(max_length,),
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


@pytest.fixture(scope="module")
def model(tokenizer):
    return Model(tokenizer)


def specs(count, games=tuple(GAMES), epsilon=0.0, seed=0):
    """Games in turn; the seat changes after each round of games, as does nothing else."""
    return [
        EpisodeSpec(
            game=games[n % len(games)],
            options=GAMES[games[n % len(games)]],
            game_seed=1000 * seed + n,
            seat=(n // len(games)) % registry.make(games[n % len(games)]).seats,
            group=n // 2,
            seed=5000 + 1000 * seed + n,
            epsilon=epsilon,
        )
        for n in range(count)
    ]


@functools.cache
def played(tokenizer, opponent, *, stop=("]",), end=0.0, count=36, epsilon=0.2):
    """A set of games that several tests look at."""
    rollout = dataclasses.replace(ROLLOUT, stop=stop)
    other = RandomLegal() if opponent == "scripted" else opponent
    runner = Model(tokenizer, end=end).runner(other, rollout=rollout)
    return runner.play(specs(count, epsilon=epsilon))


KINDS = {
    "other": {"opponent": "other"},
    "itself": {"opponent": "policy"},
    "scripted": {"opponent": "scripted"},
    "closed by the end id": {"opponent": "other", "stop": (), "end": 0.5},
    "never disturbed": {"opponent": "scripted", "epsilon": 0.0},
}


def turns(episode):
    """The policy's turns, from playing the record again."""
    return [turn for turn in replay(episode.record()) if turn.seat == episode.seat]


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


def first_observation(game_id):
    game = registry.make(game_id, **GAMES[game_id])
    game.reset(0)
    return game.observation(0)


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
    wanted = specs(36, epsilon=0.2)
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
    wanted, expected = specs(36, epsilon=0.2), played(tokenizer, opponent)
    other = RandomLegal() if opponent == "scripted" else opponent
    runner = model.runner(other)
    around = specs(10, epsilon=0.2, seed=7)
    found = runner.play([*around, *reversed(wanted)])[len(around) :]
    for first, second in zip(expected, reversed(found), strict=True):
        same(first, second)
    for index in (3, 0, 7):
        same(runner.play([wanted[index]])[0], expected[index])


def test_an_episode_does_not_depend_on_the_number_of_slots(tokenizer, model):
    for first, second in zip(
        played(tokenizer, "other"), model.runner("other", slots=2).play(specs(36, epsilon=0.2)), strict=True
    ):
        same(first, second)


def test_an_opponent_of_the_policys_weights_plays_as_the_policy_itself(tokenizer):
    for first, second in zip(played(tokenizer, "other"), played(tokenizer, "policy"), strict=True):
        same(first, second)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_both_seats_of_the_policy_give_an_episode_each(tokenizer, model, epsilon):
    wanted = specs(18, epsilon=epsilon)
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
    episodes = model.runner(opponent).play(specs(12, epsilon=1.0))
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
    episodes = model.runner(RandomLegal()).play(specs(150, ("TicTacToe-v0",), epsilon=1.0))
    first = collections.Counter(e.replies[0].text for e in episodes if e.seat == 0)
    assert sum(first.values()) == 75
    assert len(first) == 9
    assert max(first.values()) < 24  # expected 8.3, standard deviation 2.7
    mixed = model.runner(RandomLegal()).play(specs(40, epsilon=0.25, seed=3))
    speakers = collections.Counter(reply.speaker for e in mixed for reply in e.replies if reply.seat == e.seat)
    share = speakers["replaced"] / (speakers["replaced"] + speakers["policy"])
    assert 0.1 < share < 0.42


# ---- limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3])
def test_a_game_for_two_without_a_lead_that_takes_too_many_actions_is_no_result(tokenizer, model, limit):
    runner = model.runner(RandomLegal(), rollout=dataclasses.replace(ROLLOUT, max_actions=limit))
    longer = {e.game_seed: e for e in played(tokenizer, "scripted")}
    cut = 0
    for episode in runner.play(specs(36, epsilon=0.2)):
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


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_a_full_context_truncates_and_nothing_is_drawn_behind_it(model, epsilon):
    limit = 26
    runner = model.runner(RandomLegal(), rollout=dataclasses.replace(ROLLOUT, max_length=limit))
    episodes = runner.play(specs(24, epsilon=epsilon))
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


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_an_input_above_its_limit_ends_the_game_before_the_engine_is_asked(tokenizer, model, epsilon):
    first = len(tokenizer.first_turn(first_observation("TicTacToe-v0")))
    rollout = dataclasses.replace(ROLLOUT, max_prompt_length=first)
    ended = 0
    for episode in model.runner(RandomLegal(), rollout=rollout).play(specs(8, ("TicTacToe-v0",), epsilon=epsilon)):
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


# ---- prompts and errors -----------------------------------------------------------------------------------------


def test_the_think_prompt_stands_before_the_first_observation_only(tokenizer, model):
    rollout = dataclasses.replace(ROLLOUT, prompt="think", max_length=2048)
    (episode,) = model.runner(RandomLegal(), rollout=rollout).play(specs(1, epsilon=1.0))
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


def test_a_game_for_two_needs_an_opponent(model):
    with pytest.raises(ValueError, match="TicTacToe-v0 has two seats and no opponent was given"):
        model.runner().play(specs(1, ("TicTacToe-v0",)))


def test_too_few_slots_are_refused_instead_of_waiting_for_ever(model):
    with pytest.raises(ValueError, match=r"a game keeps 2 conversations .* has 1 free slots; make an engine with"):
        model.runner("policy", slots=1).play(specs(1))
