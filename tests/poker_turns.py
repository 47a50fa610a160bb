"""Hands of Poker with known cards and chips, for its tests."""

import functools

import game_turns

from dfc.games.textarena.poker import Poker
from dfc.games.textarena.poker_hands import cards

GOOD, BAD = "Ah As", "7c 2d"  # on BOARD a pair of aces and nothing
BOARD = "Kd 9s 8h 5c 3d"
started = functools.partial(game_turns.started, Poker)


def set_cards(game, first, second, board=BOARD):
    """Gives the seats these cards; ours only look at them when they are shown or compared."""
    game._hands = [cards(first), cards(second)]
    game._board = cards(board)
