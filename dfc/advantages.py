"""Advantages from rewards: how much better a trajectory did than its siblings, or than its role usually does.

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
      epsilon: 0 or more; keeps small spreads from being scaled up too much.
      mask: [groups, size], nonzero for members that exist; None counts all. Other values are ignored.

    Returns:
      Floating [groups, size], 0 where the mask is 0.

    Raises:
      ValueError: shapes, types or epsilon do not fit.

    Source: DeepSeekMath (arXiv 2402.03300), section 4.1.2, which does not say which standard deviation it means;
    Divide-Fuse-Conquer (arXiv 2505.16401), Algorithm 2, line 17. Departures: `epsilon` and `mask`.

    >>> group_relative(np.asarray([[1.0, 0.0, -1.0], [0.5, 0.5, 0.5]]), epsilon=0.0).tolist()
    [[1.0, 0.0, -1.0], [0.0, 0.0, 0.0]]
    """
    if not epsilon >= 0:
        raise ValueError(f"group_relative: epsilon must be 0 or more, got {epsilon}")
    xp, counted = _members("group_relative", rewards, mask)
    centered, spread = _centered(xp, rewards, counted)
    if not normalize_std:
        return centered
    count = counted.sum(axis=1, keepdims=True).astype(centered.dtype)
    variance = xp.square(centered).sum(axis=1, keepdims=True) / xp.maximum(count - 1, 1)
    result: Array = centered / xp.where(spread, xp.sqrt(variance) + epsilon, 1)
    return result


def leave_one_out(rewards: Array, *, mask: Array | None = None) -> Array:
    """Advantage of each trajectory over the mean of the others in its group (RLOO).

    Over the n members of group g that the mask counts::

        A[g, m] = R[g, m] - sum_{k != m} R[g, k] / (n - 1) = n / (n - 1) (R[g, m] - mean(R[g]))

    The baseline of a trajectory does not contain its own reward, so the policy gradient stays unbiased. A group whose
    rewards are all equal, or with fewer than two members, gets exactly 0.

    Args:
      rewards: floating [groups, size].
      mask: [groups, size], nonzero for members that exist; None counts all. Other values are ignored.

    Returns:
      Floating [groups, size], 0 where the mask is 0.

    Raises:
      ValueError: shapes or types do not fit.

    Source: Ahmadian et al. (arXiv 2402.14740), the RLOO estimator, after Kool et al., Buy 4 REINFORCE Samples, Get a
    Baseline for Free! (workshop paper, 2019). Departure: `mask`.

    >>> leave_one_out(np.asarray([[1.0, 0.0, -1.0], [0.5, 0.5, 0.5]])).tolist()
    [[1.5, 0.0, -1.5], [0.0, 0.0, 0.0]]
    """
    xp, counted = _members("leave_one_out", rewards, mask)
    count = counted.sum(axis=1, keepdims=True).astype(rewards.dtype)
    result: Array = _centered(xp, rewards, counted)[0] * (count / xp.maximum(count - 1, 1))
    return result


