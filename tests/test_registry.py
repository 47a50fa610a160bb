"""The table of games: ids, options, and sentences about wrong ones."""

import json
import re
import subprocess
import sys
import types

import pytest

from dfc.games import __main__ as command
from dfc.games import registry
from dfc.games.game import Game
from dfc.games.textarena.connect_four import ConnectFour
from dfc.games.textarena.guess_the_number import GuessTheNumber
from dfc.games.textarena.liars_dice import LiarsDice
from dfc.games.textarena.nim import Nim
from dfc.games.textarena.tic_tac_toe import TicTacToe
from dfc.games.textarena.tower_of_hanoi import TowerOfHanoi

COMMON = {"illegal_allowance": 1, "malformed_allowance": 0, "history": False}
PROFILE = {"profile": "0.6.4"}
EXPECTED = {
    "TicTacToe-v0": (TicTacToe, {"show_board": False}),
    "ConnectFour-v0": (ConnectFour, {"is_open": True, "num_rows": 6, "num_cols": 7, "show_board": False}),
    "ConnectFour-v0-blind": (ConnectFour, {"is_open": False, "num_rows": 6, "num_cols": 7, "show_board": False}),
    "ConnectFour-v0-large": (
        ConnectFour,
        {"is_open": True, "num_rows": 12, "num_cols": 15, "show_board": False},
    ),
    "TowerOfHanoi-v0": (TowerOfHanoi, {"num_disks": 3, "max_turns": 100}),
    "TowerOfHanoi-v0-medium": (TowerOfHanoi, {"num_disks": 4, "max_turns": 100}),
    "GuessTheNumber-v0": (GuessTheNumber, {"min_number": 1, "max_number": 20, "max_turns": 10}),
    "GuessTheNumber-v0-hardcore": (GuessTheNumber, {"min_number": 1, "max_number": 50, "max_turns": 7}),
    "LiarsDice-v0": (LiarsDice, {"num_dice": 5}),
    "Nim-v0": (Nim, {"piles": (3, 4, 5)}),
}
HIDDEN_BOARD = (
    "ConnectFour-v0-blind: show_board must be False if is_open is False: a hidden board cannot be shown, got True"
)
NUM_ROW = (
    "ConnectFour-v0 has no option 'num_row'; did you mean 'num_rows'? "
    "Known are is_open, num_rows, num_cols, show_board, illegal_allowance, malformed_allowance, history, profile"
)
NO_PILE = (
    "Nim-v0 has no option 'pile'; did you mean 'piles'? "
    "Known are piles, illegal_allowance, malformed_allowance, history, profile"
)
NO_DISKS = (
    "TowerOfHanoi-v0 has no option 'disks'; did you mean 'num_disks'? "
    "Known are num_disks, max_turns, illegal_allowance, malformed_allowance, history, profile"
)
OPTIONS = [(game_id, name) for game_id, (_, own) in EXPECTED.items() for name in own | COMMON]


def changed(value):
    if isinstance(value, bool):
        return not value
    return (*value, 2) if isinstance(value, tuple) else value + 1


def test_the_registered_games_and_their_values():
    assert registry.own_game_ids()[0] == "TicTacToe-v0"
    assert set(EXPECTED) <= set(registry.own_game_ids()) <= set(registry.game_ids())
    for game_id, (kind, own) in EXPECTED.items():
        assert registry.defaults(game_id) == own | COMMON | PROFILE
        assert registry.kind(game_id) is kind
        game = registry.make(game_id)
        assert type(game) is kind
        assert game.id == game.info.id == game_id


def test_registered_values_are_those_of_textarena():
    import textarena
    from textarena.envs.registration import ENV_REGISTRY

    assert textarena.__name__ == "textarena"
    for game_id in registry.own_game_ids():
        if game_id not in ENV_REGISTRY:
            continue
        theirs = {name: tuple(v) if isinstance(v, list) else v for name, v in ENV_REGISTRY[game_id].kwargs.items()}
        ours = registry.defaults(game_id)
        if game_id in EXPECTED:
            assert theirs.items() <= ours.items()
        for name in theirs.keys() & ours.keys():
            assert ours[name] == theirs[name], (game_id, name)


@pytest.mark.parametrize("game_id", registry.own_game_ids())
def test_defaults_are_what_a_game_is_made_with(game_id):
    plain, full = registry.make(game_id), registry.make(game_id, **registry.defaults(game_id))
    assert registry.problems(game_id, {}) == registry.problems(game_id, registry.defaults(game_id)) == []
    assert plain.info == full.info
    assert (plain.illegal_allowance, plain.malformed_allowance, plain.history) == (1, 0, False)
    if game_id in EXPECTED:
        for name in EXPECTED[game_id][1]:
            value = registry.defaults(game_id)[name]
            assert getattr(plain, "initial_piles" if name == "piles" else name) == value
    registry.defaults(game_id).clear()  # a copy
    assert registry.defaults(game_id)


