"""Ratings of players from pairwise results: the Bradley-Terry model by maximum likelihood, in Elo units.

P(i beats j) = 1 / (1 + exp(t_j - t_i)); a draw counts as half a win for each side; a rating is t x 400 / ln 10, so that
400 points are odds of 10 to 1. Source: Bradley and Terry, Biometrika 39 (1952), 324-345.

A small prior keeps undefeated players finite: to every pair that met, `PRIOR` of a win is added for each side. For two
players the difference is then 400 log10((w + 1/2) / (l + 1/2)) (the correction of Haldane and Anscombe).
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from dfc.evaluation.statistics import Z_95, Interval

ELO = 400 / math.log(10)  # points per unit of t
PRIOR = 0.5  # wins for each side of a pair that met
_STEPS = 200
_ENOUGH = 1e-10  # of a Newton step


@dataclasses.dataclass(frozen=True)
class Rating:
    """One line of a rating table.

    Attributes:
      elo: the rating with its interval; nan where no chain of games leads from the anchor (or, without one, from the
        most players) to this player.
      games: that the player took part in.
      points: wins + draws / 2 of them.
    """

    elo: Interval
    games: float
    points: float


def bradley_terry(
    players: Sequence[str],
    points: Mapping[tuple[str, str], float],
    *,
    anchor: str | None = None,
    prior: float = PRIOR,
    z: float = Z_95,
) -> dict[str, Rating]:
    """Returns each player's rating.

    Intervals come from the inverse of the Hessian of the log-likelihood at its maximum, prior included, for the
    difference to the anchor (or to the mean): they treat games as independent, and draws as half wins make them a
    little too wide. The anchor's own has no width. `points` has (i, j) -> what i won against j: wins + draws / 2; (j,
    i) holds j's part of the same games. The anchor is rated 0; None: the mean of all is 0. To each side of every pair
    that met, `prior` wins are added; 0 gives the plain maximum, which does not exist where a player won or lost
    everything. `z` is a normal quantile, above 0.

    Raises:
      ValueError: the anchor is no player, a count is negative, or without a prior the ratings have no maximum.
    """
    names = list(players)
    if anchor is not None and anchor not in names:
        raise ValueError(f"anchor must be one of {', '.join(names)}, got {anchor!r}")
    won = np.zeros((len(names), len(names)))
    for (i, j), count in points.items():
        if count < 0 or i == j:
            raise ValueError(f"points of {i!r} against {j!r} must be 0 or more and between two players, got {count}")
        won[names.index(i), names.index(j)] += count
    met = won + won.T
    linked = _linked(met > 0, None if anchor is None else names.index(anchor))
    strength, spread = _maximum(won[np.ix_(linked, linked)], prior)
    place = {player: at for at, player in enumerate(linked)}
    zero = None if anchor is None else place[names.index(anchor)]
    found = {}
    for number, name in enumerate(names):
        elo = Interval(math.nan, -math.inf, math.inf)
        if number in place:
            at = place[number]
            if zero is None:
                value, variance = strength[at], spread[at, at]
            else:
                value = strength[at] - strength[zero]
                variance = spread[at, at] + spread[zero, zero] - 2 * spread[at, zero]
            half = z * math.sqrt(max(0.0, float(variance)))
            elo = Interval(*(ELO * float(x) for x in (value, value - half, value + half)))
        found[name] = Rating(elo, float(met[number].sum()), float(won[number].sum()))
    return found


def _linked(met: np.ndarray, anchor: int | None) -> list[int]:
    """Returns the players that a chain of games joins to the anchor; without one, the largest such set."""
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415 - slow to import, needed by tournaments alone

    labels = connected_components(met, directed=False)[1]
    label = (np.bincount(labels).argmax() if len(met) else 0) if anchor is None else labels[anchor]
    found: list[int] = np.flatnonzero(labels == label).tolist()
    return found


def _maximum(won: np.ndarray, prior: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the strengths [n], mean 0, that maximize the likelihood, and their covariance [n, n]."""
    won = won + prior * ((won + won.T) > 0)
    met = won + won.T
    strength = np.zeros(len(won))
    likelihood = _log_likelihood(won, strength)
    for _ in range(_STEPS):
        expected = 1 / (1 + np.exp(strength[None, :] - strength[:, None]))
        gradient = (won - met * expected).sum(axis=1)
        step = _pseudo_inverse(met * expected * (1 - expected)) @ gradient
        if np.abs(step).max(initial=0.0) < _ENOUGH:
            return strength, _pseudo_inverse(met * expected * (1 - expected))
        share = 1.0
        while share > 1e-6:  # the likelihood is concave: some part of a Newton step always increases it
            after = strength + share * step
            new = _log_likelihood(won, after)
            if new >= likelihood:
                break
            share /= 2
        strength, likelihood = after, new
        if np.abs(strength).max() > 50:  # odds of 10^21
            break
    raise ValueError("the ratings have no maximum: a player won or lost every game; use a prior above 0")


def _log_likelihood(won: np.ndarray, strength: np.ndarray) -> float:
    return float(-(won * np.logaddexp(0, strength[None, :] - strength[:, None])).sum())


def _pseudo_inverse(weights: np.ndarray) -> np.ndarray:
    """Returns the pseudo-inverse of the Laplacian of weights [n, n]: all strengths moved together change nothing."""
    laplacian = np.diag(weights.sum(axis=1)) - weights
    found: np.ndarray = np.linalg.pinv(laplacian, hermitian=True)
    return found
