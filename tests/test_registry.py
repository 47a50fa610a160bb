"""The table of games: ids, options, and sentences about wrong ones."""

import re

import pytest

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
    allowances = type(plain).default_allowances
    assert (plain.illegal_allowance, plain.malformed_allowance, plain.history) == (*allowances, False)
    usual = (0, 0) if registry.family(game_id) == "Playpen" else (1, 0)
    assert allowances == ((5, 0) if game_id.startswith("clem_wordle") else usual)  # words that are in no list
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
