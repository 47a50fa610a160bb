"""Grids of letters for the image, reference and match-it games: text, comparison, and seeded generators.

A grid is a tuple of rows, each a string with one character a cell: a capital letter, or `EMPTY`. Players see and write
a row a line, its cells with blanks between them. Every grid belongs to one split by its own hash, in all three games,
so that no grid of one split is seen in another one.
"""

import functools
import itertools
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from dfc.games.rng import GameRng, derive_seed
from dfc.games.task import FRESH

Grid = tuple[str, ...]
_Item = TypeVar("_Item")

SIZE = 5
EMPTY = "▢"
"""An empty cell, as clembench writes it."""
BLANK: Grid = (EMPTY * SIZE,) * SIZE
"""The grid of `SIZE` rows and columns without a letter."""
CELLS = tuple(itertools.product(range(SIZE), range(SIZE)))
"""(row, column) of all cells, from 0."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_EMPTY_TOO = str.maketrans(dict.fromkeys("□._", EMPTY))  # spellings of an empty cell that are read as well
_ROW = re.compile(rf"[A-Z{EMPTY}](?: [A-Z{EMPTY}])*")
_SHARES = (("train", 60), ("validation", 20), ("test", 20))  # of all grids, in percent
_LONG = (2, 3, 4, 10, 11)  # diagonals of four cells or more
_TRIES = 60  # draws of a changed grid
_FILE = pathlib.Path(__file__).parent / "data" / "letters.json"

# ---- text and comparison ----------------------------------------------------------------------------------------


def text_of(grid: Grid) -> str:
    r"""Returns a grid as players see it.

    >>> text_of(("AB", "C▢"))
    'A B\nC ▢'
    """
    return "\n".join(map(" ".join, grid))


def read_grid(text: str) -> Grid | None:
    r"""Returns the grid that a text consists of, of any size, or None if there is anything else in it.

    A row is a line of cells with white space between them; blank lines do not count. ``.``, ``_`` and ``□`` are
    empty cells as well. Rows may be of different lengths: a player may have drawn such a thing.

    >>> read_grid("A B\n\n . C\n")
    ('AB', '▢C')
    >>> read_grid("AB") is None, read_grid("A grid:\nA B") is None, read_grid("") is None
    (True, True, True)
    """
    rows = [" ".join(line.split()) for line in text.translate(_EMPTY_TOO).splitlines()]
    rows = [row for row in rows if row]
    if not rows or not all(_ROW.fullmatch(row) for row in rows):
        return None
    return tuple(row.replace(" ", "") for row in rows)


def filled(grid: Grid) -> int:
    """Returns how many cells hold a letter."""
    return sum(len(row) - row.count(EMPTY) for row in grid)


def same_shape(first: Grid, second: Grid) -> bool:
    """Returns whether two grids have as many rows, of the same lengths."""
    return len(first) == len(second) and all(len(a) == len(b) for a, b in zip(first, second, strict=True))


def f1(target: Grid, drawn: Grid) -> float:
    """Returns the F1 score, from 0 to 1, of the cells with a letter; 0 where size or number of letters makes it void.

    A letter counts as found where the same one stands in the same cell of the target. With precision and recall p and r
    of these, F1 = 2 p r / (p + r) = 2 found / (letters drawn + letters of the target).

    >>> f1(("AB",), ("A▢",)), f1(("AB",), ("AC",)), f1(("AB",), ("A", "B"))
    (0.6666666666666666, 0.5, 0.0)
    """
    letters = filled(target) + filled(drawn)
    if not letters or not same_shape(target, drawn):
        return 0.0
    pairs = zip("".join(target), "".join(drawn), strict=True)
    return 2.0 * sum(a == b != EMPTY for a, b in pairs) / letters


def agreeing(first: Grid, second: Grid) -> int:
    """Returns how many cells of two grids of the same size are alike, empty ones included."""
    return sum(a == b for a, b in zip("".join(first), "".join(second), strict=True))


def with_cells(grid: Grid, cells: Iterable[tuple[int, int]], letter: str) -> Grid:
    """Returns a grid in which these cells, (row, column) from 0, hold a letter or are empty."""
    rows = list(map(list, grid))
    for row, column in cells:
        rows[row][column] = letter
    return tuple(map("".join, rows))


# ---- lines ------------------------------------------------------------------------------------------------------


def row_cells(row: int) -> tuple[tuple[int, int], ...]:
    """Returns the cells of a row, from 0."""
    return tuple((row, column) for column in range(SIZE))


def column_cells(column: int) -> tuple[tuple[int, int], ...]:
    """Returns the cells of a column, from 0."""
    return tuple((row, column) for row in range(SIZE))


@functools.cache
def diagonals() -> tuple[tuple[tuple[int, int], ...], ...]:
    """Returns the diagonals of two cells or more, those from the top left to the bottom right first.

    >>> len(diagonals()), diagonals()[0]
    (14, ((3, 0), (4, 1)))
    """
    down = [tuple((r, c) for r, c in CELLS if c - r == offset) for offset in range(2 - SIZE, SIZE - 1)]
    up = [tuple((r, c) for r, c in CELLS if c + r == total) for total in range(1, 2 * SIZE - 2)]
    return (*down, *up)


def border_cells() -> tuple[tuple[int, int], ...]:
    """Returns the cells of the border."""
    return tuple((row, column) for row, column in CELLS if {row, column} & {0, SIZE - 1})


# ---- generators: a stream -> a grid -------------------------------------------------------------------------------


def _rows(rng: GameRng) -> Grid:
    """Two or three rows, each with a run of three cells or more."""
    grid = BLANK
    for row in _some(range(SIZE), 2 + rng.randrange(2), rng):
        length = 3 + rng.randrange(SIZE - 2)
        first = rng.randrange(SIZE - length + 1)
        grid = with_cells(grid, row_cells(row)[first : first + length], "X")
    return grid


def _columns(rng: GameRng) -> Grid:
    """The same with columns."""
    return tuple(map("".join, zip(*_rows(rng), strict=True)))


def _diagonals(rng: GameRng) -> Grid:
    """One to three diagonals with four cells or more together."""
    grid = BLANK
    while filled(grid) < SIZE - 1:
        grid = with_cells(BLANK, itertools.chain(*_some(diagonals(), 1 + rng.randrange(3), rng)), "X")
    return grid


def _letters(rng: GameRng) -> Grid:
    """A letter three cells wide, and mostly one more cell beside it."""
    shape, left = glyphs()[LETTERS[rng.randrange(len(LETTERS))]], rng.randrange(SIZE - 2)
    grid = with_cells(BLANK, ((row, left + column) for row, column in shape), "X")
    beside = [cell for cell in CELLS if not left <= cell[1] < left + 3]
    return with_cells(grid, _some(beside, min(1, rng.randrange(4)), rng), "X")


def _shapes(rng: GameRng) -> Grid:
    """A rectangle of three cells or more a side: full, or two to four of its sides."""
    (top, bottom), (left, right) = (_span(rng) for _ in range(2))
    inside = [(r, c) for r, c in CELLS if top <= r <= bottom and left <= c <= right]
    sides = _some(range(4), 1 + rng.randrange(4), rng)
    if len(sides) == 1:
        return with_cells(BLANK, inside, "X")
    on = [(r == top, c == right, r == bottom, c == left) for r, c in inside]
    kept = [cell for cell, lies in zip(inside, on, strict=True) if any(lies[side] for side in sides)]
    return with_cells(BLANK, kept, "X")


def _compact(rng: GameRng) -> Grid:
    """Two or three strokes, each with a letter of its own: a row, column, diagonal, border or block."""
    grid = BLANK
    for letter in _some(LETTERS, 2 + rng.randrange(2), rng):
        kind = rng.randrange(5)
        if kind == 4:
            (top, bottom), (left, right) = (_span(rng) for _ in range(2))
            cells = tuple((r, c) for r, c in CELLS if top <= r <= bottom and left <= c <= right)
        else:
            strokes = (row_cells, column_cells, lambda place: diagonals()[_LONG[place]], lambda _: border_cells())
            cells = strokes[kind](rng.randrange(SIZE))
        grid = with_cells(grid, cells, letter)
    return grid


def _random(rng: GameRng) -> Grid:
    """Five to nine single cells with two to four letters."""
    letters = _some(LETTERS, 2 + rng.randrange(3), rng)
    grid = BLANK
    for cell in _some(CELLS, 5 + rng.randrange(5), rng):
        grid = with_cells(grid, [cell], letters[rng.randrange(len(letters))])
    return grid


GENERATORS: Mapping[str, Callable[[GameRng], Grid]] = MappingProxyType(
    {
        "rows": _rows,
        "columns": _columns,
        "diagonals": _diagonals,
        "letters": _letters,
        "shapes": _shapes,
        "compact": _compact,
        "random": _random,
    }
)
"""By kind; those of the last two have several letters, the others the letter X only."""


def split_of(grid: Grid) -> str:
    """Returns the split to which a grid belongs, in every game: by a hash of the grid alone."""
    place = derive_seed("split", "/".join(grid)) % 100
    for split, share in _SHARES:
        if place < share:
            return split
        place -= share
    raise AssertionError("the shares are 100 in all")


def draw_of(split: str, kind: str, rng: GameRng) -> Grid:
    """Returns the next grid of a kind from a stream that belongs to a split; fresh ones are of ``train``."""
    own = "train" if split == FRESH else split
    while True:
        grid = GENERATORS[kind](rng)
        if split_of(grid) == own:
            return grid


def changed(grid: Grid, number: int, split: str, rng: GameRng) -> Grid | None:
    """Returns a grid of the same split that differs in so many cells, an X for nothing or nothing for an X.

    None where none was found in `_TRIES` draws: about one test grid in 260 has no neighbour by one cell in its split.
    """
    own = "train" if split == FRESH else split
    for _ in range(_TRIES):
        new = grid
        for row, column in _some(CELLS, number, rng):
            new = with_cells(new, [(row, column)], "X" if grid[row][column] == EMPTY else EMPTY)
        if split_of(new) == own:
            return new
    return None


@functools.cache
def glyphs() -> Mapping[str, tuple[tuple[int, int], ...]]:
    """Returns the cells of each letter's shape, five rows of three cells."""
    found: dict[str, str] = json.loads(_FILE.read_text(encoding="utf-8"))
    return {
        letter: tuple((r, c) for r, row in enumerate(rows.split()) for c, cell in enumerate(row) if cell == "X")
        for letter, rows in found.items()
    }


def _span(rng: GameRng) -> tuple[int, int]:
    """Returns the first and the last of three neighbouring places or more."""
    length = 3 + rng.randrange(SIZE - 2)
    first = rng.randrange(SIZE - length + 1)
    return first, first + length - 1


def _some(items: Iterable[_Item], number: int, rng: GameRng) -> list[_Item]:
    """Returns so many of the items, in random order."""
    left = list(items)
    return [left.pop(rng.randrange(len(left))) for _ in range(number)]
