"""A shipped configuration without its model says the command that makes it, and the minutes."""

import re
import shlex
import sys

import pytest

from dfc import validation
from dfc.config import ModelRunConfig, shipped
from dfc.launch import command_line
from dfc.models import fetch
from dfc.players import player_specs

NAMES = sorted(path.stem for path in shipped.folder().glob("*.py"))
AFTER = re.compile(r"^\s+after (python -m dfc\.[\w.]+ [^\s,;]+)", re.MULTILINE)


def head(name):
    return (shipped.folder() / f"{name}.py").read_text(encoding="utf-8").split('"""')[1]


@pytest.mark.parametrize("name", [name for name in NAMES if AFTER.search(head(name))])
def test_the_error_of_a_missing_model_says_the_command_of_the_files_head(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = command_line.load(f"configs/{name}.py")
    (problem,) = validation.path_problems(config)
    words = shlex.split(AFTER.search(head(name))[1])
    words = [word.rstrip(".") if word.endswith(".") and word[-4:] != ".py" else word for word in words]
    assert f"{shlex.quote(sys.executable)} {shlex.join(words[1:])} makes it (" in problem
    assert re.search(r"\d minutes|half a minute", problem)


def test_such_files_are_found():
    assert sum(AFTER.search(head(name)) is not None for name in NAMES) >= 9


def test_every_file_that_comes_with_dfc_states_a_time():
    assert [name for name in NAMES if shipped._minutes(name) is None] == []


def test_what_can_be_fetched_is_said_for_every_model_of_that_command():
    assert shipped.FETCHED.keys() == fetch.MODELS.keys()


def test_a_player_that_is_not_there_is_made_by_the_same_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = player_specs.parse("base=runs/paprika_player/policy")
    assert "--config=configs/paprika_player.py makes it (time: 9 minutes on four cores" in player_specs.problem(spec)


@pytest.mark.parametrize(
    "path", ["runs/mine/policy", "runs", "other/paprika_player/policy", "runs/../secret", "/runs/smoke"]
)
def test_what_no_file_makes_is_asked_for_as_before(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = command_line.load("configs/smoke.py")
    assert isinstance(config, ModelRunConfig)
    (problem,) = validation.path_problems(command_line.override(config, [f"--config.model.path={path}"])[0])
    assert "name a folder with weights in the Hugging Face layout, ORG/NAME of the Hub, or tiny_player" in problem
