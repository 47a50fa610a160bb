"""Programs in answers, run against tests: right or wrong, decided out of the program's reach.

Two sandboxes (`dfc.scoring.sandbox`) run side by side. In one runs the answer's program and nothing else. In the
other run the tests, in which the program's functions are stand-ins: a call goes as data to the first box, and what
comes back is data again, never an object of the program. The tests' box ends with a number that was sampled for it and
that the program's box never sees. So a program that ends early, prints what is expected, replaces the checker, or
returns an object that equals everything, has not passed: it can only answer calls.

Values passed between them: None, bools, numbers, texts, bytes, lists, tuples, sets, dictionaries, ranges, and iterators
as what they yield; Decimal, Fraction, dates, times and deque, OrderedDict, Counter, defaultdict of the standard
library; of other values (an instance of a class of the program's) a reference that later calls may pass back.
Departures from running both in one process: arguments are copies, so a test sees no change of them, and tests cannot
pass functions; a StopIteration of the program is a RuntimeError in the tests, as in a generator: it would end a loop of
theirs over ``map`` early. A module of the standard library that tests use without importing it is imported for them: a
program's own ``math`` must not decide; `dfc.scoring.program_names` decides whose a builtin is. Layouts: HumanEval
(arXiv 2107.03374), whose ``prompt`` also gives the tests their helpers, and MBPP (arXiv 2108.07732), whose tests may
name anything else that the program defines.
"""

import ast
import dataclasses
import hmac
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dfc.scoring import box_code, program_names
from dfc.scoring.box_code import VALUES
from dfc.scoring.sandbox import Box, BoxEndedError, Limits, interpreter
from dfc.scoring.scorer import LONGEST_ANSWER, Scores, checked_pairs, scores_of_each

LONGEST_TESTS = 1_000_000  # characters; the longest of HumanEval have 50,000
_PROGRAM, _TESTS = box_code.PROGRAM, box_code.TESTS


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
    """Runs an untrusted program against tests whose `problem` is None; the limits are of each of the two boxes.

    Returns:
      ``passed``; ``failed``: a test was not fulfilled, or the program raised; ``time_limit``, ``memory_limit``,
      ``output_limit``; ``ended``: the program ended its process, or there is no program.

    Raises:
      ConfigError: no program can be run here. ScoringError: a box cannot be started.
    """
    nonce = secrets.token_hex(16)
    task = {"nonce": nonce, "modules": program_names.modules_of(tests), **dataclasses.asdict(tests)}
    try:
        with Box(VALUES + _PROGRAM, limits) as player, Box(VALUES + _TESTS, limits) as checker:
            checker.beside, player.beside = player, checker
            player.send(json.dumps(program).encode())
            task["builtins"] = _programs_builtins(player, tests)
            checker.send(json.dumps(task).encode())
            while True:
                line = checker.receive()
                verdict = _verdict(line)
                if verdict is not None:
                    player.check()
                    checker.check()
                    return "passed" if hmac.compare_digest(verdict, nonce) else "failed"
                player.send(line)
                checker.send(player.receive())
    except BoxEndedError as error:
        return error.why


def _programs_builtins(player: Box, tests: ProgramTests) -> tuple[str, ...]:
    """Returns the builtins whose calls by the tests go to the program; it is asked which ones it defines."""
    if not (candidates := program_names.builtins_called(tests)):
        return ()
    player.send(json.dumps({"defined": candidates}).encode())
    said = _object(player.receive()).get("value")
    defined = [name for name in candidates if isinstance(said, list) and name in said]
    return program_names.builtins_of_the_program(tests, frozenset(defined))


def _object(line: bytes) -> dict[str, Any]:
    """Returns a line of a box as the object that it should be; empty if it is none."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _verdict(line: bytes) -> str | None:
    """Returns the verdict of the tests' box; None: it calls the program."""
    said = _object(line)
    verdict = said.get("verdict", "" if "call" not in said else None)
    return verdict if verdict is None or (isinstance(verdict, str) and verdict.isascii()) else ""


class Programs:
    """Scores 1 for a program that passes its tests, else 0; a scorer (`dfc.scoring.scorer.Scorer`).

    Args:
      tests: query -> the tests of its answers.
      limits: of each program.
      workers: programs run at once.
      check_stop: called after each answer; its exception aborts the scoring (`dfc.runs.stop_signals.Stop.check_stop`).

    Raises:
      ConfigError: no program can be run here; names what to install.
      ValueError: tests that cannot be run.
    """

    def __init__(
        self,
        tests: Mapping[str, ProgramTests],
        limits: Limits = Limits(),  # noqa: B008 - frozen
        workers: int = 2,
        check_stop: Callable[[], None] = lambda: None,
    ) -> None:
        interpreter()
        for query, found in tests.items():
            if (problem := found.problem()) is not None:
                raise ValueError(f"tests of {query[:80]!r}: {problem}")
        self._tests, self._limits, self._workers, self._check_stop = dict(tests), limits, workers, check_stop

    def __call__(self, queries: Sequence[str], answers: Sequence[str]) -> Scores:
        """Returns 1 or 0 for each answer; the answers to a query without tests cannot be scored."""
        pairs = checked_pairs(queries, answers)
        return scores_of_each(self._score, pairs, self._workers, self._check_stop)

    def _score(self, query: str, answer: str) -> tuple[float | None, str]:
        if (tests := self._tests.get(query)) is None:
            return None, "no_reference"
        if len(answer) > LONGEST_ANSWER:
            return 0.0, "too_long"
        happened = run_tests(program_in(answer, tests), tests, self._limits)
        return float(happened == "passed"), happened
