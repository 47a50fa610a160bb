"""Rewards of one trajectory from how its game ended, and which trajectories to train on. No JAX."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

LARGEST = 1e12
"""Size of a reward above which none is learned from: sums of squares of its gradients come near the largest float32."""

OUTCOME_REWARDS = {"win": 1.0, "draw": 0.0, "loss": -1.0, "invalid": -1.0, "truncated": 0.0}


def format_reward(valid: bool, *, invalid: float = -2.0) -> float:
    """R_format: 0 for a trajectory whose replies could be played, `invalid` for one ended by a reply that could not.

    Args:
      valid: whether no reply of this seat ended the game.
      invalid: the reward of an invalid end; below 0.

    Raises:
      ValueError: `invalid` is not below 0 (step_reward tells the two cases apart by the sign).

    Source: Divide-Fuse-Conquer (arXiv 2505.16401), section 3.2.3, Table 1.

    >>> format_reward(True), format_reward(False)
    (0.0, -2.0)
    """
    if not invalid < 0:
        raise ValueError(f"format_reward: invalid must be below 0, got {invalid}")
    return 0.0 if valid else float(invalid)


def outcome_reward(outcome: str) -> float:
    """R_env: 1 for a win, 0 for a draw, -1 for a loss.

    Args:
      outcome: `win`, `draw`, `loss`, `invalid` or `truncated` (a `dfc.games` outcome is such a string).

    Raises:
      ValueError: any other word.

    Source: Divide-Fuse-Conquer (arXiv 2505.16401), section 3.2.3, Table 1. Departures, for two ends the table does not
    name: `invalid` is a loss (-1; its format reward, if used, overrides it), `truncated` is worth 0, because no rule
    decided the game.

    >>> [outcome_reward(o) for o in ("win", "draw", "loss", "invalid", "truncated")]
    [1.0, 0.0, -1.0, -1.0, 0.0]
    """
    if outcome not in OUTCOME_REWARDS:
        raise ValueError(f"outcome_reward: outcome must be one of {', '.join(OUTCOME_REWARDS)}, got {outcome!r}")
    return OUTCOME_REWARDS[outcome]


def step_reward(format_reward: float, outcome_reward: float, steps: int) -> float:
    """R_step: the reward of a trajectory with the hasty-action penalty.

    ::

        R_step = R_format        if R_format < 0
                 R_env / steps   if R_env > 0
                 R_env           otherwise

    Args:
      format_reward: R_format of the trajectory.
      outcome_reward: R_env of the trajectory.
      steps: n_tau, the number of steps of the trajectory; 1 or more for a win.

    Raises:
      ValueError: a win in fewer than one step.

    Source: Divide-Fuse-Conquer (arXiv 2505.16401), section 3.2.3, Table 1.

    >>> step_reward(0.0, 1.0, 4), step_reward(-2.0, -1.0, 4), step_reward(0.0, -1.0, 4)
    (0.25, -2.0, -1.0)
    """
    if format_reward < 0:
        return format_reward
    if outcome_reward <= 0:
        return outcome_reward
    if steps < 1:
        raise ValueError(f"step_reward: a won trajectory has at least one step, got steps={steps}")
    return outcome_reward / steps


def keep_half_of_negatives(values: ArrayLike, seed: int, *, share: float = 0.5) -> NDArray[np.bool_]:
    """Which trajectories to keep when a share of the negative ones is dropped at random.

    Exactly floor(share * n) of the n values below 0 are dropped, every subset of that size being equally likely; a
    single negative value is therefore kept. Values of 0 and above are always kept. The same values and seed give the
    same choice on every machine.

    Args:
      values: [trajectories], finite; rewards or advantages, whichever decides what a negative sample is.
      seed: 0 or more.
      share: in [0, 1].

    Returns:
      bool [trajectories], True for those to keep.

    Raises:
      ValueError: values are not finite with one axis, or seed or share are out of range.

    Source: Divide-Fuse-Conquer (arXiv 2505.16401), section 3.2.3, "Half-negative".

    >>> kept = keep_half_of_negatives([1.0, -1.0, -2.0, 0.0, -1.0, -1.0], seed=0)
    >>> int(kept.sum()), bool(kept[0]), bool(kept[3])
    (4, True, True)
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(f"keep_half_of_negatives: values must be finite with one axis, got {array!r}")
    if not 0 <= share <= 1:
        raise ValueError(f"keep_half_of_negatives: share must be in [0, 1], got {share}")
    if seed < 0:
        raise ValueError(f"keep_half_of_negatives: seed must be 0 or more, got {seed}")
    negative = np.flatnonzero(array < 0)
    # A product such as 0.29 * 100 is just below the intended whole number.
    dropped = math.floor(share * len(negative) + 1e-9)
    chosen = np.random.Generator(np.random.Philox(seed)).permutation(negative)[:dropped]
    keep = np.ones(array.shape, np.bool_)
    keep[chosen] = False
    return keep
