"""A stop takes effect within an iteration, says at once what it waits for, and waits for no endpoint."""

import collections
import hashlib
import os
import signal
import threading
import time

import pytest

from dfc.config import RolloutConfig
from dfc.games import registry
from dfc.games.rng import GameRng
from dfc.inference.protocol import EngineReply
from dfc.players import sequential
from dfc.players.remote import FunctionPlayer
from dfc.rollout.runner import EpisodeSpec, RolloutRunner
from dfc.runs import stop_signals
from dfc.runs.stop_signals import Interrupted, Stop

LONG = {"max_number": 90, "max_turns": 80}
ROLLOUT = RolloutConfig(slots=4, max_length=4096, max_reply_length=8, max_actions=200, stop=("]",))


class Counting:
    """Stands in for an engine that says 1, 2, 3, ... in every game; asks to stop when it is called the n-th time."""

    max_length, free = 4096, 8

    def __init__(self, encode, stop_at=None, ask=None):
        self.encode, self.stop_at, self.ask_to_stop = encode, stop_at, ask
        self.calls, self.slots, self.asked, self.flight = 0, {}, [], collections.deque()

    @property
    def in_flight(self):
        return len(self.flight)

    def version(self, _="policy"):
        return 0

    def open(self, _seed, **_options):
        slot = next(n for n in range(self.free) if n not in self.slots)
        self.slots[slot] = 0
        return slot

    def append(self, slot, token_ids):
        pass

    def ask(self, slot, *_):
        self.asked.append(slot)
        return True

    def close(self, slot):
        del self.slots[slot]

    def anyone(self, flag):
        return flag

    def launch(self):
        if not self.asked:
            return False
        self.calls += 1
        if self.calls == self.stop_at:
            self.ask_to_stop()
        self.flight.append(self.asked[:2])
        del self.asked[:2]
        return True

    def collect(self):
        return [self.reply(slot) for slot in self.flight.popleft() if slot in self.slots]

    def reply(self, slot):
        self.slots[slot] += 1
        token_ids = self.encode(f"[{self.slots[slot]}]")
        return EngineReply(
            slot, list(token_ids), *([0.0] * len(token_ids) for _ in range(2)), [0] * len(token_ids), stopped=True
        )


def guesses(count):
    return [EpisodeSpec("GuessTheNumber-v0", LONG, n, 0, n, n) for n in range(count)]


def play(tokenizer, engine, stop, specs, opponent=None, **options):
    runner = RolloutRunner(
        ROLLOUT, tokenizer, engine, opponent=opponent, opponent_name="other", check_stop=stop.check_stop
    )
    return runner.play_all(specs, **options)


def test_a_play_ends_between_two_calls_of_the_engine(tokenizer):
    with Stop() as stop:
        whole = Counting(tokenizer.encode_reply)
        assert len(play(tokenizer, whole, stop, guesses(4))) == 4
        engine = Counting(tokenizer.encode_reply, whole.calls // 2, lambda: os.kill(os.getpid(), signal.SIGTERM))
        ended = {}
        with pytest.raises(Interrupted):
            play(tokenizer, engine, stop, guesses(40), ended=ended)
    assert whole.calls > 20
    assert engine.calls <= whole.calls // 2 + 1  # two are under way at a time
    assert not engine.slots  # the games in flight gave them back


def test_games_that_had_ended_are_handed_over(tokenizer):
    one = Counting(tokenizer.encode_reply)
    with Stop() as stop:
        expected = play(tokenizer, one, stop, guesses(1))
        engine = Counting(tokenizer.encode_reply, 6 * one.calls, lambda: os.kill(os.getpid(), signal.SIGTERM))
        ended = {}
        with pytest.raises(Interrupted):
            play(tokenizer, engine, stop, guesses(40), ended=ended)
    assert 0 < len(ended) < 40
    assert [e.record() for e in ended[0]] == [e.record() for e in expected[0]]


@pytest.mark.parametrize("inside", [True, False])
def test_nobody_waits_for_a_player_elsewhere(tokenizer, inside):
    """The player answers after its time limit of 300 s only, in a runner and where there is no engine."""
    release = threading.Event()
    remote = FunctionPlayer(lambda _: "[0]" if release.wait(300) else "", timeout=300.0)
    with Stop() as stop:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        began = time.monotonic()
        specs = [EpisodeSpec("TicTacToe-v0", {}, n, 1, n, n) for n in range(3)]
        game = registry.make("TicTacToe-v0")
        game.reset(0)
        ways = {
            True: lambda: play(tokenizer, Counting(tokenizer.encode_reply), stop, specs, remote),
            False: lambda: sequential.play_sequentially(
                game, [remote, remote], GameRng(0), ask=sequential.ask_until_stop(stop.check_stop)
            ),
        }
        with pytest.raises(Interrupted):
            ways[inside]()
        assert time.monotonic() - began < 120
    release.set()


def test_several_processes_ask_each_other_at_every_nth_look_only():
    asked = []

    def agree(number):
        asked.append(number)
        return 15 if len(asked) == 3 else 0

    stop = Stop(agree, every=4)
    for _ in range(11):
        stop.check_stop()
    with pytest.raises(Interrupted, match="SIGTERM"):
        stop.check_stop()
    assert asked == [0, 0, 0]


# ---- what is said -------------------------------------------------------------------------------------------------


def test_it_is_said_at_once_what_is_waited_for_while_python_runs_no_handlers(monkeypatch):
    said = []
    monkeypatch.setattr(stop_signals, "_tell", lambda line: said.append((time.monotonic(), line)))
    monkeypatch.setattr(stop_signals, "_REMINDER", 0.2)
    # A function in the place of the compiler's, which is in C for a while and lets go of Python's lock.
    source = "def compile_it():\n  for _ in range(1):\n    hashlib.pbkdf2_hmac('sha256', b'', b'', 3_000_000)\n"
    names = {"hashlib": hashlib}
    exec(compile(source, "/site-packages/jax/_src/compiler.py", "exec"), names)  # noqa: S102 - the lines above
    with Stop() as stop:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        names["compile_it"]()
        ended = time.monotonic()
        assert stop.requested == signal.SIGTERM
    (when, first), *others = said
    assert when < ended
    expected = "SIGTERM: stopping; waiting for a compilation to end; Ctrl-C once more loses what is not saved"
    assert first == expected
    assert others
    assert "still waiting for a compilation" in others[0][1]


def test_no_thread_and_no_descriptor_is_left_behind():
    threads, descriptors = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - of this process
    for _ in range(3):
        with Stop():
            pass
    assert set(threading.enumerate()) <= threads  # those of an earlier test may have ended meanwhile
    assert set(os.listdir("/proc/self/fd")) <= descriptors  # noqa: PTH208 - of this process


def test_a_second_ctrl_c_while_libraries_are_loaded_ends_the_process(monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)

    def loads():
        with stop_signals.held():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)  # schedulers repeat it
            assert ended == []
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        loads()
    assert ended == [130]


def test_signals_are_held_in_the_main_thread_alone():
    seen = []

    def elsewhere():
        with stop_signals.held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
