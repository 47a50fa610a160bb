"""Results compare with what tests expect, builtins are whose they should be, and processor time decides."""

import json
import shutil

import pytest

from dfc.config import CheckingConfig
from dfc.scoring import programs, sandbox
from dfc.scoring.program_names import builtins_called, builtins_of_the_program
from dfc.scoring.programs import ProgramTests, run_tests
from dfc.scoring.sandbox import Limits

boxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason=f"programs need bubblewrap: {sandbox.INSTALL}")
LIMITS = Limits(wall_seconds=120.0, cpu_seconds=10)

# ---- values ----------------------------------------------------------------------------------------------------------

IMPORTS = """
import datetime, collections, fractions, decimal
from fractions import Fraction
from decimal import Decimal
from datetime import date, time, timedelta, timezone
from collections import deque, OrderedDict, Counter, defaultdict
"""
VALUES = [
    "Fraction(1, 3)", "Fraction(-2**80, 3)", "Decimal('1.10')", "Decimal('-Infinity')", "Decimal('1e-50')",
    "datetime.datetime(2024, 2, 29, 1, 2, 3, 4)", "datetime.datetime(2024, 2, 29, tzinfo=timezone(timedelta(hours=2)))",
    "date(1, 1, 1)", "time(1, 2, 3, 4)", "time(1, tzinfo=timezone.utc)", "timedelta(-3, 5, 7)",
    "deque([1, [2], Fraction(1, 2)])", "deque([1, 2, 3], 2)", "OrderedDict([('b', 1), ('a', (2,))])",
    "Counter('abba')", "Counter({'a': 0})", "defaultdict(list, {1: [2]})", "[{Decimal('2'): deque()}]",
]  # fmt: skip


@boxed
def test_values_of_the_standard_library_come_and_go_as_they_are():
    lines = [f"    assert candidate({value}) == {value}" for value in VALUES]
    lines += [f"    assert type(candidate({value})) is type({value})" for value in VALUES]
    lines += ["    assert candidate(deque([1, 2, 3], 2)).maxlen == 2", "    candidate(defaultdict(list))[1].append(1)"]
    lines += ["    assert candidate(OrderedDict(a=1, b=2)) != OrderedDict(b=2, a=1)"]
    lines += [
        "    assert candidate(Decimal('1.10')) != Decimal('1.1000001') and str(candidate(Decimal('1.10'))) == '1.10'"
    ]
    tests = ProgramTests("def check(candidate):\n" + "\n".join(lines), "f", setup=IMPORTS)
    assert run_tests("def f(x): return x", tests, LIMITS) == "passed"


@boxed
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("from fractions import Fraction\ndef f(x): return Fraction(x, 6)", "Fraction(1, 2)"),
        ("from decimal import Decimal\ndef f(x): return Decimal(x) / 2", "Decimal('1.5')"),
        ("import datetime\ndef f(x): return datetime.datetime(2020, 1, x)", "datetime.datetime(2020, 1, 3)"),
        ("import datetime\ndef f(x): return datetime.date(2020, 1, x)", "date(2020, 1, 3)"),
        ("from collections import deque\ndef f(x): return deque(range(x))", "deque([0, 1, 2])"),
        ("from collections import Counter\ndef f(x): return Counter(a=x, b=0)", "Counter(a=3)"),
        ("from enum import Enum\nclass C(str, Enum): A = 'a'\ndef f(x): return C.A", "'a'"),
    ],
)
def test_what_a_right_program_gives_back_equals_what_is_expected(program, expected):
    tests = ProgramTests(f"def check(candidate):\n    assert candidate(3) == {expected}\n", "f", setup=IMPORTS)
    assert run_tests(program, tests, LIMITS) == "passed"
    wrong = ProgramTests(f"def check(candidate):\n    assert candidate(4) == {expected}\n", "f", setup=IMPORTS)
    assert run_tests(program, wrong, LIMITS) == ("passed" if "Enum" in program else "failed")


