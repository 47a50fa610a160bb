"""Tables of the studies: a claim as a row of data, its differences by seed, and its verdict by the one rule.

The rule is `dfc.evaluation.claims.verdict`; no page and no script has another one.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from dfc.evaluation.claims import Claim, verdict
from dfc.evaluation.task_statistics import estimate

CLAIM, DIFFERENCE, VERDICT = "claim", "difference: mean, interval (by seed)", "verdict"


@dataclasses.dataclass(frozen=True)
class Row:
    """A claim of a study as its table has it.

    Attributes:
      claim: in the unit that is printed.
      read: returns the differences by seed from what the study's script hands over; None where there are none.
      unit: behind the figures.
      digits: after the point.
      earlier: the verdict that the page had under an earlier rule; printed where it was another one.
    """

    claim: Claim
    read: Callable[..., Sequence[float]] | None = None
    unit: str = "points"
    digits: int = 1
    earlier: str = ""


def over_seeds(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns mean and Student's interval of 95 % over seeds; the interval is nan for one value."""
    mean, low, high = estimate(values).interval
    return mean, low, high


def spread(values: Sequence[float], scale: float = 100.0, digits: int = 1, *, sign: bool = False) -> str:
    """Returns the mean with its interval, then the values by seed; of one seed its value."""
    form = f"{{:{'+' if sign else ''}.{digits}f}}"
    mean, low, high = (form.format(scale * number) for number in over_seeds(values))
    each = ", ".join(form.format(scale * value) for value in values)
    return f"{mean} [{low}, {high}] ({each})" if len(values) > 1 else f"{mean} (one seed)"


def judged(row: Row, differences: Sequence[float]) -> str:
    """Returns the verdict on a row with its reasons, and an earlier one that differs."""
    found = verdict(row.claim, differences)
    changed = row.earlier and row.earlier != found.word
    return f"{found}; earlier: {row.earlier}" if changed else str(found)


def cells(row: Row, differences: Sequence[float]) -> list[str]:
    """Returns claim, differences and verdict of a row."""
    shown = spread(differences, 1.0, row.digits, sign=True) if differences else "none by seed"
    return [row.claim.text, f"{shown} {row.unit}".strip() if differences else shown, judged(row, differences)]


def claims_table(rows: Iterable[Row], *read: Any) -> str:  # noqa: ANN401 - what a study's own readers take
    """Returns the table of claims; rows whose runs do not exist are left out."""
    found = [(row, row.read(*read) if row.read else ()) for row in rows]
    return table(
        (CLAIM, DIFFERENCE, VERDICT), [cells(row, values) for row, values in found if values or row.read is None]
    )


def table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


class Printed(NamedTuple):
    """A claim's row as a page has it.

    Attributes:
      line: its number in the page, from 0.
      heading: the nearest heading above its table.
      text: the claim.
      figures: mean and interval; empty where the row has none.
      differences: by seed.
      verdict: the cell.
    """

    line: int
    heading: str
    text: str
    figures: tuple[float, ...]
    differences: tuple[float, ...]
    verdict: str


def printed(page: str) -> list[Printed]:
    """Returns every row of a page's tables that have a verdict."""
    found: list[Printed] = []
    heading, head = "", list[str]()
    for number, line in enumerate(page.splitlines()):
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            head = []
        elif not head:
            head = [cell.strip() for cell in line.strip("|").split("|")]
        elif VERDICT in head and not line.startswith("| ---"):
            row = dict(zip(head, (cell.strip() for cell in line.strip("|").split("|")), strict=True))
            means, _, by_seed = row[DIFFERENCE].partition("(")
            one = by_seed.startswith("one seed")
            found.append(
                Printed(
                    number,
                    heading,
                    row[CLAIM],
                    () if one else numbers(means),
                    numbers(means if one else by_seed.partition(")")[0]),
                    row[VERDICT],
                )
            )
    return found


def numbers(text: str) -> tuple[float, ...]:
    """Returns the figures of a cell."""
    return tuple(float(number) for number in re.findall(r"[+-]?\d+(?:\.\d+)?", text))
