"""Bots for Battleship; they read the board that the player sees, never what lies below."""

import functools

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.paprika import battleship
from dfc.games.paprika.battleship import SHIPS, Battleship
from dfc.games.paprika.task import tagged
from dfc.games.rng import GameRng


def _shot(game: Battleship, cell: int) -> str:
    row, column = divmod(cell, game.size)
    return tagged(f"{chr(ord('A') + row)}{column + 1}")


def _simple(game: Battleship, _seat: int, rng: GameRng) -> str:
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
    return _shot(game, any_of([cell for cell in hidden if cell in near] or hidden, rng))


def _strong(game: Battleship, _seat: int, _chance: GameRng) -> str:
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


BOTS = (GameBots(Battleship, _simple, _strong),)
