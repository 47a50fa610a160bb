"""Finds the tokens that the filters of sampling left of each row, as a list: what a trainer normalises over, too.

Most sets have a few tokens of a large vocabulary, so nothing is sorted. One pass over the logits packs which tokens are
inside into words of 32 bits; the word that holds the j-th token of a list is then found by bisection over the counts of
all words before it, and the bit within it by halves. Only where a set is larger than a list may be are the likeliest
tokens taken from the whole vocabulary.
"""

import dataclasses
import functools
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

_BITS = 32
_PADDING = -1


@functools.partial(jax.tree_util.register_dataclass, data_fields=("token_ids", "kept"), meta_fields=())
@dataclasses.dataclass(frozen=True)
class KeptSets:
    """Sets of tokens, one for each token sampled; arrays of the device, or of numpy.

    Attributes:
      token_ids: int32 [..., W], ascending, -1 behind them: all that survived, or the W likeliest.
      kept: int32 [...], how many survived, which may be more than W; 0: no filter was on, the whole vocabulary.
    """

    token_ids: jax.Array | np.ndarray
    kept: jax.Array | np.ndarray

    def of_row(self, row: int) -> Self:
        """Returns the sets of one row, [n]."""
        width = self.token_ids.shape[-1]
        return type(self)(self.token_ids[row].reshape(-1, width), self.kept[row].reshape(-1))


def nothing(shape: tuple[int, ...], most: int) -> KeptSets:
    """Returns sets of whole vocabularies, to be replaced."""
    return KeptSets(jnp.full((*shape, most), _PADDING, jnp.int32), jnp.zeros(shape, jnp.int32))


def listed(candidates: jax.Array, inside: jax.Array, rows: jax.Array, most: int) -> KeptSets:
    """Returns the tokens of each row that are `inside`, the `most` likeliest where there are more.

    Of as likely ones the first are taken.

    Args:
      candidates: logits in blocks, float32 [B, N, block]; -inf for tokens that are none.
      inside: which tokens survived, bool [B, N, block]; blocks are of a multiple of 32.
      rows: which rows are asked for, bool [B]; the others have no set.
      most: places of a list (static), as many as there are tokens at most.
    """
    words = _packed(inside)
    ends = jnp.cumsum(jax.lax.population_count(words).astype(jnp.int32), axis=-1)
    number = jnp.where(rows, ends[:, -1], 0)
    found = _places(words, ends, most)
    if most < inside.shape[1] * inside.shape[2]:
        larger = number > most

        def likeliest() -> jax.Array:
            flat = jnp.where(inside, candidates, -jnp.inf).reshape(len(inside), -1)
            own = jnp.sort(jax.lax.top_k(flat, most)[1].astype(jnp.int32), axis=-1)
            return jnp.where(larger[:, None], own, found)

        found = jax.lax.cond(jnp.any(larger), likeliest, lambda: found)
    filled = jnp.arange(most, dtype=jnp.int32)[None] < number[:, None]
    return KeptSets(jnp.where(filled, found, jnp.int32(_PADDING)), number)


def _packed(inside: jax.Array) -> jax.Array:
    """Returns which tokens are inside as words uint32 [B, words], token 32 i + j in bit j of word i."""
    bits = jnp.left_shift(jnp.uint32(1), jnp.arange(_BITS, dtype=jnp.uint32))
    alone = jnp.where(inside.reshape(len(inside), -1, _BITS), bits, jnp.uint32(0))
    return jnp.sum(alone, axis=-1, dtype=jnp.uint32)


def _places(words: jax.Array, ends: jax.Array, most: int) -> jax.Array:
    """Returns the first `most` tokens of each row, int32 [B, most]; behind the last one anything.

    `ends`, int32 [B, words], counts the tokens of each word and of all before it.
    """
    place = jnp.broadcast_to(jnp.arange(most, dtype=jnp.int32), (len(words), most))
    word = jax.vmap(functools.partial(jnp.searchsorted, side="right"))(ends, place).astype(jnp.int32)
    word = jnp.minimum(word, words.shape[1] - 1)
    bits = jnp.take_along_axis(words, word, axis=1)
    before = jnp.take_along_axis(ends, word, axis=1) - jax.lax.population_count(bits).astype(jnp.int32)
    rank, bit = place - before, jnp.zeros_like(place)
    for half in (16, 8, 4, 2, 1):
        count = jax.lax.population_count(bits & jnp.uint32((1 << half) - 1)).astype(jnp.int32)
        above = rank >= count
        rank = jnp.where(above, rank - count, rank)
        bits = jnp.where(above, bits >> half, bits)
        bit = jnp.where(above, bit + half, bit)
    return word * _BITS + bit
