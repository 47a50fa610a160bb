"""A filter of system calls for the sandbox: memory that belongs to no process cannot be allocated there.

System V segments, queues and semaphores, POSIX queues, ``memfd`` files and rings outlive the mappings of the processes
that filled them, so no check of processes finds them. A process that asks for one is killed by SIGSYS, and so is one
that uses the system calls of another machine (32 bits, x32), whose numbers differ. Nothing that Python or its library
does by itself is among them.

Source: seccomp(2), bwrap(1) ``--seccomp``; numbers from the kernel's tables (syscall_64.tbl, asm-generic/unistd.h).
"""

import dataclasses
import platform
import struct
from collections.abc import Mapping

from dfc.errors import ConfigError

_ALLOW = 0x7FFF_0000  # SECCOMP_RET_ALLOW
_KILL = 0x8000_0000  # SECCOMP_RET_KILL_PROCESS
_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_X32 = 0x4000_0000  # the first number of x32


@dataclasses.dataclass(frozen=True)
class _Machine:
    """The system calls of a kind of machine.

    Attributes:
      audit: the kernel's number of it, AUDIT_ARCH_*.
      calls: name -> number of what is forbidden.
    """

    audit: int
    calls: Mapping[str, int]


_MACHINES = {
    "x86_64": _Machine(
        0xC000_003E,
        {"shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240, "memfd_create": 319, "io_uring_setup": 425}
        | {"memfd_secret": 447},
    ),
    "aarch64": _Machine(
        0xC000_00B7,
        {"shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180, "memfd_create": 279, "io_uring_setup": 425}
        | {"memfd_secret": 447},
    ),
}


def system_call_filter(machine: str = "") -> bytes:
    """Returns the filter as bwrap reads it: instructions of 8 bytes; `machine` as `platform.machine`, empty: this one.

    Raises:
      ConfigError: its system calls are not known.
    """
    machine = machine or platform.machine()
    if (known := _MACHINES.get(machine)) is None:
        have = " or ".join(_MACHINES)
        raise ConfigError([f"programs run in the sandbox on {have}, whose system calls it knows; this is {machine!r}"])
    numbers = sorted(known.calls.values())
    # A jump says how many instructions it leaves out, if so and if not; the last instruction kills.
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 0, len(numbers) + 3, known.audit), (_LOAD, 0, 0, 0)]
    code += [(_AT_LEAST, len(numbers) + 1, 0, _X32)]
    code += [(_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _KILL)]
    return b"".join(struct.pack("=HBBI", *one) for one in code)
