"""What a method shows in the report beside what every run shows: a module that its configuration's class names.

Methods import the report, so the report finds the module by name, as a recipe is found.
"""

import dataclasses
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from dfc.config import RECIPES
from dfc.report.page import Section
from dfc.report.reader import RunRecords
from dfc.report.tables import Table

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class MetricCharts:
    """Which charts show a method's metrics.

    Attributes:
      charts: title of a chart -> how the names of its metrics begin; a metric is in the first chart that fits.
      titles: name of a metric -> its title; without one the name is written out.
      shares: how the names of metrics begin that go from 0 to 1.
      counts: how the names of metrics begin that are drawn only where they are not always 0.
    """

    charts: Mapping[str, Sequence[str]]
    titles: Mapping[str, str]
    shares: tuple[str, ...]
    counts: tuple[str, ...]


class Alarm(Protocol):
    """A warning that one iteration's metrics raise; `dfc.report.warnings` joins those of neighbouring iterations."""

    @property
    def metric(self) -> str:
        """The metric that it is drawn at."""

    @property
    def title(self) -> str:
        """In a few words, without numbers."""

    @property
    def sentence(self) -> str:
        """With numbers and what to do, without a full stop."""


class MethodPage(Protocol):
    """The names that such a module has.

    Attributes:
      CHARTS: its charts of metrics.
    """

    CHARTS: MetricCharts

    def results(self, run: RunRecords) -> list[str | Table]:
        """Returns the section of results."""

    def sections(self, run: RunRecords) -> Sequence[Section]:
        """Returns the sections between curves and set-up."""

    def alarms(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Alarm]]:
        """Yields the alarms of a run, each with the row of metrics.jsonl that raised it."""


def of(run: RunRecords) -> MethodPage | None:
    """Returns what shows a run's method; None where the report alone does."""
    kind = RECIPES.get((run.config or {}).get("recipe", ""))
    return cast(MethodPage, importlib.import_module(f"dfc.{kind.page}")) if kind is not None and kind.page else None


def of_metrics(charts: MetricCharts, metrics: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields (title, names) of every chart; of metrics that fit none, nothing is shown."""
    left = dict.fromkeys(metrics)
    for title, beginnings in charts.charts.items():
        shown = [name for beginning in beginnings for name in left if name.startswith(beginning)]
        left = {name: None for name in left if name not in shown}
        yield title, list(dict.fromkeys(shown))
