"""Standard output and standard error of a command: escapes control characters and ignores closed pipes.

A command prints what others wrote: replies, a server's errors, settings, names of files. `Printed` makes all of it
printable in one place. And the reader may go away before a run ends (``| head -1``, a closed terminal): from then on
nothing is printed, and the run continues.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from dfc.games.printable import printable

_NOBODY_READS = (errno.EPIPE, errno.EIO)  # of a pipe whose other end is closed, of a terminal that is gone


class Printed:
    """A stream that writes `printable` text to another one and survives the loss of its reader.

    Whatever else a stream has (`fileno`, `isatty`, `encoding`) is that of the other one.
    """

    def __init__(self, stream: TextIO, *, escapes: bool = True) -> None:
        """Writes to a stream, which stays open; without `escapes` control characters pass."""
        self._stream = stream
        self._escapes = escapes
        self._lost = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the wrapped stream
        return getattr(self._stream, name)

    def unescaped(self) -> "Printed":
        """Returns the same for what draws with escape sequences, and makes the texts it is given printable itself."""
        return Printed(self._stream, escapes=False)

    def write(self, text: str) -> int:
        """Writes a text, or nothing once the reader is lost; returns the text's length."""
        shown = printable(text) if self._escapes else text
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        if self._lost:
            return len(text)
        with self._surviving():
            self._stream.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hands over what is buffered, unless the reader is lost."""
        if not self._lost:
            with self._surviving():
                self._stream.flush()

    def finish(self) -> None:
        """Flushes; what cannot be written is dropped, so that the interpreter does not try again at its own end."""
        try:
            if not self._lost:
                self._stream.flush()
        except OSError:
            self._give_up()

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Others may pass: a full disk that standard output goes to, a reader who is slow.
            if error.errno in _NOBODY_READS:
                self._give_up()

    def _give_up(self) -> None:
        self._lost = True
        with contextlib.suppress(OSError):  # a stream of a test has no file below it
            nowhere = os.open(os.devnull, os.O_WRONLY)
            try:
                os.dup2(nowhere, self._stream.fileno())  # what libraries print, and what is buffered, goes nowhere too
            finally:
                os.close(nowhere)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Makes standard output and standard error `Printed` for the time of a command."""
    with contextlib.ExitStack() as stack:
        for name, redirect in (("stdout", contextlib.redirect_stdout), ("stderr", contextlib.redirect_stderr)):
            stream = getattr(sys, name)
            if stream is None:  # the command was started with a closed one
                stream = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
            printed: Any = Printed(stream)
            stack.callback(printed.finish)
            stack.enter_context(redirect(printed))
        yield
