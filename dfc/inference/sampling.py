"""Samples one token per row from logits, with its exact log-probability; every row has its own settings.

A sample costs a few passes over the logits: a row's maximum, the sum of its weights by blocks of tokens, and a search
in the block that holds the answer. No array of probabilities is made, and nothing is sorted: the tokens that top-k and
top-p remove are below a logit found by bisection, 20 times faster on a CPU than ordering the vocabulary.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dfc.config import SamplingConfig
from dfc.inference import kept_sets
from dfc.inference.kept_sets import KeptSets

_REMOVED = np.float32(-np.inf)
_BLOCK = 128  # divides the vocabularies of most models; of the others a padded copy is made
_NEGLIGIBLE = np.float32(-80)  # e**-80 = 2e-35; float32 ends at 1e-38
_SIGN = np.uint32(1 << 31)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RowSampling:
    """How each row of a batch is sampled: `dfc.config.SamplingConfig` as arrays, so that rows may differ.

    Attributes:
      temperature: float32 [B]; 0 takes the first most probable token.
      top_k: int32 [B]; 0 is off.
      top_p: float32 [B]; 1 is off.
      min_p: float32 [B]; 0 is off.
    """

    temperature: jax.Array | np.ndarray
    top_k: jax.Array | np.ndarray
    top_p: jax.Array | np.ndarray
    min_p: jax.Array | np.ndarray


@dataclasses.dataclass(frozen=True)
class Filters:
    """Which filters a compiled program holds; static, because those two cost many passes over the logits.

    A filter that is off here is off in every row, whatever the row's setting.

    Attributes:
      top_k: whether some row keeps only its most probable tokens by number.
      top_p: whether some row keeps only its most probable tokens by probability.
    """

    top_k: bool = False
    top_p: bool = False


def row_sampling(settings: Sequence[SamplingConfig]) -> RowSampling:
    """Returns the settings of B rows as numpy arrays [B]."""
    return RowSampling(
        temperature=np.array([s.temperature for s in settings], np.float32),
        top_k=np.array([s.top_k for s in settings], np.int32),
        top_p=np.array([s.top_p for s in settings], np.float32),
        min_p=np.array([s.min_p for s in settings], np.float32),
    )


def filters_of(settings: Sequence[SamplingConfig]) -> Filters:
    """Returns the filters that at least one of the rows needs."""
    return Filters(
        top_k=any(s.temperature > 0 and s.top_k > 0 for s in settings),
        top_p=any(s.temperature > 0 and s.top_p < 1 for s in settings),
    )


def filtered_logprobs(
    logits: jax.Array, sampling: RowSampling, filters: Filters, allowed: jax.Array | None = None
) -> jax.Array:
    """Returns the log-probabilities really sampled from, float32 [B, V]; removed tokens have -inf.

    Filters apply in the order temperature, top-k, top-p, min-p, each to the renormalised result of the one before:

    * temperature: logits / temperature (a temperature of 0 keeps only the most probable token, the first of several),
    * top-k: the k largest; ties with the k-th are kept,
    * top-p: the smallest set of most probable tokens with total probability >= p; ties with its last member are kept,
    * min-p: tokens with probability >= min_p x the largest one (arXiv 2407.01082).

    Entry [b, i] is what `sample_tokens` returns for row b where it samples token i: a given reply is scored by taking
    its entries. But where more tokens survive than the `most_kept` that it is given, it samples among fewer than here.

    Args:
      logits: [B, V], any float type.
      sampling: settings of the rows, arrays [B].
      filters: the filters the program holds (static).
      allowed: bool [B, V]; the other tokens are removed before everything else. At least one per row; None allows all.
    """
    vocabulary = logits.shape[-1]
    candidates = _candidates(logits, allowed)
    kept = _kept(candidates, sampling, filters)
    total = jnp.sum(jnp.sum(kept.weights(candidates), axis=-1), axis=-1)  # in the order in which `sample_tokens` adds
    candidates = candidates.reshape(len(logits), -1)[:, :vocabulary]
    remains = candidates >= kept.floor[:, None]
    logprobs = jnp.where(remains, kept.exponents(candidates) - jnp.log(total)[:, None], _REMOVED)
    indices = jnp.arange(vocabulary, dtype=jnp.int32)[None]
    # The smallest place, not argmax: that is several times slower on a CPU.
    first = jnp.min(jnp.where(remains, indices, jnp.int32(vocabulary)), axis=-1, keepdims=True)
    greedy = jnp.where(indices == first, jnp.float32(0), _REMOVED)
    return jnp.where(kept.greedy[:, None], greedy, logprobs)


class Sampled(NamedTuple):
    """What `sample_tokens` returns of each row.

    Attributes:
      token_ids: int32 [B].
      sampled_logprobs: under the filtered distribution, float32 [B] (see `filtered_logprobs`).
      plain_logprobs: under the plain softmax of the logits (temperature 1, no filter, every token allowed), float32
        [B].
      sets: the tokens among which each was sampled; None if not asked for.
    """

    token_ids: jax.Array
    sampled_logprobs: jax.Array
    plain_logprobs: jax.Array
    sets: KeptSets | None


def sample_tokens(
    logits: jax.Array,
    uniforms: jax.Array,
    sampling: RowSampling,
    filters: Filters,
    allowed: jax.Array | None = None,
    *,
    most_kept: int = 0,
) -> Sampled:
    """Samples one token per row by inverting the cumulative distribution, in the order of token ids, at a given number.

    One number per row, made on the host from (seed, index), decides the sample: so it depends on nothing else, and it
    is several times cheaper on a CPU than noise for the whole vocabulary. The sums are made in two levels: over blocks
    of tokens, then within the block that holds the answer. With `most_kept`, rows with a filter are sampled from the
    list of what it left.

    Args:
      logits: [B, V], any float type.
      uniforms: float32 [B] in [0, 1).
      sampling: settings of the rows, arrays [B].
      filters: the filters the program holds (static).
      allowed: bool [B, V]; the other tokens are never sampled. At least one per row; None allows all.
      most_kept: above 0, return the sets of rows with a filter, with so many tokens at most (static, V at most). Where
        more survive, the token is sampled among the likeliest, and its log-probability is that among them.
    """
    candidates = _candidates(logits, allowed)
    kept = _kept(candidates, sampling, filters)
    # Weights near the end of float32's range may be 0 in one sum and not in another: such tokens are not sampled.
    least = kept.largest + _NEGLIGIBLE * kept.temperature
    kept = dataclasses.replace(kept, floor=jnp.maximum(kept.floor, least))
    sums = jnp.sum(kept.weights(candidates), axis=-1)
    total = jnp.sum(sums, axis=-1)
    # A greedy row keeps the largest logit only; of several, the first is the one at a target of 0.
    target = jnp.where(kept.greedy, jnp.float32(0), uniforms) * total
    block, before = _first_beyond(sums, target)
    inside = jnp.take_along_axis(candidates, block[:, None, None], axis=1)[:, 0]
    index, _ = _first_beyond(kept.weights(inside), target - before)
    token_ids = block * _BLOCK + index
    logit = jnp.take_along_axis(inside, index[:, None], axis=1)
    sets = None
    if most_kept:
        sets = _sets(candidates, kept, _filtered(sampling, filters), most_kept)
        token_ids, logit, total = _sampled_from(sets, candidates, kept, uniforms, (token_ids, logit, total))
        sets = _only_greedy(sets, token_ids, kept.greedy)
    sampled_logprobs = jnp.where(kept.greedy, jnp.float32(0), kept.exponents(logit)[:, 0] - jnp.log(total))
    everything = candidates if allowed is None else _candidates(logits, None)
    largest = kept.largest if allowed is None else jnp.max(everything, axis=(1, 2))
    plain_total = jnp.sum(jnp.sum(jnp.exp(everything - largest[:, None, None]), axis=-1), axis=-1)
    plain_logprobs = logit[:, 0] - largest - jnp.log(plain_total)
    return Sampled(token_ids, sampled_logprobs, plain_logprobs, sets)


@dataclasses.dataclass(frozen=True)
class _Kept:
    """What remains of each row: tokens whose logit is `floor` or more, weighted exp((logit - largest) / temperature).

    Attributes:
      largest: the largest logit, [B].
      floor: the smallest logit kept, [B].
      temperature: 1 in greedy rows, [B].
      greedy: bool [B].
    """

    largest: jax.Array
    floor: jax.Array
    temperature: jax.Array
    greedy: jax.Array

    def exponents(self, logits: jax.Array) -> jax.Array:
        """Returns logarithms of unnormalised probabilities, 0 for the most probable token; logits [B, ...]."""
        return (logits - _beside(self.largest, logits)) / _beside(self.temperature, logits)

    def weights(self, logits: jax.Array) -> jax.Array:
        """Returns unnormalised probabilities, 0 for removed tokens; logits [B, ...]."""
        return jnp.where(logits >= _beside(self.floor, logits), jnp.exp(self.exponents(logits)), jnp.float32(0))


def _filtered(sampling: RowSampling, filters: Filters) -> jax.Array:
    """Returns which rows have a filter, bool [B]."""
    found = jnp.asarray(sampling.min_p) > 0
    if filters.top_k:
        found |= jnp.asarray(sampling.top_k) > 0
    if filters.top_p:
        found |= jnp.asarray(sampling.top_p) < 1
    return found


def _sets(candidates: jax.Array, kept: _Kept, filtered: jax.Array, most: int) -> KeptSets:
    """Returns what is left of rows with a filter; greedy ones have none here."""
    inside = candidates >= kept.floor[:, None, None]
    return kept_sets.listed(candidates, inside, filtered & ~kept.greedy, most)


def _sampled_from(
    sets: KeptSets,
    candidates: jax.Array,
    kept: _Kept,
    uniforms: jax.Array,
    otherwise: tuple[jax.Array, jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns token ids [B], their logits [B, 1] and sums of weights [B]: of rows with a set from it, else as given."""
    token_ids, flat = jnp.asarray(sets.token_ids), candidates.reshape(len(candidates), -1)
    logits = jnp.where(token_ids < 0, _REMOVED, jnp.take_along_axis(flat, jnp.maximum(token_ids, 0), axis=1))
    weights = kept.weights(logits)
    total = jnp.sum(weights, axis=-1)
    index, _ = _first_beyond(weights, uniforms * total)
    own = (jnp.take_along_axis(each, index[:, None], axis=1) for each in (token_ids, logits))
    has = jnp.asarray(sets.kept) > 0
    token, logit = (
        jnp.where(has[:, None], new, old) for new, old in zip(own, (otherwise[0][:, None], otherwise[1]), strict=True)
    )
    return token[:, 0], logit, jnp.where(has, total, otherwise[2])


