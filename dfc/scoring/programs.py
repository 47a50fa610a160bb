"""Programs in answers, run against tests: right or wrong, decided where the program cannot reach.

Two boxes (`dfc.scoring.sandbox`) stand beside each other. In one runs the answer's program and nothing else. In the
other run the tests, in which the program's functions are stand-ins: a call goes as data to the first box, and what
comes back is data again, never an object of the program. The tests' box ends with a number that was sampled for it and
that the program's box never sees. So a program that ends early, prints what is expected, replaces the checker, or
returns an object that equals everything, has not passed: it can only answer calls.

What travels: None, bools, numbers, texts, bytes, lists, tuples, sets, dictionaries, ranges, and iterators as what they
yield; of other values (an instance of a class of the program's) a reference that later calls may pass back. Departures
from running both in one process: arguments are copies, so a test sees no change of them, and tests cannot pass
functions; a StopIteration of the program is a RuntimeError in the tests, as in a generator: it would end a loop of
theirs over ``map`` early. A module of the standard library that tests use without importing it is imported for them: a
program's own ``math`` must not decide. Layouts: HumanEval (arXiv 2107.03374), whose ``prompt`` also gives the tests
their helpers, and MBPP (arXiv 2108.07732), whose tests may name anything else that the program defines.
"""

import ast
import dataclasses
import functools
import hmac
import json
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence

from dfc.scoring.sandbox import Box, BoxEndedError, Limits, interpreter
from dfc.scoring.scorer import LONGEST_ANSWER, Scores, checked_pairs, scores_of_each

LONGEST_TESTS = 1_000_000  # characters; the longest of HumanEval have 50,000


@dataclasses.dataclass(frozen=True)
class ProgramTests:
    """What decides whether a program is right.

    Attributes:
      tests: Python. With `entry_point` it defines ``check(candidate)``; else it is run as it is.
      entry_point: the function of the program that is checked; empty: the tests name the program's functions.
      prelude: what stands before the program, as in HumanEval, where an answer may continue it; the tests see it, too.
      setup: Python that the tests need, such as imports; the program has it too.
    """

    tests: str
    entry_point: str = ""
    prelude: str = ""
    setup: str = ""

    def problem(self) -> str | None:
        """Returns why these tests cannot be run, or None."""
        if max(map(len, (self.tests, self.prelude, self.setup))) > LONGEST_TESTS:
            return f"takes more than {LONGEST_TESTS} characters"
        if not self.tests.strip():
            return "there are no tests"
        for name, text in (("tests", self.tests), ("prompt", self.prelude), ("setup", self.setup)):
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                return f"the {name} cannot be parsed as Python: {error or type(error).__name__}"
            defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            if name == "tests" and self.entry_point and "check" not in defined:
                return "the tests define no function check(candidate)"
        if self.entry_point and not self.entry_point.isidentifier():
            return f"entry_point {self.entry_point!r} is no name of a function"
        return None


def program_in(answer: str, tests: ProgramTests) -> str:
    """Returns the program of an answer: its code block, or all of it, after what the query began.

    Of several blocks the first one counts that defines `entry_point`, else the first that defines a function, else the
    first.
    """
    parts = answer.split("```")
    blocks = [part.partition("\n")[2] if part.partition("\n")[0].strip().isalnum() else part for part in parts[1::2]]
    wanted = [f"def {tests.entry_point}"] if tests.entry_point else []
    code = answer
    if blocks:
        code = next((block for word in [*wanted, "def "] for block in blocks if word in block), blocks[0])
    return f"{tests.setup}\n{tests.prelude}\n{code}"


