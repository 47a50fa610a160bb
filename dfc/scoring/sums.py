"""A reward that is a sum of several, each with its weight; and one that is a custom function."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from dfc import multihost, own_code
from dfc.errors import ExitError
from dfc.scoring.scorer import Scorer, Scores, ScoringError, checked_pairs


class OwnFunction:
    """Scores answers by a custom function; a scorer (`dfc.scoring.scorer.Scorer`).

    `function` is (queries, answers) -> a number for each answer; NaN or infinite: it has none. Errors call it `name`.
    """

    def __init__(self, function: Callable[[list[str], list[str]], Any], name: str) -> None:
        self._function, self._name = function, name

    def __call__(self, queries: Sequence[str], answers: Sequence[str]) -> Scores:
        """Returns its numbers.

        Raises:
          ScoringError: it raised something, or what it returned is not a number for each answer.
          ExitError: it called ``sys.exit``.
        """
        if not checked_pairs(queries, answers):  # of an iteration whose queries are all bad
            return Scores(np.zeros(0, np.float32), np.zeros(0, bool))
        wanted = f"{self._name}: expected a number for each of {len(answers)} answers, got"
        try:
            with own_code.no_exit(self._name):
                found = self._function(list(queries), list(answers))
        except ExitError:
            raise
        except Exception as error:
            raise ScoringError(f"{self._name} {own_code.told(error)}") from error
        try:
            values = np.asarray(found, np.float64)  # where a number beyond float32 is one, and no infinity
        except Exception as error:
            raise ScoringError(f"{wanted} {type(found).__name__}, which {own_code.told(error)}") from error
        if values.shape != (len(answers),):
            raise ScoringError(f"{wanted} an array {list(values.shape)}")
        mask = np.isfinite(values)
        with np.errstate(over="ignore"):  # what is too large is refused where it is learned from
            return Scores(np.where(mask, values, 0).astype(np.float32), mask)


class Sum:
    """Scores the weighted sum of what several scorers give; a scorer (`dfc.scoring.scorer.Scorer`).

    An answer that one of them cannot score is not scored at all: the rest of a sum is no smaller reward. Use it in
    a ``with`` statement, whose end closes those that have something to close.

    `parts` are name -> (weight, scorer). Every process of the run calls those named in `everywhere` (a model over all
    devices); the others are called by the first process alone, and its result is sent to all: what depends on a clock
    is decided once.
    """

    def __init__(self, parts: Mapping[str, tuple[float, Scorer]], everywhere: Sequence[str] = ()) -> None:
        self._parts, self._everywhere = dict(parts), frozenset(everywhere)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as stack:
            for _, scorer in self._parts.values():
                if isinstance(scorer, contextlib.AbstractContextManager):
                    stack.push(scorer)

    def __call__(self, queries: Sequence[str], answers: Sequence[str]) -> Scores:
        """Returns the sums; of several parts also each one's mean over the answers that it scored."""
        checked_pairs(queries, answers)
        total, mask = np.zeros(len(answers), np.float32), np.ones(len(answers), bool)
        counts: dict[str, int] = {}
        means: dict[str, float] = {}
        unscored: dict[str, int] = {}
        for name, (weight, scorer) in self._parts.items():
            found = self._scored(name, scorer, queries, answers)
            with np.errstate(over="ignore"):  # as above
                total += np.float32(weight) * np.where(found.mask, found.values, 0)
            mask &= found.mask
            if not found.mask.all():
                unscored[name] = int((~found.mask).sum())
            for what, count in found.counts.items():
                counts[f"{name}/{what}"] = count
            if len(self._parts) > 1 and found.mask.any():
                means[name] = float(found.values[found.mask].mean())
        return Scores(np.where(mask, total, 0), mask, counts, means=means, unscored=unscored)

    def _scored(self, name: str, scorer: Scorer, queries: Sequence[str], answers: Sequence[str]) -> Scores:
        if name in self._everywhere:
            return scorer(queries, answers)

        def here() -> list[Any]:
            if not multihost.is_primary():
                return []
            found = scorer(queries, answers)
            return [found.values.tolist(), found.mask.tolist(), dict(found.counts)]

        values, mask, counts = multihost.broadcast(multihost.on_all_hosts(here))
        return Scores(np.asarray(values, np.float32), np.asarray(mask, bool), counts)
