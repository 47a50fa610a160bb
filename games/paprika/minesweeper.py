"""Minesweeper: open every cell without a mine, by the numbers of mines next to the open ones."""

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Unpack

from dfc.games.game import Common
from dfc.games.paprika.task import AnswerGame
from dfc.games.parsing import read_number
from dfc.games.rng import GameRng
from dfc.games.task import distinct_tasks

HIDDEN, ZERO = "#*"
_SPLITS = MappingProxyType({"train": 1000, "test": 200})
_SHORTEST, _LONGEST = 4, 7  # sides of a board
_CELLS_PER_MINE = 10
_SPELLING = re.compile(r"reveal\s+([0-9]+)\s+([0-9]+)", re.IGNORECASE)


class Minesweeper(AnswerGame):
    """Minesweeper.

    Rules: a board of 4 to 7 rows and 4 to 7 columns has ``max(1, rows * columns // 10)`` mines. The player opens
    cells. A mine ends the task as failure; another cell shows how many of its up to eight neighbours hold mines, and
    if none does, they are opened as well, and so on. The mines are laid when the first cell is opened, and never there.
    Success is to have opened every cell without a mine; after `max_turns` turns the task has failed. A cell off the
    board or open already costs a turn and achieves nothing.

    Action: ``<Answer>reveal 2 3</Answer>``, row and column from 0; any case, more blanks and leading zeros are read as
    the same.

    Differs from the paper: the number of mines follows from the size, as in its code (there it is said to be random).

    Differs from the paper's code:
      - The first cell is safe in every game: a task is an order of cells, and the first ones of it that are not the
        cell opened first hold the mines (there mines stay where they are for all attempts at a task, and only the first
        attempt opens safely).
      - No two tasks are alike, within a split or between them (there a task of the file is the size of its board).
      - The player is told the number of mines.
      - The outcome is decided by the rules alone (there a language model may be asked).
      - A reply that cannot be read fails (there it is sampled again up to ten times, then dropped).

    Attributes:
      rows: height of the board.
      columns: width of the board.
      mines: number of mines.
      board: row by row from the top left, one symbol a cell: ``#`` hidden, ``*`` open without mines near, or the number
        of mines near.
      wasted_turns: turns spent on cells off the board or open already.
      hit_mine: whether a mine was opened.
    """

    splits: ClassVar[Mapping[str, int]] = _SPLITS
    grammar: ClassVar[str] = "<Answer>reveal 2 3</Answer>"
    open_actions: ClassVar[bool] = True  # cells that only waste a turn are not listed

    def __init__(self, *, split: str = "train", max_turns: int = 20, **common: Unpack[Common]) -> None:
        super().__init__(split=split, max_turns=max_turns, **common)
        self.rows = self.columns = _SHORTEST
        self.mines = 0
        self.board: list[str] = []
        self.wasted_turns = 0
        self.hit_mine = False
        self._order: tuple[int, ...] = ()  # one cell more than mines: the spare one is for a first cell among them
        self._mined = 0  # cells as bits; 0 before the first cell is opened

    @property
    def cells_left(self) -> int:
        """How many cells without a mine are hidden."""
        return self.board.count(HIDDEN) - self.mines

    def measures(self) -> dict[str, float]:
        """Returns `cells_opened`, `cells_left` (to open), `hit_mine` (0 or 1) and `wasted_turns`."""
        return {
            "cells_opened": float(len(self.board) - self.board.count(HIDDEN)),
            "cells_left": float(self.cells_left),
            "hit_mine": float(self.hit_mine),
            "wasted_turns": float(self.wasted_turns),
        }

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the table of all tasks, which must differ from each other, has a stream of its own
        self.rows, self.columns, self._order = _tasks()[self.split][self.task]
        self.mines = len(self._order) - 1
        self.board = [HIDDEN] * (self.rows * self.columns)
        self.wasted_turns = 0
        self.hit_mine = False
        self._mined = 0

    def _rules(self, seat: int) -> str:
        del seat  # there is one only
        mines = "1 mine" if self.mines == 1 else f"{self.mines} mines"
        return (
            f"Minesweeper on {self.rows} rows and {self.columns} columns, both numbered from 0, with {mines}. Open "
            "every cell without a mine; a mine is the end, and the first cell never has one. After each turn you see "
            "the board: # hidden, a digit counts mines among the 8 neighbours, * has none and opens them too. You have "
            f"{self.max_turns} turns; a cell off the board or open already wastes one. Reply with the row and column "
            "to reveal: <Think>your thoughts, optional</Think> <Answer>reveal 2 3</Answer>"
        )

    def _read_answer(self, answer: str) -> str | None:
        if answer in _names(self.rows, self.columns):
            return answer
        match = _SPELLING.fullmatch(answer.strip())
        return None if match is None else f"reveal {read_number(match[1])} {read_number(match[2])}"

    def _take(self, answer: str) -> bool | None:
        cell = _names(self.rows, self.columns).get(answer)
        if cell is None:
            self.wasted_turns += 1
            self._tell(0, "There is no such cell.")
        elif self.board[cell] != HIDDEN:
            self.wasted_turns += 1
            self._tell(0, "That cell is open already.")
        else:
            if not self._mined:
                self._mined = sum(1 << c for c in [c for c in self._order if c != cell][: self.mines])
            if self._mined >> cell & 1:
                self.hit_mine = True
                self._tell(0, "There is a mine in that cell.")
                return False
            self._open(cell)
        for first in range(0, len(self.board), self.columns):
            self._tell(0, " ".join(self.board[first : first + self.columns]))
        return None if self.cells_left else True

    def _open(self, cell: int) -> None:
        near, board, mined = neighbours(self.rows, self.columns), self.board, self._mined
        waiting = [cell]
        while waiting:
            at = waiting.pop()
            if board[at] != HIDDEN:
                continue
            count = sum([mined >> other & 1 for other in near[at]])
            board[at] = str(count) if count else ZERO
            if not count:
                waiting += near[at]

    def legal_answers(self) -> list[str]:
        """Returns the hidden cells, row by row."""
        names = _names(self.rows, self.columns)
        return [name for name, symbol in zip(names, self.board, strict=True) if symbol == HIDDEN]

    def _position(self) -> dict[str, Any]:
        return {
            "size": [self.rows, self.columns],
            "order": list(self._order),
            "mined": self._mined,
            "board": "".join(self.board),
            "wasted_turns": self.wasted_turns,
            "hit_mine": self.hit_mine,
        }

    def _set_position(self, position: dict[str, Any]) -> None:
        self.rows, self.columns = position["size"]
        self._order = tuple(position["order"])
        self.mines = max(len(self._order) - 1, 0)
        self._mined = position["mined"]
        self.board = list(position["board"])
        self.wasted_turns = position["wasted_turns"]
        self.hit_mine = position["hit_mine"]


