"""What the tests of each game of TextArena would say in its own words: spellings, reasons, ranges."""

import game_turns
import pytest
from game_turns import said

from dfc.games.game import Verdict
from dfc.games.textarena.connect_four import ConnectFour
from dfc.games.textarena.guess_the_number import GuessTheNumber
from dfc.games.textarena.liars_dice import LiarsDice
from dfc.games.textarena.nim import Nim
from dfc.games.textarena.poker import Poker
from dfc.games.textarena.simple_negotiation import SimpleNegotiation
from dfc.games.textarena.tic_tac_toe import TicTacToe
from dfc.games.textarena.tower_of_hanoi import TowerOfHanoi


def started(game_id, *replies, **options):
    return said(game_turns.started(game_id, **options), *replies)


def cases(table):
    return [(game_id, reply) for game_id, replies in table.items() for reply in replies]


SPELLINGS = {
    "TicTacToe-v0": ["[4]", "[ 4 ]", "[04]", "[4 ]", "[\t4]"],
    "ConnectFour-v0": ["[col 3]", "[3]", "[col3]", "[COL 3]", "[ Col  03 ]", "[col\n3]", "[ 3 ]"],
    "Nim-v0": ["[1 2]", "[ 1  2 ]", "[01 002]", "[1\t2]"],
}
PLAYED = {  # the position after the first of these, and the end of what the other seat is shown
    "TicTacToe-v0": ("marks", [1 << 4, 0], "\nOpponent plays [4]."),
    "ConnectFour-v0": ("heights", [0, 0, 0, 1, 0, 0, 0], "\nOpponent plays [col 3], row 0."),
    "Nim-v0": ("piles", [3, 2, 5], "\nOpponent plays [1 2].\nPiles: 3, 2, 5."),
}


@pytest.mark.parametrize(("game_id", "reply"), cases(SPELLINGS))
def test_all_spellings_of_an_action_play_it(game_id, reply):
    game = started(game_id, reply)
    name, position, told = PLAYED[game_id]
    assert getattr(game, name) == position
    assert game.observation(1).endswith(told)


UNREAD = {
    "ConnectFour-v0": ["[c 3]", "[col]", "[column 3]", "[col -1]", "[col col 3]", "[3 col]", "[3, 3]"],
    "Nim-v0": ["[1]", "[1 2 3]", "[1,2]", "[12]", "[1 -2]", "[a 1]", "[pile 1 2]"],
    "TowerOfHanoi-v0": ["[A B] [A C]"],
    "GuessTheNumber-v0": ["[5] or [6]", "[\u0665]", "[\u00b2]"],
    "LiarsDice-v0": ["not [Call] but [Bid: 2, 3]", "[Bid: 1, \u0665]", "[Bid: 1, \u00b2]"],
}


@pytest.mark.parametrize(("game_id", "reply"), cases(UNREAD))
def test_what_is_no_single_action_forfeits(game_id, reply):
    game = started(game_id)
    assert game.step(reply) is Verdict.FORFEIT_MALFORMED
    assert game.outcomes == ("invalid", "win")[: game.seats]


@pytest.mark.parametrize(
    ("game_id", "before", "reply", "reason"),
    [
        ("TicTacToe-v0", ["[4]"], "[4]", "That cell is taken."),
        ("TicTacToe-v0", ["[4]"], "[9]", "There is no such cell."),
        ("ConnectFour-v0", ["[col 0]"] * 6, "[col 0]", "That column is full."),
        ("ConnectFour-v0", ["[col 0]"] * 6, "[col 7]", "There is no such column."),
        ("Nim-v0", ["[0 2]"], "[3 1]", "There is no such pile."),
        ("Nim-v0", ["[0 2]"], "[3 0]", "There is no such pile."),
        ("Nim-v0", ["[0 2]"], "[0 0]", "Take at least one object."),
        ("Nim-v0", ["[0 2]"], "[0 4]", "That pile holds fewer objects."),
        ("Nim-v0", ["[0 2]"], "[0 2]", "That pile holds fewer objects."),
    ],
)
def test_why_an_action_is_refused_is_said(game_id, before, reply, reason):
    game = started(game_id, *before)
    seat = game.to_move
    game.observation(seat)
    assert game.step(reply) is Verdict.ILLEGAL
    assert game.observation(seat) == f"{reason} Try again."


@pytest.mark.parametrize("reply", ["[{}]", "[Bid: 1, {}]"])
def test_a_number_of_any_length_is_illegal_and_no_crash(reply):
    game = started("LiarsDice-v0" if "Bid" in reply else "GuessTheNumber-v0")
    assert game.step(reply.format("9" * 5000)) is Verdict.ILLEGAL


@pytest.mark.parametrize(
    ("kind", "options", "complaint"),
    [
        (ConnectFour, {"num_rows": 3}, "num_rows must be from 4 to 32, got 3"),
        (ConnectFour, {"num_cols": 33}, "num_cols must be from 4 to 32, got 33"),
        (ConnectFour, {"is_open": False, "show_board": True}, "show_board must be False if is_open is False"),
        *[
            (Nim, {"piles": piles}, "piles must be 1 to 20 sizes from 1 to 99 each, got")
            for piles in ((), (0, 1), (3, -1), (100,), (1,) * 21)
        ],
        (TowerOfHanoi, {"num_disks": 0}, "num_disks must be from 1 to 64, got 0"),
        (TowerOfHanoi, {"num_disks": 65}, "num_disks must be from 1 to 64, got 65"),
        (TowerOfHanoi, {"max_turns": 0}, "max_turns must be 1 or more, got 0"),
        (GuessTheNumber, {"max_number": 10**9}, "max_number must be 100000 or less, got 1000000000"),
        (GuessTheNumber, {"min_number": -1}, "min_number must be 0 or more .*, got -1"),
        (GuessTheNumber, {"max_number": 0}, "max_number must be min_number=1 or more, got 0"),
        (GuessTheNumber, {"max_turns": 0}, "max_turns must be 1 or more, got 0"),
        (LiarsDice, {"num_dice": 10**9}, "num_dice must be from 1 to 100, got 1000000000"),
        (LiarsDice, {"num_dice": 0}, "num_dice must be from 1 to 100, got 0"),
        (Poker, {"num_rounds": 0}, "num_rounds must be 1 or more, got 0"),
        (Poker, {"small_blind": 0}, "small_blind must be 1 or more, got 0"),
        (Poker, {"big_blind": 9}, r"big_blind must be 10 \(small_blind\) or more, got 9"),
        (Poker, {"starting_chips": 20}, r"starting_chips must be more than 20 \(big_blind\), got 20"),
        (Poker, {"max_actions": 0}, "max_actions must be 1 or more, got 0"),
        (SimpleNegotiation, {"max_turns": 0}, "max_turns must be 1 or more, got 0"),
        (SimpleNegotiation, {"max_talk": 0}, "max_talk must be 1 or more, got 0"),
        (TicTacToe, {"illegal_allowance": -1}, "illegal_allowance must be 0 or more, got -1"),
    ],
)
def test_constructor_values_out_of_range_are_named(kind, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        kind(**options)
