"""Finds the tokens that the filters of sampling left of each row, as a list: what a trainer normalises over, too.

Most sets have a few tokens of a large vocabulary, so nothing is sorted: tokens are counted by blocks, and the place of
the j-th one is found by bisection over the blocks and within its block. Only where a set is larger than a list may be
are the likeliest tokens taken from the whole vocabulary.
"""

import dataclasses
import functools
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

AT_ONCE = 32  # places of a list that are filled by one round; most sets need one round
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


def listed(candidates: jax.Array, inside: jax.Array, rows: jax.Array, most: int, at_once: int) -> KeptSets:
    """Returns the tokens of each row that are `inside`, the `most` likeliest where there are more.

    Of as likely ones the first are taken.

    Args:
      candidates: logits in blocks, float32 [B, N, block]; -inf for tokens that are none.
      inside: which tokens survived, bool [B, N, block].
      rows: which rows are asked for, bool [B]; the others have no set.
      most: places of a list (static), as many as there are tokens at most.
      at_once: places that are filled by one round (static).
    """
    by_block = jnp.sum(inside, axis=-1, dtype=jnp.int32)
    ends = jnp.cumsum(by_block, axis=-1)
    number = jnp.where(rows, ends[:, -1], 0)

    def likeliest() -> jax.Array:
        flat = jnp.where(inside, candidates, -jnp.inf).reshape(len(inside), -1)
        return jnp.sort(jax.lax.top_k(flat, most)[1].astype(jnp.int32), axis=-1)

    def all_of_them() -> jax.Array:
        return _places(inside, by_block, ends, jnp.minimum(jnp.max(number), most), most, at_once)

    found = all_of_them()
    if most < inside.shape[1] * inside.shape[2]:
        larger = number > most
        found = jax.lax.cond(jnp.any(larger), lambda: jnp.where(larger[:, None], likeliest(), found), lambda: found)
    filled = jnp.arange(most, dtype=jnp.int32)[None] < number[:, None]
    return KeptSets(jnp.where(filled, found, jnp.int32(_PADDING)), number)


def _places(
    inside: jax.Array, by_block: jax.Array, ends: jax.Array, needed: jax.Array, most: int, at_once: int
) -> jax.Array:
    """Returns the first `most` tokens inside each row, int32 [B, most]; `needed` of them at least, the rest is noise.

    `by_block` and `ends`, int32 [B, N], count the tokens of each block, and of all blocks up to it.
    """
    size = inside.shape[-1]
    rounds = -(-most // at_once)
    search = jax.vmap(functools.partial(jnp.searchsorted, side="right"))

    def one_round(number: jax.Array, found: jax.Array) -> jax.Array:
        place = number * at_once + jnp.arange(at_once, dtype=jnp.int32)
        block = search(ends, jnp.broadcast_to(place, (len(ends), at_once)))
        block = jnp.minimum(block, by_block.shape[1] - 1).astype(jnp.int32)
        before = jnp.take_along_axis(ends - by_block, block, axis=1)
        own = jnp.take_along_axis(inside, block[:, :, None], axis=1)  # [B, at_once, block]
        running = jnp.cumsum(own, axis=-1, dtype=jnp.int32)
        lane = jnp.sum(running <= (place[None] - before)[:, :, None], axis=-1, dtype=jnp.int32)
        return jax.lax.dynamic_update_slice_in_dim(found, block * size + lane, number * at_once, axis=1)

    found = jnp.zeros((len(inside), rounds * at_once), jnp.int32)
    if rounds == 1:
        return one_round(jnp.int32(0), found)[:, :most]
    last = -(-needed // at_once)
    filled: jax.Array = jax.lax.fori_loop(0, last, one_round, found)
    return filled[:, :most]
