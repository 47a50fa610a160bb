"""Bots for the board games of TextArena without secrets, and for Guess the Number.

In Guess the Number they know the hints, as the numbers that they leave, and not the hidden number.
"""

import functools

from dfc.games.bots.bot import GameBots, any_of, any_of_the_best
from dfc.games.rng import GameRng
from dfc.games.textarena.connect_four import ConnectFour, has_line
from dfc.games.textarena.guess_the_number import GuessTheNumber
from dfc.games.textarena.nim import Nim
from dfc.games.textarena.tic_tac_toe import TicTacToe
from dfc.games.textarena.tower_of_hanoi import TowerOfHanoi

# ---- Tic Tac Toe ------------------------------------------------------------------------------------------------

_ROWS_OF_THREE = tuple(
    sum(1 << int(cell) for cell in row) for row in ("012", "345", "678", "036", "147", "258", "048", "246")
)


def _simple_tic_tac_toe(game: TicTacToe, seat: int, rng: GameRng) -> str:
    """Wins if it can, else blocks, else takes the centre, else any free cell."""
    own, other = game.marks[seat], game.marks[1 - seat]
    free = [cell for cell in range(9) if not (own | other) >> cell & 1]
    for marks in (own, other):
        for cell in free:
            if any((marks | 1 << cell) & row == row for row in _ROWS_OF_THREE):
                return f"[{cell}]"
    return "[4]" if 4 in free else any_of([f"[{cell}]" for cell in free], rng)


def _strong_tic_tac_toe(game: TicTacToe, seat: int, rng: GameRng) -> str:
    """Perfect: searches to the end, wins as soon as it can, and draws among moves of the same value."""
    own, other = game.marks[seat], game.marks[1 - seat]
    values = {c: -_value(other, own | 1 << c) for c in range(9) if not (own | other) >> c & 1}
    return f"[{any_of_the_best(list(values), list(values.values()), rng)}]"


@functools.cache
def _value(own: int, other: int) -> int:
    """Returns 0 for a draw, else +-(1 + free cells at the end), positive if the player to move wins; it holds `own`."""
    free = [cell for cell in range(9) if not (own | other) >> cell & 1]
    if any(other & line == line for line in _ROWS_OF_THREE):
        return -1 - len(free)
    return max((-_value(other, own | 1 << cell) for cell in free), default=0)


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


def _simple_connect_four(game: ConnectFour, seat: int, rng: GameRng) -> str:
    """Wins if it can, else blocks, else any open column."""
    col = _four_at_once(game, seat, _open_cells(game))
    return any_of(game.legal_actions(), rng) if col is None else f"[col {col}]"


def _strong_connect_four(game: ConnectFour, seat: int, _chance: GameRng) -> str:
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


def _simple_nim(game: Nim, _seat: int, rng: GameRng) -> str:
    """Takes the last pile whole and makes the last two equal; with more piles, or two equal ones, any move."""
    left = sorted((size, pile) for pile, size in enumerate(game.piles) if size)
    if len(left) == 1:
        return f"[{left[0][1]} {left[0][0]}]"
    if len(left) == 2 and left[0][0] != left[1][0]:
        return f"[{left[1][1]} {left[1][0] - left[0][0]}]"
    return any_of(game.legal_actions(), rng)


def _strong_nim(game: Nim, _seat: int, rng: GameRng) -> str:
    """Perfect: leaves piles whose sizes have an exclusive-or of 0 (Bouton, "Nim, a game with a complete theory")."""
    total = functools.reduce(lambda a, b: a ^ b, game.piles)
    winning = [(pile, size - (size ^ total)) for pile, size in enumerate(game.piles) if size ^ total < size]
    if winning:
        pile, take = any_of(winning, rng)
        return f"[{pile} {take}]"
    # Lost against perfect play: one object of the largest pile leaves the opponent the most chances to err.
    return f"[{game.piles.index(max(game.piles))} 1]"


# ---- Tower of Hanoi ---------------------------------------------------------------------------------------------


def _simple_tower_of_hanoi(game: TowerOfHanoi, _seat: int, rng: GameRng) -> str:
    """Moves the smallest disk anywhere and another one in turn, so that no move undoes the last.

    Where all disks lie on one tower the smallest moves out of turn.
    """
    actions = game.legal_actions()
    smallest = next("ABC"[tower] for tower, disks in enumerate(game.towers) if disks and disks[-1] == 1)
    turn = game.actions_played % 2
    wanted = [action for action in actions if (action[1] == smallest) == (turn == 0)]
    return any_of(wanted or actions, rng)


def _strong_tower_of_hanoi(game: TowerOfHanoi, _seat: int, _chance: GameRng) -> str:
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


def _simple_guess_the_number(game: GuessTheNumber, _seat: int, rng: GameRng) -> str:
    """Any number that the hints leave."""
    return f"[{game.low + rng.randrange(game.high - game.low + 1)}]"


def _strong_guess_the_number(game: GuessTheNumber, _seat: int, _chance: GameRng) -> str:
    """Halves what the hints leave."""
    return f"[{(game.low + game.high) // 2}]"


BOTS = (
    GameBots(TicTacToe, _simple_tic_tac_toe, _strong_tic_tac_toe),
    GameBots(ConnectFour, _simple_connect_four, _strong_connect_four),
    GameBots(Nim, _simple_nim, _strong_nim),
    GameBots(TowerOfHanoi, _simple_tower_of_hanoi, _strong_tower_of_hanoi),
    GameBots(GuessTheNumber, _simple_guess_the_number, _strong_guess_the_number),
)
