"""What the processes of a sandbox use, read from ``/proc``: processor time, and memory where no control group counts.

Memory is the sum of what each process has for itself (RssAnon, VmSwap, HugetlbPages) and of each piece of shared
anonymous memory once. Of such a piece the processes' own figures are too low: RssShmem counts the pages that a
process touched itself, and a piece lives on in the mapping of one that never touched it. So it counts as far as any
process maps it, or with the largest such figure seen before; where the kernel shows its blocks (``map_files``, root),
with these. Not covered: a process without root's view that fills shared memory and unmaps most of it between two
checks. RssShmem counts where mappings cannot be read.

Source: proc(5) (stat, status, maps, map_files).
"""

import contextlib
import functools
import mmap
import os
import re
from pathlib import Path

_MAPPED = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) ...s ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) (\d+)")
_OWN = ("RssAnon", "VmSwap", "HugetlbPages")
_MOST_PROCESSES = 4096


class Usage:
    """Follows the processes of one sandbox; `number` is of its first process."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._ticks: dict[tuple[int, bytes], int] = {}  # process and its start -> its own processor time
        self._shared: dict[bytes, int] = {}  # a piece of shared memory -> bytes

    def seconds(self) -> float:
        """Returns the processor time of all its processes together, also of those that have ended.

        Of a process without a waiting parent (SIGCHLD ignored) it is the value of the last check.
        """
        alive = 0
        for number in descendants(self._number):
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name, in parentheses, may hold anything.
                fields = Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()
                own, children = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
                alive += own + children
                self._ticks[number, fields[19]] = own
        return max(alive, sum(self._ticks.values())) / os.sysconf("SC_CLK_TCK")

    def wants_processor(self) -> bool:
        """Returns whether any of its threads runs, or would if a processor were free."""
        for number in descendants(self._number):
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{number}/task").iterdir():
                    with contextlib.suppress(OSError):
                        if (task / "stat").read_bytes().rpartition(b")")[2].split()[:1] == [b"R"]:
                            return True
        return False

    def memory(self) -> int:
        """Returns the bytes of memory of all its processes together; 0 where the system does not report it."""
        own, touched = 0, 0
        mapped: dict[bytes, int] = {}
        for number in descendants(self._number):
            status = _status(number)
            own += sum(status.get(name, 0) for name in _OWN)
            touched += status.get("RssShmem", 0)
            for piece, size in _shared(number).items():
                mapped[piece] = max(mapped.get(piece, 0), size)
        self._shared = {piece: max(size, self._shared.get(piece, 0)) for piece, size in mapped.items()}
        if not self._shared:  # files in /tmp, or mappings may not be read
            return own + touched
        return own + sum(self._shared.values())


def descendants(number: int) -> list[int]:
    """Returns the numbers of a process and of all its visible descendants."""
    found: list[int] = []
    todo = [number]
    while todo and len(found) < _MOST_PROCESSES:
        number = todo.pop()
        found.append(number)
        with contextlib.suppress(OSError, ValueError):
            for task in Path(f"/proc/{number}/task").iterdir():
                todo += map(int, (task / "children").read_bytes().split())
    return found


def _status(number: int) -> dict[str, int]:
    """Returns the sizes of a process in bytes, by their names in ``status``."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{number}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                found[name] = int(value.split()[0]) * 1024
    return found


def _shared(number: int) -> dict[bytes, int]:
    """Returns the pieces of shared anonymous memory that a process maps, with their bytes."""
    found: dict[bytes, int] = {}
    with contextlib.suppress(OSError):
        for low, high, offset, device, piece in _MAPPED.findall(Path(f"/proc/{number}/maps").read_bytes()):
            if device != _anonymous_device():
                continue
            size = int(high, 16) - int(low, 16) + int(offset, 16)
            with contextlib.suppress(OSError):
                place = f"/proc/{number}/map_files/{int(low, 16):x}-{int(high, 16):x}"
                size = os.stat(place).st_blocks * 512  # noqa: PTH116 - a link of the kernel's
            found[piece] = max(found.get(piece, 0), size)
    return found


@functools.cache
def _anonymous_device() -> bytes:
    """Returns the device that the kernel names for shared memory without a file; of a piece of our own."""
    with mmap.mmap(-1, mmap.PAGESIZE) as ours:
        import ctypes  # noqa: PLC0415 - the one use

        here = ctypes.addressof(ctypes.c_char.from_buffer(ours))
        for low, high, _, device, _ in _MAPPED.findall(Path("/proc/self/maps").read_bytes()):
            if int(low, 16) <= here < int(high, 16):
                return bytes(device)
    return b""
