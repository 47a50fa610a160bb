"""Bots for the image game, for both seats: they talk in commands of `dfc.games.bots.grid_talk`."""

from collections.abc import Sequence

from dfc.games.bots.bot import GameBots
from dfc.games.bots.grid_talk import commands, draw
from dfc.games.dialogue.grids import BLANK, CELLS, EMPTY, text_of
from dfc.games.dialogue.image_game import DONE, GIVER, ImageGame
from dfc.games.rng import GameRng

_TOGETHER = 3  # commands that the strong giver sends at once
_PATIENCE = 6  # letters that the simple giver sends, one at a time


def _simple(game: ImageGame, seat: int, rng: GameRng) -> str:
    """Gives single cells, some of them only, then is done; draws rows, columns and single cells, no other shape."""
    del rng
    if seat == GIVER:
        letters = [
            f"Put {game.target[row][column]} in row {row + 1}, column {column + 1}"
            for row, column in CELLS
            if game.target[row][column] != EMPTY
        ]
        return _next(letters[:_PATIENCE], game)
    return text_of(draw(game.commands[-1], game.drawn or BLANK, shapes=False))


def _strong(game: ImageGame, seat: int, rng: GameRng) -> str:
    """Gives the fewest commands that it finds, three at a time; draws what they say, and simple English."""
    del rng
    if seat == GIVER:
        found = commands(game.target)
        return _next(["; ".join(found[i : i + _TOGETHER]) for i in range(0, len(found), _TOGETHER)], game)
    return text_of(draw(game.commands[-1], game.drawn or BLANK))


def _next(found: Sequence[str], game: ImageGame) -> str:
    """Returns the first command that was not given yet, or DONE."""
    left = [command for command in found if command not in game.commands]
    return f"Command: {left[0]}" if left else DONE


BOTS = (GameBots(ImageGame, _simple, _strong),)
