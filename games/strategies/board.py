"""Strategies for Tic Tac Toe, Connect Four, Nim, Tower of Hanoi and Guess the Number."""

import functools
from collections.abc import Sequence

from dfc.games.chance import Chance
from dfc.games.connect_four import ConnectFour, has_line
from dfc.games.guess_the_number import GuessTheNumber
from dfc.games.nim import Nim
from dfc.games.strategies.strategy import Strategies
from dfc.games.tic_tac_toe import TicTacToe
from dfc.games.tower_of_hanoi import TowerOfHanoi

_ROWS_OF_THREE = tuple(
    sum(1 << int(cell) for cell in row) for row in ("012", "345", "678", "036", "147", "258", "048", "246")
)


def _any_of(actions: Sequence[str], chance: Chance) -> str:
    return actions[chance.below(len(actions))]


# ---- Tic Tac Toe ------------------------------------------------------------------------------------------------


def _tic_tac_toe_simple(game: TicTacToe, seat: int, chance: Chance) -> str:
    """Wins if it can, else blocks, else takes the centre, else any free cell."""
    own, other = game.marks[seat], game.marks[1 - seat]
    free = [cell for cell in range(9) if not (own | other) >> cell & 1]
    for marks in (own, other):
        for cell in free:
            if any((marks | 1 << cell) & row == row for row in _ROWS_OF_THREE):
                return f"[{cell}]"
    return "[4]" if 4 in free else _any_of([f"[{cell}]" for cell in free], chance)


def _tic_tac_toe(game: TicTacToe, seat: int, chance: Chance) -> str:
    """Perfect: searches to the end, wins as soon as it can, and draws among moves of the same value."""
    own, other = game.marks[seat], game.marks[1 - seat]
    values = {c: -_tic_tac_toe_value(other, own | 1 << c) for c in range(9) if not (own | other) >> c & 1}
    best = max(values.values())
    cells = [cell for cell, value in values.items() if value == best]
    return f"[{cells[chance.below(len(cells))]}]"


@functools.cache
def _tic_tac_toe_value(own: int, other: int) -> int:
    """Returns 0 for a draw, else +-(1 + free cells at the end), positive if the player to move wins; it holds `own`."""
    free = [cell for cell in range(9) if not (own | other) >> cell & 1]
    if any(other & line == line for line in _ROWS_OF_THREE):
        return -1 - len(free)
    return max((-_tic_tac_toe_value(other, own | 1 << cell) for cell in free), default=0)


# ---- Connect Four -----------------------------------------------------------------------------------------------

_DEPTH = 4
_WIN = 1_000


def _open_cells(game: ConnectFour) -> dict[int, int]:
    """Returns the cell a disc would fall to, as a bit, by open column; columns in the middle first."""
    rows = game.num_rows
    middle_first = sorted(range(game.num_cols), key=lambda col: abs(2 * col - game.num_cols + 1))
    return {col: 1 << (col * (rows + 1) + game.heights[col]) for col in middle_first if game.heights[col] < rows}


def _four_at_once(game: ConnectFour, seat: int, cells: dict[int, int]) -> int | None:
    """Returns the column that completes four, or else the one that stops the opponent from it, or None."""
    for discs in (game.discs[seat], game.discs[1 - seat]):
        for col, cell in cells.items():
            if has_line(discs | cell, game.num_rows):
                return col
    return None


def _connect_four_simple(game: ConnectFour, seat: int, chance: Chance) -> str:
    """Wins if it can, else blocks, else any open column."""
    col = _four_at_once(game, seat, _open_cells(game))
    return _any_of(game.legal_actions(), chance) if col is None else f"[col {col}]"


def _connect_four(game: ConnectFour, seat: int, _chance: Chance) -> str:
    """Wins, else blocks, else searches `_DEPTH` moves ahead and counts threes that can still become four."""
    rows = game.num_rows
    own, other = game.discs[seat], game.discs[1 - seat]
    cells = _open_cells(game)
    at_once = _four_at_once(game, seat, cells)
    if at_once is not None:
        return f"[col {at_once}]"
    search = _Search(rows, tuple(cells))
    best, alpha = -1, -_WIN * 2
    for col, cell in cells.items():
        value = -search.value(other, own | cell, _DEPTH - 1, -_WIN * 2, -alpha)
        if value > alpha:
            best, alpha = col, value
    return f"[col {best}]"


