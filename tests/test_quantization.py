"""Four-bit kernels against a search through the table in numpy, and against their own dequantized arrays."""

import dataclasses
import functools
import statistics

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from tiny_models import random_params, tiny

from dfc.errors import WeightsError
from dfc.models import huggingface, lora, quantization, sharding
from dfc.models.execution import Execution
from dfc.models.quantization import NF4, Nf4Kernel, quantize
from dfc.models.transformer import Adapters, abstract_params, bind, initialize, stack_layers, unstack_layers

P = PartitionSpec
CONFIG = tiny(vocabulary=48, width=128, head_dim=32, feed_forward=256)
LORA = lora.LoraConfig(rank=4, alpha=8.0, targets=("query", "output", "down"))
PARAMS = random_params(CONFIG, deviation=0.08)
QUANTIZED = quantization.quantize_params(PARAMS)
PLAIN = quantization.dequantize_params(QUANTIZED, jnp.float32)
TOKENS = jnp.asarray(np.random.default_rng(1).integers(0, CONFIG.vocabulary, (4, 8)), jnp.int32)
POSITIONS = jnp.tile(jnp.arange(8, dtype=jnp.int32), (4, 1))
SEGMENTS = jnp.ones((4, 8), jnp.int32)
_RNG = np.random.default_rng(2)
ADAPTERS = jax.tree.map(
    lambda leaf: jnp.asarray(0.1 * _RNG.standard_normal(leaf.shape), jnp.float32), lora.abstract_adapters(CONFIG, LORA)
)


def normal(*shape, seed=0, dtype=np.float32):
    return jnp.asarray(0.02 * np.random.default_rng(seed).standard_normal(shape), dtype)


def searched(kernel):
    """The nearest entry of the table for each weight of each block of 64, one output after another: codes, values."""
    kernel = np.asarray(kernel, np.float32)
    codes, values = np.zeros(kernel.shape, np.uint8), np.zeros(kernel.shape, np.float32)
    table = np.asarray(NF4, np.float32)
    for output in range(kernel.shape[1]):
        for start in range(0, kernel.shape[0], 64):
            block = kernel[start : start + 64, output]
            largest = np.abs(block).max()
            nearest = np.abs(block[:, None] / largest - table[None]).argmin(axis=1)
            codes[start : start + 64, output] = nearest
            values[start : start + 64, output] = table[nearest] * largest
    return codes, values


def relative_error(kernel, dtype=jnp.float32, **options):
    kept = quantize(kernel, **options).dequantize(dtype).astype(jnp.float32)
    plain = kernel.astype(jnp.float32)
    return float(jnp.sqrt(jnp.mean((kept - plain) ** 2) / jnp.mean(plain**2)))


@jax.jit
def hidden_and_slopes(params, adapters):
    """The final hidden states, and a gradient into every adapter."""

    def loss(adapters):
        hidden = bind(CONFIG, params, Adapters(adapters, LORA.scale))(TOKENS, POSITIONS, SEGMENTS)
        return jnp.mean(jnp.tanh(hidden) * jnp.linspace(-1.0, 1.0, 128)[None, None]), hidden

    (_, hidden), slopes = jax.value_and_grad(loss, has_aux=True)(adapters)
    return hidden, slopes