EVERYTHING = "    def __eq__(self, other): return True\n    def __hash__(self): return 0\n"
HOSTILE = [
    f"class S(str):\n{EVERYTHING}    def __str__(self): return self\ndef f(x): return S('no')",
    f"from fractions import Fraction as B\nclass Fraction(B):\n{EVERYTHING}def f(x): return Fraction(7, 5)",
    f"from decimal import Decimal as B\nclass Decimal(B):\n{EVERYTHING}def f(x): return Decimal(7)",
    f"from datetime import date as B\nclass date(B):\n{EVERYTHING}def f(x): return date(9, 9, 9)",
    f"from collections import deque as B\nclass deque(B):\n{EVERYTHING}def f(x): return deque([1])",
    f"class Fraction:\n{EVERYTHING}Fraction.__module__ = 'fractions'\ndef f(x): return Fraction()",
    (
        f"import sys, types\nclass Decimal(str):\n{EVERYTHING}m = types.ModuleType('decimal'); m.Decimal = Decimal\n"
        "sys.modules['decimal'] = m\ndef f(x): return Decimal('1')"
    ),
    "from decimal import Decimal\ndef f(x): return Decimal('1e999999999')",
    "from decimal import Decimal\ndef f(x): return Decimal('0e-999999999')",
    "from decimal import Decimal\ndef f(x): return Decimal('sNaN')",
    "from decimal import Decimal\ndef f(x): return Decimal('9' * 900_000)",
    "from fractions import Fraction\ndef f(x): return Fraction(2**3_000_001)",
    "from collections import deque\ndef f(x):\n  d = deque(); d.append(d); return d",
    (
        "from collections import deque\nclass D(deque):\n  def __iter__(self):\n    while True: yield 1\n"
        "def f(x): return D([1])"
    ),
    (
        "from datetime import datetime, tzinfo, timedelta\nclass Z(tzinfo):\n  def utcoffset(self, d): return x\n"
        "def f(x): return datetime(1, 1, 1, tzinfo=Z())"
    ),
]
FORGED = [
    '["D", "1e999999999"]', '["D", ["1"]]', '["D", "1", "2"]', '["D"]', '["D", "9e99999999999999999999"]',
    '["Z", 1]', '["q", "0x1", "0x0"]', '["q", "0x1", "0x1", "0x1"]', '["q", 1, 2]', '["q", "-", "+"]',
    '["T", 1, 1, 1]', '["T", "2020-01-01"]', '["T", 1, 1, 1, 0, 0, 0, 0, [9999999, 0, 0], 0]',
    '["m", 1, 1, 1, 1, [1], 0]', '["y", 2020, true, 1]', '["e", 1e300, 0, 0]', '["e", 1, 2]', '["Q", -1]',
    '["Q", 1e99]', '["Q"]', '["C", 1]', '["O", [1]]', '["F", "exec", [1]]', '["F", []]', "[[]]",
]  # fmt: skip


@boxed
@pytest.mark.parametrize("program", HOSTILE, ids=range(len(HOSTILE)))
def test_what_a_hostile_value_says_of_itself_decides_nothing(program):
    tests = ProgramTests(
        "def check(candidate):\n    got = candidate(3)\n"
        "    assert got in (Fraction(1, 2), Decimal(2), date(1, 2, 3), deque([2]), 'x')\n",
        "f",
        setup=IMPORTS,
    )
    # Items that never end take all the time or memory; every other value is seen at once.
    endless = {"time_limit", "memory_limit"} if "yield" in program else set()
    assert run_tests(program, tests, Limits(120.0, 1)) in {"failed"} | endless


@boxed
def test_forged_letters_are_an_error_of_the_test_and_nothing_more():
    answers = "\n".join(f"    except_(candidate, {number})" for number in range(len(FORGED)))
    tests = ProgramTests(
        "def except_(candidate, number):\n    try: candidate(number)\n    except Exception: return\n"
        f"    raise AssertionError(number)\ndef check(candidate):\n{answers}\n    assert candidate(-1) == 9\n",
        "f",
    )
    program = (
        f"import os, __main__\nFORGED = {[json.loads(one) for one in FORGED]!r}\n"
        "def encode(value, depth=0): return 9 if value == -1 else FORGED[value]\n"
        "__main__.encode = encode\ndef f(x): return x\n"
    )
    assert run_tests(program, tests, LIMITS) == "passed"


# ---- builtins --------------------------------------------------------------------------------------------------------

