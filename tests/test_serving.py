"""The server of chat completions: right answers are the engine's own, nobody keeps a slot, nobody gets in."""

import asyncio
import json
import subprocess
import threading
import time

import jax
import openai
import pytest
import serving_clients
import serving_mix
import thinking_models
from serving_clients import KEY, SLOTS, alone, ask, choices, connected, engine, head, now, running, text_of, wait_until

from dfc.models.chat import ChatTokenizer
from dfc.tools.serving import requests, server
from dfc.tools.serving.app import Served

HELLO = {"model": "tiny_player", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
LONG = HELLO | {"temperature": 2, "max_tokens": 150, "seed": 3}


@pytest.fixture(scope="module")
def served():
    found = engine()
    found.warm_up()
    return found


@pytest.fixture(scope="module")
def reference(served):
    assert served.free == SLOTS  # its programs are there
    return engine()


@pytest.fixture
def compilations():
    """How many programs were compiled since."""
    count = [0]

    def note(event, _, **__):
        count[0] += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(note)
    yield count
    jax.monitoring.unregister_event_duration_listener(note)


def test_a_hundred_requests_of_each_kind_from_eight_clients(served, reference, compilations, caplog, capfd):
    with running(served, key=KEY) as (port, server):
        found = serving_mix.play(port, each=100, clients=8, seed=1)
        wait_until(lambda: now(port, path="/metrics").body.count(b"dfc_slots_busy 0.0\n"))
        metrics = now(port, path="/metrics").body.decode()
        assert now(port, path="/health", key=None).json == {"status": "ok"}
    assert server.failure is None
    assert served.free == SLOTS
    assert compilations == [0]
    assert len(found) == 100
    total, rounding = serving_mix.compare(reference, found)
    assert total > 120
    assert rounding < 3
    assert 'dfc_requests_total{status="400"}' in metrics
    printed = "".join([caplog.text, *capfd.readouterr()])
    assert not [secret for secret in (KEY, "Piles", "brackets") if secret in printed + metrics]


def test_a_request_says_whether_its_reply_may_think(served, monkeypatch, tmp_path):
    tokenizer = ChatTokenizer.load(thinking_models.write(tmp_path / "model"))
    thinking = server.thinking(tokenizer)
    what = Served("tiny_player", "weights", "fp_test", tokenizer, serving_clients.MAX_LENGTH, thinking)
    monkeypatch.setattr(serving_clients, "policy", lambda found: server.Policy(found, what))
    with running(served) as (port, _):
        answers = [
            now(port, HELLO | fields, key=None).json
            for fields in ({}, *({"chat_template_kwargs": {"enable_thinking": value}} for value in (True, False)))
        ]
    without, on, off = (answer["usage"]["prompt_tokens"] for answer in answers)
    assert (on, off) == (without, without + 1)  # thinking_models.SIGN


@pytest.mark.parametrize("stream", [False, True])
def test_the_openai_client_gets_the_engines_own_answer(served, reference, stream):
    body = HELLO | {"seed": 7, "max_tokens": 12, "temperature": 1.2, "logprobs": True}
    _, request, token_ids, plain, stopped = alone(reference, body)
    with (
        running(served, key=KEY) as (port, _),
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=0) as client,
    ):
        assert [model.id for model in client.models.list()] == ["tiny_player"]
        assert client.models.retrieve("tiny_player") == client.models.list().data[0]
        with pytest.raises(openai.NotFoundError) as missing:
            client.models.retrieve("org/other")
        if stream:
            options = {"include_usage": True}
            parts = list(client.chat.completions.create(**body, stream=True, stream_options=options))
            *parts, last = parts
            text = "".join(part.choices[0].delta.content or "" for part in parts)
            reason = parts[-1].choices[0].finish_reason
            found = [entry for part in parts if part.choices[0].logprobs for entry in part.choices[0].logprobs.content]
            usage = last.usage
        else:
            answer = client.chat.completions.create(**body)
            text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
            found, usage = answer.choices[0].logprobs.content, answer.usage
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**body, tools=[{"type": "function", "function": {"name": "f"}}])
    assert (text, reason) == text_of(request, token_ids, stopped=stopped)
    assert usage.completion_tokens == len(token_ids)
    kept = len(token_ids) - (reason == "stop")
    assert [entry.logprob for entry in found] == pytest.approx(plain[:kept], abs=1e-4)
    assert "".join(entry.token for entry in found) == text
    assert (caught.value.param, caught.value.code) == ("tools", "unsupported_parameter")
    assert (missing.value.param, missing.value.code) == ("model", "model_not_found")
    assert "'org/other'" in missing.value.message
    assert "'tiny_player'" in missing.value.message


