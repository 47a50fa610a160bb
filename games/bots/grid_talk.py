"""How the bots of the grid games talk about grids: a small language of commands, which is plain English.

    Put X in row 2; put A in row 3, columns 2 to 4; put B in the diagonal from the bottom left to the top right

`commands` says a grid in it, `draw` reads it and other simple English: ordinals and number words, single cells such as
``row 2, column 5`` or ``(2, 5)``, the border, corners, centre, diagonals, everything, the rest, shapes of letters, and
``clear`` or ``empty`` instead of a letter. What is not understood is skipped.
"""

import functools
import re
from collections.abc import Iterator

from dfc.games.dialogue.grids import (
    BLANK,
    CELLS,
    EMPTY,
    SIZE,
    Grid,
    border_cells,
    column_cells,
    diagonals,
    glyphs,
    row_cells,
    with_cells,
)

Cells = tuple[tuple[int, int], ...]

_DOWN, _UP = (next(d for d in diagonals() if len(d) == SIZE and d[0] == start) for start in ((0, 0), (0, SIZE - 1)))
_SHAPES: tuple[tuple[str, Cells], ...] = (
    ("the border", border_cells()),
    ("the diagonal from the top left to the bottom right", _DOWN),
    ("the diagonal from the bottom left to the top right", _UP),
)
_LEAST = 3  # cells of a run that is worth a command of its own before single cells

# ---- speaking ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def commands(grid: Grid) -> tuple[str, ...]:
    """Returns commands that draw a grid on an empty one, whole lines first; each draws right cells only."""
    grid = tuple(row[:SIZE].ljust(SIZE, EMPTY) for row in grid[:SIZE])
    found = []
    left = {cell: grid[cell[0]][cell[1]] for cell in CELLS if cell[0] < len(grid)}
    left = {cell: letter for cell, letter in left.items() if letter != EMPTY}
    places = [(name, cells) for name, cells in (*_whole_lines(), *_runs()) if _one_letter(grid, cells)]
    while left:
        gains = [sum(cell in left for cell in cells) for _, cells in places]
        best = max(range(len(places)), key=gains.__getitem__)
        name, cells = places[best]
        found.append(f"Put {grid[cells[0][0]][cells[0][1]]} in {name}")
        left = {cell: letter for cell, letter in left.items() if cell not in cells}
    return tuple(found)


def _one_letter(grid: Grid, cells: Cells) -> bool:
    letters = {grid[row][column] if row < len(grid) else EMPTY for row, column in cells}
    return len(letters) == 1 and EMPTY not in letters


def _whole_lines() -> Iterator[tuple[str, Cells]]:
    yield from ((f"row {row + 1}", row_cells(row)) for row in range(SIZE))
    yield from ((f"column {column + 1}", column_cells(column)) for column in range(SIZE))
    yield from _SHAPES


def _runs() -> Iterator[tuple[str, Cells]]:
    for line in range(SIZE):
        for length in range(SIZE - 1, _LEAST - 2, -1):
            for first in range(SIZE - length + 1):
                span = f"{first + 1} to {first + length}" if length > 2 else f"{first + 1} and {first + 2}"
                yield f"row {line + 1}, columns {span}", row_cells(line)[first : first + length]
                yield f"column {line + 1}, rows {span}", column_cells(line)[first : first + length]
    yield from ((f"row {row + 1}, column {column + 1}", ((row, column),)) for row, column in CELLS)


# ---- reading ----------------------------------------------------------------------------------------------------