def role_relative(
    rewards: Array,
    roles: Array,
    *,
    num_roles: int,
    normalize_std: bool = False,
    epsilon: float = 1e-4,
    mask: Array | None = None,
) -> Array:
    """Advantage of each trajectory over all of the batch that played the same role.

    The seats of a game seldom have the same chances. Over the trajectories of role k that the mask counts::

        A[i] = R[i] - mean(R[roles == k]),  k = roles[i]

    With `normalize_std` it is divided as in `group_relative`, which this equals with one row per role. A role is what
    shares a baseline: number the pairs (game, seat) for baselines across a batch, or the pairs (group, seat) for
    baselines among games that began alike. A role with fewer than two trajectories, or with equal rewards, gets 0.

    Args:
      rewards: floating [trajectories].
      roles: int [trajectories], each in 0..num_roles-1.
      num_roles: 1 or more; a Python number, fixed when a caller compiles.
      normalize_std: divide by the role's spread.
      epsilon: 0 or more; as for `group_relative`.
      mask: [trajectories], nonzero for trajectories that count; None counts all. Other values are ignored.

    Returns:
      Floating [trajectories], 0 where the mask is 0. In jax arrays, whose numbers compiled code cannot look at, a
      counted role out of range makes that advantage NaN.

    Raises:
      ValueError: shapes, types or numbers do not fit; in numpy arrays, a counted role out of range.

    Source: the per-role baseline of SPIRAL (arXiv 2506.24119), taken over the batch instead of over time; for that one
    see `update_role_baseline`.

    >>> role_relative(np.asarray([1.0, 0.0, 0.5, -1.0]), np.asarray([0, 1, 0, 1]), num_roles=2).tolist()
    [0.25, 0.5, -0.25, -0.5]
    """
    where = "role_relative"
    if num_roles < 1:
        raise ValueError(f"{where}: num_roles must be 1 or more, got {num_roles}")
    xp, counted, valid = _roles(where, rewards, roles, num_roles, mask)
    of_role = (roles[None, :] == xp.arange(num_roles)[:, None]) & counted[None, :]
    rows = xp.broadcast_to(rewards[None, :], of_role.shape)
    table = group_relative(rows, normalize_std=normalize_std, epsilon=epsilon, mask=of_role)
    result: Array = xp.where(counted & ~valid, xp.nan, table.sum(axis=0))
    return result


def update_role_baseline(
    baseline: Array, rewards: Array, roles: Array, *, decay: float = 0.95, mask: Array | None = None
) -> tuple[Array, Array]:
    """Role-conditioned advantage estimation (RAE): one exponential moving average of rewards per role.

    Trajectories are taken in their order. For trajectory i with k = roles[i]::

        A[i] = R[i] - b[k]
        b[k] <- decay b[k] + (1 - decay) R[i]

    The advantage comes first: a baseline that already contained R[i] would be biased. One trajectory of a role is
    enough, no siblings are needed. The state is explicit: keep the returned baseline in the checkpoint.

    Args:
      baseline: floating [roles], b before the batch; zeros at the start of a run.
      rewards: floating [trajectories].
      roles: int [trajectories], each in 0..len(baseline)-1; number the pairs (game, seat).
      decay: in [0, 1]; at 0 the baseline is the role's last reward, at 1 it never moves.
      mask: [trajectories], nonzero for trajectories that count; None counts all. Other values are ignored.

    Returns:
      The baseline after the batch, floating [roles], and the advantages, floating [trajectories], 0 where the mask is
      0; both in the dtype of what they were given for. In jax arrays, whose numbers compiled code cannot look at, a
      counted role out of range makes that advantage NaN and moves no baseline.

    Raises:
      ValueError: shapes, types or decay do not fit; in numpy arrays, a counted role out of range.

    Source: SPIRAL (arXiv 2506.24119), role-conditioned advantage estimation with decay 0.95, in the order of the
    authors' code (spiral-rl/spiral, `train_spiral.py`): first the advantage, then the update. Departure: `mask`.

    >>> baseline, rewards, roles = np.zeros(2), np.asarray([1.0, 1.0, -1.0]), np.asarray([0, 0, 1])
    >>> baseline, advantages = update_role_baseline(baseline, rewards, roles, decay=0.5)
    >>> baseline.tolist(), advantages.tolist()
    ([0.75, -0.5], [1.0, 0.5, -1.0])
    """
    where = "update_role_baseline"
    if baseline.ndim != 1 or not baseline.size or not jnp.issubdtype(baseline.dtype, jnp.floating):
        raise ValueError(
            f"{where}: baseline must be floating [roles], one or more, got {baseline.dtype} {list(baseline.shape)}"
        )
    if not 0 <= decay <= 1:
        raise ValueError(f"{where}: decay must be in [0, 1], got {decay}")
    xp, counted, valid = _roles(where, rewards, roles, baseline.size, mask)
    average: Any = _scan_average if xp is jnp else _loop_average
    result: tuple[Array, Array] = average(xp.array(baseline), rewards, roles, counted, valid, decay)
    return result