def test_curl_asks_without_a_key_on_this_machine(served):
    with running(served) as (port, _):
        words = [
            *("curl", "-sS", f"http://localhost:{port}/v1/chat/completions"),
            "-H",
            "Content-Type: application/json",
        ]
        done = subprocess.run([*words, "-d", json.dumps(HELLO)], capture_output=True, check=True, timeout=30)  # noqa: S603
        assert json.loads(done.stdout)["choices"][0]["message"]["role"] == "assistant"
        for headers, code in (
            ({"Host": "evil.example"}, "host_not_allowed"),
            ({"Host": f"evil.example:{port}"}, "host_not_allowed"),
            ({"Host": "127.0.0.1.evil.example"}, "host_not_allowed"),
            ({"Origin": "http://evil.example"}, "origin_not_allowed"),
            ({"Origin": "null"}, "origin_not_allowed"),
            ({"Origin": "http://127.0.0.1:1"}, "origin_not_allowed"),
        ):
            answer = now(port, HELLO, key=None, **headers)
            assert (answer.status, answer.json["error"]["code"]) == (403, code)
            assert "access-control-allow-origin" not in answer.headers
        assert now(port, HELLO, key=None, Host=f"[::1]:{port}", Origin=f"http://[::1]:{port}").status == 200
        plain = now(port, HELLO, key=None, Content_Type="text/plain")  # what a page may send without asking first
        assert plain.status == 415
        assert now(port, path="/nothing").status == 404


def test_a_path_with_another_method_says_which_it_takes(served):
    with running(served) as (port, _):
        for path, method, allowed in (
            ("/v1/chat/completions", "GET", "POST"),
            ("/v1/models", "FOO", "GET, HEAD"),
            ("/v1/models/tiny_player", "DELETE", "GET, HEAD"),
        ):
            answer = now(port, path=path, method=method)
            assert (answer.status, answer.headers["allow"]) == (405, allowed)
            assert answer.json["error"]["code"] == "method_not_allowed"
            for word in (path, method, *allowed.split(", ")):
                assert word in answer.json["error"]["message"]
        assert now(port, path="/v1/models/").json == now(port, path="/v1/models").json


def chunked(content):
    return f"{len(content):x}\r\n".encode() + content + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/health"])
def test_two_lengths_of_a_body_are_refused_and_what_follows_is_no_request(served, path):
    content = json.dumps(HELLO).encode()
    follows = head("/v1/models", method="GET", key=None)
    with running(served) as (port, _):
        for length, status in (({"length": len(content)}, b"400"), ({"length": None}, None)):
            with connected(port) as sock:
                top = head(path, key=None, **length, Transfer_Encoding="chunked", Connection="keep-alive")
                sock.sendall(top + chunked(content) + follows)
                received = b""
                while part := sock.recv(65536):
                    received += part
            answers = [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]]
            if status is not None:
                assert answers == [status]
                assert b"connection: close" in received.lower()
                assert b"expected Content-Length or Transfer-Encoding, got both" in received
            else:  # with one length the connection goes on
                assert answers[1:] == [b"200"]


def test_many_small_messages_and_parts_do_not_hold_the_other_clients(served, monkeypatch):
    where = []

    def noted(name):
        work = getattr(requests, name)

        def also(*args):
            where.append((name, threading.current_thread()))
            return work(*args)

        monkeypatch.setattr(requests, name, also)

    small = {"type": "text", "text": ""}
    roles = ("user", "assistant")
    many = [{"role": roles[number % 2], "content": "x"} for number in range(4095)]
    with running(served) as (port, _):
        for name in ("parse", "token_ids"):
            noted(name)
        assert now(port, HELLO, key=None).status == 200
        (_, clients), (_, again) = where
        assert clients is again
        for body in (HELLO | {"messages": many}, HELLO | {"messages": [{"role": "user", "content": [small] * 20_000}]}):
            where.clear()
            now(port, body, key=None)
            assert [name for name, _ in where] == ["parse", "token_ids"]
            assert clients not in [thread for _, thread in where]


def test_a_conversation_that_is_sent_again_whole_is_read_once(served):
    messages, read, distinct = [], 0, 0
    with running(served) as (port, _):
        for number in range(10):
            digits = "".join(str((number * 37 + place * place) % 10) for place in range(72))
            messages.append({"role": "user", "content": digits})
            body = HELLO | {"messages": messages, "max_tokens": 4, "seed": number}
            answer = now(port, body, key=None).json
            usage = answer["usage"]
            read += usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
            distinct = usage["prompt_tokens"]
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    assert distinct > 500
    assert read <= 1.15 * distinct


def test_a_full_queue_refuses_and_a_client_that_leaves_makes_room(served, monkeypatch):
    async def crowd(port):
        many = [asyncio.create_task(ask(port, LONG | {"n": 8, "max_tokens": 30}, key=None)) for _ in range(6)]
        await asyncio.sleep(0)
        return await asyncio.gather(*many)

    with running(served, queue=2) as (port, _):
        with monkeypatch.context() as patched:  # the first is still answered when the last comes
            slowed(patched, served, 0.05)
            answers = asyncio.run(crowd(port))
        refused = [answer for answer in answers if answer.status == 429]
        assert {answer.status for answer in answers} == {200, 429}
        assert all(answer.headers["retry-after"] == "1" for answer in refused)
        assert all(answer.json["error"]["code"] == "rate_limit_exceeded" for answer in refused)
        assert now(port, HELLO, key=None).status == 200


