"""Stopping a run from outside: the signal is noted, the recipe saves and leaves at the next safe place."""

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

from dfc.errors import DfcError


class Interrupted(DfcError):  # noqa: N818 - being asked to stop is no error
    """A recipe saved its state and stopped because it was asked to.

    Attributes:
      signal_number: the signal that asked, e.g. 15 for SIGTERM.
    """

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")


class Stop:
    """Notes SIGTERM and SIGINT (Ctrl-C) while it is open; a second Ctrl-C stops at once.

    Use as a context manager in the main thread; the handlers from before come back at the end. A recipe reads
    `requested` between iterations, saves a checkpoint and raises `Interrupted`.

    Args:
      agree: the largest of the numbers that all processes of the run pass (`dfc.agreement.largest`); with one process
        the number itself.
    """

    def __init__(self, agree: Callable[[int], int] = int) -> None:
        self._agree = agree
        self._noted = 0  # the first signal this process got
        self._before: dict[int, signal._HANDLER] = {}

    @property
    def requested(self) -> int | None:
        """The number of the signal that asked to stop, or None.

        With several processes a signal to any of them counts for all, so all of them read this at the same places.
        """
        return self._agree(self._noted) or None

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # None stands for a handler that was not set from Python and cannot be put back from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def check(self) -> None:
        """Raises `Interrupted` if a stop was requested; call it only where the state is saved."""
        requested = self.requested
        if requested is not None:
            raise Interrupted(requested)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        # Schedulers repeat SIGTERM while they wait, so only an impatient Ctrl-C cuts the saving short.
        if self._noted and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self._noted:
            text = f"{signal.Signals(number).name}: stopping where it is safe; Ctrl-C once more loses what is not saved"
            os.write(2, f"{text}\n".encode())  # a handler may run in the middle of another write
        self._noted = self._noted or number
