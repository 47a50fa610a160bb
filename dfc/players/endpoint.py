"""A player that is a chat endpoint: any server with OpenAI's chat completions, such as vLLM, llama.cpp or a vendor's.

Calls run in one event loop in a thread of its own, where a time limit or the end of the endpoint ends them at any
moment; a thread that waits for a server could not be ended so. The HTTP client is that of `openai`. Its retries are not
used: limits, pauses, budget and counts have to hold for all attempts of an endpoint together, and answers without a
text are tried again, too. Neither are its time limits, which are for one read: a server that sends a byte now and then
would never reach one.

The key is read from an environment variable and is sent only in the header of requests. Errors are made new from
redacted text instead of chained: those of the client carry the request.
"""

import asyncio
import collections
import dataclasses
import json
import logging
import random
import threading
import time
import urllib.parse
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dfc.config import EndpointConfig
from dfc.errors import ConfigError
from dfc.players import chat_response
from dfc.players.chat_response import AnswerTooLargeError, AttemptFailure, ChatReply
from dfc.players.endpoint_config import check, is_loopback
from dfc.players.key_search import Secret
from dfc.players.remote import ChatMessage, PlayerError, Remote, RequestRefusedError, copy_chat
from dfc.players.reply_cache import CachedReply, ReplyCache, request_key
from dfc.players.usage import Spending, estimated_usage

if TYPE_CHECKING:
    import openai

__all__ = ["Endpoint", "EndpointConfig", "EndpointError"]

_LOG = logging.getLogger(__name__)
_PASSING = (408, 409, 425, 429)  # below 500, the statuses that may be over a little later
_OF_REQUEST = (400, 413, 422)  # those about the contents of a request, and not about its sender or address
_LONGEST_BACKOFF = 60.0
_LIST_LIMIT = 5.0  # seconds for the list of models in an error message
_LAST_REPLIES = 5.0  # seconds that `close` leaves to requests under way: their replies are paid for


class EndpointError(PlayerError):
    """A chat endpoint gave no reply; says what came and what to do."""


class EndpointRefusedError(EndpointError, RequestRefusedError):
    """A chat endpoint gave no reply for what this request holds."""


class _ClientThread:
    """The thread with the event loop and the client; refers to no endpoint, so that a forgotten one ends it.

    Raises:
      OSError: there is no file descriptor left for the loop.
    """

    def __init__(self, client: "openai.DefaultAsyncHttpxClient", key: Secret, name: str) -> None:
        self.client = client
        self.sent: set[asyncio.Task[Any] | None] = set()  # calls whose request is with the server
        self.closing = asyncio.Event()
        self._key = key
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name=f"dfc-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._key.kept_from_logs(), self._runner:
            self._runner.run(self._main())

    async def _main(self) -> None:
        async with self.client:
            await self.closing.wait()
            await asyncio.sleep(0)  # a call made just before begins, so that it can count how it ends
            calls = asyncio.all_tasks() - {asyncio.current_task()}
            for call in calls - self.sent:
                call.cancel()
            if sent := calls & self.sent:
                await asyncio.wait(sent, timeout=_LAST_REPLIES)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    def stop(self) -> None:
        """Ends calls under way, the client, the loop and the thread; called once."""
        self.loop.call_soon_threadsafe(self.closing.set)
        if threading.current_thread() is not self._thread:  # the last reference may be a call's
            self._thread.join(timeout=_LAST_REPLIES + 5.0)


