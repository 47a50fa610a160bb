"""Weights where an engine's programs compute with them: moved from where training left them, once."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dfc.inference.programs import EngineWeights
from dfc.models import quantization
from dfc.models.config import DecoderConfig
from dfc.models.sharding import param_shardings

_Tree = Any  # a pytree of arrays
_LAYERS = "layers"


class ResidentWeights:
    """Trees of weights as they were given, and those of them that had to be moved.

    Trees placed as the rules of the mesh require are used as they are. Others are moved by one program for all
    layers, from one split of the same devices to another. A tree that several policies share is moved once.
    """

    def __init__(self, config: DecoderConfig, mesh: Mesh | None) -> None:
        """Moves nothing yet; `mesh` is the engine's, None: one device, where weights are used as they are given."""
        self._config, self._mesh = config, mesh
        # What was given, its copy or itself, and the arrays it had.
        self._moved: list[tuple[_Tree, _Tree, list[jax.Array]]] = []
        self._programs: dict[tuple[NamedSharding, ...], Callable[[list[jax.Array]], list[jax.Array]]] = {}

    def of(self, weights: EngineWeights) -> EngineWeights:
        """Returns weights where the programs expect them; with several hosts all of them have to come here."""
        if self._mesh is None:
            return weights
        params = self._resident(weights.params, self._param_places)
        given = weights.adapters
        if given is None:
            return EngineWeights(params, None)
        moved = self._resident(given.weights, self._adapter_places)
        return EngineWeights(params, dataclasses.replace(given, weights=moved))

    def places(self, weights: EngineWeights) -> EngineWeights:
        """Returns where the programs expect weights, in their shape; there has to be a mesh."""
        given = weights.adapters
        placed = None if given is None else dataclasses.replace(given, weights=self._adapter_places(given.weights))
        return EngineWeights(self._param_places(weights.params), placed)

    def program(self, places: Sequence[NamedSharding]) -> Callable[[list[jax.Array]], list[jax.Array]]:
        """Returns the program that moves a list of arrays, each to its place."""
        key = tuple(places)
        if key not in self._programs:
            self._programs[key] = jax.jit(lambda arrays: arrays, out_shardings=list(key))
        return self._programs[key]

    def keep(self, weights: Iterable[EngineWeights]) -> None:
        """Frees the copies of all other weights, and of trees whose arrays have changed since."""
        live = [tree for each in weights for tree in (each.params, each.adapters and each.adapters.weights)]
        self._moved = [
            (given, copy, arrays)
            for given, copy, arrays in self._moved
            if any(given is tree for tree in live) and all(map(operator.is_, jax.tree.leaves(given), arrays))
        ]

    def _resident(self, tree: _Tree, rule: Callable[[_Tree], _Tree]) -> _Tree:
        found = next((copy for given, copy, _ in self._moved if given is tree), None)
        if found is not None:
            return found
        paths, structure = jax.tree.flatten_with_path(tree)
        given, places = [x for _, x in paths], jax.tree.leaves(rule(tree))
        leaves = list(given)
        # A layer at a time: together, all layers would be gathered at once, which few devices have room for.
        groups: dict[int, list[int]] = {}
        for number, ((path, x), place) in enumerate(zip(paths, places, strict=True)):
            if not _lies(x, place):
                groups.setdefault(path[1].key if path[0].key == _LAYERS else -1, []).append(number)
        for numbers in groups.values():
            moved = self._move([leaves[number] for number in numbers], [places[number] for number in numbers])
            for number, x in zip(numbers, moved, strict=True):
                leaves[number] = x
        copy = jax.tree.unflatten(structure, leaves) if groups else tree
        self._moved.append(
            (tree, copy, given)
        )  # recorded without a copy too: checking every leaf at every call takes long
        return copy

    def _move(self, arrays: list[jax.Array], places: list[NamedSharding]) -> list[jax.Array]:
        assert self._mesh is not None  # noqa: S101 - asked for with one only
        devices = list(self._mesh.devices.flat)
        given = [getattr(x, "sharding", None) for x in arrays]
        alike = all(isinstance(place, NamedSharding) and list(place.mesh.devices.flat) == devices for place in given)
        if not alike:  # from the host, from one device, or between meshes that name their devices in another order
            found: list[jax.Array] = jax.device_put(arrays, places)
            return found
        return self.program(places)(arrays)

    def _param_places(self, params: _Tree) -> _Tree:
        assert self._mesh is not None  # noqa: S101 - asked for with one only
        quantized = any(map(quantization.is_quantized, jax.tree.leaves(params, is_leaf=quantization.is_quantized)))
        rule = quantization.quantized_shardings if quantized else param_shardings
        return rule(self._config, self._mesh)

    def _adapter_places(self, weights: _Tree) -> _Tree:
        """Returns the places of adapters: the side of the model is split as its kernel's, the rank is whole."""
        assert self._mesh is not None  # noqa: S101 - asked for with one only
        mesh, kernels = self._mesh, param_shardings(self._config, self._mesh)

        def place(path: tuple[Any, ...], x: jax.Array) -> NamedSharding:
            *projection, matrix = (part.key for part in path)
            kernel = functools.reduce(lambda tree, key: tree[key], projection, kernels)["kernel"]
            rows, columns = kernel.spec
            spec = (rows, None) if matrix == "a" else (None, columns)
            pooled = (None,) * (x.ndim - 2)
            return NamedSharding(mesh, PartitionSpec(*pooled, *spec))  # type: ignore[no-untyped-call]  # jax leaves it untyped

        return jax.tree.map_with_path(place, weights)


def place_beside(params: _Tree) -> jax.sharding.Sharding | None:
    """Returns where programs on weights of one device leave their other results; None: no place, as on the host."""
    place = getattr(jax.tree.leaves(params)[0], "sharding", None)
    if isinstance(place, NamedSharding):
        return NamedSharding(place.mesh, PartitionSpec())  # type: ignore[no-untyped-call]  # jax leaves it untyped
    return place


def _lies(x: jax.Array, place: NamedSharding) -> bool:
    """Whether an array is where it is expected."""
    sharding = getattr(x, "sharding", None)
    return sharding is not None and sharding.is_equivalent_to(place, x.ndim)