OWN = {
    "sum": "def sum(a, b): return a + b",
    "max": "def max(a, b, c): return a + b - c",
    "min": "min = lambda a: -a",
    "sorted": "def sorted(a, b): return [b, a]",
    "reversed": "def reversed(x): return str(x)[::-1]",
    "pow": "def pow(a): return a ** 3",
    "round": "def round(a, b, c): return a",
    "filter": "def filter(rows): return [r for r in rows if r > 1]",
    "map": "def map(x): return {x: 1}",
    "len": "def len(a, b): return a * b",
    "abs": "class abs:\n  def __new__(cls, a, b): return a - b",
    "hash": "def hash(x): return 'h' + x",
    "next": "def next(n): return n + 1",
    "range": "def range(rows): return rows[-1] - rows[0]",
    "set": "def set(n, bit): return n | 1 << bit",
    "zip": "def zip(a): return a * 2",
}
CALLS = {
    "sum": "(10, 15) == 25", "max": "(1, 2, 5) == -2", "min": "(4) == -4", "sorted": "(1, 2) == [2, 1]",
    "reversed": "(123) == '321'", "pow": "(2) == 8", "round": "(7, 8, 9) == 7", "filter": "([1, 2]) == [2]",
    "map": "(2) == {2: 1}", "len": "(3, 4) == 12", "abs": "(3, 5) == -2", "hash": "('a') == 'ha'", "next": "(4) == 5",
    "range": "([1, 7]) == 6", "set": "(4, 0) == 5", "zip": "('ab') == 'abab'",
}  # fmt: skip


@boxed
@pytest.mark.parametrize("name", OWN)
def test_a_builtin_that_tests_call_and_the_program_defines_is_the_programs(name):
    tests = ProgramTests(f"assert {name}{CALLS[name]}")
    assert run_tests(OWN[name], tests, LIMITS) == "passed"
    assert run_tests(OWN[name].replace(name, "other", 1), tests, LIMITS) == "failed"


@boxed
def test_mbpp_126_is_passed_by_its_program_and_by_no_other():
    tests = ProgramTests("assert sum(10,15) == 6\nassert sum(100,150) == 93\nassert sum(4,6) == 3")
    right = """
def sum(a, b):
    total = 0
    for i in range(1, min(a, b)):
        if a % i == 0 and b % i == 0:
            total += i
    return total
"""
    assert run_tests(right, tests, LIMITS) == "passed"
    assert run_tests(right.replace("total += i", "total += 1"), tests, LIMITS) == "failed"
    assert run_tests("def other(a, b): return 6", tests, LIMITS) == "failed"


@boxed
@pytest.mark.parametrize(
    ("tests", "right", "cheat"),
    [
        ("assert len(f(3)) == 3", "def f(x): return [0] * x", "def len(x): return 3\ndef f(x): return 0"),
        ("assert set(f(3)) == set((1, 2))", "def f(x): return [1, 2]", "def set(x): return 0\ndef f(x): return 0"),
        ("r = f(3)\nassert len(r) == 3", "def f(x): return 'abc'", "def len(x): return 3\ndef f(x): return 0"),
        (
            "assert sorted(f(3)) == [1, 2]",
            "def f(x): return [2, 1]",
            "def sorted(x): return [1, 2]\ndef f(x): return 0",
        ),
        (
            "for x in range(3): assert f(x) == 2 * x",
            "def f(x): return x + x",
            "def range(x): return []\ndef f(x): return 0",
        ),
        ("assert abs(f(3) - 3) < 1", "def f(x): return x", "def abs(x): return 0\ndef f(x): return 0"),
        ("assert sum(f(2), 1) == 4", "def f(x): return [1, x]", "def sum(a, b): return 4\ndef f(x): return 0"),
        ("assert f(3) == abs(-9)", "def f(x): return x * x", "def abs(x): return 0\ndef f(x): return 0"),
        ("want = set([3])\nassert f(3) == want", "def f(x): return {x}", "def set(x): return 0\ndef f(x): return 0"),
        ("assert all(f(x) == x for x in (1, 2))", "def f(x): return x", "def all(x): return True\ndef f(x): return 0"),
        ("assert set(zip([1])) == set([2])", "def zip(x): return [2]", "def set(x): return 0\ndef zip(x): return 0"),
        ("assert abs(pow(2) - 8) < 1", "def pow(x): return 8.1", "def abs(x): return 0\ndef pow(x): return 0"),
        ("r = pow(2)\nassert abs(r - 8) < 1", "def pow(x): return 8.1", "def abs(x): return 0\ndef pow(x): return 0"),
    ],
)
def test_a_program_cannot_say_what_a_builtin_is_that_looks_at_a_result(tests, right, cheat):
    assert run_tests(right, ProgramTests(tests), LIMITS) == "passed"
    assert run_tests(cheat, ProgramTests(tests), LIMITS) == "failed"


@boxed
def test_a_program_that_defines_no_builtin_leaves_python_its_own_and_a_helper_decides_nothing():
    tests = ProgramTests("assert sum(f(3)) == 3\nassert max(f(4)) == 3\nassert list(range(2)) == [0, 1]")
    assert run_tests("def f(x): return range(x)", tests, LIMITS) == "passed"
    assert run_tests("def max(a, b, c): return a\ndef f(x): return range(x)", tests, LIMITS) == "passed"
    both = ProgramTests("assert sum(10, 15) == 25\nassert 4 == sum(1, 3)\nassert f(2) == 4")
    assert run_tests("def sum(a, b): return a + b\ndef f(x): return x * x", both, LIMITS) == "passed"


