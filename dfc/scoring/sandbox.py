"""Runs untrusted programs in a sandbox (bubblewrap): a user without rights, no network, no files, bounded resources.

What runs in the sandbox sees a read-only ``/usr``, an empty ``/tmp``, no environment, no network and no other process
than its own. It is in namespaces of its own (user, process, mount, network, ...), has no capability, may make no
further namespace, and is not root outside either: of root the kernel counts no processes. It can be ended at any time
and as a whole: the end of its first process ends every other one, in the kernel.

Limits: processor time, address space, file size, open files and processes of each process by the kernel
(``setrlimit``, set by our code in the sandbox before the untrusted one); processor time and memory of all its processes
together, and bytes of output, by the waiting process. Wall-clock time is limited, too, for programs that sleep: it
counts only while nothing in it is runnable, so that a machine's load decides nothing. A last limit of ten times
as much wall-clock time ends programs that gave themselves the lowest priority. There is no way to run a program without
the box.

Memory of all processes together is limited by the kernel where a control group can be made
(`dfc.scoring.memory_groups`); elsewhere it is counted every 50 ms (`dfc.scoring.box_usage`). `memory_rule` says which.
In both cases memory that belongs to no process cannot be allocated (`system_call_filter`).

Source: bubblewrap 0.8 (bwrap(1), ``--seccomp``); RLIMIT_NPROC is not enforced for root (setrlimit(2)); seccomp(2), with
numbers from the kernel's tables (syscall_64.tbl, asm-generic/unistd.h).
"""

import contextlib
import dataclasses
import functools
import json
import os
import platform
import select
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

from dfc.config.ranges import Count, Positive, Range
from dfc.errors import ConfigError, cut
from dfc.scoring.box_usage import Usage
from dfc.scoring.memory_groups import MemoryGroup, place_for_groups
from dfc.scoring.scorer import ScoringError

INSTALL = "apt-get install -y bubblewrap (or the package bubblewrap of your distribution)"
_NOBODY = 65534
_PATIENCE = 10.0  # seconds that the kernel may take to end what it was asked to end
_LAST = 10.0  # times `Limits.wall_seconds`, whatever the box waits for
_WATCH = 0.05  # seconds between two checks of what a box uses
_CHUNK = 65_536
_TMP_BYTES = 64 * 2**20
_PROBE = "import socket, resource, json; print('ready')"


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one box may use.

    Attributes:
      wall_seconds: that it may sleep or wait; by the clock alone, from its start to its end, ten times as long. It is
        far beyond `cpu_seconds` (ten times), so that a machine's load does not decide which programs are right.
      cpu_seconds: of processor time, of each process and of all together.
      memory: MiB of address space of each process, and of memory of all together.
      processes: at once, threads too.
      file_megabytes: MiB of each file; all of /tmp is 64 MiB.
      output_bytes: of one line that it writes to the process that started it.
    """

    wall_seconds: Positive = 50.0
    cpu_seconds: Annotated[int, Range(1, 3600)] = 5
    memory: Annotated[int, Range(64, 2**20)] = 512
    processes: Annotated[int, Range(1, 1000)] = 24
    file_megabytes: Annotated[int, Range(1, 64)] = 1
    output_bytes: Count = 2**20


class BoxEndedError(ScoringError):
    """A box gave no answer.

    Attributes:
      why: ``time_limit``; ``memory_limit``, also where it asked for memory that belongs to no process;
        ``output_limit``; or ``ended``.
    """

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"a program in the sandbox gave no answer: {why}")


def problems() -> list[str]:
    """Returns why no program can be run here, with the command that helps; empty if programs can be run."""
    try:
        interpreter()
    except ConfigError as error:
        return list(error.problems)
    return []


@functools.cache
def interpreter() -> str:
    """Returns the sandbox's Python; looked for once, by running it there.

    It is the newest of ``/usr/bin``: an interpreter elsewhere may be where the box's user cannot read.

    Raises:
      ConfigError: there is no bubblewrap, no Python in /usr/bin, this system does not permit namespaces, or its system
        calls are not known.
    """
    if shutil.which("bwrap") is None:
        raise ConfigError([f"programs are run under bubblewrap only, and bwrap is not installed: {INSTALL}"])
    found = [path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(path).exists()]
    if not found:
        raise ConfigError(["programs run in the sandbox with the Python in /usr, and there is none: install python3"])
    why = ""
    for path in found:
        try:
            with _readable(system_call_filter()) as calls:
                done = subprocess.run(  # noqa: S603 - our own command
                    _command(path, _PROBE, {"--seccomp": calls}),
                    capture_output=True,
                    timeout=60,
                    check=False,
                    pass_fds=[calls],
                    **_identity(),
                )
        except (OSError, subprocess.SubprocessError) as error:
            why = str(error)
            continue
        if done.stdout.strip() == b"ready":
            return path
        why = done.stderr.decode(errors="replace")
    hint = "user namespaces must be allowed (sysctl kernel.unprivileged_userns_clone=1, or another container)"
    raise ConfigError([f"bubblewrap cannot make a sandbox here: {cut(' '.join(why.split()), 400)}; {hint}"])


def _identity() -> dict[str, Any]:
    """Returns how a process is started as a user without rights, whichever user this one is."""
    same: dict[str, Any] = {"env": {}, "cwd": "/", "start_new_session": True, "close_fds": True}
    if os.geteuid() != 0:
        return same
    return {**same, "user": _NOBODY, "group": _NOBODY, "extra_groups": []}


@contextlib.contextmanager
def _readable(data: bytes) -> Iterator[int]:
    """Gives a file descriptor with less than a pipe's worth of data."""
    read, write = os.pipe()
    try:
        os.write(write, data)
        os.close(write)
        yield read
    finally:
        os.close(read)


