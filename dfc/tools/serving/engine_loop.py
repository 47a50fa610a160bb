"""The one thread that owns the engine: submissions join and leave between its calls.

A submission is one request, tokenized; each of its choices is a conversation of its own in a slot. Choices of one
prompt follow each other, so that the engine reads it once and copies it (`dfc.inference.prefixes`); so it does where a
client sends a whole conversation again.
"""

import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from dfc.config import SamplingConfig
from dfc.errors import DfcError
from dfc.inference.engine import Engine
from dfc.inference.protocol import Ends, EngineReply
from dfc.tools.serving.requests import RequestError

_IN_FLIGHT = 2  # calls of the engine: one computes while the replies of the other are taken


@dataclasses.dataclass(frozen=True)
class Part:
    """News of one choice of a submission: its reply so far, or whole.

    Attributes:
      choice: its number.
      reply: all of it so far, not only what is new; a stop string may take back tokens until it is whole.
      whole: whether this is the end.
    """

    choice: int
    reply: EngineReply
    whole: bool


Event = Part | RequestError
"""An event of a submission; an error ends it."""


@dataclasses.dataclass(eq=False)
class Submission:
    """One request taken by the engine.

    Attributes:
      prompt: tokens.
      seeds: of its choices.
      sampling: how tokens are sampled.
      max_reply_length: tokens of each reply.
      ends: of its stop strings; None: none.
      stream: whether it receives replies as they grow.
      deadline: on the monotonic clock.
      told: receives its events; called where `EngineLoop` posts them.
    """

    prompt: Sequence[int]
    seeds: Sequence[int]
    sampling: SamplingConfig
    max_reply_length: int
    ends: Ends | None
    stream: bool
    deadline: float
    told: Callable[[Event], None]


Post = Callable[[list[tuple[Submission, Event]]], None]
"""Hands events over to the thread of the clients; must not wait."""


@dataclasses.dataclass
class _Seat:
    """A slot that answers: which choice of which submission, and how many tokens of it are known already."""

    submission: Submission
    choice: int
    sent: int = 0