def run_tests(program: str, tests: ProgramTests, limits: Limits) -> str:
    """Runs a program against tests; returns what happened.

    Args:
      program: Python of anybody.
      tests: `ProgramTests.problem` is None.
      limits: of each of the two boxes.

    Returns:
      ``passed``; ``failed``: a test was not fulfilled, or the program raised; ``time_limit``, ``memory_limit``,
      ``output_limit``; ``ended``: the program ended its process, or there is no program.

    Raises:
      ConfigError: no program can be run here. ScoringError: a box cannot be started.
    """
    nonce = secrets.token_hex(16)
    task = {"nonce": nonce, "modules": _modules(tests), **dataclasses.asdict(tests)}
    try:
        with Box(_VALUES + _PROGRAM, limits) as player, Box(_VALUES + _TESTS, limits) as checker:
            checker.beside = player
            player.send(json.dumps(program).encode())
            checker.send(json.dumps(task).encode())
            while True:
                line = checker.receive()
                verdict = _verdict(line)
                if verdict is not None:
                    return "passed" if hmac.compare_digest(verdict, nonce) else "failed"
                player.send(line)
                checker.send(player.receive())
    except BoxEndedError as error:
        return error.why


@functools.lru_cache(64)  # the answers to one query follow each other
def _modules(tests: ProgramTests) -> tuple[str, ...]:
    """Returns names of the standard library's modules in tests; no module is called, so what they call is no module."""
    names, called = set(), set()
    for text in (tests.setup, tests.prelude, tests.tests):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called.add(node.func.id)
    return tuple(sorted((names - called) & sys.stdlib_module_names))