class Endpoint(Remote):
    """A chat endpoint as a player.

    Use it in a ``with`` statement or call `close`, which ends its thread.

    Attributes:
      name: used in error messages.
      config: how it is asked.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        config: EndpointConfig | None = None,
        *,
        name: str | None = None,
        random_seed: int = 0,
    ) -> None:
        """Reads the key and opens the cache; nothing is sent before the first call.

        Args:
          base_url: up to and without ``/chat/completions``, such as ``http://localhost:8000/v1``.
          model: the name the server knows it by.
          config: how the endpoint is asked; None: as the defaults say, without a key.
          name: used in error messages; by default the model's.
          random_seed: of the waiting times between attempts; no reply depends on it.

        Raises:
          ConfigError: a value is invalid; the environment variable holds no key, or one that another value repeats;
            or the cache folder cannot be made.
        """
        import openai  # noqa: PLC0415 - takes a second, and most runs ask no endpoint

        self._make_client = openai.DefaultAsyncHttpxClient
        config = EndpointConfig() if config is None else config
        check(base_url, model, config)
        self.name = name or model
        self.config = config
        self._model = model
        self._key = Secret.read(config.key_variable)
        # What is shown in error messages and run folders.
        texts = {"base_url": base_url, "model": model, "extra_body": str(config.extra_body)}
        repeating = [field for field, text in texts.items() if self._key.is_in(text)]
        if repeating:
            hint = f"repeats the key in {config.key_variable}; a key belongs only into its environment variable"
            raise ConfigError([f"endpoint.{field}: {hint}" for field in repeating])
        url = urllib.parse.urlsplit(base_url)  # two spellings of a host share their replies
        self._url = url._replace(netloc=url.netloc.lower()).geturl().rstrip("/")
        try:
            self._cache = ReplyCache(config.cache) if config.cache else None
        except OSError as error:
            raise ConfigError([f"endpoint.cache={config.cache!r}: {error.strerror or error}"]) from error
        self._spending = Spending(self.name, config)
        self._random = random.Random(random_seed)
        self._slots = asyncio.Semaphore(config.concurrency)  # of the event loop, as is the next
        self._resume_at = 0.0  # time of the monotonic clock before which no request is made
        self._lock = threading.Lock()  # guards everything below
        self._trials: collections.Counter[str] = collections.Counter()
        self._under_way: dict[str, Future[str]] = {}  # by request, where there is a cache
        self._followers: collections.Counter[str] = collections.Counter()  # further calls that wait for the same reply
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
        with self._lock:
            self._closed = True
            stop = self._stop
        if stop is not None:
            stop()  # does nothing the second time

    def report(self) -> dict[str, Any]:
        """Returns counts and money so far, ready for the JSON of a run folder.

        ``calls`` = ``replies`` (from the server) + ``cache_hits`` + ``failures`` + those under way. ``requests`` are
        attempts, ``retries`` those after a failed one, ``time_limits`` those given up, whose tokens are unknown.
        ``input_tokens`` and ``output_tokens`` are the server's counts, except in ``estimated_replies`` replies.
        """
        return {"name": self.name, "base_url": self._url, "model": self._model, **self._spending.report()}

    def answer(self, messages: Sequence[ChatMessage], *, trial: int | None = None) -> str:
        """Returns the reply to a chat and waits for it; see `ask`.

        Raises:
          PlayerError: there is none.
        """
        return self.ask(messages, trial=trial).result()

    def ask(self, messages: Sequence[ChatMessage], *, trial: int | None = None) -> "Future[str]":
        """Starts a call, or queues it if `concurrency` requests are under way; returns at once.

        Args:
          messages: the chat so far; the last message is the one to answer.
          trial: which of several samples of this chat; each has its own place in the cache. None: 0 at temperature
            0, otherwise how often this object was asked this very chat before.

        Returns:
          The reply under way. With a cache, callers with the same request meanwhile get the same object: cancelling it
          ends it for all of them.

        Raises:
          PlayerError: the endpoint is closed, or its thread cannot begin.
        """
        with self._lock:
            if self._closed:
                raise PlayerError(f"{self.name}: the endpoint is closed; make a new one")
            self._spending.count(calls=1)
            body = self._body(messages)
            if trial is None:
                trial = self._next_trial(body)
            if body.get("seed") is not None:
                body["seed"] += trial
            key = None if self._cache is None else request_key(self._url, body, trial)
            known = None if key is None else self._under_way.get(key)
            if key is not None and known is not None and not known.cancelled():
                self._followers[key] += 1
                return known
            found = None if key is None or self._cache is None else self._cache.get(key)
            if found is not None:
                self._spending.count(cache_hits=1)
                call: Future[str] = Future()
                call.set_result(found.text)
                return call
            try:
                thread = self._started()
            except OSError as error:
                self._spending.count(failures=1)
                raise EndpointError(f"{self.name}: the client or its event loop cannot be made: {error}") from error
            call = asyncio.run_coroutine_threadsafe(self._counted_reply(thread, body, key), thread.loop)
            if key is not None:
                self._under_way[key] = call
            return call

    # ---- under the lock -------------------------------------------------------------------------------------------

    def _body(self, messages: Sequence[ChatMessage]) -> dict[str, Any]:
        config = self.config
        reals = {"temperature": config.temperature, "top_p": config.top_p}
        wholes = {"max_tokens": config.max_tokens, "seed": config.seed}
        # 0 and 0.0 are one temperature, but two JSON texts and so two keys of the cache.
        sent: dict[str, Any] = {name: float(value) for name, value in reals.items() if value is not None}
        sent |= {name: value for name, value in wholes.items() if value is not None}
        return {**sent, **config.extra_body, "model": self._model, "messages": copy_chat(messages)}

    def _next_trial(self, body: Mapping[str, Any]) -> int:
        if self.config.temperature == 0 or (self._cache is None and self.config.seed is None):
            return 0  # in the second case nothing depends on it, and there is nothing to remember
        request = request_key("", body, 0)
        self._trials[request] += 1
        return self._trials[request] - 1

    def _started(self) -> _ClientThread:
        """Returns the thread, begun by the first call; OSError: unreadable certificates, or no file descriptor left."""
        if self._client_thread is None:
            headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}
            if self._key.value:
                headers["Authorization"] = f"Bearer {self._key.value}"
            client = self._make_client(
                follow_redirects=False,  # a redirected POST may turn into a GET; the error names the new address
                timeout=None,
                trust_env=not is_loopback(urllib.parse.urlsplit(self._url).hostname or ""),  # its proxies reach others
                headers=headers,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # requests depend on no earlier answer
            )
            self._client_thread = _ClientThread(client, self._key, self.name)
            self._stop = weakref.finalize(self, self._client_thread.stop)
        return self._client_thread

    # ---- in the event loop ----------------------------------------------------------------------------------------

    async def _counted_reply(self, thread: _ClientThread, body: dict[str, Any], key: str | None) -> str:
        """Returns the reply and counts it for all who wait for it; so it does with the error that it raises."""
        outcome: str | PlayerError
        try:
            outcome = await self._reply(thread, body, key)
        except asyncio.CancelledError:
            outcome = self._closed_error()
        except PlayerError as error:
            outcome = error
        except Exception as error:  # noqa: BLE001 - whatever it is ends this call only, and may hold the key
            text = f"{self.name} at {self._url}: {type(error).__name__}: {error}"
            outcome = EndpointError(self._key.redact(text))
        with self._lock:
            followers = 0 if key is None else self._followers.pop(key, 0)
            if key is not None:
                self._under_way.pop(key, None)
        if isinstance(outcome, str):
            self._spending.count(replies=1, cache_hits=followers)
            return outcome
        self._spending.count(failures=1 + followers)
        raise outcome

    def _closed_error(self) -> PlayerError:
        return PlayerError(f"{self.name}: the endpoint was closed before the reply came")

    async def _reply(self, thread: _ClientThread, body: dict[str, Any], key: str | None) -> str:
        """Makes attempts until one of them gives a reply, which is returned."""
        content = json.dumps(body, ensure_ascii=False).encode()
        attempt = 1
        while True:
            found = await self._attempt(thread, content)
            if isinstance(found, ChatReply):
                break
            found = dataclasses.replace(found, text=self._key.redact(found.text))
            if found.usage is not None:
                self._spending.charge(found.usage)
            if not found.retryable or attempt > self.config.retries:
                tries = f" ({attempt} attempts)" if attempt > 1 else ""
                kind = EndpointRefusedError if found.of_request else EndpointError
                raise kind(f"{self.name} at {self._url}: {found.text}{tries}")
            if thread.closing.is_set():
                raise self._closed_error()
            self._spending.count(retries=1)
            longest = min(self.config.backoff * 2.0 ** (attempt - 1), _LONGEST_BACKOFF)
            await asyncio.sleep(longest * self._random.uniform(0.5, 1.0))
            attempt += 1
        text = self._key.redact_reply(found.text)
        usage = found.usage or estimated_usage(body["messages"], text)
        self._spending.charge(usage)
        if self._cache is not None and key is not None:
            try:
                self._cache.put(key, CachedReply(text, usage.input_tokens, usage.output_tokens))
            except OSError as error:  # the reply is paid for and can be played
                self._spending.count(cache_write_failures=1)
                _LOG.warning("%s: cannot write a reply to the cache %s: %s", self.name, self.config.cache, error)
        return text

    async def _attempt(self, thread: _ClientThread, content: bytes) -> ChatReply | AttemptFailure:
        async with self._slots:
            while (delay := self._resume_at - time.monotonic()) > 0:  # noqa: ASYNC110 - a pause may become longer
                await asyncio.sleep(delay + self._random.uniform(0.0, min(self.config.backoff, delay) / 2.0))
            thread.sent.add(asyncio.current_task())
            try:
                self._spending.check()
                self._spending.count(requests=1)
                return await self._exchange(thread, content)
            finally:
                thread.sent.discard(asyncio.current_task())

    async def _exchange(self, thread: _ClientThread, content: bytes) -> ChatReply | AttemptFailure:
        try:
            async with asyncio.timeout(self.config.timeout):
                status, headers, answer = await self._request(thread, "POST", "chat/completions", content)
        except TimeoutError:
            self._spending.count(time_limits=1)
            return AttemptFailure(
                f"no reply within {self.config.timeout:g} seconds; raise timeout, or lower concurrency"
            )
        except AnswerTooLargeError as error:
            return AttemptFailure(str(error), retryable=False, of_request=True)
        except Exception as error:  # noqa: BLE001 - the client's own; their library differs between versions of openai
            why = f"{type(error).__name__}: {error}"
            return AttemptFailure(f"the connection failed: {why}; does the server run there?")
        if 200 <= status < 300:
            return chat_response.read_reply(answer)
        return await self._refused(thread, status, headers, answer)

    async def _request(
        self, thread: _ClientThread, method: str, path: str, content: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Returns status, headers (names in small letters) and body of an answer."""
        async with thread.client.stream(method, f"{self._url}/{path}", content=content) as response:
            limit = self.config.max_answer_bytes
            answer = await chat_response.read_body(response.aiter_raw(), response.headers, limit)
        return response.status_code, dict(response.headers), answer

    async def _refused(
        self, thread: _ClientThread, status: int, headers: Mapping[str, str], content: bytes
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
            self._pause(pause)
            return AttemptFailure(f"the server failed or was too busy; lower concurrency or raise retries ({known})")
        what = await self._not_found(thread) if status == 404 else self._objection(status, headers)
        return AttemptFailure(f"{what} ({known})", retryable=False, of_request=status in _OF_REQUEST)

    def _objection(self, status: int, headers: Mapping[str, str]) -> str:
        """Returns what is wrong with calls that the server will never answer, and the fix."""
        variable, model = self.config.key_variable, self._model
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

    def _pause(self, seconds: float) -> None:
        """Delays all requests for so long, whichever call they are of."""
        now = time.monotonic()
        begin, until = max(self._resume_at, now), now + seconds
        if until > begin:
            self._resume_at = until
            self._spending.count(paused_seconds=until - begin)
            _LOG.warning("%s: the server asks to wait for %g seconds", self.name, seconds)

    async def _not_found(self, thread: _ClientThread) -> str:
        """Returns what status 404 means: another model is served, or another address."""
        names: list[str] = []
        try:
            async with asyncio.timeout(min(_LIST_LIMIT, self.config.timeout)):
                names = chat_response.model_names((await self._request(thread, "GET", "models"))[2])
        except Exception:  # noqa: BLE001 - the list only helps the message
            names = []
        if self._model in names:
            return "the server lists the model but does not find it or the address"
        if names:
            served = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            return f"the server has no model {self._model!r}; set model to one of: {served}"
        return (
            f"the server has no model {self._model!r}, or {self._url}/chat/completions is not where it takes "
            "calls; base_url usually ends in /v1"
        )
