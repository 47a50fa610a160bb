"""What a person sees while a run is running: a live panel in a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TextIO, cast

from rich.console import Console, RenderableType
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dfc.games.printable import printable
from dfc.runs import activity
from dfc.runs.activity import duration
from dfc.runs.printing import Printed

_LONG = 3600.0  # seconds; a longer run is warned of


def long_run(seconds: float, shorter: Sequence[str]) -> str:
    """Returns a warning, with settings that make it shorter, of a run that takes more than an hour; else empty."""
    if seconds <= _LONG:
        return ""
    hint = f"; what shortens it: {', '.join(shorter)}" if shorter else ""
    return f"this takes more than an hour, about {duration(seconds)}{hint}"


class Progress:
    """Shows how far a run is. Close it, or use it as a context manager.

    The time left is estimated from the steps done in this process: remaining steps x elapsed seconds / done steps,
    without the seconds that compiled something. A run that takes more than an hour is warned of once.

    `start_step` steps were already done when this process took over, from the checkpoint. `shorter` are settings that
    make the run shorter (`dfc.config.RunConfig.shorter`), for the warning. `output` is standard output by default;
    where there is no terminal, at most one line is written in `seconds_between_lines`. `clock` gives seconds, for
    tests; `compiled` the seconds that something was compiled in this process so far.
    """

    def __init__(
        self,
        total_steps: int,
        *,
        start_step: int = 0,
        shorter: Sequence[str] = (),
        output: TextIO | None = None,
        seconds_between_lines: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        compiled: Callable[[], float] = lambda: activity.compilations().seconds,
    ) -> None:
        self._shorter, self._compiled = shorter, compiled
        self._compiled_before, self._long = compiled(), ""
        self._closing = contextlib.ExitStack()
        self._total = total_steps
        self._first = self._step = start_step
        self._output = output if output is not None else sys.stdout
        self._between = seconds_between_lines
        self._clock = clock
        self._began = clock()
        self._last_line = -float("inf")
        self._pending = ""
        self._line = "starting"
        self._warning = self._reported = self._cost = ""
        self._long_reported = False
        self._win_rates: dict[str, float] = {}
        self._live: Live | None = None
        if self._output.isatty():
            drawn: Any = self._output.unescaped() if isinstance(self._output, Printed) else self._output
            self._busy = self._closing.enter_context(activity.shown_in_panel())
            self._live = Live(get_renderable=self._panel, console=Console(file=drawn), refresh_per_second=2)
            self._live.start()
            for name in ("stdout", "stderr"):  # what others print goes above the panel, past the stream it had
                if isinstance(above := getattr(sys, name), FileProxy):
                    setattr(sys, name, Printed(cast("TextIO", above)))

    def update(
        self,
        *,
        stage: str,
        iteration: int,
        iterations: int,
        step: int,
        episodes_per_second: float,
        tokens_per_second: float,
        win_rates: Mapping[str, float],
        warning: str = "",
        cost: str = "",
    ) -> None:
        """Takes the state after one iteration.

        `iteration` of `iterations` are done in this stage, `step` in the whole run; speeds are of this iteration,
        tokens those sampled; `win_rates` are the latest per game id, 0 to 1. `warning` is the newest one, in one line;
        the panel shows it, plain lines report it once. `cost` is what the run has cost so far, as text; an empty one is
        not shown.
        """
        self._step = step
        self._win_rates = dict(win_rates)
        self._warning = warning
        self._cost = f"cost so far: {cost}" if cost else ""
        self._line = (
            f"{stage}: iteration {iteration}/{iterations}, {episodes_per_second:.1f} episodes/s,"
            f" {tokens_per_second:,.0f} tokens/s"
        )
        if not self._long:
            self._long = long_run(self.seconds_left() or 0.0, self._shorter)
        if self._live is None:
            rates = "".join(f" {name} {rate:.0%}" for name, rate in self._win_rates.items())
            won = f"; won:{rates}" if rates else ""
            spent = f"; {self._cost}" if self._cost else ""
            self._pending = f"[{self._step}/{self._total}] {self._line}, {self._times()}{won}{spent}"
            if self._clock() - self._last_line >= self._between:
                self._write_pending()

    def close(self) -> None:
        """Shows the last state and leaves the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._closing.close()
        elif self._pending:
            self._write_pending()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def seconds_left(self) -> float | None:
        """Returns the estimated seconds to the end, or None before the first step of this process."""
        done = self._step - self._first
        if done <= 0:
            return None
        working = self._clock() - self._began - (self._compiled() - self._compiled_before)
        return max(0, self._total - self._step) * max(0.0, working) / done

    def _times(self) -> str:
        left = self.seconds_left()
        return f"{duration(self._clock() - self._began)} elapsed, {'?' if left is None else duration(left)} left"

    def _write_pending(self) -> None:
        lines = [self._pending]
        if self._warning and self._warning != self._reported:
            lines.append(f"warning: {self._warning}")
            self._reported = self._warning
        if self._long and not self._long_reported:
            lines.append(f"warning: {self._long}")
            self._long_reported = True
        self._output.writelines(f"{_one_line(line)}\n" for line in lines)
        self._output.flush()
        self._pending, self._last_line = "", self._clock()
        activity.spoken()

    def _panel(self) -> RenderableType:
        rates = Table.grid(padding=(0, 2))
        for name, rate in self._win_rates.items():
            rates.add_row(
                Text(_one_line(name)), ProgressBar(total=1.0, completed=rate, width=30), Text(f"{rate:.0%} won")
            )
        whole = Table.grid(expand=True)
        whole.add_row(Text(_one_line(self._line)))
        whole.add_row(ProgressBar(total=max(1, self._total), completed=self._step))
        whole.add_row(Text(f"step {self._step}/{self._total}, {self._times()}"))
        if busy := self._busy():
            whole.add_row(Text(_one_line(busy)))
        if self._cost:
            whole.add_row(Text(_one_line(self._cost)))
        for warning in filter(None, (self._warning, self._long)):
            whole.add_row(Text(_one_line(f"warning: {warning}"), style="bold red"))
        whole.add_row(rates)
        return Panel(whole, title="dfc", title_align="left")


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))
