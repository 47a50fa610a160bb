"""Which devices a run computes on, and an accelerator that this machine has and JAX does not use.

What the machine has is read from its files and the environment alone: no driver is loaded, nothing is requested.
"""

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dfc.commands import shell_line
from dfc.errors import ConfigError, cut

_GPU, _TPU = "an NVIDIA GPU", "a TPU"
# What an accelerator needs: the extra of dfc, and the modules that it brings.
_EXTRAS = {_GPU: ("gpu", ("jax_cuda13_plugin", "jax_cuda12_plugin")), _TPU: ("tpu", ("libtpu",))}
_PLATFORMS = {"cuda": _GPU, "gpu": _GPU, "tpu": _TPU}
_OF_JAX = {_GPU: "gpu", _TPU: "tpu"}  # what a device of it has as its platform
# Of a machine whose TPU is reached through /dev/vfio, as other devices are: what Google's images and GKE set.
_TPU_VARIABLES = ("TPU_NAME", "TPU_ACCELERATOR_TYPE", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "CLOUD_TPU_TASK_ID")
_REASON = re.compile(r"Unable to initialize backend '[^']*': (?:[A-Z_]+: )?(?P<reason>[^\n(]+)")
_UNKNOWN = "is not in the list of known backends"


def accelerators(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> list[str]:
    """Returns the accelerators that this machine shows, as text."""
    found = []
    gpus = root / "proc/driver/nvidia/gpus"
    if (root / "dev/nvidia0").exists() or (gpus.is_dir() and any(gpus.iterdir())):
        found.append(_GPU)
    vfio = any(path.name.isdecimal() for path in (root / "dev/vfio").glob("*"))
    if (root / "dev/accel0").exists() or (vfio and any(name in environment for name in _TPU_VARIABLES)):
        found.append(_TPU)
    return found


def lines(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> list[str]:
    """Returns which devices JAX computes on, and a line for each accelerator that it leaves unused; starts JAX.

    Raises:
      ConfigError: JAX has not the platform that ``JAX_PLATFORMS`` asks for.
    """
    import jax  # noqa: PLC0415 - takes a second; a mistake in the configuration is reported without it

    settings: Any = jax.config  # jax leaves it untyped
    wanted = settings.jax_platforms or ""
    machine = accelerators(root, environment)
    try:
        devices = jax.devices()
    except (RuntimeError, AssertionError) as error:  # of its part for GPUs, where that is missing, without a text
        raise ConfigError([_refusal(wanted, str(error), machine)]) from error
    first = devices[0]
    said = [f"computing on {len(devices)} x {first.device_kind} (platform {first.platform}), jax {jax.__version__}"]
    platforms = {device.platform for device in devices}
    return [*said, *(_unused(name, wanted) for name in machine if _OF_JAX[name] not in platforms)]


def _unused(name: str, wanted: str) -> str:
    """Returns the line about an accelerator that JAX does not use; empty if JAX_PLATFORMS asks for others."""
    asked = [_PLATFORMS.get(word) for word in wanted.split(",")]
    if wanted and name not in asked:
        return f"this machine has {name}; JAX_PLATFORMS={wanted} leaves it unused"
    which = f", which JAX_PLATFORMS={wanted} names and JAX does not see" if wanted else ", which JAX does not see"
    return f"warning: this machine has {name}{which}; hint: {_install(name)}"


def _install(name: str) -> str:
    extra, modules = _EXTRAS[name]
    if any(importlib.util.find_spec(module) is not None for module in modules):
        return f"JAX's part for it is installed, so its own messages say why, or {_seen_by(name)} hides it"
    pip = shell_line("pip", "install")
    return f"install JAX's part for it: {pip} 'dfc[{extra}]', or in a clone of the repository {pip} -e '.[{extra}]'"


def _seen_by(name: str) -> str:
    return "CUDA_VISIBLE_DEVICES" if name == _GPU else "TPU_VISIBLE_CHIPS, or another process that uses it,"


def _refusal(wanted: str, text: str, machine: list[str]) -> str:
    """Returns one sentence: why JAX did not start, and what to do."""
    unset = "unset it, and JAX takes what is there"
    if not wanted:
        return f"JAX cannot use the devices of this machine: {cut(' '.join(text.split()))}"
    if _UNKNOWN in text:
        return (
            f"JAX_PLATFORMS={wanted}: must be of cpu, cuda (a GPU), tpu, several with commas; JAX knows no other here; "
            f"{unset}"
        )
    match = _REASON.search(text)
    why = f" ({cut(match['reason'].strip())})" if match else ""
    asked = [_PLATFORMS[word] for word in wanted.split(",") if word in _PLATFORMS]
    if not asked:
        return f"JAX_PLATFORMS={wanted}: JAX cannot have it{why}; {unset}"
    name = next((name for name in asked if name not in machine), asked[0])
    if name in machine:
        return f"JAX_PLATFORMS={wanted}: JAX cannot have it{why}; hint: {_install(name)}; or {unset}"
    missing = f"this machine shows no {name.partition(' ')[2]}"
    return f"JAX_PLATFORMS={wanted}: {missing}{why}; hint: if it has one, {_install(name)}; otherwise {unset}"
