"""Bots for Connect Four."""

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.rng import GameRng
from dfc.games.textarena.connect_four import ConnectFour, has_line

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


def _simple(game: ConnectFour, seat: int, rng: GameRng) -> str:
    """Wins if it can, else blocks, else any open column."""
    col = _four_at_once(game, seat, _open_cells(game))
    return any_of(game.legal_actions(), rng) if col is None else f"[col {col}]"


def _strong(game: ConnectFour, seat: int, _chance: GameRng) -> str:
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


BOTS = (GameBots(ConnectFour, _simple, _strong),)
