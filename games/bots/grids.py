"""Bots for the grid games of clembench, for both seats, and the language in which they talk about grids.

The language is a small one of commands, which is plain English:

    Put X in row 2; put A in row 3, columns 2 to 4; put B in the diagonal from the bottom left to the top right

`commands` says a grid in it, `draw` reads it and other simple English: ordinals and number words, single cells such as
``row 2, column 5`` or ``(2, 5)``, the border, corners, centre, diagonals, everything, the rest, shapes of letters, and
``clear`` or ``empty`` instead of a letter. What is not understood is skipped.

In MatchIt a bot knows its own grid and what was said; what the other one described or answered it draws on a grid of
its own.
"""

import functools
import re
from collections.abc import Iterator, Sequence

from dfc.games.bots.bot import GameBots, any_of, any_of_the_best
from dfc.games.dialogue import image_game, reference_game
from dfc.games.dialogue.grids import (
    BLANK,
    CELLS,
    EMPTY,
    SIZE,
    Grid,
    agreeing,
    border_cells,
    column_cells,
    diagonals,
    filled,
    glyphs,
    row_cells,
    text_of,
    with_cells,
)
from dfc.games.dialogue.image_game import DONE, ImageGame
from dfc.games.dialogue.match_it import ANSWER, DECISION, DESCRIPTION, DIFFERENT, QUESTION, SAME, MatchIt
from dfc.games.dialogue.reference_game import NAMES, ReferenceGame
from dfc.games.rng import GameRng

Cells = tuple[tuple[int, int], ...]

_DOWN, _UP = (next(d for d in diagonals() if len(d) == SIZE and d[0] == start) for start in ((0, 0), (0, SIZE - 1)))
_SHAPES: tuple[tuple[str, Cells], ...] = (
    ("the border", border_cells()),
    ("the diagonal from the top left to the bottom right", _DOWN),
    ("the diagonal from the bottom left to the top right", _UP),
)
_LEAST = 3  # cells of a run that is worth a command of its own before single cells

# ---- Talk of grids: speaking ------------------------------------------------------------------------------------


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


# ---- Talk of grids: reading -------------------------------------------------------------------------------------

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


# ---- Image game -------------------------------------------------------------------------------------------------

_TOGETHER = 3  # commands that the strong giver sends at once
_PATIENCE = 6  # letters that the simple giver sends, one at a time


def _simple_image_game(game: ImageGame, seat: int, _chance: GameRng) -> str:
    """Gives single cells, some of them only, then is done; draws rows, columns and single cells, no other shape."""
    if seat == image_game.GIVER:
        letters = [
            f"Put {game.target[row][column]} in row {row + 1}, column {column + 1}"
            for row, column in CELLS
            if game.target[row][column] != EMPTY
        ]
        return _next(letters[:_PATIENCE], game)
    return text_of(draw(game.commands[-1], game.drawn or BLANK, shapes=False))


def _strong_image_game(game: ImageGame, seat: int, _chance: GameRng) -> str:
    """Gives the fewest commands that it finds, three at a time; draws what they say, and simple English."""
    if seat == image_game.GIVER:
        found = commands(game.target)
        return _next(["; ".join(found[i : i + _TOGETHER]) for i in range(0, len(found), _TOGETHER)], game)
    return text_of(draw(game.commands[-1], game.drawn or BLANK))


def _next(found: Sequence[str], game: ImageGame) -> str:
    """Returns the first command that was not given yet, or DONE."""
    left = [command for command in found if command not in game.commands]
    return f"Command: {left[0]}" if left else DONE


# ---- MatchIt ----------------------------------------------------------------------------------------------------

_COUNT = re.compile(r"^([0-9]{1,2})\.?$|([0-9]{1,2}) filled")


