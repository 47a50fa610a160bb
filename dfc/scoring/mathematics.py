"""Whether the result in an answer is the reference result, as expressions and not as texts: ``1/2`` is ``0.50``.

Parsing and comparing is math-verify's (the extra ``math``; written for 0.9.0), in processes of our own
(`dfc.scoring.mathematics_process`): one that takes too long is ended and replaced, and the next answer is not delayed.
The limit is of processor time, so that a machine's load decides nothing; wall-clock time ends only what does not
compute.
"""

import contextlib
import json
import queue
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import util
from types import TracebackType
from typing import Self

from dfc.commands import shell_line
from dfc.errors import ConfigError
from dfc.scoring import mathematics_process
from dfc.scoring.scorer import LONGEST_ANSWER, Scores, ScoringError, checked_pairs, scores_of_each

INSTALL = shell_line("pip", "install", "dfc[math]")
_START_SECONDS = 600.0  # loading takes a second of an idle machine
_WALL = 10.0  # times the processor time of an answer
_LONGEST_LINE = 1000  # bytes of a verdict
_VALUES: Mapping[str, float | None] = {"right": 1.0, "wrong": 0.0, "no_answer": 0.0, "time_limit": 0.0}


def problems() -> list[str]:
    """Returns why no mathematics can be compared here, with the command that installs it."""
    missing = [name for name in ("math_verify", "latex2sympy2_extended") if util.find_spec(name) is None]
    return [f"mathematical answers are compared by math-verify, which is not installed: {INSTALL}"] if missing else []


class _Process:
    """One process that compares; started when it is first asked, and again after it was ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, reference: str, answer: str, seconds: float) -> str:
        """Returns the verdict, or ``time_limit`` after so much processor time, or ten times that in wall-clock time.

        A process that ends by itself (memory) gives ``ended``.
        """
        process = self._process or self._start()
        assert process.stdin is not None  # noqa: S101 - a pipe
        line = json.dumps({"reference": reference, "answer": answer, "seconds": seconds}).encode() + b"\n"
        try:
            process.stdin.write(line)
            process.stdin.flush()
            found = self._line(process, _WALL * seconds)
        except OSError:
            found = b""
        if found is None or not found:
            self.close()  # an ended process keeps its own exit code
            return "time_limit" if found is None or process.returncode == -signal.SIGPROF else "ended"
        return str(json.loads(found))

    def _start(self) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        command = [sys.executable, "-I", mathematics_process.__file__]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)  # noqa: S603 - this interpreter and our file
        if self._line(self._process, _START_SECONDS) != b"ready\n":
            self.close()
            raise ScoringError(f"math-verify cannot be loaded by {sys.executable}; {INSTALL}")
        return self._process

    @staticmethod
    def _line(process: "subprocess.Popen[bytes]", seconds: float) -> bytes | None:
        """Returns the next line, empty if the process has ended, None if there is none in time."""
        assert process.stdout is not None  # noqa: S101 - a pipe
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
        return process.stdout.readline(_LONGEST_LINE)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what was not read
                        pipe.close()
            self._process.wait()
            self._process = None


class Mathematics:
    """Scores 1 for an answer with the right result, else 0; a scorer (`dfc.scoring.scorer.Scorer`).

    Use it in a ``with`` statement or call `close`, which ends its processes. May be called from any thread.

    Args:
      references: query -> the right result, LaTeX or a number, without dollars.
      seconds: of processor time that one answer may take; beyond it, it is wrong.
      workers: processes, each of 0.1 GB.
      check_stop: called after each answer; its exception aborts the scoring (`dfc.runs.stop_signals.Stop.check_stop`).

    Raises:
      ConfigError: math-verify is not installed.
    """

    def __init__(
        self,
        references: Mapping[str, str],
        *,
        seconds: float = 5.0,
        workers: int = 2,
        check_stop: Callable[[], None] = lambda: None,
    ) -> None:
        if found := problems():
            raise ConfigError(found)
        self._references, self._seconds, self._workers, self._check_stop = (
            dict(references),
            seconds,
            workers,
            check_stop,
        )
        self._idle: queue.Queue[_Process] = queue.Queue()
        for _ in range(workers):
            self._idle.put(_Process())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes; the next call would start them again."""
        for _ in range(self._workers):
            process = self._idle.get()
            process.close()
            self._idle.put(process)

    def __call__(self, queries: Sequence[str], answers: Sequence[str]) -> Scores:
        """Returns 1 or 0 for each answer.

        Not scored are answers to a query without a reference, or with one that cannot be read.
        """
        pairs = checked_pairs(queries, answers)
        return scores_of_each(self._score, pairs, self._workers, self._check_stop)

    def _score(self, query: str, answer: str) -> tuple[float | None, str]:
        if (reference := self._references.get(query)) is None:
            return None, "no_reference"
        if len(answer) > LONGEST_ANSWER:
            return 0.0, "too_long"
        process = self._idle.get()
        try:
            verdict = process.ask(reference, answer, self._seconds)
        finally:
            self._idle.put(process)
        return (0.0, verdict) if verdict == "ended" else (_VALUES.get(verdict), verdict)
