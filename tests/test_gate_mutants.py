"""Mutants of `benchmarks/gate_mutations.py` are changes of meaning; their tests are run in the order that is said."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = '''"""1 < 2."""

import typing


def f(x: typing.Literal[3], *, strict=True):
    """A text of 7."""
    if x:
        raise ValueError(x < 9, not x)
    while x < 4:
        x += "é" + f"{x + 1}"
    print(5)
    return g(not x, key=x and strict, name=None)
'''


@pytest.fixture(scope="module")
def mutants():
    """The script's part that draws; and that which runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("gate_mutations"), importlib.import_module("gate_mutants")
    for name in ("gate_mutations", "gate_mutants", "gate_record"):
        sys.modules.pop(name)


def test_what_changes_the_meaning_is_changed_and_nothing_else(mutants, tmp_path):
    (tmp_path / "a.py").write_text(SOURCE, encoding="utf-8")
    found = mutants[0].of_file(tmp_path, "a.py")
    assert {(m.line, m.kind, m.before, m.after) for m in found} == {
        (6, "number", "True", "(False)"),
        (8, "boolean", "x", "(not x)"),
        (10, "comparison", "x < 4", "(x <= 4)"),
        (10, "number", "4", "(5)"),
        (13, "return", "g(not x, key=x and strict, name=None)", "(None)"),
        (13, "argument", "g(not x, key=x and strict, name=None)", "(g(not x, name=None))"),
        (13, "boolean", "not x", "(x)"),
        (13, "boolean", "x and strict", "(x or strict)"),
    }
    original = ast.dump(ast.parse(SOURCE))
    for mutant in found:
        assert ast.dump(ast.parse(mutant.applied(SOURCE.encode()))) != original
        assert mutant.lines[0] <= mutant.line <= mutant.lines[1]
    assert {m.lines for m in found if m.line == 8} == {(8, 8)}  # the head of a compound statement alone
    assert {m.line for m in found if m.at_import} == {6}  # the default


def test_a_draw_is_that_of_its_seed_and_takes_no_line_twice(mutants, tmp_path):
    for folder in ("dfc", "games", "models"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text(SOURCE, encoding="utf-8")
    first, again, other = (list(mutants[0].drawn(tmp_path, seed)) for seed in (0, 0, 1))
    assert first == again != other
    assert sorted((m.file, m.line) for m in first) == [
        (f"{folder}/a.py", line) for folder in ("dfc", "games", "models") for line in (6, 8, 10, 13)
    ]


def test_tests_come_in_their_order_in_processes_that_grow_and_within_the_limit(mutants):
    places = [("a", ["a"], 10.0), ("b", ["b1", "b2"], 4.0), ("c", ["c"], 2.0), ("d", ["d"], 500.0), ("e", ["e"], 70.0)]
    assert list(mutants[1].batches(places, 100)) == [(["a", "b1", "b2"], 14.0), (["c"], 2.0), (["e"], 70.0)]
    assert list(mutants[1].batches([("d", ["d"], 500.0)], 100)) == [(["d"], 500.0)]  # one is always run


def test_a_file_of_tests_that_imports_the_module_is_near_it(mutants):
    near = mutants[1].imports_module
    assert near("tests/test_structure.py", "dfc/rewards.py")
    assert not near("tests/test_structure.py", "dfc/advantages.py")
    assert near("tests/test_games_protocol.py", "games/registry.py")