def _simple_match_it(game: MatchIt, seat: int, rng: GameRng) -> str:
    """Speaks of numbers of cells only, of the grid and of three lines; decides for the same grid where they agree."""
    tag, own = game.tag(seat), game.grids[seat]
    if tag == DESCRIPTION:
        return f"{DESCRIPTION} my grid has {filled(own)} filled cells"
    if tag == QUESTION:
        kind = ("row", "column")[rng.randrange(2)]
        return f"{QUESTION} How many cells are filled in {kind} {1 + rng.randrange(SIZE)}?"
    if tag == ANSWER:
        asked = places(game.heard(1 - seat, QUESTION)[-1], own) or CELLS
        return f"{ANSWER} {sum(own[row][column] != EMPTY for row, column in asked)}"
    said = [(CELLS, game.heard(1 - seat, DESCRIPTION)[0])]
    questions, answers = game.heard(seat, QUESTION), game.heard(1 - seat, ANSWER)
    said += [(places(asked, own), answer) for asked, answer in zip(questions, answers, strict=True)]
    for cells, words in said:
        number = _COUNT.search(words)
        if number and int(number[1] or number[2]) != sum(own[row][column] != EMPTY for row, column in cells):
            return f"{DECISION} {DIFFERENT}"
    return f"{DECISION} {SAME}"


def _strong_match_it(game: MatchIt, seat: int, rng: GameRng) -> str:
    """Describes all of its grid, asks for lines that differ or by chance, and compares its grid with what was said.

    Of a partner whose description draws nothing it compares the lines that were answered.
    """
    tag, own = game.tag(seat), game.grids[seat]
    if tag == DESCRIPTION:
        return f"{DESCRIPTION} {'; '.join(commands(own))}; all other cells are empty"
    if tag == ANSWER:
        asked = places(game.heard(1 - seat, QUESTION)[-1], own) or CELLS
        shown = with_cells(BLANK, [(r, c) for r, c in asked if own[r][c] != EMPTY], "X")
        return f"{ANSWER} {'; '.join(commands(shown)) or 'nowhere'}"
    theirs = _drawn(game, seat)
    if tag == QUESTION:
        rows = [row for row in range(SIZE) if own[row] != theirs[row]] or list(range(SIZE))
        return f"{QUESTION} Where is an X in row {1 + rows[rng.randrange(len(rows))]}?"
    return f"{DECISION} {SAME if theirs == own else DIFFERENT}"


def _drawn(game: MatchIt, seat: int) -> Grid:
    """Returns the other's grid as far as it was described; an answer about a line replaces what was known of it."""
    found = draw(game.heard(1 - seat, DESCRIPTION)[0])
    if not filled(found):
        found = game.grids[seat]
    for asked, answer in zip(game.heard(seat, QUESTION), game.heard(1 - seat, ANSWER), strict=False):
        said = draw(answer)
        if filled(said) or "nowhere" in answer:
            for row, column in places(asked, found):
                found = with_cells(found, [(row, column)], said[row][column])
    return found


# ---- Reference game ---------------------------------------------------------------------------------------------


def _simple_reference_game(game: ReferenceGame, seat: int, rng: GameRng) -> str:
    """Names one part of the target, by chance; picks a grid in which the cells named are filled, no other shape."""
    if seat == reference_game.GIVER:
        return f"Expression: {any_of(commands(game.grids[0]), rng)}"
    named = places(game.expression, shapes=False)
    found = [sum(grid[row][column] != EMPTY for row, column in named) for grid in game.seen]
    return f"Answer: {any_of_the_best(NAMES, found, rng)}"


def _strong_reference_game(game: ReferenceGame, seat: int, rng: GameRng) -> str:
    """Describes the whole target; draws what is said, and picks the grid that is most like the drawing."""
    if seat == reference_game.GIVER:
        return f"Expression: {'; '.join(commands(game.grids[0]))}"
    drawn = draw(game.expression)
    alike = [agreeing(drawn, grid) if filled(drawn) else 0 for grid in game.seen]
    return f"Answer: {any_of_the_best(NAMES, alike, rng)}"


BOTS = (
    GameBots(ImageGame, _simple_image_game, _strong_image_game),
    GameBots(MatchIt, _simple_match_it, _strong_match_it),
    GameBots(ReferenceGame, _simple_reference_game, _strong_reference_game),
)
