"""Attention that reads the resident cache in place, by slot: kernels for NVIDIA GPUs and for TPUs.

    out[r, n, t] = sum_j softmax_j(cap(scale * q[r, n, t] . k[slots[r], n // G, j])) v[slots[r], n // G, j]

where j runs over the positions 0 .. start[r] + t of the row's slot, of those the last `window` if there is one, and
cap(x) = c tanh(x / c) if there is a soft cap. A row's own keys and values are written into the cache before. No row is
taken out of the cache, no logits go to memory, and what no query of a row sees is not read, but for the rest of the
block in which its last position lies. Logits, softmax and sums are float32. Axis letters as in dfc.models.transformer;
R rows of a call, B slots, S positions of a slot, G = N / K.

The GPU kernel is FlashAttention-2 (https://arxiv.org/abs/2307.08691), the keys of a row split between programs where a
call has few queries (https://pytorch.org/blog/flash-decoding/), in Pallas' Triton dialect. jax's paged attention for
GPUs has no window, takes one query a row, and is deprecated from jax 0.11 on; its public call of cuDNN knows neither
slots nor where queries start. The TPU kernel is jax's ragged paged attention (https://arxiv.org/abs/2604.15464), whose
pages are pieces of a slot. Block sizes are chosen by memory and by count of programs; no run time was measured.
"""

import contextlib
import functools
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton
from jax.experimental.pallas.ops.tpu import ragged_paged_attention as rpa

from dfc.models.attention import AttentionSpec

POSITIONS = 128  # a slot has a multiple of it
_Ref = Any  # what a kernel is given; Pallas has no public name for it
_MASKED = -1e30
_LOG2_E = math.log2(math.e)
_QUERY_BYTES, _KEY_BYTES = 32 << 10, 16 << 10  # of a block; queries and two stages of keys and values: 96 KiB of 99
_SPLIT = 128  # least positions of a program where the keys of a row are split
_PROGRAMS, _LARGE_PROGRAMS = 528, 132  # four of a few queries, or one of a full block, per multiprocessor of an H100
_PAGES_BYTES = 4 << 20  # of two buffers of a TPU's pages, of the 16 MiB a kernel has without asking for more
_TPU_QUERIES = 32  # tokens of a block; what the authors' table has for most shapes


def flash_usable(
    platform: str, capability: str | None, *, dtype: jax.typing.DTypeLike, head_dim: int, positions: int
) -> bool:
    """Returns whether `paged_decode` and `flash_prefill` run there; windows and soft caps make no difference.

    Args:
      platform: ``cpu``, ``gpu`` or ``tpu``.
      capability: of an NVIDIA GPU, text such as ``9.0``; from 8.0 on. None where it is not known: taken for new enough.
      dtype: of queries, keys and values: bfloat16, float16 or float32.
      head_dim: H, a power of two from 16 to 256.
      positions: S, a multiple of `POSITIONS`.
    """
    new_enough = capability is None or re.match(r"([89]|\d\d)\.\d", capability) is not None
    known = dtype in (jnp.bfloat16, jnp.float16, jnp.float32) and head_dim in (16, 32, 64, 128, 256)
    return platform == "gpu" and new_enough and known and positions % POSITIONS == 0


def paged_decode(
    query: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    slots: jax.Array,
    lengths: jax.Array,
    spec: AttentionSpec,
    *,
    interpret: bool = False,
) -> jax.Array:
    """Returns [R, N, H]: `flash_prefill` of one query [R, N, H] a row, at position lengths[r] - 1.

    lengths is int32 [R], the query's own position counted; with length 0 nothing is read and the result is zero.
    """
    return flash_prefill(query[:, :, None], keys, values, slots, lengths - 1, spec, interpret=interpret)[:, :, 0]


