"""How weights and conversations are split over the devices while sampling, apart from how training splits them.

Training splits weights over all devices, since gradients and moments have to be stored. A decoding step is short:
what it sends costs more than what it reads. A copy of the weights within each host, split over its tensor devices,
sends two small sums per layer over the links inside the host and nothing between hosts.
"""

import dataclasses
import functools
import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh

from dfc import multihost
from dfc.config import MeshConfig
from dfc.models import quantization
from dfc.models.config import DecoderConfig
from dfc.models.execution import Platform
from dfc.models.sharding import AXES, param_shardings
from dfc.models.transformer import abstract_params

Sharding = Literal["training", "tensor", "replicated"]
SHARDINGS: tuple[Sharding, ...] = ("training", "tensor", "replicated")

SHARE = 0.55  # of a device's memory that weights and cache may take while sampling; training's state needs the rest

# Bytes of device memory that are read in the time of: a byte sent within a host, a byte sent further (makers' peaks of
# A100 and H100, v4 to v6e, rounded), and a collective of nothing (10 and 5 microseconds, assumed).
_COSTS = {"gpu": (8, 64, 30e6), "tpu": (5, 5, 15e6)}


@dataclasses.dataclass(frozen=True)
class DecodingMesh:
    """A split of the devices for sampling.

    Attributes:
      sharding: its name.
      sizes: of the mesh's axes.
      trained: of the mesh that training uses.
      reason: why it was chosen.
    """

    sharding: Sharding
    sizes: MeshConfig
    trained: MeshConfig
    reason: str

    def describe(self) -> str:
        """Returns it as text."""
        sizes = self.sizes
        return (
            f"sharding {self.sharding}, data {sizes.data} x fsdp {sizes.fsdp} x tensor {sizes.tensor} ({self.reason})"
        )


