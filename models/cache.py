"""Keys and values of what a decoder has read: the resident cache of all slots, and what one call works with.

A call takes some rows out of the resident cache (`take_rows`), computes on them and a small buffer of what is new
(`CacheView`), and writes what is new back (`put_rows`). The resident cache is read once and written once per call,
however many tokens the call decodes, and rows that have nothing to do cost nothing. Axis letters as in
dfc.models.transformer; R rows of a call, C columns of the buffer.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from dfc.models.config import DecoderConfig

Cache = tuple[tuple[jax.Array, jax.Array], ...]  # per layer: keys and values, each [B, K, S, H]
NEVER = 1 << 30  # the position of a column that nobody may read


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("past", "held", "recent", "positions"), meta_fields=()
)
@dataclasses.dataclass(frozen=True)
class CacheView:
    """What the rows of one call can read.

    Attributes:
      past: keys and values [R, K, S, H] per layer; only read. S may be 0.
      held: int32 [R]; of `past` a row reads its first held[r] positions.
      recent: keys and values [R, K, C, H] per layer of what this call adds.
      positions: int32 [R, C], the position each column of `recent` has or will have; `NEVER` hides it. A column is
        read by tokens at its position or later, so columns that are still to be written hide themselves.
    """

    past: Cache
    held: jax.Array
    recent: Cache
    positions: jax.Array


def empty_cache(config: DecoderConfig, rows: int, positions: int) -> Cache:
    """Returns zeroed keys and values for `rows` rows of `positions` positions."""
    shape = (rows, config.kv_heads, positions, config.head_dim)
    return tuple((jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype)) for _ in range(config.layers))


def take_rows(cache: Cache, rows: jax.Array, positions: int) -> Cache:
    """Returns the first `positions` positions of the rows [R], a copy; a row beyond the last reads the last."""

    def take(x: jax.Array) -> jax.Array:
        return jnp.take(x[:, :, :positions], rows, axis=0, mode="clip")

    return tuple((take(keys), take(values)) for keys, values in cache)


def put_rows(cache: Cache, rows: jax.Array, start: jax.Array, new: Cache) -> Cache:
    """Writes new [R, K, C, H] into the rows [R] from position start[r] on; in place if the cache was donated.

    A row beyond the last, and a window that would reach past the cache's last position, is left out.
    """
    axes = jax.lax.ScatterDimensionNumbers(
        update_window_dims=(1, 2, 3), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0, 2)
    )
    indices = jnp.stack([rows, start], axis=1)

    def put(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.scatter(x, indices, y.astype(x.dtype), axes, mode=jax.lax.GatherScatterMode.FILL_OR_DROP)

    return tuple((put(keys, k), put(values, v)) for (keys, values), (k, v) in zip(cache, new, strict=True))
