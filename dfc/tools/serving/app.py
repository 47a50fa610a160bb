"""The application that answers HTTP requests (ASGI): completions, the model's name, health, counters."""

import asyncio
import contextlib
import dataclasses
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dfc.config import ServingConfig
from dfc.errors import shown
from dfc.games.rng import derive_seed
from dfc.inference.protocol import EngineReply
from dfc.inference.stop_strings import StopStrings
from dfc.models.chat import ChatTokenizer
from dfc.players.key_search import Secret
from dfc.tools.serving import gate, requests, responses
from dfc.tools.serving.engine_loop import EngineLoop, Event, Part, Submission
from dfc.tools.serving.requests import ChatRequest, RequestError

# Bytes of a body that is read and tokenized in the thread of the clients. Characters would be the wrong measure: each
# message, and each part of one, costs as much as many of them, and all of these have their bytes in the body.
_AT_ONCE = 4096
_KEPT = 16 * 2**20  # characters of messages whose tokens are kept for the next time
_LOG = logging.getLogger("dfc.tools.serving")


METRICS_KIND = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counters of one server, in the text format of Prometheus: numbers only, nothing that a client wrote.

    Attributes:
      requests: for a completion, by status. dropped: whose client went away. prompt, cached, generated: tokens.
      first, whole: seconds from a request's arrival to the first sampled tokens, and to the end of the answer.
    """

    def __init__(self, *, queued: Callable[[], float], busy: Callable[[], float], slots: int) -> None:
        """Begins at 0.

        Args:
          queued: how many requests wait now.
          busy: how many slots answer now.
          slots: how many there are.
        """
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("dfc_requests", "Requests for a completion", ["status"], registry=registry)
        self.dropped = Counter("dfc_requests_dropped", "Requests whose client went away", registry=registry)
        self.prompt = Counter("dfc_prompt_tokens", "Tokens of prompts", registry=registry)
        self.cached = Counter("dfc_cached_tokens", "Tokens of prompts that were in the cache", registry=registry)
        self.generated = Counter("dfc_generated_tokens", "Tokens sampled", registry=registry)
        first, whole = "Seconds to the first tokens", "Seconds to the whole answer"
        self.first = Histogram("dfc_first_token_seconds", first, registry=registry, buckets=_SECONDS)
        self.whole = Histogram("dfc_request_seconds", whole, registry=registry, buckets=_SECONDS)
        Gauge("dfc_requests_queued", "Requests that wait for a slot", registry=registry).set_function(queued)
        Gauge("dfc_slots_busy", "Slots that answer", registry=registry).set_function(busy)
        Gauge("dfc_slots", "Slots", registry=registry).set(slots)

    def text(self) -> bytes:
        """Returns all of it."""
        return generate_latest(self._registry)


class _GoneError(Exception):
    """The client disconnected."""


@dataclasses.dataclass(frozen=True)
class Served:
    """What is served.

    Attributes:
      name: of the model, for clients. policy: which weights, as text. fingerprint: of the weights.
      tokenizer: of the model. max_length: tokens of a prompt and its reply. thinking: tokenizers by what a request
        wants of the chat template's ``enable_thinking``; empty where the template does not read it.
    """

    name: str
    policy: str
    fingerprint: str
    tokenizer: ChatTokenizer
    max_length: int
    thinking: Mapping[bool, ChatTokenizer] = dataclasses.field(default_factory=dict)

    def missing(self, name: str) -> RequestError:
        """Returns the refusal of a request for another model."""
        message = f"there is no model {shown(name)} here, but {self.name!r}"
        return RequestError(404, message, code="model_not_found", param="model")


@dataclasses.dataclass
class _Answer:
    """One request under way: the events of each choice, received and pending."""

    request: ChatRequest
    prompt: int
    head: responses.Head
    began: float
    events: "asyncio.Queue[Event | None]" = dataclasses.field(default_factory=asyncio.Queue)
    replies: dict[int, EngineReply] = dataclasses.field(default_factory=dict)

    async def parts(self) -> AsyncIterator[Part]:
        """Yields parts until every choice ends; RequestError: the engine cancelled it. _GoneError: the client did."""
        while len(self.replies) < self.request.n:
            event = await self.events.get()
            if event is None:
                raise _GoneError
            if isinstance(event, RequestError):
                raise event
            if event.whole:
                self.replies[event.choice] = event.reply
            yield event

    def whole(self) -> list[EngineReply]:
        """Returns the replies by choice."""
        return [self.replies[number] for number in range(self.request.n)]


class Completions:
    """Answers requests for a completion; an ASGI application of one path."""

    def __init__(self, loop: EngineLoop, served: Served, config: ServingConfig, counts: Metrics) -> None:
        self._loop, self._served, self._config, self._counts = loop, served, config, counts
        tokenizer = served.tokenizer
        longest = max(len(tokenizer.decode([token_id])) for token_id in range(tokenizer.vocabulary))
        self._most_characters = served.max_length * max(longest, 1)
        self._held = responses.revocable(tokenizer)
        self._tokenized = 0  # characters since messages were forgotten

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        began, status, started = time.monotonic(), 500, False

        async def sent(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            try:
                status = await self._answer(Request(scope, receive), sent, began)
            except RequestError as problem:
                status = problem.status
                await gate.refuse(problem, send)
            except (_GoneError, ClientDisconnect):
                status = 499
            except Exception as error:  # noqa: BLE001 - a fault of the server; its text may hold what the client wrote
                _LOG.error("a request failed: %s", type(error).__name__)
                if not started:  # otherwise the connection ends in the middle
                    fault = RequestError(500, "the server failed at this request", code="internal_error")
                    await gate.refuse(fault, send)
        finally:
            self._counts.requests.labels(str(status)).inc()
            if status == 499:
                self._counts.dropped.inc()

    async def _answer(self, http: Request, send: Send, began: float) -> int:
        """Answers a request, returns the status; RequestError: it is wrong, nothing sent. _GoneError: client gone."""
        body = await self._body(http)
        aside = len(body) > _AT_ONCE  # in a thread of its own, so that the other clients are answered meanwhile
        request = await asyncio.to_thread(requests.parse, body) if aside else requests.parse(body)
        if request.model != self._served.name:
            raise self._served.missing(request.model)
        prompt = await self._tokens(request, aside=aside)
        head = responses.Head(
            f"chatcmpl-{secrets.token_hex(12)}", int(time.time()), self._served.name, self._served.fingerprint
        )
        answer = _Answer(request, len(prompt), head, began)
        submission = self._submission(request, prompt, answer)
        clients = asyncio.get_running_loop()

        def post(events: list[tuple[Submission, Event]]) -> None:
            with contextlib.suppress(RuntimeError):  # the clients' loop has ended
                clients.call_soon_threadsafe(_tell, events)

        self._loop.submit(submission, post)
        watch = asyncio.create_task(self._watch(http, submission, answer))
        try:
            if request.stream:
                status = await self._stream(answer, send)
            else:
                await gate.respond(send, 200, await self._whole(answer))
                status = 200
        finally:
            watch.cancel()
            if len(answer.replies) < request.n:
                self._loop.cancel(submission)
        self._note(answer)
        return status

    async def _body(self, http: Request) -> bytes:
        """Returns the body of a request, unless it is no JSON, too large or too slow."""
        kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError(415, "expected the header Content-Type: application/json", code="unsupported_media_type")
        most = self._config.body_bytes
        large = RequestError(413, f"the body has more than {most} bytes; send fewer messages", code="body_too_large")
        announced = http.headers.get("content-length", "")
        if announced.isdecimal() and (len(announced) > len(str(most)) or int(announced) > most):
            raise large
        body = bytearray()
        try:
            async with asyncio.timeout(self._config.patience):
                async for part in http.stream():
                    body += part
                    if len(body) > most:
                        raise large
        except TimeoutError:
            message = f"the body was not complete after {self._config.patience:g} seconds"
            raise RequestError(408, message, code="timeout", headers={"Connection": "close"}) from None
        return bytes(body)

    async def _tokens(self, request: ChatRequest, *, aside: bool) -> list[int]:
        """Returns the tokens of a request's conversation; refuses at once one that cannot fit."""
        tokenizer = requests.tokenizer(request, self._served.tokenizer, self._served.thinking)
        size = requests.characters(request)
        if size > self._most_characters:
            raise requests.too_long(f"{size} characters", self._served.max_length)
        self._tokenized += size
        if self._tokenized > _KEPT:
            for each in (self._served.tokenizer, *self._served.thinking.values()):
                each.forget_messages()
            self._tokenized = size
        if aside:
            return await asyncio.to_thread(requests.token_ids, request, tokenizer)
        return requests.token_ids(request, tokenizer)

    def _submission(self, request: ChatRequest, prompt: Sequence[int], answer: _Answer) -> Submission:
        seed = secrets.randbits(63) if request.seed is None else request.seed
        seeds = [seed if number == 0 else derive_seed("choice", seed, number) for number in range(request.n)]
        return Submission(
            prompt,
            seeds,
            request.sampling,
            requests.room(request, len(prompt), self._served.max_length),
            StopStrings(request.stop, self._served.tokenizer.decode) if request.stop else None,
            request.stream,
            answer.began + self._config.deadline,
            self._first_noted(answer),
        )

    def _first_noted(self, answer: _Answer) -> Callable[[Event], None]:
        """Returns the receiver of the events of an answer; the time of the first tokens is noted."""
        fresh = True

        def told(event: Event) -> None:
            nonlocal fresh
            if fresh and isinstance(event, Part):
                fresh = False
                self._counts.first.observe(time.monotonic() - answer.began)
            answer.events.put_nowait(event)

        return told

    async def _watch(self, http: Request, submission: Submission, answer: _Answer) -> None:
        """Cancels a submission whose client disconnects."""
        while (await http.receive())["type"] != "http.disconnect":
            pass
        self._loop.cancel(submission)
        answer.events.put_nowait(None)

    async def _whole(self, answer: _Answer) -> bytes:
        async for _ in answer.parts():
            pass
        request, tokenizer = answer.request, self._served.tokenizer
        choices = []
        for number, reply in enumerate(answer.whole()):
            text = responses.ReplyText(tokenizer, request.stop, self._held).more(reply, whole=True)
            its_logprobs = responses.logprobs(reply, tokenizer) if request.logprobs else None
            choices.append(responses.choice(number, text, reply, its_logprobs))
        numbers = responses.usage(answer.prompt, answer.whole())
        return responses.encoded(responses.completion(answer.head, choices, numbers))

    async def _stream(self, answer: _Answer, send: Send) -> int:
        """Sends an answer in parts; the status is sent with the first, so that an error before it has its own."""
        request, head, tokenizer = answer.request, answer.head, self._served.tokenizer
        texts = [responses.ReplyText(tokenizer, request.stop, self._held) for _ in range(request.n)]
        seen: dict[int, int] = {}  # tokens of each choice whose log-probabilities were sent
        started = False
        try:
            async for part in answer.parts():
                number, reply = part.choice, part.reply
                lines = []
                if not started:
                    started = True
                    await send(_START)
                if number not in seen:
                    seen[number] = 0
                    lines.append(responses.chunk(head, number, {"role": "assistant", "content": ""}))
                text = texts[number].more(reply, whole=part.whole)
                its_logprobs = None
                # A stop string may take back the newest tokens: log-probabilities come with their text.
                if request.logprobs and (part.whole or not request.stop):
                    its_logprobs = responses.logprobs(reply, tokenizer, seen[number])
                    seen[number] += len(its_logprobs["content"])
                if text or its_logprobs:
                    lines.append(responses.chunk(head, number, {"content": text}, its_logprobs=its_logprobs))
                if part.whole:
                    lines.append(responses.chunk(head, number, {}, reason=responses.finish_reason(reply)))
                await _send(send, lines)
            if request.usage:
                await _send(send, [responses.last_chunk(head, responses.usage(answer.prompt, answer.whole()))])
        except RequestError as problem:
            if not started:
                raise
            await send(_body(responses.event(responses.encoded(responses.error(problem))), more=False))
            return problem.status
        await send(_body(responses.DONE, more=False))
        return 200

    def _note(self, answer: _Answer) -> None:
        if len(answer.replies) < answer.request.n:
            return
        numbers, counts = responses.usage(answer.prompt, answer.whole()), self._counts
        counts.whole.observe(time.monotonic() - answer.began)
        counts.prompt.inc(answer.prompt)
        counts.cached.inc(numbers["prompt_tokens_details"]["cached_tokens"])
        counts.generated.inc(numbers["completion_tokens"])


