"""Parameter averaging against float64 arithmetic in numpy; dtypes, shardings and refusals."""

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


BASE = {"a": {"w": np.ones((2, 3), np.float32)}, "b": np.ones(2, np.float32)}


def changed(path, value):
    copy = {"a": dict(BASE["a"]), "b": BASE["b"]}
    if path == "b":
        copy["b"] = value
    else:
        copy["a"]["w"] = value
    return copy


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        ((), "at least one tree"),
        (
            (BASE, changed("w", np.ones((3, 2), np.float32))),
            r"\['a'\]\['w'\] is float32\[2, 3\] in tree 1 but float32\[3, 2\]",
        ),
        (
            (BASE, BASE, changed("b", np.ones(2, np.float64))),
            r"\['b'\] is float32\[2\] in tree 1 but float64\[2\] in tree 3",
        ),
        ((BASE, {"a": BASE["a"]}), r"tree 1 has a leaf \['b'\], tree 2 has none"),
        (({"a": BASE["a"]}, BASE), r"tree 2 has a leaf \['b'\], tree 1 has none"),
        ((changed("b", np.ones(2, np.int32)),) * 2, r"\['b'\] is int32\[2\]"),
        ((changed("b", 0.5),) * 2, r"\['b'\] is 0.5 of type float"),
        ((BASE, changed("b", 0.5)), r"\['b'\] is float32\[2\] in tree 1 but 0.5 of type float"),
        (([np.ones(1)], (np.ones(1),)), "containers do not"),
    ],
)
def test_trees_that_do_not_match_are_refused_with_the_leaf_and_both_values(trees, message):
    with pytest.raises(ValueError, match=message):
        average(*trees)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((1.0,), "2 trees need 2 weights, got 1"),
        ((1.0, 0.0), "above 0"),
        ((1.0, -1.0), "above 0"),
        ((1.0, np.nan), "above 0"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        average(BASE, BASE, weights=weights)
