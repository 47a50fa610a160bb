"""Placement of arrays: a mesh of devices and the rules from logical axis names to its axes.

Weights name their axes by meaning (`dfc.models.transformer.logical_axes`); `Rules` says over which mesh axis each is
split. GSPMD inserts the collectives: the mesh's axes are of type Auto, and the same program runs on one device.
"""

import dataclasses
from collections.abc import Sequence

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from dfc.config import MeshConfig
from dfc.models.config import DecoderConfig
from dfc.models.transformer import Params, abstract_params, logical_axes

AXES = ("data", "fsdp", "tensor")


@dataclasses.dataclass(frozen=True)
class Rules:
    """The mesh axis each logical axis is split over; None replicates it.

    Attributes:
      vocab: V, rows of the embedding and of the output projection.
      embed: D, the model width.
      heads: N * H, query heads.
      kv_heads: K * H, key and value heads.
      mlp: F, the feed-forward width.
      labels: scores of a sequence.
    """

    vocab: str | None = "tensor"
    embed: str | None = "fsdp"
    heads: str | None = "tensor"
    kv_heads: str | None = "tensor"
    mlp: str | None = "tensor"
    labels: str | None = None


DEFAULT_RULES = Rules()


def make_mesh(data: int, fsdp: int, tensor: int, *, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Returns a mesh with axes ``data``, ``fsdp`` and ``tensor`` over all devices of all hosts.

    `data` counts copies of the model that share a batch, `fsdp` devices over which weights and a batch are split,
    `tensor` devices over which heads and feed-forward columns are split; `devices` None takes all.

    Raises:
      ConfigError: the sizes are wrong, or do not fit the number of devices (`dfc.config.MeshConfig.shape`).
    """
    devices = jax.devices() if devices is None else devices
    shape = MeshConfig(data, fsdp, tensor).shape(len(devices))
    return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices)


def partition_spec(
    axes: tuple[str | None, ...], units: tuple[int, ...], mesh: Mesh, rules: Rules = DEFAULT_RULES
) -> PartitionSpec:
    """Returns how one array is split.

    `axes` has the logical name of each dimension, or None, `units` how many parts each may be cut into without cutting
    through a unit (a head is one), `rules` which mesh axis each name stands for.

    Returns:
      One mesh axis or None per dimension; a dimension whose units the axis's size does not divide is replicated.

    Raises:
      ValueError: if two dimensions of the array name the same mesh axis; one array cannot be split twice over it.
    """
    places = [None if name is None else getattr(rules, name) for name in axes]
    used = [place for place in places if place is not None]
    twice = sorted({place for place in used if used.count(place) > 1})
    if twice:
        raise ValueError(
            f"logical axes {axes} use mesh axis {', '.join(map(repr, twice))} more than once under {rules}; "
            "give one of them another mesh axis or None"
        )
    fitting = [
        place if place is not None and count % mesh.shape[place] == 0 else None
        for place, count in zip(places, units, strict=True)
    ]
    return PartitionSpec(*fitting)  # type: ignore[no-untyped-call]  # jax leaves it untyped


def on_one_device(tree: Params) -> Params:
    """Returns, in the shape of a tree, the sharding that puts every array whole on the first local device."""
    place = SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(lambda _: place, tree)


def param_shardings(config: DecoderConfig, mesh: Mesh, rules: Rules = DEFAULT_RULES) -> Params:
    """Returns the sharding of every weight, in the shape of the weights.

    A dimension that a mesh axis does not divide evenly is replicated over that axis. Heads are split whole: with two
    key/value heads on four tensor devices, keys and values are replicated there while queries may be split.

    Raises:
      ValueError: if the rules split one array twice over the same mesh axis.
    """
    whole_heads = {"heads": config.heads, "kv_heads": config.kv_heads}

    def sharding(weight: jax.ShapeDtypeStruct, axes: tuple[str | None, ...]) -> NamedSharding:
        units = tuple(whole_heads.get(name or "", size) for name, size in zip(axes, weight.shape, strict=True))
        return NamedSharding(mesh, partition_spec(axes, units, mesh, rules))

    return jax.tree.map(sharding, abstract_params(config), logical_axes(config))


def stacked_shardings(unrolled: Params) -> Params:
    """Returns the shardings of stacked weights or adapters from those of unrolled ones; the layer axis is whole."""

    def stacked(place: NamedSharding) -> NamedSharding:
        return NamedSharding(place.mesh, PartitionSpec(None, *place.spec))  # type: ignore[no-untyped-call]  # jax leaves it untyped

    return {**unrolled, "layers": jax.tree.map(stacked, unrolled["layers"][0])}


def vocabulary_shards(config: DecoderConfig, mesh: Mesh | None, rules: Rules = DEFAULT_RULES) -> int:
    """Returns over how many devices the vocabulary axis of the output projection is split."""
    if mesh is None or rules.vocab is None:
        return 1
    count: int = mesh.shape[rules.vocab]
    return count if config.vocabulary % count == 0 else 1


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of a batch: rows over data and fsdp devices, everything else whole."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))  # type: ignore[no-untyped-call]  # jax leaves it untyped
