"""Programs of strangers in a box: bubblewrap, a user without rights, no network, no files, bounded in everything.

What runs in the box sees a read-only ``/usr``, an empty ``/tmp``, no environment, no network and no other process than
its own. It is in namespaces of its own (user, process, mount, network, ...), has no capability, may make no further
namespace, and is not root outside either: of root the kernel counts no processes. It can be ended at any time and as a
whole: the end of its first process ends every other one, in the kernel.

Limits: processor time, address space, file size, open files and processes of each process by the kernel
(``setrlimit``, set by our code in the box before the stranger's); wall-clock time, memory of all its processes together
and bytes of output by the one who waits. There is no way to run a program without the box.

Source: bubblewrap 0.8 (bwrap(1)); RLIMIT_NPROC is not enforced for root (setrlimit(2)).
"""

import contextlib
import dataclasses
import functools
import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

from dfc.config.ranges import Count, Positive, Range
from dfc.errors import ConfigError, cut
from dfc.scoring.scorer import ScoringError

INSTALL = "apt-get install -y bubblewrap (or the package bubblewrap of your distribution)"
_NOBODY = 65534
_PATIENCE = 10.0  # seconds that the kernel may take to end what it was told to end
_WATCH = 0.05  # seconds between two looks at the memory of a box
_CHUNK = 65_536
_TMP_BYTES = 64 * 2**20
_PROBE = "import socket, resource, json; print('ready')"


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one box may use.

    Attributes:
      wall_seconds: from its start to its end.
      cpu_seconds: of each process.
      memory: MiB of address space of each process, and of memory of all together.
      processes: at once, threads too.
      file_megabytes: MiB of each file; all of /tmp is 64 MiB.
      output_bytes: of what it writes to whoever started it.
    """

    wall_seconds: Positive = 10.0
    cpu_seconds: Annotated[int, Range(1, 3600)] = 5
    memory: Annotated[int, Range(64, 2**20)] = 512
    processes: Annotated[int, Range(1, 1000)] = 24
    file_megabytes: Annotated[int, Range(1, 64)] = 1
    output_bytes: Count = 2**20


class BoxEndedError(ScoringError):
    """A box gave no answer.

    Attributes:
      why: ``time_limit``, ``memory_limit``, ``output_limit`` or ``ended``.
    """

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"a program in the sandbox gave no answer: {why}")


def problems() -> list[str]:
    """Returns why no program can be run here, with the command that helps; nothing: programs can be run."""
    try:
        interpreter()
    except ConfigError as error:
        return list(error.problems)
    return []


@functools.cache
def interpreter() -> str:
    """Returns the Python that runs in the box; looked for once, by running it there.

    It is the newest of ``/usr/bin``: an interpreter elsewhere may lie where the box's user cannot look.

    Raises:
      ConfigError: there is no bubblewrap, no Python in /usr/bin, or this system lets nobody make namespaces.
    """
    if shutil.which("bwrap") is None:
        raise ConfigError([f"programs are run under bubblewrap only, and bwrap is not installed: {INSTALL}"])
    found = [path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(path).exists()]
    if not found:
        raise ConfigError(["programs run in the sandbox with the Python in /usr, and there is none: install python3"])
    why = ""
    for path in found:
        try:
            done = subprocess.run(  # noqa: S603 - our own command
                _command(path, _PROBE, ()), capture_output=True, timeout=60, check=False, **_identity()
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
    """Returns how a process is started as a user without rights, whoever we are."""
    same: dict[str, Any] = {"env": {}, "cwd": "/", "start_new_session": True, "close_fds": True}
    if os.geteuid() != 0:
        return same
    return {**same, "user": _NOBODY, "group": _NOBODY, "extra_groups": []}


def _command(python: str, code: str, keep: Sequence[int]) -> list[str]:
    """Returns the command line that runs code of ours in a box; `keep` are file descriptors for bwrap itself."""
    links = [part for name in ("lib", "lib64", "bin") for part in ("--symlink", f"usr/{name}", f"/{name}")]
    info = [part for number in keep for part in ("--info-fd", str(number))]
    return [
        *(shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user", "--disable-userns"),
        *("--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL", "--hostname", "sandbox"),
        *("--uid", str(_NOBODY), "--gid", str(_NOBODY)),
        *("--ro-bind", "/usr", "/usr", *links, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
        *("--size", str(_TMP_BYTES), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"),  # noqa: S108 - the box's
        *info,
        *("--", python, "-I", "-S", "-B", "-c", code),
    ]


# Runs in the box before anything else: limits first, then our code, which is handed its input line by line.
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
    """A program of ours, with what a stranger gave it, in a box; it reads and writes lines.

    Use it in a ``with`` statement: at the end of the block nothing of it runs any more.

    Args:
      code: Python, run with ``-I -S -c``; sees its input on the standard input.
      limits: of all of it; time counts from here.

    Attributes:
      beside: another box whose memory is looked at whenever this one is waited for; it counts apart.
    """

    def __init__(self, code: str, limits: Limits) -> None:
        python = interpreter()
        self.limits = limits
        self._deadline = time.monotonic() + limits.wall_seconds
        self._pending = b""
        self._read_bytes = 0
        self._over = False
        self.beside: Box | None = None
        read_info, write_info = os.pipe()
        try:
            os.set_inheritable(write_info, True)  # noqa: FBT003 - its only argument
            self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own command
                _command(python, _limited(code, limits), [write_info]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[write_info],
                bufsize=0,
                **_identity(),
            )
        except OSError as error:
            os.close(read_info)
            raise ScoringError(f"a sandbox cannot be started: {error}") from error
        finally:
            os.close(write_info)
        self._first: int | None = None  # a handle of the first process in the box, whose end ends all others
        self._number = 0
        try:
            os.set_blocking(self._output, False)
            os.set_blocking(self._input, False)
            self._find_first(read_info)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(read_info)

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything in the box and waits until the kernel has done so; may be called twice."""
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

    def send(self, line: bytes) -> None:
        """Writes a line; whoever does not read it is waited for until the time is over.

        Raises:
          BoxEndedError: it was not read.
        """
        rest = memoryview(line + b"\n")
        while rest:
            self._wait(self._input, selectors.EVENT_WRITE)
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
            self._wait(self._output, selectors.EVENT_READ)
            try:
                part = os.read(self._output, _CHUNK)
            except BlockingIOError:
                continue
            self._read_bytes += len(part)
            if self._read_bytes > self.limits.output_bytes:
                raise BoxEndedError("output_limit")
            if not part:
                raise BoxEndedError(self._reason())
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _wait(self, descriptor: int, event: int) -> None:
        """Waits until a pipe can be used, and looks at time and memory meanwhile."""
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise BoxEndedError("time_limit")
            if any(box.memory() > box.limits.memory * 2**20 for box in (self, self.beside) if box is not None):
                raise BoxEndedError("memory_limit")
            if _ready(descriptor, min(left, _WATCH), event):
                return

    def _reason(self) -> str:
        """Returns why a program ended that closed its pipe, as far as its exit says."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(min(1.0, max(0.0, self._deadline - time.monotonic())))
            if code in (128 + signal.SIGXCPU, 128 + signal.SIGKILL):  # the soft and the hard limit of processor time
                return "time_limit"
        return "ended"

    def memory(self) -> int:
        """Returns how many bytes of memory all processes of the box take together; 0 where the system does not say."""
        return sum(_resident(number) for number in _descendants(self._number)) if self._number else 0


def _ready(descriptor: int, seconds: float, event: int = selectors.EVENT_READ) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, event)
        return bool(selector.select(seconds))


def _descendants(number: int) -> list[int]:
    """Returns the numbers of a process and of all below it that can be seen."""
    found: list[int] = []
    todo = [number]
    while todo and len(found) < 4096:
        number = todo.pop()
        found.append(number)
        with contextlib.suppress(OSError, ValueError):
            for task in Path(f"/proc/{number}/task").iterdir():
                todo += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def _resident(number: int) -> int:
    try:
        pages = Path(f"/proc/{number}/statm").read_text(encoding="ascii").split()
        return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")  # what is shared is counted once elsewhere
    except (OSError, ValueError, IndexError):
        return 0
