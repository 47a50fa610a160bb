import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dfc import commands
from dfc.launch import clembench, fit, help_text, play, serve

ROOT = Path(__file__).resolve().parents[1]


def test_a_printed_command_is_words_that_a_shell_takes_wherever_this_python_lies(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/home/a user/.venv/bin/python")
    line = commands.shell_line("dfc.launch", "--config=a b.py", "--config.games={'Nim-v0': {}}")
    words = ["/home/a user/.venv/bin/python", "-m", "dfc.launch", "--config=a b.py", "--config.games={'Nim-v0': {}}"]
    assert shlex.split(line) == words


def test_a_printed_command_runs_as_pasted(tmp_path):
    line = f"{commands.shell_line('dfc.games')} --json"
    done = subprocess.run(line, shell=True, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)  # noqa: S602 - ours
    assert done.returncode == 0, done.stderr
    assert "TicTacToe-v0" in done.stdout


@pytest.mark.parametrize("module", [clembench, fit, play, serve])
def test_the_examples_of_a_help_text_name_this_python(module):
    text = module._parser().format_help()
    assert f"{sys.executable} -m {module.__name__}" in text


def test_the_example_of_the_main_help_names_this_python():
    assert f"example: {sys.executable} -m dfc.launch --config" in help_text.help_text({}, "", None)


def pasted(path):
    """Texts of a file that hold `python -m dfc...` and are printed: no docstring, no name in a usage line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {keyword.value for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords
             if keyword.arg == "prog"}  # fmt: skip
    bare = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in names | bare:
            yield from (
                line.strip()
                for line in node.value.splitlines()
                if "python -m dfc" in line or re.search(r"(?<!-m )(?<!uv )pip install", line)
            )


def test_no_text_that_is_printed_names_a_python_that_may_be_on_nobodys_path():
    found = [
        (str(path.relative_to(ROOT)), line)
        for folder in ("dfc", "games", "models", "launch")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in pasted(path)
    ]
    other = "in an environment of its own, pip install"  # not that of this Python
    assert [line for line in found if not line[1].startswith(('"""', "usage: ")) and other not in line[1]] == []