class EngineLoop:
    """Runs an engine in a thread; every public method may be called from any other.

    Attributes:
      capacity: slots of the engine.
      failure: why the engine's thread ended; None: it runs, or was stopped.
    """

    def __init__(self, engine: Engine, *, queue: int, failed: Callable[[], None] = lambda: None) -> None:
        """Takes over an engine with all slots free; nothing else may call it until `stop` returns.

        Of submissions `queue` may wait for a slot. `failed` is called in the engine's thread if that ends by an error.
        """
        self._engine, self._queue, self._failed = engine, queue, failed
        self.capacity = engine.free
        self.failure: str | None = None
        self._changed = threading.Condition()
        self._arrived: collections.deque[tuple[Submission, Post]] = collections.deque()
        self._cancelled: list[Submission] = []
        self._ends_at: float | None = None  # of the answers under way, once no others are taken
        self._stopped = False
        # Of the engine's thread alone:
        self._waiting: collections.deque[tuple[Submission, int]] = collections.deque()  # the next choice of each
        self._posts: dict[Submission, Post] = {}
        self._seats: dict[int, _Seat] = {}
        self._left: dict[Submission, int] = {}  # choices that are not whole
        self._thread = threading.Thread(target=self._run, name="dfc-engine", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @property
    def queued(self) -> int:
        """Submissions that wait for a slot."""
        return len(self._arrived) + len(self._waiting)

    @property
    def busy(self) -> int:
        """Slots that answer."""
        return len(self._seats)

    @property
    def draining(self) -> bool:
        """Whether no further submission is taken."""
        return self._ends_at is not None

    def submit(self, submission: Submission, post: Post) -> None:
        """Gives the engine a submission; its events come by `post`.

        Raises:
          RequestError: too many wait (429), or the server stops or has failed (503).
        """
        with self._changed:
            if self._ends_at is not None or self._stopped:
                raise stopping()
            if self._is_full():
                message = f"{self._queue} requests wait already; try again in a moment"
                raise RequestError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "1"})
            self._arrived.append((submission, post))
            self._changed.notify()

    def _is_full(self) -> bool:
        """Whether the queue is full; called with the lock. Those that find a free slot for each choice do not wait."""
        free = self.capacity - self.busy - len(self._waiting)
        waits = max(0, -free)
        for submission, _ in self._arrived:
            if free > 0:
                free -= len(submission.seeds)
            else:
                waits += 1
        return free <= 0 and waits >= self._queue

    def cancel(self, submission: Submission) -> None:
        """Cancels a submission, whatever its state: its slots are free before the engine's next call."""
        with self._changed:
            self._cancelled.append(submission)
            self._changed.notify()

    def drain(self, grace: float) -> None:
        """Takes no further submission, refuses those that wait, and ends those under way after so many seconds."""
        with self._changed:
            if self._ends_at is None:
                self._ends_at = time.monotonic() + grace
            self._changed.notify()

    def stop(self) -> None:
        """Ends the thread after its call under way; submissions that are not done end with an error."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    # ---- the engine's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as error:  # noqa: BLE001 - whatever it is, clients get an answer, and the server ends
            # Other errors may quote what a client sent.
            self.failure = str(error) if isinstance(error, DfcError) else type(error).__name__
        with self._changed:
            self._stopped = True
            self._take()
        failed = self.failure is not None
        why = RequestError(500, "the engine failed", code="internal_error") if failed else stopping()
        self._end_submissions(dict.fromkeys(self._posts, why))
        if failed:
            self._failed()

    def _turn(self) -> bool:
        """Takes new submissions, makes a call of the engine and posts its results; returns False at the end."""
        with self._changed:
            while not (self._arrived or self._cancelled or self._posts or self._stopped):
                self._changed.wait()
            if self._stopped:
                return False
            self._take()
        self._end_late()
        self._admit()
        events = self._call()
        self._tell(events)
        for submission, event in events:
            if isinstance(event, Part) and event.whole:
                self._left[submission] -= 1
                if not self._left[submission]:
                    del self._left[submission], self._posts[submission]
        return True

    def _call(self) -> list[tuple[Submission, Event]]:
        """Makes a call of the engine; returns its results."""
        engine, events = self._engine, list[tuple[Submission, Event]]()
        while engine.in_flight < _IN_FLIGHT and engine.launch():
            pass
        for reply in engine.collect():
            seat = self._seats.pop(reply.slot)
            engine.close(reply.slot)
            events.append((seat.submission, Part(seat.choice, reply, whole=True)))
        for slot, seat in self._seats.items():
            if seat.submission.stream:
                reply = engine.so_far(slot)
                if len(reply.token_ids) > seat.sent:
                    seat.sent = len(reply.token_ids)
                    events.append((seat.submission, Part(seat.choice, reply, whole=False)))
        return events

    def _take(self) -> None:
        """Takes over other threads' submissions; called with the lock."""
        for submission, post in self._arrived:
            self._posts[submission], self._left[submission] = post, len(submission.seeds)
            self._waiting.append((submission, 0))
        self._arrived.clear()
        for submission in self._cancelled:
            self._drop(submission)
        self._cancelled.clear()

    def _end_late(self) -> None:
        """Ends submissions past their deadline, and once the server stops those that wait or are past its own."""
        now, ends_at = time.monotonic(), self._ends_at
        late = RequestError(504, "the answer was not complete before the deadline", code="deadline_exceeded")
        ended: dict[Submission, RequestError] = {
            submission: late for submission in self._posts if submission.deadline <= now
        }
        if ends_at is not None:
            begun = {seat.submission for seat in self._seats.values()}
            ended |= {submission: stopping() for submission in self._posts if submission not in begun or ends_at <= now}
        self._end_submissions(ended)

    def _end_submissions(self, ended: Mapping[Submission, RequestError]) -> None:
        self._tell([(submission, error) for submission, error in ended.items()])
        for submission in ended:
            self._drop(submission)

    def _drop(self, submission: Submission) -> None:
        """Removes a submission, if present, and frees its slots."""
        if self._posts.pop(submission, None) is None:
            return
        del self._left[submission]
        self._waiting = collections.deque(entry for entry in self._waiting if entry[0] is not submission)
        for slot in [slot for slot, seat in self._seats.items() if seat.submission is submission]:
            del self._seats[slot]
            self._engine.close(slot)

    def _admit(self) -> None:
        """Gives free slots to the choices that wait, in the order of their arrival."""
        engine = self._engine
        while self._waiting and engine.free:
            submission, choice = self._waiting.popleft()
            slot = engine.open(submission.seeds[choice], sampling=submission.sampling)
            self._seats[slot] = _Seat(submission, choice)
            engine.append(slot, submission.prompt)
            engine.ask(slot, submission.max_reply_length, ends=submission.ends)
            if choice + 1 < len(submission.seeds):
                self._waiting.appendleft((submission, choice + 1))

    def _tell(self, events: Sequence[tuple[Submission, Event]]) -> None:
        """Posts events, those of one receiver together."""
        by_post: dict[Post, list[tuple[Submission, Event]]] = {}
        for submission, event in events:
            by_post.setdefault(self._posts[submission], []).append((submission, event))
        for post, its in by_post.items():
            post(its)


def stopping() -> RequestError:
    """Returns the refusal of a server that is about to end."""
    return RequestError(503, "the server is stopping", code="server_stopping", headers={"Retry-After": "10"})
