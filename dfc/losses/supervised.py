"""Supervised fine-tuning."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from dfc.losses.inputs import policy_inputs
from dfc.losses.loss import Loss, summed
from dfc.losses.sequences import sum_over_units


def sft_loss(
    logprobs: ArrayLike,
    mask: ArrayLike,
    *,
    segments: ArrayLike | None = None,
    num_segments: int | None = None,
) -> Loss:
    r"""Negative log-likelihood of action tokens, averaged within each trajectory first.

    With A_i the action tokens of trajectory i::

        total = sum_i  -(1 / |A_i|) sum_{t in A_i} log pi(t)

    Args:
      logprobs: floating [batch, time], log-probability of each token.
      mask: [batch, time], 1 at action tokens.
      segments: int [batch, time], for packed rows.
      num_segments: the largest number of trajectories in a row; given together with `segments`.

    Returns:
      Unit: a trajectory with at least one action token. All-masked input gives total 0 and weight 0.
      Metrics: `length`, the number of action tokens.

    Raises:
      ValueError: shapes or types do not fit.

    Source: Paprika (arXiv 2502.17543), section 3.3, eq. 1.

    >>> logprobs = jnp.asarray([[-1.0, -3.0, -9.0], [-4.0, -9.0, -9.0]])
    >>> loss = sft_loss(logprobs, jnp.asarray([[1, 1, 0], [1, 0, 0]]))
    >>> float(loss.total), float(loss.weight), float(loss.mean)
    (6.0, 2.0, 3.0)
    """
    logp, counted, packing = policy_inputs("sft_loss", logprobs, mask, segments, num_segments)
    logp = jnp.where(counted, logp, 0)
    total = sum_over_units(-logp, counted, "sequence", packing)
    lengths = packing.sums(counted.astype(logp.dtype))
    return summed(packing.checked(total), (lengths > 0).sum(), {"length": lengths.sum()})
