"""Whether words about a grid are the grid itself, written down: two of its rows, or columns, cell by cell.

The rule is ours. clembench pays for a grid that is copied into one line as for one that is described, so that a player
need not describe. What it leaves alone: cells named by their places, one row alone, and a drawing that is taken apart
in any other way.
"""

import collections
import functools
import itertools
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
    r"""Returns whether a text holds two lines of a grid, cell by cell, that have a letter each; or the whole grid.

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
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    for signs in _runs(fold(text).lower(), letters, width):
        free: dict[tuple[str, str], int] = {}  # from where on the signs were not read so before
        for at, line in itertools.product(range(len(signs) - width + 1), {line.lower() for line in lines}):
            reading = _reading(signs[at : at + width], line, letters)
            if reading is not None and at >= free.get(reading, 0):
                found[reading] += 1
                free[reading] = at + width
    # Lines that are full, or that are empty, do not say which sign stands for the other; they go with any that does.
    full = {letter: number for (letter, empty), number in found.items() if not empty}
    bare = {empty: number for (letter, empty), number in found.items() if empty and not letter}
    for (letter, empty), number in found.items():
        drawn = number + full.get(letter, 0) if empty and letter else full.get(letter, 0) * (letter in letters)
        empties = bare.get(empty, 0) if empty else max(bare.values(), default=0)
        if drawn >= _FEWEST or (drawn and drawn + empties >= len(lines)):
            return True
    return False


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


def _reading(signs: str, line: str, letters: frozenset[str]) -> tuple[str, str] | None:
    """Returns the sign of the letter (of several the first one) and of nothing, where they can be read as a line."""
    pairs = set(zip(line, signs, strict=True))
    if len({cell for cell, _ in pairs}) != len(pairs) or len({sign for _, sign in pairs}) != len(pairs):
        return None  # two signs for one, or one for two
    standing = dict(pairs)
    empty = standing.pop(EMPTY, "")
    if empty in letters or (len(letters) > 1 and any(cell != sign for cell, sign in standing.items())):
        return None
    if not standing:
        return "", empty
    return min(letters) if len(letters) > 1 else "".join(standing.values()), empty