def solver(rewards: Array, *, mask: Array | None = None) -> Array:
    """Advantage of each answer over the mean of its query's answers.

    Over the answers of query i that the mask counts, G_i of them, with V(q_i) = (1/G_i) sum_j R(q_i, a_i^j)::

        A[i, j] = R(q_i, a_i^j) - V(q_i)

    With a self-reward of weight w the Solver's reward is R + w R_Q: give that sum.

    Args:
      rewards: floating [queries, answers], R(q_i, a_i^j).
      mask: [queries, answers], nonzero for answers that were scored; None counts all. Other values are ignored.

    Returns:
      Floating [queries, answers], 0 where the mask is 0; over each query it sums to 0.

    Raises:
      ValueError: not floating with two axes, or a mask of another shape.

    Source: Language Self-Play (arXiv 2509.07414), section 3, eq. 2 and the line after it. Departure: `mask`.

    >>> solver(np.asarray([[1.0, 3.0], [5.0, 5.0]])).tolist()
    [[-1.0, 1.0], [0.0, 0.0]]
    >>> solver(np.asarray([[1.0, 3.0, np.nan]]), mask=np.asarray([[1, 1, 0]])).tolist()
    [[-1.0, 1.0, 0.0]]
    """
    xp, counted = _members("solver", rewards, mask)
    result: Array = xp.where(counted, rewards - _values(xp, rewards, counted)[:, None], 0)
    return result


def challenger(rewards: Array, *, mask: Array | None = None) -> Array:
    """Advantage of each query: how much harder than the average query it was for the Solver.

    With V(q_i) the mean reward of those of query i's answers that the mask counts, and V the mean of V(q_i) over the
    queries that have one::

        A[i] = V - V(q_i)

    With a self-reward of weight w the Challenger's reward is -V(q_i) + w V_Q(q_i), V(q_i) the mean of R alone: give
    R - w R_Q, since mean(V - w V_Q) - (V(q_i) - w V_Q(q_i)) is that reward less its mean over the queries.

    Args:
      rewards: floating [queries, answers], R(q_i, a_i^j).
      mask: [queries, answers], nonzero for answers that were scored; None counts all. Other values are ignored.
        A query with no such answer is in no mean.

    Returns:
      Floating [queries], 0 for a query without a scored answer; over the queries it sums to 0.

    Raises:
      ValueError: not floating with two axes, or a mask of another shape.

    Source: Language Self-Play (arXiv 2509.07414), section 3, eq. 3 and the section's end. Departure: `mask`.

    >>> challenger(np.asarray([[1.0, 3.0], [5.0, 7.0]])).tolist()
    [2.0, -2.0]
    >>> challenger(np.asarray([[1.0, 9.0], [5.0, 7.0], [0.0, 0.0]]), mask=np.asarray([[1, 0], [1, 1], [0, 0]])).tolist()
    [2.5, -2.5, 0.0]
    """
    xp, counted = _members("challenger", rewards, mask)
    values, scored = _values(xp, rewards, counted), counted.any(axis=1)
    baseline = xp.where(scored, values, 0).sum() / xp.maximum(scored.sum().astype(values.dtype), 1)
    result: Array = xp.where(scored, baseline - values, 0)
    return result


def _values(xp: Any, rewards: Array, counted: Array) -> Array:  # noqa: ANN401 - see below
    """The mean of every query's counted answers [queries], 0 where there are none."""
    count = counted.sum(axis=1).astype(rewards.dtype)
    result: Array = xp.where(counted, rewards, 0).sum(axis=1) / xp.maximum(count, 1)
    return result


# Any: the two array modules share the functions used here, but no type.
def _namespace(where: str, rewards: np.ndarray | jax.Array) -> Any:  # noqa: ANN401 - see the line above
    if rewards.ndim != 2 or not jnp.issubdtype(rewards.dtype, jnp.floating):
        raise ValueError(f"{where}: rewards must be floating with two axes, got {rewards.dtype} {list(rewards.shape)}")
    return jnp if isinstance(rewards, jax.Array) else np


