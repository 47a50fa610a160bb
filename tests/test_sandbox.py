"""The sandbox and programs' tests in it: what is right passes, and whatever a hostile program does pays nothing.

A hostile program here computes the right answer exactly if its attack has succeeded: a reward of 0 is the proof.
"""

import hashlib
import os
import secrets
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from dfc.errors import ConfigError, Interrupted
from dfc.scoring import programs, sandbox, scorer
from dfc.scoring.programs import Programs, ProgramTests, program_in, run_tests
from dfc.scoring.sandbox import Box, BoxEndedError, Limits

boxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason=f"programs need bubblewrap: {sandbox.INSTALL}")
LIMITS = Limits(wall_seconds=60.0, cpu_seconds=2, memory=192, processes=12)
CHECK = "def check(candidate):\n    assert candidate(3) == 9\n    assert candidate(-2) == 4\n"
SQUARE = ProgramTests(CHECK, "f", 'def f(x):\n    """Returns the square."""\n')
RIGHT = "def f(x):\n    return x * x\n"

# Each defines `won`: whether the attack succeeded.
ATTACKS = {
    "fork bomb": """
        import os
        born = 0
        try:
            while born < 64:
                if os.fork() == 0:
                    while True: os.fork()
                born += 1
        except OSError: pass
        won = born >= 64""",
    "many quiet processes": """
        import os, time
        born = 0
        try:
            while born < 30:
                if os.fork() == 0: time.sleep(30)
                born += 1
        except OSError: pass
        won = born >= 30""",
    "threads": """
        import threading, time
        begun = []
        try:
            for _ in range(200):
                t = threading.Thread(target=time.sleep, args=(30,), daemon=True); t.start(); begun.append(t)
        except Exception: pass
        won = len(begun) >= 200""",
    "memory": """
        try: won = len(bytearray(900 * 2**20)) > 0
        except MemoryError: won = False""",
    "memory of many processes": """
        import os, time
        for _ in range(8):
            if os.fork() == 0:
                kept = bytearray(os.urandom(4096)) * (100 * 256); time.sleep(30)
        time.sleep(4)
        won = True""",
    "disk": """
        won = True
        try:
            for n in range(80):
                with open(f"/tmp/{n}", "wb") as file: file.write(b"x" * 2**20)
        except OSError: won = False""",
    "one large file": """
        import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            with open("/tmp/large", "wb") as file: won = file.write(b"x" * 2**23) == 2**23
        except OSError: won = False""",
    "shared memory": """
        won = True
        try:
            for n in range(80):
                with open(f"/dev/shm/{n}", "wb") as file: file.write(b"x" * 2**20)
        except OSError: won = False""",
    "a file outside": """
        try: open({secret!r}).read(); won = True
        except OSError: won = False""",
    "passwords": """
        import os
        won = any(os.path.exists(p) for p in ("/etc/passwd", "/etc/shadow", "/root", "/home", "/var", "/sys"))""",
    "writing to the system": """
        won = False
        for place in ("/usr/bin/x", "/x", "/usr/lib/x", "/proc/sys/kernel/hostname", "/dev/x"):
            try: open(place, "w").write("x"); won = True
            except OSError: pass""",
    "environment": """
        import os, glob
        texts = [repr(dict(os.environ))]
        for path in glob.glob("/proc/*/environ"):
            try: texts.append(open(path, errors="replace").read())
            except OSError: pass
        won = "SANDBOX_SECRET" in "".join(texts)""",
    "the parent's memory": """
        import os, re, glob
        won, wanted = os.path.exists("/proc/{parent}/mem"), "=TERCES_XOBDNAS"[::-1].encode()
        for path in glob.glob("/proc/[0-9]*/maps"):
            if path.split("/")[2] == str(os.getpid()): continue
            try:
                for low, high in re.findall("([0-9a-f]+)-([0-9a-f]+) r", open(path).read()):
                    with open(path.replace("maps", "mem"), "rb", 0) as memory:
                        memory.seek(int(low, 16)); won = won or wanted in memory.read(int(high, 16) - int(low, 16))
            except (OSError, OverflowError, ValueError): pass""",
    "other processes": """
        import os
        won = os.path.exists("/proc/{parent}/cmdline") or len([n for n in os.listdir("/proc") if n.isdigit()]) > 3""",
    "network": """
        import socket
        try: socket.create_connection(("127.0.0.1", {port}), 2); won = True
        except OSError: won = False""",
    "outer network": """
        import socket
        won = False
        for family, place in ((socket.AF_INET, ("1.1.1.1", 53)), (socket.AF_INET6, ("2606:4700::1111", 53))):
            try: s = socket.socket(family, socket.SOCK_DGRAM); s.connect(place); s.send(b"x"); won = True
            except OSError: pass""",
    "an abstract socket": """
        import socket
        try: socket.socket(socket.AF_UNIX).connect("\\0{abstract}"); won = True
        except OSError: won = False""",
    "killing the parent": """
        import os, signal
        for pid in (os.getppid(), {parent}):
            try: os.kill(pid, signal.SIGKILL)
            except OSError: pass
        won = False""",
    "killing all": """
        import os, signal
        os.kill(-1, signal.SIGKILL)
        won = False""",
    "ignoring signals": """
        import signal, time
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: time.sleep(1)""",
    "ignoring the limit of time": """
        import signal
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        while True: pass""",
    "endless loop": "while True: pass",
    "endless sleep": "import time; time.sleep(3600)",
    "deep recursion": """
        import sys
        sys.setrecursionlimit(10**9)
        def dive(n): return dive(n + 1)
        dive(0)""",
    "a stack overflow in C": """
        x = []
        for _ in range(10**6): x = [x]
        repr(x); won = False""",
    "a crash": "import ctypes; ctypes.string_at(0)",
    "endless output": """
        import os, sys
        while True: print("x" * 10**6); sys.stderr.write("x" * 10**6)""",
    "endless output into the channel": """
        import os, __main__
        while True: os.write(__main__.channel_out, b"x" * 65536)""",
    "printing what is expected": """
        print("passed"); print(True); print(9); won = False""",
    "a forged verdict": """
        import os, json, __main__
        os.write(__main__.channel_out, json.dumps({{"verdict": "passed"}}).encode() + b"\\n"); won = False""",
    "a verdict of zeros": """
        import os, json, __main__
        said = json.dumps({{"verdict": "0" * 32, "value": True}}).encode() + b"\\n"
        for n in range(50): os.write(__main__.channel_out, said)
        won = False""",
    "ending early": "import os; os._exit(0)",
    "ending early by SystemExit": "import sys; sys.exit(0)",
    "ending in the call": """
        import os
        def f(x): os._exit(0)""",
    "an object that equals everything": """
        class Any(int):
            def __eq__(self, other): return True
            def __hash__(self): return 0
        def f(x): return Any(1)""",
    "an object of no type that equals everything": """
        class Any:
            def __eq__(self, other): return True
        def f(x): return Any()""",
    "replacing the checker": """
        import builtins, sys
        builtins.check = check = lambda candidate: None
        def trace(*a): return trace
        sys.settrace(trace)
        builtins.AssertionError = builtins.Exception = type("E", (BaseException,), {{}})
        won = False""",
    "replacing the codec": """
        import json
        import __main__
        __main__.encode = lambda value, depth=0: ["t", 9, 4]
        json.dumps = lambda data: '{{"value": true}}'
        won = False""",
    "searching the nonce": """
        import hashlib, re
        won = False
        for low, high in re.findall("([0-9a-f]+)-([0-9a-f]+) rw", open("/proc/self/maps").read()):
            try:
                with open("/proc/self/mem", "rb", 0) as memory:
                    memory.seek(int(low, 16)); text = memory.read(int(high, 16) - int(low, 16))
                found = re.findall(b"[0-9a-f]{{32}}", text)
                won = won or any(hashlib.sha256(one).hexdigest() == "{hashed}" for one in found)
            except OSError: pass""",
    "a tracer": """
        import ctypes, os
        libc = ctypes.CDLL(None)
        won = any(libc.ptrace(16, pid, 0, 0) == 0 for pid in ({parent}, 3))""",
    "becoming root": """
        import os
        won = False
        for change in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.chroot("/tmp")):
            try: change(); won = True
            except OSError: pass""",
    "a namespace of its own": """
        import ctypes
        won = ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0""",
    "raising its limits": """
        import resource
        won = False
        for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_CPU):
            try: resource.setrlimit(kind, (resource.RLIM_INFINITY,) * 2); won = True
            except (OSError, ValueError): pass""",
    "leaving a process behind": """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True: time.sleep(1)
            os._exit(0)
        won = False""",
    "a huge integer": "def f(x): return 10 ** (10 ** 8)",
    "nested without end": """
        def f(x):
            y = []
            y.append(y)
            return y""",
    "endless items": """
        import itertools
        def f(x): return itertools.count()""",
    "no Python": "def f(x: return",
    "zeros and half surrogates": "def f(x):\n return '\\0\\ud800'",
}


