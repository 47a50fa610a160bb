"""Devices as numbers: what names such as ``v5p-128``, ``v6e:4x4``, ``h100:64`` or ``a3-highgpu-8g:2`` stand for.

A TPU is described by its own library (libtpu), an NVIDIA GPU by a text that lists what the compiler asks a driver for
(`target_description`). Neither needs the device. For an AMD GPU there is no such description: sums only.

Sources. Peak arithmetic (bf16 operands, dense), memory bandwidth and links are the makers' published peaks, so that
times from them are lower bounds; a maker's figure for both directions counts half here.

* TPUs: Cloud TPU's pages v5e, v5p, v6e and TPU7x, and v4 with arXiv 2304.01433 for its links. For v6e, figures of 2025
  (1640 GB/s, 3584 Gb/s); later ones are up to 11 % lower. Memory: what libtpu 0.0.42 offers a program that is too
  large. Slices: the same pages; TPU7x runs as two devices per chip.
* NVIDIA: data sheets of A100, H100, H200, HGX B200, GB200 NVL72, L40S, L4 and A10, the architecture white papers of the
  GeForce cards (FP32 accumulation), and the network cards of DGX systems. Properties: XLA's published target
  descriptions; for cards it has none of, the white papers and the CUDA Programming Guide, and the memory that CUDA
  itself reports. Without NVLink the link is PCIe x16, of which a card of generation 4 has 32 GB/s, of 5 64 GB/s.
* AMD: the MI300X data sheet.

No figure was found for a network between hosts of L40S, L4, A10, GeForce and MI300X: they end at one host.
"""

import bisect
import dataclasses
import importlib.util
import itertools
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
from jax.experimental import topologies

from dfc.commands import shell_line
from dfc.errors import DfcError

GIB, MIB, KIB = 2**30, 2**20, 2**10


class TopologyError(DfcError, ValueError):
    """A topology string that names no known devices, or devices that cannot be described with what is installed."""


@dataclasses.dataclass(frozen=True)
class NvidiaProperties:
    """What the compiler asks a CUDA driver for, beside what all devices of a compute capability share.

    Attributes:
      model: the device's name after ``NVIDIA``.
      capability: compute capability, such as ``9.0``.
      multiprocessors: their number.
      clock_ghz: highest clock.
      cache: bytes of the level-2 cache.
      memory: bytes of device memory.
    """

    model: str
    capability: str
    multiprocessors: int
    clock_ghz: float
    cache: int
    memory: int

    @property
    def lanes(self) -> int:
        """Float32 units of one multiprocessor."""
        return 64 if self.capability == "8.0" else 128


@dataclasses.dataclass(frozen=True)
class Chip:
    """One kind of device.

    Attributes:
      name: the word before the colon.
      platform: ``tpu``, ``cuda`` or ``rocm``.
      memory: bytes a program may use.
      flops: peak floating-point operations per second, bf16 operands, dense.
      bandwidth: bytes per second of device memory.
      interconnect: bytes per second one device can send to its neighbours: all inter-chip links of a TPU; NVLink,
        Infinity Fabric or PCIe of a GPU.
      network: bytes per second one device can send further; equal to `interconnect` for TPUs of one slice; None: there
        is no figure, and no more than one host.
      host: devices of a host: eight GPUs, or those of four TPU chips, as descriptions of larger slices have them.
      joined: devices that `interconnect` joins.
      dimensions: how many factors its topology has.
      largest: chips of the largest slice of TPUs.
      devices_per_chip: as JAX sees them.
      nvidia: properties for the target description.
    """

    name: str
    platform: Literal["tpu", "cuda", "rocm"]
    memory: int
    flops: float
    bandwidth: float
    interconnect: float
    network: float | None
    host: int = 8
    joined: int = 8
    dimensions: int = 1
    largest: int = 0
    devices_per_chip: int = 1
    nvidia: NvidiaProperties | None = None

    @property
    def cores(self) -> int:
        """TensorCores of a TPU chip as Cloud's accelerator types count them."""
        return 2 if self.dimensions == 3 else 1


# Compute capability -> threads and KiB of shared memory of a multiprocessor; GeForce cards have less.
_PER_MULTIPROCESSOR = {"8.0": (2048, 164), "9.0": (2048, 228), "10.0": (2048, 228)}
_PER_SMALL_MULTIPROCESSOR = 1536, 100  # of 8.6, 8.9 and 12.0


def _chip(name: str, values: Mapping[str, Any]) -> Chip:
    if "nvidia" not in values:
        return Chip(name, **values)
    nvidia = NvidiaProperties(**values["nvidia"])
    # 5 % stay with the driver, the kernels and the collectives' buffers. JAX takes 75 % unless told otherwise.
    return Chip(name, memory=int(nvidia.memory * 0.95), **{**values, "nvidia": nvidia})


