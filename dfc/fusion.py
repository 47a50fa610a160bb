"""Fusing policies: the average of their parameters, task arithmetic, and TIES merging.

`average` fuses policies as they are; the other two fuse what was learned on top of one common base, theta_i - base.

Adapters (LoRA) are factors a and b of such a difference, and none of these functions applied to the factors is that
function of the models. Their average is `average` of dfc.models.lora. For the others, merge each adapter into the
weights first (`merge` there) and fuse the models; the result is plain weights, whose difference has a higher rank.
Merge into float32 kernels: bfloat16 rounds away what is below half its step.
"""

import functools
import math
from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Tree = TypeVar("Tree")
Leaf = np.ndarray | jax.Array
_Pair = tuple[jax.Array, jax.Array]


def average(*params: Tree, weights: Sequence[float] | None = None) -> Tree:
    r"""Weighted mean of parameter trees, leaf by leaf.

    ::

        theta = sum_i w_i theta_i / sum_i w_i

    The sum is taken in float32 (float64 for float64 leaves) and cast back to the leaf's dtype. Works eagerly and under
    jit. A leaf that is a jax array outside jit keeps the sharding it has in the first tree; a leaf that is numpy in
    all trees stays numpy.

    Args:
      *params: one or more pytrees with the same structure; floating leaves of the same shape and dtype.
      weights: one number above 0 per tree, not necessarily summing to 1; None weighs all alike.

    Returns:
      A tree like the first one.

    Raises:
      ValueError: no tree; trees that differ in structure, shape or dtype; a leaf that is not floating (the message
        names its path); weights of another number or not above 0.

    Source: Divide-Fuse-Conquer (arXiv 2505.16401), section 3.2.2: theta^(k) = (theta^(k-1) + theta_k) / 2. Departure:
    other weights and more than two trees are possible.

    >>> fused = average({"w": np.asarray([1.0, 2.0])}, {"w": np.asarray([3.0, 6.0])})
    >>> fused["w"].tolist()
    [2.0, 4.0]
    """
    if not params:
        raise ValueError("average: needs at least one tree of parameters, got none")
    shares = _shares(len(params), weights)
    _check_alike("average", _numbered(params))

    def mean(*leaves: Leaf) -> Leaf:
        if _is_numpy(leaves):
            return _weighted_sum(leaves, shares)
        return _placed(_fused_sum(leaves, shares), leaves[0])

    fused: Tree = jax.tree.map(mean, *params)
    return fused


def task_arithmetic(base: Tree, *params: Tree, scale: float = 1.0, weights: Sequence[float] | None = None) -> Tree:
    r"""The base, moved by a weighted sum of task vectors, leaf by leaf.

    ::

        theta = base + scale * sum_i w_i (theta_i - base)

    Weights are taken as they are, not divided by their sum. With all of them 1 / n and scale 1 the result is
    `average` of `params` up to rounding; with the default 1 each it is the paper's sum, which moves n times as far, so
    that scale is usually below 1. A negative weight or scale unlearns what a tree learned.

    Arithmetic is done in float32 (float64 for float64 leaves) and cast back to the leaf's dtype. Works eagerly and
    under jit; another scale or other weights compile nothing new. A leaf that is a jax array outside jit keeps the
    sharding it has in the base; a leaf that is numpy in all trees stays numpy. For adapters see the head of this file.

    Args:
      base: a pytree with floating leaves, the parameters that all of `params` were trained from.
      *params: one or more pytrees like it, leaves of the same shape and dtype.
      scale: lambda, any finite number.
      weights: one finite number per tree of `params`; None weighs each 1.

    Returns:
      A tree like the base.

    Raises:
      ValueError: no tree besides the base; trees that differ in structure, shape or dtype; a leaf that is not floating
        (the message names its path); weights of another number; a weight or scale that is not finite.

    Source: Ilharco et al., Editing Models with Task Arithmetic (arXiv 2212.04089), section 2: task vectors are negated
    or added and applied with a scaling term. Departure: a weight for each task vector is possible.

    >>> base = {"w": np.asarray([1.0, 1.0])}
    >>> one, other = {"w": np.asarray([3.0, 1.0])}, {"w": np.asarray([1.0, 5.0])}
    >>> task_arithmetic(base, one, other, scale=0.5)["w"].tolist()
    [2.0, 3.0]
    """
    _check_based("task_arithmetic", base, params, scale)
    if weights is not None and len(weights) != len(params):
        raise ValueError(
            f"task_arithmetic: {len(params)} trees besides the base need {len(params)} weights, got {len(weights)}:"
            f" {list(weights)}"
        )
    if weights is not None and not all(math.isfinite(w) for w in weights):
        raise ValueError(f"task_arithmetic: weights must be finite numbers, got {list(weights)}")
    factors = [scale * w for w in ((1.0,) * len(params) if weights is None else weights)]

    def move(*leaves: Leaf) -> Leaf:
        wide = [np.asarray(factor, _wide(leaves[0])) for factor in factors]
        return _moved(leaves, wide) if _is_numpy(leaves) else _placed(_fused_move(leaves, wide), leaves[0])

    fused: Tree = jax.tree.map(move, base, *params)
    return fused


