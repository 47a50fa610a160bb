"""Keys and values of what a decoder has read: one buffer of all slots, written and read in place.

A call names the slot of each of its rows and the position where the row goes on. Its tokens' keys and values are
written there first, then attention reads the slot (`dfc.models.cached_attention.attend_cache`). Nothing is copied out
and there is no second buffer: a call costs what its rows have to read, and slots that have nothing to do cost nothing.
How the numbers of a slot are ordered is decided by `layout_of`; everything that moves them knows only on which axis
positions are. Axis letters as in dfc.models.transformer; R rows of a call.
"""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from dfc.models.config import DecoderConfig
from dfc.models.execution import ROWS, Platform

BLOCK = 128  # positions that are read or copied at a time

Layout = Literal["apart", "paired"]
_LANES = 128  # numbers side by side in a TPU's tile
_POSITIONS: dict[Layout, int] = {"apart": 2, "paired": 1}  # the axis of positions


def layout_of(platform: Platform, head_dim: int) -> Layout:
    """Returns the layout of keys and values: on a TPU as its kernel reads them, which makes a position one piece.

    Of heads that do not fill a TPU's lanes its compiler stores positions side by side: at every write it would
    transpose the whole cache, and back. A CPU reads the positions of a head several times faster where they follow one
    another.
    """
    return "paired" if platform == "tpu" and head_dim % _LANES == 0 else "apart"


@functools.partial(jax.tree_util.register_dataclass, data_fields=("arrays",), meta_fields=("layout",))
@dataclasses.dataclass(frozen=True)
class LayerCache:
    """Keys and values of one layer, of all slots.

    Attributes:
      arrays: ``apart``: keys and values, [B, K, S, H] each. ``paired``: one array [B, S, 2K, H], at every position key
        and value of a head one after the other, k0 v0 k1 v1 ...
      layout: which of the two.
    """

    arrays: tuple[jax.Array, ...]
    layout: Layout = "apart"

    @property
    def axis(self) -> int:
        """The axis of positions."""
        return _POSITIONS[self.layout]

    @property
    def positions(self) -> int:
        """S, or of rows that were taken out, theirs."""
        return int(self.arrays[0].shape[self.axis])

    @property
    def kv_heads(self) -> int:
        """K, or of one device, its share."""
        return int(self.arrays[0].shape[2] // 2 if self.layout == "paired" else self.arrays[0].shape[1])

    def block(self, slots: jax.Array, begin: jax.Array, positions: int) -> tuple[jax.Array, jax.Array]:
        """Returns keys and values [R, K, positions, H] of the slots [R] from one position on.

        A slot past the last is read as the last.
        """
        found = _blocks(self, slots, begin, positions).arrays
        if self.layout == "apart":
            return found[0], found[1]
        of_heads = found[0].reshape(*found[0].shape[:2], -1, 2, found[0].shape[3]).transpose(3, 0, 2, 1, 4)
        return of_heads[0], of_heads[1]


Cache = tuple[LayerCache, ...]


def partition(layout: Layout, heads: str | None) -> Any:  # noqa: ANN401 - jax leaves PartitionSpec untyped
    """Returns how a cache is placed on a mesh: slots over data and fsdp devices, heads over the axis named, if any."""
    spec: Any = PartitionSpec
    return spec(ROWS, None, heads, None) if layout == "paired" else spec(ROWS, heads, None, None)


def empty_cache(config: DecoderConfig, rows: int, positions: int, layout: Layout = "apart") -> Cache:
    """Returns zeroed keys and values for `rows` rows of `positions` positions."""
    of_one = (1, config.kv_heads, positions, config.head_dim)
    one = jax.eval_shape(lambda: _laid_out(jnp.zeros(of_one), jnp.zeros(of_one), layout))
    return tuple(
        LayerCache(tuple(jnp.zeros((rows, *x.shape[1:]), config.dtype) for x in one), layout)
        for _ in range(config.layers)
    )


def _laid_out(keys: jax.Array, values: jax.Array, layout: Layout) -> tuple[jax.Array, ...]:
    """Returns keys and values [R, K, T, H] as the arrays of a layout."""
    if layout == "apart":
        return keys, values
    rows, _, length, dim = keys.shape
    return (jnp.stack([keys, values], axis=2).transpose(0, 3, 1, 2, 4).reshape(rows, length, -1, dim),)


def write(layer: LayerCache, slots: jax.Array, start: jax.Array, keys: jax.Array, values: jax.Array) -> LayerCache:
    """Writes keys and values [R, K, T, H] into the slots int32 [R] from position start[r] on; in place if donated.

    What is past the last position is left out, and so is a row whose slot is past the last slot.
    """
    return _put(layer, slots, start, _laid_out(keys, values, layer.layout))


def _put(layer: LayerCache, slots: jax.Array, start: jax.Array, new: tuple[jax.Array, ...]) -> LayerCache:
    """Writes rows in the layer's own layout; as `write`."""
    if layer.layout == "paired":
        return LayerCache((_put_tokens(layer.arrays[0], slots, start, new[0]),), layer.layout)
    new = tuple(x[:, :, : layer.positions] for x in new)  # of a call that is wider than a slot nothing else fits
    length = new[0].shape[2]
    # Windows are written whole: one that would reach past the end begins earlier, and keeps what is there before its
    # own. A single token has nothing to keep.
    begin = start if length == 1 else jnp.minimum(start, layer.positions - length)
    indices = jnp.stack([slots, begin], axis=1)
    axes = jax.lax.ScatterDimensionNumbers(
        update_window_dims=(1, 2, 3), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0, 2)
    )

    def put(x: jax.Array, new: jax.Array) -> jax.Array:
        new = new.astype(x.dtype)
        if length > 1:
            place = jnp.arange(length, dtype=start.dtype)[None] - (start - begin)[:, None]
            moved = jnp.take_along_axis(new, jnp.maximum(place, 0)[:, None, :, None], axis=2)
            new = jnp.where(place[:, None, :, None] >= 0, moved, _windows(x, indices, length))
        return jax.lax.scatter(x, indices, new, axes, unique_indices=True, mode=jax.lax.GatherScatterMode.FILL_OR_DROP)

    return LayerCache(tuple(map(put, layer.arrays, new)), layer.layout)