def _members(where: str, rewards: Array, mask: Array | None) -> tuple[Any, Array]:
    """The array module, and which members count [groups, size]."""
    xp = _namespace(where, rewards)
    if mask is None:
        return xp, xp.ones(rewards.shape, bool)
    if mask.shape != rewards.shape:
        raise ValueError(f"{where}: mask must be [groups, size] = {list(rewards.shape)}, got {list(mask.shape)}")
    return xp, mask.astype(bool)


def _centered(xp: Any, rewards: Array, counted: Array) -> tuple[Array, Array]:  # noqa: ANN401 - as above
    """Rewards less their group's mean [groups, size], 0 in groups without spread; which have spread [groups, 1]."""
    kept = xp.where(counted, rewards, 0)
    count = counted.sum(axis=1, keepdims=True).astype(kept.dtype)
    mean = kept.sum(axis=1, keepdims=True) / xp.maximum(count, 1)
    # Not "centered is zero": a mean of equal numbers may differ from them in the last bit. Not "highest > lowest",
    # which a NaN among the rewards would make false: it must show in the advantages.
    highest = xp.where(counted, kept, -xp.inf).max(axis=1, keepdims=True)
    lowest = xp.where(counted, kept, xp.inf).min(axis=1, keepdims=True)
    spread = ~(highest <= lowest)
    return xp.where(counted & spread, kept - mean, 0), spread


def _roles(where: str, rewards: Array, roles: Array, num_roles: int, mask: Array | None) -> tuple[Any, Array, Array]:
    """The array module, which trajectories count, and whose role is in range; both [trajectories]."""
    if rewards.ndim != 1 or not jnp.issubdtype(rewards.dtype, jnp.floating):
        raise ValueError(f"{where}: rewards must be floating [trajectories], got {rewards.dtype} {list(rewards.shape)}")
    for name, value in (("roles", roles), ("mask", mask)):
        if value is not None and value.shape != rewards.shape:
            raise ValueError(f"{where}: {name} must be [trajectories] = {list(rewards.shape)}, got {list(value.shape)}")
    if not jnp.issubdtype(roles.dtype, jnp.integer):
        raise ValueError(f"{where}: roles must have an integer dtype, got {roles.dtype}")
    xp = jnp if isinstance(rewards, jax.Array) else np
    counted = xp.ones(rewards.shape, bool) if mask is None else mask.astype(bool)
    valid = (roles >= 0) & (roles < num_roles)
    if xp is np and (wrong := np.flatnonzero(counted & ~valid)).size:
        i = int(wrong[0])
        raise ValueError(f"{where}: roles must be in 0..{num_roles - 1}, but roles[{i}] is {int(roles[i])}")
    return xp, counted, valid


def _loop_average(
    baseline: np.ndarray, rewards: np.ndarray, roles: np.ndarray, counted: np.ndarray, _: np.ndarray, decay: float
) -> tuple[np.ndarray, np.ndarray]:
    advantages = np.zeros_like(rewards)
    for i in np.flatnonzero(counted):
        k = roles[i]
        advantages[i] = rewards[i] - baseline[k]
        baseline[k] = decay * baseline[k] + (1 - decay) * rewards[i]
    return baseline, advantages


def _scan_average(
    baseline: jax.Array, rewards: jax.Array, roles: jax.Array, counted: jax.Array, valid: jax.Array, decay: float
) -> tuple[jax.Array, jax.Array]:
    def one(before: jax.Array, row: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        reward, k, on, known = row
        moved = before.at[k].set(decay * before[k] + (1 - decay) * reward.astype(before.dtype))
        advantage = jnp.where(known, reward - before[k].astype(reward.dtype), jnp.nan)
        return jnp.where(on & known, moved, before), jnp.where(on, advantage, 0)

    return jax.lax.scan(one, baseline, (rewards, jnp.where(valid, roles, 0), counted, valid))
