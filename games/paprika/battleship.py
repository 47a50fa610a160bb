"""Battleship for one: find and sink three hidden ships within a number of shots."""

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Unpack

from dfc.games.game import Common
from dfc.games.paprika.task import AnswerGame
from dfc.games.parsing import read_number
from dfc.games.rng import GameRng
from dfc.games.task import distinct_tasks

SHIPS = (("Carrier", 5), ("Battleship", 4), ("Destroyer", 2))
"""Names and lengths, in the order of `Battleship.hits`."""
HIDDEN, HIT, MISS = ".XM"
_SPLITS = MappingProxyType({"train": 1000, "test": 200})
_SMALL_BOARDS = {"train": 504, "test": 111}  # tasks on 5 by 5 cells, as many as in the paper's release
_SMALL, _LARGE = 5, 6


class Battleship(AnswerGame):
    """Battleship against a board.

    Rules: a carrier (5 cells), a battleship (4) and a destroyer (2) lie on a square board of 5 or 6 rows, each in a row
    or a column; they may touch and do not overlap; all such layouts are equally likely. Each turn the player fires at a
    cell and learns whether it is a miss or which ship was hit, and when a ship has sunk. Three sunk ships are success;
    after `max_turns` shots the task has failed. A cell off the board or fired at before costs a turn and achieves
    nothing.

    Action: ``<Answer>B3</Answer>``, row letter and column number from 1; small letters, blanks and leading zeros are
    read as the same.

    Differs from the paper: boards are 5 by 5 and 6 by 6 only, as in its code, and the first board comes after the
    first shot (there an empty one before it).

    Differs from the paper's code:
      - A task's ships are fixed by its number and no two tasks have the same, within a split or between them (there
        they come from one global generator, and a task of the file is the size of its board).
      - Small letters are read (there they cannot be read).
      - A reply that cannot be read fails (there it is sampled again up to ten times, then dropped).

    Attributes:
      show_board: whether the board is shown after each turn; the words of each shot tell the same.
      size: rows and columns of the board.
      board: row by row from the top left, one symbol a cell: ``.`` hidden, ``X`` hit, ``M`` miss.
      hits: per ship of `SHIPS`, the set of its cells hit as bits: cell c of row r is ``1 << (r * size + c)``.
      wasted_turns: shots off the board or at a cell fired at before.
    """

    splits: ClassVar[Mapping[str, int]] = _SPLITS
    grammar: ClassVar[str] = "<Answer>B3</Answer>"
    open_actions: ClassVar[bool] = True  # cells that only waste a turn are not listed

    def __init__(
        self, *, split: str = "train", max_turns: int = 20, show_board: bool = True, **common: Unpack[Common]
    ) -> None:
        super().__init__(split=split, max_turns=max_turns, **common)
        self.show_board = show_board
        self.size = _LARGE
        self.board: list[str] = []
        self.hits = [0] * len(SHIPS)
        self.wasted_turns = 0
        self._ships = [0] * len(SHIPS)

    @property
    def ships_sunk(self) -> int:
        """How many ships have all cells hit."""
        return sum(hits.bit_count() == length for hits, (_, length) in zip(self.hits, SHIPS, strict=True))

    def measures(self) -> dict[str, float]:
        """Returns the numbers of `ships_sunk`, `hits`, `misses` and `wasted_turns`."""
        return {
            "ships_sunk": float(self.ships_sunk),
            "hits": float(sum(hits.bit_count() for hits in self.hits)),
            "misses": float(self.board.count(MISS)),
            "wasted_turns": float(self.wasted_turns),
        }

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the table of all tasks, which must differ from each other, has a stream of its own
        self.size, ships = _tasks()[self.split][self.task]
        self._ships = list(ships)
        self.board = [HIDDEN] * self.size**2
        self.hits = [0] * len(SHIPS)
        self.wasted_turns = 0

    def _rules(self, seat: int) -> str:
        del seat  # there is one only
        last = chr(ord("A") + self.size - 1)
        shown = " After each turn you see the board: . hidden, X hit, M miss." if self.show_board else ""
        return (
            f"Battleship. Three ships are hidden on a board of {self.size} rows, A to {last}, and {self.size} columns, "
            f"1 to {self.size}: a Carrier of 5 cells, a Battleship of 4 and a Destroyer of 2, each in one row or "
            f"column, not overlapping. Sink all of them within {self.max_turns} shots; a cell off the board or fired "
            f"at before wastes one.{shown} Reply with the cell to fire at, for example B3: "
            "<Think>your thoughts, optional</Think> <Answer>B3</Answer>"
        )

    def _read_answer(self, answer: str) -> str | None:
        if answer in _cells(self.size):
            return answer
        text = answer.strip()
        row, column = text[:1], read_number(text[1:].strip())
        return f"{row.upper()}{column}" if column is not None and row.isascii() and row.isalpha() else None

    def _take(self, answer: str) -> bool | None:
        cell = _cells(self.size).get(answer)
        if cell is None:
            self.wasted_turns += 1
            news = "There is no such cell."
        elif self.board[cell] != HIDDEN:
            self.wasted_turns += 1
            news = f"{answer} was fired at before."
        else:
            news = f"{answer}: {self._fire(cell)}."
        self._tell(0, news)
        if self.show_board:
            self._tell_board()
        return True if self.ships_sunk == len(SHIPS) else None

    def _fire(self, cell: int) -> str:
        bit = 1 << cell
        for ship, (name, length) in enumerate(SHIPS):
            if self._ships[ship] & bit:
                self.board[cell] = HIT
                self.hits[ship] |= bit
                sunk = self.hits[ship] == self._ships[ship]
                return f"hit, {name} of {length} cells" + (", and it has sunk" if sunk else "")
        self.board[cell] = MISS
        return "miss"

    def board_text(self) -> str | None:
        """Returns the board as the player knows it, unless it is told anyway."""
        return None if self.show_board else "\n".join(self._grid())

    def _tell_board(self) -> None:
        for line in self._grid():
            self._tell(0, line)

    def _grid(self) -> list[str]:
        size, board = self.size, self.board
        rows = [" ".join([chr(ord("A") + row), *board[row * size : row * size + size]]) for row in range(size)]
        return [" ".join(["-", *map(str, range(1, size + 1))]), *rows]

    def legal_answers(self) -> list[str]:
        """Returns the cells not fired at yet, row by row."""
        return [name for name, symbol in zip(_cells(self.size), self.board, strict=True) if symbol == HIDDEN]

    def _position(self) -> dict[str, Any]:
        return {
            "ships": list(self._ships),
            "board": "".join(self.board),
            "hits": list(self.hits),
            "wasted_turns": self.wasted_turns,
        }

    def _set_position(self, position: dict[str, Any]) -> None:
        self._ships = list(position["ships"])
        self.board = list(position["board"])
        self.size = _SMALL if len(self.board) == _SMALL**2 else _LARGE
        self.hits = list(position["hits"])
        self.wasted_turns = position["wasted_turns"]