_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ],
}


def _body(data: bytes, *, more: bool) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _send(send: Send, chunks: Sequence[responses.Json]) -> None:
    if chunks:
        await send(_body(b"".join(responses.event(responses.encoded(chunk)) for chunk in chunks), more=True))


def _tell(events: Sequence[tuple[Submission, Event]]) -> None:
    for submission, event in events:
        submission.told(event)


def create_app(loop: EngineLoop, served: Served, config: ServingConfig, key: Secret) -> ASGIApp:
    """Returns the application; it starts the engine's thread and ends it.

    The loop is not started; clients must send the key, an empty value: none.

    Raises:
      ConfigError: other machines reach `config.host` and there is no key.
    """
    gate.check_address(config.host, key)
    counts = Metrics(queued=lambda: loop.queued, busy=lambda: loop.busy, slots=loop.capacity)
    created = int(time.time())
    entry = responses.model(served.name, created, served.policy)

    async def models(_: Request) -> Response:
        return _json(200, {"object": "list", "data": [entry]})

    async def model(http: Request) -> Response:
        name = http.path_params["name"]
        if not name:
            return await models(http)
        return _json(200, entry) if name == served.name else _error(served.missing(name))

    async def health(_: Request) -> Response:
        state = "failed" if loop.failure else "stopping" if loop.draining else "ok"
        return _json(200 if state == "ok" else 503, {"status": state})

    async def numbers(_: Request) -> Response:
        return Response(counts.text(), headers={"content-type": METRICS_KIND})

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        loop.start()
        yield
        await asyncio.to_thread(loop.stop)

    completions = Completions(loop, served, config, counts)
    routes = [
        Route("/v1/chat/completions", completions, methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{name:path}", model, methods=["GET"]),  # a name may have slashes
        Route("/health", health, methods=["GET"]),
        Route("/metrics", numbers, methods=["GET"]),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _no_such_route})
    return gate.Gate(app, key=key, host=config.host)


def _json(status: int, data: responses.Json) -> Response:
    return Response(responses.encoded(data), status, media_type="application/json")


def _error(problem: RequestError) -> Response:
    found = _json(problem.status, responses.error(problem))
    found.headers.update(problem.headers)
    return found


async def _no_such_route(http: Request, error: Exception) -> Response:
    """Answers a request for a path that is not there, or is there for other methods."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if isinstance(error, HTTPException) and status == 405:
        methods = sorted((error.headers or {}).get("Allow", "").split(", "))
        path = http.scope["path"]
        message = f"{shown(path)} takes {' and '.join(methods)}, and not {shown(http.method)}"
        return _error(RequestError(status, message, code="method_not_allowed", headers={"Allow": ", ".join(methods)}))
    paths = "POST /v1/chat/completions, GET /v1/models, /v1/models/NAME, /health and /metrics"
    return _error(RequestError(status, f"there is no such path; there are {paths}"))
