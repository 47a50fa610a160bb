"""Ids of other packages and adapters: entry points, conflicts, families."""

import json
import re
import subprocess
import sys
import types

import pytest

from dfc.games import __main__ as command
from dfc.games import registry
from dfc.games.textarena.nim import Nim

# ---- profiles, other packages, adapters ---------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a package with entry points, given as a dictionary, beside a module `other_games`."""

    def install(points, package="other_games"):
        (tmp_path / "other_games.py").write_text(
            "from dfc.games.textarena.nim import Nim\nfrom dfc.games.registry import Entry\n"
            "class Other(Nim): pass\nTWO = Entry(Other, {'piles': (2, 2)})\nNUMBER = 3\n"
            "LATE = Entry('no_such_module:Game')\nMINE = Entry(Other, family='Mine')\n"
        )
        (tmp_path / "broken_games.py").write_text("1 / 0")
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: 1.0\n")
        lines = "".join(f"{name} = {value}\n" for name, value in points.items())
        (info / "entry_points.txt").write_text(f"[dfc.games]\n{lines}")
        monkeypatch.syspath_prepend(tmp_path)
        registry._installed.cache_clear()

    yield install
    registry._installed.cache_clear()
    registry._load.cache_clear()
    sys.modules.pop("other_games", None)


def test_installed_packages_bring_classes_and_entries_and_replace_nothing(installed):
    installed({"Other-v0": "other_games:Other", "Other-v0-two": "other_games:TWO", "Nim-v0": "other_games:Other"})
    assert registry.game_ids() == (*registry.own_game_ids(), "Other-v0", "Other-v0-two")
    assert registry.make("Other-v0").initial_piles == (3, 4, 5)
    two = registry.make("Other-v0-two")
    assert (two.id, two.initial_piles) == ("Other-v0-two", (2, 2))
    assert registry.make("Other-v0-two", piles=(4,)).initial_piles == (4,)
    assert type(registry.make("Nim-v0")) is Nim
    assert "did you mean 'Other-v0'" in registry.problems("Othr-v0", {})[0]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("broken_games:Other", "importing that raised ZeroDivisionError: division by zero"),
        ("other_games:Missing", "importing that raised AttributeError"),
        ("other_games:NUMBER", "'other_games:NUMBER' must be a subclass of dfc.games.game.Game or a "),
    ],
)
def test_an_installed_package_that_fails_is_named(installed, value, sentence):
    installed({"Other-v0": value})
    (told,) = registry.problems("Other-v0", {})
    assert told.startswith("game 'Other-v0': ")
    assert sentence in told
    with pytest.raises(ValueError, match="game 'Other-v0'"):
        registry.make("Other-v0")
    assert registry.make("Nim-v0")  # the others are not harmed


def test_an_id_of_this_package_that_another_names_is_told(installed):
    installed({"Nim-v0": "other_games:Other", "Other-v0": "other_games:Other"})
    (told,) = registry.conflicts()
    assert told == (
        "game 'Nim-v0': the installed package other-games names this id in the entry points 'dfc.games', but it is an "
        "id of dfc, which is never replaced; give the game another id"
    )


def test_an_id_that_two_packages_name_is_neither_s(installed, capsys):
    installed({"Other-v0": "other_games:Other", "Third-v0": "other_games:Other"})
    installed({"Other-v0": "other_games:TWO", "Third-v0": "other_games:Other"}, "more_games")
    (told,) = registry.conflicts()
    assert re.fullmatch(
        r"game 'Other-v0': the installed packages (other|more)-games \(other_games:\w+\) and (other|more)-games "
        r"\(other_games:\w+\) both name this id; uninstall one, or rename its id",
        told,
    )
    with pytest.raises(ValueError, match="both name this id"):
        registry.make("Other-v0")
    assert registry.make("Third-v0")  # both mean the same
    assert command.main([]) == 0
    listed = capsys.readouterr()
    assert "Third-v0" in listed.out
    assert "Other-v0" not in listed.out
    assert all(line.startswith("warning: ") for line in listed.err.splitlines())


