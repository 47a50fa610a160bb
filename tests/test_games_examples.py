"""The examples in the docstrings of games/ are true."""

import doctest
import importlib
import pathlib

import pytest

from dfc import games

ROOT = pathlib.Path(games.__file__).parent
FILES = [path for path in ROOT.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8")]
MODULES = sorted(".".join(("dfc.games", *path.relative_to(ROOT).with_suffix("").parts)) for path in FILES)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed


def test_the_readers_have_examples():
    assert {f"dfc.games.{name}" for name in ("parsing", "paprika.world", "paprika.candidates")} < set(MODULES)
