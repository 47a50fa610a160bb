"""Chat endpoints and what nobody may see or hold: keys that servers repeat, answers that are too large or packed."""

import asyncio
import contextlib
import gzip
import json
import logging
import traceback
import tracemalloc
import urllib.parse
import zlib
from pathlib import Path

import pytest
from chat_server import HELLO, completion, fails, make, message_of, says, sends, serving, until

from dfc.config import EndpointConfig
from dfc.errors import ConfigError
from dfc.players.chat_response import AnswerTooLargeError, read_body
from dfc.players.endpoint import Endpoint
from dfc.players.remote import PlayerError

KEY = "sk-live/0123456789+abcdefghijklmnopqrstuvwxyz"


# ---- the key ------------------------------------------------------------------------------------------------------


def pieces(key, size=8):
    return [key[start : start + size] for start in range(len(key) - size + 1)]


ECHOES = [
    fails(401, {"error": {"message": f"Incorrect API key provided: {KEY}. See your keys."}}),
    fails(401, f"<html>{KEY}</html>".encode()),
    fails(400, {"detail": "x" * 280 + KEY}),  # cut in the middle of the key where messages are cut
    fails(400, {"error": {"message": f"{urllib.parse.quote(KEY, safe='')} {KEY[:20]} {KEY[-20:]}"}}),
    fails(400, json.dumps({"error": {"message": KEY}}).replace("s", "\\u0073").replace("/", "\\/").encode()),
    fails(403, {KEY: KEY}),
    fails(307, b"", Location=f"http://elsewhere/?key={KEY}"),
    fails(500, {"error": {"message": KEY, "code": KEY}}),
    sends(f"no JSON: {KEY}".encode()),
    sends(json.dumps({"error": {"message": KEY}}).encode()),
    sends(json.dumps(completion({"secret": KEY})).encode()),
    lambda handler, _: handler.wfile.write(f"HTTP/1.1 401 {KEY}\r\nContent-Length: 0\r\n\r\n".encode()),
    says(f"your key is {KEY}, is it not?"),
]


@pytest.mark.parametrize("echo", ECHOES)
def test_the_key_is_shown_to_nobody(tmp_path, monkeypatch, caplog, capfd, echo):
    monkeypatch.setenv("DFC_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    seen = []
    with serving(usual=echo) as server:
        config = EndpointConfig("DFC_KEY", cache=str(tmp_path), backoff=0.0, retries=1, timeout=5.0)
        with Endpoint(server.url, "m", config) as endpoint:
            call = endpoint.ask(HELLO)
            with contextlib.suppress(PlayerError):
                seen.append(call.result())
            if (error := call.exception()) is not None:
                shown = traceback.TracebackException.from_exception(error, capture_locals=True)
                seen += [*shown.format(), repr(error), str(error.__cause__), str(error.__context__)]
            seen += [
                repr(endpoint),
                repr(vars(endpoint)),
                repr(config),
                repr(vars(call)),
                json.dumps(endpoint.report()),
            ]
        assert KEY in str(server.headers)  # it was sent where it belongs
    seen += [str(path) + path.read_text() for path in Path(tmp_path).rglob("*") if path.is_file()]
    seen += [caplog.text, *(repr(vars(record)) for record in caplog.records), *capfd.readouterr()]
    everything = "\n".join(seen)
    everything += urllib.parse.unquote(everything) + everything.replace("\\", "")
    assert "<key>" in everything
    assert [piece for piece in pieces(KEY) if piece in everything] == []


def test_a_short_placeholder_of_a_key_does_not_change_replies(monkeypatch):
    monkeypatch.setenv("DFC_KEY", "EMPTY")
    with serving(says("cell 4 is EMPTY")) as server, make(server, key_variable="DFC_KEY") as endpoint:
        assert endpoint.answer(HELLO) == "cell 4 is EMPTY"


@pytest.mark.parametrize("value", [None, "", " \n", "two words-" + KEY, f"{KEY}\r\nX-Other: 1", "schlüssel-" + KEY])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(monkeypatch, value):
    monkeypatch.delenv("DFC_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("DFC_KEY", value)
    with pytest.raises(ConfigError, match=r"endpoint\.key_variable: the .*DFC_KEY") as raised:
        Endpoint("https://example.invalid/v1", "m", EndpointConfig(key_variable="DFC_KEY"))
    assert KEY[:8] not in str(raised.value)


@pytest.mark.parametrize(
    "values",
    [
        {"key_variable": KEY},
        {"key_variable": "gsk_0123456789abc"},
        {"base_url": f"https://user:{KEY}@example.org/v1"},
        {"base_url": f"https:/user:{KEY}@example.org/v1"},
        {"base_url": f"https://example.org/v1?key={KEY}"},
    ],
)
def test_a_key_in_the_wrong_place_is_refused_without_showing_it(values):
    base_url, variable = values.get("base_url", "https://example.org/v1"), values.get("key_variable", "")
    with pytest.raises(ConfigError, match="endpoint") as raised:
        Endpoint(base_url, "m", EndpointConfig(variable))
    shown = traceback.TracebackException.from_exception(raised.value)
    assert KEY[:8] not in "".join(shown.format())
    assert "gsk_" not in str(raised.value)


@pytest.mark.parametrize(
    "values",
    [
        {"base_url": f"https://example.org/{KEY}/v1"},
        {"model": f"m-{KEY}"},
        {"extra_body": {"note": KEY}},
    ],
)
def test_a_value_that_repeats_the_key_is_refused_without_showing_it(monkeypatch, values):
    monkeypatch.setenv("DFC_KEY", KEY)
    (name,) = values
    place = {"base_url": "https://example.org/v1", "model": "m"}
    config = EndpointConfig("DFC_KEY", extra_body=values.get("extra_body", {}))
    with pytest.raises(ConfigError, match=rf"endpoint\.{name}: repeats the key in DFC_KEY") as raised:
        Endpoint(**place | {field: value for field, value in values.items() if field in place}, config=config)
    assert KEY[:8] not in str(raised.value)


def test_a_key_in_the_body_of_requests_is_refused_by_its_name():
    with pytest.raises(ConfigError, match=r"endpoint\.extra_body: holds what is named like a key") as raised:
        Endpoint("https://example.org/v1", "m", EndpointConfig(extra_body={"api_key": "of-some-kind"}))
    assert "of-some-kind" not in str(raised.value)


# ---- answers that are too large -----------------------------------------------------------------------------------


def large(size, *, packed=False, announced=True, status=200):
    """Answers with `size` bytes, as one gzip bomb, or piece by piece until the client is gone."""

    def act(handler, _):
        handler.send_response(status)
        if packed:
            body = gzip.compress(bytes(size), 9)
            handler.send_header("Content-Encoding", "gzip")
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
            return
        if announced:
            handler.send_header("Content-Length", str(size))
        handler.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(size >> 16):
                handler.wfile.write(b" " * (1 << 16))
                handler.server.sent += 1 << 16
        handler.close_connection = True

    return act


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "the answer has more than max_answer_bytes=1000000; lower max_tokens"),
        ({"announced": False}, "the answer has more than max_answer_bytes=1000000; lower max_tokens"),
        ({"announced": False, "status": 500}, "the answer has more than max_answer_bytes=1000000; lower max_tokens"),
        ({"packed": True}, "the answer has more than max_answer_bytes=1000000; lower max_tokens"),
    ],
)
def test_a_large_answer_is_not_read_to_its_end(options, why):
    with serving(large(1 << 28, **options)) as server, make(server, max_answer_bytes=1_000_000) as endpoint:
        server.sent = 0
        found = message_of(endpoint)
        assert found.startswith(f"m at {server.url}: {why}")
        assert len(server.requests) == 1  # the next one would be as large
        assert server.headers[0]["accept-encoding"] == "identity"
        until(lambda: not server.inside)
        assert server.sent < 1 << 25  # what sockets hold between both