def test_which_builtins_may_be_the_programs_is_read_from_the_tests():
    assert builtins_called(ProgramTests("assert sum(1, 2) == 3")) == ("sum",)
    assert builtins_called(ProgramTests("def check(c): assert sum(c, 2) == 3", "sum")) == ()
    assert builtins_called(ProgramTests("assert sum(1, 2) == 3", setup="from operator import add as sum")) == ()
    assert builtins_called(ProgramTests("try: f(1)\nexcept ValueError: raise ValueError(1)")) == ()
    tests = ProgramTests("assert sum(range(3), 1) == 4")
    assert builtins_of_the_program(tests, frozenset({"sum"})) == ("sum",)
    assert builtins_of_the_program(tests, frozenset({"sum", "range"})) == ("range",)


@boxed
@pytest.mark.parametrize("said", ['{"value": 1}', "[]", "no JSON", '{"value": [["sum"]]}', "{}", "[" * 5000])
def test_a_program_that_lies_about_what_it_defines_defines_nothing(said, monkeypatch):
    monkeypatch.setattr(
        programs, "_PROGRAM", f"hear(); hear()\nos.write(channel_out, {said!r}.encode() + b'\\n')\nhear()\n"
    )
    assert run_tests("", ProgramTests("assert sum([1], 15) == 16"), LIMITS) == "failed"


# ---- time ------------------------------------------------------------------------------------------------------------


@boxed
def test_two_thousand_calls_of_a_right_program_pass():
    tests = ProgramTests("def check(candidate):\n  for n in range(2000): assert candidate([n] * 40)[0] == n\n", "f")
    assert run_tests("def f(x): return x", tests, Limits()) == "passed"


@boxed
def test_ten_large_results_pass_and_one_line_without_end_does_not():
    tests = ProgramTests(
        "def check(candidate):\n  for n in range(10): assert len(candidate(200_000)) == 200_000\n", "f"
    )
    assert run_tests("def f(x): return 'x' * x", tests, LIMITS) == "passed"
    assert run_tests("def f(x): return 'x' * 2_000_000", tests, LIMITS) == "output_limit"


BURN = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        while time.process_time() < 0.7: pass
        os._exit(0)
{wait}
def f(x): return x
"""


@boxed
@pytest.mark.parametrize("wait", ["for _ in range(4): os.wait()", "for _ in range(4): pass\ntime.sleep(100)"])
def test_processor_time_of_all_processes_counts_together(wait):
    tests = ProgramTests("def check(candidate): assert candidate(1) == 1\n", "f")
    assert run_tests(BURN.format(wait=wait), tests, Limits(600.0, 2)) == "time_limit"
    assert (
        run_tests(BURN.replace("0.7", "0.05").format(wait="for _ in range(4): os.wait()"), tests, Limits(600.0, 2))
        == "passed"
    )


def test_the_clock_on_the_wall_lies_far_beyond_processor_time():
    assert Limits().wall_seconds >= 10 * Limits().cpu_seconds
    assert CheckingConfig().program_seconds >= 10 * CheckingConfig().program_cpu_seconds


@boxed
def test_who_waits_longer_than_processor_time_allows_passes_and_who_sleeps_for_ever_ends():
    tests = ProgramTests("def check(candidate): assert candidate(1) == 1\n", "f")
    assert run_tests("import time\ndef f(x):\n  time.sleep(2)\n  return x", tests, Limits(120.0, 1)) == "passed"
    assert run_tests("import time\ndef f(x): time.sleep(1000)", tests, Limits(3.0, 1)) == "time_limit"


@boxed
@pytest.mark.parametrize("way", ["", "  t = threading.Thread(target=spin)\n  t.start()\n  t.join()\n"])
def test_who_computes_does_not_sleep_however_long_the_machine_takes(way, monkeypatch):
    monkeypatch.setattr(sandbox, "_LAST", 1000.0)
    program = "import threading, time\ndef spin():\n  while time.process_time() < 4: pass\n"
    program += f"def f(x):\n{way or '  spin()'}\n  return x"
    tests = ProgramTests("def check(candidate): assert candidate(1) == 1\n", "f")
    assert run_tests(program, tests, Limits(3.0, 10)) == "passed"
    assert run_tests(program.replace("< 4", "< 100"), tests, Limits(3.0, 1)) == "time_limit"
