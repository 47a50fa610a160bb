"""Connect Four: two players drop discs into columns, four in a line win."""

from typing import Any, ClassVar, Literal, Unpack

from dfc.games.game import Common, Game, Outcome
from dfc.games.parsing import read_number

_MARKS = "XO"
_LARGEST = 32  # rows and columns; the largest board of TextArena has 12 and 15


class ConnectFour(Game):
    """Connect Four.

    Rules: seat 0 drops X and starts, seat 1 drops O. A disc falls to the lowest free row of its column. Four discs of
    one player in a row, column or diagonal win; a full board without them is a draw. Columns are counted from 0 at
    the left, rows from 0 at the bottom.

    Action: an open column, ``[col 3]``; ``[3]``, ``[col3]`` and any case are read as the same. Blanks inside the
    brackets and leading zeros are dropped.

    Differs from 0.6.4:
      - With ``is_open`` a player is told where the last discs lie; the grid comes with ``show_board=True`` (there it is
        printed after every move).
      - Rows are counted from 0 at the bottom (there no row is named, and the grid is stored from the top).
      - Exactly one bracketed group per reply (there the last one counts of the first line that has any).
      - Blanks next to a bracket are dropped (there they make the reply malformed).
      - A malformed reply forfeits at once (there it is asked again once).
      - After a forfeit the other player has won (there the reward is 0).
      - The reason for another try is reported to the offender only, and a board has 4 to 32 rows and columns.

    Differs from 0.7.4: the same, except that there, too, a forfeit is a win for the other player and its reason is
    reported to the offender only.

    Attributes:
      is_open: whether the players are told where discs lie; if not, they hear the columns only.
      num_rows: height of the board.
      num_cols: width of the board.
      show_board: whether the player to move is shown the grid.
      discs: per seat, the set of its cells as bits: row r of column c is ``1 << (c * (num_rows + 1) + r)``. The bit
        above each column stays 0, so that no line runs from one column's top into the next one's bottom.
      heights: number of discs in each column.
    """

    seats: ClassVar[int] = 2
    start: ClassVar[Literal["fixed", "random"]] = "fixed"
    grammar: ClassVar[str] = "[col 3]"

    def __init__(
        self,
        *,
        is_open: bool = True,
        num_rows: int = 6,
        num_cols: int = 7,
        show_board: bool = False,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        if not 4 <= num_rows <= _LARGEST:
            raise ValueError(f"num_rows must be from 4 to {_LARGEST}, got {num_rows}")
        if not 4 <= num_cols <= _LARGEST:
            raise ValueError(f"num_cols must be from 4 to {_LARGEST}, got {num_cols}")
        if show_board and not is_open:
            raise ValueError("show_board must be False if is_open is False: a hidden board cannot be shown, got True")
        self.is_open = is_open
        self.num_rows = num_rows
        self.num_cols = num_cols
        self.show_board = show_board
        self.discs = [0, 0]
        self.heights = [0] * num_cols
        self._columns = {f"[col {col}]": col for col in range(num_cols)}

    @property
    def max_game_length(self) -> int:
        """One action per cell."""
        return self.num_rows * self.num_cols

    def _begin(self) -> int:
        self.discs = [0, 0]
        self.heights = [0] * self.num_cols
        if self.show_board:
            self._tell_board(0)
        return 0

    def _rules(self, seat: int) -> str:
        return (
            f"Connect Four on {self.num_rows} rows and {self.num_cols} columns. You are Player {seat} and drop "
            f"{_MARKS[seat]}; four in a line win. Columns are numbered from 0. Reply with one open column in brackets, "
            "for example [col 3]." + ("" if self.is_open else " The board is hidden.")
        )

    def _read(self, action: str) -> str | None:
        if action in self._columns:
            return action
        text = action[1:-1].strip().lower()
        col = read_number(text.removeprefix("col").lstrip())
        return None if col is None else f"[col {col}]"

    def _objection(self, action: str) -> str | None:
        col = self._columns.get(action)
        if col is None:
            return "There is no such column. Try again."
        return "That column is full. Try again." if self.heights[col] == self.num_rows else None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        seat = self._mover()
        other = 1 - seat
        col = self._columns[action]
        row = self.heights[col]
        self.heights[col] = row + 1
        self.discs[seat] |= 1 << (col * (self.num_rows + 1) + row)
        if self.is_open:
            self._tell(seat, f"Your disc lies in row {row}.")
            self._tell(other, f"Opponent plays {action}, row {row}.")
        else:
            self._tell(other, f"Opponent plays {action}.")
        if self.show_board:
            self._tell_board(other)
        if has_line(self.discs[seat], self.num_rows):
            return self._won_by(seat)
        return other if self.actions_played < self.max_game_length else self._drawn()

    def legal_actions(self) -> list[str]:
        """Returns the columns that are not full, from the left."""
        if self.to_move is None:
            return []
        rows, heights = self.num_rows, self.heights
        return [action for action, col in self._columns.items() if heights[col] < rows]

    def board_text(self) -> str | None:
        """Returns the grid, unless it is hidden or told anyway."""
        return "\n".join(self._grid()) if self.is_open and not self.show_board else None

    def _tell_board(self, seat: int) -> None:
        for line in self._grid():
            self._tell(seat, line)

    def _grid(self) -> list[str]:
        width = len(str(self.num_cols - 1))
        lines = [" ".join(str(col).rjust(width) for col in range(self.num_cols))]
        first, second = self.discs
        for row in reversed(range(self.num_rows)):
            bits = range(row, self.num_cols * (self.num_rows + 1), self.num_rows + 1)
            marks = [_MARKS[0] if first >> b & 1 else _MARKS[1] if second >> b & 1 else "." for b in bits]
            lines.append(" ".join(mark.rjust(width) for mark in marks))
        return lines

    def _state(self) -> dict[str, Any]:
        return {"discs": list(self.discs), "heights": list(self.heights)}

    def _restore(self, state: dict[str, Any]) -> None:
        self.discs = list(state["discs"])
        self.heights = list(state["heights"])


def has_line(discs: int, num_rows: int) -> bool:
    """Returns whether a set of cells holds four in a row, column or diagonal.

    With cell number n and the step d of a direction (column 1, row num_rows + 1, diagonals one more or less), pairs =
    discs & discs >> d holds every n with n and n + d set; four in a line is a pair with a pair at n + 2d. Cells are
    bits, laid out as in `ConnectFour.discs`.
    """
    for step in (1, num_rows + 1, num_rows, num_rows + 2):
        pairs = discs & discs >> step
        if pairs & pairs >> 2 * step:
            return True
    return False
