"""Bots for Guess the Number: they know the hints, as the numbers that they leave, and not the hidden number."""

from dfc.games.bots.bot import GameBots
from dfc.games.rng import GameRng
from dfc.games.textarena.guess_the_number import GuessTheNumber


def _simple(game: GuessTheNumber, _seat: int, rng: GameRng) -> str:
    """Any number that the hints leave."""
    return f"[{game.low + rng.randrange(game.high - game.low + 1)}]"


def _strong(game: GuessTheNumber, _seat: int, _chance: GameRng) -> str:
    """Halves what the hints leave."""
    return f"[{(game.low + game.high) // 2}]"


BOTS = (GameBots(GuessTheNumber, _simple, _strong),)
