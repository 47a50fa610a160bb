"""Bots for the reference game, for both seats: they talk in commands of `dfc.games.bots.grid_talk`."""

from dfc.games.bots.bot import GameBots, any_of, any_of_the_best
from dfc.games.bots.grid_talk import commands, draw, places
from dfc.games.dialogue.grids import EMPTY, agreeing, filled
from dfc.games.dialogue.reference_game import GIVER, NAMES, ReferenceGame
from dfc.games.rng import GameRng


def _simple(game: ReferenceGame, seat: int, rng: GameRng) -> str:
    """Names one part of the target, by chance; picks a grid in which the cells named are filled, no other shape."""
    if seat == GIVER:
        return f"Expression: {any_of(commands(game.grids[0]), rng)}"
    named = places(game.expression, shapes=False)
    found = [sum(grid[row][column] != EMPTY for row, column in named) for grid in game.seen]
    return f"Answer: {any_of_the_best(NAMES, found, rng)}"


def _strong(game: ReferenceGame, seat: int, rng: GameRng) -> str:
    """Describes the whole target; draws what is said, and picks the grid that is most like the drawing."""
    if seat == GIVER:
        return f"Expression: {'; '.join(commands(game.grids[0]))}"
    drawn = draw(game.expression)
    alike = [agreeing(drawn, grid) if filled(drawn) else 0 for grid in game.seen]
    return f"Answer: {any_of_the_best(NAMES, alike, rng)}"


BOTS = (GameBots(ReferenceGame, _simple, _strong),)
