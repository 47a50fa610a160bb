"""Answers on record as figures: accuracy and pass@k by policy and set of questions, with their intervals."""

import collections
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dfc.evaluation.statistics import Interval, mean_or_nan, wilson_interval
from dfc.evaluation.task_statistics import Estimate, estimate, pass_at

Key = tuple[str, str, int, int]
"""Policy, set of questions, number of the question, number of the sample."""


def key(record: Mapping[str, Any]) -> Key:
    """Returns what names the answer of a record."""
    return record["policy"], record["questions"], record["question"], record["sample"]


class Accuracy(NamedTuple):
    """How one policy answered one set of questions.

    Attributes:
      questions: that have a scored answer.
      answers: that were scored.
      unscored: that could not be.
      accuracy: the mean over questions of the share of right answers, with its interval of 95 %: Wilson's where every
        question has one scored answer or all questions have the same result, else Student's over questions.
      pass_at: entry k - 1 is pass@k, over the questions with at least k scored answers.
      cut: share of answers that a limit of tokens cut.
      tokens: mean tokens of an answer.
      verdicts: how often each thing happened.
    """

    questions: int
    answers: int
    unscored: int
    accuracy: Interval
    pass_at: tuple[Estimate, ...]
    cut: float
    tokens: float
    verdicts: Mapping[str, int]


def accuracy(records: Iterable[Mapping[str, Any]], samples: int) -> Accuracy:
    """Returns the figures of one policy's answers to one set of questions; nan where nothing was scored."""
    every = list(records)
    right: dict[int, list[bool]] = collections.defaultdict(list)
    for record in every:
        if record["value"] is not None:
            right[record["question"]].append(record["value"] == 1)
    counts = [(len(found), sum(found)) for found in right.values()]
    mean = estimate(solved / answers for answers, solved in counts)
    if mean.error > 0 and any(answers > 1 for answers, _ in counts):
        bounds = mean.interval
        interval = Interval(mean.mean, max(0.0, bounds.low), min(1.0, bounds.high))
    else:  # where all questions have the same result, an interval of width 0 would overstate a few of them
        shares = math.fsum(solved / answers for answers, solved in counts)
        interval = wilson_interval(min(shares, len(counts)), len(counts))
    scored = sum(answers for answers, _ in counts)
    return Accuracy(
        len(counts),
        scored,
        len(every) - scored,
        interval,
        pass_at(counts, samples),
        mean_or_nan([float(record["cut"]) for record in every]),
        mean_or_nan([float(record["tokens"]) for record in every]),
        dict(sorted(collections.Counter(record["verdict"] for record in every).items())),
    )


def by_setting(
    records: Iterable[Mapping[str, Any]], policies: Sequence[str], sets: Sequence[str], samples: int
) -> dict[tuple[str, str], Accuracy]:
    """Returns the figures of every policy on every set of questions, in this order."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {(p, s): [] for s in sets for p in policies}
    for record in records:
        if (place := found.get((record["policy"], record["questions"]))) is not None:
            place.append(record)
    return {setting: accuracy(rows, samples) for setting, rows in found.items()}
