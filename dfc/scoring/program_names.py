"""Decides whether names in a program's tests are Python's or the program's.

A program may not redefine a module or a builtin: ``def len(x): return 3`` would be rewarded. Yet MBPP 126 asks for a
function called ``sum``, and its tests call nothing else. So a builtin that tests call, and that the program defines at
its top level, is the program's where it is the function tested and not one that checks a result:

- it is called on no right side of a comparison in an assert, where the expected value stands;
- it is not called around another such builtin, or around a variable computed from one (``abs(sum(1, 2) - 3)``);
- where tests call other functions of the program, too, all its calls stand in asserts without any other name.
"""

import ast
import builtins
import functools
import sys
from collections.abc import Iterator
from typing import Protocol

_BUILTINS = frozenset(
    name
    for name, value in vars(builtins).items()
    if callable(value)
    and not name.startswith("_")
    and not (isinstance(value, type) and issubclass(value, BaseException))
)


class Tests(Protocol):
    """The parts read of `dfc.scoring.programs.ProgramTests`; hashable."""

    @property
    def tests(self) -> str:
        """What is run."""

    @property
    def setup(self) -> str:
        """What runs before."""

    @property
    def prelude(self) -> str:
        """What runs between them."""

    @property
    def entry_point(self) -> str:
        """The one function that is tested; or empty."""


@functools.lru_cache(64)  # the answers to one query follow each other
def modules_of(tests: Tests) -> tuple[str, ...]:
    """Returns names of the standard library's modules in tests; no module is called, so what they call is no module."""
    names, called = set(), set()
    for text in (tests.setup, tests.prelude, tests.tests):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called.add(node.func.id)
    return tuple(sorted((names - called) & sys.stdlib_module_names))


@functools.lru_cache(64)
def builtins_called(tests: Tests) -> tuple[str, ...]:
    """Returns the builtins that may be the program's, if it defines them; none where an entry point is tested."""
    if tests.entry_point:
        return ()
    tree = ast.parse(tests.tests)
    bound = {name for text in (tests.setup, tests.prelude, tests.tests) for name in _bound(ast.parse(text))}
    called = _called(tree) - bound
    candidates = (called & _BUILTINS) - {name for right in _expected(tree) for name in _called(right)}
    if called - _BUILTINS:
        alone: set[ast.AST] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert) and _names(node) <= called & _BUILTINS:
                alone.update(ast.walk(node))
        candidates -= {_name(call) for call in _calls(tree) if call not in alone}
    return tuple(sorted(candidates))


def builtins_of_the_program(tests: Tests, defined: frozenset[str]) -> tuple[str, ...]:
    """Returns the builtins that are the program's, of those that `tests` call (`builtins_called`) and it defines."""
    tree = ast.parse(tests.tests)
    came: dict[str, set[str]] = {}  # variable -> the program's builtins that its value was computed from
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.AugAssign | ast.For | ast.comprehension):
            source = node.iter if isinstance(node, ast.For | ast.comprehension) else node.value
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if source is not None:
                for name in {name for target in targets for name in _names(target)}:
                    came.setdefault(name, set()).update(_called(source) & defined)
    around = set()
    for call in _calls(tree):
        inner = [*call.args, *call.keywords]
        within = {name for part in inner for name in _called(part) & defined}
        within |= {one for part in inner for name in _names(part) for one in came.get(name, ())}
        if within - {_name(call)}:
            around.add(_name(call))
    return tuple(sorted(defined - around))


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _called(tree: ast.AST) -> set[str]:
    return {_name(call) for call in _calls(tree)}


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _expected(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields the right sides of comparisons in asserts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Compare) and _called(inner.left):  # a value may stand left, too: 6 == sum(...)
                    yield from inner.comparators


def _bound(tree: ast.AST) -> Iterator[str]:
    """Yields the names that some code assigns, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
