"""The clipped policy gradient: GRPO, GSPO and what lies between, and the pieces that they are made of.

The pieces take and return values per token, [batch, time]; `dfc.losses.aggregation.aggregate` makes a `Loss` of them.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dfc.losses.aggregation import check_unit, sums_of
from dfc.losses.exponentials import k3_divergence, scaled_exp
from dfc.losses.importance import ImportanceMode, check_importance, importance_weights
from dfc.losses.inputs import (
    advantages_input,
    constant_input,
    not_negative,
    one_of,
    policy_inputs,
    same_shape,
    token_values_input,
)
from dfc.losses.loss import Loss
from dfc.losses.sequences import Packing, Unit


def log_likelihood_ratio(
    logprobs: ArrayLike,
    old_logprobs: ArrayLike,
    mask: ArrayLike,
    *,
    kind: Literal["token", "sequence"] = "token",
    segments: ArrayLike | None = None,
    num_segments: int | None = None,
) -> jax.Array:
    r"""The logarithm of the likelihood ratio between two policies, of each action token.

    With S the action tokens of the token's sequence, and sg the stop-gradient::

        token:     log r(t) = log pi(t) - log pi_old(t)
        sequence:  log r(t) = sg((1 / |S|) sum_{u in S} (log pi(u) - log pi_old(u))) + log pi(t) - sg(log pi(t))

    The second has the value of the sequence's length-normalized ratio at each of its tokens and the derivative of a
    token's, so that turns may differ in their advantage. It is a logarithm because r itself may be larger than the
    dtype's numbers; `clipped_surrogate` takes it as it is.

    Args:
      logprobs: floating [batch, time], log pi of each token under the policy being trained.
      old_logprobs: floating [batch, time], log pi_old; no gradient passes.
      mask: [batch, time], 1 at action tokens.
      kind: whose ratio, a token's or its sequence's.
      segments: int [batch, time], for packed rows.
      num_segments: the largest number of sequences in a row; given together with `segments`.

    Returns:
      Floating [batch, time] in float32 or wider, finite where the mask is 1, without gradient where it is 0.
      Log-probabilities below -1e30, minus infinity among them, count as -1e30.

    Raises:
      ValueError: shapes or types do not fit.

    Source: ``token``: Proximal Policy Optimization (arXiv 1707.06347), section 3; ``sequence``: GSPO (arXiv
    2507.18071), section 4, with the gradient of its GSPO-token.

    >>> new, old = jnp.log(jnp.asarray([[0.8, 0.2]])), jnp.log(jnp.asarray([[0.4, 0.4]]))
    >>> [f"{x:.2f}" for x in jnp.exp(log_likelihood_ratio(new, old, jnp.ones((1, 2))))[0]]
    ['2.00', '0.50']
    >>> [f"{x:.2f}" for x in jnp.exp(log_likelihood_ratio(new, old, jnp.ones((1, 2)), kind="sequence"))[0]]
    ['1.00', '1.00']
    """
    where = "log_likelihood_ratio"
    one_of(where, ("token", "sequence"), kind=kind)
    logp, counted, packing = policy_inputs(where, logprobs, mask, segments, num_segments)
    old = constant_input(where, "old_logprobs", old_logprobs, logp)
    return _log_ratio(jnp.where(counted, logp, 0), jnp.where(counted, old, 0), counted, packing, kind)


def _log_ratio(logp: jax.Array, old: jax.Array, counted: jax.Array, packing: Packing, kind: str) -> jax.Array:
    """The same of arrays that are finite, and 0 where nothing counts."""
    if kind == "token":
        return logp - old
    return jax.lax.stop_gradient(packing.means(logp - old, counted)) + (logp - jax.lax.stop_gradient(logp))


class Surrogate(NamedTuple):
    """What `clipped_surrogate` returns, all [batch, time].

    Attributes:
      values: to be minimized; the only one with a gradient.
      ratio: r, bounded as the values are.
      clipped: bool, where clipping stops the gradient.
    """

    values: jax.Array
    ratio: jax.Array
    clipped: jax.Array


def clipped_surrogate(
    log_ratio: ArrayLike,
    advantages: ArrayLike,
    *,
    clip_ratio: float,
    clip_ratio_high: float | None = None,
    log_weight: ArrayLike | None = None,
) -> Surrogate:
    r"""The clipped objective of proximal policy optimization, per token.

    With r = exp(log_ratio), low = clip_ratio, high = clip_ratio_high (or clip_ratio) and w = exp(log_weight)::

        values = -w min(r A, clip(r, 1 - low, 1 + high) A)

    The gradient is that of the branch that the minimum takes; where both are equal, at r = 1 - low and r = 1 + high
    exactly, it is the unclipped one's. The product w r A is right up to half of the largest number of the dtype
    (1.7e38 in float32); beyond, the value stays there and its derivative by log r is as large: never NaN.

    Args:
      log_ratio: floating [batch, time], finite where it counts; `log_likelihood_ratio`, or one of your own.
      advantages: floating [batch] or [batch, time]; no gradient passes.
      clip_ratio: 0 or more and below 1.
      clip_ratio_high: 0 or more, infinity included; None takes `clip_ratio`.
      log_weight: floating [batch, time], finite where it counts, of a constant factor; None: 1.

    Returns:
      `Surrogate`. What stands where a token does not count is for `aggregate` to leave out.

    Raises:
      ValueError: shapes, types or bounds do not fit.

    Source: Proximal Policy Optimization (arXiv 1707.06347), section 3, eq. 7; two bounds: DAPO (arXiv 2503.14476),
    section 3.1. Departure: `log_weight`.

    >>> ratio = jnp.log(jnp.asarray([[2.0, 0.5], [2.0, 0.5]]))
    >>> found = clipped_surrogate(ratio, jnp.asarray([1.0, -1.0]), clip_ratio=0.25)
    >>> found.values.tolist(), found.clipped.tolist()
    ([[-1.25, -0.5], [2.0, 0.75]], [[True, False], [False, True]])
    """
    where = "clipped_surrogate"
    high = _check_clip(where, clip_ratio, clip_ratio_high)
    log_r = token_values_input(where, "log_ratio", log_ratio)
    advantage = advantages_input(where, advantages, log_r)
    weight = jnp.zeros_like(log_r) if log_weight is None else _constant_factor(where, log_weight, log_r)
    r = scaled_exp(log_r, 1.0)
    clipped = ((r > 1 + high) & (advantage > 0)) | ((r < 1 - clip_ratio) & (advantage < 0))
    # The branch is chosen before the exponentials: that of a branch not taken may overflow. `minimum` of the two
    # products would also halve the gradient where they are equal.
    bound = jnp.where(advantage > 0, 1 + high, 1 - clip_ratio)
    kept = scaled_exp(jnp.where(clipped, 0, log_r) + weight, advantage)
    values = -jnp.where(clipped, jax.lax.stop_gradient(scaled_exp(weight, bound * advantage)), kept)
    return Surrogate(values, jax.lax.stop_gradient(r), clipped)


def k3(logprobs: ArrayLike, reference_logprobs: ArrayLike, mask: ArrayLike, *, coefficient: float = 1.0) -> jax.Array:
    r"""An estimate of KL(pi, pi_ref) from each action token that pi sampled: unbiased and never negative.

    With d = log pi_ref - log pi::

        coefficient (exp(d) - d - 1)

    It is right up to half of the largest number of the dtype (1.7e38 in float32); beyond, it stays there and its
    derivative by d is as large.

    Args:
      logprobs: floating [batch, time], log pi of each token under the policy being trained.
      reference_logprobs: floating [batch, time], log pi_ref; no gradient passes.
      mask: [batch, time], 1 at action tokens.
      coefficient: above 0, a factor within these bounds.

    Returns:
      Floating [batch, time] in float32 or wider, 0 where the mask is 0. Log-probabilities below -1e30 count as -1e30.

    Raises:
      ValueError: shapes, types or the coefficient do not fit.

    Source: Schulman, Approximating KL Divergence (2020), k3; DeepSeekMath (arXiv 2402.03300), section 4.1, eq. 4.

    >>> penalty = k3(jnp.log(jnp.asarray([[0.5, 0.5]])), jnp.log(jnp.asarray([[0.5, 1.0]])), jnp.ones((1, 2)))
    >>> [f"{x:.3f}" for x in penalty[0]]
    ['0.000', '0.307']
    """
    where = "k3"
    if not coefficient > 0:
        raise ValueError(f"{where}: coefficient must be above 0, got {coefficient}")
    logp, counted, _ = policy_inputs(where, logprobs, mask, None, None)
    reference = constant_input(where, "reference_logprobs", reference_logprobs, logp)
    return k3_divergence(jnp.where(counted, reference, 0) - jnp.where(counted, logp, 0), coefficient)


def grpo_loss(
    logprobs: ArrayLike,
    sampled_logprobs: ArrayLike,
    advantages: ArrayLike,
    mask: ArrayLike,
    *,
    clip_ratio: float = 0.1,
    clip_ratio_high: float | None = None,
    reference_logprobs: ArrayLike | None = None,
    kl_coefficient: float = 0.0,
    proximal_logprobs: ArrayLike | None = None,
    importance_cap: float = 0.0,
    importance_floor: float = 0.0,
    importance_mode: ImportanceMode = "token_truncate",
    ratio: Literal["token", "sequence"] = "token",
    unit: Unit = "token",
    max_length: float = 0.0,
    segments: ArrayLike | None = None,
    num_segments: int | None = None,
) -> Loss:
    r"""Clipped policy-gradient loss with group-relative advantages and a KL penalty.

    Per action token, with r = exp(log pi - log pi_old), d = log pi_ref - log pi, low = clip_ratio and
    high = clip_ratio_high (or clip_ratio)::

        l = -min(r A, clip(r, 1 - low, 1 + high) A) + kl_coefficient (exp(d) - d - 1)

    The weights that sampled have slightly different probabilities in the sampler, pi_old, and in the trainer, pi_prox.
    With `importance_cap` above 0, r is exp(log pi - log pi_prox), and the first term of l is multiplied by a constant
    w, which `importance_mode` makes of rho, the token's or its sequence's; with S the sequence's action tokens, floor =
    importance_floor and cap = importance_cap::

        token:     rho(t) = pi_prox(t) / pi_old(t)
        sequence:  rho(t) = prod_{u in S} pi_prox(u) / pi_old(u)
        truncate:  w = min(max(rho, floor), cap)
        mask:      w = rho if floor <= rho <= cap else 0

    A masked token keeps its KL penalty and its place in what the sum of l is divided by. The mode is independent of
    `ratio`, which says whose ratio is clipped: with `ratio="sequence"` and ``token_truncate``, the default, each token
    of a sequence has a weight of its own, by which its own derivative is multiplied.

    `ratio="sequence"` is GSPO: r is the ratio of the whole sequence, the same at each of its tokens. With S the
    sequence's action tokens, in an episode those of all turns::

        r = exp((1 / |S|) sum_{t in S} (log pi(t) - log pi_old(t)))

    It is differentiated as sg(r) pi(t) / sg(pi(t)), sg the stop-gradient, so that turns may differ in their advantage;
    where they do not, the gradient is that of r itself. The KL penalty stays that of each token. Such ratios lie closer
    to 1 than those of tokens; the paper clips at 3e-4 below and 4e-4 above.

    The gradient is that of the branch that the minimum takes; where both are equal, at r = 1 - low and r = 1 + high
    exactly, it is the unclipped one's. Of each token, w r A and the KL penalty are right up to half of the largest
    number of the dtype (1.7e38 in float32); beyond, the term stays there and its derivative by log pi is as large:
    never NaN, and for a single token never infinite (a sum over many such tokens may be). Log-probabilities below
    -1e30, minus infinity among them, count as -1e30 and get no gradient.

    `unit` says what the sum of l is divided by, and goes with either ratio:

    - ``token``: the number of action tokens in the batch, as DAPO does. Every token weighs the same.
    - ``sequence``: within each sequence its number of action tokens, then the number of sequences, as the GRPO and GSPO
      papers do. Every sequence weighs the same; a token of a long one weighs less.
    - ``fixed_length``: `max_length` times the number of sequences, as Dr. GRPO does. Every token weighs the same, also
      beside those of batches with longer or shorter sequences.

    Args:
      logprobs: floating [batch, time], log pi of each token under the policy being trained.
      sampled_logprobs: floating [batch, time], the same under the policy that sampled.
      advantages: floating [batch], or [batch, time] where rows are packed or turns differ.
      mask: [batch, time], 1 at action tokens.
      clip_ratio: 0 or more and below 1.
      clip_ratio_high: 0 or more; None takes `clip_ratio`.
      reference_logprobs: floating [batch, time], log pi_ref; needed for a KL coefficient above 0.
      kl_coefficient: 0 or more.
      proximal_logprobs: floating [batch, time]; None takes log pi, right for the first update after sampling only.
      importance_cap: 0 or more; 0 turns the correction off, infinity is no upper bound.
      importance_floor: 0 or more, finite and at most the cap; 0 is no lower bound.
      importance_mode: whose weight it is, and whether one out of bounds is cut or masked; with weights of sequences,
        packed rows need `segments`.
      ratio: whose likelihood ratio is clipped, a token's or its sequence's; packed rows need `segments` to tell
        sequences apart.
      unit: what is averaged over.
      max_length: the constant of ``fixed_length``, above 0: the most action tokens a sequence can have, the same in all
        batches. 0 with the other units.
      segments: int [batch, time], for packed rows.
      num_segments: the largest number of sequences in a row; given together with `segments`.

    Returns:
      Unit: an action token, or a sequence with at least one. All-masked input gives total 0 and weight 0.
      Metrics: `ratio`, r; `clip_fraction`, 1 where clipping stops the gradient (r above 1 + high with A > 0, or below
      1 - low with A < 0); `negative_logprob`, -log pi, on-policy an estimate of the entropy per token; with a
      reference, `kl`, the penalty before its coefficient; with a cap, `importance_weight`, w, and `importance_capped`,
      1 if rho is out of bounds. All are taken per token and summed as l is, with ``fixed_length`` as with ``sequence``:
      with `ratio="sequence"`, `unit="sequence"` and one advantage per sequence, `clip_fraction` counts clipped
      sequences. With a cap also `Loss.importance`, over the tokens or the sequences of the mode, whatever the unit.

    Raises:
      ValueError: shapes, types or coefficients do not fit.

    Source: DeepSeekMath (arXiv 2402.03300), section 4.1, eq. 3 and 4; Divide-Fuse-Conquer (arXiv 2505.16401),
    Algorithm 2; ``token_truncate``: Yao et al., On the Rollout-Training Mismatch in Modern RL Systems (workshop paper,
    2025, OpenReview 8MHqvb4lK9); the four modes: TRL 1.16, `vllm_importance_sampling_mode`; `ratio="sequence"`: GSPO
    (arXiv 2507.18071), section 4, with the gradient of its GSPO-token; `unit="token"` and two bounds of the clip: DAPO
    (arXiv 2503.14476), section 3, eq. 8; `unit="fixed_length"`: Dr. GRPO (arXiv 2503.20783), section 3.2, whose
    advantages are not divided by their deviation (`normalize_std` of `dfc.advantages.group_relative`). Departures:
    `unit="token"` is the default, and takes the mean over the batch where DAPO's paper has one for each group (its code
    does as here); GSPO's paper has no weight w; TRL's default mode is ``sequence_mask``, with a cap of 3, and with
    ratios of sequences and weights of tokens its gradient has the mean of a sequence's weights at each of its tokens.

    >>> half = jnp.log(jnp.asarray([[0.5, 0.5]]))
    >>> loss = grpo_loss(half, half, jnp.asarray([2.0]), jnp.ones((1, 2)))
    >>> float(loss.mean), float(loss.metric_means["ratio"])
    (-2.0, 1.0)
    """
    where = "grpo_loss"
    _check_clip(where, clip_ratio, clip_ratio_high)
    not_negative(where, kl_coefficient=kl_coefficient)
    check_importance(where, importance_mode, importance_cap, importance_floor)
    if kl_coefficient and reference_logprobs is None:
        raise ValueError(f"{where}: kl_coefficient is {kl_coefficient} but reference_logprobs is None; give both")
    if proximal_logprobs is not None and not importance_cap:
        raise ValueError(f"{where}: proximal_logprobs are given but importance_cap is 0; give both")
    one_of(where, ("token", "sequence"), ratio=ratio)
    check_unit(where, unit, max_length)
    logp, counted, packing = policy_inputs(where, logprobs, mask, segments, num_segments)
    sampled = constant_input(where, "sampled_logprobs", sampled_logprobs, logp)
    proximal = logp if proximal_logprobs is None else proximal_logprobs
    before = constant_input(where, "proximal_logprobs", proximal, logp) if importance_cap else sampled
    advantage = advantages_input(where, advantages, logp)

    # Replaced before the exponentials, not after: a gradient of inf times zero is NaN.
    logp, sampled, before, advantage = (jnp.where(counted, x, 0) for x in (logp, sampled, before, advantage))
    weights = None
    metrics = {"negative_logprob": -logp}
    if importance_cap:
        bounds = importance_mode, importance_cap, importance_floor
        weights = importance_weights(before - sampled, counted, packing, *bounds)
        metrics["importance_weight"] = jnp.where(weights.kept, scaled_exp(weights.logs, 1.0), 0)
        metrics["importance_capped"] = weights.outside
    surrogate = clipped_surrogate(
        _log_ratio(logp, before, counted, packing, ratio),
        advantage,
        clip_ratio=clip_ratio,
        clip_ratio_high=clip_ratio_high,
        log_weight=None if weights is None else weights.logs,
    )
    # Bounded values have bounded derivatives: where they are left out, both are 0 and not NaN.
    values = surrogate.values if weights is None else jnp.where(weights.kept, surrogate.values, 0)
    metrics |= {"ratio": surrogate.ratio, "clip_fraction": surrogate.clipped}
    if reference_logprobs is not None:
        reference = jnp.where(counted, constant_input(where, "reference_logprobs", reference_logprobs, logp), 0)
        metrics["kl"] = k3_divergence(reference - logp)
        if kl_coefficient:
            values = values + k3_divergence(reference - logp, kl_coefficient)
    found = sums_of(values, metrics, counted, packing, unit, max_length)
    return found if weights is None else dataclasses.replace(found, importance=weights.sums)


def _check_clip(where: str, clip_ratio: float, clip_ratio_high: float | None) -> float:
    """Refuses bounds that are none; returns the upper one."""
    high = clip_ratio if clip_ratio_high is None else clip_ratio_high
    if not 0 <= clip_ratio < 1:
        raise ValueError(f"{where}: clip_ratio must be in [0, 1), got {clip_ratio}")
    not_negative(where, clip_ratio_high=high)
    return high


def _constant_factor(where: str, log_weight: ArrayLike, like: jax.Array) -> jax.Array:
    """The logarithm of a factor without gradient, in the shape of the logarithms of ratios."""
    array = token_values_input(where, "log_weight", log_weight)
    same_shape(where, "log_weight", array.shape, like.shape)
    return jax.lax.stop_gradient(array.astype(like.dtype))