def ties(base: Tree, *params: Tree, density: float = 0.2, scale: float = 1.0) -> Tree:
    r"""TIES merging: trim every task vector, elect a sign for each parameter, average the vectors that have that sign.

    With d_i = theta_i - base and p one parameter::

        trim    t_i[p] = d_i[p] if |d_i[p]| is among the K largest of the whole of d_i, else 0
        elect   s[p]   = sign(sum_i t_i[p])
        merge   m[p]   = mean of the t_i[p] whose sign is s[p]; 0 if s[p] is 0
        theta          = base + scale * m

    K is density times the number of parameters, to the nearest whole number and at least 1. The threshold is that of
    the whole tree, not of each leaf, and exact: a bisection over the magnitudes that float32 has, each step of which
    counts on every shard how many reach the trial. So the base and each tree are read 31 times (63 with float64
    leaves), only counts travel between devices, and no layout changes the result.

    - Magnitudes equal to the K-th largest are all kept, so more than K may stay.
    - Parameters that a tree did not change count among those that K is a share of. Where fewer than K changed, all
      changes stay.
    - Where the trimmed values sum to exactly 0, in float32 and in the order of the trees, the base stays as it is.
    - NaN counts as the largest magnitude and makes the result NaN there.

    Arithmetic is done in float32 (float64 for float64 leaves) and cast back to the leaf's dtype. Works eagerly and
    under jit. A leaf that is a jax array outside jit keeps the sharding it has in the base; a leaf that is numpy in
    all trees stays numpy. For adapters see the head of this file.

    Args:
      base: a pytree with floating leaves, the parameters that all of `params` were trained from.
      *params: one or more pytrees like it, leaves of the same shape and dtype.
      density: share of each task vector that is kept, above 0 and at most 1.
      scale: lambda, any finite number.

    Returns:
      A tree like the base.

    Raises:
      ValueError: no tree besides the base; trees that differ in structure, shape or dtype; a leaf that is not floating
        (the message names its path); density outside (0, 1]; scale that is not finite.

    Source: Yadav et al., TIES-Merging: Resolving Interference When Merging Models (arXiv 2306.01708), algorithm 1.
    Departures from the authors' code: it keeps one value more, and gives parameters whose sum is 0 the sign that most
    others have.

    >>> base = {"w": np.asarray([0.0, 0.0, 0.0])}
    >>> one, other = {"w": np.asarray([4.0, 3.0, 1.0])}, {"w": np.asarray([2.0, -5.0, 1.0])}
    >>> ties(base, one, other, density=2 / 3)["w"].tolist()
    [3.0, -5.0, 0.0]
    """
    _check_based("ties", base, params, scale)
    if not 0 < density <= 1:
        raise ValueError(f"ties: density must be above 0 and at most 1, got {density}")
    leaves = [jax.tree.leaves(tree) for tree in (base, *params)]
    traced = _is_traced([leaf for tree in leaves for leaf in tree])
    if traced:  # then so are the thresholds, and numpy leaves cannot be compared with them in numpy
        base, *params = jax.tree.map(jnp.asarray, [base, *params])
        leaves = [jax.tree.leaves(tree) for tree in (base, *params)]
    number = sum(math.prod(leaf.shape) for leaf in leaves[0])
    keep = min(max(round(density * number), 1), number)
    search = _traced_threshold if traced else _threshold
    thresholds = [search(list(zip(leaves[0], tree, strict=True)), keep) for tree in leaves[1:]]

    def merge(*leaves: Leaf) -> Leaf:
        wide = _wide(leaves[0])
        bounds, factor = [threshold.astype(wide) for threshold in thresholds], np.asarray(scale, wide)
        if _is_numpy(leaves):
            return _merged(leaves, bounds, factor)
        return _placed(_fused_merge(leaves, bounds, factor), leaves[0])

    fused: Tree = jax.tree.map(merge, base, *params)
    return fused


