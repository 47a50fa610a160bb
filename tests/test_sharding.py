"""Where weights and batches go, against specifications written out by hand."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec
from tiny_models import tiny

from dfc.errors import ConfigError
from dfc.models import sharding
from dfc.models.transformer import abstract_params

P = PartitionSpec
CONFIG = tiny(vocabulary=64, width=16, head_dim=4, feed_forward=24)


def numbered(config):
    """Weights of which no two numbers of one array are equal."""
    return jax.tree.map(
        lambda leaf: np.arange(leaf.size, dtype=np.float32).reshape(leaf.shape), abstract_params(config)
    )


def specs(config, mesh, **rules):
    tree = sharding.param_shardings(config, mesh, dataclasses.replace(sharding.DEFAULT_RULES, **rules))
    return {"/".join(str(key.key) for key in path): leaf.spec for path, leaf in jax.tree.leaves_with_path(tree)}


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ((2, 2, 2), (2, 2, 2)),
        ((1, -1, 1), (1, 8, 1)),
        ((-1, 2, 2), (2, 2, 2)),
        ((1, 2, -1), (1, 2, 4)),
        ((8, 1, -1), (8, 1, 1)),
    ],
)
def test_minus_one_is_what_remains(sizes, shape):
    mesh = sharding.make_mesh(*sizes)
    assert tuple(mesh.shape.items()) == tuple(zip(("data", "fsdp", "tensor"), shape, strict=True))
    assert set(mesh.axis_types) == {AxisType.Auto}
    assert set(mesh.devices.flat) == set(jax.devices())


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            (2, 2, 1),
            "mesh.data=2, mesh.fsdp=2, mesh.tensor=1: the product is 4, but must be the number of devices, 8; for exam",
        ),
        ((4, 4, 1), "the product is 16, but must be the number of devices, 8"),
        ((3, -1, 1), "the fixed sizes multiply to 3, which must divide the 8 devices"),
        ((-1, -1, 1), "mesh.data and mesh.fsdp are all -1: only one axis can take what remains"),
        ((0, -1, 1), "mesh.data=0: must be at least 1, or -1"),
        ((1, -2, 1), "mesh.fsdp=-2: must be at least 1, or -1 for the devices that remain"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused(sizes, message):
    with pytest.raises(ConfigError) as caught:
        sharding.make_mesh(*sizes)
    assert message in str(caught.value)


def test_every_weight_is_split_as_written_here():
    found = specs(CONFIG, sharding.make_mesh(2, 2, 2))
    into, out, bias = P("fsdp", "tensor"), P("tensor", "fsdp"), P("tensor")
    layer = {
        "attention_norm/scale": P(None),
        "attention/query/kernel": into,
        "attention/query/bias": bias,
        "attention/key/kernel": into,
        "attention/key/bias": bias,
        "attention/value/kernel": into,
        "attention/value/bias": bias,
        "attention/output/kernel": out,
        "mlp_norm/scale": P(None),
        "mlp/gate/kernel": into,
        "mlp/up/kernel": into,
        "mlp/down/kernel": out,
    }
    expected = {f"layers/{i}/{name}": spec for i in (0, 1) for name, spec in layer.items()}
    expected |= {"embed/embedding": out, "head/embedding": out, "norm/scale": P(None)}
    assert found == expected


def test_each_device_holds_its_part_and_no_more():
    mesh = sharding.make_mesh(2, 2, 2)
    placed = jax.device_put(numbered(CONFIG), sharding.param_shardings(CONFIG, mesh))
    kernel = placed["layers"][0]["mlp"]["gate"]["kernel"]
    assert {shard.data.shape for shard in kernel.addressable_shards} == {(8, 12)}
    whole = np.asarray(kernel)
    for shard in kernel.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), whole[shard.index])


def test_what_an_axis_does_not_divide_is_replicated():
    odd = dataclasses.replace(CONFIG, vocabulary=63, feed_forward=26)
    found = specs(odd, sharding.make_mesh(1, 2, 4))
    assert found["embed/embedding"] == P(None, "fsdp")
    assert found["layers/0/mlp/up/kernel"] == P("fsdp", None)
    assert found["layers/0/mlp/down/kernel"] == P(None, "fsdp")
    jax.device_put(numbered(odd), sharding.param_shardings(odd, sharding.make_mesh(1, 2, 4)))


def test_a_head_is_never_cut():
    # K * H = 8 columns are divisible by 4, the 2 key heads are not; the 4 query heads are.
    found = specs(CONFIG, sharding.make_mesh(1, 2, 4))
    assert found["layers/0/attention/key/kernel"] == P("fsdp", None)
    assert found["layers/0/attention/value/bias"] == P(None)
    assert found["layers/0/attention/query/kernel"] == P("fsdp", "tensor")


def test_one_array_is_not_split_twice_over_one_axis():
    with pytest.raises(ValueError, match="use mesh axis 'fsdp' more than once"):
        specs(CONFIG, sharding.make_mesh(1, 2, 4), mlp="fsdp")


def test_rules_can_replicate_an_axis():
    found = specs(CONFIG, sharding.make_mesh(2, 2, 2), embed=None)
    assert found["layers/0/mlp/up/kernel"] == P(None, "tensor")


def test_shardings_have_the_shape_of_the_weights():
    for config in (CONFIG, dataclasses.replace(CONFIG, qkv_bias=False, tied_embedding=True)):
        shardings = sharding.param_shardings(config, sharding.make_mesh(1, -1, 1))
        assert jax.tree.structure(shardings) == jax.tree.structure(abstract_params(config))


def test_rows_of_a_batch_go_over_data_and_fsdp_devices():
    rows = jax.device_put(np.zeros((8, 5), np.int32), sharding.batch_sharding(sharding.make_mesh(2, 2, 2)))
    assert {shard.data.shape for shard in rows.addressable_shards} == {(2, 5)}
