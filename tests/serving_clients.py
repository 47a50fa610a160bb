"""A server of the bundled model for tests, clients that ask it over sockets, and what the engine alone would answer."""

import asyncio
import contextlib
import dataclasses
import functools
import json
import socket
import threading
import time

import numpy as np

from dfc.config import SamplingConfig, ServingConfig
from dfc.games.rng import derive_seed
from dfc.inference.engine import Engine
from dfc.inference.sampling import filtered_logprobs, filters_of, row_sampling, uniforms
from dfc.inference.stop_strings import StopStrings
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.models.transformer import bind, initialize
from dfc.players.key_search import Secret
from dfc.tools.serving import requests, server
from dfc.tools.serving.app import Served

KEY = "a-key-of-this-test-4711"
MAX_LENGTH, SLOTS = 1024, 4
_ROUNDING = 1e-4  # of a cumulative probability
_EVERY_FILTER = SamplingConfig(top_k=1, top_p=0.5)


@functools.cache
def tokenizer():
    return ChatTokenizer.load(huggingface.resolve("tiny_player"))


@functools.cache
def model():
    """The bundled model's shape, and random weights: these have long replies of all kinds of tokens."""
    config, _ = huggingface.load("tiny_player", dtype="float32")
    return config, initialize(config, 5)


def engine():
    """An engine of few programs; two of them share these."""
    config, params = model()
    return Engine(
        config,
        params,
        slots=SLOTS,
        rows=2,
        prefill_buckets=(32,),
        decode_steps=4,
        max_length=MAX_LENGTH,
        stop_token_ids=tokenizer().stop_token_ids(()),
        sampling=_EVERY_FILTER,
        plain_logprobs=True,
    )


def policy(its_engine):
    return server.Policy(
        its_engine, Served("tiny_player", "weights of tiny_player", "fp_test", tokenizer(), MAX_LENGTH)
    )


@contextlib.contextmanager
def running(its_engine, *, key="", buffer=None, **settings):
    """A server in a thread: yields (port, server). With `buffer` the system keeps few bytes that are not read."""
    config = ServingConfig(**{"max_length": MAX_LENGTH, **settings})
    found = server.Server(policy(its_engine), config, Secret(key))
    with server.listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        if buffer:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        thread = threading.Thread(target=found.run, args=([bound],))
        thread.start()
        try:
            wait_until(lambda: found.started)
            yield port, found
        finally:
            found.leave()
            thread.join(30)
    assert not thread.is_alive()


def wait_until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)


# ---- asking ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Answered:
    """What came back: the status, the headers (small letters), and the body."""

    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        """The objects of a stream; its last event says that it is whole."""
        *parts, done, end = self.body.decode().split("\n\n")
        assert (done, end) == ("data: [DONE]", "")
        return [json.loads(part.removeprefix("data: ")) for part in parts]


