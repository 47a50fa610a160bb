"""Scripted players: uniformly random legal play for every game, and strong play for each of the six.

A scripted player looks into the game instead of reading its text, but only at what the seat to move may know: its own
dice, the hints, the public position. It never looks at the opponent's dice or at the hidden number.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from dfc.games.chance import Chance
from dfc.games.connect_four import ConnectFour, has_line
from dfc.games.game import Game
from dfc.games.guess_the_number import GuessTheNumber
from dfc.games.liars_dice import LiarsDice
from dfc.games.nim import Nim
from dfc.games.tic_tac_toe import TicTacToe
from dfc.games.tower_of_hanoi import TowerOfHanoi

_G = TypeVar("_G", bound=Game)
_ROWS_OF_THREE = tuple(
    sum(1 << int(cell) for cell in row) for row in ("012", "345", "678", "036", "147", "258", "048", "246")
)


class Player(Protocol):
    """Whoever chooses the action of the seat to move."""

    def act(self, game: Game, chance: Chance) -> str:
        """Returns a legal action for the seat to move.

        Args:
          game: a game in progress; it is not changed.
          chance: the player's own randomness, never the stream of the game.
        """
        ...


@dataclasses.dataclass(frozen=True)
class RandomLegal:
    """Chooses among the legal actions, each with the same probability; plays every game."""

    def act(self, game: Game, chance: Chance) -> str:
        """Returns one of `game.legal_actions()`.

        Raises:
          ValueError: the game has not begun or is over.
        """
        actions = game.legal_actions()
        if not actions:
            raise ValueError(f"{game.id}: no action is legal after the end or before reset(); check `over` first")
        return actions[chance.below(len(actions))]


@dataclasses.dataclass(frozen=True)
class Strong(Generic[_G]):
    """Plays one kind of game by a fixed method.

    Attributes:
      kind: the game's class.
      choose: (game, seat to move, chance) -> action.
    """

    kind: type[_G]
    choose: Callable[[_G, int, Chance], str]

    def act(self, game: Game, chance: Chance) -> str:
        """Returns the chosen action.

        Raises:
          TypeError: the game is of another kind.
          ValueError: the game has not begun or is over.
        """
        if not isinstance(game, self.kind):
            raise TypeError(f"this player plays {self.kind.__name__}, got a game of {type(game).__name__}")
        if game.to_move is None:
            raise ValueError(f"{game.id}: no action is legal after the end or before reset(); check `over` first")
        return self.choose(game, game.to_move, chance)


def strong(game: str | Game) -> Player:
    """Returns the strong player of a game.

    - TicTacToe: full minimax, never loses; wins soon, loses late, otherwise chooses at random among the best.
    - ConnectFour: wins in one, else blocks, else alpha-beta search of depth 4 counting open threes, middle first.
    - Nim: leaves piles whose exclusive or is 0 (Bouton 1901), so it wins whenever the start can be won.
    - TowerOfHanoi: the shortest solution from any position.
    - GuessTheNumber: bisection.
    - LiarsDice: calls a bid that holds with probability below 1/2 given its own dice, else makes the lowest bid that
      holds with probability 1/2 or more. It does not model what the opponent's bids reveal.

    Args:
      game: a game or its id; options do not matter.

    Raises:
      ValueError: there is no strong player for it.
    """
    name = game.split("-")[0] if isinstance(game, str) else type(game).__name__
    if name not in _STRONG:
        raise ValueError(f"no strong player for {name!r}; there is one for {', '.join(_STRONG)}")
    return _STRONG[name]


# ---- Tic Tac Toe ------------------------------------------------------------------------------------------------


def _tic_tac_toe(game: TicTacToe, seat: int, chance: Chance) -> str:
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


def _connect_four(game: ConnectFour, seat: int, _chance: Chance) -> str:
    rows = game.num_rows
    own, other = game.discs[seat], game.discs[1 - seat]
    middle_first = sorted(range(game.num_cols), key=lambda col: abs(2 * col - game.num_cols + 1))
    cells = {col: 1 << (col * (rows + 1) + game.heights[col]) for col in middle_first if game.heights[col] < rows}
    for discs in (own, other):
        for col, cell in cells.items():
            if has_line(discs | cell, rows):
                return f"[col {col}]"
    search = _Search(rows, tuple(middle_first))
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


def _nim(game: Nim, _seat: int, chance: Chance) -> str:
    total = functools.reduce(lambda a, b: a ^ b, game.piles)
    winning = [(pile, size - (size ^ total)) for pile, size in enumerate(game.piles) if size ^ total < size]
    if winning:
        pile, take = winning[chance.below(len(winning))]
        return f"[{pile} {take}]"
    # Lost against perfect play: one object of the largest pile leaves the opponent the most chances to err.
    return f"[{game.piles.index(max(game.piles))} 1]"


# ---- Tower of Hanoi ---------------------------------------------------------------------------------------------


def _tower_of_hanoi(game: TowerOfHanoi, _seat: int, _chance: Chance) -> str:
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


def _guess_the_number(game: GuessTheNumber, _seat: int, _chance: Chance) -> str:
    return f"[{(game.low + game.high) // 2}]"


# ---- Liar's Dice ------------------------------------------------------------------------------------------------


def _liars_dice(game: LiarsDice, seat: int, _chance: Chance) -> str:
    own, hidden = game.hand(seat), game.dice_left[1 - seat]

    def holds(quantity: int, face: int) -> float:
        return _at_least(quantity - own.count(face), hidden)

    quantity, face = game.bid
    call_wins = 1.0 - holds(quantity, face) if quantity else 0.0
    if call_wins > 0.5:
        return "[Call]"
    quantities = range(max(quantity, 1), len(own) + hidden + 1)
    raises = [(q, f) for q in quantities for f in range(max(face, 1), 7) if (q, f) != (quantity, face)]
    plausible = next((bid for bid in raises if holds(*bid) >= 0.5), None)
    bid = plausible or max(raises, key=lambda bid: holds(*bid), default=None)
    if bid is None or (plausible is None and holds(*bid) < call_wins):
        return "[Call]"
    return f"[Bid: {bid[0]}, {bid[1]}]"


@functools.cache
def _at_least(count: int, dice: int) -> float:
    """Returns the probability that at least `count` of `dice` fair dice show one given face."""
    return sum(math.comb(dice, k) * 5.0 ** (dice - k) for k in range(max(count, 0), dice + 1)) / 6.0**dice


_STRONG: dict[str, Strong[Any]] = {
    player.kind.__name__: player
    for player in (
        Strong(TicTacToe, _tic_tac_toe),
        Strong(ConnectFour, _connect_four),
        Strong(Nim, _nim),
        Strong(TowerOfHanoi, _tower_of_hanoi),
        Strong(GuessTheNumber, _guess_the_number),
        Strong(LiarsDice, _liars_dice),
    )
}
