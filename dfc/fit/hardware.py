"""Devices as numbers: what a topology string such as ``v5p:4x4x4`` or ``h100:8`` stands for.

A TPU is described by its own library (libtpu), an NVIDIA GPU by a text that lists what the compiler asks a driver for
(`target_description`). Neither needs the device.

Sources. Peak arithmetic, bandwidth and interconnect: the makers' data sheets (Cloud TPU v5e, v5p and v6e system
architecture pages; NVIDIA A100, H100 and H200 data sheets, SXM, dense bf16). Usable memory of TPUs: what the compiler
names when a program is too large (libtpu 0.0.42). Properties of GPUs: CUDA C++ Programming Guide, compute
capabilities 8.0 and 9.0, and what the devices report.
"""

import dataclasses
import importlib.util
import math
import os
from collections.abc import Sequence
from typing import Literal

import jax
from jax.experimental import topologies

from dfc.errors import DfcError

GIB = 2**30
_HOST = 8  # GPUs of one host, joined by NVLink
_TPU_HOST = 4  # chips, as descriptions of larger slices have them


class TopologyError(DfcError, ValueError):
    """A topology string that names no known devices, or devices that cannot be described with what is installed."""


@dataclasses.dataclass(frozen=True)
class NvidiaProperties:
    """What the compiler asks a CUDA driver for; the units are CUDA's.

    Attributes:
      model: the device's name.
      capability: major compute capability; minor is 0 for all of them.
      accelerated: whether the architecture-specific instructions (``sm_90a``) are to be used.
      multiprocessors: their number.
      lanes: float32 units of one multiprocessor.
      shared_memory: bytes of one multiprocessor.
      clock_ghz: highest clock.
      cache: bytes of the level-2 cache.
      memory: bytes of device memory.
    """

    model: str
    capability: int
    multiprocessors: int
    lanes: int
    shared_memory: int
    clock_ghz: float
    cache: int
    memory: int
    accelerated: bool


@dataclasses.dataclass(frozen=True)
class Chip:
    """One device.

    Attributes:
      name: the word before the colon.
      platform: ``tpu`` or ``cuda``.
      memory: bytes a program may use.
      flops: peak floating-point operations per second, bf16 operands, dense.
      bandwidth: bytes per second of device memory.
      interconnect: bytes per second one device can send to its neighbours: all inter-chip links of a TPU, NVLink
        within a host of a GPU.
      network: bytes per second one device can send to another host; equal to `interconnect` for TPUs of one slice.
      dimensions: how many factors its topology has.
      nvidia: properties for the target description.
    """

    name: str
    platform: Literal["tpu", "cuda"]
    memory: int
    flops: float
    bandwidth: float
    interconnect: float
    network: float
    dimensions: int
    nvidia: NvidiaProperties | None = None


def _nvidia(name: str, flops: float, bandwidth: float, links: float, network: float, of: NvidiaProperties) -> Chip:
    # 5 % stay with the driver, the kernels and the collectives' buffers. JAX takes 75 % unless told otherwise.
    usable = int(of.memory * 0.95)
    return Chip(name, "cuda", usable, flops, bandwidth, links, network, 1, of)


CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v5e", "tpu", int(15.75 * GIB), 197e12, 819e9, 200e9, 200e9, 2),
        Chip("v5p", "tpu", int(95.74 * GIB), 459e12, 2765e9, 600e9, 600e9, 3),
        Chip("v6e", "tpu", int(31.25 * GIB), 918e12, 1640e9, 448e9, 448e9, 2),
        _nvidia(
            "a100",
            312e12,
            2039e9,
            300e9,
            25e9,
            NvidiaProperties(
                "NVIDIA A100-SXM4-80GB", 8, 108, 64, 164 * 1024, 1.41, 40 * 2**20, 85_100_068_864, accelerated=False
            ),
        ),
        _nvidia(
            "h100",
            989.4e12,
            3352e9,
            450e9,
            50e9,
            NvidiaProperties(
                "NVIDIA H100 80GB HBM3", 9, 132, 128, 228 * 1024, 1.98, 50 * 2**20, 84_942_979_072, accelerated=True
            ),
        ),
        _nvidia(
            "h200",
            989.4e12,
            4800e9,
            450e9,
            50e9,
            NvidiaProperties(
                "NVIDIA H200 141GB HBM3e", 9, 132, 128, 228 * 1024, 1.98, 50 * 2**20, 151_397_597_184, accelerated=True
            ),
        ),
    )
}
EXAMPLES = "v5e:4x4, v6e:4x4, v5p:4x4x4, a100:64, h100:8 or h200:8"


