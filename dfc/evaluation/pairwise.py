"""Verdicts on pairs of answers as figures: wins, ties, losses and win rates of every policy by data set."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dfc.evaluation.statistics import Interval, mean_or_nan, score_interval, wilson_interval

Key = tuple[str, str, int]
"""Whose answer, whose answer it is compared with, number of the instruction."""

OVERALL = "overall"  # all data sets together, every instruction weighing the same


def is_comparison(record: Mapping[str, Any]) -> bool:
    """Returns whether a record is a judge's, and no answer."""
    return "compared" in record


def key(record: Mapping[str, Any]) -> Key:
    """Returns what names the comparison of a record."""
    return record["compared"], record["baseline"], record["instruction"]


class Preferences(NamedTuple):
    """How one policy's answers to the instructions of one data set compared with the baseline's.

    Attributes:
      wins: the judge prefers the policy's answer in both orders.
      ties: everything else that has a verdict in both orders.
      losses: the judge prefers the baseline's in both orders.
      split: ties in which the two orders prefer different answers, or only one of them prefers one.
      identical: ties of two equal answers, about which the judge was not asked.
      unjudged: pairs without a verdict in both orders; excluded from all other figures but the lengths.
      ties_half: win rate with a tie as half a win, with its interval of 95 %.
      ties_lost: win rate with a tie as a loss, with Wilson's interval of 95 %.
      characters: mean length of the policy's answers, in characters.
      baseline_characters: mean length of the baseline's.
    """

    wins: int
    ties: int
    losses: int
    split: int
    identical: int
    unjudged: int
    ties_half: Interval
    ties_lost: Interval
    characters: float
    baseline_characters: float


def preferences(records: Iterable[Mapping[str, Any]]) -> Preferences:
    """Returns the figures of one policy on one data set; nan where there is nothing to take a mean of.

    Both win rates are shares of the pairs with a verdict. A policy beside a copy of itself is expected to have 1/2 with
    ties as halves, and (1 - share of ties) / 2 with ties as losses.
    """
    every = list(records)
    wins, ties, losses = (sum(one["outcome"] == outcome for one in every) for outcome in ("win", "tie", "loss"))
    judged = wins + ties + losses
    return Preferences(
        wins,
        ties,
        losses,
        sum(one["outcome"] == "tie" and one["forward"] != one["backward"] for one in every),
        sum(one["identical"] for one in every),
        len(every) - judged,
        score_interval(wins, ties, losses),
        wilson_interval(wins, judged),
        mean_or_nan([one["characters"] for one in every]),
        mean_or_nan([one["baseline_characters"] for one in every]),
    )


def by_dataset(
    records: Iterable[Mapping[str, Any]], compared: Sequence[str], datasets: Sequence[str]
) -> dict[tuple[str, str], Preferences]:
    """Returns the figures by (policy, data set), every policy's on all data sets together (`OVERALL`) first.

    Policies and data sets are in the order given; of a pair that is on record several times the last one counts.
    """
    newest = {key(record): record for record in records if is_comparison(record)}
    of: dict[tuple[str, str], list[Mapping[str, Any]]] = {(p, d): [] for d in (OVERALL, *datasets) for p in compared}
    for record in newest.values():
        for name in {OVERALL, record["dataset"]}:
            if (place := of.get((record["compared"], name))) is not None:
                place.append(record)
    return {setting: preferences(rows) for setting, rows in of.items()}
