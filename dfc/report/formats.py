"""How the report writes values: numbers, intervals, durations, settings."""

import functools
import math

from dfc.evaluation.statistics import Interval, Record


@functools.lru_cache(100_000)
def score(record: Record) -> Interval:
    """Returns `Record.score`, whose bounds are searched for, once per record: a live page shows it again and again."""
    return record.score


def measured(record: Record, alone: bool) -> Interval:
    """Returns `Record.measured`, as quickly."""
    return record.win_rate if alone else score(record)


def number(value: float | None, digits: int = 2) -> str:
    """Returns a number with thousands separators; a dash where none is."""
    if value is None or math.isnan(value):
        return "–"  # noqa: RUF001  (a dash where no number is)
    return f"{value:,.{digits}f}"


def interval(value: Interval, digits: int = 2) -> str:
    """Returns the two bounds."""
    return "–" if math.isnan(value.estimate) else f"{value.low:.{digits}f} to {value.high:.{digits}f}"  # noqa: RUF001 - the dash and quotes the page shows


def signed(value: float, digits: int = 2) -> str:
    """Returns a difference with its sign; nothing that rounds to 0 has one."""
    if math.isnan(value):
        return "–"  # noqa: RUF001 - the dash and quotes the page shows
    written = f"{value:+.{digits}f}"
    return written.replace("-", "\u2212") if float(written) else f"{0:.{digits}f}"


def duration(seconds: float) -> str:
    """Returns seconds as hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60:,} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def text(value: object) -> str:
    """Returns a value of a configuration or a record as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "–" if value is None or value == "" else str(value)  # noqa: RUF001 - the dash and quotes the page shows
