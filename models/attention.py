"""Causal attention over whole packed sequences, three programs of one meaning.

    out[b, n, i] = sum_j softmax_j(scale * q[b, n, i] . k[b, n // G, j]) v[b, n // G, j]

where j runs over the positions at or before i, of the same segment, and within the window if there is one. Axis letters
as in dfc.models.transformer.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask
from jax.sharding import PartitionSpec

from dfc.models.execution import ROWS, AttentionProgram, Execution

MASKED = -1e30
_WHOLE = 256  # up to this many positions the weights [B, N, T, T] of a layer are formed at once
_BAND = 128  # queries of a band, or a multiple
_MOST_BANDS = 16  # each is a piece of the program
_CHUNK = 512  # queries whose weights are formed at once
_SPLASH_BLOCK = 512  # positions per tile of the TPU kernel; measured choice of its authors for head sizes 64 to 256


@dataclasses.dataclass(frozen=True)
class AttentionSpec:
    """Attributes: scale of the logits; window in positions, or None; soft cap of the logits, or None."""

    scale: float
    window: int | None = None
    soft_cap: float | None = None


def choose(execution: Execution, spec: AttentionSpec, query: jax.Array, key_heads: int) -> AttentionProgram:
    """Returns the program that ``auto`` stands for, for queries [B, N, T, H] and K key heads.

    On a TPU splash, whose tiles need T to be a multiple of 128. On an NVIDIA GPU cuDNN, which takes 16-bit numbers,
    an even T, head sizes that are multiples of 8 up to 128 (up to 256 from Hopper on), no soft cap, and queries and
    keys that are split alike. Elsewhere XLA's.
    """
    if execution.attention != "auto":
        return execution.attention
    length, dim = query.shape[2:]
    device = jax.devices()[0] if execution.mesh is None else execution.mesh.devices.flat[0]
    tensor = 1 if execution.mesh is None else execution.mesh.shape["tensor"]
    return automatic(
        execution.runs_on,
        getattr(device, "compute_capability", "0"),  # described devices may lack it
        dtype=query.dtype,
        length=length,
        head_dim=dim,
        soft_cap=spec.soft_cap,
        alike=query.shape[1] % tensor == 0 and key_heads % tensor == 0,
    )


def automatic(
    platform: str,
    capability: str,
    *,
    dtype: jax.typing.DTypeLike,
    length: int,
    head_dim: int,
    soft_cap: float | None,
    alike: bool,
) -> AttentionProgram:
    """Returns the program that ``auto`` stands for on a platform; see `choose`.

    The platform is ``cpu``, ``gpu`` or ``tpu``, `capability` that of an NVIDIA GPU, text such as ``9.0``; `dtype` is of
    the queries, `length` T, `head_dim` H; `alike`: heads of queries and keys are split over tensor devices.
    """
    if platform == "tpu" and length % 128 == 0:
        return "splash"
    if platform == "gpu" and dtype in (jnp.bfloat16, jnp.float16) and soft_cap is None:
        largest = 256 if float(capability) >= 9 else 128  # 9 is Hopper
        return "cudnn" if head_dim % 8 == 0 and head_dim <= largest and length % 2 == 0 and alike else "xla"
    return "xla"


def causal_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    segments: jax.Array,
    spec: AttentionSpec,
    execution: Execution,
) -> jax.Array:
    """Returns [B, N, T, H], of the queries' dtype.

    `query` [B, N, T, H] and `key` [B, K, T, H] are rotated, `value` is [B, K, T, H]; `segments` int32 [B, T] are 0 at
    padding, which attends to padding only.
    """
    program = choose(execution, spec, query, key.shape[1])
    if program == "splash":
        return _splash(query, key, value, segments, spec, execution)
    if program == "cudnn":
        return _cudnn(query, key, value, segments, spec)
    return _xla(query, key, value, segments, spec)


def xla_queries_at_once(length: int) -> int:
    """Returns how many queries of a sequence `xla` forms the weights of at a time, in the band that sees most."""
    if length <= _WHOLE:
        return length
    return min(_band(length), _CHUNK, length)


def _band(length: int) -> int:
    return max(_BAND, -(-length // (_MOST_BANDS * _BAND)) * _BAND)


def _visible(rows: jax.Array, row_segments: jax.Array, segments: jax.Array, window: int | None) -> jax.Array:
    """Which positions the queries at positions `rows` [R], of row_segments [B, R], see: bool [B, R, S]."""
    distance = rows[:, None] - jnp.arange(segments.shape[1], dtype=rows.dtype)[None]
    near = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    return (row_segments[:, :, None] == segments[:, None, :]) & near[None]


def _xla(query: jax.Array, key: jax.Array, value: jax.Array, segments: jax.Array, spec: AttentionSpec) -> jax.Array:
    length = query.shape[2]
    if length <= _WHOLE:
        return _queries_from(0, query, key, value, segments, segments, spec)
    # Bands of queries, each with the keys it can see at all, and computed again in the backward pass: half the work
    # of all pairs, and memory that grows with T, not with T squared.
    band = _band(length)
    parts = []
    for begin in range(0, length, band):
        end = min(begin + band, length)
        first = 0 if spec.window is None else max(0, begin - spec.window + 1)
        compute = jax.checkpoint(functools.partial(_in_chunks, begin - first, spec=spec))
        seen = slice(first, end)
        parts.append(
            compute(
                query[:, :, begin:end], key[:, :, seen], value[:, :, seen], segments[:, begin:end], segments[:, seen]
            )
        )
    return jnp.concatenate(parts, axis=2)


def _in_chunks(
    offset: int,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    row_segments: jax.Array,
    segments: jax.Array,
    *,
    spec: AttentionSpec,
) -> jax.Array:
    """Computes a band, at most `_CHUNK` queries at a time."""
    rows, heads, length, dim = query.shape
    if length <= _CHUNK:
        return _queries_from(offset, query, key, value, row_segments, segments, spec)
    chunks = -(-length // _CHUNK)
    padding = chunks * _CHUNK - length
    padded = jnp.pad(query, ((0, 0), (0, 0), (0, padding), (0, 0)))
    parts = jnp.moveaxis(padded.reshape(rows, heads, chunks, _CHUNK, dim), 2, 0)
    # What padding attends to is cut off below; it only has to be finite.
    filled = jnp.concatenate([row_segments, jnp.repeat(segments[:, -1:], padding, axis=1)], axis=1)
    part_segments = jnp.moveaxis(filled.reshape(rows, chunks, _CHUNK), 1, 0)
    starts = offset + jnp.arange(chunks, dtype=jnp.int32) * _CHUNK

    @jax.checkpoint
    def one(part: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return _queries_from(part[2], part[0], key, value, part[1], segments, spec)

    mixed = jax.lax.map(one, (parts, part_segments, starts))
    return jnp.moveaxis(mixed, 0, 2).reshape(rows, heads, -1, dim)[:, :, :length]


def _queries_from(
    start: int | jax.Array,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    row_segments: jax.Array,
    segments: jax.Array,
    spec: AttentionSpec,
) -> jax.Array:
    positions = start + jnp.arange(query.shape[2], dtype=jnp.int32)
    return attend(query, key, value, _visible(positions, row_segments, segments, spec.window), spec)


def attend(query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array, spec: AttentionSpec) -> jax.Array:
    """Returns [B, N, T, H] from queries [B, N, T, H], keys and values [B, K, S, H], mask bool [B, T, S].

    Logits and softmax are float32; every query must see at least one position.
    """
    rows, heads, length, dim = query.shape
    grouped = query.reshape(rows, key.shape[1], -1, dim)  # the G queries of a key head, one after another
    weights = jnp.einsum("bkqh,bksh->bkqs", grouped, key, preferred_element_type=jnp.float32)
    weights = masked_logits(weights.reshape(rows, heads, length, -1), mask, spec)
    probabilities = jax.nn.softmax(weights, axis=-1).astype(value.dtype)
    probabilities = probabilities.reshape(rows, key.shape[1], -1, value.shape[2])
    return jnp.einsum("bkqs,bksh->bkqh", probabilities, value).reshape(rows, heads, length, dim)


def masked_logits(weights: jax.Array, mask: jax.Array, spec: AttentionSpec) -> jax.Array:
    """Returns float32 logits [B, N, T, S] scaled and capped, and very low where mask [B, T, S] is False."""
    weights = weights * spec.scale
    if spec.soft_cap is not None:
        weights = spec.soft_cap * jnp.tanh(weights / spec.soft_cap)
    return jnp.where(mask[:, None], weights, jnp.float32(MASKED))


def _cudnn(query: jax.Array, key: jax.Array, value: jax.Array, segments: jax.Array, spec: AttentionSpec) -> jax.Array:
    if spec.soft_cap is not None:
        raise ValueError("cuDNN's attention has no soft cap; set the attention program to auto or xla")
    same = (segments[:, None, :, None] == segments[:, None, None, :]).astype(jnp.bool_)
    mixed = jax.nn.dot_product_attention(
        query.swapaxes(1, 2),
        key.swapaxes(1, 2),
        value.swapaxes(1, 2),
        mask=same,
        is_causal=True,
        scale=spec.scale,
        local_window_size=None if spec.window is None else (spec.window - 1, 0),
        implementation="cudnn",
    )
    return mixed.swapaxes(1, 2)


@functools.lru_cache(maxsize=32)
def _splash_kernel(heads: int, length: int, window: int | None, soft_cap: float | None, *, interpret: bool) -> object:
    """Returns the kernel for one device's heads; building its mask tables takes a second for long sequences."""
    shape = (length, length)
    mask: splash_attention_mask.Mask = splash_attention_mask.CausalMask(shape)
    if window is not None:
        mask = splash_attention_mask.LocalMask(shape, (window - 1, 0), offset=0)
    block = next(size for size in (_SPLASH_BLOCK, 256, 128) if length % size == 0)
    sizes = splash_attention_kernel.BlockSizes(
        block_q=block,
        block_kv=block,
        block_kv_compute=block,
        block_q_dkv=block,
        block_kv_dkv=block,
        block_kv_dkv_compute=block,
        block_q_dq=block,
        block_kv_dq=block,
    )
    with jax.ensure_compile_time_eval():  # tables are constants, also when first needed inside a trace
        return splash_attention_kernel.make_splash_mha(
            mask=splash_attention_mask.MultiHeadMask([mask] * heads),
            block_sizes=sizes,
            head_shards=1,
            q_seq_shards=1,
            attn_logits_soft_cap=soft_cap,
            interpret=interpret,
        )


