"""What both roles earn, and their advantages: from the rewards of answers, marks, and which queries are bad."""

import dataclasses
import math
from typing import Literal

import numpy as np

from dfc import advantages

Rule = Literal["worst", "as_is"]


@dataclasses.dataclass(frozen=True)
class RoleAdvantages:
    """Advantages of the roles in an iteration of N queries with G answers each.

    Attributes:
      values: float64 [N], V, the mean of R over the scored answers, of R alone; 0 where there are none.
      solver: float64 [N, G], A_Sol.
      trained_answers: bool [N, G], which answers are in the Solver's loss.
      challenger: float64 [N], A_Ch; all 0 where no query is usable.
      trained_queries: bool [N], which queries are in the Challenger's loss.
      usable: bool [N], which queries have a scored answer and are not penalised.
      unsolved: bool [N], which queries are penalised since no scored answer has a reward above 0.
    """

    values: np.ndarray
    solver: np.ndarray
    trained_answers: np.ndarray
    challenger: np.ndarray
    trained_queries: np.ndarray
    usable: np.ndarray
    unsolved: np.ndarray


def role_advantages(
    rewards: np.ndarray,
    marks: np.ndarray,
    mask: np.ndarray,
    bad: np.ndarray,
    *,
    weight: float,
    bad_queries: Rule = "as_is",
    unsolved_queries: Rule = "as_is",
    margin: float = 0.0,
) -> RoleAdvantages:
    """Returns advantages of both roles, and what each loss is over.

    With as_is twice: A_Sol = solver(R + w R_Q) and A_Ch = challenger(R - w R_Q), whose rewards of the Challenger are
    r = -V + w V_Q, V of R alone (`dfc.advantages`). Where the rule says ``worst``, a query that is bad or unsolved
    earns, instead, with r over the usable queries::

        min(r) - max(max(r) - min(r), margin)

    so its advantage is below that of every usable query by the spread of these and by the margin at least, however
    few are usable (up to rounding). An unsolved query that earns less than that by itself keeps it. A_Ch is r less its
    mean over the queries that count. Where no query is usable there is nothing to compare with, and A_Ch is 0 for all.
    A query without a scored answer drops out, but for a bad one that is penalised: it need not be answered at all.

    Args:
      rewards: floating [N, G], R.
      marks: floating [N, G], R_Q.
      mask: bool [N, G], which answers were scored, by R and, with a weight, by the judge.
      bad: bool [N], which queries `dfc.methods.language_self_play.hygiene` objects to.
      weight: w, 0 or more.
      bad_queries: ``worst``: what is wrong with the Challenger's query costs it, and teaches the Solver nothing.
      unsolved_queries: ``worst``: so does a query of which no scored answer has a reward above 0.
      margin: of the penalty, in units of r; above 0 with a rule ``worst`` (`dfc.methods.language_self_play.penalty`).

    Raises:
      ValueError: the margin is not finite, or not above 0 with a rule ``worst``.

    Source: Language Self-Play (arXiv 2509.07414), section 3. Departures: mask and both rules.
    """
    if not (math.isfinite(margin) and (margin > 0 or bad_queries == unsolved_queries == "as_is")):
        raise ValueError(f"role_advantages: margin must be finite, and above 0 with a rule 'worst', got {margin}")
    rewards, marks = np.where(mask, rewards, 0.0), np.where(mask, marks, 0.0)
    left_out = bad if bad_queries == "worst" else np.zeros_like(bad)
    answers = mask & ~left_out[:, None]
    scored = answers.any(axis=1)
    count = np.maximum(answers.sum(axis=1), 1)
    values = np.where(answers, rewards, 0.0).sum(axis=1) / count
    own = np.where(answers, weight * marks - rewards, 0.0).sum(axis=1) / count  # r of the Challenger
    unsolved = np.zeros_like(bad)
    if unsolved_queries == "worst":
        unsolved = scored & ~(np.where(answers, rewards, 0.0) > 0).any(axis=1)
    punished = left_out | unsolved
    usable, queries = scored & ~punished, scored | punished
    if usable.any():
        least, most = own[usable].min(), own[usable].max()
        penalised = least - max(most - least, margin)
        own = np.where(punished, np.where(scored, np.minimum(penalised, own), penalised), own)
    else:
        own = np.zeros_like(own)
    return RoleAdvantages(
        values=values,
        solver=advantages.solver(rewards + weight * marks, mask=answers),
        trained_answers=answers,
        # challenger(-r) = mean(-r) + r, the mean over the queries that count.
        challenger=advantages.challenger(-own[:, None], mask=queries[:, None]),
        trained_queries=queries,
        usable=usable,
        unsolved=unsolved,
    )