def head(path, *, method="POST", key=KEY, length=0, **headers):
    """The head of a request; an underscore in a header's name stands for a dash."""
    given = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": length, "Connection": "close"}
    if key:
        given["Authorization"] = f"Bearer {key}"
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items() if value is not None)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def ask(port, body, *, path="/v1/chat/completions", leave_after=None, **options):
    """Sends a body (bytes, or anything that JSON holds); with `leave_after` goes away once so many bytes came."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):  # a server that has refused reads no more
            writer.write(head(path, length=len(content), **options) + content)
            await writer.drain()
        if leave_after is not None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                await reader.readexactly(leave_after)
            writer.transport.abort()
            return None
        return answered(await reader.read())
    finally:
        writer.close()


def answered(raw):
    top, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = top.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _joined(body)
    return Answered(int(first.split()[1]), headers, body)


def _joined(body):
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size, 16)
        parts.append(body[:count])
        body = body[count + 2 :]
    return b"".join(parts)


def now(port, body=None, **options):
    """Asks once and waits."""
    if body is None:
        options = {"method": "GET", **options}
    return asyncio.run(ask(port, b"" if body is None else body, **options))


def choices(answer, *, stream):
    """(text, finish reason, logprobs) of each choice, and the usage if it was sent."""
    if not stream:
        found = answer.json
        return [
            (c["message"]["content"], c["finish_reason"], c["logprobs"] and c["logprobs"]["content"])
            for c in found["choices"]
        ], found["usage"]
    texts, reasons, logs, usage = {}, {}, {}, None
    for event in answer.events:
        usage = event.get("usage") or usage
        for part in event["choices"]:
            index = part["index"]
            texts[index] = texts.get(index, "") + part["delta"].get("content", "")
            reasons[index] = part["finish_reason"] or reasons.get(index)
            if part["logprobs"]:
                logs[index] = logs.get(index, []) + part["logprobs"]["content"]
    return [(texts[i], reasons[i], logs.get(i)) for i in sorted(texts)], usage


# ---- the engine alone -----------------------------------------------------------------------------------------------


def alone(its_engine, body, opening=None, choice=0):
    """The reply to a request that is right, of an engine that nobody else uses; `opening`: its first tokens."""
    request = requests.parse(json.dumps(body).encode())
    prompt = requests.token_ids(request, tokenizer())
    limit = requests.room(request, len(prompt), MAX_LENGTH)
    seed = request.seed if choice == 0 else derive_seed("choice", request.seed, choice)
    ends = StopStrings(request.stop, tokenizer().decode) if request.stop else None
    opening = opening or []
    if ends is not None:
        rule = ends
        ends = lambda token_ids: None if (kept := rule([*opening, *token_ids])) is None else kept - len(opening)  # noqa: E731
    slot = its_engine.open(seed, sampling=request.sampling)
    its_engine.append(slot, [*prompt, *opening])
    if not its_engine.ask(slot, limit - len(opening), ends=ends):
        its_engine.close(slot)
        return prompt, request, list(opening), [], False
    while not (replies := its_engine.step()):
        pass
    its_engine.close(slot)
    (reply,) = replies
    return prompt, request, [*opening, *reply.token_ids], reply.plain_logprobs, reply.stopped


def text_of(request, token_ids, *, stopped):
    """The text and the finish reason of a reply."""
    text = tokenizer().decode([t for t in token_ids if t not in tokenizer().end_token_ids])
    places = [place for place in (text.find(stop) for stop in request.stop) if place >= 0]
    return text[: min(places)] if places else text, "stop" if stopped else "length"


def differs(its_engine, body, choice, text, reason):
    """Why a choice is not the engine's own answer; None if it is; "rounding" if a draw lay that close to a boundary."""
    prompt, request, token_ids, _, stopped = alone(its_engine, body, choice=choice)
    expected = text_of(request, token_ids, stopped=stopped)
    if expected == (text, reason):
        return None
    seed = request.seed if choice == 0 else derive_seed("choice", request.seed, choice)
    for place, other in _close_calls([*prompt, *token_ids], len(prompt), request.sampling, seed):
        _, _, found, _, ended = alone(its_engine, body, [*token_ids[:place], other], choice)
        if text_of(request, found, stopped=ended) == (text, reason):
            return "rounding"
    return f"expected {expected}, got {(text, reason)}"


def _close_calls(token_ids, start, sampling, seed):
    """Places of a reply with another token that could have been sampled there: the draw is that close to a boundary."""
    config, params = model()
    whole = bind(config, params)
    tokens = np.asarray([token_ids], np.int32)
    ones = np.ones_like(tokens)
    hidden = whole(tokens, np.arange(tokens.shape[1], dtype=np.int32)[None], ones)
    logits = (hidden @ whole.output_embedding.T)[0, start - 1 : -1]
    rows = row_sampling([sampling] * len(logits))
    p = np.exp(np.asarray(filtered_logprobs(logits, rows, filters_of([sampling])), np.float64))
    drawn = uniforms(np.asarray([seed], np.uint64), np.arange(start, len(token_ids), dtype=np.uint64))
    for place, (row, number) in enumerate(zip(p, drawn, strict=True)):
        ends = row.cumsum()
        near = (ends - row - _ROUNDING <= number) & (number <= ends + _ROUNDING) & (row > 0)
        yield from ((place, int(t)) for t in np.flatnonzero(near) if t != token_ids[start + place])


def connected(port, *, buffer=None):
    """A connected socket whose reads end after 5 seconds."""
    found = socket.socket()
    found.settimeout(5)
    if buffer:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    found.connect(("127.0.0.1", port))
    return found
