"""Tic Tac Toe: two players, nine cells, three in a row."""

from typing import Any, ClassVar, Literal, Unpack

from dfc.games.game import Common, Game, Outcome
from dfc.games.parsing import read_number

_MARKS = "OX"
_CELLS = {f"[{cell}]": cell for cell in range(9)}
_FULL = 0b111_111_111
_LINES = (0o007, 0o070, 0o700, 0o111, 0o222, 0o444, 0o421, 0o124)  # bit c is cell c: rows, columns, diagonals
_WON = frozenset(marks for marks in range(_FULL + 1) if any(marks & line == line for line in _LINES))


class TicTacToe(Game):
    """Tic Tac Toe.

    Rules: seat 0 places O and starts, seat 1 places X. Three marks of one player in a row, column or diagonal win; a
    full board without them is a draw.

    Action: the number of a free cell, ``[4]``; cells are numbered from 0 to 8, row by row. Blanks inside the brackets
    and leading zeros are dropped.

    Differs from 0.6.4:
      - A player is told the opponent's move only; the grid and the free cells come with ``show_board=True`` (there
        they are printed after every reply).
      - Exactly one bracketed group per reply (there the first bracketed number of the text counts).
      - A malformed reply forfeits at once (there it is asked again once).
      - After a forfeit the other player has won (there the reward is 0).
      - The reason for another try is reported to the offender only.

    Differs from 0.7.4: the same, except that there, too, a forfeit is a win for the other player and its reason is
    reported to the offender only.

    Attributes:
      show_board: whether the player to move is shown the grid and the free cells.
      marks: per seat, the set of its cells as bits: cell c is ``1 << c``.
    """

    seats: ClassVar[int] = 2
    start: ClassVar[Literal["fixed", "random"]] = "fixed"
    grammar: ClassVar[str] = "[4]"

    def __init__(self, *, show_board: bool = False, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        self.show_board = show_board
        self.marks = [0, 0]

    @property
    def max_game_length(self) -> int:
        """One action per cell."""
        return 9

    def _begin(self) -> int:
        self.marks = [0, 0]
        if self.show_board:
            self._tell_board(0)
        return 0

    def _rules(self, seat: int) -> str:
        return (
            f"Tic Tac Toe. You are Player {seat} and place {_MARKS[seat]}; three in a row win. Cells are numbered from "
            "0 to 8, row by row. Reply with one free cell in brackets, for example [4]."
        )

    def _read(self, action: str) -> str | None:
        if action in _CELLS:
            return action
        cell = read_number(action[1:-1].strip())
        return None if cell is None else f"[{cell}]"

    def _objection(self, action: str) -> str | None:
        cell = _CELLS.get(action)
        if cell is None:
            return "There is no such cell. Try again."
        if (self.marks[0] | self.marks[1]) >> cell & 1:
            return "That cell is taken. Try again."
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        seat = self._mover()
        other = 1 - seat
        self.marks[seat] |= 1 << _CELLS[action]
        self._tell(other, f"Opponent plays {action}.")
        if self.show_board:
            self._tell_board(other)
        if self.marks[seat] in _WON:
            return self._won_by(seat)
        return other if self.marks[0] | self.marks[1] != _FULL else self._drawn()

    def legal_actions(self) -> list[str]:
        """Returns the free cells, upwards."""
        return [] if self.to_move is None else self._free()

    def _free(self) -> list[str]:
        taken = self.marks[0] | self.marks[1]
        return [action for action, cell in _CELLS.items() if not taken >> cell & 1]

    def board_text(self) -> str | None:
        """Returns the grid, unless it is told anyway."""
        return None if self.show_board else "\n".join(self._grid())

    def _grid(self) -> list[str]:
        first, second = self.marks
        cells = [_MARKS[0] if first >> c & 1 else _MARKS[1] if second >> c & 1 else "." for c in range(9)]
        return [" ".join(cells[row : row + 3]) for row in range(0, 9, 3)]

    def _tell_board(self, seat: int) -> None:
        for line in self._grid():
            self._tell(seat, line)
        free = self._free()
        if free:
            self._tell(seat, f"Free: {', '.join(free)}.")

    def _state(self) -> dict[str, Any]:
        return {"marks": list(self.marks)}

    def _restore(self, state: dict[str, Any]) -> None:
        self.marks = list(state["marks"])
