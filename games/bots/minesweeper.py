"""Bots for Minesweeper; they read the board that the player sees, never what lies below."""

import math
from collections.abc import Iterator

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.paprika import minesweeper
from dfc.games.paprika.minesweeper import Minesweeper
from dfc.games.paprika.task import tagged
from dfc.games.rng import GameRng


def _reveal(game: Minesweeper, cell: int) -> str:
    row, column = divmod(cell, game.columns)
    return tagged(f"reveal {row} {column}")


def _numbers(game: Minesweeper) -> list[tuple[int, tuple[int, ...]]]:
    """Returns for every number on the board, zeros too, how many mines lie in which hidden neighbours."""
    near, board = minesweeper.neighbours(game.rows, game.columns), game.board
    return [
        (
            0 if symbol == minesweeper.ZERO else int(symbol),
            tuple(c for c in near[cell] if board[c] == minesweeper.HIDDEN),
        )
        for cell, symbol in enumerate(board)
        if symbol != minesweeper.HIDDEN
    ]


def _simple(game: Minesweeper, _seat: int, rng: GameRng) -> str:
    """Opens a cell that one number alone, with the mines that single numbers give away, shows to be safe.

    Without one it opens a hidden cell at random that is not known to hold a mine.
    """
    numbers = _numbers(game)
    mines = {cell for count, hidden in numbers if count == len(hidden) for cell in hidden}
    safe = {cell for count, hidden in numbers if count == len(mines.intersection(hidden)) for cell in hidden} - mines
    left = [cell for cell, symbol in enumerate(game.board) if symbol == minesweeper.HIDDEN and cell not in mines]
    return _reveal(game, any_of(sorted(safe) or left, rng))


def _strong(game: Minesweeper, _seat: int, rng: GameRng) -> str:
    """Opens a cell of the lowest probability of a mine, and of these the likeliest to open its neighbours too.

    Exact: all ways to lay mines beside the numbers are counted, each with the ways to lay the others elsewhere. A board
    has at most four mines, so there are at most 8**4 ways.
    """
    near = minesweeper.neighbours(game.rows, game.columns)
    numbers = [(count, hidden) for count, hidden in _numbers(game) if hidden]
    hidden = frozenset(cell for cell, symbol in enumerate(game.board) if symbol == minesweeper.HIDDEN)
    edge = frozenset(cell for _, cells in numbers for cell in cells)
    ways = list(_ways(numbers, frozenset(), frozenset(), game.mines))

    def without_mines(cells: frozenset[int]) -> int:
        """Returns the number of layouts in which none of some hidden cells holds a mine."""
        elsewhere = len(hidden - edge - cells)
        return sum(math.comb(elsewhere, game.mines - len(laid)) for laid in ways if not laid & cells)

    values = {
        cell: (without_mines(frozenset((cell,))), without_mines(hidden.intersection((cell, *near[cell]))))
        for cell in hidden
    }
    best = max(values.values())
    return _reveal(game, any_of(sorted(cell for cell, value in values.items() if value == best), rng))


def _ways(
    numbers: list[tuple[int, tuple[int, ...]]], laid: frozenset[int], barred: frozenset[int], left: int
) -> Iterator[frozenset[int]]:
    """Yields every set of at most `left` more cells that makes all numbers true, together with `laid`, once."""
    open_number = None
    for count, cells in numbers:
        missing = count - len(laid.intersection(cells))
        if missing < 0:
            return
        if missing and open_number is None:
            open_number = cells
    if open_number is None:
        yield laid
        return
    if not left:
        return
    for cell in open_number:  # the first one of this number's cells, among those not decided, that holds a mine
        if cell not in laid and cell not in barred:
            yield from _ways(numbers, laid | {cell}, barred, left - 1)
            barred |= {cell}


BOTS = (GameBots(Minesweeper, _simple, _strong),)