def sizes_of(sharding: Sharding, model: DecoderConfig, mesh: MeshConfig, of_a_host: int) -> MeshConfig:
    """Returns the axes' sizes of a way of splitting.

    ``training``: as they are. ``tensor``: a copy of the weights on as many devices of a host as divide the key/value
    heads, or the query heads where none does. ``replicated``: a copy on every device. `mesh` is of training, every size
    above 0; `of_a_host` counts devices of one host.
    """
    devices = mesh.data * mesh.fsdp * mesh.tensor
    if sharding == "training":
        return mesh
    tensor = 1
    if sharding == "tensor":
        of_a_host = math.gcd(of_a_host, devices)
        tensor = math.gcd(of_a_host, model.kv_heads)
        tensor = tensor if tensor > 1 else math.gcd(of_a_host, model.heads)
    return MeshConfig(devices // tensor, 1, tensor)


@functools.lru_cache(maxsize=256)
def weight_bytes(model: DecoderConfig, mesh: MeshConfig, *, nf4: bool = False) -> float:
    """Returns the bytes of a model's weights on one device of a mesh; `nf4`: kernels are held in four bits."""
    # All layers are alike; one is enough, and quick.
    one = dataclasses.replace(model, layers=1, windowed_layers=())
    sizes = dataclasses.astuple(mesh)
    devices = AbstractMesh(sizes, AXES, axis_types=(AxisType.Auto,) * len(AXES))
    shapes = abstract_params(one)
    # `quantized_shardings` asks of a mesh only what an abstract one knows.
    places = quantization.quantized_shardings(one, devices) if nf4 else param_shardings(one, devices)  # type: ignore[arg-type]
    shapes = jax.eval_shape(quantization.quantize_params, shapes) if nf4 else shapes

    def total(key: str) -> float:
        shards = zip(jax.tree.leaves(shapes[key]), jax.tree.leaves(places[key]), strict=True)
        return float(sum(math.prod(place.shard_shape(x.shape)) * jnp.dtype(x.dtype).itemsize for x, place in shards))

    return sum(total(key) * (model.layers if key == "layers" else 1) for key in shapes)


def cache_bytes(model: DecoderConfig, mesh: MeshConfig, conversations: int, positions: int) -> float:
    """Returns the bytes on one device of the keys and values of all conversations, rounded up to equal shares."""
    held = math.ceil(conversations / (mesh.data * mesh.fsdp))
    heads = mesh.tensor if model.kv_heads % mesh.tensor == 0 else 1  # split whole or not at all
    return held * positions * model.cache_bytes_per_position / heads


def sent_bytes(model: DecoderConfig, mesh: MeshConfig, rows: int) -> float:
    """Returns the bytes that one device sends in one decoding step of `rows` rows of all devices.

    Of few rows the partitioner sends the activations. A product over the width, which fsdp devices share, is summed
    over them: queries, keys, values, the feed-forward's columns, logits. One over heads or columns, which tensor
    devices share, is summed over those. A sum among g devices sends 2 (g - 1) / g of its operand (a ring).
    """

    def split(size: int, devices: int) -> float:
        return size / (devices if size % devices == 0 else 1)

    fsdp, tensor = mesh.fsdp, mesh.tensor
    columns = (model.heads + 2 * model.kv_heads) * model.head_dim + 2 * model.feed_forward
    in_width = model.layers * columns / tensor + split(model.vocabulary, tensor)
    in_heads = (2 * model.layers + 1) * split(model.width, fsdp)  # and one, of rows of the embedding
    sums = (fsdp - 1) / fsdp * in_width + (tensor - 1) / tensor * in_heads
    return 2 * jnp.dtype(model.dtype).itemsize * rows / mesh.data * sums


def choose(
    asked: Literal["auto", "training", "tensor", "replicated"],
    model: DecoderConfig,
    mesh: MeshConfig,
    *,
    of_a_host: int,
    platform: Platform,
    memory: float | None,
    rows: int,
    conversations: int,
    positions: int,
    nf4: bool = False,
    policies: int = 1,
) -> DecodingMesh:
    """Returns how weights and conversations are split while sampling.

    ``auto``: of ``training``, and of ``tensor`` and ``replicated`` where weights and cache take at most `SHARE` of a
    device's memory, the one whose decoding step costs least: weights and past are read, activations are sent, within a
    host or further, and every collective costs a little. On one device and where memory is not known (CPUs),
    ``training``.

    `mesh` is of training, every size above 0; `of_a_host` counts devices of one host, each with `memory` bytes (None:
    not known). `rows` counts conversations of a call, `conversations` those in the caches of all engines, each of
    `positions`. With `nf4` the weights are held in four bits; `policies` counts those whose weights are split for
    playing at once, in all engines.
    """
    if asked != "auto":
        return DecodingMesh(asked, sizes_of(asked, model, mesh, of_a_host), mesh, "asked for")
    if mesh.data * mesh.fsdp * mesh.tensor == 1:
        return DecodingMesh("training", mesh, mesh, "one device")
    if memory is None or platform == "cpu":
        return DecodingMesh("training", mesh, mesh, "memory of the devices is not known")
    link, network, pause = _COSTS[platform]
    costs: dict[Sharding, float] = {}
    said = []
    for sharding in SHARDINGS:
        sizes = sizes_of(sharding, model, mesh, of_a_host)
        weights = weight_bytes(model, sizes, nf4=nf4)
        held = cache_bytes(model, sizes, conversations, positions)
        copies = weights * policies
        if sharding != "training" and copies + held > memory * SHARE:
            need = f"{copies / 1e9:.1f} + {held / 1e9:.1f} GB of weights and cache in {memory * SHARE / 1e9:.1f} GB"
            said.append(f"{sharding} has no room, {need}")
            continue
        read = weights + cache_bytes(model, sizes, min(rows, conversations), positions)
        further = sizes.fsdp * sizes.tensor > of_a_host
        collectives = model.layers * (5 * (sizes.fsdp > 1) + 2 * (sizes.tensor > 1))
        cost = read + sent_bytes(model, sizes, rows) * (network if further else link) + collectives * pause
        said.append(f"{sharding} {cost / 1e9:.3g}")
        if sizes not in [sizes_of(known, model, mesh, of_a_host) for known in costs]:  # the same by another name
            costs[sharding] = cost
    best = min(costs, key=costs.__getitem__)
    reason = f"a step costs as much as reading so many GB: {', '.join(said)}"
    return DecodingMesh(best, sizes_of(best, model, mesh, of_a_host), mesh, reason)


def device_memory(mesh: Mesh) -> float | None:
    """Returns the bytes that programs may use on a device, the same answer on all hosts; None: not known."""
    here = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]
    known = (here[0].memory_stats() or {}) if here else {}
    found = multihost.broadcast(float(known.get("bytes_limit", 0)))
    return found or None


def make(mesh: Mesh, sizes: MeshConfig) -> Mesh:
    """Returns a mesh of these sizes over the devices of another; the same where the sizes are.

    The tensor devices of a shard of rows are on one host, and a host's shards side by side.
    """
    shape = dataclasses.astuple(sizes)
    if shape == mesh.devices.shape:
        return mesh
    devices = list(mesh.devices.flat)
    runs = [devices[start : start + sizes.tensor] for start in range(0, len(devices), sizes.tensor)]
    firsts = [run[0].process_index for run in runs]
    apart = any(len({device.process_index for device in run}) > 1 for run in runs) or firsts != sorted(firsts)
    if apart:  # another order of the devices: moving weights takes one more step
        devices.sort(key=lambda device: (device.process_index, device.id))
    return Mesh(np.array(devices).reshape(shape), AXES, axis_types=(AxisType.Auto,) * len(AXES))