def _shares(number: int, weights: Sequence[float] | None) -> tuple[float, ...]:
    if weights is None:
        return (1 / number,) * number
    if len(weights) != number:
        raise ValueError(f"average: {number} trees need {number} weights, got {len(weights)}: {list(weights)}")
    if not all(w > 0 and math.isfinite(w) for w in weights):
        raise ValueError(
            f"average: weights must be above 0, got {list(weights)}; leave a tree out instead of weighing it 0"
        )
    return tuple(w / math.fsum(weights) for w in weights)


def _numbered(params: Sequence[object]) -> dict[str, object]:
    return {f"tree {number}": tree for number, tree in enumerate(params, start=1)}


def _check_based(caller: str, base: object, params: Sequence[object], scale: float) -> None:
    if not params:
        raise ValueError(f"{caller}: needs at least one tree of parameters besides the base, got none")
    if not math.isfinite(scale):
        raise ValueError(f"{caller}: scale must be a finite number, got {scale}")
    _check_alike(caller, {"the base": base, **_numbered(params)})


def _check_alike(caller: str, trees: dict[str, object]) -> None:
    (first, tree), *others = trees.items()
    leaves = dict(jax.tree_util.tree_flatten_with_path(tree)[0])
    structure: object = jax.tree.structure(tree)
    for path, leaf in leaves.items():
        if not isinstance(leaf, np.ndarray | jax.Array) or not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(f"{caller}: parameters are floating arrays, but {_name(path)} is {_kind(leaf)}")
    for other, other_tree in others:
        other_leaves = dict(jax.tree_util.tree_flatten_with_path(other_tree)[0])
        other_structure: object = jax.tree.structure(other_tree)
        for path in [*leaves, *other_leaves]:
            if path not in leaves or path not in other_leaves:
                owner, lacking = (first, other) if path in leaves else (other, first)
                raise ValueError(f"{caller}: {owner} has a leaf {_name(path)}, {lacking} has none")
            if _kind(leaves[path]) != _kind(other_leaves[path]):
                raise ValueError(
                    f"{caller}: {_name(path)} is {_kind(leaves[path])} in {first} but {_kind(other_leaves[path])} in"
                    f" {other}; only copies of one model can be fused"
                )
        if structure != other_structure:
            raise ValueError(
                f"{caller}: the leaves of {first} and {other} agree but their containers do not:"
                f" {structure} and {other_structure}"
            )


def _name(path: tuple[object, ...]) -> str:
    return jax.tree_util.keystr(path) or "(the tree itself)"


def _kind(leaf: object) -> str:
    """Dtype and shape, as shown in messages and compared."""
    if isinstance(leaf, np.ndarray | jax.Array):
        return f"{leaf.dtype}{list(leaf.shape)}"
    return f"{leaf!r} of type {type(leaf).__name__}"


def _is_numpy(leaves: Sequence[Leaf]) -> bool:
    return all(isinstance(leaf, np.ndarray) for leaf in leaves)


