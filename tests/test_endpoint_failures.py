"""Chat endpoints that do not work: servers that are slow, busy, broken, gone or rude, on a real socket."""

import contextlib
import email.utils
import gc
import json
import re
import resource
import socket
import threading
import time
import tracemalloc  # noqa: F401 - pytest imports it for a complaint, which comes where no file can be opened
from pathlib import Path

import pytest
from chat_server import HELLO, completion, fails, hangs, make, message_of, says, sends, serving, until

from dfc.config import EndpointConfig
from dfc.players.chat_response import read_pause
from dfc.players.endpoint import Endpoint, EndpointError
from dfc.players.remote import PlayerError

KEY = "sk-live/0123456789+abcdefghijklmnopqrstuvwxyz"


# ---- what passes --------------------------------------------------------------------------------------------------


def test_a_slow_answer_is_given_up_and_the_next_one_taken():
    with serving(hangs, says("late but here")) as server, make(server, timeout=1.0) as endpoint:
        assert endpoint.answer(HELLO) == "late but here"
        report = endpoint.report()
        assert (report["time_limits"], report["retries"], report["requests"], report["failures"]) == (1, 1, 2, 0)


def test_an_answer_that_trickles_is_given_up_too():
    def trickles(handler, _):
        handler.send(200, b"{", {"Content-Length": "1000"})
        while not handler.server.release.wait(0.05):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    with serving(trickles, says("x")) as server, make(server, timeout=1.0) as endpoint:
        assert endpoint.answer(HELLO) == "x"


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_a_passing_failure_is_tried_again(status):
    with serving(fails(status), fails(status), says("third")) as server, make(server) as endpoint:
        assert endpoint.answer(HELLO) == "third"
        assert (len(server.requests), endpoint.report()["retries"]) == (3, 2)
        assert len({json.dumps(body) for body in server.bodies}) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the body of the answer is empty"),
        (b"<html><body>Bad gateway</body></html>", "the answer is not JSON: '<html><body>Bad gateway"),
        (json.dumps(completion("cut")).encode()[:-20], "the answer is not JSON: "),
        (b"\xff\xfe\x00", "the answer is not JSON: "),
        (b"[" * 100_000, "the answer is not JSON: "),
        (b"[1]", "the answer has no choices: [1]"),
        (b"null", "the answer has no choices: null"),
        (json.dumps(completion("x", choices=[])).encode(), "the answer has no choices: "),
        (json.dumps(completion("x", choices=None)).encode(), "the answer has no choices: "),
        (json.dumps(completion("x", choices=["x"])).encode(), "the answer has no choices: "),
        (b'{"error": {"message": "no GPU left"}}', "the answer has no choices: no GPU left"),
        (b'{"object": "error", "message": "no GPU left"}', "the answer has no choices: no GPU left"),
        (json.dumps(completion(None)).encode(), 'the answer has no text: {"index": 0, "message"'),
        (json.dumps(completion("")).encode(), 'the answer has no text: {"index": 0, "message"'),
        (json.dumps(completion(" \n\t")).encode(), "the answer has no text: "),
        (json.dumps(completion(["parts"])).encode(), "the answer has no text: "),
        (b'{"choices": [{"message": null}]}', "the answer has no text: "),
        (b'{"choices": [{}]}', "the answer has no text: "),
    ],
)
def test_an_answer_that_is_none_is_tried_again_and_named_at_the_end(content, why):
    with serving(sends(content), says("better"), *[sends(content)] * 3) as server, make(server) as endpoint:
        assert endpoint.answer(HELLO) == "better"
        found = message_of(endpoint)
        assert found.startswith(f"m at {server.url}: {why}")
        assert found.endswith(" (3 attempts)")
        assert len(found) < 500


