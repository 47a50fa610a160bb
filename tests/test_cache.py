"""One cache in place: what is written where, and attention over blocks of it beside plain sums in float64."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dfc.models.attention import AttentionSpec
from dfc.models.cache import BLOCK, LayerCache, copy_rows, layout_of, put_rows, take_rows, write
from dfc.models.cached_attention import attend_cache
from dfc.models.execution import Execution
from dfc.models.sharding import make_mesh

SLOTS, HEADS, KV_HEADS, DIM, POSITIONS = 24, 4, 2, 8, 2 * BLOCK + 44  # three blocks, the last one not whole
PLAIN = AttentionSpec(DIM**-0.5)
SPECS = {
    "plain": PLAIN,
    "window": dataclasses.replace(PLAIN, window=BLOCK + 3),
    "narrow window": dataclasses.replace(PLAIN, window=5),
    "cap": dataclasses.replace(PLAIN, soft_cap=2.0),
}


LAYOUTS = pytest.mark.parametrize("layout", ["apart", "paired"])


def layer_of(rng, slots=SLOTS, positions=POSITIONS, layout="apart"):
    """Random keys and values, the same numbers in either layout."""
    keys, values = (rng.normal(size=(slots, KV_HEADS, positions, DIM)).astype(np.float32) for _ in range(2))
    if layout == "apart":
        return LayerCache((jnp.asarray(keys), jnp.asarray(values)))
    pages = np.zeros((slots, positions, 2 * KV_HEADS, DIM), np.float32)
    pages[:, :, 0::2], pages[:, :, 1::2] = keys.swapaxes(1, 2), values.swapaxes(1, 2)
    return LayerCache((jnp.asarray(pages),), "paired")


def held(layer):
    """Keys and values [B, K, S, H] of a cache in either layout."""
    if layer.layout == "apart":
        return [np.array(x) for x in layer.arrays]
    return [np.array(layer.arrays[0][:, :, number::2].swapaxes(1, 2)) for number in range(2)]


def plain_attention(query, keys, values, start, spec):
    """[N, T, H] for one row: a sum over every position it sees, one query and head at a time."""
    mixed = np.zeros(query.shape)
    for head in range(HEADS):
        for token in range(query.shape[1]):
            place = start + token
            first = 0 if spec.window is None else max(0, place - spec.window + 1)
            own = head // (HEADS // KV_HEADS)
            logits = (
                keys[own, first : place + 1].astype(np.float64) @ query[head, token].astype(np.float64) * spec.scale
            )
            if spec.soft_cap is not None:
                logits = spec.soft_cap * np.tanh(logits / spec.soft_cap)
            weights = np.exp(logits - logits.max())
            mixed[head, token] = weights @ values[own, first : place + 1] / weights.sum()
    return mixed


@LAYOUTS
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize(("rows", "length"), [(5, 1), (32, 1), (64, 1), (3, 9), (8, 9)])
@pytest.mark.parametrize("positions", [POSITIONS, 2 * BLOCK - 20], ids=["blocks", "short"])
def test_rows_read_their_own_slots_up_to_themselves(spec, rows, length, positions, layout):
    """32 rows and 8 are more than a CPU takes at once; slots are in no order, some have no row."""
    rng = np.random.default_rng(rows)
    layer, count = layer_of(rng, slots=70, positions=positions, layout=layout), 70
    platform = "tpu" if layout == "paired" else None
    slots = rng.permutation(count)[:rows].astype(np.int32)
    start = rng.integers(0, positions - length, rows).astype(np.int32)
    start[:3] = 0, BLOCK - 1, positions - length  # a first token, a border, the last position
    query, key, value = (
        rng.normal(size=(rows, heads, length, DIM)).astype(np.float32) for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    given = (jnp.asarray(x) for x in (query, key, value))
    mixed, grown = jax.jit(lambda *a: attend_cache(*a, spec, Execution(platform=platform)))(
        *given, layer, jnp.asarray(slots), jnp.asarray(start)
    )
    keys, values = held(grown)
    expected = held(layer)
    for row, (slot, begin) in enumerate(zip(slots, start, strict=True)):
        expected[0][slot, :, begin : begin + length] = key[row]
        expected[1][slot, :, begin : begin + length] = value[row]
    np.testing.assert_array_equal(keys, expected[0])
    np.testing.assert_array_equal(values, expected[1])
    for row, (slot, begin) in enumerate(zip(slots, start, strict=True)):
        found = plain_attention(query[row], expected[0][slot], expected[1][slot], begin, spec)
        np.testing.assert_allclose(mixed[row], found, atol=1e-5)


@pytest.mark.parametrize("positions", [POSITIONS, BLOCK + 32, BLOCK - 32])
def test_what_others_hold_changes_nothing_to_the_bit(positions):
    """A row computed beside longer ones reads blocks that it does not see."""
    rng = np.random.default_rng(1)
    layer = layer_of(rng, positions=positions)
    query = jnp.asarray(rng.normal(size=(2, HEADS, 1, DIM)), jnp.float32)
    new = jnp.asarray(rng.normal(size=(2, KV_HEADS, 1, DIM)), jnp.float32)
    program = jax.jit(lambda start: attend_cache(query, new, new, layer, jnp.arange(2), start, PLAIN, Execution())[0])
    short, beside = program(jnp.asarray([20, 21])), program(jnp.asarray([20, positions - 1]))
    np.testing.assert_array_equal(short[0], beside[0])


@pytest.mark.parametrize("length", [1, 9])
@pytest.mark.parametrize("positions", [96, 160, 2 * BLOCK, POSITIONS])
def test_a_cpu_reads_a_slot_as_far_as_its_rows_have_come(positions, length):
    """A position that is read and not seen counts 0 times, which of one that is no number is none."""
    rng = np.random.default_rng(4)
    keys, values = layer_of(rng, slots=4, positions=positions).arrays
    layer = LayerCache((keys, values.at[:, :, 64:].set(jnp.nan)))
    query = jnp.asarray(rng.normal(size=(4, HEADS, length, DIM)), jnp.float32)
    new = jnp.asarray(rng.normal(size=(4, KV_HEADS, length, DIM)), jnp.float32)
    start = jnp.asarray([20, 64 - length, 0, 33])
    mixed, _ = attend_cache(query, new, new, layer, jnp.arange(4), start, PLAIN, Execution(platform="cpu"))
    assert np.isfinite(mixed).all()


@LAYOUTS
@pytest.mark.parametrize("length", [1, 7])
def test_what_reaches_past_the_end_or_has_no_slot_is_left_out(length, layout):
    rng = np.random.default_rng(2)
    layer = layer_of(rng, slots=4, positions=12, layout=layout)
    new = jnp.asarray(rng.normal(size=(4, KV_HEADS, length, DIM)), jnp.float32)
    start = np.array([2, 10, 0, 12], np.int32)
    written = held(write(layer, jnp.asarray([3, 1, 4, 0]), jnp.asarray(start), new, -new))
    fitting = min(length, 2)
    for found, expected, sign in zip(written, held(layer), (1, -1), strict=True):
        expected[3, :, 2 : 2 + length] = sign * new[0]
        expected[1, :, 10 : 10 + fitting] = sign * new[1, :, :fitting]
        np.testing.assert_array_equal(found, expected)


@LAYOUTS
@pytest.mark.parametrize("tokens", [0, 1, BLOCK, BLOCK + 1, POSITIONS])
def test_copies_hold_at_least_the_tokens_and_leave_other_slots_alone(tokens, layout):
    cache = (layer_of(np.random.default_rng(3), slots=5, layout=layout),)
    sources, targets = jnp.asarray([0, 3]), jnp.asarray([2, 5])  # the second one has no slot
    copied = jax.jit(copy_rows)(cache, sources, targets, jnp.int32(tokens))
    beyond, kept = -(-tokens // BLOCK) * BLOCK, [0, 1, 3, 4]
    for before, after in zip(held(cache[0]), held(copied[0]), strict=True):
        np.testing.assert_array_equal(after[2, :, :tokens], before[0, :, :tokens])
        np.testing.assert_array_equal(after[2, :, beyond:], before[2, :, beyond:])
        np.testing.assert_array_equal(after[kept], before[kept])


def test_only_a_tpu_with_heads_of_whole_tiles_has_keys_and_values_in_pairs():
    found = {(platform, dim): layout_of(platform, dim) for platform in ("cpu", "gpu", "tpu") for dim in (64, 128, 256)}
    assert {key for key, layout in found.items() if layout == "paired"} == {("tpu", 128), ("tpu", 256)}


@LAYOUTS
def test_rows_go_out_and_come_back(layout):
    cache = (layer_of(np.random.default_rng(4), slots=3, layout=layout),)
    taken = take_rows(cache, jnp.asarray([2]), 50)
    assert {x.shape for x in held(taken[0])} == {(1, KV_HEADS, 50, DIM)}
    back = put_rows(cache, jnp.asarray([0]), taken)
    for before, after in zip(held(cache[0]), held(back[0]), strict=True):
        np.testing.assert_array_equal(after[0, :, :50], before[2, :, :50])
        np.testing.assert_array_equal(after[0, :, 50:], before[0, :, 50:])
        np.testing.assert_array_equal(after[1:], before[1:])


@LAYOUTS
def test_devices_read_and_write_slots_of_their_own(layout):
    """Four shards of two slots; heads split over two devices: as one device with all slots does."""
    rng, mesh = np.random.default_rng(5), make_mesh(2, 2, 2)
    layer = layer_of(rng, slots=8, layout=layout)
    query, key, value = (
        jnp.asarray(rng.normal(size=(8, heads, 3, DIM)), jnp.float32) for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    own = jnp.asarray([1, 0, 0, 1, 2, 1, 0, 2])  # the 2 is past a shard's last
    start = jnp.asarray(rng.integers(0, POSITIONS - 3, 8))
    everywhere = jnp.where(own < 2, own + 2 * (jnp.arange(8) // 2), 8)
    alone = attend_cache(query, key, value, layer, everywhere, start, PLAIN, Execution())
    together = jax.jit(lambda *a: attend_cache(*a, PLAIN, Execution(mesh=mesh)))(query, key, value, layer, own, start)
    there = np.asarray(own) < 2
    np.testing.assert_allclose(together[0][there], alone[0][there], atol=1e-6)
    for one, other in zip(held(together[1]), held(alone[1]), strict=True):
        np.testing.assert_array_equal(one, other)
    one_head = (2, 1, POSITIONS, DIM) if layout == "apart" else (2, POSITIONS, 2, DIM)
    for x in together[1].arrays:
        assert {part.data.shape for part in x.addressable_shards} == {one_head}
