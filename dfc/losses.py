"""Losses of the four methods: log-probabilities in, a sum with its weight out.

Every function here is pure. It takes log-probabilities that the caller computed (`dfc.logprobs`) and a mask, and
returns a `Loss`: a sum, the number of units it runs over, and metrics summed over the same units. The trainer adds
up micro-batches and devices and divides once, so padding, packing and the cut into micro-batches cannot change a
result.

Conventions. All `[batch, time]` arrays have the same shape. A mask is 1 (or True) at an action id, one that the
trained policy sampled, and 0 elsewhere; every nonzero value counts as 1. What stands where the mask is 0, NaN and
infinities included, changes neither a value nor a gradient. Sums are taken in float32 or wider. Gradients flow into
the policy's log-probabilities only. Coefficients are Python numbers, fixed when a caller compiles.

Packed rows. Without `segments` a row is one trajectory. With `segments`, int `[batch, time]`, position t of a row
belongs to that row's trajectory 1..num_segments, and 0 is padding, never counted. An id outside 0..num_segments makes
the total NaN: compiled code cannot raise, and a trajectory must not vanish without a trace.
"""

import dataclasses
import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

Unit = Literal["token", "sequence"]


@functools.partial(jax.tree_util.register_dataclass, data_fields=["total", "weight", "metrics"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss as a sum with its weight; a pytree.

    The losses of two micro-batches are joined by `jax.tree.map(jnp.add, first, second)`.

    Attributes:
      total: scalar, the sum of the loss over its units.
      weight: scalar, the number of units; each function states what its unit is. It carries no gradient.
      metrics: named scalars, each a sum over the same units. They carry no gradient.
    """

    total: jax.Array
    weight: jax.Array
    metrics: dict[str, jax.Array]

    @property
    def mean(self) -> jax.Array:
        """`total / weight`; 0, with a zero gradient, where the weight is 0."""
        return _divide(self.total, self.weight)

    @property
    def metric_means(self) -> dict[str, jax.Array]:
        """Every metric divided by the weight; 0 where the weight is 0."""
        return {name: _divide(value, self.weight) for name, value in self.metrics.items()}


def sft_loss(
    logprobs: ArrayLike,
    mask: ArrayLike,
    *,
    segments: ArrayLike | None = None,
    num_segments: int | None = None,
) -> Loss:
    r"""Negative log-likelihood of action ids, averaged within each trajectory first.

    With A_i the action ids of trajectory i::

        total = sum_i  -(1 / |A_i|) sum_{t in A_i} log pi(t)

    Args:
      logprobs: floating [batch, time], log-probability of each id.
      mask: [batch, time], 1 at action ids.
      segments: int [batch, time], for packed rows.
      num_segments: the largest number of trajectories in a row; given together with `segments`.

    Returns:
      Unit: a trajectory with at least one action id. All-masked input gives total 0 and weight 0.
      Metrics: `length`, the number of action ids.

    Raises:
      ValueError: shapes or types do not fit.

    Source: Paprika (arXiv 2502.17543), section 3.3, eq. 1.

    >>> logprobs = jnp.asarray([[-1.0, -3.0, -9.0], [-4.0, -9.0, -9.0]])
    >>> loss = sft_loss(logprobs, jnp.asarray([[1, 1, 0], [1, 0, 0]]))
    >>> float(loss.total), float(loss.weight), float(loss.mean)
    (6.0, 2.0, 3.0)
    """
    logp, counted, packing = _policy("sft_loss", logprobs, mask, segments, num_segments)
    logp = jnp.where(counted, logp, 0)
    total = _sum_over_units(-logp, counted, "sequence", packing)
    lengths = packing.sums(counted.astype(logp.dtype))
    return _loss(packing.checked(total), (lengths > 0).sum(), {"length": lengths.sum()})


def grpo_loss(
    logprobs: ArrayLike,
    old_logprobs: ArrayLike,
    advantages: ArrayLike,
    mask: ArrayLike,
    *,
    clip_ratio: float = 0.1,
    clip_ratio_high: float | None = None,
    reference_logprobs: ArrayLike | None = None,
    kl_coefficient: float = 0.0,
    proximal_logprobs: ArrayLike | None = None,
    importance_cap: float = 0.0,
    unit: Unit = "token",
    segments: ArrayLike | None = None,
    num_segments: int | None = None,
) -> Loss:
    r"""Clipped policy-gradient loss with group-relative advantages and a KL penalty.

    Per action id, with r = exp(log pi - log pi_old), d = log pi_ref - log pi, low = clip_ratio and
    high = clip_ratio_high (or clip_ratio)::

        l = -min(r A, clip(r, 1 - low, 1 + high) A) + kl_coefficient (exp(d) - d - 1)

    The weights that sampled have slightly different probabilities in the sampler, pi_old, and in the trainer, pi_prox.
    With `importance_cap` above 0, r is exp(log pi - log pi_prox), and the first term of l is multiplied by the
    constant w = min(pi_prox / pi_old, importance_cap).

    `unit="token"` sums l over action ids. `unit="sequence"` takes the mean of l within each sequence, then sums over
    sequences, as the GRPO paper does.

    Args:
      logprobs: floating [batch, time], log pi of each id under the policy being trained.
      old_logprobs: floating [batch, time], the same under the policy that sampled.
      advantages: floating [batch], or [batch, time] where rows are packed or turns differ.
      mask: [batch, time], 1 at action ids.
      clip_ratio: 0 or more and below 1.
      clip_ratio_high: 0 or more; None takes `clip_ratio`.
      reference_logprobs: floating [batch, time], log pi_ref; needed for a KL coefficient above 0.
      kl_coefficient: 0 or more.
      proximal_logprobs: floating [batch, time]; None takes log pi, right for the first update after sampling only.
      importance_cap: 0 or more; 0 turns the correction off.
      unit: what is averaged over.
      segments: int [batch, time], for packed rows.
      num_segments: the largest number of sequences in a row; given together with `segments`.

    Returns:
      Unit: an action id, or a sequence with at least one. All-masked input gives total 0 and weight 0.
      Metrics: `ratio`, r; `clip_fraction`, 1 where clipping stops the gradient (r above 1 + high with A > 0, or below
      1 - low with A < 0); `negative_logprob`, -log pi, on-policy an estimate of the entropy per id; with a reference,
      `kl`, the penalty before its coefficient; with a cap, `importance_weight`, w, and `importance_capped`, 1 if cut.

    Raises:
      ValueError: shapes, types or coefficients do not fit.

    Source: DeepSeekMath (arXiv 2402.03300), section 4.1, eq. 3 and 4; Divide-Fuse-Conquer (arXiv 2505.16401),
    Algorithm 2; truncated importance sampling: Yao et al., On the Rollout-Training Mismatch in Modern RL Systems
    (workshop paper, 2025, OpenReview 8MHqvb4lK9). Departures: `unit="token"`, the default, weighs every id alike
    instead of every sequence, and the two bounds of the clip may differ.

    >>> half = jnp.log(jnp.asarray([[0.5, 0.5]]))
    >>> loss = grpo_loss(half, half, jnp.asarray([2.0]), jnp.ones((1, 2)))
    >>> float(loss.mean), float(loss.metric_means["ratio"])
    (-2.0, 1.0)
    """
    where = "grpo_loss"
    high = clip_ratio if clip_ratio_high is None else clip_ratio_high
    if not 0 <= clip_ratio < 1:
        raise ValueError(f"{where}: clip_ratio must be in [0, 1), got {clip_ratio}")
    _not_negative(where, clip_ratio_high=high, kl_coefficient=kl_coefficient, importance_cap=importance_cap)
    if kl_coefficient and reference_logprobs is None:
        raise ValueError(f"{where}: kl_coefficient is {kl_coefficient} but reference_logprobs is None; give both")
    if proximal_logprobs is not None and not importance_cap:
        raise ValueError(f"{where}: proximal_logprobs are given but importance_cap is 0; give both")
    if unit not in ("token", "sequence"):
        raise ValueError(f"{where}: unit must be 'token' or 'sequence', got {unit!r}")
    logp, counted, packing = _policy(where, logprobs, mask, segments, num_segments)
    old = _constant(where, "old_logprobs", old_logprobs, logp)
    proximal = logp if proximal_logprobs is None else proximal_logprobs
    before = _constant(where, "proximal_logprobs", proximal, logp) if importance_cap else old
    advantage = _advantages(where, advantages, logp)

    # Replaced before the exponentials, not after: a gradient of inf times zero is NaN.
    logp, old, before, advantage = (jnp.where(counted, x, 0) for x in (logp, old, before, advantage))
    ratio = jnp.exp(logp - before)
    clipped = jnp.clip(ratio, 1 - clip_ratio, 1 + high)
    values = -jnp.minimum(ratio * advantage, clipped * advantage)
    stopped = ((ratio > 1 + high) & (advantage > 0)) | ((ratio < 1 - clip_ratio) & (advantage < 0))
    per_id = {"ratio": ratio, "clip_fraction": stopped.astype(logp.dtype), "negative_logprob": -logp}
    if importance_cap:
        uncapped = jnp.exp(before - old)
        per_id["importance_weight"] = jnp.minimum(uncapped, importance_cap)
        per_id["importance_capped"] = (uncapped > importance_cap).astype(logp.dtype)
        values = values * per_id["importance_weight"]
    if reference_logprobs is not None:
        reference = jnp.where(counted, _constant(where, "reference_logprobs", reference_logprobs, logp), 0)
        gap = reference - logp
        kl = jnp.expm1(gap) - gap
        per_id["kl"] = kl
        if kl_coefficient:  # else an infinite penalty times 0 would be NaN
            values = values + kl_coefficient * kl

    total = _sum_over_units(values, counted, unit, packing)
    metrics = {name: _sum_over_units(x, counted, unit, packing) for name, x in per_id.items()}
    weight = counted.sum() if unit == "token" else (packing.sums(counted.astype(logp.dtype)) > 0).sum()
    return _loss(packing.checked(total), weight, metrics)


def dpo_loss(
    chosen_logprobs: ArrayLike,
    chosen_mask: ArrayLike,
    rejected_logprobs: ArrayLike,
    rejected_mask: ArrayLike,
    chosen_reference_logprobs: ArrayLike,
    rejected_reference_logprobs: ArrayLike,
    *,
    beta: float = 0.1,
) -> Loss:
    r"""Direct preference optimization over trajectories of several turns.

    Row i holds a pair: the chosen trajectory w and the rejected one l. With A the action ids of a trajectory (what
    the environment wrote is left out)::

        reward(h) = beta sum_{t in A(h)} (log pi(t) - log pi_ref(t))
        total     = sum_i -log sigmoid(reward(w_i) - reward(l_i))

    Args:
      chosen_logprobs: floating [batch, time].
      chosen_mask: [batch, time], 1 at action ids.
      rejected_logprobs: floating [batch, other_time].
      rejected_mask: [batch, other_time], 1 at action ids.
      chosen_reference_logprobs: floating [batch, time], under the reference policy.
      rejected_reference_logprobs: floating [batch, other_time].
      beta: above 0.

    Returns:
      Unit: a pair with at least one action id on both sides; another pair counts nothing.
      Metrics: `accuracy`, 1 where the chosen reward is the larger one; `margin`, reward(w) - reward(l);
      `chosen_reward`; `rejected_reward`.

    Raises:
      ValueError: shapes, types or beta do not fit.

    Source: Paprika (arXiv 2502.17543), section 3.3, eq. 2, after Rafailov et al. (arXiv 2404.12358).

    >>> chosen, rejected = jnp.asarray([[-1.0, -1.0]]), jnp.asarray([[-2.0]])
    >>> loss = dpo_loss(chosen, jnp.ones((1, 2)), rejected, jnp.ones((1, 1)), chosen - 3.0, rejected, beta=0.5)
    >>> float(loss.metrics["margin"]), round(float(loss.mean), 4)  # log(1 + exp(-3))
    (3.0, 0.0486)
    """
    chosen = chosen_logprobs, chosen_mask, chosen_reference_logprobs
    rejected = rejected_logprobs, rejected_mask, rejected_reference_logprobs
    sides = _preference_sides("dpo_loss", chosen, rejected, beta)
    return _loss(sides.dpo.sum(), sides.complete.sum(), sides.metrics)


def rpo_loss(
    chosen_logprobs: ArrayLike,
    chosen_mask: ArrayLike,
    rejected_logprobs: ArrayLike,
    rejected_mask: ArrayLike,
    chosen_reference_logprobs: ArrayLike,
    rejected_reference_logprobs: ArrayLike,
    *,
    beta: float = 0.1,
    alpha: float = 1.0,
) -> Loss:
    r"""DPO plus the likelihood of the chosen trajectory, which DPO alone may lower.

    Per pair, with A the action ids of the chosen trajectory::

        l = dpo + alpha * -(1 / |A|) sum_{t in A} log pi(t)

    Args:
      chosen_logprobs: as for `dpo_loss`, like the next five.
      chosen_mask: [batch, time].
      rejected_logprobs: [batch, other_time].
      rejected_mask: [batch, other_time].
      chosen_reference_logprobs: [batch, time].
      rejected_reference_logprobs: [batch, other_time].
      beta: above 0.
      alpha: 0 or more.

    Returns:
      Unit: a pair, as for `dpo_loss`. Metrics: those of `dpo_loss`; `dpo` and `sft`, the two parts before `alpha`.

    Raises:
      ValueError: shapes, types or coefficients do not fit.

    Source: Paprika (arXiv 2502.17543), section 3.3, eq. 3 with alpha = 1, after Pang et al. (arXiv 2404.19733).

    >>> logprobs, ones = jnp.asarray([[-1.0, -3.0]]), jnp.ones((1, 2))
    >>> loss = rpo_loss(logprobs, ones, logprobs, ones, logprobs, logprobs, alpha=0.5)
    >>> round(float(loss.metrics["dpo"]), 4), float(loss.metrics["sft"]), round(float(loss.total), 4)
    (0.6931, 2.0, 1.6931)
    """
    _not_negative("rpo_loss", alpha=alpha)
    chosen = chosen_logprobs, chosen_mask, chosen_reference_logprobs
    rejected = rejected_logprobs, rejected_mask, rejected_reference_logprobs
    sides = _preference_sides("rpo_loss", chosen, rejected, beta)
    parts = {"dpo": sides.dpo.sum(), "sft": sides.sft.sum()}
    return _loss(parts["dpo"] + alpha * parts["sft"], sides.complete.sum(), sides.metrics | parts)


def lsp_solver_loss(
    logprobs: ArrayLike,
    mask: ArrayLike,
    advantages: ArrayLike,
    reference_logprobs: ArrayLike,
    *,
    beta: float,
    kl_gradient: Literal["published", "score_function"] = "published",
    segments: ArrayLike | None = None,
    num_segments: int | None = None,
) -> Loss:
    r"""The Solver's loss of Language Self-Play.

    With s_i the sum of log pi over the action ids of answer i, s_ref_i the same under the reference, and sg the
    stop-gradient::

        total = sum_i -(exp(s_i - sg(s_i)) A_i - beta (s_i - s_ref_i))

    The first factor has the value 1 and the gradient of s_i.

    On what the KL term does: as published, its gradient is beta times that of s_i, which does not depend on the
    reference and whose expectation under the policy is zero, so it does not hold the policy near the reference.
    `kl_gradient="score_function"` keeps the value of the loss and gives the unbiased gradient of the KL divergence::

        -(exp(s_i - sg(s_i)) (A_i - beta sg(s_i - s_ref_i)))

    Args:
      logprobs: floating [batch, time], log pi of each id; the N x G answers are rows, or packed into rows.
      mask: [batch, time], 1 at action ids.
      advantages: floating [batch] (see `dfc.advantages.solver`), or [batch, time], constant within an answer.
      reference_logprobs: floating [batch, time].
      beta: 0 or more.
      kl_gradient: how the KL term is differentiated.
      segments: int [batch, time], for packed rows.
      num_segments: the largest number of answers in a row; given together with `segments`.

    Returns:
      Unit: an answer with at least one action id (N x G of them). Metrics: `log_ratio`, s - s_ref, on-policy an
      estimate of the KL divergence; `logprob`, s; `advantage`.

    Raises:
      ValueError: shapes, types or coefficients do not fit.

    Source: Language Self-Play (arXiv 2509.07414), section 3, eq. 4. Departure: the option `kl_gradient`.

    >>> logprobs = jnp.asarray([[-1.0, -2.0], [-1.0, -1.0]])
    >>> loss = lsp_solver_loss(logprobs, jnp.ones((2, 2)), jnp.asarray([1.0, -1.0]), logprobs - 1.0, beta=0.25)
    >>> float(loss.total), float(loss.weight)
    (1.0, 2.0)
    """
    arrays = (logprobs, mask, advantages, reference_logprobs)
    return _lsp_loss("lsp_solver_loss", arrays, beta, kl_gradient, (segments, num_segments))


def lsp_challenger_loss(
    logprobs: ArrayLike,
    mask: ArrayLike,
    advantages: ArrayLike,
    reference_logprobs: ArrayLike,
    *,
    beta: float,
    kl_gradient: Literal["published", "score_function"] = "published",
    segments: ArrayLike | None = None,
    num_segments: int | None = None,
) -> Loss:
    r"""The Challenger's loss of Language Self-Play: `lsp_solver_loss` over queries instead of answers.

    The same formula, with s_i the log-probability of query i given the challenger prompt.

    Args:
      logprobs: floating [batch, time], log pi of each id; the N queries are rows, or packed into rows.
      mask: [batch, time], 1 at the ids of a query.
      advantages: floating [batch] (see `dfc.advantages.challenger`), or [batch, time], constant within a query.
      reference_logprobs: floating [batch, time].
      beta: 0 or more.
      kl_gradient: see `lsp_solver_loss`.
      segments: int [batch, time], for packed rows.
      num_segments: the largest number of queries in a row; given together with `segments`.

    Returns:
      Unit: a query with at least one action id (N of them). Metrics: those of `lsp_solver_loss`. The method's total
      loss is the Solver's mean plus alpha_Ch times the Challenger's (Algorithm 1, line 6).

    Raises:
      ValueError: shapes, types or coefficients do not fit.

    Source: Language Self-Play (arXiv 2509.07414), section 3, eq. 5. Departure: the option `kl_gradient`.

    >>> logprobs = jnp.asarray([[-1.0, -2.0]])
    >>> float(lsp_challenger_loss(logprobs, jnp.ones((1, 2)), jnp.asarray([0.5]), logprobs, beta=0.1).mean)
    -0.5
    """
    arrays = (logprobs, mask, advantages, reference_logprobs)
    return _lsp_loss("lsp_challenger_loss", arrays, beta, kl_gradient, (segments, num_segments))


# ---- sequences --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Packing:
    """Which sequence of its row a position belongs to; `segments` None: a row is one sequence."""

    segments: jax.Array | None
    num_segments: int

    def sums(self, values: jax.Array) -> jax.Array:
        """Sums [batch, time] within each sequence: [batch, num_segments]."""
        if self.segments is None:
            return values.sum(axis=1, keepdims=True)
        # Row by row, so that a batch split over devices is summed where it lies.
        row_sums = functools.partial(jax.ops.segment_sum, num_segments=self.num_segments + 1)
        return jax.vmap(row_sums)(values, self.segments)[:, 1:]

    def checked(self, total: jax.Array) -> jax.Array:
        """The total, or NaN if a segment id is out of range."""
        if self.segments is None:
            return total
        in_range = jnp.all((self.segments >= 0) & (self.segments <= self.num_segments))
        return jnp.where(in_range, total, jnp.nan)


def _sum_over_units(values: jax.Array, counted: jax.Array, unit: Unit, packing: _Packing) -> jax.Array:
    """Sums values over action ids, or their within-sequence means over sequences."""
    values = jnp.where(counted, values, 0)
    if unit == "token":
        return values.sum()
    lengths = packing.sums(counted.astype(values.dtype))
    return (packing.sums(values) / jnp.maximum(lengths, 1)).sum()


def _lsp_loss(
    where: str,
    arrays: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike],
    beta: float,
    kl_gradient: str,
    segments: tuple[ArrayLike | None, int | None],
) -> Loss:
    _not_negative(where, beta=beta)
    if kl_gradient not in ("published", "score_function"):
        raise ValueError(f"{where}: kl_gradient must be 'published' or 'score_function', got {kl_gradient!r}")
    logprobs, mask, advantages, reference_logprobs = arrays
    logp, counted, packing = _policy(where, logprobs, mask, *segments)
    advantage_ids = jnp.where(counted, _advantages(where, advantages, logp), 0)
    reference_ids = jnp.where(counted, _constant(where, "reference_logprobs", reference_logprobs, logp), 0)
    logp = jnp.where(counted, logp, 0)

    lengths = packing.sums(counted.astype(logp.dtype))
    advantage = packing.sums(advantage_ids) / jnp.maximum(lengths, 1)
    logprob, log_ratio = packing.sums(logp), packing.sums(logp - reference_ids)
    score = jnp.exp(logprob - jax.lax.stop_gradient(logprob))
    if kl_gradient == "published":
        values = -(score * advantage - beta * log_ratio)
    else:
        values = -score * (advantage - beta * jax.lax.stop_gradient(log_ratio))
    # A sequence without an action id has score 1 but advantage and log ratio 0: it adds nothing.
    metrics = {"log_ratio": log_ratio.sum(), "logprob": logprob.sum(), "advantage": advantage.sum()}
    return _loss(packing.checked(values.sum()), (lengths > 0).sum(), metrics)


# ---- pairs ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _PreferenceSides:
    """Per pair, 0 where a side is empty: both parts of the loss [batch], which pairs count, summed metrics."""

    dpo: jax.Array
    sft: jax.Array
    complete: jax.Array
    metrics: dict[str, jax.Array]


def _preference_sides(
    where: str,
    chosen: tuple[ArrayLike, ArrayLike, ArrayLike],
    rejected: tuple[ArrayLike, ArrayLike, ArrayLike],
    beta: float,
) -> _PreferenceSides:
    if not beta > 0:
        raise ValueError(f"{where}: beta must be above 0, got {beta}")
    chosen_sum, chosen_logp, chosen_length = _side(where, "chosen", *chosen)
    rejected_sum, _, rejected_length = _side(where, "rejected", *rejected)
    if chosen_sum.shape != rejected_sum.shape:
        raise ValueError(
            f"{where}: row i of both sides is pair i, but chosen has {chosen_sum.shape[0]} rows"
            f" and rejected {rejected_sum.shape[0]}"
        )
    if chosen_sum.dtype != rejected_sum.dtype:
        chosen_sum, chosen_logp, chosen_length, rejected_sum = (
            x.astype(jnp.float64) for x in (chosen_sum, chosen_logp, chosen_length, rejected_sum)
        )
    complete = (chosen_length > 0) & (rejected_length > 0)
    chosen_reward = jnp.where(complete, beta * chosen_sum, 0)
    rejected_reward = jnp.where(complete, beta * rejected_sum, 0)
    margin = chosen_reward - rejected_reward
    return _PreferenceSides(
        dpo=jnp.where(complete, jax.nn.softplus(-margin), 0),
        sft=jnp.where(complete, -chosen_logp / jnp.maximum(chosen_length, 1), 0),
        complete=complete,
        metrics={
            "accuracy": (margin > 0).sum(dtype=margin.dtype),
            "margin": margin.sum(),
            "chosen_reward": chosen_reward.sum(),
            "rejected_reward": rejected_reward.sum(),
        },
    )


def _side(
    where: str, side: str, logprobs: ArrayLike, mask: ArrayLike, reference_logprobs: ArrayLike
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Per row [batch]: the log ratio to the reference, the log-probability, the number of action ids."""
    logp = _logprobs(where, f"{side}_logprobs", logprobs)
    counted = _counted(where, f"{side}_mask", mask, logp.shape)
    reference = _constant(where, f"{side}_reference_logprobs", reference_logprobs, logp)
    logp, reference = jnp.where(counted, logp, 0), jnp.where(counted, reference, 0)
    return (logp - reference).sum(axis=1), logp.sum(axis=1), counted.sum(axis=1, dtype=logp.dtype)


# ---- inputs and results -----------------------------------------------------------------------------------------


def _divide(total: jax.Array, weight: jax.Array) -> jax.Array:
    return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1), 0)


