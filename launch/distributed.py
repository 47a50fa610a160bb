"""Several processes as one run: which they are, how they find each other, how they end together.

`Processes` is what the command line and the environment say; `connect` joins the processes through
`jax.distributed` before anything touches a device. Importing this module loads no JAX, so that a wrong command line is
reported immediately.
"""

import dataclasses
import faulthandler
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from dfc.config import GamesRunConfig, RunConfig, SmallModel, TrainingRunConfig
from dfc.errors import ConfigError

_FROM_ENVIRONMENT = {
    "coordinator": "JAX_COORDINATOR_ADDRESS",
    "processes": "JAX_NUM_PROCESSES",
    "process": "JAX_PROCESS_ID",
}
# What JAX raises where a process of the run is gone is a ValueError or a RuntimeError with the words of gloo, NCCL or
# the coordination service after the name of a status.
_LOST = re.compile(
    r"(UNKNOWN|UNAVAILABLE|DEADLINE_EXCEEDED|INTERNAL|ABORTED|CANCELLED|FAILED_PRECONDITION): .*"
    r"(gloo|nccl|connection (closed|reset|refused)|socket closed|heartbeat|coordination|barrier timed out|broken pipe)",
    re.IGNORECASE | re.DOTALL,
)
# Of what NCCL reports, only these report another process; memory that is short, or a driver that fails, is its own.
_LOST_IN_NCCL = re.compile(
    r"remote process (has )?(exited|terminated)|connection (was )?(closed|reset)|socket|timed[ -]?out", re.IGNORECASE
)
# Passes on what `faulthandler` writes, and adds a text where it was abort().
_SPEAKER = (
    "import os, sys\n"
    "whole = b''\n"
    "while said := os.read(0, 65536):\n"
    "    os.write(2, said)\n"
    "    whole += said\n"
    "if b'Fatal Python error: Aborted' in whole:\n"
    "    os.write(2, sys.argv[1].encode())\n"
)
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

    `given` are the flags ``distributed``, ``coordinator``, ``processes`` and ``process``; None where not given.
    ``JAX_COORDINATOR_ADDRESS``, ``JAX_NUM_PROCESSES`` and ``JAX_PROCESS_ID`` stand in for the last three.
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
    import jax  # noqa: PLC0415 - takes a second; a mistake in the configuration is reported without it

    configure: Any = jax.config.update  # jax leaves it untyped
    # The run itself notes SIGTERM and lets all processes agree on it (dfc.runs.stop_signals).
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
    _speak_when_aborted()


def lost_contact(error: BaseException) -> str | None:
    """Returns what to report where an error means that another process of the run is gone; None for any other error.

    A run of one process has no other to lose.
    """
    text = str(error)
    if not isinstance(error, ValueError | RuntimeError) or not _LOST.search(text):
        return None
    if "nccl" in text.lower() and not _LOST_IN_NCCL.search(text):
        return None
    if _count() > 1:
        reason = " ".join(text.split())[:200]
        return f"{_place()} lost contact with another one ({reason}); {_HINT}"
    return None


_HINT = (
    "that one has failed, was ended, or cannot be reached: its own output says more. Nothing that was saved is lost. To"
    " resume from the newest checkpoint, run the same command in every process"
)


def _count() -> int:
    import jax  # noqa: PLC0415 - takes a second; a mistake in the configuration is reported without it

    count: int = jax.process_count()
    return count


def _place() -> str:
    import jax  # noqa: PLC0415 - takes a second; a mistake in the configuration is reported without it

    return f"process {jax.process_index()} of {jax.process_count()}"


def _speak_when_aborted() -> None:
    """Prints a sentence after this process ends by abort(), as JAX's coordination service ends it.

    That one does so from a thread of its own, after a dump of its stack, once the first process is gone or the
    heartbeats of another one are missing; it has no hook that can be used from Python (its callback ends in
    std::bad_cast). A failed check of XLA or of the allocator ends a process by abort() too, so the sentence leaves open
    which it was, and the end stays what it is: exit code 134, with a core where they are kept.

    Nothing of Python may run in the process by then: its lock, or that of the allocator, may never be released. Only
    `faulthandler` runs, which is C and takes neither; it writes where Python was to a pipe, and raises the signal
    again. A small process at the other end passes that on, and prints the sentence.
    """
    text = (
        f"error: {_place()} was ended by abort(), see above. If the lines there name another process, the coordination"
        f" service or a heartbeat, it lost contact: {_HINT}. Otherwise this process itself failed\n"
    )
    reader, writer = os.pipe()
    # In a session of its own: a Ctrl-C is not meant for it. It ends when the pipe is closed, with this process.
    subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-I", "-S", "-c", _SPEAKER, text],
        stdin=reader,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(reader)
    faulthandler.enable(file=writer)


def problems(config: RunConfig, count: int) -> list[str]:
    """Returns why a valid configuration cannot run in `count` processes, one sentence each."""
    if count == 1:
        return []
    threads = {}
    if isinstance(config, GamesRunConfig):
        threads["rollout.workers"] = config.rollout.workers
    if isinstance(config, TrainingRunConfig):
        threads["batch.workers"] = config.batch.workers
    found = [
        f"{key}={workers}: must be 1 with {count} processes; threads would call the devices in an order of their own,"
        " and each process would wait for another program"
        for key, workers in threads.items()
        if workers != 1
    ]
    if isinstance(config, SmallModel):
        found.append(
            f"recipe={config.recipe!r}: makes a small model in one process, not in {count}; use --distributed=off"
        )
    return found


_MOMENT = 2.0  # seconds


def leave(code: int) -> NoReturn:
    """Ends this process at once, after an error that the others do not know of.

    An orderly end waits for the other processes, and they wait for this one in the middle of a device program. When
    it is gone, JAX's coordination service ends them too: at once if it was the first, otherwise when its heartbeats
    have been missing for 100 seconds or a collective of theirs fails.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_MOMENT)  # for one that has found the same error, so that it can say it
    os._exit(code)
