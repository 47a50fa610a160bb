"""Remote players: time limits, retries and hanging calls, on functions that misbehave on purpose."""

import concurrent.futures
import threading
import time

import pytest
from chat_server import until

from dfc.errors import DfcError
from dfc.players.remote import FunctionPlayer, PlayerError

HELLO = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]


class Flaky:
    """Raises the first few times, then answers."""

    def __init__(self, failures, error=None):
        self.failures, self.error, self.times = failures, error or ConnectionError("reset by peer"), []

    def __call__(self, messages):
        self.times.append(time.monotonic())
        if len(self.times) <= self.failures:
            raise self.error
        return f"heard {messages[-1]['content']}"


class Gate:
    """Hangs until it is opened, the first `hanging` times; counts who is inside."""

    def __init__(self, hanging=10**9):
        self.open, self.hanging, self.calls, self.inside, self.most = threading.Event(), hanging, 0, 0, 0
        self.lock = threading.Lock()

    def __call__(self, _):
        with self.lock:
            self.calls += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
            hangs = self.calls <= self.hanging
        try:
            if hangs:
                assert self.open.wait(60)
            return "late" if hangs else "in time"
        finally:
            with self.lock:
                self.inside -= 1


def threads(name):
    return [thread for thread in threading.enumerate() if thread.name == f"dfc-{name}"]


def test_a_reply_is_what_the_function_returns():
    call = FunctionPlayer(lambda messages: messages[-1]["content"].upper()).ask(HELLO)
    assert call.result() == "HELLO"
    assert call.done()
    assert call.result() == "HELLO"


def test_the_function_gets_a_copy_of_the_chat():
    def rude(messages):
        messages[0]["content"] = "obey"
        messages.clear()
        return "done"

    chat = [dict(message) for message in HELLO]
    assert FunctionPlayer(rude).ask(chat).result() == "done"
    assert chat == HELLO

    def ruder(messages):
        if not seen:
            seen.append(1)
            messages[-1]["content"] = "gone"
            raise ConnectionError
        return messages[-1]["content"]

    seen = []
    assert FunctionPlayer(ruder, backoff=0.0).ask(chat).result() == "hello"  # a retry reads the whole chat
    gate = Gate()
    call = FunctionPlayer(lambda messages: gate(messages) + messages[-1]["content"]).ask(chat)
    chat[-1]["content"] = "changed after the call"
    gate.open.set()
    assert call.result() == "latehello"


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_failed_attempt_is_made_again_after_a_growing_pause(failures):
    flaky = Flaky(failures)
    assert FunctionPlayer(flaky, retries=2, backoff=0.05).ask(HELLO).result() == "heard hello"
    pauses = [after - before for before, after in zip(flaky.times, flaky.times[1:], strict=False)]
    assert len(pauses) == failures
    assert all(0.05 * 2**n <= pause for n, pause in enumerate(pauses))


def test_after_the_last_retry_the_error_tells_how_often_and_what():
    flaky = Flaky(9)
    call = FunctionPlayer(flaky, name="gpt", retries=2, backoff=0.001).ask(HELLO)
    with pytest.raises(PlayerError, match=r"^gpt failed after 3 attempts: ConnectionError: reset by peer$") as caught:
        call.result()
    assert caught.value.__cause__ is flaky.error
    assert isinstance(caught.value, DfcError)
    assert len(flaky.times) == 3


def test_an_error_not_worth_a_retry_ends_the_call():
    flaky = Flaky(9, PermissionError("no key"))
    with pytest.raises(PlayerError, match="failed at the first attempt: PermissionError: no key"):
        FunctionPlayer(flaky, retries=5, backoff=0.0, retry_on=(ConnectionError,)).ask(HELLO).result()
    assert len(flaky.times) == 1


@pytest.mark.parametrize("reply", [None, b"[4]", 4])
def test_a_reply_that_is_no_text_is_an_error(reply):
    with pytest.raises(PlayerError, match=f"must return its reply as str, got {type(reply).__name__}"):
        FunctionPlayer(lambda _: reply).ask(HELLO).result()


def test_no_more_calls_run_at_once_than_allowed():
    gate = Gate()
    remote = FunctionPlayer(gate, concurrency=3)
    calls = [remote.ask(HELLO) for _ in range(9)]
    until(lambda: gate.inside == 3)
    time.sleep(0.05)
    assert gate.calls == 3
    assert not any(call.done() for call in calls)
    gate.open.set()
    assert [call.result() for call in calls] == ["late"] * 9
    assert gate.most == 3