def slowed(monkeypatch, its_engine, seconds, failing=False):
    """Every call of the engine takes so long, or fails."""
    collect = its_engine.collect

    def slow():
        time.sleep(seconds)
        if failing:
            raise RuntimeError("what the client wrote")
        return collect()

    monkeypatch.setattr(its_engine, "collect", slow)


def test_a_client_that_goes_away_frees_its_slots_within_one_call(served, monkeypatch):
    with running(served) as (port, _):
        slowed(monkeypatch, served, 0.2)
        sock = connected(port)
        content = json.dumps(LONG | {"n": SLOTS, "stream": True}).encode()
        sock.sendall(head("/v1/chat/completions", key=None, length=len(content)) + content)
        wait_until(lambda: served.free == 0)
        sock.recv(100)
        calls = served.counts.calls
        sock.close()
        wait_until(lambda: served.free == SLOTS)
        assert served.counts.calls - calls <= 3  # one under way, one launched beside it, one before it was noticed


def test_a_deadline_and_a_failure_of_the_engine_are_answers(served, monkeypatch, caplog):
    with running(served, deadline=0.3) as (port, _), monkeypatch.context() as patch:
        slowed(patch, served, 0.2)
        late = now(port, LONG, key=None)
        assert (late.status, late.json["error"]["code"]) == (504, "deadline_exceeded")
        streamed = now(port, LONG | {"stream": True}, key=None)  # its first parts were there in time
        assert streamed.status == 200
        assert json.loads(streamed.body.split(b"data: ")[-1])["error"]["code"] == "deadline_exceeded"
    assert served.free == SLOTS
    with running(served) as (port, server), monkeypatch.context() as patch:
        slowed(patch, served, 0.1, failing=True)
        failed = now(port, LONG, key=None)
        assert (failed.status, failed.json["error"]["code"]) == (500, "internal_error")
        wait_until(lambda: server.should_exit)  # whoever started it starts it again
    assert server.failure == "RuntimeError"
    assert "what the client wrote" not in caplog.text
    assert served.free == SLOTS
    while served.in_flight:
        served.collect()


def test_a_server_that_stops_answers_what_runs_and_refuses_what_waits(served, monkeypatch):
    with running(served) as (port, server):
        slowed(monkeypatch, served, 0.02)
        answers = {}

        def one(name, body):
            answers[name] = now(port, body, key=None)

        threads = [threading.Thread(target=one, args=("runs", LONG | {"n": SLOTS}))]
        threads[0].start()
        wait_until(lambda: served.free == 0)
        threads.append(threading.Thread(target=one, args=("waits", LONG)))
        threads[1].start()
        wait_until(lambda: b"dfc_requests_queued 1.0" in now(port, path="/metrics").body)
        server.leave()
        for thread in threads:
            thread.join(20)
    assert answers["runs"].status == 200
    assert len(choices(answers["runs"], stream=False)[0]) == SLOTS
    assert (answers["waits"].status, answers["waits"].json["error"]["code"]) == (503, "server_stopping")
    assert served.free == SLOTS


def test_answers_under_way_end_with_the_grace(served, monkeypatch):
    with running(served, grace=0.5) as (port, server):
        slowed(monkeypatch, served, 0.2)
        thread = threading.Thread(target=lambda: found.append(now(port, LONG, key=None)))
        found = []
        thread.start()
        wait_until(lambda: served.free < SLOTS)
        server.leave()
        thread.join(10)
    assert (found[0].status, found[0].json["error"]["code"]) == (503, "server_stopping")
    assert served.free == SLOTS


def test_slow_clients_are_dropped(served):
    with running(served, patience=0.3, buffer=4096) as (port, server):
        with connected(port) as silent, connected(port) as slow, connected(port) as late:
            slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            late.sendall(head("/v1/chat/completions", key=None, length=100) + b"{")
            assert silent.recv(100) == b""
            assert slow.recv(100) == b""
            assert late.recv(100).startswith(b"HTTP/1.1 408 ")
        with connected(port, buffer=4096) as deaf:
            content = json.dumps(LONG | {"n": 8, "stream": True, "logprobs": True}).encode()  # 0.5 MB come back
            deaf.sendall(head("/v1/chat/completions", key=None, length=len(content)) + content)
            wait_until(lambda: served.free < SLOTS)
            wait_until(lambda: not server.server_state.connections)
        wait_until(lambda: served.free == SLOTS)
        assert now(port, HELLO, key=None).status == 200