def _wide(leaf: Leaf) -> np.dtype:
    return np.dtype(leaf.dtype if leaf.dtype.itemsize > 4 else np.float32)


def _narrow(total: Leaf, dtype: np.dtype) -> Leaf:
    # asarray: numpy turns arithmetic on arrays without axes into scalars.
    return total.astype(dtype) if isinstance(total, jax.Array) else np.asarray(total, dtype)


def _placed(result: jax.Array, first: Leaf) -> jax.Array:
    """Puts a result where the first tree has that leaf; under jit that is left to the compiler."""
    if isinstance(result, jax.core.Tracer) or not isinstance(first, jax.Array):
        return result
    return result if result.sharding == first.sharding else jax.device_put(result, first.sharding)


def _weighted_sum(leaves: Sequence[Leaf], shares: tuple[float, ...]) -> Leaf:
    wide = _wide(leaves[0])
    total: Leaf = leaves[0].astype(wide) * np.asarray(shares[0], wide)
    for leaf, share in zip(leaves[1:], shares[1:], strict=True):
        total = total + leaf.astype(wide) * np.asarray(share, wide)
    return _narrow(total, leaves[0].dtype)


@functools.partial(jax.jit, static_argnums=1)
def _fused_sum(leaves: tuple[Leaf, ...], shares: tuple[float, ...]) -> jax.Array:
    """Compiled, so that one pass reads and writes each leaf and no wide copy of it is ever held."""
    return jnp.asarray(_weighted_sum(leaves, shares))


def _changes(leaves: Sequence[Leaf]) -> list[Leaf]:
    """theta_i - base; the base comes first."""
    wide = _wide(leaves[0])
    base = leaves[0].astype(wide)
    return [leaf.astype(wide) - base for leaf in leaves[1:]]


def _moved(leaves: Sequence[Leaf], factors: Sequence[Leaf]) -> Leaf:
    total: Leaf = leaves[0].astype(_wide(leaves[0]))
    for change, factor in zip(_changes(leaves), factors, strict=True):
        total = total + factor * change
    return _narrow(total, leaves[0].dtype)


def _reached(change: Leaf, bound: Leaf) -> Leaf:
    """Which changes are kept: those of at least this magnitude, and NaN."""
    return ~((change < bound) & (change > -bound))


def _merged(leaves: Sequence[Leaf], bounds: Sequence[Leaf], factor: Leaf) -> Leaf:
    sign, where = (np.sign, np.where) if _is_numpy(leaves) else (jnp.sign, jnp.where)
    zero = np.zeros((), _wide(leaves[0]))
    trimmed = [
        where(_reached(change, bound), change, zero) for change, bound in zip(_changes(leaves), bounds, strict=True)
    ]
    elected = functools.reduce(lambda one, other: one + other, trimmed)
    total, number = zero, zero
    for change in trimmed:
        agrees = sign(change) == sign(elected)
        total = total + where(agrees, change, zero)
        number = number + agrees.astype(zero.dtype)
    mean = total / where(number > 0, number, np.ones_like(zero))
    # NaN has no sign in common with others and must not vanish for that.
    merged = where(elected == elected, mean, elected)  # noqa: PLR0124 - false for NaN alone, in numpy as in jax
    return _narrow(leaves[0].astype(zero.dtype) + factor * merged, leaves[0].dtype)


@jax.jit
def _fused_move(leaves: Sequence[Leaf], factors: Sequence[Leaf]) -> jax.Array:
    return jnp.asarray(_moved(leaves, factors))


@jax.jit
def _fused_merge(leaves: Sequence[Leaf], bounds: Sequence[Leaf], factor: Leaf) -> jax.Array:
    return jnp.asarray(_merged(leaves, bounds, factor))


def _is_traced(leaves: Sequence[Leaf]) -> bool:
    if _is_numpy(leaves):
        return False
    # Under jit also what is computed from concrete arrays is traced.
    return any(isinstance(leaf, jax.core.Tracer) for leaf in (*leaves, jnp.zeros(())))


