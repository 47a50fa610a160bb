"""What is found of a clembench folder, and what is refused, before any of its code runs; clemcore is not needed."""

import importlib.util
import json
from pathlib import Path

import pytest

from dfc.games import registry
from dfc.games.__main__ import main
from dfc.games.adapters import clembench_folder as adapter
from dfc.games.adapters.clembench_folder import LoadedGame

GAMES = Path(__file__).parent / "clembench_games"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(adapter.HOME, str(tmp_path))
    return tmp_path


def game(folder, spec, master="raise RuntimeError('this code ran')\n"):
    folder.mkdir(parents=True)
    (folder / "clemgame.json").write_text(spec if isinstance(spec, str) else json.dumps(spec))
    (folder / "master.py").write_text(master)


def test_the_games_of_the_folder_are_listed_and_none_of_their_code_runs(home, capsys):
    game(home / "b", [{"game_name": "one", "players": 1}, {"game_name": "two", "players": 2}])
    game(home / "a" / "inner", {"game_name": "three", "players": 1})
    game(home / "z", {"game_name": "one", "players": 2})  # the first of a name counts
    game(home / "docs", {"game_name": "hidden", "players": 1})
    game(home / "w" / "x" / "y" / "deep", {"game_name": "deep", "players": 1})
    (home / "nothing").mkdir()
    assert main(["--clembench"]) == 0
    assert capsys.readouterr().out.split() == ["clembench:three", "clembench:one", "clembench:two"]
    assert adapter.specs(home)["one"]["game_path"] == str(home / "b")


def test_without_a_folder_the_environment_variable_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv(adapter.HOME, raising=False)
    with pytest.raises(ValueError, match="environment variable CLEMBENCH_HOME names, and it is not set; name a clone"):
        registry.make("clembench:taboo")
    monkeypatch.setenv(adapter.HOME, str(tmp_path / "gone"))
    with pytest.raises(ValueError, match="gone"):
        registry.make("clembench:taboo")


def test_the_working_directory_is_not_looked_into(home, monkeypatch):
    game(home / "here" / "taboo", {"game_name": "taboo", "players": 2})
    (home / "there").mkdir()
    monkeypatch.setenv(adapter.HOME, str(home / "there"))
    monkeypatch.chdir(home / "here")
    with pytest.raises(ValueError, match="has no game 'taboo'; it has none"):
        registry.make("clembench:taboo")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"game_name": "taboo", "players": 2, "image": "single"}, "it shows images .'single'."),
        ({"game_name": "tabu", "players": 2}, "has no game 'taboo'; did you mean 'tabu'"),
        ("{", "no JSON"),
        ("[" * 10**5, "no JSON"),
        ("3", "it has none"),
        ('[3, {"game_name": 4}]', "it has none"),
    ],
)
def test_a_game_that_cannot_be_played_is_refused_before_its_code_runs(home, spec, message):
    game(home / "taboo", spec)
    with pytest.raises(ValueError, match=message):
        registry.make("clembench:taboo")


def test_a_folder_that_is_no_clembench_is_refused(home, monkeypatch):
    for number in range(4):
        (home / str(number)).mkdir()
    monkeypatch.setattr(adapter, "_MOST_FOLDERS", 3)
    with pytest.raises(ValueError, match="more than 3 folders; CLEMBENCH_HOME must name a clone of clembench"):
        adapter.specs(home)
    game(home / "0" / "taboo", {"game_name": "taboo", "more": "x" * adapter._LARGEST_SPEC})
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"clemgame\.json: larger than"):
        adapter.specs(home / "0")


@pytest.mark.skipif(importlib.util.find_spec("clemcore") is not None, reason="clemcore is there")
def test_without_clemcore_the_extra_is_named(monkeypatch):
    monkeypatch.setenv(adapter.HOME, str(GAMES))
    with pytest.raises(
        ValueError, match=r"need clemcore, and Python 3\.12 or older; .* pip install 'dfc\[clembench\]'"
    ):
        registry.make("clembench:number_hunt")


# ---- instances ------------------------------------------------------------------------------------------------------


def loaded(folder):
    return LoadedGame("number_hunt", folder, None, {}, "instances")


def test_instances_stand_in_the_order_of_the_file_with_their_experiments():
    rows = loaded(GAMES / "number_hunt").instances("")
    assert [row["game_instance"]["target"] for row in rows] == [1, 2, 3, 4, 7, 9]
    assert rows[4]["experiment"] == {"name": "hard", "largest": 9, "rounds": 3}


@pytest.mark.parametrize("name", ["gone", "../in/instances", "/etc/passwd"])
def test_a_file_of_instances_that_is_not_there_is_refused(name):
    with pytest.raises(ValueError, match=r"there is no file of instances .*; there are instances"):
        loaded(GAMES / "number_hunt").instances(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("{}", "must be lists, got 'None'"),
        ('{"experiments": []}', "expected 1 to 10000 instances, got 0"),
        ('{"experiments": [3]}', "an experiment must be an object with a name, got '3'"),
        ('{"experiments": [{"name": "a", "game_instances": 3}]}', "must be lists, got '3'"),
        ('{"experiments": [{"name": "a", "game_instances": [{}]}]}', "an object with a game_id"),
    ],
)
def test_a_file_that_is_none_of_instances_is_refused(tmp_path, text, message):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "instances.json").write_text(text)
    with pytest.raises(ValueError, match=rf"instances\.json: .*{message}"):
        loaded(tmp_path).instances("")
