"""Parameter averaging against float64 arithmetic in numpy; dtypes and shardings."""

import collections

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from dfc.fusion import average


def tree(seed, kind=np.asarray, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return {
        "layers": [
            {"w": kind(rng.normal(size=(8, 16)).astype(dtype))},
            {"w": kind(rng.normal(size=(3,)).astype(dtype))},
        ],
        "scale": kind(rng.normal(size=()).astype(dtype)),
    }


def numpy_average(trees, weights):
    weights = np.asarray(weights, np.float64) / np.sum(weights)
    return jax.tree.map(lambda *x: sum(w * np.asarray(a, np.float64) for w, a in zip(weights, x, strict=True)), *trees)


def assert_close(ours, theirs, rtol=1e-6):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=rtol, atol=1e-6), ours, theirs
    )


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
@pytest.mark.parametrize("weights", [None, (1.0, 1.0, 1.0), (0.5, 2.0, 7.5)])
def test_average_agrees_with_numpy(kind, weights):
    trees = [tree(seed, kind) for seed in range(3)]
    ours = average(*trees, weights=weights)
    assert_close(ours, numpy_average(trees, weights or (1, 1, 1)))
    assert {type(leaf) for leaf in jax.tree.leaves(ours)} == {type(leaf) for leaf in jax.tree.leaves(trees[0])}
    assert {leaf.dtype for leaf in jax.tree.leaves(ours)} == {np.dtype(np.float32)}


def test_two_policies_are_fused_half_and_half():
    fused = average({"w": np.asarray([1.0, -2.0])}, {"w": np.asarray([2.0, 4.0])})
    assert fused["w"].tolist() == [1.5, 1.0]


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_bfloat16_is_summed_in_float32_and_rounded_once(kind):
    # 32 + 7/8, rounded to 33. A running sum in bfloat16 would lose every 1/8 and stay at 32.
    values = [256.0, *[1.0] * 7]
    trees = [{"w": kind(np.asarray([v], ml_dtypes.bfloat16))} for v in values]
    fused = average(*trees)["w"]
    assert fused.dtype == ml_dtypes.bfloat16
    assert float(fused[0]) == 33


def test_float64_leaves_keep_their_precision():
    a, b = {"w": np.asarray([1.0])}, {"w": np.asarray([1.0 + 2**-40])}
    assert average(a, b)["w"][0] == 1.0 + 2**-41


def test_the_average_of_equal_policies_is_that_policy():
    for dtype in (np.float32, ml_dtypes.bfloat16):
        one = tree(0, jnp.asarray, dtype)
        jax.tree.map(np.testing.assert_array_equal, average(one, one), one)
        jax.tree.map(np.testing.assert_array_equal, average(one), one)


def test_fusing_one_by_one_equals_weights_that_halve():
    a, b, c = (tree(seed) for seed in range(3))
    assert_close(average(average(a, b), c), numpy_average((a, b, c), (1, 1, 2)))


def sharded(values, spec):
    mesh = jax.make_mesh((4, 2), ("fsdp", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    return jax.device_put(values, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)))


@pytest.mark.parametrize("compiled", [False, True])
def test_shardings_are_kept(compiled):
    trees = [{"w": sharded(tree(seed)["layers"][0]["w"], ("fsdp", "tensor"))} for seed in range(2)]
    fused = (jax.jit(average) if compiled else average)(*trees)
    assert fused["w"].sharding.is_equivalent_to(trees[0]["w"].sharding, 2)
    assert fused["w"].addressable_shards[0].data.shape == (2, 8)
    assert_close(fused, numpy_average(trees, (1, 1)))


def test_a_tree_laid_out_otherwise_takes_the_layout_of_the_first():
    values = [tree(seed)["layers"][0]["w"] for seed in range(2)]
    first, second = {"w": sharded(values[0], ("fsdp",))}, {"w": sharded(values[1], (None, "tensor"))}
    for one, other in ((first, second), (second, first)):
        fused = average(one, other)
        assert fused["w"].sharding == one["w"].sharding
        assert_close(fused, {"w": (np.asarray(values[0], np.float64) + values[1]) / 2})


def test_no_wide_copy_of_a_leaf_is_held():
    leaf = jnp.zeros((1024, 1024), jnp.bfloat16)
    compiled = jax.jit(average).lower({"w": leaf}, {"w": leaf}).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < leaf.nbytes
    # Outside jit, too, a leaf is a single compiled call rather than one per operation.
    assert len(jax.make_jaxpr(average)({"w": leaf}, {"w": leaf}).eqns) == 1


def test_any_container_is_returned_as_it_came():
    Params = collections.namedtuple("Params", ["w", "nothing"])  # noqa: PYI024 - a container without annotations
    fused = average(Params(np.ones(2), None), Params(np.zeros(2), None))
    assert isinstance(fused, Params)
    assert fused.nothing is None
    assert fused.w.tolist() == [0.5, 0.5]
