"""Rewards for answers to queries of families, apart from these so that reading a configuration needs no numpy."""

import dataclasses
from collections.abc import Sequence

from dfc.methods.language_self_play import families
from dfc.scoring.scorer import Scores, checked_pairs, scores_of


@dataclasses.dataclass(frozen=True)
class FamiliesScorer:
    """Rewards 1 for the right answer to a query of a family, else 0; one to a query of no family has the reward 0.

    Attributes:
      names: those that count.
    """

    names: tuple[str, ...] = tuple(families.FAMILIES)

    def __call__(self, queries: Sequence[str], answers: Sequence[str]) -> Scores:
        """Returns values and what happened: ``right``, ``wrong``, ``no_family``; see `dfc.scoring.scorer.Scorer`."""
        problems = {query: families.read(query, self.names) for query in set(queries)}

        def one(query: str, answer: str) -> tuple[float, str]:
            problem = problems[query]
            if problem is None:
                return 0.0, "no_family"
            right = families.is_right(answer, problem.truth)
            return float(right), "right" if right else "wrong"

        return scores_of(one(query, answer) for query, answer in checked_pairs(queries, answers))