class _Search:
    """Negamax with alpha-beta pruning on `ConnectFour.discs`."""

    def __init__(self, rows: int, columns: tuple[int, ...]) -> None:
        self.rows = rows
        column = (1 << rows) - 1
        self.columns = tuple(column << col * (rows + 1) for col in columns)
        self.board = sum(self.columns)
        self.bottom = sum(1 << col * (rows + 1) for col in columns)

    def value(self, own: int, other: int, depth: int, alpha: int, beta: int) -> int:
        """Returns the value for the player to move, who holds `own`: +-(_WIN + depth left) if decided, else threes."""
        if has_line(other, self.rows):
            return -_WIN - depth
        taken = own | other
        open_cells = (taken + self.bottom) & self.board  # adding 1 to a column of ones carries into its first 0
        if not open_cells:
            return 0
        if depth == 0:
            return self._open_threes(own, taken) - self._open_threes(other, taken)
        for column in self.columns:
            cell = open_cells & column
            if cell:
                alpha = max(alpha, -self.value(other, own | cell, depth - 1, -beta, -alpha))
                if alpha >= beta:
                    break
        return alpha

    def _open_threes(self, discs: int, taken: int) -> int:
        """Returns the number of free cells that would complete a line of four."""
        cells = 0
        for step in (1, self.rows + 1, self.rows, self.rows + 2):
            pairs = discs & discs >> step
            threes = pairs & discs >> 2 * step
            cells |= threes >> step | threes << 3 * step
            cells |= (pairs & discs >> 3 * step) << 2 * step | (discs & pairs >> 2 * step) << step
        return (cells & self.board & ~taken).bit_count()


# ---- Nim --------------------------------------------------------------------------------------------------------


def _nim_simple(game: Nim, _seat: int, chance: Chance) -> str:
    """Takes the last pile whole and makes the last two equal; with more piles, or two equal ones, any move."""
    left = sorted((size, pile) for pile, size in enumerate(game.piles) if size)
    if len(left) == 1:
        return f"[{left[0][1]} {left[0][0]}]"
    if len(left) == 2 and left[0][0] != left[1][0]:
        return f"[{left[1][1]} {left[1][0] - left[0][0]}]"
    return _any_of(game.legal_actions(), chance)


def _nim(game: Nim, _seat: int, chance: Chance) -> str:
    """Perfect: leaves piles whose sizes have an exclusive-or of 0 (Bouton, "Nim, a game with a complete theory")."""
    total = functools.reduce(lambda a, b: a ^ b, game.piles)
    winning = [(pile, size - (size ^ total)) for pile, size in enumerate(game.piles) if size ^ total < size]
    if winning:
        pile, take = winning[chance.below(len(winning))]
        return f"[{pile} {take}]"
    # Lost against perfect play: one object of the largest pile leaves the opponent the most chances to err.
    return f"[{game.piles.index(max(game.piles))} 1]"


# ---- Tower of Hanoi ---------------------------------------------------------------------------------------------


def _tower_of_hanoi_simple(game: TowerOfHanoi, _seat: int, chance: Chance) -> str:
    """Moves the smallest disk anywhere and another one in turn, so that no move undoes the last.

    Where all disks lie on one tower the smallest moves out of turn.
    """
    actions = game.legal_actions()
    smallest = next("ABC"[tower] for tower, disks in enumerate(game.towers) if disks and disks[-1] == 1)
    turn = game.actions_played % 2
    wanted = [action for action in actions if (action[1] == smallest) == (turn == 0)]
    return _any_of(wanted or actions, chance)


def _tower_of_hanoi(game: TowerOfHanoi, _seat: int, _chance: Chance) -> str:
    """Shortest from every position."""
    # To bring the largest misplaced disk to its target, all smaller ones must lie on the third tower; so the task
    # repeats with the next smaller disk and that tower. The last disk found misplaced moves first.
    tower_of = {disk: tower for tower, disks in enumerate(game.towers) for disk in disks}
    target = 2
    move = (0, 0)
    for disk in sorted(tower_of, reverse=True):
        source = tower_of[disk]
        if source != target:
            move = (source, target)
            target = 3 - source - target
    return f"[{'ABC'[move[0]]} {'ABC'[move[1]]}]"


# ---- Guess the Number -------------------------------------------------------------------------------------------


def _guess_the_number_simple(game: GuessTheNumber, _seat: int, chance: Chance) -> str:
    """Any number that the hints leave."""
    return f"[{game.low + chance.below(game.high - game.low + 1)}]"


def _guess_the_number(game: GuessTheNumber, _seat: int, _chance: Chance) -> str:
    """Halves what the hints leave."""
    return f"[{(game.low + game.high) // 2}]"


# ---- which is which -----------------------------------------------------------------------------------------------


STRATEGIES = (
    Strategies(TicTacToe, _tic_tac_toe_simple, _tic_tac_toe),
    Strategies(ConnectFour, _connect_four_simple, _connect_four),
    Strategies(Nim, _nim_simple, _nim),
    Strategies(TowerOfHanoi, _tower_of_hanoi_simple, _tower_of_hanoi),
    Strategies(GuessTheNumber, _guess_the_number_simple, _guess_the_number),
)