def test_a_connection_that_ends_in_the_middle_is_tried_again_and_named_at_the_end():
    broken = sends(json.dumps(completion("x")).encode()[:30], announced=500)
    with serving(broken, says("whole"), *[broken] * 3) as server, make(server) as endpoint:
        assert endpoint.answer(HELLO) == "whole"
        assert "the connection failed: RemoteProtocolError: " in message_of(endpoint)


def test_a_connection_reset_is_tried_again():
    def resets(handler, _):
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        handler.close_connection = True

    with serving(resets, says("again")) as server, make(server) as endpoint:
        assert endpoint.answer(HELLO) == "again"


def test_the_ids_of_answers_without_text_are_counted():
    with serving(says(None), says("x")) as server, make(server) as endpoint:
        endpoint.answer(HELLO)
        assert (endpoint.report()["input_tokens"], endpoint.report()["output_tokens"]) == (20, 6)


def test_waiting_times_double():
    with serving(*[fails(500)] * 3, says("x")) as server, make(server, backoff=0.1, retries=3) as endpoint:
        endpoint.answer(HELLO)
        gaps = [after - before for before, after in zip(server.times, server.times[1:], strict=False)]
        for gap, longest in zip(gaps, (0.1, 0.2, 0.4), strict=True):
            assert longest / 2 <= gap < longest + 0.5


# ---- servers that ask to wait -------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [{"Retry_After": "0.6"}, {"retry_after_ms": "600"}, {"x_ratelimit_reset": "600ms"}])
def test_a_server_that_asks_to_wait_is_left_alone_by_every_call(header):
    limited = fails(429, {"error": {"message": "slow down"}}, **header)
    with serving(limited) as server, make(server, concurrency=4) as endpoint:
        first = endpoint.ask(HELLO)
        until(lambda: endpoint.report()["retries"] == 1)
        others = [endpoint.ask([{"role": "user", "content": str(n)}]) for n in range(3)]
        assert first.result() == "hello"
        assert [call.result() for call in others] == ["0", "1", "2"]
        gaps = [at - server.times[0] for at in server.times[1:]]
        assert min(gaps) > 0.58
        assert max(gaps) < 3.0
        assert endpoint.report()["paused_seconds"] == pytest.approx(0.6, abs=0.01)


def test_a_limit_that_is_not_reached_does_not_hold_up_a_passing_failure():
    headers = {"x_ratelimit_reset_requests": "1h0m0s", "x_ratelimit_remaining_requests": "59"}
    with serving(fails(500, b"", **headers)) as server, make(server) as endpoint:
        assert endpoint.answer(HELLO) == "hello"
        assert (endpoint.report()["paused_seconds"], endpoint.report()["retries"]) == (0.0, 1)


@pytest.mark.parametrize(("remaining", "seconds"), [("0", 7), ("1", 0), (None, 0)])
def test_without_a_refusal_for_limits_only_spent_ones_count(remaining, seconds):
    headers = {"x-ratelimit-reset-tokens": "7s"} | (
        {} if remaining is None else {"x-ratelimit-remaining-tokens": remaining}
    )
    assert read_pause(headers, limited=False) == seconds


def test_a_server_that_asks_to_wait_too_long_ends_the_call():
    with serving(fails(429, b"", Retry_After="3600")) as server, make(server) as endpoint:
        found = message_of(endpoint)
        assert "the server asks to wait for 3600 seconds, longer than longest_pause=120 (status 429" in found
        assert endpoint.answer(HELLO) == "hello"  # the next one is not held up


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": "9" * 400}, 0),
        ({"retry-after": "nan"}, 0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}, 0),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-reset-tokens": "20ms"}, 0.02),
        ({"x-ratelimit-reset-requests": "1h2m3.5s", "x-ratelimit-remaining-requests": "0"}, 3723.5),
        (
            {
                "x-ratelimit-reset-requests": "5s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-tokens": "1s",
                "x-ratelimit-remaining-tokens": "17",
            },
            5,
        ),
        ({"x-ratelimit-reset-tokens": "12"}, 12),
        ({"x-ratelimit-reset-tokens": "1 fortnight"}, 0),
    ],
)
def test_every_way_to_say_wait_is_understood(headers, seconds):
    assert read_pause(headers) == pytest.approx(seconds)


