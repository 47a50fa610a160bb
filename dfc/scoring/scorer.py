"""The one form of every reward of texts: queries and answers in, values and which of them are valid."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from dfc.errors import DfcError

LONGEST_ANSWER = 200_000  # characters of a text that a checker looks at; a policy's text is bounded by its tokens
PATIENCE = 64  # answers after which a judge must have given a mark or a verdict


class ScoringError(DfcError):
    """Answers cannot be scored at all: a part is missing, or the scorer does not work."""


@dataclasses.dataclass(frozen=True)
class Scores:
    """The result of scoring n answers.

    Attributes:
      values: float32 [n]; 0 where `mask` is False.
      mask: bool [n], which answers could be scored. A wrong answer is scored, with a low value; where the scorer itself
        failed (no reference for the query, a judge that gave no verdict) nothing is known of the answer.
      counts: how often each thing happened, by its name, such as ``passed`` or ``time_limit``.
      verdicts: what happened to each answer, by the names of `counts`.
      means: of a sum of several scorers, each one's mean value over the answers that it scored, by its name.
      unscored: of a sum, how many answers each scorer could not score, by its name; those that scored all are left out.
    """

    values: np.ndarray
    mask: np.ndarray
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    verdicts: tuple[str, ...] = ()
    means: Mapping[str, float] = dataclasses.field(default_factory=dict)
    unscored: Mapping[str, int] = dataclasses.field(default_factory=dict)


class Scorer(Protocol):
    """Scores answers; safe to call again, and not from two threads at once unless it says so."""

    def __call__(self, queries: Sequence[str], answers: Sequence[str]) -> Scores:
        """Returns a value of each answer to the query of the same place.

        Answers are untrusted: whatever they hold, they cost bounded time and memory.

        Raises:
          ValueError: not as many queries as answers.
          ScoringError: nothing can be scored.
        """


def checked_pairs(queries: Sequence[str], answers: Sequence[str]) -> list[tuple[str, str]]:
    """Returns queries with their answers.

    Raises:
      ValueError: not as many queries as answers.
    """
    if len(queries) != len(answers):
        raise ValueError(f"expected as many answers as queries, got {len(answers)} and {len(queries)}")
    return list(zip(queries, answers, strict=True))


def scores_of(found: Iterable[tuple[float | None, str]]) -> Scores:
    """Returns the scores of (value, what happened) of each answer; a value of None could not be scored.

    >>> scores_of([(1.0, "passed"), (None, "no_reference"), (0.0, "failed")]).mask.tolist()
    [True, False, True]
    """
    every = list(found)
    counts: dict[str, int] = {}
    for _, what in every:
        counts[what] = counts.get(what, 0) + 1
    values = np.asarray([0.0 if value is None else value for value, _ in every], np.float32)
    mask = np.asarray([value is not None for value, _ in every], bool)
    return Scores(values, mask, counts, tuple(what for _, what in every))


def scores_of_each(
    score: Callable[[str, str], tuple[float | None, str]],
    pairs: Sequence[tuple[str, str]],
    workers: int,
    check_stop: Callable[[], None],
) -> Scores:
    """Returns the scores of (query, answer) pairs, several of them scored at once.

    `score` is of one pair, as for `scores_of`, and called from several threads, for as many answers at once as there
    are `workers`. `check_stop` is called in this thread after each answer, in their order. Its exception aborts the
    scoring: answers that have begun are waited for, the others do not begin.
    """
    found = []
    pool = ThreadPoolExecutor(workers)
    try:
        for one in [pool.submit(score, *pair) for pair in pairs]:
            found.append(one.result())
            check_stop()
    finally:
        pool.shutdown(cancel_futures=True)
    return scores_of(found)
