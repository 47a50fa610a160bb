"""Strategies for Battleship and Minesweeper; they read the boards that the player sees, never what lies below."""

import functools
import math
from collections.abc import Iterator, Sequence

from dfc.games.chance import Chance
from dfc.games.paprika import battleship, minesweeper
from dfc.games.paprika.battleship import SHIPS, Battleship
from dfc.games.paprika.minesweeper import Minesweeper
from dfc.games.paprika.task import tagged
from dfc.games.strategies.strategy import Strategies


def _pick(cells: Sequence[int], chance: Chance) -> int:
    return cells[chance.below(len(cells))]


# ---- Battleship -------------------------------------------------------------------------------------------------


def _shot(game: Battleship, cell: int) -> str:
    row, column = divmod(cell, game.size)
    return tagged(f"{chr(ord('A') + row)}{column + 1}")


def _battleship_simple(game: Battleship, _seat: int, chance: Chance) -> str:
    """Fires next to a hit ship that has not sunk, else at random."""
    hidden = [cell for cell, symbol in enumerate(game.board) if symbol == battleship.HIDDEN]
    size = game.size
    afloat = [hits for hits, (_, length) in zip(game.hits, SHIPS, strict=True) if 0 < hits.bit_count() < length]
    near = {
        other
        for hits in afloat
        for cell in range(size**2)
        if hits >> cell & 1
        for other, touches in (
            (cell - size, True),
            (cell + size, True),
            (cell - 1, cell % size),
            (cell + 1, -~cell % size),
        )
        if touches
    }
    return _shot(game, _pick([cell for cell in hidden if cell in near] or hidden, chance))


def _battleship_strong(game: Battleship, _seat: int, _chance: Chance) -> str:
    """Fires at the hidden cell that holds a ship in most of the layouts that the shots so far allow."""
    misses = sum(1 << cell for cell, symbol in enumerate(game.board) if symbol == battleship.MISS)
    return _shot(game, _likeliest(game.size, misses, tuple(game.hits)))


@functools.lru_cache(maxsize=1 << 14)
def _likeliest(size: int, misses: int, hits: tuple[int, ...]) -> int:
    every_hit = sum(hits)
    ways = []
    for own, (_, length) in zip(hits, SHIPS, strict=True):
        # A ship on a cell where another was hit overlaps every way to lay that other one, so no layout has it.
        ways.append([ship for ship in battleship.placements(size, length) if own & ~ship == 0 == ship & misses])
    counts = [0] * size**2
    carriers, battleships, destroyers = ways
    for carrier in carriers:
        for other in battleships:
            if carrier & other:
                continue
            free = [ship for ship in destroyers if not ship & (carrier | other)]
            _add(counts, carrier | other, len(free))
            for ship in free:
                _add(counts, ship, 1)
    return max((cell for cell in range(size**2) if not (misses | every_hit) >> cell & 1), key=counts.__getitem__)


def _add(counts: list[int], cells: int, weight: int) -> None:
    while cells:
        lowest = cells & -cells
        counts[lowest.bit_length() - 1] += weight
        cells ^= lowest


# ---- Minesweeper ------------------------------------------------------------------------------------------------


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


def _minesweeper_simple(game: Minesweeper, _seat: int, chance: Chance) -> str:
    """Opens a cell that one number alone, with the mines that single numbers give away, shows to be safe.

    Without one it opens a hidden cell at random that is not known to hold a mine.
    """
    numbers = _numbers(game)
    mines = {cell for count, hidden in numbers if count == len(hidden) for cell in hidden}
    safe = {cell for count, hidden in numbers if count == len(mines.intersection(hidden)) for cell in hidden} - mines
    left = [cell for cell, symbol in enumerate(game.board) if symbol == minesweeper.HIDDEN and cell not in mines]
    return _reveal(game, _pick(sorted(safe) or left, chance))


def _minesweeper_strong(game: Minesweeper, _seat: int, chance: Chance) -> str:
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
    return _reveal(game, _pick(sorted(cell for cell, value in values.items() if value == best), chance))


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


STRATEGIES = (
    Strategies(Battleship, _battleship_simple, _battleship_strong),
    Strategies(Minesweeper, _minesweeper_simple, _minesweeper_strong),
)