@dataclasses.dataclass(frozen=True)
class Topology:
    """Some devices of one kind.

    Attributes:
      chip: the kind.
      shape: factors of their number: the torus of a TPU slice, (count,) for GPUs.
    """

    chip: Chip
    shape: tuple[int, ...]

    @property
    def devices(self) -> int:
        """Their number."""
        return math.prod(self.shape)

    @property
    def name(self) -> str:
        """The string `parse_topology` reads."""
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"

    @property
    def of_a_host(self) -> int:
        """Devices that share a host: eight GPUs, or four TPU chips."""
        return min(self.devices, _HOST if self.chip.platform == "cuda" else _TPU_HOST)

    @property
    def hosts(self) -> int:
        """Hosts the devices hang on: 8 GPUs each; TPU hosts do not matter to anything computed here and count as 1."""
        return max(1, self.devices // _HOST) if self.chip.platform == "cuda" else 1


def parse_topology(text: str) -> Topology:
    """Reads ``chip:shape``.

    Args:
      text: a chip of `CHIPS`, a colon, and one factor (GPUs: the number of devices), two (v5e, v6e) or three (v5p).

    Raises:
      TopologyError: with what is accepted.
    """
    name, _, shape = text.strip().lower().partition(":")
    if name not in CHIPS:
        raise TopologyError(f"topology {text!r}: there is no chip {name!r}; expected e.g. {EXAMPLES}")
    chip = CHIPS[name]
    factors = shape.split("x")
    if len(factors) != chip.dimensions or not all(f.isdecimal() and int(f) > 0 for f in factors):
        wanted = {1: "a number of devices, as in {}:8", 2: "two factors, as in {}:4x4", 3: "three, as in {}:4x4x4"}
        raise TopologyError(
            f"topology {text!r}: {shape!r} is no shape of {name}; expected "
            f"{wanted[chip.dimensions].format(name)} (accepted in general: {EXAMPLES})"
        )
    sizes = tuple(int(f) for f in factors)
    if chip.platform == "cuda" and sizes[0] > _HOST and sizes[0] % _HOST:
        raise TopologyError(
            f"topology {text!r}: {sizes[0]} GPUs are no whole hosts; expected up to {_HOST}, or a multiple of {_HOST}"
        )
    return Topology(chip, sizes)


def target_description(chip: Chip) -> str:
    """Returns the text (``GpuTargetConfigProto``) that stands for an NVIDIA device when none is there.

    Raises:
      TopologyError: the chip is no NVIDIA device.
    """
    of = chip.nvidia
    if of is None:
        raise TopologyError(f"{chip.name} is described by libtpu, not by a text; expected an NVIDIA device")
    values = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "threads_per_core_limit": 2048,
        "shared_memory_per_block": 48 * 1024,
        "shared_memory_per_block_optin": of.shared_memory - 1024,  # CUDA keeps 1 KiB of each block
        "shared_memory_per_core": of.shared_memory,
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
        "core_count": of.multiprocessors,
        "fpus_per_core": of.lanes,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "thread_dim_limit_x": 1024,
        "thread_dim_limit_y": 1024,
        "thread_dim_limit_z": 64,
        "memory_bandwidth": int(chip.bandwidth),
        "l2_cache_size": of.cache,
        "clock_rate_ghz": of.clock_ghz,
        "device_memory_size": of.memory,
        "device_address_bits": 64,
    }
    extension = "ACCELERATED_FEATURES" if of.accelerated else "NONE"
    lines = [f"  {name}: {value}" for name, value in values.items()]
    lines.append(f"  cuda_compute_capability {{ major: {of.capability} feature_extension: {extension} }}")
    return "\n".join(
        [
            "gpu_device_info {",
            *lines,
            "}",
            'platform_name: "CUDA"',
            "dnn_version_info { major: 9 minor: 10 }",
            f'device_description_str: "{of.model}"',
            "",
        ]
    )


def missing_packages(chip: Chip) -> list[str]:
    """Returns the modules that a compile for this chip needs and that are not installed."""
    needed = ("libtpu",) if chip.platform == "tpu" else ("jax_cuda13_plugin", "jax_plugins.xla_cuda13")
    return [name for name in needed if _is_absent(name)]


def require_cudnn() -> None:
    """Raises a TopologyError unless cuDNN is there, which compiles its attention itself."""
    if _is_absent("nvidia.cudnn"):
        raise TopologyError(
            "cuDNN's attention needs cuDNN to be compiled, not installed here: pip install --no-deps nvidia-cudnn-cu13 "
            "(half a gigabyte), or compile with --config.training.attention=xla"
        )


def _is_absent(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:  # its parent package
        return True


def topology_devices(topology: Topology) -> Sequence[jax.Device]:
    """Returns described devices: a mesh over them can be compiled for, but holds no arrays.

    Raises:
      TopologyError: the packages are not installed (the extra ``aot``), or the vendor's library refuses the shape.
    """
    chip = topology.chip
    missing = missing_packages(chip)
    if missing:
        raise TopologyError(
            f"topology {topology.name}: compiling for it needs {' and '.join(missing)}, not installed here; "
            'no device or driver is needed, only the wheels: pip install "dfc[aot]" '
            "(without --compile the analytic answer needs neither)"
        )
    # libtpu would ask a metadata server which machine it runs on; there is none, and the answer is not wanted.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    try:
        if chip.platform == "tpu":
            found = topologies.get_topology_desc(topology_name=topology.name, platform="tpu")
        else:
            hosts = topology.hosts
            found = topologies.get_topology_desc(
                topology_name=chip.name,
                platform="cuda",
                topology=f"1x{hosts}x{topology.devices // hosts}",
                target_config=target_description(chip),
            )
    except (jax.errors.JaxRuntimeError, ValueError, NotImplementedError) as error:
        raise TopologyError(f"topology {topology.name}: refused by the vendor's library: {error}") from error
    return found.devices
