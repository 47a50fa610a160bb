"""Players that take their time: they are asked with a chat and reply later, so that other games advance meanwhile.

A reply under way is a `concurrent.futures.Future`; several of them, of any players, are waited for with
`concurrent.futures.wait`.
"""

import abc
import collections
import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TypedDict

from dfc.errors import DfcError, error_text
from dfc.players import key_search


class ChatMessage(TypedDict):
    """One message of a chat; the role is ``system``, ``user`` (what the game shows) or ``assistant`` (the player)."""

    role: str
    content: str


ChatFunction = Callable[[list[ChatMessage]], str]


class PlayerError(DfcError):
    """A player outside the engine gave no reply that can be played."""


class RequestRefusedError(PlayerError):
    """A player outside the engine replies to other requests, but never to this one, however often it is asked."""


class Remote(abc.ABC):
    """A player outside the engine that is asked with a chat; safe to share between threads.

    Attributes:
      name: used in error messages.
    """

    name: str

    @abc.abstractmethod
    def ask(self, messages: Sequence[ChatMessage]) -> "Future[str]":
        """Starts a call, or queues it where too many run; returns at once. The chat's last message is the game's.

        Returns:
          The reply under way; its ``result()`` waits for it, and raises PlayerError where there is none.
        """

    def close(self) -> None:  # noqa: B027 - not every player keeps something open
        """Ends what the player keeps open, such as connections."""


class FunctionPlayer(Remote):
    """Makes a player of any blocking function of a chat, with time limit and retries.

    A function that hangs cannot be stopped from outside. Its thread is given up: what it still returns is dropped, and
    another thread takes its place, so that one dead connection costs one time limit and no more. Where more hang than
    may run at once, calls are refused: the function never runs in more than twice as many threads.

    The threads are our own daemon threads: Python waits at its end for those of a `ThreadPoolExecutor`, and so for
    whatever hangs in them.
    """

    def __init__(
        self,
        function: ChatFunction,
        *,
        name: str = "remote",
        concurrency: int = 16,
        timeout: float | None = 60.0,
        retries: int = 2,
        backoff: float = 1.0,
        retry_on: tuple[type[Exception], ...] = (Exception,),
    ) -> None:
        """Sets the limits; threads start when they are needed and end when nothing waits.

        Args:
          function: called with the chat so far, whose last message is the game's; returns the reply. It runs in
            several threads at once and gets a list of its own.
          name: used in error messages.
          concurrency: calls at once, those that pause before a retry included.
          timeout: seconds one attempt may take; None waits for ever (a person).
          retries: attempts after the first one.
          backoff: seconds before the first retry, doubled for each further one.
          retry_on: errors worth another attempt, as is a time limit that ran out; any other one ends the call with a
            PlayerError whose cause it is.

        Raises:
          ValueError: a limit is invalid.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency must be 1 or more, got {concurrency}")
        if timeout is not None and timeout <= 0:
            raise ValueError(f"timeout must be a positive number of seconds or None, got {timeout}")
        if retries < 0 or backoff < 0:
            raise ValueError(f"retries and backoff must be 0 or more, got {retries} and {backoff}")
        self.name = name
        self._function = function
        self._concurrency = concurrency
        self._timeout = timeout
        self._retries = retries
        self._backoff = backoff
        self._retry_on = retry_on
        self._lock = threading.Lock()  # guards everything below
        self._queue: collections.deque[tuple[Future[str], list[ChatMessage]]] = collections.deque()
        self._workers = 0
        self._hanging = 0  # threads given up that have not come back

    def ask(self, messages: Sequence[ChatMessage]) -> "Future[str]":
        """Starts a call, or queues it if `concurrency` calls run; returns at once."""
        call: Future[str] = Future()
        with self._lock:
            self._queue.append((call, copy_chat(messages)))
            if self._workers < self._concurrency:
                self._workers += 1
                self._start_thread(self._work)
        return call

    def _start_thread(self, target: Callable[..., None], *args: object) -> None:
        threading.Thread(target=target, args=args, name=f"dfc-{self.name}", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._workers -= 1
                    return
                call, chat = self._queue.popleft()
            if call.set_running_or_notify_cancel():
                _settle(call, self._reply, chat)

    def _reply(self, chat: list[ChatMessage]) -> str:
        attempt = 1
        while True:
            self._refuse_if_too_many_hang()
            try:
                text = self._attempt(chat)
            except Exception as error:
                if attempt > self._retries or not isinstance(error, (TimeoutError, *self._retry_on)):
                    tries = f"after {attempt} attempts" if attempt > 1 else "at the first attempt"
                    told = key_search.redacted_by_environment(f"{type(error).__name__}: {error_text(error)}")
                    raise PlayerError(f"{self.name} failed {tries}: {told}") from error
            else:
                if isinstance(text, str):
                    return text
                raise PlayerError(f"{self.name} must return its reply as str, got {type(text).__name__}")
            time.sleep(self._backoff * 2.0 ** (attempt - 1))
            attempt += 1

    def _attempt(self, chat: list[ChatMessage]) -> object:
        """Returns what the function returns for a copy of the chat: a function that changes its list sees it whole."""
        if self._timeout is None:
            return self._function(copy_chat(chat))
        returned: Future[object] = Future()
        self._start_thread(_settle, returned, self._function, copy_chat(chat))
        concurrent.futures.wait([returned], self._timeout)
        if returned.done():
            return returned.result()
        with self._lock:
            self._hanging += 1
        returned.add_done_callback(self._came_back)
        raise TimeoutError(f"no reply within {self._timeout:g} seconds")

    def _came_back(self, _: "Future[object]") -> None:
        with self._lock:
            self._hanging -= 1

    def _refuse_if_too_many_hang(self) -> None:
        hanging = self._hanging
        if self._timeout is not None and hanging > self._concurrency:
            raise PlayerError(
                f"{self.name}: {hanging} calls hang past their time limit of {self._timeout:g} seconds, more than the "
                f"{self._concurrency} that may run at once; none is made until one of them returns. Check that it "
                "still answers, or raise timeout"
            )


def copy_chat(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Returns a chat that stays unchanged if the given one changes."""
    return [ChatMessage(role=message["role"], content=message["content"]) for message in messages]


def _settle(call: "Future[str]", function: Callable[[list[ChatMessage]], str], chat: list[ChatMessage]) -> None:
    """Sets what a function returns or raises."""
    try:
        text = function(chat)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it must reach the caller's thread
        call.set_exception(error)
    else:
        call.set_result(text)
