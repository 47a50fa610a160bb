"""Bots for MatchIt: they talk in the language of `dfc.games.bots.grid_talk`.

A bot knows its own grid and what was said; what the other one described or answered it draws on a grid of its own.
"""

import re

from dfc.games.bots.bot import GameBots
from dfc.games.bots.grid_talk import commands, draw, places
from dfc.games.dialogue.grids import BLANK, CELLS, EMPTY, SIZE, Grid, filled, with_cells
from dfc.games.dialogue.match_it import ANSWER, DECISION, DESCRIPTION, DIFFERENT, QUESTION, SAME, MatchIt
from dfc.games.rng import GameRng

_COUNT = re.compile(r"^([0-9]{1,2})\.?$|([0-9]{1,2}) filled")


def _simple(game: MatchIt, seat: int, rng: GameRng) -> str:
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


def _strong(game: MatchIt, seat: int, rng: GameRng) -> str:
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


BOTS = (GameBots(MatchIt, _simple, _strong),)
