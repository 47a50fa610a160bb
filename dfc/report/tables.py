"""Tables, made once and written for a terminal, as Markdown and as HTML; and how values are written in them."""

import dataclasses
import functools
import io
import math
import re
from collections.abc import Sequence

from markupsafe import Markup
from rich import table as rich_table
from rich.console import Console
from rich.text import Text

from dfc.evaluation.statistics import Interval, Record
from dfc.evaluation.task_statistics import Estimate
from dfc.games.printable import printable

NOTHING = "–"  # noqa: RUF001 - the dash where a page has no number

# What a column of figures holds: a number, or one with its error or unit; a dash, a dot or nothing.
_FIGURE = re.compile(r"[-+\u2212]?\d[\d,.]*( (%|s|±|min|h)( [\d.ms in]*)?)?|[-·\u2013]?")

_COLUMN, _NAME = Markup('<th scope="col"{}>{}</th>'), Markup('<th scope="row"{}>{}</th>')
_CELL, _ROW = Markup("<td{}>{}</td>"), Markup("<tr{}>{}</tr>\n")
_TABLE = Markup(
    '<div class="scroll" tabindex="0" role="region" aria-label="{}"><table{}>\n'
    "<thead>{}</thead>\n<tbody>{}</tbody>\n<tfoot>{}</tfoot>\n</table></div>\n"
)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
      title: above it.
      header: one text per column, or nothing; the first column names the rows.
      rows: texts, as many per row as there are columns. A cell that is `Markup` is HTML; any other one is escaped.
      notes: below it, a sentence each.
      foot: rows that sum up the others, on a page set apart.
      css: classes of the HTML table (page.css): ``dense``: small; ``wrapped``: long texts are broken.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    foot: tuple[tuple[str, ...], ...] = ()
    css: str = ""

    def __post_init__(self) -> None:
        every = [row for row in (self.header, *self.rows, *self.foot) if row]
        wrong = [row for row in every if len(row) != len(every[0])]
        if wrong:
            raise ValueError(f"{self.title}: expected {len(every[0])} texts in a row, got {wrong[0]}")

    def markdown(self) -> str:
        """Returns it as Markdown, title and notes with it."""
        rows = (self.header, ("---",) * len(self.header), *self.rows, *self.foot)
        lines = ("| " + " | ".join(_plain(text).replace("|", "\\|") for text in row) + " |" for row in rows)
        return "\n".join([f"### {self.title}", "", *lines, "", *(f"{note}\n" for note in self.notes)])

    def lines(self) -> list[str]:
        """Returns it as lines of a terminal, its title first and columns aligned; without its notes."""
        grid = rich_table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for text, figures in zip(self.header, self._figures(), strict=True):
            grid.add_column(Text(_seen(text)), justify="right" if figures else "left", no_wrap=True)
        for row in (*self.rows, *self.foot):
            grid.add_row(*(Text(_seen(text)) for text in row))
        file = io.StringIO()
        Console(file=file, width=100_000, color_system=None).print(grid)  # never wrapped: a terminal does that
        return [self.title, *(line.rstrip() for line in file.getvalue().splitlines())]

    def html(self) -> Markup:
        """Returns it as HTML that scrolls sideways in itself; without its title and notes."""
        figures = [Markup(' class="n"') if each else "" for each in self._figures()]

        def row(cells: Sequence[str], first: Markup = _NAME, other: Markup = _CELL, css: str | Markup = "") -> Markup:
            forms = (first, *(other,) * len(cells))
            return _ROW.format(css, Markup("").join(map(Markup.format, forms, figures, cells)))

        names = [row[0] for row in self.rows]
        groups = len(set(names)) < len(names)  # rows of one name are adjacent
        apart = [Markup(' class="rule"') if groups and a != b else "" for a, b in zip(names, names[:1] + names)]  # noqa: B905 - one more
        body = Markup("").join(row(cells, css=rule) for cells, rule in zip(self.rows, apart, strict=True))
        head = row(self.header, _COLUMN, _COLUMN) if self.header else ""
        foot = Markup("").join(map(row, self.foot))
        css = Markup(' class="{}"').format(self.css) if self.css else ""
        return _TABLE.format(self.title, css, head, body, foot)

    def _figures(self) -> list[bool]:
        """Returns which columns hold figures and are aligned to the right; the first one never does."""
        rows = (*self.rows, *self.foot)
        columns = list(zip(*rows, strict=True)) if rows else [("no",)] * len(self.header)
        return [place > 0 and all(map(_FIGURE.fullmatch, map(_plain, cells))) for place, cells in enumerate(columns)]


def _plain(text: str) -> str:
    return " ".join((text.striptags() if isinstance(text, Markup) else text).split())


def _seen(text: str) -> str:
    return printable(_plain(text))


# ---- values ----------------------------------------------------------------------------------------------------------


@functools.lru_cache(100_000)
def measured(record: Record, alone: bool) -> Interval:
    """Returns `Record.measured`, whose bounds are searched for: once per record, which a live page shows many times."""
    return record.measured(alone=alone)


def estimate(interval: Interval, digits: int = 2) -> str:
    """Returns an estimate with its interval in brackets, a hyphen where there is none: for tables of text."""
    if math.isnan(interval.estimate):
        return "-"
    return f"{interval.estimate:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


def percent(value: Estimate) -> str:
    """Returns a share in percent with its standard error, a hyphen where there is none: for tables of text."""
    return plus_minus(value, 100, 1)


def plus_minus(value: Estimate, scale: float = 1, digits: int = 2, *, sign: bool = False) -> str:
    """Returns a mean with its standard error, both times the scale, a hyphen where there is none."""
    if math.isnan(value.mean):
        return "-"
    mean = f"{scale * value.mean:{'+' if sign else ''}.{digits}f}"
    return mean if math.isnan(value.error) else f"{mean} ± {scale * value.error:.{digits}f}"


def number(value: float | None, digits: int = 2) -> str:
    """Returns a number with thousands separators; a dash where none is."""
    return NOTHING if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def bounds(interval: Interval) -> str:
    """Returns the two bounds as text."""
    return NOTHING if math.isnan(interval.estimate) else f"{interval.low:.2f} to {interval.high:.2f}"


def signed(value: float) -> str:
    """Returns a difference with its sign; nothing that rounds to 0 has one."""
    written = NOTHING if math.isnan(value) else f"{value:+.2f}"
    return "0.00" if written[1:] == "0.00" else written.replace("-", "\u2212")


def duration(seconds: float) -> str:
    """Returns seconds as hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60:,} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def text(value: object) -> str:
    """Returns a value of a configuration or a record as users write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return NOTHING if value is None or value == "" else str(value)
