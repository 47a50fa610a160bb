"""Whether words about a grid are the grid itself, written down: two of its rows, or columns, cell by cell.

The rule is ours. clembench pays for a grid that is copied into one line as for one that is described, so that a player
need not describe. What it leaves alone: cells named by their places, one row alone, and a drawing that is taken apart
in any other way.
"""

import collections
import functools
import re
from collections.abc import Iterator

from dfc.games.dialogue.grids import EMPTY, Grid
from dfc.games.folding import fold

_JOINTS = re.compile(r"[\s,;:/|()\[\]{}\"'`]+")
COPYING = " Use words: two rows or columns written out cell by cell lose the game for both of you."
"""What the rules say of it."""
_FEWEST = 2  # lines of a grid that are a copy


@functools.lru_cache(maxsize=4096)
def copied(text: str, grid: Grid) -> bool:
    r"""Returns whether a text holds two lines of a grid, cell by cell, that have a letter each.

    Letters stand for themselves in any case, or for any other sign where the grid has one letter only; empty cells are
    any one sign. Cells may be joined or parted by blanks and punctuation.

    >>> copied("X . X / . . . / . X .", ("X▢X", "▢▢▢", "▢X▢")), copied("101 000 010", ("X▢X", "▢▢▢", "▢X▢"))
    (True, True)
    >>> copied("the corners of the top row and the middle of the last one", ("X▢X", "▢▢▢", "▢X▢"))
    False
    """
    columns = tuple(map("".join, zip(*grid, strict=True)))
    return _holds_lines(text, grid) or _holds_lines(text, columns)


def _holds_lines(text: str, lines: Grid) -> bool:
    letters = frozenset("".join(lines).lower()) - {EMPTY}
    width = len(lines[0])
    wanted = {line.lower() for line in lines} - {EMPTY * width}
    found: collections.Counter[tuple[str, ...]] = collections.Counter()
    for signs in _runs(fold(text).lower(), letters, width):
        free: dict[tuple[str, ...], int] = {}  # from where on the signs were not read so before
        for at in range(len(signs) - width + 1):
            for line in wanted:
                reading = _reading(signs[at : at + width], line, letters)
                if reading is not None and at >= free.get(reading, 0):
                    found[reading] += 1
                    free[reading] = at + width
    # A line without an empty cell says no sign for these, and goes with any.
    full = sum(number for reading, number in found.items() if not reading[-1])
    return any(number + (full if reading[-1] else 0) >= _FEWEST for reading, number in found.items())


def _runs(text: str, letters: frozenset[str], width: int) -> Iterator[str]:
    """Yields what may be cells in a row: single signs, and words of few different ones."""
    cells: list[str] = []
    for word in _JOINTS.split(text):
        drawn = len(word) >= width and len(set(word)) <= len(letters) + 2
        if len(word) == 1 or drawn or all(sign in letters or not sign.isalnum() for sign in word):
            cells.append(word)
        else:
            yield "".join(cells)
            cells.clear()
    yield "".join(cells)


def _reading(signs: str, line: str, letters: frozenset[str]) -> tuple[str, ...] | None:
    """Returns which signs stand for the letter and for nothing, where they can be read as a line; else None."""
    pairs = set(zip(line, signs, strict=True))
    if len({cell for cell, _ in pairs}) != len(pairs) or len({sign for _, sign in pairs}) != len(pairs):
        return None  # two signs for one, or one for two
    standing = dict(pairs)
    empty = standing.pop(EMPTY, "")
    if empty in letters:
        return None
    if len(letters) == 1:
        return (*standing.values(), empty)
    return ("", empty) if all(cell == sign for cell, sign in standing.items()) else None
