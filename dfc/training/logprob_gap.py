"""How far log-probabilities of action tokens differ from earlier ones: two programs' results for one policy."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dfc.samples import TokenBatch


def gap(logprobs: jax.Array, batch: TokenBatch) -> dict[str, jax.Array]:
    """Returns sums and the maximum over action tokens of one micro-batch; see `dfc.training.trainer.Update.gap`."""
    sampled = jnp.asarray(batch.mask) != 0
    old = batch.sampled_logprobs if batch.reference_logprobs is None else batch.reference_logprobs
    d = jnp.where(sampled, jax.lax.stop_gradient(logprobs) - old, 0)
    # In float32 exp(d) - 1 - d of a small d is nothing but rounding: its series instead.
    kl = jnp.where(jnp.abs(d) < 0.01, d * d * (0.5 + d / 6), jnp.expm1(d) - d)
    return {"tokens": sampled.sum(), "mean": jnp.abs(d).sum(), "max": jnp.abs(d).max(), "kl": kl.sum()}


def joined(gaps: Sequence[Mapping[str, np.ndarray]], name: str) -> dict[str, float]:
    """Returns the gap over all micro-batches; zeros without an action token."""
    tokens = max(1, sum(int(one["tokens"]) for one in gaps))
    found = {f"{name}/{part}": sum(float(one[part]) for one in gaps) / tokens for part in ("mean", "kl")}
    return {**found, f"{name}/max": max((float(one["max"]) for one in gaps), default=0.0)}
