"""The report while a run is running: written again after every iteration, at a cost that is bounded."""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from dfc.report import run_page, warnings
from dfc.report.game_replays import ShownGames
from dfc.report.reader import RunReader
from dfc.report.warnings import RunWarning

_GAME_BYTES = 200_000  # of shown games: a browser loads the page again and again; the final one holds more
_RELOAD_SECONDS = 10.0  # long enough to read in; the file itself is newer
_WARNING_STAYS = 10  # steps that the progress display keeps showing a warning that is over


class LiveReport:
    """Keeps ``report.html`` of a running run up to date. Use it as a context manager around the run.

    What was read of the folder is kept, so a refresh reads what was added since. After one that took s seconds the next
    one does nothing before s (1 / `share` - 1) more have passed: refreshing takes at most `share` of the time. No
    failure in here stops a run; each kind is reported once, in one line. `total_steps` of the whole run are shown
    beside the step; None if unknown. Without `writes` this process does not write the run folder, and nothing happens;
    `clock`, in seconds, is for tests.
    """

    def __init__(
        self,
        folder: Path,
        *,
        total_steps: int | None = None,
        writes: bool = True,
        share: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._total = Path(folder), total_steps
        self._writes, self._share, self._clock = writes, share, clock
        self._reader: RunReader | None = None
        self._games = ShownGames(_GAME_BYTES)
        self._due = -float("inf")
        self._reported: set[str] = set()
        self._newest: RunWarning | None = None

    @property
    def warning(self) -> str:
        """The newest warning in one line, or nothing if none was raised lately: for `dfc.runs.progress`."""
        return "" if self._newest is None else self._newest.line

    def refresh(self) -> None:
        """Writes the report again, unless the last time was too recent for what it took."""
        begun = self._clock()
        if self._writes and begun >= self._due:
            self._write("running", _RELOAD_SECONDS)
            took = self._clock() - begun
            self._due = begun + took / self._share

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Shows on the page that the run stopped, if an error ends it; the finished report is `run_page.build`'s."""
        if self._writes and kind is not None:
            self._write("stopped", 3 * _RELOAD_SECONDS)

    def _write(self, state: Literal["running", "stopped"], reload_seconds: float) -> None:
        try:
            if self._reader is None:
                self._reader = RunReader(self._folder)
            run = self._reader.update()
            found = warnings.of_run(run)
            last = run.metrics[-1]["step"] if run.metrics else 0
            self._newest = found[-1] if found and last - found[-1].step <= _WARNING_STAYS else None
            status = run_page.Status(state, reload_seconds, self._total)
            run_page.write(run, status, self._games, found)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever fails here, the run continues
            self._reader = None  # it may hold half an update
            problem = f"report.html was not refreshed ({type(error).__name__}: {error}); the run continues without it"
            if type(error).__name__ not in self._reported:
                self._reported.add(type(error).__name__)
                print(" ".join(problem.split()), flush=True)  # noqa: T201 - one line for the user
