"""Which games and task groups to play next. numpy in float64; no JAX."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray


def mixed_priority_weights(
    win_rates: ArrayLike, *, a: float = 0.2, b: float = 0.8, floor: float = 0.1
) -> NDArray[np.float64]:
    """Sampling weight of each game: high for rarely won games and for those won about half the time.

    With WR the win rate of the previous iteration::

        W = a max(floor, 1 - WR) + b WR (1 - WR)

    Args:
      win_rates: [games], each in [0, 1].
      a: weight of the linear-capped priority; 0 or more.
      b: weight of the variance priority; 0 or more.
      floor: epsilon_1, the least linear priority, so that a mastered game is still played; 0 or more.

    Returns:
      float64 [games], not normalised.

    Raises:
      ValueError: a number out of its range, or not one axis.

    Source: Divide-Fuse-Conquer (arXiv 2505.16401), section 3.2.3 (Mixed Prioritized Sampling); a, b and epsilon_1 from
    section 4.2.

    >>> [round(float(w), 3) for w in mixed_priority_weights([0.0, 0.5, 1.0])]
    [0.2, 0.3, 0.02]
    """
    rates = np.asarray(win_rates, np.float64)
    if rates.ndim != 1 or not ((rates >= 0) & (rates <= 1)).all():
        raise ValueError(f"mixed_priority_weights: win_rates must be numbers in [0, 1] along one axis, got {rates!r}")
    for name, value in (("a", a), ("b", b), ("floor", floor)):
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"mixed_priority_weights: {name} must be 0 or more, got {value}")
    weights: NDArray[np.float64] = a * np.maximum(floor, 1 - rates) + b * rates * (1 - rates)
    return weights


def allocate_seeds(weights: ArrayLike, budget: int, *, minimum: int = 0) -> NDArray[np.int64]:
    """Shares a budget of rollout seeds out in proportion to weights, in whole numbers that sum to it exactly.

    Every game first gets `minimum`; of the rest R, game i's quota is::

        R W_i / sum_j W_j

    Each quota is rounded down and the remainder goes, one each, to the largest remainders (ties: the earlier game).
    If all weights are 0, all quotas are equal. The arithmetic is exact, so every host finds the same numbers.

    Args:
      weights: [games], finite, 0 or more.
      budget: S, the number of seeds for all games together.
      minimum: seeds that every game gets whatever its weight; 0 or more.

    Returns:
      int64 [games].

    Raises:
      ValueError: no games, a number out of its range, or a budget smaller than games * minimum.

    Source: Divide-Fuse-Conquer (arXiv 2505.16401), section 3.2.3. The paper's denominator sums a symbol M that it does
    not define; W is meant. Departures: the rounding, which the paper leaves open, and `minimum`.

    >>> allocate_seeds([1.0, 1.0, 4.0], 10).tolist()
    [2, 2, 6]
    """
    array = np.asarray(weights, np.float64)
    if array.ndim != 1 or array.size == 0 or not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"allocate_seeds: weights must be finite, 0 or more, along one non-empty axis, got {array!r}")
    if minimum < 0:
        raise ValueError(f"allocate_seeds: minimum must be 0 or more, got {minimum}")
    rest = budget - minimum * array.size
    if rest < 0:
        raise ValueError(
            f"allocate_seeds: a budget of {budget} cannot give {array.size} games {minimum} seeds each;"
            f" it takes {minimum * array.size}"
        )
    exact = [Fraction(float(w)) for w in array] if array.any() else [Fraction(1)] * array.size
    quotas = [rest * w / sum(exact) for w in exact]
    seeds = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(array.size), key=lambda i: seeds[i] - quotas[i])
    for i in by_remainder[: rest - sum(seeds)]:
        seeds[i] += 1
    return np.asarray(seeds, np.int64) + minimum


def coefficient_of_variation(turns: ArrayLike) -> float:
    """Spread of one task's results relative to their mean: how much there is to learn from it.

    With s the sample standard deviation (divisor n - 1), corrected for small n::

        nu = (1 + 1 / (4 n)) s / mean

    Args:
      turns: [n], n at least 2: turns each trajectory took, the task's largest number where it failed; or other scores
        above 0 on average.

    Raises:
      ValueError: fewer than two numbers, a number that is not finite, or a mean that is not above 0.

    Source: Paprika (arXiv 2502.17543), section 3.4, eq. 4, and its appendix for the estimator (unbiased for normally
    distributed data).

    >>> round(coefficient_of_variation([2, 4]), 6)  # 9/8 sqrt(2) / 3
    0.53033
    """
    array = np.asarray(turns, np.float64)
    if array.ndim != 1 or array.size < 2 or not np.isfinite(array).all():
        raise ValueError(f"coefficient_of_variation: needs two or more finite numbers along one axis, got {array!r}")
    mean = float(array.mean())
    if not mean > 0:
        raise ValueError(f"coefficient_of_variation: the mean must be above 0, got {mean}")
    return (1 + 1 / (4 * array.size)) * float(array.std(ddof=1)) / mean


def ucb_scores(
    means: ArrayLike, counts: ArrayLike, total: int | None = None, *, c: float = math.sqrt(2)
) -> NDArray[np.float64]:
    """Upper confidence bounds of task groups; the next task comes from the group with the largest.

    For a group tried n_k times with mean result m_k::

        theta_k = m_k + c sqrt(log(total) / n_k)

    A group never tried has the score infinity, so every group is tried once first (`numpy.argmax` takes the earliest).

    Args:
      means: [groups], mean of `coefficient_of_variation` over the group's tasks so far; ignored where the count is 0.
      counts: int [groups], how often the group was chosen.
      total: rounds played; None takes the sum of counts.
      c: width of the bound, 0 or more; the paper's is sqrt(2).

    Returns:
      float64 [groups].

    Raises:
      ValueError: shapes differ, a count is negative, a mean that counts is not finite, `total` is smaller than a
        count, or c is negative.

    Source: Paprika (arXiv 2502.17543), section 3.4, Algorithm 1, line 4, with s_k / n_k = m_k. Departure: the paper
    does not say what a count of 0 gives.

    >>> [round(float(x), 3) for x in ucb_scores([0.5, 0.2, 0.0], [3, 1, 0])]
    [1.461, 1.865, inf]
    """
    values = np.asarray(means, np.float64)
    tried = np.asarray(counts)
    if values.ndim != 1 or values.shape != tried.shape:
        raise ValueError(f"ucb_scores: means and counts must be [groups], got {values.shape} and {tried.shape}")
    if not np.issubdtype(tried.dtype, np.integer) or (tried < 0).any():
        raise ValueError(f"ucb_scores: counts must be whole numbers, 0 or more, got {tried!r}")
    visited = tried > 0
    if not np.isfinite(values[visited]).all():
        raise ValueError(f"ucb_scores: means of groups that were tried must be finite, got {values!r}")
    if not (c >= 0 and math.isfinite(c)):
        raise ValueError(f"ucb_scores: c must be 0 or more, got {c}")
    rounds = int(tried.sum()) if total is None else total
    if rounds < tried.max(initial=0):
        raise ValueError(f"ucb_scores: total is {rounds}, smaller than the count {tried.max(initial=0)}")
    scores = np.full(values.shape, np.inf)
    if visited.any():
        scores[visited] = values[visited] + c * np.sqrt(math.log(rounds) / tried[visited])
    return scores


class UpperConfidenceBound:
    """Chooses task groups by `ucb_scores`, several before the results of the first are known.

    A choice whose result is not known yet counts as if it had brought the group's mean so far (or nothing, for a group
    never seen), so that choices made together spread over the groups. One at a time it is the paper's Algorithm 1. A
    choice that brought no result counts as one (n_k of `ucb_scores`), but not in the mean.

    Attributes:
      counts: choices of every group so far, with a result or without, int64 [groups].
      means: of the results, float64 [groups], 0 where there are none.

    Args:
      groups: how many there are.
      c: as for `ucb_scores`.

    Raises:
      ValueError: there is no group, or c is negative.

    Source: Paprika (arXiv 2502.17543), Algorithm 1; several at a time is what section 3.4 expects to work.

    >>> bound = UpperConfidenceBound(2)
    >>> bound.choose(3)  # both groups once, then the first of equals
    [0, 1, 0]
    >>> bound.observe(0, 0.1); bound.observe(1, 0.9); bound.choose(1)
    [1]
    """

    def __init__(self, groups: int, *, c: float = math.sqrt(2)) -> None:
        if groups < 1 or not c >= 0:
            raise ValueError(f"UpperConfidenceBound: needs a group and c of 0 or more, got {groups} and {c}")
        self._c = c
        self._sums = np.zeros(groups)
        self._results = np.zeros(groups, np.int64)
        self.counts = np.zeros(groups, np.int64)

    @property
    def means(self) -> NDArray[np.float64]:
        """Mean result of every group, 0 for those without."""
        means: NDArray[np.float64] = self._sums / np.maximum(self._results, 1)
        return means

    def choose(self, count: int) -> Sequence[int]:
        """Returns the next groups; their results, or that there is none, are to be observed before the next choice."""
        pending, chosen = self.counts.copy(), []
        for _ in range(count):
            group = int(np.argmax(ucb_scores(self.means, pending, c=self._c)))
            pending[group] += 1
            chosen.append(group)
        return chosen

    def observe(self, group: int, result: float) -> None:
        """Adds the result of one task of a group, such as its `coefficient_of_variation`."""
        self._sums[group] += result
        self._results[group] += 1
        self.counts[group] += 1

    def observe_nothing(self, group: int) -> None:
        """Records that a choice of a group brought no result: it counts as made, so its group has been tried."""
        self.counts[group] += 1