def _loss(total: jax.Array, weight: jax.Array, metrics: dict[str, jax.Array]) -> Loss:
    return Loss(total, weight.astype(total.dtype), jax.lax.stop_gradient(metrics))


def _not_negative(where: str, **coefficients: float) -> None:
    for name, value in coefficients.items():
        if not value >= 0:
            raise ValueError(f"{where}: {name} must be 0 or more, got {value}")


def _floating(where: str, name: str, value: ArrayLike) -> jax.Array:
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{where}: {name} must have a floating dtype, got {array.dtype}")
    return array


def _same_shape(where: str, name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise ValueError(f"{where}: {name} must be [batch, time] = {list(expected)}, got {list(shape)}")


def _logprobs(where: str, name: str, value: ArrayLike) -> jax.Array:
    """The policy's log-probabilities, [batch, time] in float32 or wider."""
    array = _floating(where, name, value)
    if array.ndim != 2:
        raise ValueError(f"{where}: {name} must be [batch, time], got shape {list(array.shape)}")
    return array if array.dtype.itemsize > 4 else array.astype(jnp.float32)


def _constant(where: str, name: str, value: ArrayLike, like: jax.Array) -> jax.Array:
    """Log-probabilities that carry no gradient, in the shape and dtype of the policy's."""
    array = _floating(where, name, value)
    _same_shape(where, name, array.shape, like.shape)
    return jax.lax.stop_gradient(array.astype(like.dtype))


def _advantages(where: str, value: ArrayLike, like: jax.Array) -> jax.Array:
    """Advantages, [batch] or [batch, time], as [batch, time] without gradient."""
    array = _floating(where, "advantages", value)
    if array.shape not in (like.shape[:1], like.shape):
        raise ValueError(
            f"{where}: advantages must be [batch] = {list(like.shape[:1])} or [batch, time] = {list(like.shape)},"
            f" got {list(array.shape)}"
        )
    if array.ndim == 1:
        array = jnp.broadcast_to(array[:, None], like.shape)
    return jax.lax.stop_gradient(array.astype(like.dtype))


def _counted(where: str, name: str, mask: ArrayLike, shape: tuple[int, ...]) -> jax.Array:
    """The mask as booleans."""
    array = jnp.asarray(mask)
    _same_shape(where, name, array.shape, shape)
    return array.astype(bool)


def _policy(
    where: str, logprobs: ArrayLike, mask: ArrayLike, segments: ArrayLike | None, num_segments: int | None
) -> tuple[jax.Array, jax.Array, _Packing]:
    """The policy's log-probabilities, which of them count, and how rows are packed."""
    logp = _logprobs(where, "logprobs", logprobs)
    counted = _counted(where, "mask", mask, logp.shape)
    if (segments is None) != (num_segments is None):
        raise ValueError(f"{where}: segments and num_segments are given together or not at all")
    if segments is None or num_segments is None:
        return logp, counted, _Packing(None, 1)
    array = jnp.asarray(segments)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(f"{where}: segments must have an integer dtype, got {array.dtype}")
    _same_shape(where, "segments", array.shape, logp.shape)
    if num_segments < 1:
        raise ValueError(f"{where}: num_segments must be 1 or more, got {num_segments}")
    return logp, counted & (array > 0), _Packing(array, num_segments)