def _only_greedy(sets: KeptSets, token_ids: jax.Array, greedy: jax.Array) -> KeptSets:
    """Returns the sets, with those of greedy rows: the token itself."""
    first = jnp.arange(sets.token_ids.shape[-1], dtype=jnp.int32)[None] == 0
    alone = jnp.where(first, token_ids[:, None], jnp.int32(-1))
    return KeptSets(jnp.where(greedy[:, None], alone, sets.token_ids), jnp.where(greedy, jnp.int32(1), sets.kept))


def _beside(values: jax.Array, logits: jax.Array) -> jax.Array:
    """Returns one value per row, [B], in the rank of the logits."""
    return values.reshape(-1, *(1,) * (logits.ndim - 1))


def _candidates(logits: jax.Array, allowed: jax.Array | None) -> jax.Array:
    """Returns float32 logits in blocks, [B, ceil(V / block), block]; -inf for tokens not allowed or not there."""
    logits = logits.astype(jnp.float32)
    if allowed is not None:
        logits = jnp.where(allowed, logits, _REMOVED)
    missing = -logits.shape[-1] % _BLOCK
    if missing:
        logits = jnp.pad(logits, ((0, 0), (0, missing)), constant_values=_REMOVED)
    return logits.reshape(len(logits), -1, _BLOCK)