DATA: Mapping[str, Any] = json.loads(Path(__file__).with_name("published.json").read_bytes())
CHIPS = {name: _chip(name, values) for name, values in DATA["chips"].items()}
_ALIASES: Mapping[str, str] = DATA["aliases"]
# Google Cloud's machines with GPUs: the chip, and how many. Not a2-megagpu-16g, whose host of 16 is the only one.
MACHINES: Mapping[str, tuple[str, int]] = {
    f"{series}-{count}g": (chip, count) for series, (chip, counts) in DATA["machines"].items() for count in counts
}
_NUMBER = "[1-9][0-9]{0,5}"
EXAMPLES = "v5e:4x4, v6e-16, v5p:4x4x4, v5p-128, a100:64, h100:8, rtx4090:1 or a3-highgpu-8g:2"
_LIBTPU = {"v7": "tpu7x"}  # where the library has a name of its own
_SMALL_3D = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))  # below a cube of 64 chips; above it, whole cubes
_FLAT = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))


@dataclasses.dataclass(frozen=True)
class Topology:
    """Some devices of one kind.

    Attributes:
      chip: the kind.
      shape: factors of the number of chips: the torus of a TPU slice, (count,) for GPUs.
    """

    chip: Chip
    shape: tuple[int, ...]

    @property
    def devices(self) -> int:
        """Their number."""
        return math.prod(self.shape) * self.chip.devices_per_chip

    @property
    def name(self) -> str:
        """A string that `parse_topology` reads."""
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"

    @property
    def of_a_host(self) -> int:
        """Devices that share a host."""
        return min(self.devices, self.chip.host)

    @property
    def hosts(self) -> int:
        """Hosts of the devices."""
        return self.devices // self.of_a_host


