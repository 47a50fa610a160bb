"""Advantages from the rewards of groups: how much better a trajectory did than its siblings.

Every function takes a numpy or a jax array and returns one of the same kind. Rewards are constants: callers
differentiate losses, not these.
"""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Array = TypeVar("Array", np.ndarray, jax.Array)


def group_relative(
    rewards: Array, *, normalize_std: bool = True, epsilon: float = 1e-4, mask: Array | None = None
) -> Array:
    """Advantage of each trajectory within its group (same game, same seed).

    Over the members m of group g that the mask counts::

        A[g, m] = (R[g, m] - mean(R[g])) / (std(R[g]) + epsilon)

    `std` is the sample standard deviation (divisor: members - 1). A group whose rewards are all equal, or with fewer
    than two members, gets exactly 0: there is nothing to tell its members apart.

    Args:
      rewards: floating [groups, size].
      normalize_std: divide by the spread; off, A is the difference to the mean.
      epsilon: 0 or more; keeps small spreads from being blown up.
      mask: [groups, size], nonzero for members that exist; None counts all. What stands elsewhere is ignored.

    Returns:
      Floating [groups, size], 0 where the mask is 0.

    Raises:
      ValueError: shapes, types or epsilon do not fit.

    Source: DeepSeekMath (arXiv 2402.03300), section 4.1.2, which does not say which standard deviation it means;
    Divide-Fuse-Conquer (arXiv 2505.16401), Algorithm 2, line 17. Departures: `epsilon` and `mask`.

    >>> group_relative(np.asarray([[1.0, 0.0, -1.0], [0.5, 0.5, 0.5]]), epsilon=0.0).tolist()
    [[1.0, 0.0, -1.0], [0.0, 0.0, 0.0]]
    """
    xp = _namespace("group_relative", rewards)
    if not epsilon >= 0:
        raise ValueError(f"group_relative: epsilon must be 0 or more, got {epsilon}")
    if mask is None:
        counted = xp.ones(rewards.shape, bool)
    elif mask.shape != rewards.shape:
        raise ValueError(f"group_relative: mask must be [groups, size] = {list(rewards.shape)}, got {list(mask.shape)}")
    else:
        counted = mask.astype(bool)
    kept = xp.where(counted, rewards, 0)
    count = counted.sum(axis=1, keepdims=True).astype(kept.dtype)
    centered = xp.where(counted, kept - kept.sum(axis=1, keepdims=True) / xp.maximum(count, 1), 0)
    # Not "centered is zero": a mean of equal numbers may differ from them in the last bit.
    highest = xp.where(counted, kept, -xp.inf).max(axis=1, keepdims=True)
    lowest = xp.where(counted, kept, xp.inf).min(axis=1, keepdims=True)
    spread = highest > lowest
    if normalize_std:
        variance = xp.square(centered).sum(axis=1, keepdims=True) / xp.maximum(count - 1, 1)
        centered = centered / xp.where(spread, xp.sqrt(variance) + epsilon, 1)
    result: Array = xp.where(spread, centered, 0)
    return result


def solver(rewards: Array) -> Array:
    """Advantage of each answer over the mean of its query's answers.

    With V(q_i) = (1/G) sum_j R(q_i, a_i^j)::

        A[i, j] = R(q_i, a_i^j) - V(q_i)

    Args:
      rewards: floating [queries, answers], R(q_i, a_i^j).

    Returns:
      Floating [queries, answers].

    Raises:
      ValueError: not floating with two axes.

    Source: Language Self-Play (arXiv 2509.07414), section 3, eq. 2 and the line after it.

    >>> solver(np.asarray([[1.0, 3.0], [5.0, 5.0]])).tolist()
    [[-1.0, 1.0], [0.0, 0.0]]
    """
    _namespace("solver", rewards)
    result: Array = rewards - rewards.mean(axis=1, keepdims=True)
    return result


def challenger(rewards: Array) -> Array:
    """Advantage of each query: how much harder than the average query it was for the Solver.

    With V(q_i) the mean reward of query i's answers and V the mean of all V(q_i)::

        A[i] = V - V(q_i)

    Args:
      rewards: floating [queries, answers], R(q_i, a_i^j).

    Returns:
      Floating [queries].

    Raises:
      ValueError: not floating with two axes.

    Source: Language Self-Play (arXiv 2509.07414), section 3, eq. 3.

    >>> challenger(np.asarray([[1.0, 3.0], [5.0, 7.0]])).tolist()
    [2.0, -2.0]
    """
    _namespace("challenger", rewards)
    values = rewards.mean(axis=1)
    result: Array = values.mean() - values
    return result


# Any: the two array modules share the functions used here, but no type.
def _namespace(where: str, rewards: np.ndarray | jax.Array) -> Any:  # noqa: ANN401 - see the line above
    if rewards.ndim != 2 or not jnp.issubdtype(rewards.dtype, jnp.floating):
        raise ValueError(f"{where}: rewards must be floating with two axes, got {rewards.dtype} {list(rewards.shape)}")
    return jnp if isinstance(rewards, jax.Array) else np