def flash_prefill(
    query: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    slots: jax.Array,
    start: jax.Array,
    spec: AttentionSpec,
    *,
    interpret: bool = False,
) -> jax.Array:
    """Returns [R, N, T, H], of the queries' dtype, on an NVIDIA GPU.

    Args:
      query: [R, N, T, H], rotated; query t of row r is at position start[r] + t. Beyond the slot's last position the
        results mean nothing.
      keys: [B, K, S, H], rotated; K divides N.
      values: [B, K, S, H].
      slots: int32 [R]. A row whose slot is B or more is idle: it reads the last slot, its result is finite and means
        nothing.
      start: int32 [R].
      spec: scale, window, cap.
      interpret: computes on any platform, slowly.

    Raises:
      ValueError: shapes or dtypes that the kernel does not take.
    """
    (rows, heads, tokens, dim), (_, key_heads, positions, _) = query.shape, keys.shape
    usable = flash_usable("gpu", None, dtype=query.dtype, head_dim=dim, positions=positions)
    _refuse(query, (keys, values), slots, start, usable=usable and dim == keys.shape[3] and heads % key_heads == 0)
    groups = heads // key_heads
    bytes_each = dim * query.dtype.itemsize
    block_k = max(16, min(64, _KEY_BYTES // bytes_each))  # products need 16
    block_g = pl.next_power_of_2(groups)
    most = min(128, _QUERY_BYTES // bytes_each)
    block_t = max(1, 16 // block_g, min(most // block_g, pl.next_power_of_2(tokens)))
    blocks = pl.cdiv(tokens, block_t)
    wanted = (_PROGRAMS if blocks == 1 else _LARGE_PROGRAMS) // (rows * key_heads * blocks)
    splits = max(1, min(wanted, positions // _SPLIT))

    whole = pl.BlockSpec()
    block = (block_g, block_t)
    queries = pl.BlockSpec((None, None, *block, dim), lambda r, k, t, _split: (r, k, 0, t, 0))
    parts = pl.BlockSpec((None, None, None, *block, dim), lambda r, k, t, split: (r, k, split, 0, t, 0))
    sums = pl.BlockSpec((None, None, None, *block), lambda r, k, t, split: (r, k, split, 0, t))
    shape = (rows, key_heads, splits, groups, tokens)
    kept = query.dtype if splits == 1 else jnp.float32  # what one program computes alone is final
    mixed, largest, total = pl.pallas_call(
        functools.partial(_flash, spec=spec, groups=groups, tokens=tokens, block_k=block_k),
        grid=(rows, key_heads, blocks, splits),
        in_specs=[whole, whole, queries, whole, whole],
        out_specs=[parts, sums, sums],
        out_shape=[
            jax.ShapeDtypeStruct(of, dtype)  # type: ignore[no-untyped-call]  # jax leaves it untyped
            for of, dtype in (((*shape, dim), kept), (shape, jnp.float32), (shape, jnp.float32))
        ],
        compiler_params=triton.CompilerParams(num_warps=8 if block_g * block_t * dim >= 8192 else 4, num_stages=2),
        interpret=interpret,
        name="attend_slots",
    )(slots, start, query.reshape(rows, key_heads, groups, tokens, dim), keys, values)
    if splits > 1:
        weights = total * jnp.exp2(largest - largest.max(axis=2, keepdims=True))
        weights = weights / jnp.maximum(weights.sum(axis=2, keepdims=True), 1e-30)
        mixed = (weights[..., None] * mixed).sum(axis=2).astype(query.dtype)
    attended: jax.Array = mixed.reshape(query.shape)
    return attended


def _flash(
    slots_ref: _Ref,
    start_ref: _Ref,
    query_ref: _Ref,
    keys_ref: _Ref,
    values_ref: _Ref,
    mixed_ref: _Ref,
    largest_ref: _Ref,
    total_ref: _Ref,
    *,
    spec: AttentionSpec,
    groups: int,
    tokens: int,
    block_k: int,
) -> None:
    """One row, key head, block of queries and part of the keys; logits are in units of log 2.

    The queries of a block are those of G heads at neighbouring positions, which see nearly the same keys.
    """
    row, head, block, split = (pl.program_id(axis) for axis in range(4))
    slots, _, positions, _ = keys_ref.shape
    block_g, block_t, dim = query_ref.shape
    block_q = block_g * block_t
    slot = jnp.clip(slots_ref[row], 0, slots - 1)
    first = start_ref[row] + block * block_t
    last = start_ref[row] + jnp.minimum((block + 1) * block_t, tokens) - 1

    def real(*shape: int) -> jax.Array:
        group = jax.lax.broadcasted_iota(jnp.int32, shape, 0)
        token = block * block_t + jax.lax.broadcasted_iota(jnp.int32, shape, 1)
        return jnp.logical_and(group < groups, token < tokens)

    query = triton.load(query_ref, mask=real(block_g, block_t, dim), other=0.0).reshape(block_q, dim)
    position = first + jax.lax.rem(jnp.arange(block_q, dtype=jnp.int32), block_t)

    begin = 0 if spec.window is None else jax.lax.div(jnp.maximum(first - spec.window + 1, 0), block_k)
    end = jax.lax.div(jnp.clip(last, -1, positions - 1) + block_k, block_k)
    share = jax.lax.div(jnp.maximum(end - begin, 0) + pl.num_programs(3) - 1, pl.num_programs(3))
    lower = begin + split * share

    def add(number: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        mixed, largest, total = carry
        there = pl.ds(number * block_k, block_k)
        logits = triton.dot(query, keys_ref[slot, head, there, :], trans_b=True)
        if spec.soft_cap is None:
            logits = logits * (spec.scale * _LOG2_E)
        else:
            logits = jnp.tanh(logits * (spec.scale / spec.soft_cap)) * (spec.soft_cap * _LOG2_E)
        distance = position[:, None] - (number * block_k + jnp.arange(block_k, dtype=jnp.int32))[None, :]
        seen = (distance >= 0) & (distance < (positions if spec.window is None else spec.window))
        logits = jnp.where(seen, logits, _MASKED)
        higher = jnp.maximum(largest, logits.max(axis=1))
        weights = jnp.exp2(logits - higher[:, None])
        shrink = jnp.exp2(largest - higher)
        values = values_ref[slot, head, there, :]
        mixed = mixed * shrink[:, None] + triton.dot(weights.astype(values.dtype), values)
        return mixed, higher, total * shrink + weights.sum(axis=1)

    empty = (
        jnp.zeros((block_q, dim), jnp.float32),
        jnp.full((block_q,), _MASKED, jnp.float32),
        jnp.zeros((block_q,), jnp.float32),
    )
    mixed, largest, total = jax.lax.fori_loop(lower, jnp.minimum(lower + share, end), add, empty)
    mixed = mixed / jnp.maximum(total, 1e-30)[:, None]  # nothing seen: zero
    mixed = mixed.astype(mixed_ref.dtype).reshape(block_g, block_t, dim)
    triton.store(mixed_ref, mixed, mask=real(block_g, block_t, dim))
    triton.store(largest_ref, largest.reshape(block_g, block_t), mask=real(block_g, block_t))
    triton.store(total_ref, total.reshape(block_g, block_t), mask=real(block_g, block_t))


def _refuse(
    query: jax.Array, cache: tuple[jax.Array, ...], slots: jax.Array, start: jax.Array, *, usable: bool
) -> None:
    """Raises a ValueError unless shapes and dtypes are those of one another and the kernel takes them."""
    if not usable or any(x.dtype != query.dtype or x.shape != cache[0].shape for x in cache):
        raise ValueError(
            f"the kernel does not take queries {query.dtype}{list(query.shape)} with a cache of "
            f"{' and '.join(f'{x.dtype}{list(x.shape)}' for x in cache)}; ask flash_usable or ragged_usable first"
        )
    for name, x in (("slots", slots), ("start or lengths", start)):
        if x.shape != query.shape[:1] or x.dtype != jnp.int32:
            raise ValueError(f"expected {name} as int32[{query.shape[0]}], got {x.dtype}{list(x.shape)}")


def ragged_usable(
    platform: str, *, dtype: jax.typing.DTypeLike, head_dim: int, heads: int, key_heads: int, positions: int
) -> bool:
    """Returns whether `ragged` runs there; windows and soft caps make no difference.

    Args:
      platform: ``cpu``, ``gpu`` or ``tpu`` (v4 or newer, the only ones jax runs on).
      dtype: of queries, keys and values: bfloat16 or float32.
      head_dim: H: 128; the compiler (libtpu 0.0.52) refuses 256, and the kernel asks for a multiple of 128.
      heads: N on one device.
      key_heads: K on one device: 1, 2, 4 or a multiple of 8; in float32 12 and 20 as well, and from 8 on only
        fewer than N.
      positions: S, a multiple of `POSITIONS`.
    """
    if platform != "tpu" or dtype not in (jnp.bfloat16, jnp.float32) or head_dim != 128 or positions % POSITIONS:
        return False
    if dtype == jnp.bfloat16:
        return key_heads in (1, 2, 4) or key_heads % 8 == 0
    return key_heads in (1, 2, 4) or (key_heads % 4 == 0 and heads > key_heads)


def ragged(
    query: jax.Array,
    pages: jax.Array,
    slots: jax.Array,
    start: jax.Array,
    spec: AttentionSpec,
    *,
    interpret: bool = False,
) -> jax.Array:
    """Returns [R, N, T, H], of the queries' dtype, on a TPU.

    A window hides positions, but they are read. To be compiled for a described device it needs a mesh of such in the
    context (`jax.set_mesh`, `jax.shard_map`).

    Args:
      query: as in `flash_prefill`.
      pages: [B, S, 2K, H]: key and value of a head one after the other, k0 v0 k1 v1 ..; keys rotated; K divides N.
      slots: as in `flash_prefill`.
      start: int32 [R]; beyond S it counts as S. Beyond the slot's last position results mean nothing.
      spec: scale, window, cap.
      interpret: by jax's interpreter of TPU kernels, which up to jax 0.12 lacks two things that this one does
        (tests/interpreted_tpu.py lends it them).

    Raises:
      ValueError: shapes or dtypes that the kernel does not take.
    """
    (rows, heads, tokens, dim), (count, positions, twice, _) = query.shape, pages.shape
    shapes = {"head_dim": dim, "heads": heads, "key_heads": twice // 2, "positions": positions}
    usable = twice % 2 == heads % (twice // 2) == 0 and dim == pages.shape[3]
    _refuse(query, (pages,), slots, start, usable=usable and ragged_usable("tpu", dtype=pages.dtype, **shapes))
    fits = _PAGES_BYTES // (2 * twice * dim * pages.dtype.itemsize)
    page = next(size for size in (512, 256, POSITIONS) if positions % size == 0 and (size <= fits or size == POSITIONS))
    per_slot = positions // page
    within = jnp.arange(per_slot, dtype=jnp.int32)[None, :]
    # Sizes are given, for the kernel's table of them asks for the devices of the host.
    with pltpu.force_tpu_interpret_mode() if interpret else contextlib.nullcontext():
        mixed: jax.Array = rpa.ragged_paged_attention(
            query.swapaxes(1, 2).reshape(rows * tokens, heads, dim),
            pages.reshape(count * per_slot, page, twice, dim),
            # Of a length beyond the slot's the kernel reads the slot's first page instead, and padding alone sees it.
            jnp.clip(start, 0, positions) + tokens,
            jnp.clip(slots, 0, count - 1)[:, None] * per_slot + within,
            jnp.arange(rows + 1, dtype=jnp.int32) * tokens,
            jnp.array([rows], jnp.int32),
            sm_scale=spec.scale,
            sliding_window=spec.window,
            soft_cap=spec.soft_cap,
            num_kv_pages_per_block=1,
            num_queries_per_block=min(rows * tokens, _TPU_QUERIES),
        )
    return mixed.reshape(rows, tokens, heads, dim).swapaxes(1, 2)