def test_the_table_holds_quantiles_of_a_normal():
    # Appendix E: 8 equal steps of probability below 1/2 and 9 above, from the half-way point between 1 - 1/32 and
    # 1 - 1/30 for the outermost, without the doubled zero; divided by the largest.
    outermost = ((1 - 1 / 32) + (1 - 1 / 30)) / 2
    quantile = statistics.NormalDist().inv_cdf
    above = [quantile(p) for p in np.linspace(outermost, 0.5, 9)[:-1]]
    below = [-quantile(p) for p in np.linspace(outermost, 0.5, 8)[:-1]]
    expected = np.sort(np.asarray([*above, 0.0, *below])) / max(above)
    np.testing.assert_allclose(NF4, expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_quantizing_equals_a_search_through_the_table(dtype):
    kernel = normal(192, 24, dtype=dtype)
    codes, values = searched(kernel)
    quantized = quantize(kernel)
    np.testing.assert_array_equal(np.asarray(quantized.codes), codes[0::2] * 16 + codes[1::2])
    np.testing.assert_array_equal(np.asarray(quantized.dequantize(jnp.float32)), values)


def test_every_entry_of_the_table_survives_at_its_place():
    kernel = np.tile(np.asarray(NF4, np.float32), 4)[:, None] * np.asarray([[1.0, 0.5, 8.0]], np.float32)
    np.testing.assert_array_equal(quantize(jnp.asarray(kernel)).dequantize(jnp.float32), kernel)


def test_a_block_of_zeros_stays_zeros():
    quantized = quantize(normal(128, 3).at[64:, 1].set(0.0))
    assert bool(jnp.all(quantized.codes[32:, 1] == 7 * 16 + 7))  # entry 7 of the table is 0
    kept = quantized.dequantize(jnp.float32)
    assert bool(jnp.all(kept[64:, 1] == 0))
    assert bool(jnp.all(jnp.isfinite(kept)))


def test_the_error_of_normal_weights_is_that_of_the_table():
    # Independently: the mean over normal weights of the squared distance to the nearest entry, for the scale of a
    # block of 64, drawn here.
    samples = np.random.default_rng(7).standard_normal((5_000, 64))
    scale = np.abs(samples).max(axis=1, keepdims=True)
    nearest = np.stack([np.abs(samples / scale - entry) for entry in NF4]).min(axis=0) * scale
    expected = np.sqrt((nearest**2).mean())
    found = relative_error(normal(1024, 256, seed=1))
    np.testing.assert_allclose(found, expected, rtol=0.01)
    assert 0.09 < found < 0.096
    # No weight is off by more than half of the widest gap of the table, between -1 and its neighbour.
    kernel = normal(256, 64)
    quantized = quantize(kernel)
    bound = np.repeat(np.asarray(quantized.scales), 64, axis=0) * (NF4[1] - NF4[0]) / 2
    assert np.all(np.abs(np.asarray(kernel - quantized.dequantize(jnp.float32))) <= bound * (1 + 1e-6))


def test_bfloat16_scales_cost_little_and_save_a_quarter_bit():
    kernel = normal(1024, 256)
    assert relative_error(kernel, scale_dtype=jnp.bfloat16) < 1.01 * relative_error(kernel)
    quantized = quantize(kernel, scale_dtype=jnp.bfloat16)
    assert quantized.scales.dtype == jnp.bfloat16
    assert 8 * sum(leaf.nbytes for leaf in jax.tree.leaves(quantized)) / kernel.size == 4.25


def test_the_result_is_rounded_once_to_the_dtype_asked_for():
    quantized = quantize(normal(128, 32))
    exact = np.asarray(quantized.dequantize(jnp.float32))
    half = quantized.dequantize(jnp.bfloat16)
    assert half.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(half), exact.astype(jnp.bfloat16))


def test_leading_axes_are_quantized_one_by_one():
    kernels = normal(3, 2, 128, 16)
    together = quantize(kernels)
    assert together.shape == (3, 2, 128, 16)
    assert together.ndim == 4
    for layer in range(3):
        for part in range(2):
            alone = quantize(kernels[layer, part])
            cut = jax.tree.map(lambda x, layer=layer, part=part: x[layer, part], together)
            jax.tree.map(np.testing.assert_array_equal, cut, alone)
            np.testing.assert_array_equal(cut.dequantize(jnp.float32), together.dequantize(jnp.float32)[layer, part])


def test_it_dequantizes_alike_inside_every_transformation():
    quantized = quantize(normal(3, 128, 16))
    expected = np.asarray(quantized.dequantize(jnp.float32))

    def one(kernel):
        return kernel.dequantize(jnp.float32)

    np.testing.assert_array_equal(jax.jit(one)(quantized), expected)
    np.testing.assert_array_equal(jax.vmap(one)(quantized), expected)
    np.testing.assert_array_equal(jax.vmap(jax.checkpoint(one))(quantized), expected)
    np.testing.assert_array_equal(jax.lax.scan(lambda _, kernel: (None, one(kernel)), None, quantized)[1], expected)


def test_the_product_with_a_kernel_is_that_with_its_array():
    quantized, x = quantize(normal(128, 16)), normal(4, 5, 128, seed=3)
    plain = quantized.dequantize(jnp.float32)
    np.testing.assert_allclose(x @ quantized, x @ plain, atol=1e-7)
    of_four_bits = jax.grad(lambda x: jnp.sum(jnp.sin(x @ quantized)))(x)
    np.testing.assert_allclose(of_four_bits, jax.grad(lambda x: jnp.sum(jnp.sin(x @ plain)))(x), atol=1e-7)
    assert (x.astype(jnp.bfloat16) @ quantized).dtype == jnp.bfloat16


