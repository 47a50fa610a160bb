"""Fusing policies: the average of their parameters."""

import functools
import math
from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Tree = TypeVar("Tree")
Leaf = np.ndarray | jax.Array


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
    _check_alike(params)

    def mean(*leaves: Leaf) -> Leaf:
        if all(isinstance(leaf, np.ndarray) for leaf in leaves):
            return _weighted_sum(leaves, shares)
        first = leaves[0]
        result: jax.Array = _fused_sum(leaves, shares)
        if isinstance(first, jax.core.Tracer) or not isinstance(first, jax.Array):
            return result
        return result if result.sharding == first.sharding else jax.device_put(result, first.sharding)

    fused: Tree = jax.tree.map(mean, *params)
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


def _check_alike(params: Sequence[object]) -> None:
    leaves = dict(jax.tree_util.tree_flatten_with_path(params[0])[0])
    structure: object = jax.tree.structure(params[0])
    for path, leaf in leaves.items():
        if not isinstance(leaf, np.ndarray | jax.Array) or not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(f"average: parameters are floating arrays, but {_name(path)} is {_kind(leaf)}")
    for number, tree in enumerate(params[1:], start=2):
        other_leaves = dict(jax.tree_util.tree_flatten_with_path(tree)[0])
        other_structure: object = jax.tree.structure(tree)
        for path in [*leaves, *other_leaves]:
            if path not in leaves or path not in other_leaves:
                owner, lacking = ("1", number) if path in leaves else (number, "1")
                raise ValueError(f"average: tree {owner} has a leaf {_name(path)}, tree {lacking} has none")
            if _kind(leaves[path]) != _kind(other_leaves[path]):
                raise ValueError(
                    f"average: {_name(path)} is {_kind(leaves[path])} in tree 1 but {_kind(other_leaves[path])} in"
                    f" tree {number}; only copies of one model can be averaged"
                )
        if structure != other_structure:
            raise ValueError(
                f"average: the leaves of trees 1 and {number} agree but their containers do not:"
                f" {structure} and {other_structure}"
            )


def _name(path: tuple[object, ...]) -> str:
    return jax.tree_util.keystr(path) or "(the tree itself)"


def _kind(leaf: object) -> str:
    """Dtype and shape, as shown in messages and compared."""
    if isinstance(leaf, np.ndarray | jax.Array):
        return f"{leaf.dtype}{list(leaf.shape)}"
    return f"{leaf!r} of type {type(leaf).__name__}"


def _weighted_sum(leaves: Sequence[Leaf], shares: tuple[float, ...]) -> Leaf:
    dtype = leaves[0].dtype
    wide = dtype if dtype.itemsize > 4 else jnp.float32
    total: Leaf = leaves[0].astype(wide) * np.asarray(shares[0], wide)
    for leaf, share in zip(leaves[1:], shares[1:], strict=True):
        total = total + leaf.astype(wide) * np.asarray(share, wide)
    # asarray: numpy turns arithmetic on arrays without axes into scalars.
    return total.astype(dtype) if isinstance(total, jax.Array) else np.asarray(total, dtype)


@functools.partial(jax.jit, static_argnums=1)
def _fused_sum(leaves: tuple[Leaf, ...], shares: tuple[float, ...]) -> jax.Array:
    """Compiled, so that one pass reads and writes each leaf and no wide copy of it is ever held."""
    return jnp.asarray(_weighted_sum(leaves, shares))
