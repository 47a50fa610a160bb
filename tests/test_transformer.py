"""The decoder against itself: cached, packed, padded; and every number of its configuration counts."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_models
from tiny_models import tiny

from dfc.models.cache import empty_cache
from dfc.models.config import LinearRope, Llama3Rope
from dfc.models.transformer import abstract_params, bind, initialize, logical_axes

CONFIG = tiny(rope_scaling=Llama3Rope(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=64))


# Everything the first one lacks: norms of queries and keys, sandwiched norms, windows in some layers, soft caps, ...
WINDOWED = tiny(
    layers=3,
    kv_heads=1,
    rope_theta=1e5,
    qkv_bias=False,
    tied_embedding=True,
    rope_scaling=LinearRope(factor=8.0),
    activation="gelu_tanh",
    qk_norm=True,
    unit_offset_norm=True,
    sandwich_norms=True,
    scaled_embedding=True,
    attention_scale=0.3,
    attention_soft_cap=5.0,
    logit_soft_cap=3.0,
    sliding_window=6,
    windowed_layers=(True, False, True),
    local_rope_theta=1e3,
)
random_params = functools.cache(tiny_models.random_params)
CONFIGS = {"plain": CONFIG, "windowed": WINDOWED}


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS.keys())
def config(request):
    return request.param


@pytest.fixture
def params(config):
    return random_params(config)


@functools.partial(jax.jit, static_argnums=0)
def run(config, params, tokens, positions, segments):
    return bind(config, params)(tokens, positions, segments)


@functools.partial(jax.jit, static_argnums=0)
def extend(config, params, tokens, start, cache):
    return bind(config, params).extend(tokens, start, cache)


def whole(config, params, tokens, positions=None, segments=None):
    tokens = jnp.asarray(tokens, jnp.int32)
    if positions is None:
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
    segments = jnp.ones_like(tokens) if segments is None else jnp.asarray(segments, jnp.int32)
    return np.asarray(run(config, params, tokens, jnp.asarray(positions, jnp.int32), segments))


def random_tokens(rows, length, seed=0):
    return np.random.default_rng(seed).integers(0, CONFIG.vocabulary, (rows, length))


def test_feeding_in_chunks_of_mixed_sizes_equals_the_whole_sequence(config, params):
    """Each row is fed its own number of ids per call, padded to a common length."""
    lengths = np.array([20, 13, 17])
    tokens = random_tokens(3, 20)
    expected = whole(config, params, tokens)
    feeds = np.array([[5, 1, 3], [1, 7, 1], [8, 0, 2], [1, 1, 1], [4, 3, 9], [1, 1, 1]])  # per call and row
    assert (feeds.sum(0) == lengths).all()
    cache, start, seen = empty_cache(config, 3, 40), np.zeros(3, np.int32), np.zeros(3, int)
    noise = random_tokens(3, 40, seed=9)  # what lies in the padding must not matter
    for feed in feeds:
        fed = noise[:, : 9 if feed.max() > 1 else 1].copy()
        for row, count in enumerate(feed):
            fed[row, :count] = tokens[row, start[row] : start[row] + count]
        hidden, cache = extend(config, params, jnp.asarray(fed, jnp.int32), jnp.asarray(start), cache)
        for row, count in enumerate(feed):
            here = slice(start[row], start[row] + count)
            np.testing.assert_allclose(hidden[row, :count], expected[row, here], atol=1e-5, rtol=0)
            seen[row] += count
        start += feed.astype(np.int32)
    assert (seen == lengths).all()


def test_a_reused_slot_forgets_what_it_held(config, params):
    first, second = random_tokens(1, 9, seed=1), random_tokens(1, 9, seed=2)
    zero = jnp.zeros(1, jnp.int32)
    _, cache = extend(config, params, jnp.asarray(first, jnp.int32), zero, empty_cache(config, 1, 16))
    hidden, _ = extend(config, params, jnp.asarray(second, jnp.int32), zero, cache)
    np.testing.assert_allclose(hidden, whole(config, params, second), atol=1e-5, rtol=0)


def test_packed_segments_equal_separate_sequences(config, params):
    parts = [random_tokens(1, length, seed=length) for length in (7, 4, 9)]
    packed = np.concatenate([*parts, np.zeros((1, 4), int)], axis=1)
    segments = np.repeat([1, 2, 3, 0], [7, 4, 9, 4])[None]
    positions = np.concatenate([np.arange(length) for length in (7, 4, 9, 4)])[None]
    hidden = whole(config, params, packed, positions, segments)
    for part, begin in zip(parts, (0, 7, 11), strict=True):
        end = begin + part.shape[1]
        np.testing.assert_allclose(hidden[:, begin:end], whole(config, params, part), atol=1e-5, rtol=0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_matter(config, params, side):
    tokens = random_tokens(2, 9)
    expected = whole(config, params, tokens)
    at = slice(5, 14) if side == "left" else slice(0, 9)
    for filler in (0, 17):
        padded, segments, positions = np.full((2, 14), filler), np.zeros((2, 14), int), np.zeros((2, 14), int)
        padded[:, at], segments[:, at], positions[:, at] = tokens, 1, np.arange(9)
        hidden = whole(config, params, padded, positions, segments)
        np.testing.assert_allclose(hidden[:, at], expected, atol=1e-5, rtol=0)
        assert np.isfinite(hidden).all()  # padding attends to something, so that no gradient becomes NaN


def test_later_ids_do_not_change_earlier_states(config, params):
    tokens = random_tokens(1, 12)
    changed = tokens.copy()
    changed[:, 8:] = (changed[:, 8:] + 1) % CONFIG.vocabulary
    before, after = whole(config, params, tokens), whole(config, params, changed)
    np.testing.assert_array_equal(before[:, :8], after[:, :8])
    assert (np.abs(before[:, 8:] - after[:, 8:]).max(axis=-1) > 1e-3).all()


CHANGES = {
    "plain": {
        "rope_theta": {"rope_theta": 2e4},
        "norm_epsilon": {"norm_epsilon": 1e-2},
        "rope_scaling": {"rope_scaling": None},
        "rope_scaling.factor": {"rope_scaling": dataclasses.replace(CONFIG.rope_scaling, factor=4.0)},
        "rope_scaling.low_freq_factor": {"rope_scaling": dataclasses.replace(CONFIG.rope_scaling, low_freq_factor=2.0)},
        "rope_scaling.high_freq_factor": {
            "rope_scaling": dataclasses.replace(CONFIG.rope_scaling, high_freq_factor=8.0)
        },
        "rope_scaling.original_context": {
            "rope_scaling": dataclasses.replace(CONFIG.rope_scaling, original_context=128)
        },
    },
    "windowed": {
        "rope_theta": {"rope_theta": 2e5},
        "norm_epsilon": {"norm_epsilon": 1e-2},
        "rope_scaling": {"rope_scaling": None},
        "linear rope_scaling.factor": {"rope_scaling": LinearRope(factor=4.0)},
        "activation": {"activation": "silu"},
        "unit_offset_norm": {"unit_offset_norm": False},
        "scaled_embedding": {"scaled_embedding": False},
        "attention_scale": {"attention_scale": None},
        "attention_soft_cap": {"attention_soft_cap": None},
        "logit_soft_cap": {"logit_soft_cap": None},
        "sliding_window": {"sliding_window": 7},
        "windowed_layers": {"windowed_layers": (True, True, True)},
        "local_rope_theta": {"local_rope_theta": None},
    },
}


@pytest.mark.parametrize(
    ("base", "change"), [(base, change) for base, changes in CHANGES.items() for change in changes]
)
def test_every_number_of_the_config_counts(base, change):
    config, params, tokens = CONFIGS[base], random_params(CONFIGS[base]), random_tokens(1, 100)

    def logits(config):
        return bind(config, params).logits(whole(config, params, tokens))

    changed = dataclasses.replace(config, **CHANGES[base][change])
    assert np.abs(logits(changed) - logits(config)).max() > 1e-3


def test_no_number_of_the_config_is_left_out_of_the_test_above():
    shapes = {"vocabulary", "width", "layers", "heads", "kv_heads", "head_dim", "feed_forward"}
    # These change which weights there are, or their type.
    kinds = {"qkv_bias", "tied_embedding", "dtype", "qk_norm", "sandwich_norms", "labels"}
    fields = {field.name for field in dataclasses.fields(CONFIG)}
    nested = {f"rope_scaling.{field.name}" for field in dataclasses.fields(Llama3Rope)}
    nested |= {f"linear rope_scaling.{field.name}" for field in dataclasses.fields(LinearRope)}
    assert {name for changes in CHANGES.values() for name in changes} == (fields - shapes - kinds) | nested


def test_a_window_hides_what_lies_before_it():
    config = dataclasses.replace(CONFIG, sliding_window=4, layers=1)
    params, tokens = random_params(config), random_tokens(1, 12)
    changed = tokens.copy()
    changed[:, 5] = (changed[:, 5] + 1) % config.vocabulary
    moved = np.abs(whole(config, params, tokens) - whole(config, params, changed)).max(axis=-1)[0] > 1e-6
    assert moved.tolist() == [False] * 5 + [True] * 4 + [False] * 3


def test_a_score_is_read_at_the_last_id():
    config = dataclasses.replace(CONFIG, labels=2, qkv_bias=False)
    params, tokens = random_params(config), random_tokens(2, 9)
    assert "head" not in params
    hidden = whole(config, params, tokens)
    expected = np.stack([hidden[0, 3], hidden[1, 8]]) @ params["score"]["kernel"]
    scores = bind(config, params).scores(jnp.asarray(hidden), jnp.asarray([3, 8]))
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    with pytest.raises(ValueError, match="has no scores"):
        bind(CONFIG, random_params(CONFIG)).scores(jnp.asarray(hidden), jnp.asarray([3, 8]))


def test_kinds_decide_which_weights_there_are():
    layer = abstract_params(WINDOWED)["layers"][0]
    assert {"attention_post_norm", "mlp_post_norm"} <= layer.keys()
    assert {"query_norm", "key_norm"} <= layer["attention"].keys()
    assert abstract_params(CONFIG)["layers"][0].keys() == {"attention_norm", "attention", "mlp_norm", "mlp"}
    assert "bias" in abstract_params(CONFIG)["layers"][0]["attention"]["query"]
    plain = abstract_params(dataclasses.replace(CONFIG, qkv_bias=False, tied_embedding=True))
    assert "head" not in plain
    assert "bias" not in plain["layers"][0]["attention"]["query"]


def test_bfloat16_is_kept_throughout():
    config = dataclasses.replace(CONFIG, dtype="bfloat16", layers=1)
    initialized = initialize(config, 0)
    assert {leaf.dtype for leaf in jax.tree.leaves(initialized)} == {jnp.dtype("bfloat16")}
    tokens = jnp.zeros((1, 3), jnp.int32)
    model = jax.jit(lambda p, cache: bind(config, p).extend(tokens, jnp.zeros(1, jnp.int32), cache))
    hidden, cache = model(initialized, empty_cache(config, 1, 4))
    assert {hidden.dtype, *(leaf.dtype for leaf in jax.tree.leaves(cache))} == {jnp.dtype("bfloat16")}
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(cache)) == 4 * config.cache_bytes_per_position


def test_shapes_axes_and_drawn_weights_agree():
    config = dataclasses.replace(CONFIG, layers=1)
    abstract = abstract_params(config)
    initialized, again, other = (initialize(config, seed) for seed in (3, 3, 4))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), abstract) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), initialized
    )
    axes = logical_axes(config)
    jax.tree.map(lambda leaf, names: pytest.fail(f"{names}") if leaf.ndim != len(names) else None, abstract, axes)
    pairs = [jax.tree.leaves(tree) for tree in (initialized, again, other)]
    assert all(np.array_equal(a, b) for a, b in zip(pairs[0], pairs[1], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(pairs[0], pairs[2], strict=True))


def test_bound_weights_do_not_leak_into_the_next_model(config, params):
    """`bind` shares one abstract model per config; filling it in must not change what it hands out next."""
    bind(config, params)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(abstract_params(config)))
