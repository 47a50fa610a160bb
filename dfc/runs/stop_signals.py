"""Stopping a run from outside: the signal is noted, the recipe saves and leaves at the next safe point."""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Self

from dfc.errors import Interrupted
from dfc.runs.activity import under_way

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_REMINDER = 10.0  # seconds between two lines that say what is waited for


class Stop:
    """Notes SIGTERM and SIGINT (Ctrl-C) while it is open; a second Ctrl-C stops at once.

    Use as a context manager in the main thread; the earlier handlers are restored at the end. A recipe reads
    `requested` between iterations, saves a checkpoint and raises `Interrupted`; within an iteration `check_stop` ends
    what is under way. A thread says at once, and every ten seconds, what is waited for: Python's own handlers do not
    run before a compilation or a call of the device has returned.

    `agree` gives the largest of the numbers that all processes of the run pass (`dfc.multihost.all_max`), with one
    process the number itself. `check_stop` asks the other processes at every n-th call only (`every`), since their
    answer waits for the devices.
    """

    def __init__(self, agree: Callable[[int], int] = int, *, every: int = 1) -> None:
        self._agree, self._every = agree, every
        self._noted = 0  # the first signal this process got
        self._handled = False  # whether Python's handler has run for it
        self._looks = 0
        self._before: dict[int, signal._HANDLER] = {}
        self._watched = contextlib.ExitStack()

    @property
    def requested(self) -> int | None:
        """The number of the signal that asked to stop, or None.

        With several processes a signal to any of them counts for all, so all of them read this at the same points.
        """
        return self._agree(self._noted) or None

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        self._watched.enter_context(self._watching())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watched.close()
        for number, handler in self._before.items():
            # None stands for a handler that was not set from Python and cannot be put back from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def check(self) -> None:
        """Raises `Interrupted` if a stop was requested; call it only where the state is saved."""
        requested = self.requested
        if requested is not None:
            raise Interrupted(requested)

    def check_stop(self) -> None:
        """Raises `Interrupted` if a stop was requested: for inner loops, whose work is thrown away and done again.

        With several processes all of them call this equally often, and a stop may take effect some calls later.
        """
        self._looks += 1
        if self._looks % self._every == 0:
            requested = self._agree(self._noted)
            if requested:
                raise Interrupted(requested)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        # Schedulers repeat SIGTERM while they wait, so only an impatient Ctrl-C cuts the saving short.
        if self._handled and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._handled = True
        self._noted = self._noted or number

    # ---- in a thread of its own -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        """Lets a thread read the numbers of signals, which the interpreter writes as soon as they arrive."""
        receiver, sender = os.pipe()
        os.set_blocking(sender, False)
        before = signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
        thread = threading.Thread(target=self._watch, args=(receiver,), name="dfc-signals", daemon=True)
        thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            os.close(sender)  # and so the thread ends
            thread.join()
            os.close(receiver)

    def _watch(self, receiver: int) -> None:
        began = 0.0
        while True:
            arrived, _, _ = select.select([receiver], [], [], _REMINDER if began else None)
            numbers = os.read(receiver, 64) if arrived else b""
            if arrived and not numbers:
                return
            found = next((number for number in numbers if number in _SIGNALS), 0)
            self._noted = self._noted or found
            if found and not began:
                began = time.monotonic()
                hint = "Ctrl-C once more loses what is not saved"
                _tell(f"{_name(self._noted)}: stopping; waiting for {under_way()} to end; {hint}")
            elif began and not arrived:
                seconds = time.monotonic() - began
                _tell(f"{_name(self._noted)}: after {seconds:.0f} s still waiting for {under_way()} to end")


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Keeps SIGTERM and SIGINT until what is inside has ended, then raises; a second Ctrl-C ends the process at once.

    For the loading of libraries, which loses or wraps an exception that a handler raises in it. Nothing is begun there,
    so nothing is lost. Outside the main thread, where no handler can be set, it does nothing.

    Raises:
      Interrupted: a signal came.
    """
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if noted and number == signal.SIGINT:
            os._exit(128 + number)
        noted.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if noted:
        raise Interrupted(noted[0])


def _name(number: int) -> str:
    return signal.Signals(number).name


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # the process that started the run may have ended
        os.write(2, f"{line}\n".encode())
