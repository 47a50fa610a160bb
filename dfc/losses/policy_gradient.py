"""The clipped policy gradient: GRPO, GSPO and what lies between."""

import math
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dfc.losses.exponentials import k3_divergence, scaled_exp
from dfc.losses.inputs import advantages_input, constant_input, not_negative, one_of, policy_inputs
from dfc.losses.loss import Loss, summed
from dfc.losses.sequences import Unit, sum_over_units


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
    With `importance_cap` above 0, r is exp(log pi - log pi_prox), and the first term of l is multiplied by the
    constant w = min(pi_prox / pi_old, importance_cap).

    `ratio="sequence"` is GSPO: r is the ratio of the whole sequence, the same at each of its tokens. With S the
    sequence's action tokens, in an episode those of all turns::

        r = exp((1 / |S|) sum_{t in S} (log pi(t) - log pi_old(t)))

    It is differentiated as sg(r) pi(t) / sg(pi(t)), sg the stop-gradient, so that turns may differ in their advantage;
    where they do not, the gradient is that of r itself. The weight w is the sequence's too: log pi_prox - log pi_old is
    averaged over S before the exponential and the cap. The KL penalty stays that of each token. Such ratios lie closer
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
      importance_cap: 0 or more; 0 turns the correction off, infinity never cuts.
      ratio: whose likelihood ratio is clipped and weighted, a token's or its sequence's; packed rows need `segments` to
        tell sequences apart.
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
      1 if cut. All are taken per token and summed as l is, with ``fixed_length`` as with ``sequence``: with
      `ratio="sequence"`, `unit="sequence"` and one advantage per sequence, `clip_fraction` counts clipped sequences.

    Raises:
      ValueError: shapes, types or coefficients do not fit.

    Source: DeepSeekMath (arXiv 2402.03300), section 4.1, eq. 3 and 4; Divide-Fuse-Conquer (arXiv 2505.16401),
    Algorithm 2; truncated importance sampling: Yao et al., On the Rollout-Training Mismatch in Modern RL Systems
    (workshop paper, 2025, OpenReview 8MHqvb4lK9); `ratio="sequence"`: GSPO (arXiv 2507.18071), section 4, with the
    gradient of its GSPO-token; `unit="token"` and two bounds of the clip: DAPO (arXiv 2503.14476), section 3, eq. 8;
    `unit="fixed_length"`: Dr. GRPO (arXiv 2503.20783), section 3.2, whose advantages are not divided by their deviation
    (`normalize_std` of `dfc.advantages.group_relative`). Departures: `unit="token"` is the default, and takes the mean
    over the batch where DAPO's paper has one for each group (its code does as here); GSPO's paper has no weight w.

    >>> half = jnp.log(jnp.asarray([[0.5, 0.5]]))
    >>> loss = grpo_loss(half, half, jnp.asarray([2.0]), jnp.ones((1, 2)))
    >>> float(loss.mean), float(loss.metric_means["ratio"])
    (-2.0, 1.0)
    """
    where = "grpo_loss"
    high = clip_ratio if clip_ratio_high is None else clip_ratio_high
    if not 0 <= clip_ratio < 1:
        raise ValueError(f"{where}: clip_ratio must be in [0, 1), got {clip_ratio}")
    not_negative(where, clip_ratio_high=high, kl_coefficient=kl_coefficient, importance_cap=importance_cap)
    not_negative(where, max_length=max_length)
    if kl_coefficient and reference_logprobs is None:
        raise ValueError(f"{where}: kl_coefficient is {kl_coefficient} but reference_logprobs is None; give both")
    if proximal_logprobs is not None and not importance_cap:
        raise ValueError(f"{where}: proximal_logprobs are given but importance_cap is 0; give both")
    one_of(where, ("token", "sequence"), ratio=ratio)
    one_of(where, get_args(Unit), unit=unit)
    if (unit == "fixed_length") != (max_length > 0):
        raise ValueError(f"{where}: unit is {unit!r} but max_length is {max_length}; 'fixed_length' needs one above 0")
    logp, counted, packing = policy_inputs(where, logprobs, mask, segments, num_segments)
    sampled = constant_input(where, "sampled_logprobs", sampled_logprobs, logp)
    proximal = logp if proximal_logprobs is None else proximal_logprobs
    before = constant_input(where, "proximal_logprobs", proximal, logp) if importance_cap else sampled
    advantage = advantages_input(where, advantages, logp)

    # Replaced before the exponentials, not after: a gradient of inf times zero is NaN.
    logp, sampled, before, advantage = (jnp.where(counted, x, 0) for x in (logp, sampled, before, advantage))
    log_ratio, log_weight = logp - before, before - sampled
    if ratio == "sequence":
        log_ratio, log_weight = packing.means(log_ratio, counted), packing.means(log_weight, counted)
        log_ratio = jax.lax.stop_gradient(log_ratio) + (logp - jax.lax.stop_gradient(logp))
    r = scaled_exp(log_ratio, 1.0)
    stopped = ((r > 1 + high) & (advantage > 0)) | ((r < 1 - clip_ratio) & (advantage < 0))
    per_token = {"ratio": r, "clip_fraction": stopped.astype(logp.dtype), "negative_logprob": -logp}
    log_capped = jnp.zeros_like(logp)
    if importance_cap:
        log_capped = jnp.minimum(log_weight, math.log(importance_cap))
        per_token["importance_weight"] = scaled_exp(log_capped, 1.0)
        per_token["importance_capped"] = (log_weight > math.log(importance_cap)).astype(logp.dtype)
    # The branch is chosen before the exponentials: that of a branch not taken may overflow. `minimum` of the two
    # products would also halve the gradient where they are equal.
    bound = jnp.where(advantage > 0, 1 + high, 1 - clip_ratio)
    kept = scaled_exp(jnp.where(stopped, 0, log_ratio) + log_capped, advantage)
    values = -jnp.where(stopped, jax.lax.stop_gradient(scaled_exp(log_capped, bound * advantage)), kept)
    if reference_logprobs is not None:
        reference = jnp.where(counted, constant_input(where, "reference_logprobs", reference_logprobs, logp), 0)
        gap = reference - logp
        per_token["kl"] = k3_divergence(gap)
        if kl_coefficient:
            values = values + k3_divergence(gap, kl_coefficient)

    total = sum_over_units(values, counted, unit, packing) / (max_length or 1)
    # Bounded terms of both signs may overflow in the sum: infinity less infinity.
    total = jnp.where(jnp.isnan(total) & jnp.isfinite(values).all(), jnp.inf, total)
    averaged: Unit = "token" if unit == "token" else "sequence"
    metrics = {name: sum_over_units(x, counted, averaged, packing) for name, x in per_token.items()}
    weight = counted.sum() if unit == "token" else (packing.sums(counted.astype(logp.dtype)) > 0).sum()
    return summed(packing.checked(total), weight, metrics)
