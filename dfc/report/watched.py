"""Shows a running run in its records, the terminal and the page, with one call for all of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dfc.report import run_page, summary
from dfc.report.live_report import LiveReport
from dfc.runs.costs import Costs
from dfc.runs.metrics import IterationRecord, MetricsWriter
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder

Lines = Callable[[Path], Sequence[str]]


class Watched:
    """Records and shows every iteration of a run; use it as a context manager.

    Of `total_steps` iterations of the whole run `start_step` are done; `shorter` are settings that make the run shorter
    (`dfc.config.RunConfig.shorter`).
    """

    def __init__(self, folder: RunFolder, total_steps: int, start_step: int, shorter: Sequence[str]) -> None:
        self._live = LiveReport(folder.path, total_steps=total_steps, writes=folder.writes)
        self._writer = MetricsWriter(folder)
        self._progress = Progress(total_steps, start_step=start_step, shorter=shorter)

    def __enter__(self) -> Self:
        for each in (self._live, self._writer, self._progress):
            each.__enter__()
        self._live.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._progress, self._writer, self._live):
            each.__exit__(kind, error, trace)

    def show(self, found: IterationRecord) -> None:
        """Records the results of an iteration."""
        self._writer.write(
            step=found.step, stage=found.stage, iteration=found.iteration, metrics=found.metrics, clock=found.clock
        )
        self._live.refresh()
        self._progress.update(
            stage=found.stage,
            iteration=found.iteration,
            iterations=found.iterations,
            step=found.step,
            episodes_per_second=found.clock["episodes_per_second"],
            tokens_per_second=found.clock["tokens_per_second"],
            win_rates=found.win_rates,
            warning=self._live.warning,
            cost=found.cost,
        )


def finish(folder: RunFolder, lines: Lines = summary.lines) -> None:
    """Marks a run as finished, builds its page and prints the result, whose lines are made from the run folder."""
    folder.finish()
    _show(folder, lines)


def show_finished(folder: RunFolder, lines: Lines = summary.lines) -> None:
    """Shows a run that is finished, as `finish` does; a kill may have come before its page was built."""
    print(f"{folder.path} holds this run, finished")  # noqa: T201 - why nothing happens
    _show(folder, lines)


def _show(folder: RunFolder, lines: Lines) -> None:
    """Builds the page and prints the result, where to look, and the cost."""
    if not folder.writes:
        return
    run_page.build(folder.path)
    adapter = [f"adapter: {folder.adapter}"] if folder.adapter.exists() else []
    cost = [f"cost: {spent}"] if (spent := str(Costs(folder))) else []
    said = [*lines(folder.path), *adapter, f"policy: {folder.policy}", f"report: {folder.report}", *cost]
    print("\n".join(said), flush=True)  # noqa: T201 - the result
