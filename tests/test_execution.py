"""Ways to compute one decoder give one result: layouts, attention programs, rematerialisation, devices."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import random_params, tiny

from dfc.models import transformer
from dfc.models.attention import AttentionSpec, causal_attention, choose
from dfc.models.config import LinearRope
from dfc.models.execution import Execution
from dfc.models.sharding import make_mesh
from dfc.models.transformer import Adapters, bind, is_stacked, stack_layers, unstack_layers

PLAIN = tiny(vocabulary=64, layers=3)
MIXED = dataclasses.replace(
    PLAIN,
    qkv_bias=False,
    tied_embedding=True,
    qk_norm=True,
    unit_offset_norm=True,
    sandwich_norms=True,
    rope_scaling=LinearRope(8.0),
    sliding_window=5,
    windowed_layers=(True, False, True),
    local_rope_theta=1e3,
)
CONFIGS = {
    "plain": PLAIN,
    "windowed": dataclasses.replace(PLAIN, sliding_window=5),
    "mixed": MIXED,
}


params_of = functools.cache(functools.partial(random_params, deviation=0.2))


def batch(length, rows=8):
    rng = np.random.default_rng(1)
    segments = np.sort(rng.integers(1, 4, (rows, length)), axis=1).astype(np.int32)
    segments[:, -3:] = 0
    changes = np.diff(segments, axis=1, prepend=-1) != 0
    begins = np.maximum.accumulate(np.where(changes, np.arange(length), 0), axis=1)
    tokens = rng.integers(0, 64, (rows, length)).astype(np.int32)
    return tokens, (np.arange(length) - begins).astype(np.int32), segments


def value_and_gradient(config, params, execution, length=24):
    tokens, positions, segments = batch(length)

    @jax.jit
    def run(params):
        def objective(weights):
            hidden = bind(config, weights, None, execution)(tokens, positions, segments)
            return jnp.sum(jnp.where((segments > 0)[..., None], jnp.sin(hidden), 0)), hidden

        return jax.value_and_grad(objective, has_aux=True)(params)

    (_, hidden), gradients = run(params)
    return hidden, gradients


def assert_same(found, expected, tolerance):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        scale = np.abs(b).max() + 1e-6
        np.testing.assert_allclose(np.asarray(a) / scale, np.asarray(b) / scale, atol=tolerance, rtol=0)


def test_stacking_and_unstacking_are_inverse():
    params = params_of(PLAIN)
    stacked = stack_layers(params)
    assert is_stacked(stacked)
    assert not is_stacked(params)
    assert stacked["layers"]["mlp"]["up"]["kernel"].shape == (3, 32, 48)
    back = unstack_layers(stacked)
    assert jax.tree.structure(back) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, back, params)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("remat", ["none", "dots", "layer", "offload"])
def test_stacked_layers_in_one_scan_equal_unrolled_ones_whatever_is_kept(config, remat):
    params = params_of(config)
    hidden, gradients = value_and_gradient(config, params, Execution())
    found, stacked = value_and_gradient(config, stack_layers(params), Execution(remat=remat))
    assert_same(found, hidden, 1e-5)
    assert_same(unstack_layers(stacked), gradients, 1e-5)


def test_unrolled_layers_can_be_computed_again_too():
    hidden, gradients = value_and_gradient(MIXED, params_of(MIXED), Execution())
    assert_same(value_and_gradient(MIXED, params_of(MIXED), Execution(remat="layer")), (hidden, gradients), 1e-5)


def test_a_layer_computed_again_keeps_less():
    """One input per layer instead of everything a layer made."""

    def temporaries(remat):
        params = stack_layers(params_of(dataclasses.replace(PLAIN, layers=8)))
        tokens, positions, segments = batch(256)

        def objective(weights):
            model = bind(dataclasses.replace(PLAIN, layers=8), weights, None, Execution(remat=remat))
            return jnp.sum(model(tokens, positions, segments))

        return jax.jit(jax.grad(objective)).lower(params).compile().memory_analysis().temp_size_in_bytes

    assert temporaries("layer") < temporaries("dots") < temporaries("none")


def attention_oracle(query, key, value, segments, spec):
    rows, heads, length, dim = query.shape
    key, value = (np.repeat(x, heads // x.shape[1], axis=1).astype(np.float64) for x in (key, value))
    out = np.zeros((rows, heads, length, dim))
    for b in range(rows):
        for i in range(length):
            seen = [
                j
                for j in range(i + 1)
                if segments[b, i] == segments[b, j] and (spec.window is None or i - j < spec.window)
            ]
            for n in range(heads):
                logits = key[b, n, seen] @ query[b, n, i].astype(np.float64) * spec.scale
                if spec.soft_cap is not None:
                    logits = spec.soft_cap * np.tanh(logits / spec.soft_cap)
                weights = np.exp(logits - logits.max())
                out[b, n, i] = weights @ value[b, n, seen] / weights.sum()
    return out


def attention_inputs(rows, length, dim=16):
    rng = np.random.default_rng(2)
    query = rng.normal(size=(rows, 4, length, dim)).astype(np.float32)
    key, value = (rng.normal(size=(rows, 2, length, dim)).astype(np.float32) for _ in range(2))
    return query, key, value, batch(length, rows)[2]


SPECS = [
    AttentionSpec(0.25),
    AttentionSpec(0.3, window=9),
    AttentionSpec(0.5, window=9, soft_cap=2.0),
]


@pytest.mark.parametrize("spec", SPECS, ids=["causal", "window", "window and cap"])
@pytest.mark.parametrize("program", ["xla", "splash"])
def test_attention_programs_equal_a_loop_over_positions(program, spec):
    inputs = attention_inputs(2, 128)
    found = jax.jit(lambda *x: causal_attention(*x, spec, Execution(attention=program)))(*inputs)
    np.testing.assert_allclose(found, attention_oracle(*inputs, spec), atol=2e-5)


@pytest.mark.parametrize(("bands", "chunk"), [(16, 512), (2, 48)], ids=["bands", "bands in chunks"])
@pytest.mark.parametrize("spec", SPECS, ids=["causal", "window", "window and cap"])
def test_queries_in_bands_equal_all_at_once(spec, bands, chunk, monkeypatch):
    inputs = attention_inputs(1, 300)

    def value_and_gradients():
        def total(*x):
            return jnp.sum(jnp.sin(causal_attention(*x, inputs[3], spec, Execution(attention="xla"))))

        return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))(*inputs[:3])

    expected = value_and_gradients()
    monkeypatch.setattr("dfc.models.attention._WHOLE", 64)
    monkeypatch.setattr("dfc.models.attention._BAND", 32)
    monkeypatch.setattr("dfc.models.attention._MOST_BANDS", bands)
    monkeypatch.setattr("dfc.models.attention._CHUNK", chunk)
    assert_same(value_and_gradients(), expected, 1e-5)


def test_splash_gradients_equal_those_of_xla():
    inputs = attention_inputs(1, 128)
    spec = AttentionSpec(0.25, window=40)

    def gradients(program):
        def total(*x):
            return jnp.sum(jnp.sin(causal_attention(*x, inputs[3], spec, Execution(attention=program))))

        return jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*inputs[:3])

    assert_same(gradients("splash"), gradients("xla"), 1e-4)


def test_splash_over_a_mesh_equals_one_device():
    inputs = attention_inputs(4, 128)
    spec = AttentionSpec(0.25)
    mesh = make_mesh(2, 2, 2)
    found = jax.jit(lambda *x: causal_attention(*x, spec, Execution(attention="splash", mesh=mesh)))(*inputs)
    assert len(found.sharding.device_set) == 8
    np.testing.assert_allclose(found, attention_oracle(*inputs, spec), atol=2e-5)


class Device:
    def __init__(self, platform, compute_capability):
        self.platform, self.compute_capability = platform, compute_capability


class FakeMesh:
    """Only what choosing looks at."""

    def __init__(self, platform, capability="9.0", tensor=1):
        self.devices = np.array([Device(platform, capability)])
        self.shape = {"tensor": tensor}


@pytest.mark.parametrize(
    ("mesh", "dtype", "length", "dim", "cap", "expected"),
    [
        (FakeMesh("cpu"), "float32", 256, 64, None, "xla"),
        (FakeMesh("tpu"), "bfloat16", 256, 64, None, "splash"),
        (FakeMesh("tpu"), "bfloat16", 200, 64, None, "xla"),
        (FakeMesh("gpu"), "bfloat16", 200, 64, None, "cudnn"),
        (FakeMesh("cuda"), "bfloat16", 200, 256, None, "cudnn"),
        (FakeMesh("cuda", "8.0"), "bfloat16", 200, 256, None, "xla"),
        (FakeMesh("cuda"), "bfloat16", 200, 64, 30.0, "xla"),
        (FakeMesh("cuda"), "float32", 200, 64, None, "xla"),
        (FakeMesh("cuda"), "bfloat16", 200, 60, None, "xla"),
        (FakeMesh("cuda"), "bfloat16", 201, 64, None, "xla"),
        (FakeMesh("cuda", tensor=2), "bfloat16", 200, 64, None, "cudnn"),
        (FakeMesh("cuda", tensor=4), "bfloat16", 200, 64, None, "xla"),
    ],
)
def test_auto_chooses_by_platform_and_shape(mesh, dtype, length, dim, cap, expected):
    query = jax.ShapeDtypeStruct((2, 4, length, dim), jnp.dtype(dtype))
    assert choose(Execution(mesh=mesh), AttentionSpec(1.0, soft_cap=cap), query, 2) == expected
    assert choose(Execution(attention="xla", mesh=mesh), AttentionSpec(1.0), query, 2) == "xla"


def test_splash_refuses_lengths_its_tiles_do_not_divide():
    with pytest.raises(ValueError, match="multiple of 128"):
        causal_attention(*attention_inputs(1, 100), AttentionSpec(1.0), Execution(attention="splash"))


def test_a_norm_gathers_no_activations_from_other_devices():
    """Rows over two devices, positions over two: its gradient needs sums over devices, and nothing whole."""
    mesh = make_mesh(1, 2, 2, devices=jax.devices()[:4])
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("fsdp", "tensor", None))
    x = jax.ShapeDtypeStruct((4, 64, 32), jnp.float32, sharding=place)
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    scale = jax.ShapeDtypeStruct((1, 1, 32), jnp.float32, sharding=whole)

    def total(x, scale):
        return jnp.sum(jnp.sin(transformer._rescaled(x, scale)))

    text = jax.jit(jax.grad(total, argnums=(0, 1))).lower(x, scale).compile().as_text()
    assert "all-reduce" in text
    assert "all-gather" not in text


def test_adapters_in_another_layout_than_the_weights_are_refused():
    adapters = Adapters({"layers": {0: {"mlp": {"up": {}}}}}, 1.0)
    with pytest.raises(ValueError, match="stack_layers"):
        bind(PLAIN, stack_layers(params_of(PLAIN)), adapters)
