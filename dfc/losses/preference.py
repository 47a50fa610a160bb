"""Losses of pairs: a chosen trajectory and a rejected one.

One family, computed in one place from sums over the action tokens of each side. DPO, RPO and SimPO are settings of it;
`packed_preference_loss` takes all of them on packed rows. The arrays of two sides are given by name: they are alike in
shape and type, so that an order that differs from another library's would go unnoticed.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dfc.losses.inputs import constant_input, counted_input, logprobs_input, not_negative, policy_inputs
from dfc.losses.loss import Loss, summed
from dfc.losses.sequences import Packing


def dpo_loss(
    *,
    chosen_logprobs: ArrayLike,
    chosen_mask: ArrayLike,
    rejected_logprobs: ArrayLike,
    rejected_mask: ArrayLike,
    chosen_reference_logprobs: ArrayLike,
    rejected_reference_logprobs: ArrayLike,
    beta: float = 0.1,
    normalize_length: bool = False,
) -> Loss:
    r"""Direct preference optimization over trajectories of several turns.

    Row i holds a pair: the chosen trajectory w and the rejected one l. With A the action tokens of a trajectory (what
    the environment wrote is left out)::

        reward(h) = beta sum_{t in A(h)} (log pi(t) - log pi_ref(t))
        total     = sum_i -log sigmoid(reward(w_i) - reward(l_i))

    Args:
      chosen_logprobs: floating [batch, time].
      chosen_mask: [batch, time], 1 at action tokens.
      rejected_logprobs: floating [batch, other_time].
      rejected_mask: [batch, other_time], 1 at action tokens.
      chosen_reference_logprobs: floating [batch, time], under the reference policy.
      rejected_reference_logprobs: floating [batch, other_time].
      beta: above 0.
      normalize_length: whether a reward is beta times the mean over A(h) instead of the sum; a fitting beta is then
        larger, by about the number of tokens.

    Returns:
      Unit: a pair with at least one action token on both sides; another pair counts nothing.
      Metrics: `accuracy`, 1 where the chosen reward is the larger one; `margin`, reward(w) - reward(l);
      `chosen_reward`; `rejected_reward`.

    Raises:
      ValueError: shapes, types or beta do not fit.

    Source: Paprika (arXiv 2502.17543), section 3.3, eq. 2, after Rafailov et al. (arXiv 2404.12358);
    `normalize_length`: Tulu 3 (arXiv 2411.15124), its length-normalized DPO.

    >>> chosen, rejected = jnp.asarray([[-1.0, -1.0]]), jnp.asarray([[-2.0]])
    >>> loss = dpo_loss(
    ...     chosen_logprobs=chosen, chosen_mask=jnp.ones((1, 2)), chosen_reference_logprobs=chosen - 3.0,
    ...     rejected_logprobs=rejected, rejected_mask=jnp.ones((1, 1)), rejected_reference_logprobs=rejected, beta=0.5,
    ... )
    >>> float(loss.metrics["margin"]), round(float(loss.mean), 4)  # log(1 + exp(-3))
    (3.0, 0.0486)
    """
    chosen = (chosen_logprobs, chosen_mask, chosen_reference_logprobs)
    rejected = (rejected_logprobs, rejected_mask, rejected_reference_logprobs)
    form = _Form("dpo_loss", beta=beta, alpha=0, normalize_length=normalize_length)
    return _without_parts(_loss_of_rows(form, chosen, rejected))


def rpo_loss(
    *,
    chosen_logprobs: ArrayLike,
    chosen_mask: ArrayLike,
    rejected_logprobs: ArrayLike,
    rejected_mask: ArrayLike,
    chosen_reference_logprobs: ArrayLike,
    rejected_reference_logprobs: ArrayLike,
    beta: float = 0.1,
    alpha: float = 1.0,
    normalize_length: bool = False,
) -> Loss:
    r"""DPO plus the likelihood of the chosen trajectory, which DPO alone may lower.

    Per pair, with A the action tokens of the chosen trajectory::

        l = dpo + alpha * -(1 / |A|) sum_{t in A} log pi(t)

    Args:
      chosen_logprobs: [batch, time], as for `dpo_loss`, like the next five.
      chosen_mask: [batch, time].
      rejected_logprobs: [batch, other_time].
      rejected_mask: [batch, other_time].
      chosen_reference_logprobs: [batch, time].
      rejected_reference_logprobs: [batch, other_time].
      beta: above 0.
      alpha: 0 or more.
      normalize_length: as for `dpo_loss`; the likelihood is a mean in any case.

    Returns:
      Unit: a pair, as for `dpo_loss`. Metrics: those of `dpo_loss`; `dpo` and `sft`, the two parts before `alpha`.

    Raises:
      ValueError: shapes, types or coefficients do not fit.

    Source: Paprika (arXiv 2502.17543), section 3.3, eq. 3 with alpha = 1, after Pang et al. (arXiv 2404.19733).

    >>> logprobs, ones = jnp.asarray([[-1.0, -3.0]]), jnp.ones((1, 2))
    >>> loss = rpo_loss(
    ...     chosen_logprobs=logprobs, chosen_mask=ones, chosen_reference_logprobs=logprobs,
    ...     rejected_logprobs=logprobs, rejected_mask=ones, rejected_reference_logprobs=logprobs, alpha=0.5,
    ... )
    >>> round(float(loss.metrics["dpo"]), 4), float(loss.metrics["sft"]), round(float(loss.total), 4)
    (0.6931, 2.0, 1.6931)
    """
    chosen = (chosen_logprobs, chosen_mask, chosen_reference_logprobs)
    rejected = (rejected_logprobs, rejected_mask, rejected_reference_logprobs)
    return _loss_of_rows(_Form("rpo_loss", beta, alpha, normalize_length=normalize_length), chosen, rejected)


def simpo_loss(
    *,
    chosen_logprobs: ArrayLike,
    chosen_mask: ArrayLike,
    rejected_logprobs: ArrayLike,
    rejected_mask: ArrayLike,
    beta: float = 2.0,
    margin: float = 1.0,
) -> Loss:
    r"""Simple preference optimization: no reference policy, rewards per token, and a margin to keep.

    With A the action tokens of a trajectory, w the chosen and l the rejected one of pair i::

        reward(h) = beta / |A(h)| sum_{t in A(h)} log pi(t)
        total     = sum_i -log sigmoid(reward(w_i) - reward(l_i) - margin)

    Args:
      chosen_logprobs: floating [batch, time].
      chosen_mask: [batch, time], 1 at action tokens.
      rejected_logprobs: floating [batch, other_time].
      rejected_mask: [batch, other_time], 1 at action tokens.
      beta: above 0; the paper's beta.
      margin: 0 or more; the paper's gamma. It does not scale with beta: code that asks for the ratio gamma / beta means
        `margin` / `beta`.

    Returns:
      Unit: a pair, as for `dpo_loss`. Metrics: those of `dpo_loss`; there `margin` is reward(w) - reward(l), nothing
      subtracted.

    Raises:
      ValueError: shapes, types or coefficients do not fit.

    Source: SimPO (Meng et al., arXiv 2405.14734), eq. 6; the defaults are those of its training file for the base model
    Llama 3 8B (gamma / beta = 0.5). Departure: the action tokens of several turns count; the paper's answers are one
    turn.

    >>> chosen, rejected = jnp.asarray([[-1.0, -1.0]]), jnp.asarray([[-2.0]])
    >>> loss = simpo_loss(
    ...     chosen_logprobs=chosen, chosen_mask=jnp.ones((1, 2)),
    ...     rejected_logprobs=rejected, rejected_mask=jnp.ones((1, 1)), beta=2.0, margin=0.5,
    ... )
    >>> float(loss.metrics["margin"]), round(float(loss.mean), 4)  # log(1 + exp(-1.5))
    (2.0, 0.2014)
    """
    form = _Form("simpo_loss", beta=beta, alpha=0, normalize_length=True, margin=margin)
    loss = _loss_of_rows(form, (chosen_logprobs, chosen_mask, None), (rejected_logprobs, rejected_mask, None))
    return _without_parts(loss)


def packed_preference_loss(
    logprobs: ArrayLike,
    mask: ArrayLike,
    reference_logprobs: ArrayLike | None,
    *,
    segments: ArrayLike,
    num_segments: int,
    beta: float = 0.1,
    alpha: float = 1.0,
    preference_weight: float = 1.0,
    normalize_length: bool = False,
    margin: float = 0.0,
) -> Loss:
    r"""The whole family on packed rows, both sides of a pair in one row.

    Segments 2k-1 and 2k of a row are the chosen trajectory w and the rejected one l of its pair k. With A the action
    tokens of a trajectory, and R = 1, or 1 / |A(h)| with `normalize_length`::

        reward(h) = beta R sum_{t in A(h)} (log pi(t) - log pi_ref(t))
        l         = preference_weight * -log sigmoid(reward(w) - reward(l) - margin)
                    + alpha * -(1 / |A(w)|) sum_{t in A(w)} log pi(t)

    RPO: alpha 1. DPO: alpha 0. Supervised training on the chosen sides: preference_weight 0. Length-normalized DPO:
    alpha 0 and `normalize_length`. SimPO: the same, without reference, and its gamma as `margin`.

    Args:
      logprobs: floating [batch, time].
      mask: [batch, time], 1 at action tokens.
      reference_logprobs: floating [batch, time], under the reference policy; None to leave log pi_ref out.
      segments: int [batch, time]; 0 is padding.
      num_segments: the largest number of trajectories in a row, even.
      beta: above 0.
      alpha: 0 or more.
      preference_weight: 0 or more.
      normalize_length: whether rewards are per token.
      margin: 0 or more; by how much the chosen reward is to be the larger one. It does not scale with beta.

    Returns:
      Unit: a pair with at least one action token on both sides; another pair counts nothing. All-masked input gives
      total 0 and weight 0. A segment id out of range makes the total NaN.
      Metrics: `accuracy`, 1 where the chosen reward is the larger one; `margin`, reward(w) - reward(l), nothing
      subtracted; `chosen_reward`; `rejected_reward`; `dpo` and `sft`, the two parts before their weights.

    Raises:
      ValueError: shapes, types or coefficients do not fit, or num_segments is odd.

    Source: as for `rpo_loss`, `dpo_loss` and `simpo_loss`. Departure: `preference_weight` is ours.

    >>> logprobs, segments = jnp.asarray([[-1.0, -1.0, -2.0, 0.0]]), jnp.asarray([[1, 1, 2, 0]])
    >>> loss = packed_preference_loss(
    ...     logprobs, jnp.ones((1, 4)), None, segments=segments, num_segments=2, beta=1.0, normalize_length=True
    ... )
    >>> float(loss.metrics["margin"]), round(float(loss.mean), 4)  # log(1 + exp(-1)) + 1
    (1.0, 1.3133)
    """
    where = "packed_preference_loss"
    if num_segments % 2:
        raise ValueError(f"{where}: num_segments must be even, two trajectories to a pair, got {num_segments}")
    form = _Form(where, beta, alpha, preference_weight, normalize_length, margin)
    logp, counted, packing = policy_inputs(where, logprobs, mask, segments, num_segments)
    reference = None
    if reference_logprobs is not None:
        reference = constant_input(where, "reference_logprobs", reference_logprobs, logp)
    both = _sums(packing, logp, counted, reference)
    chosen, rejected = (jax.tree.map(lambda x, first=first: x[:, first::2], both) for first in (0, 1))
    loss = form(chosen, rejected)
    return dataclasses.replace(loss, total=packing.checked(loss.total))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Sums:
    """Per trajectory: the log ratio to the reference, the log-probability, the number of action tokens."""

    log_ratio: jax.Array
    logp: jax.Array
    length: jax.Array


@dataclasses.dataclass(frozen=True)
class _Form:
    """One member of the family: checked coefficients, then the loss of pairs from the sums of their sides."""

    where: str
    beta: float
    alpha: float
    preference_weight: float = 1.0
    normalize_length: bool = False
    margin: float = 0.0

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise ValueError(f"{self.where}: beta must be above 0, got {self.beta}")
        not_negative(self.where, alpha=self.alpha, preference_weight=self.preference_weight, margin=self.margin)

    def __call__(self, chosen: _Sums, rejected: _Sums) -> Loss:
        """The loss of pairs whose sums have the same shape, one entry each."""
        complete = (chosen.length > 0) & (rejected.length > 0)
        chosen_reward, rejected_reward = (jnp.where(complete, self._reward(side), 0) for side in (chosen, rejected))
        gap = chosen_reward - rejected_reward
        dpo = jnp.where(complete, jax.nn.softplus(self.margin - gap), 0).sum()
        sft = jnp.where(complete, -chosen.logp / jnp.maximum(chosen.length, 1), 0).sum()
        # A part of weight 0 is left out: times 0, an infinite one would be NaN.
        total = jnp.zeros_like(dpo)
        for weight, part in ((self.preference_weight, dpo), (self.alpha, sft)):
            total = total + weight * part if weight else total
        metrics = {
            "accuracy": (gap > 0).sum(dtype=gap.dtype),
            "margin": gap.sum(),
            "chosen_reward": chosen_reward.sum(),
            "rejected_reward": rejected_reward.sum(),
            "dpo": dpo,
            "sft": sft,
        }
        return summed(total, complete.sum(), metrics)

    def _reward(self, side: _Sums) -> jax.Array:
        reward = self.beta * side.log_ratio
        return reward / jnp.maximum(side.length, 1) if self.normalize_length else reward


_Rows = tuple[ArrayLike, ArrayLike, ArrayLike | None]  # log-probabilities, mask, the reference's, [batch, time] each


def _loss_of_rows(form: _Form, chosen: _Rows, rejected: _Rows) -> Loss:
    """The loss of pairs whose sides are rows of their own: row i of both is pair i."""
    one, other = _side(form.where, "chosen", *chosen), _side(form.where, "rejected", *rejected)
    if one.length.shape != other.length.shape:
        raise ValueError(
            f"{form.where}: row i of both sides is pair i, but chosen has {one.length.shape[0]} rows"
            f" and rejected {other.length.shape[0]}"
        )
    if one.length.dtype != other.length.dtype:
        one, other = jax.tree.map(lambda x: x.astype(jnp.float64), (one, other))
    return form(one, other)


def _side(where: str, side: str, logprobs: ArrayLike, mask: ArrayLike, reference_logprobs: ArrayLike | None) -> _Sums:
    """The sums of one side, [batch, 1] each."""
    logp = logprobs_input(where, f"{side}_logprobs", logprobs)
    counted = counted_input(where, f"{side}_mask", mask, logp.shape)
    reference = None
    if reference_logprobs is not None:
        reference = constant_input(where, f"{side}_reference_logprobs", reference_logprobs, logp)
    return _sums(Packing(None, 1), logp, counted, reference)


def _sums(packing: Packing, logp: jax.Array, counted: jax.Array, reference: jax.Array | None) -> _Sums:
    logp = jnp.where(counted, logp, 0)
    log_ratio = logp if reference is None else logp - jnp.where(counted, reference, 0)
    return _Sums(packing.sums(log_ratio), packing.sums(logp), packing.sums(counted.astype(logp.dtype)))


def _without_parts(loss: Loss) -> Loss:
    """The loss without the metrics of its two parts, where it has only one."""
    metrics = {name: value for name, value in loss.metrics.items() if name not in ("dpo", "sft")}
    return dataclasses.replace(loss, metrics=metrics)