def _splash(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    segments: jax.Array,
    spec: AttentionSpec,
    execution: Execution,
) -> jax.Array:
    length = query.shape[2]
    if length % 128:
        raise ValueError(
            f"splash attention needs a multiple of 128 positions, got {length}; set the attention program to auto "
            "or xla, or choose another row length"
        )

    def local(query: jax.Array, key: jax.Array, value: jax.Array, segments: jax.Array) -> jax.Array:
        kernel = _splash_kernel(
            query.shape[1], length, spec.window, spec.soft_cap, interpret=execution.platform != "tpu"
        )

        def row(q: jax.Array, k: jax.Array, v: jax.Array, segment_ids: jax.Array) -> jax.Array:
            return kernel(q, k, v, splash_attention_kernel.SegmentIds(q=segment_ids, kv=segment_ids))  # type: ignore[operator, no-any-return]  # a registered pytree class without a public type

        return jax.vmap(row)(query * jnp.asarray(spec.scale, query.dtype), key, value, segments)

    mesh = execution.mesh
    if mesh is None:
        return local(query, key, value, segments)
    # The kernel is opaque to the partitioner: each device is handed its own rows and heads.
    tensor = mesh.shape["tensor"]
    if query.shape[0] % (mesh.shape["data"] * mesh.shape["fsdp"]):
        raise ValueError(
            f"splash attention splits rows over {mesh.shape['data']} x {mesh.shape['fsdp']} devices, got "
            f"{query.shape[0]} rows; make micro_batch_rows a multiple"
        )
    heads = "tensor" if query.shape[1] % tensor == 0 and key.shape[1] % tensor == 0 else None
    split = PartitionSpec(ROWS, heads, None, None)  # type: ignore[no-untyped-call]  # jax leaves it untyped
    rows = PartitionSpec(ROWS, None)  # type: ignore[no-untyped-call]  # jax leaves it untyped
    return jax.shard_map(local, mesh=mesh, in_specs=(split, split, split, rows), out_specs=split, check_vma=False)(
        query, key, value, segments
    )