def test_the_product_keeps_four_bits_for_the_backward_pass():
    quantized, x = quantize(normal(8, 256, 256)), normal(1, 256, seed=3)

    def kept(multiply):
        _, backward = jax.vjp(lambda x: jax.lax.scan(lambda x, kernel: (multiply(x, kernel), None), x, quantized)[0], x)
        return sum(leaf.nbytes for leaf in jax.tree.leaves(backward))

    weights = 8 * 256 * 256
    assert kept(lambda x, kernel: x @ kernel) < 0.7 * weights  # 4.5 bits are 0.56 bytes
    assert kept(lambda x, kernel: x @ kernel.dequantize(x.dtype)) >= 4 * weights


@pytest.mark.parametrize("shape", [(65, 8), (100, 8), (2, 32, 8)])
def test_an_input_size_that_is_no_multiple_of_64_is_refused(shape):
    with pytest.raises(ValueError, match=rf"multiple of 64 .*got {shape[-2]} in shape"):
        quantize(normal(*shape))


def test_what_is_no_kernel_is_refused():
    with pytest.raises(ValueError, match=r"expected a floating kernel \[..., in, out\], got float32 \[64\]"):
        quantize(normal(64))
    with pytest.raises(ValueError, match=r"got int32 \[64, 2\]"):
        quantize(jnp.zeros((64, 2), jnp.int32))


def test_kernels_that_do_not_fit_are_named_all_together():
    odd = dataclasses.replace(CONFIG, feed_forward=100, layers=1)
    with pytest.raises(WeightsError) as caught:
        quantization.quantize_params(initialize(odd, 0))
    assert "layers/0/mlp/down/kernel: expected an input size that is a multiple of 64" in str(caught.value)
    assert "attention" not in str(caught.value)
    narrow = dataclasses.replace(CONFIG, width=96, layers=1)
    with pytest.raises(WeightsError) as caught:
        jax.eval_shape(quantization.quantize_params, abstract_params(narrow))
    named = {line.split(":")[0].strip(" -") for line in str(caught.value).splitlines()[1:]}
    assert named == {f"layers/0/{name}/kernel" for name in ("attention/query", "attention/key", "attention/value")} | {
        f"layers/0/mlp/{name}/kernel" for name in ("gate", "up")
    }


def test_projection_kernels_of_the_layers_are_quantized_and_nothing_else():
    found = {
        jax.tree_util.keystr(path, simple=True, separator="/"): isinstance(leaf, Nf4Kernel)
        for path, leaf in jax.tree.leaves_with_path(QUANTIZED, is_leaf=quantization.is_quantized)
    }
    kernels = {name for name in found if name.endswith("/kernel")}
    assert len(kernels) == 14
    assert {name for name, quantized in found.items() if quantized} == kernels
    assert {"embed/embedding", "head/embedding", "norm/scale", "layers/0/attention/query/bias"} < found.keys()
    assert QUANTIZED["embed"]["embedding"] is PARAMS["embed"]["embedding"]
    scored = quantization.quantize_params(initialize(dataclasses.replace(CONFIG, labels=3), 0))
    assert isinstance(scored["score"]["kernel"], jax.Array)


def test_both_layouts_are_quantized_alike():
    stacked = quantization.quantize_params(stack_layers(PARAMS))
    jax.tree.map(np.testing.assert_array_equal, unstack_layers(stacked), QUANTIZED)


def test_bits_per_weight_are_those_of_the_buffers():
    kernels = [
        leaf for leaf in jax.tree.leaves(QUANTIZED, is_leaf=quantization.is_quantized) if isinstance(leaf, Nf4Kernel)
    ]
    in_memory = sum(array.on_device_size_in_bytes() for array in jax.tree.leaves(kernels))
    # Per layer: query and output 128 x 128, key and value 128 x 64, three of 128 x 256.
    weights = 2 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 256)
    assert 8 * in_memory / weights == 4.5


@pytest.mark.parametrize("layout", [lambda tree: tree, jax.jit(stack_layers)], ids=["unrolled", "stacked"])
def test_adapters_over_four_bits_compute_and_learn_as_over_the_dequantized_base(layout):
    hidden, slopes = hidden_and_slopes(layout(QUANTIZED), layout(ADAPTERS))
    plain_hidden, plain_slopes = hidden_and_slopes(layout(PLAIN), layout(ADAPTERS))
    np.testing.assert_allclose(hidden, plain_hidden, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), slopes, plain_slopes)
    for path, leaf in jax.tree.leaves_with_path(slopes):
        assert float(jnp.max(jnp.abs(leaf))) > 1e-4, path
    full_precision, _ = hidden_and_slopes(layout(PARAMS), layout(ADAPTERS))
    assert float(jnp.max(jnp.abs(hidden - full_precision))) > 0.01


