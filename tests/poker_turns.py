"""Hands of Poker with known cards and chips, for its tests."""

from dfc.games.game import Verdict
from dfc.games.textarena.poker import Poker
from dfc.games.textarena.poker_hands import cards

GOOD, BAD = "Ah As", "7c 2d"  # on BOARD a pair of aces and nothing
BOARD = "Kd 9s 8h 5c 3d"


def started(seed=0, **options):
    game = Poker(**options)
    game.reset(seed)
    return game


def set_cards(game, first, second, board=BOARD):
    """Gives the seats these cards; ours only look at them when they are shown or compared."""
    game._hands = [cards(first), cards(second)]
    game._board = cards(board)


def play(game, *replies):
    for reply in replies:
        assert game.step(reply) is Verdict.PLAYED, (reply, game.observation(game.to_move))
