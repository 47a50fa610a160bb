"""Tables of texts: made once, written as Markdown, as plain lines and as HTML."""

import dataclasses
import math
from collections.abc import Sequence

from dfc.evaluation.statistics import Interval


@dataclasses.dataclass(frozen=True)
class TextTable:
    """A table.

    Attributes:
      title: above it.
      header: one text per column; the first column names the rows.
      rows: texts, as many per row as there are columns.
      notes: below it, a sentence each.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.header)]
        if wrong:
            raise ValueError(f"{self.title}: expected {len(self.header)} texts in a row, got {wrong[0]}")

    def markdown(self) -> str:
        """Returns it as Markdown."""
        lines = [f"### {self.title}", "", _row(self.header), _row(("---",) * len(self.header)), *map(_row, self.rows)]
        return "\n".join([*lines, "", *(f"{note}\n" for note in self.notes)])

    def lines(self) -> list[str]:
        """Returns it as lines of a terminal, columns aligned; without its notes."""
        every = [self.header, *self.rows]
        widths = [max(len(row[column]) for row in every) for column in range(len(self.header))]
        return [self.title, *("  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)) for row in every)]


def number(interval: Interval, digits: int = 2) -> str:
    """Returns an estimate with its interval, a dash where there is none."""
    if math.isnan(interval.estimate):
        return "-"
    return f"{interval.estimate:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


def _row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(text.split()).replace("|", "\\|") for text in texts) + " |"