_NUMBERS = {
    word: number
    for number, words in enumerate(
        ("one first 1st top", "two second 2nd", "three third 3rd", "four fourth 4th", "five fifth 5th last bottom"), 1
    )
    for word in words.split()
}
_WORD_NUMBER = re.compile(rf"\b({'|'.join(_NUMBERS)})\b")
_LIST = r"([1-5](?:(?: ?(?:,|and|&|to|-|through) ?){1,2}[1-5]\b)*)"
_LINES = {
    kind: (re.compile(rf"\b{kind}s?\s*:?\s*{_LIST}(?!\d)"), re.compile(rf"(?<!\d){_LIST}\s+{kind}s?\b"))
    for kind in ("row", "column")
}
_PAIR = re.compile(r"\(\s*([1-5])\s*,\s*([1-5])\s*\)")
_SPAN = re.compile(r"([1-5])(?:\s*(?:to|-|through)\s*([1-5]))?")
_CLAUSE = re.compile(r"[;.\n]|\bthen\b|,\s*and\b(?=\s+(?:put|fill|clear|row|column)\b)", re.IGNORECASE)
_LETTER = re.compile(r"(?<![\w'])([A-Z])(?![\w'])")
_CLEARED = re.compile(r"\b(clear|erase|empty|remove|delete|blank)\b")
_REST = re.compile(r"\b(rest|remaining|other cells?|others|everything else|elsewhere)\b")
_NAMED: tuple[tuple[re.Pattern[str], Cells], ...] = (
    (re.compile(r"\b(border|frame|edges?|outline)\b"), border_cells()),
    (re.compile(r"\b(center|centre|middle)\b(?! (row|column))"), ((SIZE // 2, SIZE // 2),)),
    (re.compile(r"\b(all (the )?cells|every cell|everything|(whole|entire|complete) grid)\b"), CELLS),
)
_PLACE = re.compile(r"row|column|cell|cent|middle|corner|diagonal|border|edge")
_SHAPE = re.compile(r"\b(?:letter|shape of an?|shaped like an?|looks like an?)\s+\"?'?([a-z])\b")


def draw(text: str, grid: Grid = BLANK, *, shapes: bool = True) -> Grid:
    """Returns a grid of `SIZE` by `SIZE` after what a text says was drawn on it.

    `text` is commands or a description; `grid`, if of another size, is an empty one; without `shapes` only rows,
    columns and single cells are understood.
    """
    if len(grid) != SIZE or any(len(row) != SIZE for row in grid):
        grid = BLANK
    letter = "X"
    for clause in _CLAUSE.split(text):
        asked, named = places(clause, grid, shapes=shapes), _letter(clause)
        letter = named if named not in ("", EMPTY) else letter
        grid = with_cells(grid, asked, EMPTY if named == EMPTY else letter)
    return grid


def _letter(clause: str) -> str:
    """Returns the letter that a clause names, `EMPTY` for clearing, or nothing."""
    if EMPTY in clause or _CLEARED.search(clause.lower()):
        return EMPTY
    if _shape_of_letter(clause.lower()):
        return "X"
    letters = _LETTER.findall(re.sub(r"^\s*(A|I)(?=\s+[a-z]{3,})", "", clause))
    return letters[0] if letters else ""


def places(clause: str, grid: Grid = BLANK, *, shapes: bool = True) -> Cells:
    """Returns the cells that a clause speaks of, () if none; `grid` decides what the rest is."""
    said = clause.lower()
    if _REST.search(said):
        return tuple((r, c) for r, c in CELLS if grid[r][c] == EMPTY) if shapes else ()
    pairs = _PAIR.findall(said)
    if pairs:
        return tuple((int(row) - 1, int(column) - 1) for row, column in pairs)
    shape = _shape_of(said) if shapes else ()
    if shape:
        return shape
    numbered = _WORD_NUMBER.sub(lambda found: str(_NUMBERS[found[1]]), said)
    numbered = re.sub(r"\b(middle|center|centre|central)(?= (row|column))", "3", numbered)
    numbered = re.sub(r"\b(left|leftmost)(?: most)?(?= column)", "1", numbered)
    numbered = re.sub(r"\b(right|rightmost)(?: most)?(?= column)", str(SIZE), numbered)
    rows, columns = _lines(numbered, "row"), _lines(numbered, "column")
    if not rows and not columns:
        return ()
    return tuple((row, column) for row in rows or range(SIZE) for column in columns or range(SIZE))


def _shape_of(said: str) -> Cells:
    """Returns the cells of what is neither row nor column."""
    if "diagonal" in said:
        up = "anti" in said or re.search(r"(bottom|lower)[- ]left|(top|upper)[- ]right", said)
        return (*_DOWN, *_UP) if "both" in said or "diagonals" in said else _UP if up else _DOWN
    if "corner" in said:
        rows, columns = (_named(sides, said) for sides in (("top", "bottom"), ("left", "right")))
        return tuple((row, column) for row in rows for column in columns)
    return next((cells for pattern, cells in _NAMED if pattern.search(said)), _shape_of_letter(said))


def _named(sides: tuple[str, str], said: str) -> list[int]:
    """Returns the first or the last line, or both, by the sides that are named."""
    return [place for side, place in zip(sides, (0, SIZE - 1), strict=True) if side in said] or [0, SIZE - 1]


def _shape_of_letter(said: str) -> Cells:
    """Returns the cells of a letter as which the whole grid is described, drawn in the middle."""
    found = None if _PLACE.search(said) else _SHAPE.search(said)
    return tuple((row, column + 1) for row, column in glyphs()[found[1].upper()]) if found else ()


def _lines(said: str, kind: str) -> list[int]:
    """Returns the numbers of rows or of columns that are named, from 0."""
    behind, before = _LINES[kind]
    found = behind.findall(said) or before.findall(said)
    numbers: dict[int, None] = {}
    for first, last in _SPAN.findall(" ".join(found)):
        low, high = sorted((int(first), int(last or first)))
        numbers.update(dict.fromkeys(range(low - 1, high)))
    return list(numbers)