def test_a_package_that_cannot_be_used_does_not_hide_the_other_games(installed, capsys):
    installed(
        {
            "Broken-v0": "broken_games:Other",
            "Late-v0": "other_games:LATE",
            "Nim-v0": "other_games:Other",
            "Other-v0": "other_games:Other",
        }
    )
    assert command.main(["--json"]) == 0
    told = capsys.readouterr()
    assert [row["id"] for row in json.loads(told.out)] == [*registry.own_game_ids(), "Other-v0"]
    shadowed, broken, late = told.err.splitlines()
    assert shadowed.startswith("warning: game 'Nim-v0': the installed package other-games names this id")
    assert broken.startswith("warning: Broken-v0 is left out: game 'Broken-v0': ")
    assert broken.endswith("raised ZeroDivisionError: division by zero")
    assert late.startswith("warning: Late-v0 is left out: importing 'no_such_module:Game' raised ModuleNotFoundError")


def test_the_check_of_all_games_tells_which_package_cannot_be_used(installed, capsys, monkeypatch):
    monkeypatch.setattr(registry, "_GAMES", {"Nim-v0": registry._GAMES["Nim-v0"]})
    installed({"Broken-v0": "broken_games:Other", "Other-v0": "other_games:Other"})
    assert command.main(["--json", "--check", "all", "--seeds", "1"]) == 1
    found = {report["game"]: report["findings"] for report in json.loads(capsys.readouterr().out)}
    (fault,) = found.pop("Broken-v0")
    assert fault.startswith("it can be imported: game 'Broken-v0': its package names 'broken_games:Other'")
    assert found == {"Nim-v0": [], "Other-v0": []}
    with pytest.raises(SystemExit, match="2"):
        command.main(["--check", "Broken-v0"])
    assert "error: game 'Broken-v0': its package" in capsys.readouterr().err


def test_a_family_says_where_an_id_comes_from(installed):
    installed({"Other-v0": "other_games:Other", "Mine-v0": "other_games:MINE"})
    by_family = {}
    for game_id in registry.game_ids():
        by_family.setdefault(registry.family(game_id), []).append(game_id)
    assert {family: len(game_ids) for family, game_ids in by_family.items()} == {
        "Divide-Fuse-Conquer": 18,
        "TextArena": 1,
        "Paprika": 11,
        "Playpen": 14,
        "other-games": 1,
        "Mine": 1,
    }
    assert by_family["TextArena"] == ["Nim-v0"]
    assert by_family["Mine"] == ["Mine-v0"]
    assert registry.family("textarena:Chess-v0") == "textarena"


def test_an_adapter_answers_for_the_ids_with_its_prefix(monkeypatch):
    adapter = types.ModuleType("adapter")
    adapter.entry = lambda name: registry.Entry(Nim, {"piles": (len(name),)})
    monkeypatch.setitem(sys.modules, "adapter", adapter)
    monkeypatch.setitem(registry._ADAPTERS, "far", "adapter")
    adapter.names = lambda: ("Chess-v0",)
    monkeypatch.setitem(registry._ADAPTERS, "near", "no_such_adapter")
    assert registry.adapter_names("far") == ("Chess-v0",)
    with pytest.raises(ValueError, match="there is no adapter 'fa'; did you mean 'far'"):
        registry.adapter_names("fa")
    assert registry.make("far:Chess-v0").initial_piles == (8,)
    assert registry.make("far:Chess-v0").id == "far:Chess-v0"
    assert registry.problems("near:Chess-v0", {}) == [
        "game id 'near:Chess-v0': its adapter cannot be imported: No module named 'no_such_adapter'"
    ]
    assert registry.problems("nowhere:Chess-v0", {})[0].startswith("there is no game id 'nowhere:Chess-v0'")


def test_games_load_neither_jax_nor_anything_else_of_dfc():
    code = (
        "import sys; import dfc.games.registry; "
        "print([m for m in sys.modules if m.split('.')[0] in {'jax', 'numpy', 'flax'} "
        "or m.startswith('dfc.') and not m.startswith('dfc.games')])"
    )
    # The command is this interpreter with a constant program.
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own command
    assert loaded.stdout.strip() == "[]"
