"""Control groups that bound the memory of a sandbox, where this system permits one.

In a group the kernel counts all that its processes make it hold: private and shared memory, System V segments, files in
the sandbox's ``/tmp``, buffers of pipes and sockets. Whether one can be had is tried once: a group counts only if its
limit was written and reads back the same. Version 2 needs a delegated folder (systemd gives one to users' services,
root has all), version 1 a folder that may be written.

Source: cgroups(7), cgroup-v2.rst (memory.max, memory.events), cgroup-v1/memory.rst (memory.oom_control).
"""

import contextlib
import dataclasses
import functools
import os
import secrets
import time
from pathlib import Path
from typing import Literal

_PREFIX = "dfc-sandbox-"
_PROBE_BYTES = 64 * 2**20
_PATIENCE = 10.0  # seconds that the kernel may take to release a group whose processes have ended


@dataclasses.dataclass(frozen=True)
class _Files:
    """The file names of a version.

    Attributes:
      limit: bytes of all processes.
      swap: (file, what it must hold) so that nothing is swapped out instead.
      whole: (file, content) that has the kernel end all of a group at once; may be missing.
      events: has a line ``oom_kill N``.
    """

    limit: str
    swap: tuple[str, str]
    whole: tuple[str, str]
    events: str


_FILES = {
    1: _Files("memory.limit_in_bytes", ("memory.swappiness", "0"), ("", ""), "memory.oom_control"),
    2: _Files("memory.max", ("memory.swap.max", "0"), ("memory.oom.group", "1"), "memory.events"),
}


@dataclasses.dataclass(frozen=True)
class Place:
    """Where groups can be made.

    Attributes:
      folder: of a group; new groups are made in it.
      version: of control groups.
    """

    folder: Path
    version: Literal[1, 2]


class MemoryGroup:
    """A group for one sandbox, made in `place`; its limit is bytes of memory of all of its processes together.

    Raises:
      OSError: it cannot be made, or its limit does not read back.
    """

    def __init__(self, place: Place, limit: int) -> None:
        self._files = _FILES[place.version]
        self.folder = place.folder / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
        self.folder.mkdir(mode=0o700)
        try:
            self._set(self._files.limit, str(limit))
            swap, nothing = self._files.swap
            if (self.folder / swap).exists():  # a kernel without swap has no such file
                self._set(swap, nothing)
            whole, on = self._files.whole
            if whole and (self.folder / whole).exists():
                self._set(whole, on)
            self.kills()
        except OSError:
            self.close()
            raise

    def _set(self, name: str, value: str) -> None:
        path = self.folder / name
        if not path.exists():  # writing must not make a file where there are no groups
            raise OSError(f"{path}: there is no such file")
        path.write_text(value, encoding="ascii")
        if (found := path.read_text(encoding="ascii").strip()) != value:
            raise OSError(f"{path}: {value} was written, and {found[:40]} reads back")

    def add(self, number: int) -> None:
        """Puts a process into it; the processes that it starts from now on are in it, too.

        Raises:
          OSError: the kernel does not allow it, or there is no such process.
        """
        (self.folder / "cgroup.procs").write_text(str(number), encoding="ascii")

    def kills(self) -> int:
        """Returns how many processes the kernel has killed because all together exceeded the limit.

        Raises:
          OSError: the kernel does not report it.
        """
        for line in (self.folder / self._files.events).read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
        raise OSError(f"{self.folder / self._files.events}: no line oom_kill")

    def close(self) -> None:
        """Removes it, once its processes have ended; may be called twice."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > deadline:
                    return  # the next process that searches for a place removes it
                time.sleep(0.01)
            else:
                return


@functools.cache
def place_for_groups() -> Place | None:
    """Returns where groups can be made, tried by making one; None: nowhere.

    Groups left by killed processes are removed.
    """
    for place in _candidates():
        with contextlib.suppress(OSError, ValueError):
            MemoryGroup(place, _PROBE_BYTES).close()
            _sweep(place.folder)
            return place
    return None


def _candidates() -> list[Place]:
    """Returns folders of our own group and, of version 2, the one above: a group with processes has no limits below."""
    found: list[Place] = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        ours = [
            line.split(":", 2) for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").strip().splitlines()
        ]
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            before, _, after = line.partition(" - ")
            kind, _, options = after.split(" ", 2)
            root, mounted = before.split(" ")[3:5]
            for _, controllers, path in ours:
                version: Literal[1, 2]
                if kind == "cgroup2" and not controllers:
                    version = 2
                elif kind == "cgroup" and "memory" in controllers.split(",") and "memory" in options.split(","):
                    version = 1
                else:
                    continue
                inside = path.removeprefix(root) if root != "/" else path
                folder = Path(mounted, inside.lstrip("/"))
                folders = [folder, folder.parent] if version == 2 and inside.strip("/") else [folder]
                found += [Place(one, version) for one in folders if one.is_dir()]
    return found


def _sweep(folder: Path) -> None:
    """Removes empty groups of processes that have ended; the kernel refuses for those in use."""
    for path in folder.glob(f"{_PREFIX}*"):
        number = path.name.removeprefix(_PREFIX).partition("-")[0]
        if number.isdigit() and not Path("/proc", number).exists():
            with contextlib.suppress(OSError):
                path.rmdir()