def source(attack, **values):
    """The program of an attack, whose answer is right if it succeeded."""
    for name, value in values.items():
        attack = attack.replace(f"{{{name}}}", str(value)).replace(f"{{{name}!r}}", repr(value))
    lines = attack.replace("{{", "{").replace("}}", "}").strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    text = "\n".join(line[indent:] if not line[:indent].strip() else line for line in lines)
    return text if "def f(" in text else f"{text}\ndef f(x): return x * x if won else 'no'\n"


def running(marker):
    """Processes whose command line holds a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.fixture
def marker(monkeypatch):
    """What the command lines of the boxes of this test hold."""
    text = f"marker_{secrets.token_hex(8)}"
    monkeypatch.setattr(programs, "_PROGRAM", f"# {text}{programs._PROGRAM}")
    return text


@boxed
def test_no_attack_pays_and_nothing_is_left_running(marker, tmp_path, monkeypatch):
    assert len(ATTACKS) >= 30
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret").chmod(0o644)
    monkeypatch.setenv("SANDBOX_SECRET", "1")
    nonce = secrets.token_hex(16)
    monkeypatch.setattr(programs.secrets, "token_hex", lambda _: nonce)
    abstract = f"dfc-{os.getpid()}-{time.monotonic_ns()}"
    threads = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(f"\0{abstract}")
        local.listen()
        values = {
            "secret": str(tmp_path / "secret"),
            "port": server.getsockname()[1],
            "parent": os.getpid(),
            "abstract": abstract,
            "hashed": hashlib.sha256(nonce.encode()).hexdigest(),
        }

        def attacked(name):
            return run_tests(source(ATTACKS[name], **values), SQUARE, replace(LIMITS, wall_seconds=10.0))

        with ThreadPoolExecutor(6) as pool:
            found = dict(zip(ATTACKS, pool.map(attacked, ATTACKS), strict=True))
    assert {name for name, happened in found.items() if happened == "passed"} == set()
    assert running(marker) == []
    assert set(threading.enumerate()) <= threads  # those of an earlier test may have ended meanwhile


@boxed
@pytest.mark.parametrize(
    ("attack", "expected"),
    [
        ("endless sleep", "time_limit"),
        ("ignoring signals", "time_limit"),
        ("endless loop", "time_limit"),
        ("ignoring the limit of time", "time_limit"),
        ("memory of many processes", "memory_limit"),
        ("endless output into the channel", "output_limit"),
        ("ending early", "ended"),
        ("ending in the call", "ended"),
        ("an object that equals everything", "failed"),
    ],
)
def test_it_is_said_which_limit_a_program_ran_into(attack, expected):
    # Time is the limit meant where it is expected; elsewhere a slow machine must not run into it first.
    limits = replace(LIMITS, wall_seconds=2.0 if expected == "time_limit" else 60.0)
    assert run_tests(source(ATTACKS[attack]), SQUARE, limits) == expected


@boxed
def test_what_is_right_passes_under_the_same_limits_and_an_attack_that_won_would_too(marker):
    assert run_tests(RIGHT, SQUARE, LIMITS) == "passed"
    assert run_tests(source("won = True"), SQUARE, LIMITS) == "passed"
    assert run_tests(source("won = False"), SQUARE, LIMITS) == "failed"
    assert running(marker) == []


@boxed
def test_memory_of_the_program_is_watched_while_the_tests_compute(marker):
    program = """