@functools.cache
def _names(rows: int, columns: int) -> Mapping[str, int]:
    names = [f"reveal {row} {column}" for row in range(rows) for column in range(columns)]
    return MappingProxyType({name: cell for cell, name in enumerate(names)})


@functools.cache
def neighbours(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    """Returns for every cell of a board, row by row, the numbers of the up to eight cells that touch it."""
    found = []
    for row in range(rows):
        for column in range(columns):
            around = [
                (row + down, column + right)
                for down in (-1, 0, 1)
                for right in (-1, 0, 1)
                if (down or right) and 0 <= row + down < rows and 0 <= column + right < columns
            ]
            found.append(tuple(r * columns + c for r, c in around))
    return tuple(found)


@functools.cache
def _tasks() -> dict[str, tuple[tuple[int, int, tuple[int, ...]], ...]]:
    """Returns rows, columns and the first mines + 1 cells of an order for the tasks of all splits."""
    return distinct_tasks(Minesweeper.__name__, _SPLITS, _sample)


def _sample(
    rng: GameRng, _split: str, _task: int
) -> tuple[tuple[int, int, tuple[int, ...]], tuple[int, int, frozenset[int], int]]:
    sides = _LONGEST - _SHORTEST + 1
    rows, columns = _SHORTEST + rng.randrange(sides), _SHORTEST + rng.randrange(sides)
    cells = list(range(rows * columns))
    mines = max(1, len(cells) // _CELLS_PER_MINE)
    order = tuple(cells.pop(rng.randrange(len(cells))) for _ in range(mines + 1))
    # Two orders lay the same mines for every first cell exactly if they have the same last cell and the same ones
    # before it.
    return (rows, columns, order), (rows, columns, frozenset(order[:-1]), order[-1])