def test_merging_into_four_bits_is_merging_into_the_dequantized_base():
    adapters = lora.initialize_adapters(CONFIG, lora.LoraConfig(rank=4, targets=("query",)), 0)
    adapters = jax.tree.map(lambda leaf: leaf + 0.1, adapters)
    merged = lora.merge(QUANTIZED, adapters, 2.0, dtype=jnp.float32)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), merged, lora.merge(PLAIN, adapters, 2.0))
    half = lora.merge(QUANTIZED, adapters, 2.0, dtype=jnp.bfloat16)["layers"][0]
    assert half["attention"]["query"]["kernel"].dtype == half["mlp"]["up"]["kernel"].dtype == jnp.bfloat16


def test_codes_and_scales_are_split_as_the_kernel_between_blocks():
    found = quantization.quantized_shardings(CONFIG, sharding.make_mesh(2, 2, 2))["layers"][0]
    query, down = found["attention"]["query"]["kernel"], found["mlp"]["down"]["kernel"]
    assert query.codes.spec == query.scales.spec == P("fsdp", "tensor")
    assert down.codes.spec == down.scales.spec == P("tensor", "fsdp")
    # 128 inputs are two blocks; four devices would cut through them, and 256 inputs are four.
    found = quantization.quantized_shardings(CONFIG, sharding.make_mesh(1, 2, 4))["layers"][0]
    assert found["attention"]["output"]["kernel"].codes.spec == P(None, "fsdp")
    assert found["mlp"]["down"]["kernel"].codes.spec == P("tensor", "fsdp")
    assert found["attention_norm"]["scale"].spec == P(None)


def test_eight_devices_compute_what_one_does():
    mesh, single = sharding.make_mesh(2, 2, 2), dataclasses.replace(CONFIG, layers=1)
    params, adapters = ({**tree, "layers": {0: tree["layers"][0]}} for tree in (QUANTIZED, ADAPTERS))

    @functools.partial(jax.jit, static_argnames="execution")
    def run(params, adapters, tokens, execution):
        return bind(single, params, Adapters(adapters, LORA.scale), execution)(tokens, POSITIONS, SEGMENTS)

    placed = jax.device_put(params, quantization.quantized_shardings(single, mesh))
    codes = placed["layers"][0]["mlp"]["down"]["kernel"].codes
    assert codes.addressable_shards[0].data.shape == (64, 64)
    corrections = jax.device_put(adapters, lora.adapter_shardings(single, LORA, mesh))
    tokens = jax.device_put(TOKENS, sharding.batch_sharding(mesh))
    split = run(placed, corrections, tokens, Execution(mesh=mesh))
    np.testing.assert_allclose(split, run(params, adapters, TOKENS, Execution()), atol=1e-5)


def test_split_weights_are_quantized_where_they_lie():
    mesh, single = sharding.make_mesh(2, 2, 2), dataclasses.replace(CONFIG, layers=1)
    params = jax.device_put(initialize(single, 0), sharding.param_shardings(single, mesh))
    shardings = quantization.quantized_shardings(single, mesh)
    quantized = jax.jit(quantization.quantize_params, out_shardings=shardings)(params)
    jax.tree.map(np.testing.assert_array_equal, quantized, quantization.quantize_params(initialize(single, 0)))
    assert quantized["layers"][0]["mlp"]["up"]["kernel"].codes.sharding.spec == P("fsdp", "tensor")


@pytest.mark.parametrize("mesh", [None, sharding.make_mesh(1, 4, 2)], ids=["one device", "eight devices"])
def test_loading_in_four_bits_gives_what_quantizing_the_loaded_weights_gives(mesh, tmp_path):
    huggingface.save(tmp_path / "model", CONFIG, PARAMS, copy_from=None)
    _, found = huggingface.load(tmp_path / "model", mesh=mesh, dtype="float32", nf4=True)
    _, plain = huggingface.load(tmp_path / "model", dtype="float32")
    expected = quantization.quantize_params(plain)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, found), jax.tree.map(np.asarray, expected))
