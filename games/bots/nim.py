"""Bots for Nim."""

import functools

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.rng import GameRng
from dfc.games.textarena.nim import Nim


def _simple(game: Nim, _seat: int, rng: GameRng) -> str:
    """Takes the last pile whole and makes the last two equal; with more piles, or two equal ones, any move."""
    left = sorted((size, pile) for pile, size in enumerate(game.piles) if size)
    if len(left) == 1:
        return f"[{left[0][1]} {left[0][0]}]"
    if len(left) == 2 and left[0][0] != left[1][0]:
        return f"[{left[1][1]} {left[1][0] - left[0][0]}]"
    return any_of(game.legal_actions(), rng)


def _strong(game: Nim, _seat: int, rng: GameRng) -> str:
    """Perfect: leaves piles whose sizes have an exclusive-or of 0 (Bouton, "Nim, a game with a complete theory")."""
    total = functools.reduce(lambda a, b: a ^ b, game.piles)
    winning = [(pile, size - (size ^ total)) for pile, size in enumerate(game.piles) if size ^ total < size]
    if winning:
        pile, take = any_of(winning, rng)
        return f"[{pile} {take}]"
    # Lost against perfect play: one object of the largest pile leaves the opponent the most chances to err.
    return f"[{game.piles.index(max(game.piles))} 1]"


BOTS = (GameBots(Nim, _simple, _strong),)
