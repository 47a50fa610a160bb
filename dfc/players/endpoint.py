"""A player that is a chat endpoint: any server with OpenAI's chat completions, such as vLLM, llama.cpp or a vendor's.

Calls run in one event loop in a thread of its own. The `openai` client speaks the protocol; its own retries are off,
because limits, pauses and counts have to hold for all calls of an endpoint together.

The key is read from an environment variable and goes nowhere but into the header of requests. Errors are made new from
redacted text instead of chained: the client's own carry the request.
"""

import asyncio
import collections
import concurrent.futures
import dataclasses
import functools
import importlib
import itertools
import logging
import random
import threading
import urllib.parse
import weakref
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

import openai

from dfc.errors import ConfigError
from dfc.players import chat_response
from dfc.players.chat_response import AttemptFailure, ChatReply
from dfc.players.endpoint_config import EndpointConfig, is_loopback
from dfc.players.remote import Call, ChatMessage, PlayerError, Remote
from dfc.players.reply_cache import CachedReply, ReplyCache, request_key
from dfc.players.secret import Secret
from dfc.players.usage import Spending, estimated_usage

__all__ = ["Endpoint", "EndpointConfig", "EndpointError"]

_LOG = logging.getLogger(__name__)
_NO_PACKING = ("", "identity", "none", "utf-8")  # the last two are no encodings, but are sent as such
_PACKINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
_PASSING = (408, 409, 425, 429)  # below 500, the statuses that may be over a little later
_LONGEST_BACKOFF = 60.0
_LIST_LIMIT = 5.0  # seconds for the list of models in an error message
_LAST_REPLIES = 5.0  # seconds that `close` leaves to requests under way: their replies are paid for
# The client adds headers from variables of the environment (OPENAI_ORG_ID, OPENAI_CUSTOM_HEADERS, which may even hold
# another key) for whichever server it is used with. Only these go out, its own `x-stainless-*`, and our key.
_HEADERS = (
    *("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding"),
    "user-agent",
)


class EndpointError(PlayerError):
    """A chat endpoint gave no reply; says what came and what to do."""


class _ClientThread:
    """The thread with the event loop and the client."""

    def __init__(self, client: openai.AsyncOpenAI, key: Secret, concurrency: int, name: str) -> None:
        self.client = client
        self._key = key
        self.slots = asyncio.Semaphore(concurrency)
        self.sent: set[asyncio.Task[Any] | None] = set()  # calls whose request is with the server
        self.closing = False
        self._stopped = asyncio.Event()
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name=f"dfc-{name}", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise EndpointError(f"{name}: no event loop can be made: {self._failure}") from self._failure

    def _run(self) -> None:
        try:
            with self._key.kept_from_logs(), asyncio.Runner() as runner:
                runner.run(self._main())
        except OSError as error:  # no file descriptor is left
            if self._ready.is_set():
                raise
            self._failure = error
        finally:
            self._ready.set()  # also if there is no loop to be had: nobody waits for ever

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._ready.set()
        async with self.client:
            await self._stopped.wait()
            self.closing = True
            calls = asyncio.all_tasks() - {asyncio.current_task()}
            sent = calls & self.sent
            for call in calls - sent:
                call.cancel()
            if sent:
                await asyncio.wait(sent, timeout=_LAST_REPLIES)
            for call in sent:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    def stop(self) -> None:
        """Ends calls under way, the client, the loop and the thread; called once."""
        self.loop.call_soon_threadsafe(self._stopped.set)
        if threading.current_thread() is not self._thread:  # the last reference may be a call's
            self._thread.join(timeout=_LAST_REPLIES + 5.0)


async def _only_own_headers(key: Secret, request: Any) -> None:  # noqa: ANN401 - of the client's own transport
    """Takes from a request what the environment has added, and gives it our key or none."""
    for name in list(request.headers):
        if name.lower() not in _HEADERS and not name.lower().startswith("x-stainless-"):
            del request.headers[name]
    if key.value:
        request.headers["Authorization"] = f"Bearer {key.value}"


class _TooLargeError(Exception):
    """An answer that is not read; the text says why, and what to do."""


