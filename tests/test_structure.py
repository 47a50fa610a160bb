"""What `benchmarks/structure.py` counts, on sources, graphs and functions that a person has counted; and the tree's."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

from dfc import rewards

ROOT = Path(__file__).resolve().parents[1]
SOURCE = '''"""A module.

Of three lines.
"""

import os
from pathlib import (
    Path,
)

# A comment of its own.
TEXT = """no docstring

two"""  # a comment behind code


class Thing:
    """One line."""

    async def act(self) -> None:
        """One line."""
        "a text that is code"
'''


@pytest.fixture(scope="module")
def structure():
    """The script, imported as its siblings do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("structure")
    sys.modules.pop("structure")


@pytest.fixture(scope="module")
def imports(structure):
    return structure.imports()


def test_every_line_has_one_kind(structure):
    assert structure.kinds_of_lines(SOURCE) == {"docstring": 6, "import": 4, "comment": 1, "blank": 6, "code": 5}


def test_links_are_not_followed(structure):
    files = structure.python_files(*structure.PRODUCT)
    assert len({(ROOT / file).resolve() for file in files}) == len(files) > 400
    assert not [file for file in files if file.parts[:2] == ("dfc", "games")]


@pytest.mark.parametrize(
    ("arrows", "circles"),
    [
        ({"a": ["b"], "b": ["c"], "c": []}, []),
        ({"a": ["a"]}, []),
        ({"a": ["b"], "b": ["a"], "c": ["a"]}, [["a", "b"]]),
        ({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": ["d"]}, [["a", "b", "c"], ["d", "e"]]),
        ({"a": ["nowhere"]}, []),
    ],
)
def test_circles_are_found(structure, arrows, circles):
    assert structure.circles(arrows) == circles


def test_no_module_imports_itself_through_others_and_none_upward(imports):
    assert imports["circles"] == []
    assert imports["upward"] == []


def test_an_import_for_types_alone_closes_no_circle(structure):
    source = "import a\nif typing.TYPE_CHECKING:\n    import b\nelse:\n    import c\n"
    left = structure.without_types(source)
    assert [name.name for node in ast.walk(ast.parse(left)) if isinstance(node, ast.Import) for name in node.names] == [
        "a",
        "c",
    ]


def function(file, *names, lines=(), containers=()):
    return {"file": file, "function": "f", "names": names, "lines": lines, "containers": containers}


def test_a_step_is_the_files_whose_functions_name_its_values(structure):
    files = structure.step_files(
        [
            function("dfc/a.py", "episode_rewards", "x", lines=[1, 2], containers=["dfc/c.py", "games/game.py"]),
            function("dfc/a.py", "grpoLoss", lines=[2, 9]),
            function("dfc/a.py", "nothing", lines=[100]),
            function("dfc/b.py", "blossom", "sampler", containers=["dfc/d.py"]),  # no word of a step
            function("games/x.py", "reward"),
            function("dfc/inference/engine.py", "sampled_logprobs", "sample"),
        ]
    )
    assert files == {"dfc/a.py": 3, "dfc/c.py": 0}


def test_what_runs_between_two_records_of_metrics_is_recorded(structure):
    recorder, before = structure.Recorder(), sys.gettrace()
    sys.settrace(recorder)
    try:
        rewards.outcome_reward("win")
        recorder.metrics()
        rewards.step_reward(0.0, 1.0, 3)
        recorder.metrics()
        rewards.format_reward(valid=True)
    finally:
        sys.settrace(before)
    assert [(f["file"], f["function"]) for f in recorder.functions.values()] == [("dfc/rewards.py", "step_reward")]


def test_tokens_pass_what_names_their_field_or_what_holds_it(structure):
    every = [
        *structure.python_files("dfc/losses", "dfc/training"),
        *map(Path, ("dfc/samples.py", "dfc/packing.py", "dfc/rewards.py")),
    ]
    found = structure.token_files([function(file.as_posix()) for file in every], every)
    assert {"dfc/samples.py", "dfc/packing.py", "dfc/losses/policy_gradient.py"} <= {*found}
    assert "dfc/training/batch_logprobs.py" in found  # carries a TokenBatch
    assert not {"dfc/rewards.py", "dfc/losses/preference.py", "dfc/training/optimizer.py"} & {*found}