@pytest.mark.parametrize(("game_id", "name"), OPTIONS)
def test_every_option_reaches_the_game(game_id, name):
    value = changed(registry.defaults(game_id)[name])
    options = {name: value}
    if game_id == "ConnectFour-v0-blind" and name == "show_board":
        options["is_open"] = True  # a hidden board cannot be shown
    assert registry.problems(game_id, options) == []
    game = registry.make(game_id, **options)
    assert getattr(game, "initial_piles" if name == "piles" else name) == value
    game.reset(0)
    assert game.legal_actions()


def test_a_game_is_made_afresh_and_not_begun():
    first, second = registry.make("Nim-v0"), registry.make("Nim-v0")
    assert first is not second
    assert first.to_move is None
    first.reset(0)
    first.step("[0 3]")
    assert second.piles == [3, 4, 5]


def test_a_list_serves_as_a_tuple():
    assert registry.problems("Nim-v0", {"piles": [2, 1]}) == []
    assert registry.make("Nim-v0", piles=[2, 1]).initial_piles == (2, 1)


# ---- what is wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("game_id", "nearest"),
    [
        ("TicTacToe", "TicTacToe-v0"),
        ("tictactoe-V0", "TicTacToe-v0"),
        ("TOWEROFHANOI-V0", "TowerOfHanoi-v0"),
        ("ConnectFour-v0-blnd", "ConnectFour-v0-blind"),
        ("Connect4-v0", "ConnectFour-v0"),
        ("LiarDice-v0", "LiarsDice-v0"),
        ("GuessTheNumber-v1", "GuessTheNumber-v0"),
    ],
)
def test_an_unknown_id_is_answered_with_the_nearest_one(game_id, nearest):
    (sentence,) = registry.problems(game_id, {"whatever": 1})
    assert sentence.startswith(f"there is no game id {game_id!r}; did you mean {nearest!r}? Known are TicTacToe-v0, ")
    assert all(known in sentence for known in registry.game_ids())
    with pytest.raises(ValueError, match=f"did you mean '{nearest}'"):
        registry.make(game_id)
    with pytest.raises(ValueError, match=f"did you mean '{nearest}'"):
        registry.defaults(game_id)


@pytest.mark.parametrize("game_id", ["", "\u20ac", 7, None, ["Nim-v0"]])
def test_an_id_of_any_kind_gets_a_sentence(game_id):
    (sentence,) = registry.problems(game_id, {})
    if isinstance(game_id, str):
        assert sentence.startswith(f"there is no game id {game_id!r}; did you mean ")
    else:
        assert sentence == f"a game id must be text, got {game_id!r} of type {type(game_id).__name__}"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        registry.make(game_id)


@pytest.mark.parametrize(
    ("game_id", "options", "sentence"),
    [
        (
            "Nim-v0",
            {"pile": (1, 2)},
            NO_PILE,
        ),
        (
            "TowerOfHanoi-v0",
            {"disks": 4},
            NO_DISKS,
        ),
        ("Nim-v0", {"piles": 3}, "Nim-v0: piles must be a tuple of int, got 3 of type int"),
        ("Nim-v0", {"piles": (3, 1.0)}, "Nim-v0: piles must be a tuple of int, got (3, 1.0) of type tuple"),
        ("Nim-v0", {"piles": (3, True)}, "Nim-v0: piles must be a tuple of int, got (3, True) of type tuple"),
        ("Nim-v0", {"piles": ()}, "Nim-v0: piles must be 1 to 20 sizes from 1 to 99 each, got ()"),
        ("LiarsDice-v0", {"num_dice": "5"}, "LiarsDice-v0: num_dice must be of type int, got '5' of type str"),
        ("LiarsDice-v0", {"num_dice": True}, "LiarsDice-v0: num_dice must be of type int, got True of type bool"),
        ("LiarsDice-v0", {"num_dice": 5.0}, "LiarsDice-v0: num_dice must be of type int, got 5.0 of type float"),
        ("LiarsDice-v0", {"num_dice": None}, "LiarsDice-v0: num_dice must be of type int, got None of type NoneType"),
        ("TicTacToe-v0", {"show_board": 1}, "TicTacToe-v0: show_board must be of type bool, got 1 of type int"),
        (
            "TicTacToe-v0",
            {"illegal_allowance": -1},
            "TicTacToe-v0: illegal_allowance must be 0 or more, got -1",
        ),
        ("ConnectFour-v0", {"num_rows": 3}, "ConnectFour-v0: num_rows must be from 4 to 32, got 3"),
        (
            "ConnectFour-v0-blind",
            {"show_board": True},
            HIDDEN_BOARD,
        ),
    ],
)
def test_a_wrong_option_gets_a_sentence_with_what_came_and_what_is_allowed(game_id, options, sentence):
    assert registry.problems(game_id, options) == [sentence]
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        registry.make(game_id, **options)


