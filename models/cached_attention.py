"""Attention over the slots of a cache, which new tokens are written into first: in blocks by XLA, or by a kernel.

On NVIDIA GPUs and on TPUs the kernels of dfc.models.cache_kernels, where they take the shapes; everywhere else, and as
their oracle, blocks of positions one after the other. Axis letters as in dfc.models.transformer.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from dfc.models.attention import MASKED, AttentionSpec, masked_logits
from dfc.models.cache import BLOCK, LayerCache, partition, write
from dfc.models.cache_kernels import flash_prefill, flash_usable, ragged, ragged_usable
from dfc.models.execution import ROWS, Execution

_ROWS_OF_ONE, _ROWS_OF_MANY = 16, 4  # rows of one token, and of more, whose weights are formed at once on a CPU
_BLOCK_OF_CPU = 64  # positions that a CPU reads at a time; of larger blocks more is read that no row sees
_FEW = 8  # queries of a key head up to which a CPU takes them one by one


def attend_cache(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    layer: LayerCache,
    slots: jax.Array,
    start: jax.Array,
    spec: AttentionSpec,
    execution: Execution,
) -> tuple[jax.Array, LayerCache]:
    """Writes the tokens of some rows into their slots and returns what they read there, [R, N, T, H], and the cache.

    Token t of row r is at position start[r] + t. It reads the positions of its slot up to its own.

    Args:
      query: [R, N, T, H], rotated.
      key: [R, K, T, H], rotated.
      value: [R, K, T, H].
      layer: keys and values of all slots. Meant to be donated.
      slots: int32 [R], on several devices each counted in its own shard; one past the last slot is idle: it writes
        nothing, and what it reads has no meaning.
      start: int32 [R].
      spec: scale, window, cap.
      execution: on which devices.
    """

    def local(
        query: jax.Array, key: jax.Array, value: jax.Array, layer: LayerCache, slots: jax.Array, start: jax.Array
    ) -> tuple[jax.Array, LayerCache]:
        layer = write(layer, slots, start, key, value)
        if _has_kernel(query, layer, execution):
            if layer.layout == "paired":
                return ragged(query, layer.arrays[0], slots, start, spec), layer
            return flash_prefill(query, layer.arrays[0], layer.arrays[1], slots, start, spec), layer
        return _attend_slots(query, layer, slots, start, spec, execution), layer

    mesh = execution.mesh
    if mesh is None:
        return local(query, key, value, layer, slots, start)
    # Slots are numbered within their shard: every device writes and reads its own.
    tensor = mesh.shape["tensor"]
    heads = "tensor" if query.shape[1] % tensor == 0 and key.shape[1] % tensor == 0 else None
    split = PartitionSpec(ROWS, heads, None, None)  # type: ignore[no-untyped-call]  # jax leaves it untyped
    held = partition(layer.layout, heads)
    rows = PartitionSpec(ROWS)  # type: ignore[no-untyped-call]  # jax leaves it untyped
    of_shards = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(split, split, split, held, rows, rows),
        out_specs=(split, held),
        check_vma=False,
    )
    mixed, grown = of_shards(query, key, value, layer, slots, start)
    return mixed, grown


def _has_kernel(query: jax.Array, layer: LayerCache, execution: Execution) -> bool:
    if query.dtype != layer.arrays[0].dtype:
        return False
    if layer.layout == "paired":
        return ragged_usable(
            execution.runs_on,
            dtype=query.dtype,
            head_dim=query.shape[3],
            heads=query.shape[1],
            key_heads=layer.kv_heads,
            positions=layer.positions,
        )
    device = jax.devices()[0] if execution.mesh is None else execution.mesh.devices.flat[0]
    return flash_usable(
        execution.runs_on,
        getattr(device, "compute_capability", None),  # described devices may lack it
        dtype=query.dtype,
        head_dim=query.shape[3],
        positions=layer.positions,
    )


def _attend_slots(
    query: jax.Array,
    layer: LayerCache,
    slots: jax.Array,
    start: jax.Array,
    spec: AttentionSpec,
    execution: Execution,
) -> jax.Array:
    """Returns [R, N, T, H]: what queries at positions start[r] + t read of their slots."""
    rows = len(slots)
    at_once = _ROWS_OF_ONE if query.shape[2] == 1 else _ROWS_OF_MANY
    if execution.runs_on != "cpu" or rows <= at_once or rows % at_once:
        return _in_blocks(query, layer, slots, start, spec, execution)
    # The weights of a few rows stay in the processor's cache, and rows of other lengths are not read to the same end.
    parts = jax.tree.map(lambda x: x.reshape(rows // at_once, at_once, *x.shape[1:]), (query, slots, start))

    def some(part: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return _in_blocks(part[0], layer, part[1], part[2], spec, execution)

    found: jax.Array = jax.lax.map(some, parts)
    return jnp.reshape(found, query.shape)


def _in_blocks(
    query: jax.Array,
    layer: LayerCache,
    slots: jax.Array,
    start: jax.Array,
    spec: AttentionSpec,
    execution: Execution,
) -> jax.Array:
    """Reads the slots in blocks of positions, from the first that a row sees to the last.

    Sums are kept relative to the largest logit so far and rescaled when that grows (Milakov and Gimelshein 2018,
    arXiv 1805.02867, algorithm 3); a block that a row does not see adds nothing to it, bit for bit.
    """
    rows, heads, length, dim = query.shape
    most = layer.positions
    size = min(most, _BLOCK_OF_CPU if execution.runs_on == "cpu" else BLOCK)
    grouped = query.reshape(rows, layer.kv_heads, -1, dim)  # the G queries of a key head, one after another
    place = start[:, None] + jnp.arange(length, dtype=start.dtype)[None]
    end = (jnp.minimum(jnp.max(start) + length, most) + size - 1) // size
    first = jnp.zeros_like(end) if spec.window is None else jnp.maximum(jnp.min(start) - spec.window + 1, 0) // size

    def block(number: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        largest, total, mixed = sums
        begin = jnp.minimum(number * size, most - size)  # the last block begins early, to be of full size
        keys, values = layer.block(slots, begin, size)
        position = (begin + jnp.arange(size, dtype=start.dtype))[None, None]
        distance = place[:, :, None] - position
        seen = (distance >= 0) & (position >= number * size)
        if spec.window is not None:
            seen &= distance < spec.window
        weights = _key_products(grouped, keys, one_by_one=execution.runs_on == "cpu")
        weights = masked_logits(weights.reshape(rows, heads, length, size), seen, spec).reshape(weights.shape)
        new = jnp.maximum(largest, weights.max(axis=-1))
        scale, exponentials = jnp.exp(largest - new), jnp.exp(weights - new[..., None])
        part = jnp.einsum(
            "bkqs,bksh->bkqh", exponentials.astype(values.dtype), values, preferred_element_type=jnp.float32
        )
        return new, total * scale + exponentials.sum(axis=-1), mixed * scale[..., None] + part

    nothing = jnp.zeros(grouped.shape[:3], jnp.float32)
    empty = nothing + MASKED, nothing, jnp.zeros(grouped.shape, jnp.float32)
    whole = size == most
    _, total, mixed = block(jnp.zeros_like(end), empty) if whole else jax.lax.fori_loop(first, end, block, empty)
    found: jax.Array = (mixed / total[..., None]).astype(query.dtype).reshape(query.shape)
    return found


def _key_products(query: jax.Array, key: jax.Array, *, one_by_one: bool) -> jax.Array:
    """Returns float32 [B, K, Q, S] from queries [B, K, Q, H] and keys [B, K, S, H].

    XLA's CPU product of a 4 x 64 and a transposed 512 x 64 matrix took 5 times as long as four products of a vector and
    that matrix, which read it at the rate of memory.
    """
    if one_by_one and query.shape[2] <= _FEW:
        one = functools.partial(jnp.einsum, "bkh,bksh->bks", preferred_element_type=jnp.float32)
        return jnp.stack([one(query[:, :, number], key) for number in range(query.shape[2])], axis=2)
    return jnp.einsum("bkqh,bksh->bkqs", query, key, preferred_element_type=jnp.float32)
