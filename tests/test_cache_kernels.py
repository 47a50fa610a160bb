"""Kernels that read the cache in place, interpreted, beside a loop over positions; and compiled without a device."""

import importlib.util
import re

import interpreted_tpu
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dfc.models import cache_kernels
from dfc.models.attention import AttentionSpec
from dfc.models.cache_kernels import flash_prefill, flash_usable, paged_decode, ragged, ragged_usable
from dfc.tools.fit.compilation import quiet
from dfc.tools.fit.hardware import parse_topology, topology_devices

PLAIN, WINDOW = AttentionSpec(0.3), AttentionSpec(0.3, window=70)
CAPPED, BOTH = AttentionSpec(0.3, soft_cap=2.0), AttentionSpec(0.3, window=3, soft_cap=2.0)
SLOTS, POSITIONS = 3, 256


def brute_force(query, keys, values, slots, start, spec):
    """Returns [R, N, T, H] in float64, position by position; nothing where a query would lie outside its slot."""
    rows, heads, tokens, _ = query.shape
    out = np.zeros(query.shape)
    for r in range(rows):
        for n in range(heads):
            k = keys[slots[r], n * keys.shape[1] // heads].astype(float)
            v = values[slots[r], n * keys.shape[1] // heads].astype(float)
            for t in range(tokens):
                here = start[r] + t
                seen = [j for j in range(here + 1) if spec.window is None or here - j < spec.window]
                logits = k[seen] @ query[r, n, t].astype(float) * spec.scale
                if spec.soft_cap is not None:
                    logits = spec.soft_cap * np.tanh(logits / spec.soft_cap)
                weights = np.exp(logits - logits.max())
                out[r, n, t] = weights @ v[seen] / weights.sum()
    return out


def a_call(rows, groups, tokens, key_heads=2, dim=16):
    rng = np.random.default_rng(rows + groups + tokens)
    keys, values = rng.normal(size=(2, SLOTS, key_heads, POSITIONS, dim)).astype(np.float32)
    return rng.normal(size=(rows, key_heads * groups, tokens, dim)).astype(np.float32) * 2, keys, values


def interleaved(keys, values):
    return np.stack([keys, values], axis=2).reshape(SLOTS, -1, POSITIONS, keys.shape[3]).swapaxes(1, 2)


def hide_unseen(keys, values, slots, start, tokens, window, block=64):
    """Puts NaN wherever no block of positions lies that a row sees some of."""
    read = np.zeros((SLOTS, POSITIONS), bool)
    for slot, first in zip(slots, start, strict=True):
        begin = 0 if window is None else max(first - window + 1, 0) // block * block
        read[slot, begin : -(-(first + tokens) // block) * block] = True
    hidden = np.where(read[:, None, :, None], 0, np.nan).astype(np.float32)
    return keys + hidden, values + hidden


@pytest.mark.parametrize("programs", [1, 1000])  # the keys of a row in one piece, and split
@pytest.mark.parametrize(("groups", "spec"), [(1, PLAIN), (2, WINDOW), (8, BOTH), (3, CAPPED)])
def test_decoding_attends_to_each_rows_own_length_and_reads_no_further(monkeypatch, groups, spec, programs):
    monkeypatch.setattr(cache_kernels, "_PROGRAMS", programs)
    slots, lengths = np.array([2, 0, 2, 0], np.int32), np.array([1, 128, 129, 65], np.int32)
    query, keys, values = a_call(4, groups, 1)
    expected = brute_force(query, keys, values, slots, lengths - 1, spec)[:, :, 0]
    keys, values = hide_unseen(keys, values, slots, lengths - 1, 1, spec.window)
    found = paged_decode(query[:, :, 0], keys, values, slots, lengths, spec, interpret=True)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("groups", "tokens", "spec"),
    [(1, 130, WINDOW), (2, 5, PLAIN), (8, 17, CAPPED), (3, 48, BOTH), (2, 130, PLAIN), (1, 256, PLAIN)],
)
def test_reading_attends_to_what_each_query_sees_and_reads_no_further(groups, tokens, spec):
    slots = np.array([1, 0], np.int32)
    start = np.array([POSITIONS - tokens, min(63, POSITIONS - tokens)], np.int32)  # the last position, and a border
    query, keys, values = a_call(2, groups, tokens)
    expected = brute_force(query, keys, values, slots, start, spec)
    keys, values = hide_unseen(keys, values, slots, start, tokens, spec.window)
    found = flash_prefill(query, keys, values, slots, start, spec, interpret=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_rows_without_a_slot_or_a_length_are_finite_and_change_no_others():
    query, keys, values = a_call(3, 2, 4)
    for spec in (PLAIN, BOTH):
        slots, start = np.array([1, SLOTS + 5, SLOTS], np.int32), np.array([7, 1 << 20, -4], np.int32)
        found = np.asarray(flash_prefill(query, keys, values, slots, start, spec, interpret=True))
        np.testing.assert_allclose(found[:1], brute_force(query[:1], keys, values, slots, start, spec), atol=1e-4)
        assert np.isfinite(found).all()
        assert not found[2].any()  # nothing before the first position


@pytest.mark.parametrize(
    ("groups", "key_heads", "tokens", "spec"),
    [(1, 2, 1, PLAIN), (2, 2, 5, WINDOW), (8, 1, 1, BOTH), (2, 2, 40, CAPPED), (2, 4, 130, PLAIN)],
)
def test_ragged_attends_to_what_each_query_sees_in_its_own_slot(monkeypatch, groups, key_heads, tokens, spec):
    interpreted_tpu.lend(monkeypatch)
    monkeypatch.setattr(cache_kernels, "_PAGES_BYTES", 1)  # two pages a slot
    slots = np.array([2, 0, 2, SLOTS + 5], np.int32)
    start = np.array([POSITIONS - tokens, 63, POSITIONS - 3, POSITIONS + 99], np.int32)
    query, keys, values = a_call(4, groups, tokens, key_heads, dim=128)
    keys[1], values[1] = np.nan, np.nan  # nobody's slot
    found = np.asarray(ragged(query, interleaved(keys, values), slots, start, spec, interpret=True))
    fits = min(tokens, 3)  # of the third row, before its slot ends
    for rows, some in ((slice(2), tokens), (slice(2, 3), fits)):
        expected = brute_force(query[rows, :, :some], keys, values, slots[rows], start[rows], spec)
        np.testing.assert_allclose(found[rows, :, :some], expected, rtol=0, atol=1e-4)
    assert np.isfinite(found).all()  # the row without a slot, too


def test_predicates_name_what_the_kernels_take():
    flash = {"dtype": jnp.bfloat16, "head_dim": 128, "positions": 2048}
    assert flash_usable("gpu", "9.0", **flash)
    assert flash_usable("gpu", "12.0", **flash)
    assert flash_usable("gpu", None, **flash)
    assert flash_usable("gpu", "8.0", **flash | {"dtype": jnp.float32, "head_dim": 32})
    for platform, capability, change in (
        *(("cpu", None, {}), ("tpu", None, {}), ("gpu", "7.5", {}), ("gpu", "gfx942", {})),
        *(("gpu", "9.0", {"head_dim": 96}), ("gpu", "9.0", {"head_dim": 512}), ("gpu", "9.0", {"positions": 2000})),
        ("gpu", "9.0", {"dtype": jnp.int8}),
    ):
        assert not flash_usable(platform, capability, **flash | change), (platform, capability, change)
    tpu = {"dtype": jnp.bfloat16, "head_dim": 128, "heads": 32, "key_heads": 8, "positions": 2048}
    assert ragged_usable("tpu", **tpu)
    assert ragged_usable("tpu", **tpu | {"dtype": jnp.float32})
    assert ragged_usable("tpu", **tpu | {"heads": 8})
    for platform, change in (
        *(("cpu", {}), ("gpu", {}), ("tpu", {"head_dim": 64}), ("tpu", {"head_dim": 256}), ("tpu", {"key_heads": 3})),
        *(("tpu", {"dtype": jnp.float16}), ("tpu", {"positions": 100}), ("tpu", {"key_heads": 12})),
        ("tpu", {"dtype": jnp.float32, "heads": 8}),
    ):
        assert not ragged_usable(platform, **tpu | change), (platform, change)


def test_what_a_kernel_does_not_take_is_refused_with_its_shapes():
    query, keys, values = a_call(2, 2, 4, dim=24)
    rows = np.zeros(2, np.int32)
    with pytest.raises(
        ValueError, match=r"float32\[2, 4, 4, 24\] with a cache of float32\[3, 2, 256, 24\] and float32"
    ):
        flash_prefill(query, keys, values, rows, rows, PLAIN, interpret=True)
    with pytest.raises(ValueError, match=r"ask flash_usable or ragged_usable first"):
        ragged(query, interleaved(keys, values), rows, rows, PLAIN, interpret=True)
    query, keys, values = a_call(2, 2, 4)
    with pytest.raises(ValueError, match=r"cache of float32\[3, 2, 256, 16\] and float16\[3, 2, 256, 16\]"):
        flash_prefill(query, keys, values.astype(np.float16), rows, rows, PLAIN, interpret=True)
    with pytest.raises(ValueError, match=r"expected slots as int32\[2\], got int32\[3\]"):
        flash_prefill(query, keys, values, np.zeros(3, np.int32), rows, PLAIN, interpret=True)
    with pytest.raises(ValueError, match=r"expected start or lengths as int32\[2\], got float32\[2\]"):
        flash_prefill(query, keys, values, rows, rows.astype(np.float32), PLAIN, interpret=True)


def described(name, module):
    missing = importlib.util.find_spec(module) is None
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason=f"{module} is not installed"))


@pytest.mark.parametrize("tokens", [1, 512])
@pytest.mark.parametrize("name", [described("h100:4", "jax_cuda13_plugin"), described("v5p:2x2x1", "libtpu")])
def test_a_compiled_kernel_moves_nothing_of_the_caches_size(name, tokens):
    """Slots over data and fsdp devices, heads over tensor devices; Llama-3.1-8B's shape, 32 slots of 64 each device."""
    topology = parse_topology(name)
    mesh = Mesh(np.array(topology_devices(topology)).reshape(1, 2, 2), ("data", "fsdp", "tensor"))
    rows, heads = PartitionSpec(("data", "fsdp")), PartitionSpec(("data", "fsdp"), "tensor")

    def shape(of, dtype, spec):
        return jax.ShapeDtypeStruct(of, dtype, sharding=NamedSharding(mesh, spec))

    query = shape((32, 32, tokens, 128), jnp.bfloat16, heads)
    slots = shape((32,), jnp.int32, rows)
    spec = AttentionSpec(128**-0.5)
    if topology.chip.platform == "tpu":
        split = PartitionSpec(("data", "fsdp"), None, "tensor")
        cache = [shape((64, 2048, 16, 128), jnp.bfloat16, split)]
        specs = heads, split, rows, rows

        def attend(query, pages, slots, start):
            return ragged(query, pages, slots, start, spec)
    else:
        cache = [shape((64, 8, 2048, 128), jnp.bfloat16, heads)] * 2
        specs = heads, heads, heads, rows, rows

        def attend(query, keys, values, slots, start):
            if tokens == 1:
                return paged_decode(query[:, :, 0], keys, values, slots, start + 1, spec)[:, :, None]
            return flash_prefill(query, keys, values, slots, start, spec)

    local = jax.shard_map(attend, mesh=mesh, in_specs=specs, out_specs=heads, check_vma=False)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"), quiet():
        compiled = jax.jit(local).lower(query, *cache, slots, slots).compile()
    text = compiled.as_text()
    assert "attend_slots" in text or "ragged_paged_attention" in text
    assert not re.search(r"(all-gather|all-reduce|all-to-all|collective-permute)\S*\(", text)
    queries = 32 * 32 * tokens * 128 * 2 // 4  # bytes on a device
    # A TPU turns queries and results; a GPU keeps the sums of a softmax, or the results of a few parts in float32.
    assert compiled.memory_analysis().temp_size_in_bytes < 2.1 * queries + (1 << 22)
