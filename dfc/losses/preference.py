"""Losses of pairs: a chosen trajectory and a rejected one."""

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dfc.losses.inputs import constant_input, counted_input, logprobs_input, not_negative
from dfc.losses.loss import Loss, summed


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
    return summed(sides.dpo.sum(), sides.complete.sum(), sides.metrics)


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
    not_negative("rpo_loss", alpha=alpha)
    chosen = chosen_logprobs, chosen_mask, chosen_reference_logprobs
    rejected = rejected_logprobs, rejected_mask, rejected_reference_logprobs
    sides = _preference_sides("rpo_loss", chosen, rejected, beta)
    parts = {"dpo": sides.dpo.sum(), "sft": sides.sft.sum()}
    return summed(parts["dpo"] + alpha * parts["sft"], sides.complete.sum(), sides.metrics | parts)


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
    logp = logprobs_input(where, f"{side}_logprobs", logprobs)
    counted = counted_input(where, f"{side}_mask", mask, logp.shape)
    reference = constant_input(where, f"{side}_reference_logprobs", reference_logprobs, logp)
    logp, reference = jnp.where(counted, logp, 0), jnp.where(counted, reference, 0)
    return (logp - reference).sum(axis=1), logp.sum(axis=1), counted.sum(axis=1, dtype=logp.dtype)
