"""Bots for Tic Tac Toe."""

import functools

from dfc.games.bots.bot import GameBots, any_of, any_of_the_best
from dfc.games.rng import GameRng
from dfc.games.textarena.tic_tac_toe import TicTacToe

_ROWS_OF_THREE = tuple(
    sum(1 << int(cell) for cell in row) for row in ("012", "345", "678", "036", "147", "258", "048", "246")
)


def _simple(game: TicTacToe, seat: int, rng: GameRng) -> str:
    """Wins if it can, else blocks, else takes the centre, else any free cell."""
    own, other = game.marks[seat], game.marks[1 - seat]
    free = [cell for cell in range(9) if not (own | other) >> cell & 1]
    for marks in (own, other):
        for cell in free:
            if any((marks | 1 << cell) & row == row for row in _ROWS_OF_THREE):
                return f"[{cell}]"
    return "[4]" if 4 in free else any_of([f"[{cell}]" for cell in free], rng)


def _strong(game: TicTacToe, seat: int, rng: GameRng) -> str:
    """Perfect: searches to the end, wins as soon as it can, and draws among moves of the same value."""
    own, other = game.marks[seat], game.marks[1 - seat]
    values = {c: -_value(other, own | 1 << c) for c in range(9) if not (own | other) >> c & 1}
    return f"[{any_of_the_best(list(values), list(values.values()), rng)}]"


@functools.cache
def _value(own: int, other: int) -> int:
    """Returns 0 for a draw, else +-(1 + free cells at the end), positive if the player to move wins; it holds `own`."""
    free = [cell for cell in range(9) if not (own | other) >> cell & 1]
    if any(other & line == line for line in _ROWS_OF_THREE):
        return -1 - len(free)
    return max((-_value(other, own | 1 << cell) for cell in free), default=0)


BOTS = (GameBots(TicTacToe, _simple, _strong),)