@pytest.mark.parametrize("size", [1000, 1 << 28])
def test_no_more_than_the_limit_is_ever_unpacked(size):
    bomb, limit = gzip.compress(bytes(size), 9), 1 << 20

    async def parts():
        yield bomb

    tracemalloc.start()
    try:
        with contextlib.nullcontext() if size <= limit else pytest.raises(AnswerTooLargeError, match="=1048576; lower"):
            found = asyncio.run(read_body(parts(), {"content-encoding": "gzip"}, limit))
            assert found == bytes(size)
        assert tracemalloc.get_traced_memory()[1] < 8 * limit
    finally:
        tracemalloc.stop()


def packed_reply(encoding, pack):
    def act(handler, _):
        reply = {"choices": [{"message": {"role": "assistant", "content": "hello " * 1000}, "finish_reason": "stop"}]}
        body = pack(json.dumps(reply).encode())
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Encoding", encoding)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return act


def raw_deflate(text):
    return zlib.compress(text)[2:-4]


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("GZIP, identity", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("none", bytes),
        ("utf-8", bytes),
    ],
)
def test_an_answer_that_a_gateway_compressed_is_unpacked_within_the_limit(encoding, pack):
    with serving(*[packed_reply(encoding, pack)] * 2) as server:
        with make(server) as endpoint:
            assert endpoint.answer(HELLO).strip() == ("hello " * 1000).strip()
        with make(server, max_answer_bytes=5000) as endpoint:
            assert "the answer has more than max_answer_bytes=5000" in message_of(endpoint)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
def test_a_compression_that_is_not_unpacked_is_refused_at_once(encoding):
    with serving(packed_reply(encoding, bytes)) as server, make(server) as endpoint:
        assert f"the answer is compressed ({encoding}), which was not asked for" in message_of(endpoint)
        assert len(server.requests) == 1


def test_an_answer_within_the_limit_is_read_whole():
    text = "x" * 900_000
    with serving(says(text)) as server, make(server, max_answer_bytes=1_000_000) as endpoint:
        assert endpoint.answer(HELLO) == text