@functools.cache
def _counted(library: str) -> Any:  # noqa: ANN401 - a class of the client's own transport
    """Returns the class of a body that ends with an error after so many bytes, made of the library's own streams.

    With an unpacker the bytes are counted on both sides of it, and no more than the limit is ever unpacked.
    """
    base: Any = importlib.import_module(library).AsyncByteStream  # which library it is depends on the client's version

    class Counted(base):  # type: ignore[misc]  # a class found when it is needed
        def __init__(self, stream: Any, limit: int, packing: str | None) -> None:  # noqa: ANN401 - of the library
            self._stream, self._limit, self._packing = stream, limit, packing

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = unpacked_left = self._limit
            unpacker: Any = None
            async for part in self._stream:
                left -= len(part)
                if left < 0:
                    raise _too_large(self._limit)
                if self._packing is None:
                    yield part
                elif part:
                    unpacker = unpacker or zlib.decompressobj(_window(self._packing, part[0]))
                    plain = unpacker.decompress(part, unpacked_left + 1)
                    unpacked_left -= len(plain)
                    if unpacked_left < 0:
                        raise _too_large(self._limit)
                    yield plain

        async def aclose(self) -> None:
            await self._stream.aclose()

    return Counted


def _window(packing: str, first: int) -> int:
    """What zlib calls a format. Some servers send "deflate" without its header, whose first byte ends in 8."""
    if packing == "gzip":
        return 16 + zlib.MAX_WBITS
    return zlib.MAX_WBITS if first & 15 == 8 else -zlib.MAX_WBITS


def _too_large(limit: int) -> _TooLargeError:
    hint = "lower max_tokens, or raise max_answer_bytes if such answers are meant"
    return _TooLargeError(f"the answer has more than max_answer_bytes={limit}; {hint}")


async def _bounded(limit: int, response: Any) -> None:  # noqa: ANN401 - of the client's own transport
    """Lets no more of a body in than the limit; called when an answer's headers have come.

    Raises:
      _TooLargeError: it is announced as larger, or compressed in a way that cannot be unpacked piece by piece here.
    """
    # No compression is asked for, but gateways exist that compress all the same.
    encoding = response.headers.pop("content-encoding", "")  # gone, or the client would unpack without a limit
    named = [name for name in (part.strip().lower() for part in encoding.split(",")) if name not in _NO_PACKING]
    packing = _PACKINGS.get(named[0]) if len(named) == 1 else None
    if named and packing is None:
        raise _TooLargeError(
            f"the answer is compressed ({encoding[:40]}), which was not asked for; turn that off there, or use gzip"
        )
    announced = response.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    response.stream = _counted(type(response).__module__.partition(".")[0])(response.stream, limit, packing)


def _unused(_: list[ChatMessage]) -> str:
    raise AssertionError("an endpoint answers in its event loop")