def _verdict(line: bytes) -> str | None:
    """Returns what the box of the tests says at its end; None: it calls the program."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(said, dict):
        return ""
    verdict = said.get("verdict", "" if "call" not in said else None)
    return verdict if verdict is None or (isinstance(verdict, str) and verdict.isascii()) else ""


class Programs:
    """Scores 1 for a program that passes its tests, else 0; a scorer (`dfc.scoring.scorer.Scorer`).

    Args:
      tests: query -> the tests of its answers.
      limits: of each program.
      workers: programs run at once.
      look: called after each answer; what it raises ends the scoring (`dfc.runs.stop_signals.Stop.look`).

    Raises:
      ConfigError: no program can be run here; says what to install.
      ValueError: tests that cannot be run.
    """

    def __init__(
        self,
        tests: Mapping[str, ProgramTests],
        limits: Limits = Limits(),  # noqa: B008 - frozen
        workers: int = 2,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        interpreter()
        for query, found in tests.items():
            if (problem := found.problem()) is not None:
                raise ValueError(f"tests of {query[:80]!r}: {problem}")
        self._tests, self._limits, self._workers, self._look = dict(tests), limits, workers, look

    def __call__(self, queries: Sequence[str], answers: Sequence[str]) -> Scores:
        """Returns 1 or 0 for each answer; the answers to a query without tests cannot be scored."""
        pairs = checked_pairs(queries, answers)
        return scores_of_each(self._score, pairs, self._workers, self._look)

    def _score(self, query: str, answer: str) -> tuple[float | None, str]:
        if (tests := self._tests.get(query)) is None:
            return None, "no_reference"
        if len(answer) > LONGEST_ANSWER:
            return 0.0, "too_long"
        happened = run_tests(program_in(answer, tests), tests, self._limits)
        return float(happened == "passed"), happened


# ---- what runs in the boxes ------------------------------------------------------------------------------------------

# Values as JSON, the same in both boxes. A list begins with a letter that says what it is.
_VALUES = r"""
import builtins, json, os, sys
channel_in, channel_out = os.fdopen(os.dup(0), "rb"), os.dup(1)
null = os.open("/dev/null", os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(null, number)
MOST = 100_000
objects = []

def say(data, dumps=json.dumps, write=os.write):
    rest = memoryview(dumps(data).encode() + b"\n")
    while rest:
        rest = rest[write(channel_out, rest):]

def hear(loads=json.loads):
    line = channel_in.readline()
    if not line:
        os._exit(0)
    return loads(line)

def encode(value, depth=0):
    if depth > 60:
        raise ValueError("nested too deep")
    each = lambda values: [encode(one, depth + 1) for one in values]
    if value is None or value is True or value is False:
        return value
    if isinstance(value, Remote):
        return ["o", value._number]
    if isinstance(value, int):
        return int(value) if abs(value) < 2**53 else ["i", hex(value)]
    if isinstance(value, float):
        return ["f", repr(float(value))]
    if isinstance(value, str):
        return str(value)
    if isinstance(value, complex):
        return ["c", repr(value.real), repr(value.imag)]
    if isinstance(value, (bytes, bytearray)):
        return ["b", bytes(value).hex()]
    for letter, kind in (("l", list), ("t", tuple), ("s", set), ("z", frozenset)):
        if isinstance(value, kind):
            return [letter, *each(value)]
    if isinstance(value, dict):
        return ["d", *([encode(k, depth + 1), encode(v, depth + 1)] for k, v in value.items())]
    if isinstance(value, range):
        return ["r", value.start, value.stop, value.step]
    if hasattr(type(value), "__next__") or isinstance(value, (type({}.keys()), type({}.values()), type({}.items()))):
        items = []
        for item in value:
            items.append(item)
            if len(items) > MOST:
                raise ValueError("too many items")
        return ["n", *each(items)]
    return refer(value)

def decode(data):
    if not isinstance(data, list):
        return data
    letter, *rest = data
    each = lambda: [decode(one) for one in rest]
    return {
        "i": lambda: int(rest[0], 16),
        "f": lambda: float(rest[0]),
        "c": lambda: complex(float(rest[0]), float(rest[1])),
        "b": lambda: bytes.fromhex(rest[0]),
        "l": each, "t": lambda: tuple(each()), "s": lambda: set(each()), "z": lambda: frozenset(each()),
        "d": lambda: {decode(k): decode(v) for k, v in rest},
        "r": lambda: range(*rest),
        "n": lambda: iter(each()),
        "o": lambda: resolve(rest[0]),
    }[letter]()

class Remote:
    pass
"""

# The program's box: answers calls until it is ended.
_PROGRAM = r"""
def refer(value):
    objects.append(value)
    return ["o", len(objects) - 1]

def resolve(number):
    return objects[number]

namespace = {"__name__": "program", "__builtins__": builtins}
failed = None
try:
    exec(compile(hear(), "program", "exec"), namespace)
except Exception as error:
    failed = error
while True:
    request = hear()
    try:
        if failed is not None:
            raise failed
        called = request["call"]
        function = namespace[called] if isinstance(called, str) else decode(called)
        if "attribute" in request:
            found = getattr(function, request["attribute"])
        else:
            arguments = [decode(one) for one in request["args"]]
            found = function(*arguments, **{name: decode(one) for name, one in request["kwargs"].items()})
        answer = {"value": encode(found)}
    except Exception as error:
        answer = {"error": type(error).__name__, "text": repr(error)[:200]}
    say(answer)
"""

# The tests' box: runs the tests once and says so with the number it was given.
_TESTS = r"""
task = hear()
calls = 0

def refer(value):
    raise TypeError(f"a {type(value).__name__} cannot be handed to the program")

def ask(request):
    global calls
    calls += 1
    say(request)
    answer = hear()
    if "value" in answer:
        return decode(answer["value"])
    kind = getattr(builtins, str(answer.get("error")), None)
    if kind is StopIteration:
        kind = RuntimeError
    raise (kind if isinstance(kind, type) and issubclass(kind, Exception) else Exception)(str(answer.get("text")))

class Remote:
    def __init__(self, called):
        self._called = called
        self._number = called[1] if isinstance(called, list) else None
    def __call__(self, *args, **kwargs):
        args = [encode(one) for one in args]
        return ask({"call": self._called, "args": args, "kwargs": {k: encode(v) for k, v in kwargs.items()}})
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return ask({"call": self._called, "attribute": name})

def resolve(number):
    return Remote(["o", number])

class Names(dict):
    def __missing__(self, name):
        if name in task["modules"]:
            return self.setdefault(name, __import__(name))
        if task["entry_point"] or hasattr(builtins, name):
            raise KeyError(name)
        return Remote(name)

names = Names(__name__="tests", __builtins__=builtins)
verdict = "failed"
try:
    for part in ("setup", "prelude", "tests"):
        exec(compile(task[part], part, "exec"), names)
    if task["entry_point"]:
        names["check"](Remote(task["entry_point"]))
    if calls:
        verdict = task["nonce"]
except Exception:
    pass
say({"verdict": verdict})
"""