def _kept(candidates: jax.Array, sampling: RowSampling, filters: Filters) -> _Kept:
    """Returns what the filters leave of each row; every one of them is a smallest logit to be kept."""
    temperature, min_p = jnp.asarray(sampling.temperature), jnp.asarray(sampling.min_p)
    greedy = temperature == 0
    temperature = jnp.where(greedy, jnp.float32(1), temperature)
    largest = jnp.max(candidates, axis=(1, 2))
    floor = jnp.full_like(largest, _REMOVED)
    if filters.top_k:
        number = jnp.asarray(sampling.top_k)
        found = _largest_floor(candidates, jnp.ones_like(candidates), number.astype(jnp.float32), largest)
        floor = jnp.where(number > 0, found, floor)
    if filters.top_p:
        share = jnp.asarray(sampling.top_p)
        weights = _Kept(largest, floor, temperature, greedy).weights(candidates)
        found = _largest_floor(candidates, weights, share * jnp.sum(weights, axis=(1, 2)), largest)
        floor = jnp.where(share < 1, jnp.maximum(floor, found), floor)
    floor = jnp.maximum(floor, largest + temperature * jnp.log(min_p))
    return _Kept(largest, jnp.where(greedy, largest, floor), temperature, greedy)


def _largest_floor(candidates: jax.Array, weights: jax.Array, wanted: jax.Array, largest: jax.Array) -> jax.Array:
    """Returns the largest float32 value such that the logits not below it weigh enough together; -inf if none do.

    Floats are halved in the order of their bits, so 32 rounds find the very value, whatever the logits' range. Counts
    are sums of float32 ones: exact up to 2**24, and twice as fast as integers on a CPU. `candidates` are logits in
    blocks, [B, N, block], each with one of `weights`, 0 or more; `wanted` [B] must remain; `largest` [B] is the largest
    logit, where the search begins.
    """

    def halve(_: jax.Array, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        gap = high - low
        middle = low + gap // 2 + gap % 2
        remaining = jnp.where(candidates >= _beside(_from_order(middle), candidates), weights, jnp.float32(0))
        enough = jnp.sum(remaining, axis=(1, 2)) >= wanted
        return jnp.where(enough, middle, low), jnp.where(enough, high, jnp.maximum(middle, low + 1) - 1)

    bounds = _to_order(jnp.full_like(largest, _REMOVED)), _to_order(largest)
    return _from_order(jax.lax.fori_loop(0, 32, halve, bounds)[0])


def _to_order(values: jax.Array) -> jax.Array:
    """Returns uint32 numbers in the order of the float32 values."""
    bits = jax.lax.bitcast_convert_type(values, jnp.uint32)
    return jnp.where(bits >= _SIGN, ~bits, bits | _SIGN)


def _from_order(numbers: jax.Array) -> jax.Array:
    """Returns the float32 values that `_to_order` was given."""
    return jax.lax.bitcast_convert_type(jnp.where(numbers >= _SIGN, numbers ^ _SIGN, ~numbers), jnp.float32)


def _first_beyond(weights: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns where the running sum of the weights passes the target, int32 [B], and the sum before that place.

    A parallel sum adds in another order at every place, so it may rise where a weight is 0, and end below the target. A
    place of weight 0 is never the answer; if no place is beyond the target, the last with a weight is. Weights are
    [B, N], 0 or more, targets [B].
    """
    indices = jnp.arange(weights.shape[-1], dtype=jnp.int32)[None]
    running = jnp.cumsum(weights, axis=-1)
    present = weights > 0
    none = jnp.int32(weights.shape[-1])
    first = jnp.min(jnp.where(present & (running > target[:, None]), indices, none), axis=-1)
    last = jnp.max(jnp.where(present, indices, jnp.int32(0)), axis=-1)
    index = jnp.where(first < none, first, last)
    before = jnp.sum(jnp.where(indices < index[:, None], weights, jnp.float32(0)), axis=-1)
    return index, before


def uniforms(seeds: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Returns float32 numbers in [0, 1) that depend only on (seed, index): splitmix64 of both, its top 24 bits.

    Both are uint64 and broadcast, e.g. [B, 1] and [B, n]; indices are positions of tokens in their conversations.
    """
    with np.errstate(over="ignore"):
        z = seeds + (indices + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    numbers: np.ndarray = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return numbers