def _close(descriptors: Collection[int]) -> None:
    for number in descriptors:
        os.close(number)


def memory_rule() -> str:
    """Returns how the memory of a box's processes together is limited on this system, as text.

    Raises:
      ConfigError: no program can be run here.
    """
    interpreter()
    if (place := place_for_groups()) is not None:
        return f"by the kernel, in a control group of version {place.version} under {place.folder}"
    return (
        "by checks of its processes every 50 ms, shared memory included, since no control group with a limit of memory "
        "can be made here"
    )


def _command(python: str, code: str, descriptors: Mapping[str, int]) -> list[str]:
    """Returns the command line that runs trusted code in a box; options of bwrap that take a file descriptor."""
    links = [part for name in ("lib", "lib64", "bin") for part in ("--symlink", f"usr/{name}", f"/{name}")]
    taken = [part for option, number in descriptors.items() for part in (option, str(number))]
    return [
        *(shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user", "--disable-userns"),
        *("--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL", "--hostname", "sandbox"),
        *("--uid", str(_NOBODY), "--gid", str(_NOBODY)),
        *("--ro-bind", "/usr", "/usr", *links, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
        *("--size", str(_TMP_BYTES), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"),  # noqa: S108 - the box's
        *taken,
        *("--", python, "-I", "-S", "-B", "-c", code),
    ]


# Runs in the sandbox before anything else: limits first, then our code, which is handed its input line by line.
_LIMITED = """
import resource
for kind, amount in {limits}:
    resource.setrlimit(kind, (amount, amount + (kind == resource.RLIMIT_CPU)))
"""


def _limited(code: str, limits: Limits) -> str:
    import resource  # noqa: PLC0415 - there is none on systems without a sandbox

    amounts = [
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, limits.memory * 2**20),
        (resource.RLIMIT_FSIZE, limits.file_megabytes * 2**20),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ]
    return _LIMITED.format(limits=[(int(kind), amount) for kind, amount in amounts]) + code


class Box:
    """A trusted program with untrusted input in a box; it reads and writes lines.

    Use it in a ``with`` statement: at the end of the block nothing of it runs any more.

    `code` is Python, run with ``-I -S -c``; it sees its input on the standard input. The limits are of all of it; time
    counts from here.

    Attributes:
      beside: another box that is checked whenever this one is waited for; it counts apart.
    """

    def __init__(self, code: str, limits: Limits) -> None:
        python = interpreter()
        self.limits = limits
        now = time.monotonic()
        self._deadline = now + _LAST * limits.wall_seconds
        self._looked = now
        self._slept = 0.0
        self._pending = b""
        self._over = False
        self.beside: Box | None = None
        self._first: int | None = None  # a handle of the sandbox's first process, whose end ends all others
        self._number = 0
        self._usage: Usage | None = None
        self._group = _group(limits)
        with contextlib.ExitStack() as ours:  # copied by bwrap
            try:
                self._process = self._started(python, _limited(code, limits), ours)
            except OSError as error:
                if self._group is not None:
                    self._group.close()
                raise ScoringError(f"a sandbox cannot be started: {error}") from error

    def _started(self, python: str, code: str, ours: contextlib.ExitStack) -> "subprocess.Popen[bytes]":
        """Returns the process of bwrap; nothing in the sandbox runs before it is in its group."""
        (read_info, write_info), (read_go, write_go) = os.pipe(), os.pipe()
        rest = {read_info, write_info, read_go, write_go}
        ours.callback(_close, rest)
        calls = ours.enter_context(_readable(system_call_filter()))
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            _command(python, code, {"--info-fd": write_info, "--block-fd": read_go, "--seccomp": calls}),
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            pass_fds=[write_info, read_go, calls],
            bufsize=0,
            **_identity(),
        )
        try:
            os.close(write_info)  # the end of bwrap is the end of this pipe
            rest.remove(write_info)
            os.set_blocking(self._output, False)
            os.set_blocking(self._input, False)
            self._find_first(read_info)
        except BaseException:
            self.close()
            raise
        return self._process  # closing the other pipe lets the box begin

    @property
    def _output(self) -> int:
        assert self._process.stdout is not None  # noqa: S101 - opened above
        return self._process.stdout.fileno()

    @property
    def _input(self) -> int:
        assert self._process.stdin is not None  # noqa: S101 - opened above
        return self._process.stdin.fileno()

    def _find_first(self, info: int) -> None:
        text = b""
        while b"}" not in text:
            if not _ready(info, max(0.0, self._deadline - time.monotonic())):
                return
            if not (part := os.read(info, 4096)):
                return
            text += part
        with contextlib.suppress(ValueError, KeyError, OSError):
            self._number = int(json.loads(text)["child-pid"])
            self._first = os.pidfd_open(self._number)
            self._usage = Usage(self._number)
            if self._group is not None:
                try:
                    self._group.add(self._number)
                except OSError:  # no group any more: its memory is counted
                    self._group.close()
                    self._group = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything in the sandbox and waits until the kernel has done so; may be called twice."""
        if self._over:
            return
        self._over = True
        if self._first is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE)
            os.close(self._first)
        self._process.kill()  # the box dies with it
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._group is not None:
            self._group.close()

    def send(self, line: bytes) -> None:
        """Writes a line; waits for its reader until the time is over.

        Raises:
          BoxEndedError: it was not read.
        """
        rest = memoryview(line + b"\n")
        while rest:
            self._wait(self._input, select.POLLOUT)
            try:
                rest = rest[os.write(self._input, rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise BoxEndedError(self._reason()) from error

    def receive(self) -> bytes:
        """Returns the next line, without its end.

        Raises:
          BoxEndedError: there is none within the limits.
        """
        while b"\n" not in self._pending:
            self._wait(self._output, select.POLLIN)
            try:
                part = os.read(self._output, _CHUNK)
            except BlockingIOError:
                continue
            if not part:
                raise BoxEndedError(self._reason())
            self._pending += part
            if len(self._pending) > self.limits.output_bytes and b"\n" not in self._pending[: self.limits.output_bytes]:
                raise BoxEndedError("output_limit")
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _wait(self, descriptor: int, event: int) -> None:
        """Waits until a pipe can be used, and checks resources meanwhile: every 50 ms, however many messages."""
        while True:
            now = time.monotonic()
            if (left := self._deadline - now) <= 0:
                raise BoxEndedError("time_limit")
            if now >= self._looked + _WATCH:
                boxes = [box for box in (self, self.beside) if box is not None]
                for box in boxes:
                    box.check()
                # An idle process may have answered already; and one check says little about a long time without checks.
                if not any(box._wants_processor() for box in boxes) and not _ready(descriptor, 0.0, event):  # noqa: SLF001 - of the same class
                    self._slept += min(now - self._looked, 2 * _WATCH)
                for box in boxes:
                    box._looked = time.monotonic()  # noqa: SLF001 - of the same class
            if self._slept > self.limits.wall_seconds:
                raise BoxEndedError("time_limit")
            if _ready(descriptor, min(left, _WATCH), event):
                return

    def _wants_processor(self) -> bool:
        return self._usage is not None and self._usage.wants_processor()

    def check(self) -> None:
        """Checks what its processes have used so far, together.

        Raises:
          BoxEndedError: more than its limits allow.
        """
        if self._usage is None:
            return
        if self._too_much_memory():
            raise BoxEndedError("memory_limit")
        if self._usage.seconds() > self.limits.cpu_seconds:
            raise BoxEndedError("time_limit")

    def _too_much_memory(self) -> bool:
        if self._group is not None:
            with contextlib.suppress(OSError):
                return self._group.kills() > 0
        return self._usage is not None and self._usage.memory() > self.limits.memory * 2**20

    def _reason(self) -> str:
        """Returns why a program ended that closed its pipe, as far as its exit says."""
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(min(_PATIENCE, max(0.0, self._deadline - time.monotonic())))
        if code == 128 + signal.SIGSYS or self._too_much_memory():  # a system call that is forbidden
            return "memory_limit"
        if code in (128 + signal.SIGXCPU, 128 + signal.SIGKILL):  # the soft and the hard limit of processor time
            return "time_limit"
        return "ended"


def _group(limits: Limits) -> MemoryGroup | None:
    """Returns a control group for a box; None: its memory is counted."""
    if (place := place_for_groups()) is None:
        return None
    try:
        return MemoryGroup(place, limits.memory * 2**20)
    except OSError:
        return None


def _ready(descriptor: int, seconds: float, event: int = select.POLLIN) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(1000 * seconds))


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
    """Returns a filter of system calls as bwrap reads it: instructions of 8 bytes.

    System V segments, queues and semaphores, POSIX queues, ``memfd`` files and rings outlive the mappings of the
    processes that filled them, so no check of processes finds them. A process that asks for one is killed by SIGSYS,
    and so is one that uses the system calls of another machine (32 bits, x32), whose numbers differ. Nothing that
    Python or its library does by itself is among them.

    Args:
      machine: as `platform.machine` names it; empty: this one.

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
