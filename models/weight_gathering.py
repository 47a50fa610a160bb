"""Weights one by one, whole and in a file's layout, from either layout of parameters and from any number of hosts."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from dfc import multihost
from dfc.errors import WeightsError
from dfc.models.model_folders import listed
from dfc.models.safetensors_format import TensorToWrite
from dfc.models.transformer import Params, Path, by_path, is_stacked


@dataclasses.dataclass(frozen=True)
class Weight:
    """One weight: an array, or one layer of a stacked array; `layer` None means all of the array."""

    array: jax.Array | np.ndarray
    layer: int | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the weight."""
        return self.array.shape if self.layer is None else self.array.shape[1:]

    def to_write(self, name: str, dtype: np.dtype[Any], *, transpose: bool) -> TensorToWrite:
        """Returns the weight as an entry of a file, fetched when its turn comes."""
        shape = self.shape[::-1] if transpose else self.shape
        return TensorToWrite(name, dtype, shape, functools.partial(self.fetch, transpose=transpose, dtype=dtype))

    def fetch(self, *, transpose: bool, dtype: np.dtype[Any]) -> np.ndarray:
        """Returns the whole weight on the first host, rounded to `dtype`; an empty array on the others.

        Layer, rounding and transposing are a device's work, in a temporary array: a host copy of the weight
        itself would stay with it for as long as it lives. Where a host does not see all of the weight, it is gathered
        on the devices, and every host has to call this.
        """
        whole = replicated([self.array])
        layer = np.int32(0 if self.layer is None else self.layer)
        made = _as_stored(self.array, layer, stacked=self.layer is not None, transpose=transpose, dtype=dtype, to=whole)
        if not multihost.is_primary():
            return np.empty(0, dtype)
        return np.asarray(made if whole is None else made.addressable_data(0))


@functools.partial(jax.jit, static_argnames=("stacked", "transpose", "dtype", "to"))
def _as_stored(
    array: jax.Array,
    layer: jax.Array,
    *,
    stacked: bool,
    transpose: bool,
    dtype: np.dtype[Any],
    to: NamedSharding | None,
) -> jax.Array:
    if stacked:
        array = jax.lax.dynamic_index_in_dim(array, layer, keepdims=False)
    array = array.astype(dtype)
    array = array.T if transpose else array
    return constrained(array, to)


def replicated(tree: Any) -> NamedSharding | None:  # noqa: ANN401 - any pytree of arrays
    """Returns the sharding under which each device holds all of a result, or None if this host sees all of `tree`."""
    for leaf in jax.tree.leaves(tree):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, NamedSharding) and not sharding.is_fully_addressable:
            return NamedSharding(sharding.mesh, PartitionSpec())  # type: ignore[no-untyped-call]  # jax leaves it untyped
    return None


def constrained(array: jax.Array, to: NamedSharding | None) -> jax.Array:
    """Returns the array, inside jit, placed as `to` says; None leaves it to the compiler."""
    if to is None:
        return array
    placed: jax.Array = jax.lax.with_sharding_constraint(array, to)  # type: ignore[no-untyped-call]  # jax leaves it untyped
    return placed


def weights_by_path(params: Params, abstract: Params, what: str) -> dict[Path, Weight]:
    """Returns the weights, or adapters, of either layout by their path in the unrolled one.

    `abstract` has shapes and dtypes they must have, unrolled; `what` begins the message: what they do not fit.

    Raises:
      WeightsError: listing what is missing, extra or misshapen.
    """
    given, expected = _split_layers(params), by_path(abstract)
    problems = [f"{'/'.join(path)}: missing" for path in expected if path not in given]
    problems += [f"{'/'.join(path)}: not a weight of this decoder" for path in given if path not in expected]
    for path, weight in expected.items():
        came = given.get(path)
        if came is not None and (came.shape, came.array.dtype) != (weight.shape, weight.dtype):
            problems.append(
                f"{'/'.join(path)}: expected {weight.dtype} {list(weight.shape)}, "
                f"got {came.array.dtype} {list(came.shape)}"
            )
    if problems:
        raise WeightsError(f"{what}:{listed(problems)}")
    return given


def _split_layers(params: Params) -> dict[Path, Weight]:
    weights: dict[Path, Weight] = {}
    stacked = "layers" in params and is_stacked(params)
    for path, array in by_path(params).items():
        if stacked and path[0] == "layers":
            layers = range(array.shape[0] if array.ndim else 0)
            weights |= {("layers", str(layer), *path[1:]): Weight(array, layer) for layer in layers}
        else:
            weights[path] = Weight(array, None)
    return weights
