"""Remote opponents of a runner: what they read, slow ones, games that wait parked, dead endpoints."""

import dataclasses
import re
import threading
import time
import weakref

import jax
import pytest
import watched_runners
from watched_runners import ROLLOUT, SLOTS, FirstFree, first_free, make, same, specs, truncated

from dfc.games.replay import replay
from dfc.players.remote import FunctionPlayer, PlayerError
from dfc.rollout.runner import THINK_PROMPT

tokenizer = watched_runners.tokenizer  # the fixture


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
            assert last.wait(60)
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
        assert enough.wait(60)
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
            r"opponent other for seat \d, reply \d of the game, raised PlayerError: closed \(.*remote\.py:\d+ in ask\)",
            episode.failure,
        )
    assert engine.free == SLOTS


def test_a_remote_player_is_refused_where_processes_must_do_the_same(tokenizer, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    with pytest.raises(ValueError, match="remote player 'gpt' cannot play in a run of 4 processes"):
        make(tokenizer, FunctionPlayer(first_free, name="gpt"), engine=object())
