"""Task arithmetic and TIES against brute force in numpy and against PEFT; identities, dtypes, layouts."""

import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from dfc import fusion
from dfc.fusion import average, task_arithmetic, ties

both_kinds = pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
every_dtype = pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (np.asarray, np.float32),
        (jnp.asarray, np.float32),
        (np.asarray, ml_dtypes.bfloat16),
        (jnp.asarray, ml_dtypes.bfloat16),
        (np.asarray, np.float64),
    ],
)
EPSILON = {"float32": 2e-6, "bfloat16": 2**-8, "float64": 1e-12}


def tree(seed, kind=np.asarray, dtype=np.float32):
    """Three leaves of 128, 3 and 1 parameters, of very different size."""
    rng = np.random.default_rng(seed)
    return {
        "layers": [
            {"w": kind(rng.normal(size=(8, 16)).astype(dtype))},
            {"w": kind((3 * rng.normal(size=(3,))).astype(dtype))},
        ],
        "scale": kind(rng.normal(size=()).astype(dtype)),
    }


def flat(parameters, dtype=np.float64):
    return np.concatenate([np.asarray(leaf, dtype).ravel() for leaf in jax.tree.leaves(parameters)])


def brute_force(base, trees, kept, scale=1.0):
    """TIES parameter by parameter, the `kept` largest changes of each tree found by sorting."""
    exact = np.float64 if np.asarray(jax.tree.leaves(base)[0]).dtype == np.float64 else np.float32
    start = flat(base, exact)
    changes = [flat(t, exact) - start for t in trees]
    bounds = [np.sort(np.abs(change))[-kept] for change in changes]
    result = []
    for place, value in enumerate(start):
        here = [c[place] if abs(c[place]) >= b else 0 for c, b in zip(changes, bounds, strict=True)]
        if sum(here) > 0:
            here = [x for x in here if x > 0]
        elif sum(here) < 0:
            here = [x for x in here if x < 0]
        else:
            here = [0]
        result.append(float(value) + scale * float(np.mean(here, dtype=np.float64)))
    return np.asarray(result)


def assert_close(ours, theirs, dtype=np.float32):
    epsilon = EPSILON[np.dtype(dtype).name]
    np.testing.assert_allclose(flat(ours), theirs, rtol=epsilon, atol=epsilon)


def kinds(parameters):
    return {(type(leaf), leaf.dtype) for leaf in jax.tree.leaves(parameters)}


# ---- task arithmetic -----------------------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize(
    ("weights", "scale"), [(None, 1.0), (None, 0.4), ((0.5, 2.0, -1.0), 1.0), ((1, 0, 3), -0.3), ((0.2, 0.3, 0.5), 0)]
)
def test_task_arithmetic_agrees_with_numpy(kind, dtype, weights, scale):
    base, *trees = (tree(seed, kind, dtype) for seed in range(4))
    ours = task_arithmetic(base, *trees, weights=weights, scale=scale)
    change = sum(w * (flat(t) - flat(base)) for w, t in zip(weights or (1, 1, 1), trees, strict=True))
    assert_close(ours, flat(base) + scale * change, dtype)
    assert kinds(ours) == kinds(base)


@every_dtype
def test_equal_shares_of_all_task_vectors_are_the_average(kind, dtype):
    base, *trees = (tree(seed, kind, dtype) for seed in range(4))
    ours = task_arithmetic(base, *trees, weights=[1 / 3] * 3)
    assert_close(ours, flat(average(*trees)), dtype)


@both_kinds
def test_one_task_vector_is_taken_whole_undone_or_left(kind):
    base, learned = {"w": kind(np.float32([1, 2, 3]))}, {"w": kind(np.float32([2, 0, 3]))}
    for scale, expected in ((1, [2, 0, 3]), (-1, [0, 4, 3]), (0, [1, 2, 3]), (0.5, [1.5, 1, 3])):
        assert task_arithmetic(base, learned, scale=scale)["w"].tolist() == expected


@both_kinds
def test_bfloat16_task_vectors_are_summed_in_float32_and_rounded_once(kind):
    # 256 + 8 * 1/2: each half alone would be lost beside 256, whose step is 2.
    base = {"w": kind(np.asarray([256.0, 0.5], ml_dtypes.bfloat16))}
    other = {"w": kind(np.asarray([260.0, 0.5], ml_dtypes.bfloat16))}
    assert task_arithmetic(base, *[other] * 8, weights=[1 / 8] * 8)["w"].tolist() == [260, 0.5]