def _put_tokens(x: jax.Array, slots: jax.Array, start: jax.Array, new: jax.Array) -> jax.Array:
    """Writes new [R, T, 2K, H] into x [B, S, 2K, H], every position by itself: there it is one piece of memory.

    Windows [1, T, 2K, H] XLA writes one after another on a TPU; and to read them it copies the whole cache.
    """
    (count, positions), (rows, length) = x.shape[:2], new.shape[:2]
    place = start[:, None] + jnp.arange(length, dtype=start.dtype)[None]
    there = (slots[:, None] < count) & (place < positions)
    nowhere = count * positions + jnp.arange(rows * length, dtype=start.dtype).reshape(rows, length)  # no two alike
    indices = jnp.where(there, slots[:, None] * positions + place, nowhere)
    axes = jax.lax.ScatterDimensionNumbers(
        update_window_dims=(1, 2), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    written = jax.lax.scatter(
        x.reshape(-1, *x.shape[2:]),
        indices.reshape(-1, 1),
        new.reshape(-1, *x.shape[2:]).astype(x.dtype),
        axes,
        unique_indices=True,
        mode=jax.lax.GatherScatterMode.FILL_OR_DROP,
    )
    return written.reshape(x.shape)


def _windows(x: jax.Array, indices: jax.Array, positions: int) -> jax.Array:
    """Returns `positions` positions of each slot from a position on, both in indices [R, 2]: [R, K, positions, H]."""
    axes = jax.lax.GatherDimensionNumbers(offset_dims=(1, 2, 3), collapsed_slice_dims=(0,), start_index_map=(0, 2))
    sizes = (1, x.shape[1], positions, x.shape[3])
    return jax.lax.gather(x, indices, axes, sizes, mode=jax.lax.GatherScatterMode.CLIP)


def _blocks(layer: LayerCache, slots: jax.Array, begin: jax.Array, positions: int) -> LayerCache:
    """Returns positions of the slots in the layer's own layout; as `LayerCache.block`."""

    def read(x: jax.Array) -> jax.Array:
        if layer.layout == "apart":
            return jnp.take(jax.lax.dynamic_slice_in_dim(x, begin, positions, axis=2), slots, axis=0, mode="clip")
        place = begin + jnp.arange(positions, dtype=slots.dtype)
        indices = jnp.minimum(slots, x.shape[0] - 1)[:, None] * x.shape[1] + place[None]
        return jnp.take(x.reshape(-1, *x.shape[2:]), indices, axis=0, mode="clip")

    return LayerCache(tuple(map(read, layer.arrays)), layer.layout)


def take_rows(cache: Cache, slots: jax.Array, positions: int) -> Cache:
    """Returns a copy of the first `positions` positions of the slots [R]; a slot past the last reads the last."""
    begin = jnp.zeros((), slots.dtype)
    return tuple(_blocks(layer, slots, begin, positions) for layer in cache)


def put_rows(cache: Cache, slots: jax.Array, new: Cache) -> Cache:
    """Writes rows of P positions into the first P positions of the slots [R]; in place if the cache was donated."""
    start = jnp.zeros_like(slots)
    return tuple(_put(layer, slots, start, row.arrays) for layer, row in zip(cache, new, strict=True))


def copy_rows(cache: Cache, sources: jax.Array, targets: jax.Array, positions: jax.Array) -> Cache:
    """Writes the first positions of some slots [R] into others, a block at a time; in place if the cache was donated.

    `sources` int32 [R] are none of them a target; of `targets` int32 [R], one past the last slot is left out. As many
    as `positions` (int32 scalar) are copied at least, in whole blocks.
    """
    most = cache[0].positions
    size = min(BLOCK, most)

    def block(number: jax.Array, cache: Cache) -> Cache:
        begin = jnp.minimum(number * size, most - size)
        at = jnp.broadcast_to(begin, targets.shape)
        return tuple(_put(layer, targets, at, _blocks(layer, sources, begin, size).arrays) for layer in cache)

    copies: Cache = jax.lax.fori_loop(0, (positions + size - 1) // size, block, cache)
    return copies
