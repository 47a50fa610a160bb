"""Players that take their time: any blocking function of a chat, called beside the games, with time limit and retries.

A function that hangs cannot be stopped from outside. Its thread is given up: what it still returns is dropped, and
another thread takes its place, so that one dead connection costs one time limit and no more. Where more hang than may
run at once, calls are refused: there are never more than twice as many threads.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypedDict

from dfc.errors import DfcError


class ChatMessage(TypedDict):
    """One message of a chat; the role is ``system``, ``user`` (what the game shows) or ``assistant`` (the player)."""

    role: str
    content: str


ChatFunction = Callable[[list[ChatMessage]], str]


class PlayerError(DfcError):
    """A player outside the engine gave no reply that can be played."""


class Call:
    """One reply under way; made by `Remote.ask`."""

    def __init__(self, remote: "Remote", messages: list[ChatMessage]) -> None:
        self.remote = remote
        self.messages = messages
        self.attempt = 1
        self.text: str | None = None
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether there is a reply or an error; asking also enforces the time limit."""
        return self.remote.settled(self)

    def result(self) -> str:
        """Returns the reply; waits for it if need be.

        Raises:
          PlayerError: every attempt failed, the function returned no text, or too many calls hang; the function's
            own error is its cause.
        """
        while not self.done:
            self.remote.wait([self])
        if self.text is not None:
            return self.text
        assert self.error is not None  # noqa: S101 - settled means one of both
        raise self.error


class Remote:
    """Wraps a blocking function of a chat as a player; safe to share between threads.

    Attributes:
      name: used in error messages.
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
          concurrency: calls at once.
          timeout: seconds one attempt may take; None waits for ever (a person).
          retries: attempts after the first one.
          backoff: seconds before the first retry, doubled for each further one.
          retry_on: errors worth another attempt, as is a time limit that ran out; any other one ends the call.

        Raises:
          ValueError: a limit makes no sense.
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
        self._changed = threading.Condition()  # guards everything below and every Call
        self._waiting: list[tuple[float, int, Call]] = []  # a heap: not before, order of arrival
        self._running: dict[Call, float] = {}  # since when, the longest first
        self._serial = itertools.count()
        self._threads = 0
        self._hanging = 0  # threads given up that have not come back

    def close(self) -> None:
        """Ends what the player keeps open: nothing here, connections elsewhere."""

    def ask(self, messages: Sequence[ChatMessage]) -> Call:
        """Starts a call, or queues it if `concurrency` calls run; returns at once."""
        call = Call(self, [ChatMessage(role=m["role"], content=m["content"]) for m in messages])
        with self._changed:
            self._enqueue(call, time.monotonic())
        return call

    def wait(self, calls: Sequence[Call], timeout: float | None = None) -> None:
        """Returns when one of the calls is settled, `timeout` seconds are over, or now and then for no reason."""
        with self._changed:
            self._enforce()
            if any(call.text is not None or call.error is not None for call in calls):
                return
            limits = [] if timeout is None else [timeout]
            if self._timeout is not None:
                oldest = next(iter(self._running.values()), None)
                limits.append(self._timeout if oldest is None else oldest + self._timeout - time.monotonic())
            self._changed.wait(max(0.0, min(limits)) if limits else None)

    def settled(self, call: Call) -> bool:
        """Whether a call has its reply or error; enforces the time limit of every call."""
        with self._changed:
            self._enforce()
            return call.text is not None or call.error is not None

    # ---- under the lock -------------------------------------------------------------------------------------------

    def _enqueue(self, call: Call, ready: float) -> None:
        if self._hanging > self._concurrency:
            self._refuse(call)
            return
        heapq.heappush(self._waiting, (ready, next(self._serial), call))
        self._start_thread()
        self._changed.notify_all()

    def _refuse(self, call: Call) -> None:
        call.error = PlayerError(
            f"{self.name}: {self._hanging} calls hang past their time limit of {self._timeout:g} seconds, more than "
            f"the {self._concurrency} that may run at once; none is made until one of them returns. Check that it "
            "still answers, or raise timeout"
        )

    def _start_thread(self) -> None:
        if self._waiting and self._threads < self._concurrency:
            self._threads += 1
            threading.Thread(target=self._work, name=f"dfc-{self.name}", daemon=True).start()

    def _enforce(self) -> None:
        """Takes calls whose time is up from the threads that hang; a thread ends when its function returns."""
        if self._timeout is None:
            return
        while self._running:
            call, began = next(iter(self._running.items()))
            if time.monotonic() - began <= self._timeout:
                return
            del self._running[call]
            self._hanging += 1
            self._threads -= 1
            self._failed(call, TimeoutError(f"no reply within {self._timeout:g} seconds"))
            if self._hanging <= self._concurrency:
                self._start_thread()
            elif not self._threads:
                for _, _, queued in self._waiting:
                    self._refuse(queued)
                self._waiting.clear()
            self._changed.notify_all()

    def _failed(self, call: Call, error: BaseException) -> None:
        """Notes a failed attempt: another one follows, or the call ends with an error."""
        attempts, call.attempt = call.attempt, call.attempt + 1
        if isinstance(error, (TimeoutError, *self._retry_on)) and attempts <= self._retries:
            self._enqueue(call, time.monotonic() + self._backoff * 2.0 ** (attempts - 1))
            return
        if not isinstance(error, Exception):  # KeyboardInterrupt and the like belong to whoever started the games
            call.error = error
            return
        tries = f"after {attempts} attempts" if attempts > 1 else "at the first attempt"
        call.error = PlayerError(f"{self.name} failed {tries}: {type(error).__name__}: {error}")
        call.error.__cause__ = error

    # ---- in a thread of its own -----------------------------------------------------------------------------------

    def _next(self) -> Call | None:
        """Returns the next call whose time has come; None ends the thread."""
        while self._waiting:
            delay = self._waiting[0][0] - time.monotonic()
            if delay <= 0:
                return heapq.heappop(self._waiting)[2]
            self._changed.wait(delay)
        return None

    def _work(self) -> None:
        while True:
            with self._changed:
                call = self._next()
                if call is None:
                    self._threads -= 1
                    return
                attempt = call.attempt
                self._running[call] = time.monotonic()
            text: object = None
            error: BaseException | None = None
            try:
                text = self._function([ChatMessage(role=m["role"], content=m["content"]) for m in call.messages])
            except BaseException as raised:  # noqa: BLE001 - whatever it is, the caller's thread has to hear of it
                error = raised
            with self._changed:
                if call.attempt != attempt:  # given up meanwhile
                    self._hanging -= 1
                    return
                del self._running[call]
                if error is not None:
                    self._failed(call, error)
                elif isinstance(text, str):
                    call.text = text
                else:
                    call.error = PlayerError(f"{self.name} must return its reply as str, got {type(text).__name__}")
                self._changed.notify_all()