def _threshold(pairs: Sequence[tuple[Leaf, Leaf]], keep: int) -> np.ndarray:
    """Returns the `keep`-th largest magnitude of the changes of pairs (base, tree), an array without axes.

    Bit patterns of floating numbers above 0, read as whole numbers, are in the order of the numbers: the bisection is
    over these. At least `keep` magnitudes reach `low`, fewer reach `high` (or it is beyond infinity).
    """
    wide, whole, end = _patterns(pairs)
    low, high = 0, end
    while high - low > 1:
        middle = (low + high) // 2
        enough = _total(pairs, np.asarray(middle, whole).view(wide)) >= keep
        low, high = (middle, high) if enough else (low, middle)
    return np.asarray(low, whole).view(wide)


def _traced_threshold(pairs: Sequence[tuple[Leaf, Leaf]], keep: int) -> jax.Array:
    """Returns what `_threshold` does, as one loop of a compiled program."""
    wide, whole, end = _patterns(pairs)

    def halve(_: int, ends: _Pair) -> _Pair:
        low, high = ends
        middle = low + (high - low) // np.asarray(2, whole)
        # Without the barrier the compiler takes theta - base out of the loop and holds it, wide, for all leaves.
        middle, held = jax.lax.optimization_barrier((middle, pairs))  # type: ignore[no-untyped-call]  # jax leaves it untyped
        bound = jax.lax.bitcast_convert_type(middle, wide)
        total = functools.reduce(_add, [_count(one, other, bound.astype(_wide(one))) for one, other in held])
        enough = _is_at_least(total, keep)
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    ends = jax.lax.fori_loop(0, end.bit_length(), halve, (jnp.asarray(0, whole), jnp.asarray(end, whole)))
    return jax.lax.bitcast_convert_type(ends[0], wide)


def _patterns(pairs: Sequence[tuple[Leaf, Leaf]]) -> tuple[np.dtype, np.dtype, int]:
    """Returns the dtype that magnitudes are compared in, that of its bit patterns, and the first one past infinity."""
    wide = np.dtype(np.float64 if any(_wide(base).itemsize > 4 for base, _ in pairs) else np.float32)
    whole = np.dtype(f"uint{8 * wide.itemsize}")
    return wide, whole, int(np.asarray(np.inf, wide).view(whole)) + 1


def _total(pairs: Sequence[tuple[Leaf, Leaf]], bound: np.ndarray) -> int:
    numbers, counts = 0, []
    for pair in pairs:
        cast = bound.astype(_wide(pair[0]))
        if _is_numpy(pair):
            numbers += int(np.count_nonzero(_reached(_changes(pair)[0], cast)))
        else:
            counts.append(_count(*pair, cast))
    # Read only now, so that all leaves are counted before the first is waited for.
    return numbers + sum((int(high) << 32) + int(low) for high, low in counts)


@jax.jit
def _count(base: Leaf, leaf: Leaf, bound: Leaf) -> _Pair:
    """Returns how many changes of a leaf reach the bound, as its upper and lower 32 bits.

    A leaf of stacked layers can have more than 2^32 parameters, and jax has by default no wider whole numbers.
    """
    return _sum(_reached(_changes((base, leaf))[0], bound).astype(jnp.uint32))


def _sum(numbers: Leaf) -> _Pair:
    zero = np.zeros((), np.uint32)
    total: _Pair = jax.lax.reduce((jnp.zeros_like(numbers), numbers), (zero, zero), _add, tuple(range(numbers.ndim)))
    return total


def _add(one: _Pair, other: _Pair) -> _Pair:
    low = one[1] + other[1]
    return one[0] + other[0] + (low < one[1]).astype(jnp.uint32), low


def _is_at_least(total: _Pair, number: int) -> jax.Array:
    high, low = np.asarray(number >> 32, np.uint32), np.asarray(number & 0xFFFFFFFF, np.uint32)
    return (total[0] > high) | ((total[0] == high) & (total[1] >= low))