import os, time
def f(x):
    if x == 0:
        for _ in range(4):
            if os.fork() == 0:
                time.sleep(0.5)
                kept = bytearray(os.urandom(4096)) * (100 * 256)
                time.sleep(30)
    return x * x
"""
    tests = ProgramTests("def check(candidate):\n    candidate(0)\n    import time\n    time.sleep(3)\n", "f")
    assert run_tests(program, tests, LIMITS) == "memory_limit"
    assert running(marker) == []


@boxed
def test_a_program_runs_as_nobody_even_where_the_parent_is_root():
    code = "import os, sys\nsys.stdin.readline()\nprint(os.getuid(), os.geteuid(), flush=True)\nsys.stdin.readline()\n"
    with Box(code, LIMITS) as box:
        box.send(b"go")
        assert box.receive() == b"65534 65534"
        outer = Path(f"/proc/{box._number}").stat().st_uid
    assert outer == (65534 if os.geteuid() == 0 else os.geteuid())


@boxed
def test_a_closed_box_is_over_and_closing_twice_is_nothing():
    marker = f"marker_{secrets.token_hex(8)}"
    box = Box(f"# {marker}\nimport time\ntime.sleep(100)\n", LIMITS)
    assert running(marker)
    box.close()
    box.close()
    assert running(marker) == []


@boxed
def test_who_waits_in_vain_is_told_at_the_limit():
    with Box("import time\ntime.sleep(100)\n", Limits(wall_seconds=1.0)) as box:
        with pytest.raises(BoxEndedError, match="time_limit"):
            box.receive()
        with pytest.raises(BoxEndedError, match="time_limit"):
            box.send(b"x" * 10**6)


VALUES = [
    "None", "True", "0", "-5", "2**200", "1.5", "float('inf')", "'a\\u00e9\\n'", "b'\\x00a'", "[1, [2]]", "(1, (2,))",
    "{1, 2}", "frozenset({1})", "{'a': [1], (1, 2): None}", "1j", "range(2, 9, 3)", "['i', '0x1']",
]  # fmt: skip


@boxed
def test_values_come_and_go_as_they_are():
    same = "\n".join(f"    assert candidate({value}) == {value}" for value in VALUES)
    kinds = "\n".join(f"    assert type(candidate({value})) is type({value})" for value in VALUES)
    tests = ProgramTests(f"def check(candidate):\n{same}\n{kinds}\n    assert candidate(0.0) != candidate(1)\n", "f")
    assert run_tests("def f(x): return x", tests, LIMITS) == "passed"
    lazy = ProgramTests("def check(candidate):\n    assert list(candidate(3)) == [0, 1, 2]\n", "f")
    assert run_tests("def f(x): return (i for i in range(x))", lazy, LIMITS) == "passed"
    assert run_tests("def f(x): return map(abs, range(x))", lazy, LIMITS) == "passed"
    assert run_tests("def f(x): return 5", lazy, LIMITS) == "failed"


@boxed
def test_an_error_of_the_program_reaches_the_tests_by_its_name():
    tests = ProgramTests(
        "def check(candidate):\n    try: candidate(0)\n    except ZeroDivisionError: return\n    assert False\n", "f"
    )
    assert run_tests("def f(x): return 1 / x", tests, LIMITS) == "passed"
    assert run_tests("def f(x): raise ValueError", tests, LIMITS) == "failed"


@boxed
def test_tests_of_mbpp_name_functions_and_classes_of_the_program():
    tests = ProgramTests(
        "assert longest([Pair(1, 2), Pair(2, 5)]) == 3\nassert Pair(4, 6).b == 6\nassert math.isclose(half(1), 0.5)",
        setup="import math",
    )
    right = "class Pair:\n  def __init__(self, a, b): self.a, self.b = a, b\n"
    right += "def longest(pairs): return max(p.b - p.a for p in pairs)\ndef half(x): return math.fabs(x) / 2\n"
    assert tests.problem() is None
    assert run_tests(program_in(right, tests), tests, LIMITS) == "passed"
    assert run_tests(program_in(right.replace("- p.a", ""), tests), tests, LIMITS) == "failed"


@boxed
@pytest.mark.parametrize("imports", ["", "import math"])
@pytest.mark.parametrize("entry_point", ["", "f"])
def test_a_module_in_tests_is_pythons_own_and_not_the_programs(imports, entry_point):
    asserts = "assert math.isclose(f(3), 9.0, rel_tol=1e-9)\nassert math.isclose(f(-2), 4.0)"
    if entry_point:
        asserts = "def check(f):\n  " + asserts.replace("\n", "\n  ")
    tests = ProgramTests(asserts, entry_point, setup=imports)
    assert run_tests(RIGHT, tests, LIMITS) == "passed"
    cheat = "class math: isclose = staticmethod(lambda *a, **k: True)\ndef f(x): return 0"
    assert run_tests(cheat, tests, LIMITS) == "failed"


@boxed
def test_what_tests_call_by_a_modules_name_is_the_programs_and_what_they_define_is_theirs():
    called = ProgramTests("assert select([3, 1], 2) == [3]\nassert select(range(2), 0) == [1]")
    assert run_tests("def select(rows, least): return [r for r in rows if r > least]", called, LIMITS) == "passed"
    defined = ProgramTests("class string: upper = 'A'\nassert f('a') == string.upper")
    assert run_tests("def f(x): return 'A'", defined, LIMITS) == "passed"
    assert run_tests("def f(x): return 'B'", defined, LIMITS) == "failed"


@boxed
def test_a_program_cannot_end_the_loop_of_the_tests():
    tests = ProgramTests(
        "def check(candidate):\n  for got, want in zip(map(candidate, [1, 2]), [1, 4]):\n    assert got == want\n",
        "f",
    )
    assert run_tests("def f(x): return x * x", tests, LIMITS) == "passed"
    assert run_tests("def f(x): raise StopIteration", tests, LIMITS) == "failed"
    # What it gives back may end, as any iterator does.
    lazy = ProgramTests("def check(candidate):\n    assert next(candidate(0), 7) == 7\n", "f")
    assert run_tests("def f(x): return iter(())", lazy, LIMITS) == "passed"


@boxed
def test_tests_that_call_nothing_pass_nobody():
    assert run_tests(RIGHT, ProgramTests("assert True"), LIMITS) == "failed"


@boxed
def test_helpers_of_a_prompt_are_its_own_in_the_tests():
    prelude = 'def helper(x):\n    return 2 * x\n\ndef f(x):\n    """Doubles."""\n'
    tests = ProgramTests("def check(candidate):\n    assert candidate(3) == helper(3)\n", "f", prelude)
    assert run_tests(program_in("    return helper(x)", tests), tests, LIMITS) == "passed"
    cheat = "def helper(x): return 0\ndef f(x): return 0\n"
    assert run_tests(program_in(cheat, tests), tests, LIMITS) == "failed"
    unknown = ProgramTests("def check(candidate):\n    assert candidate(3) == helper(3)\n", "f")
    assert run_tests(cheat, unknown, LIMITS) == "failed"


@boxed
@pytest.mark.parametrize(
    "said", ['{"verdict": "passed"}', "[]", "no JSON", '{"verdict": null, "call": 1, "x": NaN', "{}"]
)
def test_only_the_number_that_was_sampled_is_a_pass(said, monkeypatch):
    monkeypatch.setattr(programs, "_TESTS", f"hear()\nos.write(channel_out, {said!r}.encode() + b'\\n')\n")
    assert run_tests(RIGHT, SQUARE, LIMITS) == "failed"


@boxed
def test_the_scorer_gives_one_and_zero_and_masks_what_has_no_tests():
    score = Programs({"q": SQUARE}, LIMITS)
    answers = [f"So:\n```python\n{RIGHT}```\nDone.", "I cannot.", "    return x * x", "x" * 300_000, RIGHT]
    scores = score(["q"] * 4 + ["other"], answers)
    assert scores.values.tolist() == [1, 0, 1, 0, 0]
    assert scores.mask.tolist() == [True] * 4 + [False]
    assert dict(scores.counts) == {"passed": 2, "failed": 1, "too_long": 1, "no_reference": 1}


def test_a_stop_ends_the_scoring_of_programs(monkeypatch):
    begun, over = [], threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait=True, *, cancel_futures=False):
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            over.set()
            super().shutdown(wait=wait)

    def run(program, *_):
        begun.append(program)
        if len(begun) > 1:
            over.wait(10)  # until those that wait were given up
        return "passed"

    def check_stop():
        raise Interrupted(15)

    monkeypatch.setattr(scorer, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(programs, "run_tests", run)
    monkeypatch.setattr(programs, "interpreter", lambda: "python")
    with pytest.raises(Interrupted):
        Programs({"q": SQUARE}, LIMITS, 1, check_stop)(["q"] * 6, [RIGHT] * 6)
    assert len(begun) <= 2


def test_the_block_that_defines_the_function_is_the_program():
    answer = "```\npip install x\n```\n```python\ndef g(): pass\n```\n```py\ndef f(x): pass\n```"
    assert "def f" in program_in(answer, ProgramTests("a", "f"))
    assert "pip" not in program_in(answer, SQUARE)
    assert "def g" in program_in(answer, ProgramTests("a"))
    assert "pip" in program_in("```\npip", ProgramTests("a"))
    assert program_in("    return 1", SQUARE).startswith("\n" + SQUARE.prelude)


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        (ProgramTests(""), "no tests"),
        (ProgramTests("assert f(1 ="), "cannot be parsed"),
        (ProgramTests("(" * 10_000), "cannot be parsed"),
        (ProgramTests("-" * 200_000 + "1"), "cannot be parsed"),
        (ProgramTests("x = 1", "f"), "no function check"),
        (ProgramTests(CHECK, "f(1)"), "no name"),
        (ProgramTests(CHECK, "f", "def f(x"), "the prompt cannot be parsed"),
        (ProgramTests("x" * 2_000_000), "takes more than"),
        (ProgramTests("a\x00"), "cannot be parsed"),
    ],
)
def test_tests_that_cannot_run_are_named(tests, message):
    assert message in tests.problem()


def test_without_bubblewrap_programs_are_refused_with_the_command_that_installs_it(monkeypatch):
    sandbox.interpreter.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda _: None)
    try:
        with pytest.raises(ConfigError, match="apt-get install -y bubblewrap"):
            Programs({"q": SQUARE})
        with pytest.raises(ConfigError, match="bwrap is not installed"):
            run_tests(RIGHT, SQUARE, LIMITS)
        assert "apt-get install -y bubblewrap" in sandbox.problems()[0]
    finally:
        sandbox.interpreter.cache_clear()