@functools.cache
def _cells(size: int) -> Mapping[str, int]:
    names = [f"{chr(ord('A') + row)}{column}" for row in range(size) for column in range(1, size + 1)]
    return MappingProxyType({name: cell for cell, name in enumerate(names)})


@functools.cache
def placements(size: int, length: int) -> tuple[int, ...]:
    """Returns every way to lay a ship of `length` cells, 2 to `size`, on a square board, as in `Battleship.hits`."""
    lain = range(size - length + 1)
    across = [sum(1 << row * size + first + k for k in range(length)) for row in range(size) for first in lain]
    down = [sum(1 << (first + k) * size + column for k in range(length)) for first in lain for column in range(size)]
    return (*across, *down)


@functools.cache
def _tasks() -> dict[str, tuple[tuple[int, tuple[int, ...]], ...]]:
    """Returns the boards of all splits, as size and ships."""
    return distinct_tasks(Battleship.__name__, _SPLITS, _sample)


def _sample(rng: GameRng, split: str, task: int) -> tuple[tuple[int, tuple[int, ...]], tuple[int, tuple[int, ...]]]:
    small, count = _SMALL_BOARDS[split], _SPLITS[split]
    # The small boards lie evenly among the large ones, so that the first tasks of a split are a fair sample.
    size = _SMALL if (task + 1) * small // count > task * small // count else _LARGE
    board = (size, _ships(rng, size))
    return board, board


def _ships(rng: GameRng, size: int) -> tuple[int, ...]:
    while True:
        ships = []
        for _, length in SHIPS:
            ways = placements(size, length)
            ships.append(ways[rng.randrange(len(ways))])
        if not (ships[0] & ships[1] or (ships[0] | ships[1]) & ships[2]):
            return tuple(ships)
