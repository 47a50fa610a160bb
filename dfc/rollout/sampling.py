"""Draws one id per row from logits, with the log-probability of exactly that draw."""

import jax
import jax.numpy as jnp
import numpy as np

from dfc.config import SamplingConfig

_REMOVED = np.float32(-np.inf)


def filtered_logprobs(logits: jax.Array, sampling: SamplingConfig) -> jax.Array:
    """Returns the log-probabilities really sampled from, float32 [B, V]; removed ids have -inf.

    Filters apply in the order temperature, top-k, top-p, min-p, each to the renormalised result of the one before:

    * temperature: logits / temperature (a temperature of 0 keeps only the most probable id),
    * top-k: the k largest; ties with the k-th are kept,
    * top-p: the smallest set of most probable ids with total probability >= p; ties with its last member are kept,
    * min-p: ids with probability >= min_p x the largest one (arXiv 2407.01082); a maximum and a compare, no sort.

    Filters that are off cost nothing: they are not part of the compiled program.

    Args:
      logits: [B, V], any float type.
      sampling: static settings.
    """
    logits = logits.astype(jnp.float32)
    if sampling.temperature == 0:
        first = jnp.argmax(logits, axis=-1)[:, None] == jnp.arange(logits.shape[-1])[None]
        return jnp.where(first, jnp.float32(0), _REMOVED)
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        smallest_kept = jax.lax.top_k(logits, sampling.top_k)[0][:, -1:]
        logits = jnp.where(logits >= smallest_kept, logits, _REMOVED)
    if sampling.top_p < 1:
        ordered = jnp.sort(jax.nn.softmax(logits, axis=-1), axis=-1, descending=True)
        before = jnp.cumsum(ordered, axis=-1) - ordered  # probability of everything more probable
        smallest_kept = jnp.min(jnp.where(before < sampling.top_p, ordered, jnp.inf), axis=-1, keepdims=True)
        logits = jnp.where(jax.nn.softmax(logits, axis=-1) >= smallest_kept, logits, _REMOVED)
    if sampling.min_p > 0:
        threshold = jnp.max(logits, axis=-1, keepdims=True) + np.float32(np.log(sampling.min_p))
        logits = jnp.where(logits >= threshold, logits, _REMOVED)
    return jax.nn.log_softmax(logits, axis=-1)


def draw(logits: jax.Array, uniforms: jax.Array, sampling: SamplingConfig) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Draws one id per row by inverting the cumulative distribution at a given uniform number.

    One number per row, made on the host from (seed, index), decides the draw: so it depends on nothing else, and it
    is several times cheaper on a CPU than noise for the whole vocabulary.

    Args:
      logits: [B, V].
      uniforms: float32 [B] in [0, 1).
      sampling: static settings.

    Returns:
      ids int32 [B]; log-probability under the filtered distribution, float32 [B]; under the plain softmax of the
      logits (temperature 1, no filter), float32 [B].
    """
    logprobs = filtered_logprobs(logits, sampling)
    probabilities = jnp.exp(logprobs)
    # A parallel sum adds in another order at every place, so it may rise where an id was removed, and fall later.
    # Such places are never the answer; scaled by the largest entry (sums end near, not at, 1), there always is one.
    cumulative = jnp.where(probabilities > 0, jnp.cumsum(probabilities, axis=-1), jnp.float32(0))
    target = uniforms[:, None] * jnp.max(cumulative, axis=-1, keepdims=True)
    ids = jnp.argmax(cumulative > target, axis=-1).astype(jnp.int32)[:, None]
    plain = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    chosen = jnp.take_along_axis(logprobs, ids, axis=-1)[:, 0]
    return ids[:, 0], chosen, jnp.take_along_axis(plain, ids, axis=-1)[:, 0]


def uniforms(seeds: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Returns float32 numbers in [0, 1) that depend only on (seed, index): splitmix64 of both, its top 24 bits.

    Args:
      seeds: uint64 [B].
      indices: uint64 [B], e.g. how many ids the episode has drawn before.
    """
    with np.errstate(over="ignore"):
        z = seeds + (indices + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    numbers: np.ndarray = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return numbers