def test_another_scale_compiles_nothing_anew():
    base, one = {"w": jnp.zeros(7)}, {"w": jnp.ones(7)}
    task_arithmetic(base, one, scale=0.25)
    compiled = fusion._fused_move._cache_size()
    for scale in (0.5, 0.75):
        assert task_arithmetic(base, one, scale=scale)["w"].tolist() == [scale] * 7
    assert fusion._fused_move._cache_size() == compiled


# ---- TIES ----------------------------------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize(("density", "kept"), [(0.001, 1), (0.05, 7), (0.2, 26), (0.5, 66), (1.0, 132)])
def test_ties_agrees_with_brute_force(kind, dtype, density, kept):
    base, *trees = (tree(seed, kind, dtype) for seed in range(4))

    def fuse(*all_trees):
        return ties(*all_trees, density=density, scale=0.7)

    expected = brute_force(base, trees, kept, 0.7)
    ours = fuse(base, *trees)
    assert_close(ours, expected, dtype)
    assert kinds(ours) == kinds(base)
    if dtype != np.float64:  # which jit takes as float32
        compiled = jax.jit(fuse)(base, *trees)
        assert_close(compiled, expected, dtype)
        assert {leaf.dtype for leaf in jax.tree.leaves(compiled)} == {np.dtype(dtype)}


def test_ties_agrees_with_peft_where_the_model_is_one_matrix():
    import torch
    from peft.utils import merge_utils

    rng = np.random.default_rng(0)
    base, *trees = rng.normal(size=(4, 10, 20)).astype(np.float32)
    changes = [torch.from_numpy(t - base) for t in trees]
    theirs = base + merge_utils.ties(changes, torch.ones(3), density=0.25).numpy()
    ours = ties({"w": base}, *({"w": t} for t in trees), density=0.25)
    np.testing.assert_allclose(ours["w"], theirs, rtol=1e-5, atol=1e-6)


@both_kinds
@pytest.mark.parametrize("compiled", [False, True])
def test_trimming_looks_at_the_whole_tree(kind, compiled):
    base = {"large": kind(np.zeros(4, np.float32)), "small": kind(np.zeros(4, np.float32))}
    one = {"large": kind(np.float32([5, -6, 7, 8])), "small": kind(np.float32([1, -2, 3, 4]))}

    def fuse(*trees):
        return ties(*trees, density=0.5)

    fused = (jax.jit(fuse) if compiled else fuse)(base, one)
    assert fused["large"].tolist() == [5, -6, 7, 8]
    assert fused["small"].tolist() == [0, 0, 0, 0]


def moved(change, density, compiled=False):
    """How many of these changes of one tree stay."""

    def fuse(base, one):
        return ties(base, one, density=density)

    zeros = np.zeros_like(change)
    return int(np.count_nonzero((jax.jit(fuse) if compiled else fuse)({"w": zeros}, {"w": change})["w"]))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("change", "density", "stay"),
    [
        ([1, 2, -2, 2, 3], 0.4, 4),  # the second largest is one of three equal ones
        ([1, -1, 1, -1], 0.25, 4),
        ([0, 0, 0, 0, 0, 0, 0, 3, 1, 2], 0.2, 2),
        ([0, 0, 0, 0, 0, 0, 0, 3, 1, 2], 0.5, 3),  # fewer changed than may stay
        ([0, 0, 0], 0.5, 0),
        (range(1, 101), 0.07, 7),  # 0.07 * 100 is above 7 in floating point, 0.29 * 100 below 29
        (range(1, 101), 0.29, 29),
        (range(1, 11), 0.04, 1),  # never none
        (range(1, 11), 0.26, 3),
        (range(1, 11), 1, 10),
    ],
)
def test_how_many_changes_stay(change, density, stay, compiled):
    assert moved(np.asarray(change, np.float32), density, compiled) == stay


@both_kinds
def test_signs_are_elected_by_the_sum_and_only_who_agrees_is_averaged(kind):
    #                           sum:  4, -1,  0,  0, 6 of one
    changes = [[1.0, 1, 1, 0, 6], [5, 1, -1, 0, 0], [-2, -3, 0, 0, 0]]
    base = {"w": kind(np.full(5, 10, np.float32))}
    fused = ties(base, *({"w": kind(np.float32(c) + 10)} for c in changes), density=1)
    assert fused["w"].tolist() == [13, 7, 10, 10, 16]


