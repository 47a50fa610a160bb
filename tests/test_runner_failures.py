"""Games that do not go well: slow, failing and dead opponents, games that raise or never end, interrupts.

The model has random weights; replies restricted to legal actions make it play.
"""

import dataclasses
import functools
import re
import threading
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dfc.config import RolloutConfig, SamplingConfig
from dfc.games import registry
from dfc.games.replay import ReplayError, replay
from dfc.games.scripted import RandomLegal
from dfc.games.textarena.tic_tac_toe import TicTacToe
from dfc.inference.engine import Engine
from dfc.models.chat import ChatTokenizer
from dfc.models.config import DecoderConfig
from dfc.models.transformer import abstract_params
from dfc.players.remote import FunctionPlayer, PlayerError
from dfc.rollout.runner import MOST_ACTIONS, THINK_PROMPT, EpisodeSpec, RolloutRunner
from dfc.tiny_player import build_tokenizer, transcripts

GAMES = {"TicTacToe-v0": {}, "Nim-v0": {"piles": (2, 2)}}
MAX_LENGTH, SLOTS = 128, 8
ROLLOUT = RolloutConfig(slots=4, max_length=MAX_LENGTH, max_reply_length=6, stop=("]",), legal_only=True)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    found = (
        t
        for game in (*GAMES, "GuessTheNumber-v0")
        for n in range(9)
        for t in transcripts.random_legal(game, {}, n, illegal_share=0.2)
    )
    build_tokenizer.build(transcripts.texts(found), folder, size=560)
    return ChatTokenizer.load(folder)


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
    config = DecoderConfig(
        vocabulary=vocabulary,
        width=16,
        layers=1,
        heads=2,
        kv_heads=1,
        head_dim=8,
        feed_forward=24,
        rope_theta=1e4,
        norm_epsilon=1e-5,
        qkv_bias=False,
        tied_embedding=True,
    )
    rng = np.random.default_rng(seed)

    def random_leaf(leaf):
        return jnp.asarray((0.3 * rng.normal(size=leaf.shape) + (leaf.ndim == 1)).astype(np.float32))

    return config, jax.tree.map(random_leaf, abstract_params(config))


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
            cache_buckets=(rollout.max_length,),
            decode_steps=8,
        )
        for _ in range(SLOTS - free):
            engine.open(0)
        engine.opened = 0
    return RolloutRunner(rollout, tokenizer, engine, opponent=opponent, opponent_name="other", **options), engine


