"""One rule for every verdict: held beyond the margin, not held short of it, else undecided; with its reasons."""

import math

import pytest
from scipy import stats

from dfc.evaluation.claims import Claim, Clause, Verdict, verdict

ALIKE = (5.0, 6.0, 5.5)  # Student: 5.5 +- 4.303 x 0.5 / sqrt(3) = [4.26, 6.74]


def word(differences, **claim):
    return verdict(Claim("", **claim), differences).word


@pytest.mark.parametrize(
    ("differences", "claim", "expected"),
    [
        (ALIKE, {}, "held"),
        (ALIKE, {"sign": -1}, "not held"),
        ([-d for d in ALIKE], {"sign": -1}, "held"),
        ((5.0, 6.0, 40.0), {}, "undecided"),  # the interval of three such values holds 0
        ((5.0, -1.0, 2.0), {}, "undecided"),
        ((-5.0, -1.0, -40.0), {}, "undecided"),  # every seed says the opposite: once in four times by chance
        (ALIKE, {"margin": 4.2}, "held"),
        (ALIKE, {"margin": 4.3}, "undecided"),
        (ALIKE, {"margin": 6.7}, "undecided"),
        (ALIKE, {"margin": 6.8}, "not held"),
        # "Does not help": a gain of at most 2.
        ((-5.0, 0.0, -1.0), {"sign": -1, "margin": -2.0}, "undecided"),
        ((-1.0, 0.0, -1.0), {"sign": -1, "margin": -2.0}, "held"),
        (ALIKE, {"sign": -1, "margin": -2.0}, "not held"),
        ((1.0, 1.0, 1.0), {}, "held"),
        ((0.0, 0.0, 0.0), {}, "undecided"),
    ],
)
def test_a_claim_is_held_or_not_by_where_its_interval_lies_to_the_margin(differences, claim, expected):
    assert verdict(Claim("", **claim), differences) == Verdict(expected)


def test_the_interval_is_students_over_seeds():
    """Oracle: scipy's interval, by the margins just inside and outside of it."""
    differences = [1.0, 2.5, 2.0, 4.0, 3.5]
    low, high = stats.t.interval(0.95, 4, loc=2.6, scale=stats.sem(differences))
    assert [word(differences, margin=m) for m in (low - 0.001, low + 0.001, high - 0.001, high + 0.001)] == [
        "held",
        "undecided",
        "undecided",
        "not held",
    ]


@pytest.mark.parametrize(
    ("differences", "reason"),
    [((), "no differences by seed"), ((50.0,), "one seed"), ((5.0, math.nan, 5.0), "a seed without a figure")],
)
def test_fewer_than_two_seeds_decide_nothing(differences, reason):
    assert verdict(Claim(""), differences) == Verdict("undecided", (reason,))


@pytest.mark.parametrize("kind", ["chosen on result seeds", "confounded", "floor or ceiling", "seen afterwards"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_clause_leaves_a_claim_undecided_whatever_its_interval_and_is_printed(kind, sign):
    found = verdict(Claim("", sign, clauses=(Clause(kind, "why"), Clause("confounded", "so"))), ALIKE)
    assert found.word == "undecided"
    assert str(found) == f"undecided ({kind}: why; confounded: so)"


def test_a_difference_below_the_half_width_foreseen_is_undecided_where_the_margin_is_zero():
    assert str(verdict(Claim("", foreseen=5.6), ALIKE)) == "undecided (smaller than the half-width foreseen, 5.6)"
    assert str(verdict(Claim("", -1, foreseen=5.6), ALIKE)) == "undecided (smaller than the half-width foreseen, 5.6)"
    assert word(ALIKE, foreseen=5.4) == "held"
    assert word(ALIKE, sign=-1, foreseen=5.4) == "not held"
    assert word(ALIKE) == "held"  # nothing was foreseen


def test_a_half_width_foreseen_above_the_margin_leaves_every_difference_undecided():
    assert (
        str(verdict(Claim("", margin=2, foreseen=2.5), ALIKE))
        == "undecided (half-width foreseen: 2.5, above the margin)"
    )
    assert word([100 * d for d in ALIKE], margin=2.0, foreseen=2.5) == "undecided"
    assert word(ALIKE, sign=-1, margin=-2.0, foreseen=2.5) == "undecided"
    assert word(ALIKE, margin=2.0, foreseen=2.0) == "held"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sign": 0}, "claim 'it grows': sign must be 1 or -1, got 0"),
        ({"margin": math.nan}, "margin must be finite, got nan"),
        ({"foreseen": 0.0}, "foreseen must be above 0 and finite, or None, got 0.0"),
        ({"foreseen": -1.0}, "foreseen must be above 0"),
    ],
)
def test_a_claim_that_says_nothing_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Claim("it grows", **values)
