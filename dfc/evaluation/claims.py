"""Verdicts on a study's claims: one rule for every results page.

A claim says on which side of a margin a mean difference is; both are set before the runs. The differences are one for
each seed: runs are what is repeated, games and test items are not.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from dfc.evaluation.task_statistics import estimate

Word = Literal["held", "not held", "undecided"]


class Clause(NamedTuple):
    """Why a study could not have decided a claim, whatever its interval.

    Attributes:
      kind: ``chosen on result seeds``: a setting of the compared arms was chosen when results of these seeds were
        known; ``confounded``: the arms differ in more than what is claimed; ``floor or ceiling``: all compared arms sit
        where the figure cannot move; ``seen afterwards``: the claim itself was made after the results.
      reason: what it was, in a short text.
    """

    kind: Literal["chosen on result seeds", "confounded", "floor or ceiling", "seen afterwards"]
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a study claims of a mean difference between two arms.

    Attributes:
      text: the claim as tables print it.
      sign: 1 where the difference is claimed to be above `sign` x `margin`, -1 where below.
      margin: how far in the claimed direction the difference must be; below 0 for a claim that a loss is no more than
        that (or, with sign -1, a gain).
      foreseen: half-width of the interval that was foreseen before the runs from the spread of pilot seeds, or from
        what else stood for it; None where nothing was foreseen.
      clauses: why the study could not decide the claim.
    """

    text: str
    sign: Literal[1, -1] = 1
    margin: float = 0.0
    foreseen: float | None = None
    clauses: tuple[Clause, ...] = ()

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise ValueError(f"claim {self.text!r}: sign must be 1 or -1, got {self.sign!r}")
        if not math.isfinite(self.margin):
            raise ValueError(f"claim {self.text!r}: margin must be finite, got {self.margin!r}")
        if self.foreseen is not None and not 0 < self.foreseen < math.inf:
            raise ValueError(
                f"claim {self.text!r}: foreseen must be above 0 and finite, or None, got {self.foreseen!r}"
            )


class Verdict(NamedTuple):
    """A verdict with its reasons, printed as ``word (reason; reason)``.

    Attributes:
      word: ``held``, ``not held`` or ``undecided``.
      reasons: why it is undecided whatever the interval; empty where the interval alone decides, or does not.
    """

    word: Word
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.word} ({'; '.join(self.reasons)})" if self.reasons else self.word


def verdict(claim: Claim, differences: Sequence[float]) -> Verdict:
    """Returns the verdict of a study's seeds on a claim.

    The interval is Student's of 95 % over seeds, mean +- t s / sqrt(n), of ``sign x difference``:

    - *held*: it is wholly above the margin;
    - *not held*: wholly below it;
    - *undecided*: the margin is in it. Also, whatever the interval, and with the reason: fewer than two seeds, or one
      without a figure; a clause of the claim; and where a half-width was foreseen,
      - with a margin other than 0, a half-width larger than the margin: the study could not have told a difference of
        the margin's size from none;
      - with a margin of 0, which names no size, a mean difference smaller than that half-width: smaller differences
        were said beforehand to be left undecided, and an interval of few seeds that is narrower than foreseen is more
        often chance than precision.

      Where nothing was foreseen this rule does not apply.

    Each claim has its own 95 %; nothing is corrected for how many claims a study makes. Of each seed there is one
    difference: the claimed arm less the arm it is compared with; not yet times `sign`.
    """
    reasons = [str(clause) for clause in claim.clauses]
    found = estimate([claim.sign * difference for difference in differences])
    if len(differences) < 2:
        reasons.append("one seed" if differences else "no differences by seed")
    elif not math.isfinite(found.mean):
        reasons.append("a seed without a figure")
    elif claim.foreseen is not None:
        if claim.margin and claim.foreseen > abs(claim.margin):
            reasons.append(f"half-width foreseen: {claim.foreseen:g}, above the margin")
        elif not claim.margin and abs(found.mean) < claim.foreseen:
            reasons.append(f"smaller than the half-width foreseen, {claim.foreseen:g}")
    if reasons:
        return Verdict("undecided", tuple(reasons))
    _, low, high = found.interval
    return Verdict("held" if low > claim.margin else "not held" if high < claim.margin else "undecided")