def test_a_call_that_waits_for_others_can_be_cancelled():
    gate = Gate()
    player = FunctionPlayer(gate, concurrency=1)
    running, waiting, last = (player.ask(HELLO) for _ in range(3))
    until(lambda: gate.inside == 1)
    assert (waiting.cancel(), running.cancel()) == (True, False)
    gate.open.set()
    assert (running.result(), last.result()) == ("late", "late")
    assert gate.calls == 2


def test_players_of_several_kinds_are_waited_for_together():
    gate = Gate()
    calls = [FunctionPlayer(gate).ask(HELLO), FunctionPlayer(lambda _: "at once").ask(HELLO)]
    done, pending = concurrent.futures.wait(calls, return_when=concurrent.futures.FIRST_COMPLETED)
    assert (done, pending) == ({calls[1]}, {calls[0]})
    gate.open.set()


def test_threads_end_when_nothing_waits():
    remote = FunctionPlayer(lambda _: "x", name="short", concurrency=4)
    assert [call.result() for call in [remote.ask(HELLO) for _ in range(8)]] == ["x"] * 8
    until(lambda: not threads("short"))
    assert remote.ask(HELLO).result() == "x"


def test_a_call_that_hangs_is_made_again_and_its_late_reply_is_dropped():
    gate = Gate(hanging=1)
    remote = FunctionPlayer(gate, concurrency=1, timeout=1.0, retries=1, backoff=0.0, name="stuck")
    call, behind = remote.ask(HELLO), remote.ask(HELLO)
    assert (call.result(), behind.result()) == ("in time", "in time")  # one place, although a thread still hangs
    gate.open.set()
    until(lambda: not threads("stuck"))
    assert call.result() == "in time"


def test_a_call_that_hangs_every_time_fails_with_the_limit():
    gate = Gate()
    with pytest.raises(PlayerError, match=r"failed after 2 attempts: TimeoutError: no reply within 0\.03 seconds"):
        FunctionPlayer(gate, timeout=0.03, retries=1, backoff=0.0).ask(HELLO).result()
    gate.open.set()


def test_a_dead_endpoint_costs_twice_the_threads_and_then_refuses():
    gate = Gate()
    remote = FunctionPlayer(gate, concurrency=2, timeout=0.5, retries=9, backoff=0.0, name="dead")
    calls = [remote.ask(HELLO) for _ in range(6)]
    for call in calls:
        with pytest.raises(PlayerError, match=r"dead: [34] calls hang past their time limit|TimeoutError"):
            call.result()
    with pytest.raises(PlayerError, match="none is made until one of them returns"):
        remote.ask(HELLO).result()
    assert gate.calls <= 4
    gate.open.set()
    until(lambda: not threads("dead"))
    assert remote.ask(HELLO).result() == "late"  # it lives again
    until(lambda: not threads("dead"))
    assert gate.calls <= 5  # nobody makes the refused calls now


def test_without_a_time_limit_a_person_may_think():
    gate = Gate()
    call = FunctionPlayer(gate, timeout=None).ask(HELLO)
    time.sleep(0.05)
    assert not call.done()
    gate.open.set()
    assert call.result() == "late"


def test_waiting_ends_with_the_first_reply_or_the_given_time():
    gate = Gate()
    remote = FunctionPlayer(lambda messages: gate(messages) if messages[0]["content"] == "be brief" else "at once")
    slow, began = remote.ask(HELLO), time.monotonic()
    concurrent.futures.wait([slow], 0.05)
    assert 0.04 < time.monotonic() - began < 60
    assert not slow.done()
    quick = remote.ask(HELLO[1:])
    concurrent.futures.wait([slow, quick], return_when=concurrent.futures.FIRST_COMPLETED)
    assert quick.done()
    gate.open.set()


def test_an_interrupt_inside_the_function_reaches_whoever_waits():
    with pytest.raises(KeyboardInterrupt):
        FunctionPlayer(Flaky(1, KeyboardInterrupt())).ask(HELLO).result()


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"concurrency": 0}, "concurrency must be 1 or more, got 0"),
        ({"timeout": 0.0}, "timeout must be a positive number of seconds or None, got 0.0"),
        ({"retries": -1}, "retries and backoff must be 0 or more, got -1 and 1.0"),
        ({"backoff": -0.5}, "retries and backoff must be 0 or more, got 2 and -0.5"),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits, message):
    with pytest.raises(ValueError, match=message):
        FunctionPlayer(lambda _: "x", **limits)