@pytest.mark.parametrize("unit", [1, 1000])
def test_a_time_to_wait_until_is_understood(unit):
    assert read_pause({"x-ratelimit-reset": str(int((time.time() + 40) * unit))}) == pytest.approx(40, abs=2)
    assert read_pause({"retry-after": email.utils.formatdate(time.time() + 40, usegmt=True)}) == pytest.approx(
        40, abs=2
    )


# ---- what does not pass -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (400, {"error": {"message": "max_tokens is too large"}}, r"does not take the request.*max_tokens is too large"),
        (401, {"error": {"message": "bad key"}}, r"refused the key in DFC_KEY; put a valid one into DFC_KEY.*bad key"),
        (402, b"", r"the account behind the key in DFC_KEY has nothing left.*no explanation"),
        (403, {"detail": "not for you"}, r"the key in DFC_KEY may not use the model 'm' here.*not for you"),
        (404, {"error": "nothing"}, r"no model 'm', or http://127.*/v1/chat/completions is not where.*ends in /v1"),
        (413, b"<html>too large</html>", r"does not take the request.*the length of the chat.*<html>too large</html>"),
        (422, {"detail": [{"loc": ["body"]}]}, r"does not take the request.*\"loc\""),
        (429, {"error": {"code": "insufficient_quota", "message": "pay"}}, r"has nothing left.*status 429: pay"),
        (307, b"", r"sends calls on to http://elsewhere/v1; set base_url to that"),
    ],
)
def test_a_lasting_failure_ends_the_call_at_once_and_says_what_to_do(monkeypatch, status, body, why):
    monkeypatch.setenv("DFC_KEY", KEY)
    script = fails(status, body, Location="http://elsewhere/v1")
    with serving(usual=script) as server, make(server, key_variable="DFC_KEY") as endpoint:
        found = message_of(endpoint)
        assert re.search(why, found), found
        assert found.startswith(f"m at {server.url}: ")
        assert f"(status {status}: " in found
        assert (len(server.requests), endpoint.report()["retries"]) == (1, 0)


def test_a_server_that_wants_a_key_says_which_setting_is_missing():
    with serving(fails(401)) as server, make(server) as endpoint:
        assert "refused a call without a key; name its environment variable in key_variable" in message_of(endpoint)


def test_an_unknown_model_is_answered_with_those_there_are():
    with serving(fails(404), models=["llama", "qwen"]) as server, make(server) as endpoint:
        assert "the server has no model 'm'; set model to one of: llama, qwen" in message_of(endpoint)
    with serving(fails(404), models=["m"]) as server, make(server) as endpoint:
        assert "lists the model but does not find it or the address" in message_of(endpoint)


def test_a_reply_that_never_began_says_which_limit_to_raise():
    cut = says("", choices=[{"message": {"role": "assistant", "content": None}, "finish_reason": "length"}])
    with serving(cut) as server, make(server) as endpoint:
        assert "used up before the reply began: raise max_tokens" in message_of(endpoint)
        assert (len(server.requests), endpoint.report()["output_tokens"]) == (1, 3)


def test_a_server_that_hangs_for_ever_costs_its_time_limits_and_no_more():
    with serving(usual=hangs) as server, make(server, timeout=0.75, retries=1) as endpoint:
        began = time.monotonic()
        calls = [endpoint.ask([{"role": "user", "content": str(n)}]) for n in range(3)]
        for call in calls:
            with pytest.raises(EndpointError, match=r"no reply within 0.75 seconds; raise timeout.* \(2 attempts\)"):
                call.result()
        assert time.monotonic() - began < 60
        assert endpoint.report()["time_limits"] == 6
        server.usual = says("back")
        assert endpoint.answer(HELLO) == "back"