def test_one_tree_untrimmed_is_that_tree_and_the_scale_stretches_the_change():
    base, one = ({"w": np.arange(12, dtype=np.float32) * factor} for factor in (1, 3))
    np.testing.assert_array_equal(ties(base, one, density=1)["w"], one["w"])
    np.testing.assert_array_equal(ties(base, one, one, density=1)["w"], one["w"])
    for scale in (-1, 0, 0.5, 2):
        np.testing.assert_array_equal(ties(base, one, density=1, scale=scale)["w"], base["w"] * (1 + 2 * scale))


def test_a_fifth_is_kept_unless_told_otherwise():
    base, *trees = (tree(seed) for seed in range(3))
    np.testing.assert_array_equal(flat(ties(base, *trees)), flat(ties(base, *trees, density=0.2, scale=1)))


@pytest.mark.parametrize("compiled", [False, True])
def test_magnitudes_are_told_apart_to_the_last_bit_and_over_the_whole_range(compiled):
    largest = np.finfo(np.float32).max
    below = [np.nextafter(x, np.float32(0)) for x in (np.float32(1), largest)]
    for order in ([below[0], 1], [1e-37, 2e-37], [below[1], largest], [largest, np.inf]):
        assert moved(np.asarray(order, np.float32), 0.5, compiled) == 1


def test_float64_magnitudes_are_told_apart_beyond_float32():
    assert moved(np.asarray([1.0, 1 + 2**-50]), 0.5) == 1
    base, one = {"w": np.asarray([1.0])}, {"w": np.asarray([1 + 2**-40])}
    assert ties(base, one)["w"][0] == 1 + 2**-40
    assert task_arithmetic(base, one, scale=0.5)["w"][0] == 1 + 2**-41
    with jax.enable_x64(True):  # noqa: FBT003 - jax's own signature
        changes = jnp.asarray([1.0, 1 + 2**-50, 0.5], jnp.float64)
        for fuse in (ties, jax.jit(ties)):
            fused = fuse({"w": jnp.zeros(3, jnp.float64)}, {"w": changes})["w"]
            assert fused.tolist() == [0, 1 + 2**-50, 0]


@both_kinds
@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_not_a_number_is_not_hidden(kind, compiled):
    base = {"w": kind(np.zeros(5, np.float32))}
    one, other = ({"w": kind(np.asarray(c, np.float32))} for c in ([np.nan, 3, 2, 1, 1], [1, 1, 2, 2, 3]))
    fused = (jax.jit(ties) if compiled else ties)(base, one, other)["w"]
    # One of five stays of each: the NaN here, the 3 there.
    np.testing.assert_array_equal(fused, [np.nan, 0, 0, 0, 3])


def test_counts_beyond_32_bits():
    high, low = fusion._sum(jnp.full((3, 3), 2**31 + 1, jnp.uint32))
    assert (int(high) << 32) + int(low) == 9 * (2**31 + 1)
    total = (np.uint32(4), np.uint32(7))
    assert [bool(fusion._is_at_least(total, (4 << 32) + n)) for n in (-1, 6, 7, 8, 1 << 32)] == [True] * 3 + [False] * 2


# ---- where leaves lie ----------------------------------------------------------------------------------------------

FUSE = {
    "task_arithmetic": lambda *trees: task_arithmetic(*trees, weights=(0.5, 2.0, -1.0), scale=0.3),
    "ties": lambda *trees: ties(*trees, density=0.3, scale=0.3),
}
both_methods = pytest.mark.parametrize("method", FUSE)


def sharded(values, spec):
    mesh = jax.make_mesh((4, 2), ("fsdp", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    return jax.device_put(values, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)))


def matrices(dtype=np.float32, shape=(8, 16)):
    rng = np.random.default_rng(1)
    return [{"w": rng.normal(size=shape).astype(dtype), "v": rng.normal(size=8).astype(dtype)} for _ in range(4)]


def laid_out(parameters, spec):
    return {"w": sharded(parameters["w"], spec), "v": sharded(parameters["v"], spec[:1])}


