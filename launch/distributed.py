"""Several processes as one run: who they are, how they find each other, how they end together.

`Processes` is what the command line and the environment say; `connect` joins the processes through
`jax.distributed` before anything touches a device. Importing this module loads no JAX, so that a wrong command line
is answered at once.
"""

import dataclasses
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from dfc.config import RunConfig
from dfc.errors import ConfigError

_FROM_ENVIRONMENT = {
    "coordinator": "JAX_COORDINATOR_ADDRESS",
    "processes": "JAX_NUM_PROCESSES",
    "process": "JAX_PROCESS_ID",
}
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\s]+):(?P<port>\d{1,5})")


@dataclasses.dataclass(frozen=True)
class Processes:
    """How the processes of a run find each other.

    Attributes:
      mode: ``off``: this process is alone; ``auto``: it is one of several.
      coordinator: ``HOST:PORT`` of the first process, which every other one can reach; None leaves it, with `count`
        and `index`, to JAX, which asks the TPU pod, Slurm, Kubernetes or MPI.
      count: how many processes there are.
      index: which one this is, 0 to count - 1.
    """

    mode: str = "off"
    coordinator: str | None = None
    count: int | None = None
    index: int | None = None


def read(given: Mapping[str, str | None], environment: Mapping[str, str] = os.environ) -> tuple[Processes, list[str]]:
    """Returns who the processes are, and every problem of the values that say so.

    Args:
      given: the flags ``distributed``, ``coordinator``, ``processes`` and ``process``; None where not given.
      environment: ``JAX_COORDINATOR_ADDRESS``, ``JAX_NUM_PROCESSES`` and ``JAX_PROCESS_ID`` stand in for the last
        three flags.
    """
    mode = given.get("distributed") or "off"
    if mode not in {"off", "auto"}:
        return Processes(), [f"--distributed={mode}: must be off (this process alone) or auto (one of several)"]
    if mode == "off":
        unused = [f"--{name}" for name in _FROM_ENVIRONMENT if given.get(name) is not None]
        return Processes(), [f"{', '.join(unused)}: only with --distributed=auto"] if unused else []
    named = {name: (f"--{name}", given.get(name)) for name in _FROM_ENVIRONMENT}
    values = {
        name: (flag, value)
        if value is not None
        else (_FROM_ENVIRONMENT[name], environment.get(_FROM_ENVIRONMENT[name]))
        for name, (flag, value) in named.items()
    }
    if all(value is None for _, value in values.values()):
        return Processes("auto"), []
    missing = [f"--{name} (or {_FROM_ENVIRONMENT[name]})" for name, (_, value) in values.items() if value is None]
    if missing:
        return Processes(), [f"{', '.join(missing)} missing: coordinator, processes and process are given together"]
    found = []
    (place, coordinator), (count_from, count), (index_from, index) = values.values()
    match = _ADDRESS.fullmatch(coordinator or "")
    if not match or not 0 < int(match["port"]) < 2**16:
        found.append(f"{place}={coordinator}: must be HOST:PORT of the first process, such as 10.0.0.2:9000")
    if not (count or "").isdecimal() or int(count or 0) < 1:
        found.append(f"{count_from}={count}: must be a whole number of processes, 1 or more")
    elif not (index or "").isdecimal() or int(index or 0) >= int(count or 0):
        found.append(f"{index_from}={index}: must be a whole number from 0 to {int(count or 0) - 1}")
    if found:
        return Processes(), found
    return Processes("auto", coordinator, int(count or 0), int(index or 0)), []


def connect(processes: Processes) -> None:
    """Joins the processes of a run; returns when all of them are there. Nothing may have touched a device before.

    On CPUs the collectives go through gloo; on TPUs and GPUs through what JAX brings.

    Raises:
      ConfigError: they cannot be found, or not all of them came within five minutes.
    """
    if processes.mode == "off":
        return
    import jax  # noqa: PLC0415 - takes a second; a mistake in the configuration is answered without it

    configure: Any = jax.config.update  # jax leaves it untyped
    # The run itself notes SIGTERM and lets all processes agree on it (dfc.interruption).
    configure("jax_enable_preemption_service", False)  # noqa: FBT003 - by position in jax
    configure("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            processes.coordinator,
            processes.count,
            processes.index,
            cluster_detection_method=None if processes.coordinator is None else "deactivate",
        )
    except (ValueError, RuntimeError, OSError) as error:
        reason = str(error).strip().split("\n", 1)[0]
        if processes.coordinator is None:
            problem = (
                f"--distributed=auto: JAX found no TPU pod, Slurm, Kubernetes or MPI job here ({reason});"
                " give --coordinator=HOST:PORT --processes=N --process=I"
            )
        else:
            problem = (
                f"process {processes.index} of {processes.count} could not join the others at"
                f" {processes.coordinator} ({reason}); all processes must be started within five minutes, and that"
                " port of the first one's host must be free there and open to the others"
            )
        raise ConfigError([problem]) from error


def problems(config: RunConfig, count: int) -> list[str]:
    """Returns why a valid configuration cannot run in `count` processes, one sentence each."""
    if count == 1:
        return []
    found = [
        f"{key}={workers}: must be 1 with {count} processes; threads would call the devices in an order of their own,"
        " and each process would wait for another program"
        for key, workers in (("rollout.workers", config.rollout.workers), ("batch.workers", config.batch.workers))
        if workers != 1
    ]
    if config.recipe == "tiny_player":
        found.append(f"recipe='tiny_player': makes a small model in one process, not in {count}; use --distributed=off")
    return found


def leave(code: int) -> NoReturn:
    """Ends this process at once, after an error that the others do not know of.

    An orderly end waits for the other processes, and they wait for this one in the middle of a device program. When
    it is gone, JAX's coordination service ends them too: at once if it was the first, otherwise when its heartbeats
    have been missing for 100 seconds or a collective of theirs fails.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