def slices(chip: Chip) -> list[tuple[int, ...]]:
    """Returns the shapes of slices that Cloud TPU has of a chip, by number of chips, the most cube-like first."""
    if chip.dimensions == 2:
        return list(_FLAT)
    sides = range(4, chip.largest // 16 + 1, 4)
    cubes = (
        (a, b, c)
        for a, b in itertools.combinations_with_replacement(sides, 2)
        if a * b * b <= chip.largest
        for c in range(b, chip.largest // (a * b) + 1, 4)
    )
    return sorted((*_SMALL_3D, *cubes), key=lambda shape: (math.prod(shape), max(shape)))


def parse_topology(text: str) -> Topology:
    """Reads a topology as ``chip:shape`` or as Cloud names it.

    It is ``chip:4x4`` or ``chip:4x4x4`` for TPUs, ``chip:count`` for GPUs; Cloud's accelerator types, which count chips
    (``v6e-8``, ``v5litepod-16``) or, where a chip has two TensorCores, those (``v4-32``, ``v5p-128``, ``tpu7x-128``);
    Google Cloud's machine types, with their number if there are several (``a3-highgpu-8g:4``).

    Raises:
      TopologyError: with what is accepted; for a size that does not exist with the nearest that do.
    """
    words = text.strip().lower()
    machine, _, times = words.partition(":")
    if machine in MACHINES:
        return _machines(text, machine, times or "1")
    if words in CHIPS or words in _ALIASES:
        name, mark, shape = words, ":", ""
    else:
        name, mark, shape = words.rpartition(":" if ":" in words else "-")
    name = _ALIASES.get(name, name)
    if name not in CHIPS:
        missing = name or words
        known = f"the chips are {', '.join(CHIPS)}; expected e.g. {EXAMPLES}"
        raise TopologyError(f"topology {text!r}: there is no chip {missing!r}; {known}")
    chip = CHIPS[name]
    sizes = tuple(int(f) for f in shape.split("x")) if re.fullmatch(f"{_NUMBER}(x{_NUMBER})*", shape) else ()
    counted = len(sizes) == 1 and mark == "-" and chip.platform == "tpu"
    if not counted and len(sizes) != chip.dimensions:
        wanted = {1: "a number of devices, as in {}:8", 2: "two factors, as in {}:4x4", 3: "three, as in {}:4x4x4"}
        raise TopologyError(
            f"topology {text!r}: {shape!r} is no shape of {name}; expected "
            f"{wanted[chip.dimensions].format(name)} (accepted in general: {EXAMPLES})"
        )
    if chip.platform != "tpu":
        return _gpus(text, chip, sizes[0])
    return _slice(text, chip, sizes, counted=counted)


def _machines(text: str, machine: str, times: str) -> Topology:
    name, count = MACHINES[machine]
    if not re.fullmatch(_NUMBER, times):
        raise TopologyError(f"topology {text!r}: expected a number of machines, as in {machine}:2")
    if int(times) > 1 and count < CHIPS[name].host:
        raise TopologyError(f"topology {text!r}: {machine} is part of a host; several machines have to be whole hosts")
    return _gpus(text, CHIPS[name], count * int(times))


def _gpus(text: str, chip: Chip, count: int) -> Topology:
    host = chip.host
    if count > host and chip.network is None:
        raise TopologyError(
            f"topology {text!r}: no network between hosts of {chip.name} is known here; expected up to {host} devices"
        )
    if count > host and count % host:
        lower = count // host * host
        raise TopologyError(
            f"topology {text!r}: {count} GPUs are no whole hosts; expected up to {host}, or a multiple of {host}: the "
            f"nearest are {chip.name}:{lower} and {chip.name}:{lower + host}"
        )
    return Topology(chip, (count,))


def _slice(text: str, chip: Chip, sizes: tuple[int, ...], *, counted: bool) -> Topology:
    """Returns the slice of a shape, its factors in any order, or of a number of `Chip.cores`."""
    every = slices(chip)
    chips = sizes[0] / chip.cores if counted else math.prod(sizes)
    for shape in every:
        if math.prod(shape) == chips if counted else sorted(shape) == sorted(sizes):
            return Topology(chip, shape)
    counts = sorted({math.prod(shape) for shape in every})
    place = bisect.bisect(counts, chips)
    near = counts[max(0, place - 1) : place + 1]
    best = [next(shape for shape in every if math.prod(shape) == count) for count in near]
    named = " and ".join(f"{Topology(chip, s).name} ({chip.name}-{math.prod(s) * chip.cores})" for s in best)
    verb = "is" if len(best) == 1 else "are"
    raise TopologyError(f"topology {text!r}: there is no such slice of {chip.name}; the nearest {verb} {named}")


def target_description(chip: Chip) -> str:
    """Returns the text (``GpuTargetConfigProto``) that stands for an NVIDIA device when none is there.

    Raises:
      TopologyError: the chip is no NVIDIA device.
    """
    of = chip.nvidia
    if of is None:
        raise TopologyError(f"{chip.name} is described by libtpu, not by a text; expected an NVIDIA device")
    major, minor = of.capability.split(".")
    threads, shared = _PER_MULTIPROCESSOR.get(of.capability, _PER_SMALL_MULTIPROCESSOR)
    # Where there are instructions of one architecture alone (``sm_90a``). CUDA keeps 1 KiB of each block's memory.
    extension = "ACCELERATED_FEATURES" if of.capability in ("9.0", "10.0") else "NONE"
    return f"""\
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: {threads}
  shared_memory_per_block: {48 * KIB}
  shared_memory_per_block_optin: {(shared - 1) * KIB}
  shared_memory_per_core: {shared * KIB}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  core_count: {of.multiprocessors}
  fpus_per_core: {of.lanes}
  block_dim_limit_x: {2**31 - 1}
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  memory_bandwidth: {int(chip.bandwidth)}
  l2_cache_size: {of.cache}
  clock_rate_ghz: {of.clock_ghz}
  device_memory_size: {of.memory}
  device_address_bits: 64
  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {extension} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "NVIDIA {of.model}"
"""


def missing_packages(chip: Chip) -> list[str]:
    """Returns the modules that a compile for this chip needs and that are not installed."""
    needed = {"tpu": ("libtpu",), "cuda": ("jax_cuda13_plugin", "jax_plugins.xla_cuda13"), "rocm": ()}
    return [name for name in needed[chip.platform] if _is_absent(name)]


def require_cudnn() -> None:
    """Raises a TopologyError unless cuDNN is there, which compiles its attention itself."""
    if _is_absent("nvidia.cudnn"):
        install = shell_line("pip", "install", "--no-deps", "nvidia-cudnn-cu13")
        raise TopologyError(
            f"cuDNN's attention needs cuDNN to be compiled, not installed here: {install} (half a gigabyte), or "
            "compile with --config.training.attention=xla"
        )


def _is_absent(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:  # its parent package
        return True


def topology_devices(topology: Topology) -> Sequence[jax.Device]:
    """Returns described devices: a mesh over them can be compiled for, but holds no arrays.

    Raises:
      TopologyError: the packages are not installed (the extra ``aot``), the vendor's library refuses the shape, or
        there is none.
    """
    chip = topology.chip
    if chip.platform == "rocm":
        raise TopologyError(f"topology {topology.name}: nothing is compiled for {chip.name}; leave out --compile")
    missing = missing_packages(chip)
    if missing:
        raise TopologyError(
            f"topology {topology.name}: compiling for it needs {' and '.join(missing)}, not installed here; "
            f"no device or driver is needed, only the wheels: {shell_line('pip', 'install', 'dfc[aot]')} "
            "(without --compile the analytic answer needs neither)"
        )
    # libtpu would ask a metadata server which machine it runs on; there is none, and the answer is not wanted.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    options: dict[str, Any]
    if chip.platform == "tpu":
        name = f"{_LIBTPU.get(chip.name, chip.name)}:{topology.name.partition(':')[2]}"
        options = {"chip_config_name": "megacore"} if chip.name == "v4" else {}  # a chip is one device, as on Cloud
        if topology.devices == 1:
            options["chips_per_host_bounds"] = (1, 1, 1)
    else:
        name, shape = chip.name, f"1x{topology.hosts}x{topology.of_a_host}"
        options = {"topology": shape, "target_config": target_description(chip)}
    try:
        return topologies.get_topology_desc(topology_name=name, platform=chip.platform, **options).devices
    except (jax.errors.JaxRuntimeError, ValueError, NotImplementedError) as error:
        raise TopologyError(f"topology {topology.name}: refused by the vendor's library: {error}") from error