@both_methods
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "spec", [("fsdp", "tensor"), (None, ("fsdp", "tensor")), (("tensor", "fsdp"),), ("tensor",), ()], ids=str
)
def test_eight_devices_compute_what_one_does_and_shardings_are_kept(method, compiled, dtype, spec):
    values = matrices(dtype)
    trees = [laid_out(value, spec) for value in values]
    fused = (jax.jit(FUSE[method]) if compiled else FUSE[method])(*trees)
    assert_close(fused, flat(FUSE[method](*values)), dtype)
    for name, leaf in fused.items():
        assert leaf.sharding.is_equivalent_to(trees[0][name].sharding, leaf.ndim)
        assert compiled or leaf.sharding == trees[0][name].sharding


@both_methods
def test_trees_laid_out_otherwise_take_the_layout_of_the_base(method):
    values, specs = matrices(), [("fsdp",), (None, "tensor"), ("tensor", "fsdp"), ()]
    trees = [laid_out(value, spec) for value, spec in zip(values, specs, strict=True)]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        fused = FUSE[method](*(trees[i] for i in order))
        assert fused["w"].sharding == trees[order[0]]["w"].sharding
        assert_close(fused, flat(FUSE[method](*(values[i] for i in order))))


@both_methods
def test_numpy_and_jax_leaves_can_be_in_one_tree(method):
    values = [{**value, "f": value["v"].astype(np.float64)} for value in matrices()]
    mixed = [{**value, "w": sharded(value["w"], ("fsdp",))} for value in values]
    fused = FUSE[method](*mixed)
    assert_close(fused, flat(FUSE[method](*values)))
    assert isinstance(fused["w"], jax.Array)
    assert isinstance(fused["v"], np.ndarray)
    assert fused["f"].dtype == np.float64


@both_methods
@both_kinds
def test_any_of_the_trees_can_be_a_constant_under_jit(method, kind):
    trees = [jax.tree.map(kind, value) for value in matrices()]
    expected = flat(FUSE[method](*trees))
    for constant in range(5):
        fuse = jax.jit(lambda *others: FUSE[method](*trees[: len(trees) - len(others)], *others))
        assert_close(fuse(*trees[constant:]), expected)
    # A leaf that jit cannot hold as it is, beside one that it traces.
    wide = [{**tree, "f": np.asarray(tree["v"], np.float64)} for tree in trees]
    partly = jax.jit(lambda *ws: FUSE[method](*({**tree, "w": w} for tree, w in zip(wide, ws, strict=True))))
    assert_close(partly(*(tree["w"] for tree in trees)), flat(FUSE[method](*wide)))


@both_methods
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("spec", [("fsdp", "tensor"), (("tensor", "fsdp"),)], ids=str)
def test_no_leaf_is_held_wide_and_none_is_gathered(method, dtype, spec):
    trees = [laid_out(value, spec) for value in matrices(dtype, (512, 1024))]
    compiled = jax.jit(FUSE[method]).lower(*trees).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < trees[0]["w"].nbytes / 8 / 4
    moving = r" = \(?\w+\[([\d,]*)\]\S* (?:all-gather|all-reduce|all-to-all|collective-permute)"
    sizes = [np.prod([int(n) for n in found.split(",") if n]) for found in re.findall(moving, compiled.as_text())]
    assert max(sizes, default=0) <= 16
    assert (sizes != []) == (method == "ties")  # so that the search does find what there is


@both_methods
def test_outside_jit_too_nothing_but_the_result_is_held(method):
    leaf = jnp.zeros((1024, 1024), jnp.bfloat16)
    bound = np.zeros((), np.float32)
    if method == "ties":
        calls = [fusion._count.lower(leaf, leaf, bound), fusion._fused_merge.lower([leaf] * 4, [bound] * 3, bound)]
    else:
        calls = [fusion._fused_move.lower([leaf] * 4, [bound] * 3)]
    assert all(call.compile().memory_analysis().temp_size_in_bytes < leaf.nbytes / 4 for call in calls)


def test_a_tree_without_leaves_is_fused_to_itself():
    for fuse in FUSE.values():
        assert fuse(*[{"nothing": None}] * 4) == {"nothing": None}
    empty = {"w": np.zeros((0, 3), np.float32)}
    assert ties(empty, empty)["w"].shape == (0, 3)
