"""Low-rank adapters against merged weights, single adapters, arithmetic by hand, and torch."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from tiny_models import random_params, tiny

from dfc.errors import ConfigError
from dfc.models import lora, sharding
from dfc.models.cache import empty_cache
from dfc.models.execution import Execution
from dfc.models.lora import ALL_LINEAR, QKVO, LoraConfig
from dfc.models.quantization import quantize_params
from dfc.models.transformer import (
    Adapters,
    Projection,
    bind,
    stack_layers,
    unstack_layers,
)

P = PartitionSpec
CONFIG = tiny(vocabulary=48, width=64, heads=8, kv_heads=4, head_dim=16, feed_forward=64, tied_embedding=True)
LORA = LoraConfig(rank=4, alpha=12.0, targets=ALL_LINEAR)
PARAMS = random_params(CONFIG, deviation=0.125)
TOKENS = jnp.asarray(np.random.default_rng(1).integers(0, CONFIG.vocabulary, (4, 10)), jnp.int32)
POSITIONS = jnp.tile(jnp.arange(10, dtype=jnp.int32), (4, 1))
SEGMENTS = jnp.ones((4, 10), jnp.int32)


def trained(seed, config=LORA):
    """Adapters of which b is not zero, so that they change something."""
    fresh = lora.initialize_adapters(CONFIG, config, seed)
    key = jax.random.key(seed + 100)

    def random_leaf(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        own = jax.random.fold_in(key, sum(name.encode()))
        return leaf if name.endswith("/a") else 0.05 * jax.random.normal(own, leaf.shape)

    return jax.tree.map_with_path(random_leaf, fresh)


@functools.partial(jax.jit, static_argnames="execution")
def hidden(params, adapters=None, execution=Execution(), tokens=TOKENS):  # noqa: B008 - frozen
    return bind(CONFIG, params, adapters, execution)(tokens, POSITIONS, SEGMENTS)


def names(tree):
    return {jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in jax.tree.leaves_with_path(tree)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 0}, "lora.rank: expected a whole number of at least 1, got 0"),
        ({"alpha": 0.0}, "lora.alpha: expected a number above 0, got 0.0"),
        ({"alpha": math.nan}, "lora.alpha: expected a number above 0, got nan"),
        ({"dropout": 1.0}, "lora.dropout: expected a number of at least 0 and below 1, got 1.0"),
        ({"targets": ()}, "lora.targets: expected at least one of query, key, value, output, gate, up, down, got none"),
        ({"targets": ("q_proj",)}, "lora.targets: 'q_proj' is no projection; allowed are query, key"),
        ({"targets": ("up", "up")}, "lora.targets: 'up' is listed more than once"),
    ],
)
def test_a_configuration_out_of_range_is_refused_with_its_name(changes, message):
    with pytest.raises(ConfigError) as caught:
        lora.abstract_adapters(CONFIG, LoraConfig(**changes))
    assert message in str(caught.value)
    assert len(caught.value.problems) == 1


def test_all_problems_of_a_configuration_are_reported_together():
    found = LoraConfig(rank=-1, alpha=-1.0, dropout=2.0, targets=("x",)).problems("train.lora")
    assert [problem.split(":")[0] for problem in found] == [
        "train.lora.rank",
        "train.lora.alpha",
        "train.lora.dropout",
        "train.lora.targets",
    ]
    assert LoraConfig().problems() == []
    assert LoraConfig(rank=16, alpha=32.0).scale == 2.0


def test_only_targets_have_adapters():
    tree = lora.abstract_adapters(CONFIG, LoraConfig(rank=4, targets=("value", "down")))
    assert names(tree) == {
        f"layers/{layer}/{place}/{matrix}"
        for layer in (0, 1)
        for place in ("attention/value", "mlp/down")
        for matrix in "ab"
    }
    attention_only = lora.initialize_adapters(CONFIG, LoraConfig(rank=4, targets=QKVO), 0)
    assert all("mlp" not in name for name in names(attention_only))


def test_shapes_and_count_are_those_of_arithmetic():
    # in, out of each projection: D = 64, N * H = 128, K * H = 64, F = 64.
    sizes = {
        "attention/query": (64, 128),
        "attention/key": (64, 64),
        "attention/value": (64, 64),
        "attention/output": (128, 64),
        "mlp/gate": (64, 64),
        "mlp/up": (64, 64),
        "mlp/down": (64, 64),
    }
    tree = lora.abstract_adapters(CONFIG, LORA)
    fresh = lora.initialize_adapters(CONFIG, LORA, 0)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), fresh) == jax.tree.map(lambda x: (x.shape, x.dtype), tree)
    for place, (rows, columns) in sizes.items():
        block, name = place.split("/")
        pair = fresh["layers"][1][block][name]
        assert pair["a"].shape == (rows, 4)
        assert pair["b"].shape == (4, columns)
        assert pair["a"].dtype == pair["b"].dtype == jnp.float32


def test_a_is_drawn_as_torch_draws_it():
    torch = pytest.importorskip("torch")
    wide = dataclasses.replace(CONFIG, width=256, feed_forward=1024, layers=1)
    ours = np.asarray(
        lora.initialize_adapters(wide, LoraConfig(rank=64, targets=("down",)), 3)["layers"][0]["mlp"]["down"]["a"]
    )
    theirs = torch.empty(64, 1024)
    torch.nn.init.kaiming_uniform_(theirs, a=math.sqrt(5), generator=torch.Generator().manual_seed(0))
    theirs = theirs.numpy().T
    quantiles = np.linspace(0, 1, 21)
    np.testing.assert_allclose(np.quantile(ours, quantiles), np.quantile(theirs, quantiles), atol=0.02 / 32)


def test_a_draw_depends_on_seed_layer_and_name_but_not_on_other_targets():
    everything = lora.initialize_adapters(CONFIG, LORA, 0)["layers"]
    alone = lora.initialize_adapters(CONFIG, LoraConfig(rank=4, targets=("up",)), 0)["layers"]
    np.testing.assert_array_equal(everything[1]["mlp"]["up"]["a"], alone[1]["mlp"]["up"]["a"])
    initialized = [
        np.asarray(everything[layer]["mlp"][name]["a"]) for layer in (0, 1) for name in ("gate", "up", "down")
    ]
    initialized.append(np.asarray(lora.initialize_adapters(CONFIG, LORA, 1)["layers"][0]["mlp"]["gate"]["a"]))
    assert len({array.tobytes() for array in initialized}) == len(initialized)


@pytest.mark.parametrize("layout", [lambda tree: tree, stack_layers], ids=["unrolled", "stacked"])
def test_a_fresh_adapter_changes_no_bit(layout):
    fresh = lora.initialize_adapters(CONFIG, LORA, 0)
    with_adapter = hidden(layout(PARAMS), Adapters(layout(fresh), LORA.scale))
    np.testing.assert_array_equal(with_adapter, hidden(layout(PARAMS)))


@pytest.mark.parametrize("targets", [QKVO, ALL_LINEAR, ("down",)], ids=["qkvo", "all", "down"])
def test_adapters_equal_merged_weights(targets):
    config = dataclasses.replace(LORA, targets=targets)
    adapters = trained(2, config)
    separate = hidden(PARAMS, Adapters(adapters, config.scale))
    np.testing.assert_allclose(separate, hidden(lora.merge(PARAMS, adapters, config.scale)), atol=1e-5)
    assert float(jnp.max(jnp.abs(separate - hidden(PARAMS)))) > 0.01


def test_decoding_with_adapters_equals_decoding_with_merged_weights():
    adapters = trained(2)

    def decode(params, adapters):
        model, cache = bind(CONFIG, params, adapters), empty_cache(CONFIG, 4, 12)
        start = jnp.zeros((4,), jnp.int32)
        first, cache = model.extend(TOKENS[:, :6], start, cache)
        second, _ = model.extend(TOKENS[:, 6:], start + 6, cache)
        return jnp.concatenate([first, second], axis=1)

    separate = jax.jit(decode)(PARAMS, Adapters(adapters, LORA.scale))
    merged = jax.jit(decode)(lora.merge(PARAMS, adapters, LORA.scale), None)
    np.testing.assert_allclose(separate, merged, atol=1e-5)


def test_merging_is_the_formula_and_leaves_all_else_alone():
    adapters = trained(2, LoraConfig(rank=4, targets=("query",)))
    merged = lora.merge(PARAMS, adapters, 3.0)
    kernel = np.asarray(PARAMS["layers"][1]["attention"]["query"]["kernel"], np.float64)
    pair = jax.tree.map(lambda x: np.asarray(x, np.float64), adapters["layers"][1]["attention"]["query"])
    np.testing.assert_allclose(
        merged["layers"][1]["attention"]["query"]["kernel"], kernel + 3.0 * pair["a"] @ pair["b"], atol=1e-6
    )
    changed = {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for (path, new), old in zip(jax.tree.leaves_with_path(merged), jax.tree.leaves(PARAMS), strict=True)
        if new is not old
    }
    assert changed == {f"layers/{layer}/attention/query/kernel" for layer in (0, 1)}


def test_merging_works_stacked():
    adapters = trained(2)
    unrolled = lora.merge(PARAMS, adapters, LORA.scale)
    stacked = lora.merge(stack_layers(PARAMS), stack_layers(adapters), LORA.scale)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), unstack_layers(stacked), unrolled)


def test_merging_rounds_once():
    # Around 1, bfloat16 has steps of 2^-7. 2^-8 + 2^-17 is just above half a step, so the sum rounds up; the change
    # rounded by itself would be 2^-8, a tie, and the sum would stay 1.
    place = {"layers": {0: {"mlp": {"up": {"kernel": jnp.ones((1, 1), jnp.bfloat16)}}}}}
    adapters = {"layers": {0: {"mlp": {"up": {"a": jnp.full((1, 1), 2.0**-8 + 2.0**-17), "b": jnp.ones((1, 1))}}}}}
    merged = lora.merge(place, adapters, 1.0)["layers"][0]["mlp"]["up"]["kernel"]
    assert merged.dtype == jnp.bfloat16
    assert float(merged[0, 0]) == 1.0 + 2.0**-7


def test_what_cannot_be_merged_is_refused():
    adapters = trained(2)
    several = lora.pool([adapters, adapters])
    with pytest.raises(
        ValueError, match=r"a \[2, 64, 4\].*the weights have \[64, 64\]; give one adapter \(not a pool\)"
    ):
        lora.merge(PARAMS, several, 1.0)
    with pytest.raises(ValueError, match="give one adapter"):
        lora.merge(stack_layers(PARAMS), stack_layers(several), 1.0)
    with pytest.raises(ValueError, match=r"the weights have none there; .* in the layout of the weights"):
        lora.merge(PARAMS, stack_layers(adapters), 1.0)
    with pytest.raises(ValueError, match="layers/0/attention/key/kernel is stored in nf4; give the dtype"):
        lora.merge(quantize_params(PARAMS), adapters, 1.0)


@pytest.mark.parametrize("layout", [lambda tree: tree, stack_layers], ids=["unrolled", "stacked"])
def test_each_row_of_a_pool_gets_what_its_adapter_gives_alone(layout):
    single = [trained(seed) for seed in (2, 3, 4)]
    rows = jnp.asarray([2, 0, 2, 1], jnp.int32)
    together = hidden(layout(PARAMS), Adapters(layout(lora.pool(single)), LORA.scale, rows=rows))
    for row, number in enumerate(rows.tolist()):
        alone = hidden(PARAMS, Adapters(single[number], LORA.scale))
        np.testing.assert_allclose(together[row], alone[row], atol=1e-5)
    assert float(jnp.max(jnp.abs(hidden(PARAMS, Adapters(single[0], LORA.scale))[0] - together[0]))) > 0.01


def test_pooling_and_stacking_commute():
    single = [trained(seed) for seed in (2, 3, 4)]
    first = stack_layers(lora.pool(single))
    second = lora.pool([stack_layers(one) for one in single])
    assert first["layers"]["mlp"]["up"]["a"].shape == (2, 3, 64, 4)
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_adapters_that_differ_are_not_pooled():
    one = trained(2)
    with pytest.raises(ValueError, match="got none"):
        lora.pool([])
    other = lora.initialize_adapters(CONFIG, LoraConfig(rank=2, targets=ALL_LINEAR), 0)
    with pytest.raises(
        ValueError, match=r"adapter 0 has float32\[64, 4\] at layers/0/.*, adapter 2 has float32\[64, 2\]"
    ):
        lora.pool([one, one, other])
    fewer = lora.initialize_adapters(CONFIG, LoraConfig(rank=4, targets=QKVO), 0)
    with pytest.raises(ValueError, match="adapter 1 has nothing"):
        lora.pool([one, fewer])


def test_stacked_adapters_equal_unrolled_ones():
    adapters = trained(2)
    unrolled = hidden(PARAMS, Adapters(adapters, LORA.scale))
    stacked = hidden(stack_layers(PARAMS), Adapters(stack_layers(adapters), LORA.scale))
    np.testing.assert_allclose(stacked, unrolled, atol=1e-5)


def test_dropout_without_a_key_is_off():
    adapters = trained(2)
    np.testing.assert_array_equal(
        hidden(PARAMS, Adapters(adapters, LORA.scale, dropout=0.5)), hidden(PARAMS, Adapters(adapters, LORA.scale))
    )


def test_dropout_depends_on_the_key_alone():
    adapters = trained(2, LoraConfig(rank=4, targets=("value", "down")))

    def with_key(seed, layout=lambda tree: tree):
        corrections = Adapters(layout(adapters), LORA.scale, key=jax.random.key(seed), dropout=0.5)
        return np.asarray(hidden(layout(PARAMS), corrections))

    np.testing.assert_array_equal(with_key(0), with_key(0))
    assert np.max(np.abs(with_key(0) - with_key(1))) > 0.01
    np.testing.assert_allclose(with_key(0), with_key(0, stack_layers), atol=1e-5)


def test_dropout_keeps_the_expectation():
    pair = trained(2)["layers"][0]["mlp"]["up"]
    x = jax.random.normal(jax.random.key(5), (1, 3, 64))

    def correction(key):
        projection = Projection(nnx.Rngs(0), (64, 64), ("embed", "mlp"), "float32")
        plain = projection(x)
        projection.adapter = nnx.data(Adapters(pair, LORA.scale, key=key, dropout=0.3))
        return projection(x) - plain

    samples = np.asarray(jax.vmap(correction)(jax.random.split(jax.random.key(6), 4000)))
    expected = LORA.scale * np.asarray(x) @ np.asarray(pair["a"]) @ np.asarray(pair["b"])
    error = samples.std(axis=0) / math.sqrt(4000)
    assert np.all(error > 0)
    assert np.max(np.abs(samples.mean(axis=0) - expected) / error) < 5  # 192 numbers, each within 5 standard errors


def loss(params, adapters):
    out = bind(CONFIG, params, Adapters(adapters, LORA.scale))(TOKENS, POSITIONS, SEGMENTS)
    return jnp.mean(jnp.tanh(out) * jnp.linspace(-1.0, 1.0, 64)[None, None])


value = jax.jit(loss)
slopes = jax.jit(jax.grad(loss, argnums=1))


def test_the_gradient_reaches_every_adapter_and_is_the_slope():
    adapters = trained(2)
    gradient = slopes(PARAMS, adapters)
    assert jax.tree.structure(gradient) == jax.tree.structure(adapters)
    for path, leaf in jax.tree.leaves_with_path(gradient):
        assert float(jnp.max(jnp.abs(leaf))) > 0, path
    direction = jax.tree.map(lambda x: jnp.sign(x) * 0.01, gradient)
    step = 0.05
    ahead, behind = (
        value(PARAMS, jax.tree.map(lambda x, d, s=sign: x + s * step * d, adapters, direction)) for sign in (1, -1)
    )
    slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: float(jnp.sum(g * d)), gradient, direction)))
    np.testing.assert_allclose((ahead - behind) / (2 * step), slope, rtol=1e-2)


def test_a_fresh_adapter_has_a_gradient_in_b_only():
    gradient = slopes(PARAMS, lora.initialize_adapters(CONFIG, LORA, 0))
    for path, leaf in jax.tree.leaves_with_path(gradient):
        assert bool(jnp.any(leaf != 0)) == (path[-1].key == "b"), path


def test_gradients_are_alike_in_both_layouts():
    adapters = trained(2)
    unrolled = slopes(PARAMS, adapters)
    stacked = unstack_layers(slopes(stack_layers(PARAMS), stack_layers(adapters)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), unrolled, stacked)


def test_training_adapters_computes_no_gradient_of_the_base():
    # No other product of this program has the shape of a query kernel's gradient, [64, 128].
    def query_sized(differentiated):
        program = jax.make_jaxpr(jax.grad(loss, argnums=differentiated))(PARAMS, trained(2))
        return sum(
            equation.primitive.name == "dot_general" and sorted(out.aval.shape) == [64, 128]
            for equation in program.jaxpr.eqns
            for out in equation.outvars
        )

    assert query_sized(0) > 0
    assert query_sized(1) == 0


def test_adapters_are_split_as_their_kernels():
    mesh = sharding.make_mesh(2, 2, 2)
    found = lora.adapter_shardings(CONFIG, LORA, mesh)["layers"][0]
    specs = jax.tree.map(lambda leaf: leaf.spec, found)
    assert specs["attention"]["query"] == {"a": P("fsdp", None), "b": P(None, "tensor")}
    assert specs["attention"]["output"] == {"a": P("tensor", None), "b": P(None, "fsdp")}
    assert specs["mlp"]["down"] == {"a": P("tensor", None), "b": P(None, "fsdp")}
    few_heads = lora.adapter_shardings(CONFIG, LORA, sharding.make_mesh(1, 1, 8))["layers"][0]["attention"]
    assert few_heads["query"]["b"].spec == P(None, "tensor")
    assert few_heads["key"]["b"].spec == P(None, None)  # four heads are not cut for eight devices


def test_eight_devices_compute_what_one_does():
    mesh = sharding.make_mesh(2, 2, 2)
    adapters = trained(2)
    expected = hidden(PARAMS, Adapters(adapters, LORA.scale))
    params = jax.device_put(PARAMS, sharding.param_shardings(CONFIG, mesh))
    placed = jax.device_put(adapters, lora.adapter_shardings(CONFIG, LORA, mesh))
    tokens = jax.device_put(TOKENS, sharding.batch_sharding(mesh))
    split = hidden(params, Adapters(placed, LORA.scale), Execution(mesh=mesh), tokens)
    np.testing.assert_allclose(split, expected, atol=1e-5)


def test_merged_weights_lie_where_the_weights_did():
    mesh = sharding.make_mesh(2, 2, 2)
    adapters, shardings = trained(2), sharding.param_shardings(CONFIG, mesh)
    placed = jax.device_put(adapters, lora.adapter_shardings(CONFIG, LORA, mesh))
    whole = jax.tree.map(lambda _: NamedSharding(mesh, P()), shardings)
    expected = lora.merge(PARAMS, adapters, LORA.scale)
    for places in (shardings, whole):
        params = jax.device_put(PARAMS, places)
        merged = lora.merge(params, placed, LORA.scale)
        assert jax.tree.map(lambda x: x.sharding, merged) == jax.tree.map(lambda x: x.sharding, params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), merged, expected)