def specs(count, game="TicTacToe-v0", seat=None, epsilon=0.0):
    return [
        EpisodeSpec(game, GAMES.get(game, {}), n, n % 2 if seat is None else seat, n, 100 + n, epsilon)
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


# ---- remote opponents -------------------------------------------------------------------------------------------


def test_a_remote_player_plays_as_a_scripted_one_of_the_same_mind(tokenizer):
    """However long it takes: the engine's replies do not depend on when they are asked for."""

    def dawdling(messages):
        time.sleep(0.001 * (len(str(messages)) % 23))
        return first_free(messages)

    runner, engine = make(tokenizer, FunctionPlayer(dawdling))
    scripted, _ = make(tokenizer, FirstFree())
    for found, expected in zip(runner.play(specs(12)), scripted.play(specs(12)), strict=True):
        same(found, expected)
        list(replay(found.record()))
        assert not found.failed
    assert engine.free == SLOTS


@pytest.mark.parametrize("prompt", ["bare_action", "think"])
def test_a_remote_player_reads_what_the_rules_show_its_seat_and_nothing_else(tokenizer, prompt):
    chats = []

    def noting(messages):
        chats.append(messages)
        thought = "<think>The first free cell.</think>" if prompt == "think" else ""
        return thought + first_free(messages)

    rollout = dataclasses.replace(ROLLOUT, prompt=prompt, max_length=1024)
    runner, _ = make(tokenizer, FunctionPlayer(noting), rollout=rollout)
    (episode,) = runner.play(specs(1))
    turns = [turn for turn in replay(episode.record()) if turn.seat != episode.seat]
    assert len(chats) == len(turns) > 1
    expected = [{"role": "system", "content": THINK_PROMPT}] if prompt == "think" else []
    for chat, turn in zip(chats, turns, strict=True):
        expected.append({"role": "user", "content": turn.observation})
        assert chat == expected
        expected.append({"role": "assistant", "content": turn.reply})


def test_a_slow_opponent_holds_up_its_own_game_only(tokenizer):
    """The first call returns when the last job has been taken: with two games at once, the others were played."""
    last, lock, calls = threading.Event(), threading.Lock(), []

    def slow_once(messages):
        with lock:
            calls.append(1)
            first = len(calls) == 1
        if first:
            assert last.wait(20)
        return first_free(messages)

    def listed():
        yield from specs(12)
        last.set()

    rollout = dataclasses.replace(ROLLOUT, slots=2)
    runner, engine = make(tokenizer, FunctionPlayer(slow_once), rollout=rollout, free=2, park_after=60.0)
    for found, expected in zip(runner.play(listed()), make(tokenizer, FirstFree())[0].play(specs(12)), strict=True):
        same(found, expected)
    assert engine.parked == 0


def test_games_that_wait_long_are_parked_and_come_back(tokenizer):
    """One slot, and nobody answers before five games wait: impossible unless four of them gave it away."""
    enough, lock, calls = threading.Event(), threading.Lock(), []

    def together(messages):
        with lock:
            calls.append(1)
            if len(calls) == 5:
                enough.set()
        assert enough.wait(20)
        return first_free(messages)

    rollout = dataclasses.replace(ROLLOUT, slots=1)
    runner, engine = make(tokenizer, FunctionPlayer(together), rollout=rollout, free=1, park_after=0.01, most_parked=4)
    found = runner.play(specs(5, seat=0))
    for episode, expected in zip(found, make(tokenizer, FirstFree())[0].play(specs(5, seat=0)), strict=True):
        same(episode, expected)
    assert engine.parked >= 4
    assert engine.free == 1


def test_no_more_games_are_parked_than_allowed(tokenizer):
    kept, most = [], 0

    def slow(messages):
        time.sleep(0.03)
        return first_free(messages)

    runner, engine = make(
        tokenizer,
        FunctionPlayer(slow),
        rollout=dataclasses.replace(ROLLOUT, slots=1),
        free=1,
        park_after=0.001,
        most_parked=2,
    )
    park = engine.park

    def counting(slot):
        nonlocal most
        parked = park(slot)
        kept.append(weakref.ref(parked))
        most = max(most, sum(one() is not None for one in kept))
        return parked

    engine.park = counting
    assert not any(e.failed for e in runner.play(specs(6, seat=0)))
    assert 1 <= most <= 3  # one more for the moment in which one goes and one comes


def test_a_dead_endpoint_fails_its_game_and_no_other(tokenizer):
    def dies(messages):
        if len(messages) > 1 and "[4]" in messages[-1]["content"]:
            raise ConnectionError("connection refused")
        return first_free(messages)

    remote = FunctionPlayer(dies, name="gpt", retries=2, backoff=0.001)
    healthy = make(tokenizer, FirstFree())[0].play(specs(12))
    runner, engine = make(tokenizer, remote)
    found = runner.play(specs(12))
    failed = [e for e in found if e.failed]
    assert 1 <= len(failed) < 12
    for episode, whole in zip(found, healthy, strict=True):
        if not episode.failed:
            same(episode, whole)
            continue
        assert re.fullmatch(
            rf"opponent other for seat {1 - episode.seat}, reply {len(episode.replies) + 1} of the game, raised "
            r"PlayerError: gpt failed after 3 attempts: ConnectionError: connection refused",
            episode.failure,
        )
        assert truncated(episode)
        assert episode.replies == whole.replies[: len(episode.replies)]
    assert engine.free == SLOTS


def test_a_remote_player_that_takes_no_call_fails_its_game_and_no_other(tokenizer):
    class Leaving(FunctionPlayer):
        def ask(self, messages):
            if len(messages) > 1:
                raise PlayerError("closed")
            return super().ask(messages)

    runner, engine = make(tokenizer, Leaving(first_free))
    for episode in runner.play(specs(4)):
        assert re.fullmatch(
            r"opponent other for seat \d, reply \d of the game, raised PlayerError: closed", episode.failure
        )
    assert engine.free == SLOTS


def test_a_remote_player_is_refused_where_processes_must_do_the_same(tokenizer, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    with pytest.raises(ValueError, match="remote player 'gpt' cannot play in a run of 4 processes"):
        make(tokenizer, FunctionPlayer(first_free, name="gpt"), engine=object())


# ---- what raises ------------------------------------------------------------------------------------------------


class RaisesAt:
    """Plays random legal actions; at its third turn, in games of an even deal, it does something else."""

    def __init__(self, deed):
        self.deed = deed

    def act(self, game, rng):
        if game.rng.seed % 2 == 0 and game.actions_played >= 4:
            return self.deed()
        return RandomLegal().act(game, rng)


def raising(error):
    def deed():
        raise error

    return deed


def test_a_player_that_raises_ends_its_game_as_failed_and_no_other(tokenizer):
    healthy = make(tokenizer, RandomLegal())[0].play(specs(12))
    runner, engine = make(tokenizer, RaisesAt(raising(LookupError("no such opening"))))
    found = runner.play(specs(12))
    assert [e.game_seed for e in found] == list(range(12))
    assert sum(e.failed for e in found) > 3
    for episode, whole in zip(found, healthy, strict=True):
        late = any(reply.seat != whole.seat for reply in whole.replies[4:])
        assert episode.failed == (late and episode.game_seed % 2 == 0)
        if not episode.failed:
            same(episode, whole)
            assert "failure" not in episode.record()
            continue
        count = len(episode.replies)
        assert episode.failure == (
            f"opponent other for seat {1 - episode.seat}, reply {count + 1} of the game, raised "
            "LookupError: no such opening"
        )
        assert episode.record()["failure"] == episode.failure
        assert (truncated(episode), episode.forfeited_by, episode.malformed) == (True, None, False)
        assert episode.replies == whole.replies[:count]
        assert episode.sample.token_ids.tolist() == whole.sample.token_ids[: len(episode.sample.token_ids)].tolist()
        list(replay(episode.record()))
    assert engine.free == SLOTS


def test_an_action_that_is_no_text_is_the_players_failure(tokenizer):
    runner, _ = make(tokenizer, RaisesAt(lambda: 4))
    failures = {e.failure for e in runner.play(specs(4, seat=0)) if e.failed}
    assert failures == {"opponent other for seat 1 must return an action as str, got int"}


class Broken(TicTacToe):
    """Raises where it is told to, in games of an even deal."""

    where = ""

    def _break(self, where):
        if where == self.where and self.rng.seed % 2 == 0 and (where == "reset" or self.actions_played > 1):
            raise RuntimeError(f"broken {where}")

    def reset(self, seed):
        super().reset(seed)
        self._break("reset")

    def observation(self, seat):
        self._break("observation")
        return super().observation(seat)

    def legal_actions(self):
        self._break("legal_actions")
        return super().legal_actions()

    def step(self, reply):
        self._break("step")
        verdict = super().step(reply)
        if self.over:
            self._break("end")
        if self.where == "to_move" and self.rng.seed % 2 == 0 and self.to_move is not None:
            self.to_move = 7
        return verdict


@pytest.mark.parametrize("opponent", ["scripted", "remote", "policy"])
@pytest.mark.parametrize(
    ("where", "failure"),
    [
        ("reset", r"game\.reset raised RuntimeError: broken reset"),
        ("observation", r"game\.observation for seat \d, reply 3 of the game, raised RuntimeError: broken observation"),
        ("legal_actions", r"(game\.legal_actions|opponent other) for seat \d, reply 3 .* RuntimeError: broken legal.*"),
        (
            "step",
            r"game\.step for seat 0, reply 3 of the game, raised RuntimeError: broken step; the reply was '\[\d\]'",
        ),
        (
            "end",
            r"game\.step for seat \d, reply \d of the game, raised RuntimeError: broken end; the reply was '\[\d\]'",
        ),
        ("to_move", r"game\.to_move is 7, expected a seat from 0 to 1"),
    ],
)
def test_a_game_that_raises_ends_as_failed_and_no_other(tokenizer, monkeypatch, where, failure, opponent):
    monkeypatch.setitem(registry._GAMES, "Broken-v0", registry.Entry(Broken))
    monkeypatch.setattr(Broken, "where", where)
    other = {"scripted": RandomLegal(), "remote": FunctionPlayer(first_free), "policy": "policy"}[opponent]
    runner, engine = make(tokenizer, other)
    found = runner.play(specs(8, "Broken-v0"))
    for episode in found:
        if opponent == "remote" and where == "legal_actions" and episode.seat == 1:
            continue  # nobody lists its actions at reply 3; the policy's are listed at reply 4
        assert episode.failed == (episode.game_seed % 2 == 0)
        assert not episode.failed or re.fullmatch(failure, episode.failure)
        assert not episode.failed or truncated(episode)
    assert sum(e.failed for e in found) == 4
    assert engine.free == SLOTS


def test_a_disturbance_without_a_legal_action_is_a_failure(tokenizer, monkeypatch):
    monkeypatch.setitem(registry._GAMES, "Broken-v0", registry.Entry(Broken))
    monkeypatch.setattr(Broken, "legal_actions", lambda _: [])
    (episode,) = make(tokenizer, "policy")[0].play(specs(1, "Broken-v0", epsilon=1.0))
    assert episode.failure == "game.legal_actions for seat 0 is empty, but an epsilon asks for one of them"


def test_an_action_that_cannot_be_spelled_is_a_failure(tokenizer, monkeypatch):
    monkeypatch.setitem(registry._GAMES, "Broken-v0", registry.Entry(Broken))
    monkeypatch.setattr(Broken, "legal_actions", lambda _: [""])
    (episode,) = make(tokenizer, "policy")[0].play(specs(1, "Broken-v0"))
    assert episode.failure.startswith(
        "the constraint to game.legal_actions for seat 0, reply 1 of the game, raised Val"
    )


@pytest.mark.parametrize("opponent", ["policy", "scripted"])
def test_a_game_that_never_ends_is_truncated(tokenizer, monkeypatch, opponent):
    class Endless(TicTacToe):
        def _objection(self, _):
            return None

        def _play(self, _):
            self._tell_all("Nothing happened.")
            return 1 - self.to_move

    class Miscounting(Endless):
        def _play(self, _):
            self.actions_played = 0
            return 1 - self.to_move

    monkeypatch.setitem(registry._GAMES, "Endless-v0", registry.Entry(Endless))
    monkeypatch.setitem(registry._GAMES, "Miscounting-v0", registry.Entry(Miscounting))
    other = RandomLegal() if opponent == "scripted" else opponent
    longer = dataclasses.replace(ROLLOUT, max_length=1024)
    # By default the game's own longest play; one that does not count its actions, the replies these could take at most.
    for game, rollout, limit in (
        ("Endless-v0", longer, 9),
        ("Endless-v0", dataclasses.replace(longer, max_actions=40), 40),
        ("Miscounting-v0", longer, 9 * 2),
        ("Endless-v0", dataclasses.replace(ROLLOUT, max_actions=40), None),
    ):
        runner, engine = make(tokenizer, other, rollout=rollout)
        for episode in runner.play(specs(6, game)):
            assert (truncated(episode), episode.failed) == (True, False)
            assert limit is None or len(episode.replies) == limit
            assert (episode.overrun_by is None) == (limit is not None)
            assert limit is not None or len(episode.replies) < 40  # the context was full before
            assert not episode.sample.mask[rollout.max_length :].any()
        assert engine.free == SLOTS


def test_who_is_ahead_at_the_limit_of_actions_has_won(tokenizer, monkeypatch):
    class Centre(TicTacToe):
        def measures(self):
            return {"lead": 1.0}

        def standing(self):
            return self._won_by(1)

    monkeypatch.setitem(registry._GAMES, "Centre-v0", registry.Entry(Centre))
    runner, _ = make(tokenizer, FirstFree(), rollout=dataclasses.replace(ROLLOUT, max_actions=2))
    for episode in runner.play(specs(4, "Centre-v0")):
        assert (len(episode.replies), episode.outcomes, episode.counted) == (2, ("loss", "win"), True)
        assert episode.measures == {"lead": 1.0}
        list(replay(episode.record()))
        for outcomes in (["win", "loss"], ["draw", "draw"]):
            with pytest.raises(ReplayError, match="ended with outcomes"):
                list(replay(episode.record() | {"outcomes": outcomes}))
    monkeypatch.setattr(Centre, "standing", lambda _: ("win",))
    for episode in runner.play(specs(2, "Centre-v0")):
        assert "the end at rollout.max_actions raised ValueError: Centre-v0: standing() must be" in episode.failure


# ---- what ends the play -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("opponent", ["scripted", "remote"])
def test_an_interrupt_ends_the_play_and_frees_the_slots(tokenizer, error, opponent):
    def interrupted(messages):
        if len(messages) > 3:
            raise error
        return first_free(messages)

    other = RaisesAt(raising(error)) if opponent == "scripted" else FunctionPlayer(interrupted)
    runner, engine = make(tokenizer, other)
    with pytest.raises(type(error)):
        runner.play(specs(12))
    assert engine.free == SLOTS


def test_an_error_of_the_engine_ends_the_play_and_the_engine_plays_on(tokenizer):
    runner, engine = make(tokenizer, "policy")
    expected = runner.play(specs(6))
    engine.breaks = RuntimeError("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        runner.play(specs(6))
    assert engine.free == SLOTS
    for first, second in zip(runner.play(specs(6)), expected, strict=True):
        same(first, second)


def test_an_error_of_the_jobs_ends_the_play_and_frees_the_slots(tokenizer):
    def listed():
        yield from specs(3)
        raise OSError("the list is gone")

    runner, engine = make(tokenizer, "policy")
    with pytest.raises(OSError, match="the list is gone"):
        runner.play(listed())
    assert engine.free == SLOTS
    with pytest.raises(ValueError, match="there is no game id 'Chess'"):
        runner.play([*specs(2), *specs(1, "Chess")])
    assert engine.free == SLOTS


# ---- slots, calls, versions, constraints ------------------------------------------------------------------------


def test_a_seat_that_is_never_asked_takes_no_slot(tokenizer):
    runner, engine = make(tokenizer, RandomLegal())
    assert all(e.generated_tokens == 0 for e in runner.play(specs(6, epsilon=1.0)))
    assert engine.opened == 0
    runner, engine = make(tokenizer, "policy")
    runner.play(specs(6, epsilon=1.0))
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
