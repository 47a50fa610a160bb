"""Memory of the sandbox: every kind of it counts, in a control group and without one; sizes are small on purpose."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dfc.errors import ConfigError
from dfc.scoring import box_usage, memory_groups, sandbox
from dfc.scoring.box_usage import Usage
from dfc.scoring.memory_groups import MemoryGroup, Place
from dfc.scoring.programs import ProgramTests, run_tests
from dfc.scoring.sandbox import Box, BoxEndedError, Limits, system_call_filter

boxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason=f"programs need bubblewrap: {sandbox.INSTALL}")
LIMITS = Limits(wall_seconds=120.0, cpu_seconds=10, memory=128)
SQUARE = ProgramTests("def check(candidate):\n    assert candidate(3) == 9\n", "f")

# Each gives the right answer in the end, so it is paid if its memory is not seen.
CHILDREN = """
import mmap, os, time
for _ in range(4):
    if os.fork() == 0:
        kept = mmap.mmap(-1, 80 << 20, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
        for place in range(0, 80 << 20, 4096): kept[place] = 1
        time.sleep(100)
time.sleep(20)
def f(x): return x * x
"""
# What holds the memory has touched none of it; who has touched it is gone.
GONE_CHILDREN = """
import mmap, os, time
for _ in range(3):
    if os.fork() == 0:
        kept = mmap.mmap(-1, 80 << 20)
        if os.fork() == 0:
            for place in range(0, 80 << 20, 4096): kept[place] = 1
            os._exit(0)
        os.wait()
        time.sleep(100)
time.sleep(20)
def f(x): return x * x
"""
SEGMENTS = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
for _ in range(4):
    number = libc.shmget(0, ctypes.c_size_t(80 << 20), 0o1600)
    where = libc.shmat(number, None, 0)
    ctypes.memset(where, 1, 80 << 20)
    libc.shmdt(ctypes.c_void_p(where))
time.sleep(20)
def f(x): return x * x
"""
PRIVATE = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        kept = bytearray(os.urandom(4096)) * (80 * 256)
        time.sleep(100)
time.sleep(20)
def f(x): return x * x
"""
# Two have 80 MiB at once and end before anybody looks; the program itself goes on and gives the right answer.
QUICK = """
import os
filled, fill = os.pipe()
go, wait = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        os.close(wait)
        kept = bytearray(os.urandom(4096)) * (80 * 256)
        os.close(fill)
        os.read(go, 1)
        os._exit(0)
os.close(fill)
os.read(filled, 1)
os.close(wait)
os.wait(), os.wait()
def f(x): return x * x
"""


@pytest.fixture(params=["as this machine has it", "without a control group"])
def way(request, monkeypatch):
    """Both ways of limiting memory."""
    if request.param == "without a control group":
        monkeypatch.setattr(sandbox, "place_for_groups", lambda: None)
    return request.param


@boxed
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("attack", ["CHILDREN", "GONE_CHILDREN", "SEGMENTS", "PRIVATE"])
def test_shared_memory_and_segments_count_as_private_memory_does(attack):
    assert run_tests(globals()[attack], SQUARE, LIMITS) == "memory_limit"


@boxed
@pytest.mark.parametrize(
    "code", ["libc.shmget(0, 4096, 0o1600)", "libc.semget(0, 1, 0o1600)", "libc.msgget(0, 0o1600)"]
)
def test_what_belongs_to_no_process_is_not_to_be_had(code):
    program = f"import ctypes\nlibc = ctypes.CDLL(None)\n{code}\ndef f(x): return x * x\n"
    assert run_tests(program, SQUARE, LIMITS) == "memory_limit"


@boxed
@pytest.mark.usefixtures("way")
def test_a_file_of_memory_is_not_to_be_had():
    assert run_tests("import os\nos.memfd_create('a')\ndef f(x): return x * x\n", SQUARE, LIMITS) == "memory_limit"
    assert run_tests("import os\ndef f(x): return x * x\n", SQUARE, LIMITS) == "passed"


@boxed
@pytest.mark.usefixtures("way")
def test_shared_memory_within_the_limit_is_allowed_and_counted_once():
    program = """
import mmap, os, time
kept = mmap.mmap(-1, 50 << 20)
for _ in range(4):
    if os.fork() == 0:
        for place in range(0, 50 << 20, 4096): kept[place] = 1
        time.sleep(0.3)
        os._exit(0)
for _ in range(4): os.wait()
def f(x): return x * kept[0] * x
"""
    assert run_tests(program, SQUARE, LIMITS) == "passed"


def groups():
    place = memory_groups.place_for_groups()
    return [] if place is None else list(place.folder.glob(f"dfc-sandbox-{os.getpid()}-*"))


def in_a_group():
    return memory_groups.place_for_groups() is not None


@boxed
@pytest.mark.skipif("not in_a_group()", reason="no control group can be made here")
def test_what_the_kernel_ended_between_two_looks_is_no_pass(monkeypatch):
    monkeypatch.setattr(sandbox, "_WATCH", 1e6)
    assert run_tests(QUICK, SQUARE, LIMITS) == "memory_limit"


@boxed
@pytest.mark.skipif("not in_a_group()", reason="no control group can be made here")
def test_a_box_has_a_group_of_its_own_from_its_first_process_on_and_leaves_none():
    assert groups() == []
    with Box("import sys, time\nsys.stdin.readline()\nprint(1, flush=True)\ntime.sleep(100)\n", LIMITS) as box:
        box.send(b"go")
        box.receive()
        (folder,) = groups()
        inside = {int(number) for number in (folder / "cgroup.procs").read_text().split()}
        assert inside == set(box_usage.descendants(box._usage._number))
        assert len(inside) == 2
    assert groups() == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_folder_that_is_no_control_group_is_none(tmp_path, version, monkeypatch):
    with pytest.raises(OSError, match="there is no such file"):
        MemoryGroup(Place(tmp_path, version), 64 * 2**20)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(memory_groups, "_candidates", lambda: [Place(tmp_path, version)])
    memory_groups.place_for_groups.cache_clear()
    try:
        assert memory_groups.place_for_groups() is None
    finally:
        memory_groups.place_for_groups.cache_clear()


def test_a_limit_that_does_not_read_back_is_none(tmp_path, monkeypatch):
    name = memory_groups._FILES[1].limit
    make = Path.mkdir

    def mkdir(self, *args, **kwargs):
        make(self, *args, **kwargs)
        (self / name).symlink_to("/dev/null")  # takes what is written, and reads back nothing

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(memory_groups, "_PATIENCE", 0.0)
    with pytest.raises(OSError, match="67108864 was written, and  reads back"):
        MemoryGroup(Place(tmp_path, 1), 64 * 2**20)


def test_groups_of_processes_that_are_no_more_are_removed_and_others_stay(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    for name in (f"dfc-sandbox-{ended.pid}-a", f"dfc-sandbox-{os.getpid()}-a", "dfc-sandbox-x", "other"):
        (tmp_path / name).mkdir()
    memory_groups._sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"dfc-sandbox-{os.getpid()}-a", "dfc-sandbox-x", "other"}


@boxed
def test_it_is_said_how_memory_is_limited(way):
    said = sandbox.memory_rule()
    assert ("checks of its processes" in said) == (way == "without a control group" or not in_a_group())


def test_a_system_whose_calls_are_not_known_runs_no_program():
    with pytest.raises(ConfigError, match="x86_64 or aarch64"):
        system_call_filter("sparc\x00")
    assert system_call_filter("aarch64") != system_call_filter("x86_64")


def test_shared_memory_of_this_process_is_seen_by_its_size():
    code = "import mmap,sys\nm=mmap.mmap(-1,8<<20)\nm.write(b'1'*(8<<20))\nprint(1,flush=True)\nsys.stdin.read()"
    with subprocess.Popen(  # noqa: S603 - our own code
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        private = box_usage._status(process.pid)["RssAnon"]
        assert Usage(process.pid).memory() == private + 8 * 2**20
        process.stdin.close()


@boxed
def test_looks_do_not_grow_with_messages(monkeypatch):
    looks = []
    check = Box.check
    monkeypatch.setattr(Box, "check", lambda self: (looks.append(self), check(self)))
    monkeypatch.setattr(sandbox, "_WATCH", 1e6)
    tests = ProgramTests("def check(candidate):\n  for n in range(50): assert candidate(n) == n\n", "f")
    assert run_tests("def f(x): return x", tests, LIMITS) == "passed"
    assert len(looks) == 2  # one of each box, before it passes
    looks.clear()
    monkeypatch.setattr(sandbox, "_WATCH", 0.05)
    begun = time.monotonic()
    with Box("import time\ntime.sleep(100)", Limits(1.0)) as box, pytest.raises(BoxEndedError, match="time_limit"):
        box.receive()
    assert 1 <= len(looks) <= (time.monotonic() - begun) / 0.05