def test_all_problems_are_found_together():
    options = {"num_row": 5, "is_open": 0, "num_rows": 2, "num_cols": 99, "show_board": True, "illegal_allowance": -2}
    found = registry.problems("ConnectFour-v0", options)
    assert [sentence.split(" must ")[0] for sentence in found] == [
        NUM_ROW,
        "ConnectFour-v0: is_open",
        "ConnectFour-v0: num_rows",
        "ConnectFour-v0: num_cols",
        "ConnectFour-v0: illegal_allowance",
    ]
    with pytest.raises(ValueError, match="num_row'") as caught:
        registry.make("ConnectFour-v0", **options)
    assert str(caught.value) == "\n".join(found)


@pytest.mark.parametrize("names", [("min_number", "max_number"), ("max_number", "min_number")])
def test_options_are_judged_together_in_any_order(names):
    wanted = {"min_number": 60, "max_number": 100}  # the usual maximum is 20
    options = {name: wanted[name] for name in names}
    assert registry.problems("GuessTheNumber-v0", options) == []
    assert registry.make("GuessTheNumber-v0", **options).max_number == 100
    (sentence,) = registry.problems("GuessTheNumber-v0", options | {"max_turns": 0})
    assert sentence.startswith("GuessTheNumber-v0: max_turns must ")
    assert len(registry.problems("GuessTheNumber-v0", options | {"max_number": 59})) == 1


@pytest.mark.parametrize("game_id", registry.own_game_ids())
@pytest.mark.parametrize("value", [None, -1, 0, 1, 2.5, "3", True, (), (1, 2), [], {}, object, float("nan"), b"x"])
def test_an_option_has_problems_exactly_if_the_game_cannot_be_made(game_id, value):
    for name in (*registry.defaults(game_id), "unknown"):
        found = registry.problems(game_id, {name: value})
        if found:
            assert len(found) == 1
            assert "\n" not in found[0]
            assert name in found[0]
            with pytest.raises(ValueError, match=name):
                registry.make(game_id, **{name: value})
        else:
            assert isinstance(registry.make(game_id, **{name: value}), Game)


# ---- profiles, other packages, adapters ---------------------------------------------------------------------------


class Priced(Nim):
    def __init__(self, *, price: float = 0.5, names: tuple[str, ...] = ("a",), **common):
        super().__init__(**common)
        self.price, self.names = price, names


def test_a_profile_gives_the_values_of_another_version_and_named_options_go_before_it():
    assert registry.make("TowerOfHanoi-v0").max_turns == 100
    assert registry.make("TowerOfHanoi-v0", profile="0.6.4").max_turns == 100
    assert registry.make("TowerOfHanoi-v0", profile="0.7.4").max_turns == 14
    assert registry.make("TowerOfHanoi-v0", profile="0.7.4", num_disks=5).max_turns == 14
    assert registry.make("TowerOfHanoi-v0", profile="0.7.4", max_turns=9).max_turns == 9
    newer = registry.defaults("TowerOfHanoi-v0", "0.7.4")
    assert newer == registry.defaults("TowerOfHanoi-v0") | {"max_turns": 14, "profile": "0.7.4"}
    assert registry.make("TowerOfHanoi-v0", **newer).info == registry.make("TowerOfHanoi-v0", profile="0.7.4").info


def test_a_wrong_profile_gets_a_sentence():
    sentence = "Nim-v0 has no profile '0.7.3'; did you mean '0.7.4'? Known are 0.6.4, 0.7.4"
    assert registry.problems("Nim-v0", {"profile": "0.7.3"}) == [sentence]
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        registry.make("Nim-v0", profile="0.7.3")
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        registry.defaults("Nim-v0", "0.7.3")
    assert registry.problems("Nim-v0", {"profile": 0.7}) == [
        "Nim-v0: profile must be of type str, got 0.7 of type float"
    ]


def test_an_id_without_profiles_has_no_such_option(monkeypatch):
    monkeypatch.setitem(registry._GAMES, "Plain-v0", registry.Entry(Nim, {"piles": (1, 2)}))
    assert registry.defaults("Plain-v0") == {"piles": (1, 2)} | COMMON
    assert registry.problems("Plain-v0", {"profile": "0.6.4"})[0].startswith("Plain-v0 has no option 'profile'")


def test_a_whole_number_serves_as_a_float_and_tuples_hold_what_their_default_holds(monkeypatch):
    monkeypatch.setitem(registry._GAMES, "Priced-v0", registry.Entry(Priced))
    assert registry.make("Priced-v0", price=2, names=["x", "y"]).names == ("x", "y")
    assert registry.problems("Priced-v0", {"price": True, "names": (1,)}) == [
        "Priced-v0: price must be of type float, got True of type bool",
        "Priced-v0: names must be a tuple of str, got (1,) of type tuple",
    ]


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
