"""The numbers that a field of a configuration may hold, written beside the field: ``Annotated[float, Range(0)]``."""

import dataclasses
import math
from typing import Annotated


@dataclasses.dataclass(frozen=True)
class Range:
    """An interval of numbers.

    Attributes:
      low: the least number.
      high: the largest one.
      above: low itself is out.
      below: high itself is out.
      even: odd numbers are out: seats alternate, and an odd number of games would favour the first player.
    """

    low: float
    high: float = math.inf
    above: bool = False
    below: bool = False
    even: bool = False

    def __contains__(self, value: float) -> bool:
        above_low = value > self.low if self.above else value >= self.low
        return above_low and (value < self.high if self.below else value <= self.high)

    def problem(self, value: float) -> str | None:
        """Returns what a value must be, or None if it is that."""
        if value not in self:
            return f"must be {self}"
        return "must be even, because seats alternate" if self.even and value % 2 else None

    def __str__(self) -> str:
        low = f"above {_plain(self.low)}" if self.above else f"at least {_plain(self.low)}"
        if math.isinf(self.high):
            return low
        return f"{low} and {'below' if self.below else 'at most'} {_plain(self.high)}"


def _plain(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


Positive = Annotated[float, Range(0, above=True)]
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
ShareAboveZero = Annotated[float, Range(0, 1, above=True)]
ShareBelowOne = Annotated[float, Range(0, 1, below=True)]
ShareBetween = Annotated[float, Range(0, 1, above=True, below=True)]
# No machine runs what is beyond these; a digit too many is reported before the memory for it is asked for.
Count = Annotated[int, Range(1, 10**9)]
CountOrZero = Annotated[int, Range(0, 10**9)]
EvenCount = Annotated[int, Range(2, 10**9, even=True)]
SeveralCount = Annotated[int, Range(2, 10**9)]
Threads = Annotated[int, Range(1, 1024)]
Length = Annotated[int, Range(2, 2**24)]
