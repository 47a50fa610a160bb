"""Status messages about what the run is doing: the program being compiled, the work of its threads.

While `reported` is open, a thread says so on standard output wherever nothing was said for a while, so that the
terminal is never silent for long. The number of programs that a run compiles is not known in advance, since shapes
depend on the games. They are counted as they occur.
"""

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_PREFIX, _COMPILE = "/jax/core/compile/", "backend_compile_duration"
_REUSED = "/jax/compilation_cache/cache_hits"
_SMALL = 0.5  # seconds; programs that compile faster are neither reported nor counted
_USUAL = 8  # programs until a first iteration ends with few games; the number of lengths of games decides
_FIRST, _NEXT, _LONGEST = 5.0, 10.0, 60.0  # seconds of silence: until the first line, the next ones, and at most
# What a thread is doing, by the end of the path of a file it is in; of several the first one is named.
_WORK = (
    ("<frozen importlib._bootstrap>", "the loading of libraries"),
    ("jax/_src/compiler.py", "a compilation"),
    ("jax/_src/interpreters/mlir.py", "a compilation"),
    ("jax/_src/interpreters/partial_eval.py", "a compilation"),
    ("dfc/models/huggingface.py", "reading or writing the model"),
    ("dfc/training/trainer.py", "an optimizer step"),
    ("dfc/inference/engine.py", "a call of the engine"),
    ("dfc/players/remote.py", "an endpoint"),
    ("dfc/runs/checkpoint.py", "a checkpoint"),  # last: the others go on while it is written
)


def duration(seconds: float) -> str:
    """Returns seconds as hours, minutes and seconds, such as ``0:05:30``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def under_way() -> str:
    """Returns what the other threads of this process are doing."""
    found = set()
    own = threading.get_ident()
    for thread, innermost in sys._current_frames().items():  # noqa: SLF001 - documented, and nothing else reports it
        frame: FrameType | None = innermost if thread != own else None
        while frame is not None:
            found.add(frame.f_code.co_filename.replace(os.sep, "/"))
            frame = frame.f_back
    return next((what for end, what in _WORK if any(file.endswith(end) for file in found)), "the present step")


# ---- compilation -----------------------------------------------------------------------------------------------------


class Compilations:
    """What JAX reports of programs compiled here: tracing, lowering, compiling.

    `kept` says whether programs are kept for later processes; `clock` gives seconds, for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, kept: Callable[[], bool] = lambda: False) -> None:
        self._clock, self._kept = clock, kept
        self._lock = threading.Lock()
        self._open: dict[int, list[tuple[str, str, float]]] = {}  # by thread: what, of which program, since when
        self._since = self._seconds = 0.0
        self._count = self._reused = 0

    def begin(self, event: str, value: float, **about: str | int) -> None:
        """Handles JAX's event for the beginning of a compilation step; `fun_name` in `about` is the program's name."""
        del value  # when, by another clock
        if event.startswith(_PREFIX):
            with self._lock:
                now = self._clock()
                if not self._open:
                    self._since = now
                self._open.setdefault(threading.get_ident(), []).append((event, str(about.get("fun_name", "")), now))

    def end(self, event: str, duration_secs: float, **_: str | int) -> None:
        """Handles JAX's event for the end of a compilation step."""
        own = threading.get_ident()
        with self._lock:
            if not event.startswith(_PREFIX) or own not in self._open:
                return
            self._open[own].pop()
            if not self._open[own]:
                del self._open[own]
            if not self._open:
                self._seconds += self._clock() - self._since
            self._count += event.endswith(_COMPILE) and duration_secs >= _SMALL

    def reuse(self, event: str, **_: str | int) -> None:
        """Handles JAX's event for a program that an earlier process kept."""
        self._reused += event == _REUSED

    @property
    def seconds(self) -> float:
        """Wall-clock seconds spent compiling so far."""
        with self._lock:
            return self._seconds + (self._clock() - self._since if self._open else 0.0)

    def words(self) -> str:
        """Returns the program being compiled and its number; empty if none takes noticeable time."""
        with self._lock:
            now = self._clock()
            found = [
                (since, name)
                for parts in self._open.values()
                for event, name, since in parts
                if event.endswith(_COMPILE) and now - since >= _SMALL
            ]
            if not found:
                return ""
            name = min(found)[1].removeprefix("jit_").removeprefix("jit(").removesuffix(")")
            number = self._count + 1
            words = f"compiling {name}, {number} of about {max(_USUAL, number)}"
            if not self._kept():
                return words
            return f"{'' if self._reused else 'first start: '}{words}, kept for the next start"


@functools.cache
def compilations() -> Compilations:
    """Returns what is compiled in this process from the first call on."""
    import jax  # noqa: PLC0415 - takes a second, and commands that compile nothing import this module

    settings: Any = jax.config  # jax leaves it untyped
    found = Compilations(kept=lambda: settings.jax_compilation_cache_dir is not None)
    jax.monitoring.register_scalar_listener(found.begin)
    jax.monitoring.register_event_duration_secs_listener(found.end)
    jax.monitoring.register_event_listener(found.reuse)
    return found


# ---- reports ---------------------------------------------------------------------------------------------------------


class Reports:
    """Decides when a status message is due; `clock` gives seconds, for tests."""

    def __init__(self, compiled: Compilations, clock: Callable[[], float] = time.monotonic) -> None:
        self._compiled, self._clock = compiled, clock
        self._began = self._last = clock()
        self._wait = _FIRST

    def spoken(self) -> None:
        """Records that something else was printed."""
        self._last, self._wait = self._clock(), _NEXT

    def text(self) -> str:
        """Returns the status message."""
        return self._compiled.words() or f"in progress: {under_way()}"

    def due(self) -> str:
        """Returns the line that is due, or nothing; the intervals grow while nothing changes."""
        now = self._clock()
        if now - self._last < self._wait:
            return ""
        self._last, self._wait = now, min(2 * self._wait, _LONGEST)
        compiled = self._compiled.seconds
        so_far = f"{duration(now - self._began)} since the start"
        return f"{self.text()}, {so_far}" + (f", {duration(compiled)} of them compiling" if compiled >= 1 else "")


_current: list[Reports] = []  # of this process, the innermost last
_panels: list[object] = []  # terminals' panels that show the same themselves


@contextlib.contextmanager
def reported(every: float = 1.0) -> Iterator[None]:
    """Prints status messages on standard output while it is open; `every` is the seconds between two checks."""
    reports, ended = Reports(compilations()), threading.Event()

    def watch() -> None:
        while not ended.wait(every):
            if not _panels and (line := reports.due()):
                print(line, flush=True)  # noqa: T201 - progress

    thread = threading.Thread(target=watch, name="dfc-activity", daemon=True)
    _current.append(reports)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _current.remove(reports)


def spoken() -> None:
    """Records that a line of progress was printed."""
    for reports in _current:
        reports.spoken()


@contextlib.contextmanager
def shown_in_panel() -> Iterator[Callable[[], str]]:
    """Leaves status messages to a live panel; yields what it is to show."""
    own: Any = object()
    _panels.append(own)
    try:
        yield lambda: _current[-1].text() if _current else ""
    finally:
        _panels.remove(own)