class Endpoint(Remote):
    """A chat endpoint as a player; sits wherever a `Remote` does, and is safe to share between threads.

    Use it in a ``with`` statement or call `close`, which ends its thread.

    Attributes:
      name: used in error messages.
      config: as given.
    """

    def __init__(self, config: EndpointConfig, *, name: str | None = None, random_seed: int = 0) -> None:
        """Reads the key and opens the cache; nothing is sent before the first call.

        Args:
          config: where the endpoint is and how it is asked.
          name: used in error messages; by default the model's.
          random_seed: of the waiting times between attempts; no reply depends on it.

        Raises:
          ConfigError: the environment variable holds no key, or one that a value of `config` repeats; or the cache
            folder cannot be made.
        """
        # The time limit is enforced in the event loop, where calls end by themselves.
        super().__init__(_unused, name=name or config.model, concurrency=config.concurrency, timeout=None)
        self.config = config
        self._key = Secret.read(config.key_variable)
        shown = [name for name in ("base_url", "model", "extra_body") if self._key.is_in(str(getattr(config, name)))]
        if shown:  # they are written to run folders
            hint = "a key belongs nowhere but into its environment variable"
            raise ConfigError([f"endpoint.{name}: repeats the key in {config.key_variable}; {hint}" for name in shown])
        url = urllib.parse.urlsplit(config.base_url)  # two spellings of a host share their replies
        self._url = url._replace(netloc=url.netloc.lower()).geturl().rstrip("/")
        try:
            self._cache = None if config.cache is None else ReplyCache(config.cache)
        except OSError as error:
            raise ConfigError([f"endpoint.cache={config.cache!r}: {error.strerror or error}"]) from error
        self._spending = Spending(
            self.name,
            input_price=config.input_price,
            output_price=config.output_price,
            budget_money=config.budget_money,
            budget_tokens=config.budget_tokens,
        )
        self._random = random.Random(random_seed)
        self._trials: collections.Counter[str] = collections.Counter()
        self._under_way: dict[str, list[Call]] = {}  # request -> further calls that wait for its reply
        self._resume_at = 0.0  # time of the event loop before which no request is made
        self._client_thread: _ClientThread | None = None
        self._stop: weakref.finalize[..., Endpoint] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r}, {self._url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends calls with an error, and the thread; further calls are refused. May be called twice.

        Requests that are with the server have 5 seconds to bring their reply, which is then counted and cached.
        """
        with self._changed:
            self._closed = True
            stop = self._stop
        if stop is not None:
            stop()  # does nothing the second time

    def report(self) -> dict[str, Any]:
        """Returns counts and money so far, ready for the JSON of a run folder.

        ``calls`` = ``replies`` (from the server) + ``cache_hits`` + ``failures`` + those under way. ``requests`` are
        attempts, ``retries`` those after a failed one, ``time_limits`` those given up, whose tokens nobody knows.
        ``input_tokens`` and ``output_tokens`` are the server's counts, except in ``estimated_replies`` replies.
        """
        return {"name": self.name, "base_url": self._url, "model": self.config.model, **self._spending.report()}

    def answer(self, messages: Sequence[ChatMessage], *, trial: int | None = None) -> str:
        """Returns the reply to a chat and waits for it; see `ask`.

        Raises:
          PlayerError: there is none.
        """
        return self.ask(messages, trial=trial).result()

    def ask(self, messages: Sequence[ChatMessage], *, trial: int | None = None) -> Call:
        """Starts a call, or queues it if `concurrency` requests are under way; returns at once.

        Args:
          messages: the chat so far; the last message is the one to answer.
          trial: which of several samples of this chat; each has its own place in the cache. None: 0 at temperature
            0, otherwise how often this object was asked this very chat before.

        Raises:
          PlayerError: the endpoint is closed, or its thread cannot begin.
        """
        call = Call(self, [ChatMessage(role=m["role"], content=m["content"]) for m in messages])
        with self._changed:
            if self._closed:
                raise PlayerError(f"{self.name}: the endpoint is closed; make a new one")
            self._spending.count(calls=1)
            body = self._body(call.messages)
            if trial is None:
                trial = self._next_trial(body)
            if body.get("seed") is not None:
                body["seed"] += trial
            key = None if self._cache is None else request_key(self._url, body, trial)
            if key is None or not self._known(call, key):
                try:
                    self._start(call, body, key)
                except Exception:
                    self._spending.count(failures=1)
                    raise
        return call

    # ---- under the lock -------------------------------------------------------------------------------------------

    def _body(self, messages: list[ChatMessage]) -> dict[str, Any]:
        config = self.config
        reals = {"temperature": config.temperature, "top_p": config.top_p}
        wholes = {"max_tokens": config.max_tokens, "seed": config.seed}
        # 0 and 0.0 are one temperature, but two JSON texts and so two keys of the cache.
        sent: dict[str, Any] = {name: float(value) for name, value in reals.items() if value is not None}
        sent |= {name: value for name, value in wholes.items() if value is not None}
        return {**sent, **config.extra_body, "model": config.model, "messages": [dict(m) for m in messages]}

    def _next_trial(self, body: Mapping[str, Any]) -> int:
        if self.config.temperature == 0 or (self._cache is None and self.config.seed is None):
            return 0  # in the second case nothing depends on it, and there is nothing to remember
        request = request_key("", body, 0)
        self._trials[request] += 1
        return self._trials[request] - 1

    def _known(self, call: Call, key: str) -> bool:
        """Answers a call from the cache, or lets it wait for the same request under way."""
        assert self._cache is not None  # noqa: S101 - there is a key only with a cache
        if key in self._under_way:
            self._under_way[key].append(call)
            return True
        found = self._cache.get(key)
        if found is None:
            return False
        call.text = found.text
        self._spending.count(cache_hits=1)
        self._changed.notify_all()
        return True

    def _start(self, call: Call, body: dict[str, Any], key: str | None) -> None:
        if self._client_thread is None:
            try:
                client = self._client()
            except OSError as error:  # certificates cannot be read, or no file descriptor is left to read them with
                raise EndpointError(f"{self.name}: the client cannot be made: {error}") from error
            self._client_thread = _ClientThread(client, self._key, self.config.concurrency, self.name)
            self._stop = weakref.finalize(self, self._client_thread.stop)
        if key is not None:
            self._under_way[key] = []
        future = asyncio.run_coroutine_threadsafe(
            self._converse(self._client_thread, call, body, key), self._client_thread.loop
        )
        future.add_done_callback(functools.partial(self._settle, call, key))

    def _client(self) -> openai.AsyncOpenAI:
        host = urllib.parse.urlsplit(self._url).hostname or ""
        http_client = openai.DefaultAsyncHttpxClient(
            follow_redirects=False,  # a redirected POST may turn into a GET; the error names the new address
            timeout=None,
            trust_env=not is_loopback(host),  # no proxy reaches this machine's own addresses
            headers={"Accept-Encoding": "identity"},
            event_hooks={
                "request": [functools.partial(_only_own_headers, self._key)],
                "response": [functools.partial(_bounded, self.config.max_answer_bytes)],
            },
        )
        return openai.AsyncOpenAI(
            api_key=self._key.value or "none", base_url=self._url, max_retries=0, timeout=None, http_client=http_client
        )

    # ---- in the event loop ----------------------------------------------------------------------------------------

    def _settle(self, call: Call, key: str | None, future: "concurrent.futures.Future[str]") -> None:
        """Ends a call, and those that asked the same meanwhile."""
        with self._changed:
            followers = [] if key is None else self._under_way.pop(key)
            error = None if future.cancelled() else future.exception()
            if future.cancelled():
                error = self._closed_error()
            elif error is not None and not isinstance(error, PlayerError):
                kind = type(error).__name__
                error = EndpointError(self._key.redact(f"{self.name} at {self._url}: {kind}: {error}"))
            if error is None:
                self._spending.count(replies=1, cache_hits=len(followers))
            else:
                self._spending.count(failures=1 + len(followers))
            for settled in [call, *followers]:
                settled.error = error
                settled.text = future.result() if error is None else None
            self._changed.notify_all()

    def _closed_error(self) -> PlayerError:
        return PlayerError(f"{self.name}: the endpoint was closed before the reply came")

    async def _converse(self, client_thread: _ClientThread, call: Call, body: dict[str, Any], key: str | None) -> str:
        """Makes attempts until one of them gives a reply, which is returned."""
        for attempt in itertools.count(1):
            call.attempt = attempt
            found = await self._attempt(client_thread, body)
            if isinstance(found, ChatReply):
                break
            found = dataclasses.replace(found, text=self._key.redact(found.text))
            if found.usage is not None:
                self._spending.charge(found.usage)
            if not found.retryable or attempt > self.config.retries:
                tries = f" ({attempt} attempts)" if attempt > 1 else ""
                raise EndpointError(f"{self.name} at {self._url}: {found.text}{tries}")
            if client_thread.closing:
                raise self._closed_error()
            self._spending.count(retries=1)
            longest = min(self.config.backoff * 2.0 ** (attempt - 1), _LONGEST_BACKOFF)
            await asyncio.sleep(longest * self._random.uniform(0.5, 1.0))
        text = self._key.redact_reply(found.text)
        usage = found.usage or estimated_usage(call.messages, text)
        self._spending.charge(usage)
        if key is not None:
            self._store(key, CachedReply(text, usage.input_tokens, usage.output_tokens))
        return text

    def _store(self, key: str, reply: CachedReply) -> None:
        assert self._cache is not None  # noqa: S101 - there is a key only with a cache
        try:
            self._cache.put(key, reply)
        except OSError as error:  # the reply is paid for and can be played
            self._spending.count(cache_write_failures=1)
            _LOG.warning("%s: cannot write a reply to the cache %s: %s", self.name, self.config.cache, error)

    async def _turn(self, client_thread: _ClientThread) -> None:
        """Takes one of the slots when one is free and no pause is on."""
        while True:
            await client_thread.slots.acquire()
            delay = self._resume_at - client_thread.loop.time()
            if delay <= 0:
                return
            client_thread.slots.release()
            await asyncio.sleep(delay + self._random.uniform(0.0, min(self.config.backoff, delay) / 2.0))

    async def _attempt(self, client_thread: _ClientThread, body: dict[str, Any]) -> ChatReply | AttemptFailure:
        await self._turn(client_thread)
        client_thread.sent.add(asyncio.current_task())
        try:
            self._spending.check()
            self._spending.count(requests=1)
            try:
                async with asyncio.timeout(self.config.timeout):
                    content = await self._request(client_thread.client, body)
            except TimeoutError:
                self._spending.count(time_limits=1)
                return AttemptFailure(
                    f"no reply within {self.config.timeout:g} seconds; raise timeout, or lower concurrency"
                )
            except openai.APIStatusError as error:
                response = error.response
                status, headers, refused = response.status_code, dict(response.headers), response.content
            except _TooLargeError as error:
                return AttemptFailure(str(error), retryable=False)
            except openai.APIConnectionError as error:
                cause = error.__cause__
                if isinstance(cause, _TooLargeError):  # raised while the client read the body
                    return AttemptFailure(str(cause), retryable=False)
                why = f"{type(cause).__name__}: {cause}" if cause is not None else str(error)
                return AttemptFailure(f"the connection failed: {why or 'no explanation'}; does the server run there?")
            else:
                return chat_response.read_reply(content)
            return await self._refused(client_thread, status, headers, refused)
        finally:
            client_thread.sent.discard(asyncio.current_task())
            client_thread.slots.release()

    async def _request(self, client: openai.AsyncOpenAI, body: dict[str, Any]) -> bytes:
        # Everything but the chat goes into extra_body, so that what is sent is what the cache's key is made of.
        further = {name: value for name, value in body.items() if name not in ("model", "messages")}
        response = await client.chat.completions.with_raw_response.create(
            model=body["model"],
            messages=cast("Any", body["messages"]),
            extra_body=further,
        )
        return response.http_response.content

    async def _refused(
        self, client_thread: _ClientThread, status: int, headers: Mapping[str, str], content: bytes
    ) -> AttemptFailure:
        """Returns what an error status means and what to do about it; starts a pause if the server asks for one."""
        error_message, code = chat_response.read_error(content)
        known = f"status {status}: {error_message}"
        if status >= 500 or (status in _PASSING and code != "insufficient_quota"):
            pause = chat_response.read_pause(headers, limited=status == 429)
            if pause > self.config.longest_pause:
                hint = f"longer than longest_pause={self.config.longest_pause:g}"
                return AttemptFailure(
                    f"the server asks to wait for {pause:g} seconds, {hint} ({known})", retryable=False
                )
            self._pause(client_thread, pause)
            return AttemptFailure(f"the server failed or was too busy; lower concurrency or raise retries ({known})")
        what = await self._not_found(client_thread) if status == 404 else self._objection(status, headers)
        return AttemptFailure(f"{what} ({known})", retryable=False)

    def _objection(self, status: int, headers: Mapping[str, str]) -> str:
        """Returns what is wrong with calls that the server will never answer, and the fix."""
        variable, model = self.config.key_variable, self.config.model
        whose = f"the key in {variable}" if variable else "a call without a key"
        if status == 401:
            hint = f"put a valid one into {variable}" if variable else "name its environment variable in key_variable"
            return f"the server refused {whose}; {hint}"
        if status == 403:
            return f"{whose} may not use the model {model!r} here; ask its owner, or set model or key_variable"
        if status in (402, 429):
            return f"the account behind {whose} has nothing left; pay for more, or use another key"
        if status < 400:
            return f"the server sends calls on to {headers.get('location', 'an unnamed address')}; set base_url to that"
        hint = "check max_tokens, temperature, top_p, seed, extra_body and the length of the chat against the model"
        return f"the server does not take the request; {hint}"

    def _pause(self, client_thread: _ClientThread, seconds: float) -> None:
        """Lets no request begin for so long, whichever call it is of."""
        begin, until = max(self._resume_at, client_thread.loop.time()), client_thread.loop.time() + seconds
        if seconds > 0 and until > begin:
            self._resume_at = until
            self._spending.count(paused_seconds=until - begin)
            _LOG.warning("%s: the server asks to wait for %g seconds", self.name, seconds)

    async def _not_found(self, client_thread: _ClientThread) -> str:
        """Returns what status 404 means: another model is served, or another address."""
        names: list[str] = []
        try:
            async with asyncio.timeout(min(_LIST_LIMIT, self.config.timeout)):
                response = await client_thread.client.models.with_raw_response.list()
            names = chat_response.model_names(response.http_response.content)
        except (TimeoutError, openai.OpenAIError):
            names = []  # the list is a help, not the matter
        if self.config.model in names:
            return "the server lists the model but does not find it or the address"
        if names:
            served = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            return f"the server has no model {self.config.model!r}; set model to one of: {served}"
        return (
            f"the server has no model {self.config.model!r}, or {self._url}/chat/completions is not where it takes "
            "calls; base_url usually ends in /v1"
        )