def test_a_server_that_is_not_there_is_named():
    with serving() as server:
        url = server.url
    with Endpoint(url, "m", EndpointConfig(retries=1, backoff=0.01)) as endpoint:
        found = message_of(endpoint)
        assert re.search(rf"m at {url}: the connection failed: ConnectError: .*does the server run there\? \(2", found)


def test_a_message_that_cannot_be_sent_ends_its_call_and_no_other():
    with serving() as server, make(server) as endpoint:
        with pytest.raises(EndpointError, match="UnicodeEncodeError"):
            endpoint.answer([{"role": "user", "content": "\ud800"}])
        assert endpoint.answer(HELLO) == "hello"


def test_those_who_ask_the_same_meanwhile_hear_of_the_failure(tmp_path):
    asked = threading.Event()

    def late(handler, body):
        assert asked.wait(60)
        fails(400)(handler, body)

    with serving(late) as server, make(server, cache=str(tmp_path)) as endpoint:
        calls = [endpoint.ask(HELLO) for _ in range(3)]
        asked.set()
        for call in calls:
            with pytest.raises(EndpointError, match="status 400"):
                call.result()
        assert endpoint.report()["failures"] == 3
        assert endpoint.answer(HELLO) == "hello"  # a failure is not kept


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the loop that Python half made
def test_an_endpoint_that_could_not_begin_says_so_and_begins_later(tmp_path):
    with serving() as server, make(server, cache=str(tmp_path)) as endpoint:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) - 1, limits[1]))
        try:
            with pytest.raises(EndpointError, match=r"m: .* be made: .*Too many open files"):
                endpoint.ask(HELLO)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            gc.collect()  # what Python leaves of the loop complains now, and not in a later test
        assert endpoint.answer(HELLO) == "hello"
        assert (endpoint.report()["calls"], endpoint.report()["failures"], endpoint.report()["replies"]) == (2, 1, 1)


def test_closing_ends_calls_under_way_and_those_that_wait():
    with serving(usual=hangs) as server:
        endpoint = make(server, concurrency=1)
        calls = [endpoint.ask([{"role": "user", "content": str(n)}]) for n in range(3)]
        until(lambda: server.inside == 1)
        waiting = threading.Timer(0.1, endpoint.close)
        waiting.start()
        began = time.monotonic()
        for call in calls:
            with pytest.raises(PlayerError, match="m: the endpoint was closed before the reply came"):
                call.result()
        assert time.monotonic() - began < 60
        waiting.join()
        assert endpoint.report()["failures"] == 3


def test_an_interrupt_loses_no_reply_that_is_paid_for(tmp_path):
    with serving(fails(500), usual=says("x", after=0.3)) as server:
        with contextlib.suppress(KeyboardInterrupt), make(server, concurrency=3, cache=str(tmp_path)) as endpoint:
            calls = [endpoint.ask([{"role": "user", "content": str(n)}]) for n in range(9)]
            until(lambda: server.inside == 3 and len(server.requests) > 3)  # the one that fails has come and gone
            raise KeyboardInterrupt
        told = [str(call.exception() or call.result()) for call in calls]
        assert sorted(set(told)) == ["m: the endpoint was closed before the reply came", "x"]
        report = endpoint.report()
        assert report["replies"] == told.count("x") == len(server.requests) - 1 >= 3
        assert report["input_tokens"] == 10 * report["replies"]
        assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == report["replies"]


def test_a_call_that_fails_while_its_endpoint_closes_is_not_tried_again():
    def late(handler, body):
        handler.server.release.wait(0.3)
        fails(500)(handler, body)

    with serving(usual=late) as server:
        with make(server, retries=50) as endpoint:
            call = endpoint.ask(HELLO)
            until(lambda: server.inside == 1)
        assert str(call.exception()) == "m: the endpoint was closed before the reply came"
        assert len(server.requests) == 1
