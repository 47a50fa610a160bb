"""Bots for the puzzles of PAPRIKA: games for one without a simulator.

They know what the player was told or sees on the board, never what lies below it; the strong bandit also knows how the
means are drawn (`dfc.games.paprika.bandit`).
"""

import functools
import math
from collections.abc import Iterator

from dfc.games.bots.bot import GameBots, any_of, any_of_the_best, entropy
from dfc.games.paprika import battleship, minesweeper
from dfc.games.paprika.bandit import GAPS, Bandit
from dfc.games.paprika.bandit_regret import BanditRegret
from dfc.games.paprika.battleship import SHIPS, Battleship
from dfc.games.paprika.cellular_automata import NEIGHBOURHOODS, CellularAutomata, Pairs, spelled
from dfc.games.paprika.minesweeper import Minesweeper
from dfc.games.paprika.task import tagged
from dfc.games.rng import GameRng

# ---- Bandits ----------------------------------------------------------------------------------------------------

_GAPS = tuple(GAPS[0] + (GAPS[1] - GAPS[0]) * (k + 0.5) / 5 for k in range(5))  # midpoints that stand for U(GAPS)
_CELLS = 40  # midpoints of the integral over the mean of an arm that is not the best


def _simple_bandit(game: Bandit, _seat: int, rng: GameRng) -> str:
    """Tries the arms in turn, then names one with the highest average reward."""
    if _decides(game):
        values = [reward / max(reward + blank, 1) for reward, blank in _counts(game)]
    else:
        values = [-float(reward + blank) for reward, blank in _counts(game)]
    return tagged(any_of_the_best(game.arms, values, rng))


def _strong_bandit(game: Bandit, _seat: int, rng: GameRng) -> str:
    """Tries the arm whose reward tells most about which arm is best; names the arm that is best most probably.

    What a try tells is the expected drop of the entropy of "which arm is best", by the exact posterior.
    """
    counts = _counts(game)
    values = _weights(counts) if _decides(game) else [-_entropy_after(counts, arm) for arm in range(len(counts))]
    return tagged(any_of_the_best(game.arms, values, rng, within=1e-12))


def _decides(game: Bandit) -> bool:
    return game.actions_played == game.max_turns - 1


def _counts(game: Bandit) -> list[tuple[int, int]]:
    """Returns per arm how often it gave a reward and how often none."""
    counts = [(0, 0) for _ in game.arms]
    for arm, reward in game.pulls:
        rewards, blanks = counts[arm]
        counts[arm] = (rewards + reward, blanks + 1 - reward)
    return counts


def _entropy_after(counts: list[tuple[int, int]], arm: int) -> float:
    """Returns the expected entropy of the best arm's number after one more try of an arm, times a constant."""
    rewards, blanks = counts[arm]
    expected = 0.0
    for after in ((rewards + 1, blanks), (rewards, blanks + 1)):
        # The sum of these weights is the probability of the counts, so it weighs both rewards by itself.
        weights = _weights([*counts[:arm], after, *counts[arm + 1 :]])
        expected += sum(weights) * entropy(weights)
    return expected / sum(_weights(counts))


def _weights(counts: list[tuple[int, int]]) -> list[float]:
    """Returns per arm k, up to one constant, the joint probability of the counts and of k being the best arm.

    sum over gaps g of L_best(k, g) * product over arms j other than k of L_other(j, g).
    """
    weights = [0.0] * len(counts)
    for gap in range(len(_GAPS)):
        both = [_likelihoods(rewards, blanks, gap) for rewards, blanks in counts]
        product = math.prod(other for _, other in both)
        for arm, (best, other) in enumerate(both):
            weights[arm] += best / other * product
    return weights


@functools.cache
def _likelihoods(rewards: int, blanks: int, gap: int) -> tuple[float, float]:
    """Returns the probability of an arm's rewards, given the gap, if it is the best arm and if it is another one."""
    low = 0.5 - _GAPS[gap]
    means = [low * (k + 0.5) / _CELLS for k in range(_CELLS)]
    other = sum(mean**rewards * (1.0 - mean) ** blanks for mean in means) / _CELLS
    return (1.0 - low) ** rewards * low**blanks, other


def _greedy(game: BanditRegret, _seat: int, rng: GameRng) -> str:
    """Presses every button once, then one with the highest mean reward."""
    values = [paid / pressed if pressed else 2.0 for pressed, paid in game.counts()]
    return tagged(any_of_the_best(game.arms, values, rng))


def _most_probable(game: BanditRegret, _seat: int, rng: GameRng) -> str:
    """Presses the button that is best most probably, by the exact posterior: it knows the gap.

    Of n presses that paid r times, the likelihood is (high / low)^r (low / high)^(n - r) times as large if the button
    is the best one, high = 1 - low = 1/2 + gap / 200. So the most probable one has the largest 2 r - n.
    """
    return tagged(any_of_the_best(game.arms, [2.0 * paid - pressed for pressed, paid in game.counts()], rng))


# ---- Battleship -------------------------------------------------------------------------------------------------


def _shot(game: Battleship, cell: int) -> str:
    row, column = divmod(cell, game.size)
    return tagged(f"{chr(ord('A') + row)}{column + 1}")


def _simple_battleship(game: Battleship, _seat: int, rng: GameRng) -> str:
    """Fires next to a hit ship that has not sunk, else at random."""
    hidden = [cell for cell, symbol in enumerate(game.board) if symbol == battleship.HIDDEN]
    size = game.size
    afloat = [hits for hits, (_, length) in zip(game.hits, SHIPS, strict=True) if 0 < hits.bit_count() < length]
    near = {
        other
        for hits in afloat
        for cell in range(size**2)
        if hits >> cell & 1
        for other, touches in (
            (cell - size, True),
            (cell + size, True),
            (cell - 1, cell % size),
            (cell + 1, -~cell % size),
        )
        if touches
    }
    return _shot(game, any_of([cell for cell in hidden if cell in near] or hidden, rng))


def _strong_battleship(game: Battleship, _seat: int, _chance: GameRng) -> str:
    """Fires at the hidden cell that holds a ship in most of the layouts that the shots so far allow."""
    misses = sum(1 << cell for cell, symbol in enumerate(game.board) if symbol == battleship.MISS)
    return _shot(game, _likeliest(game.size, misses, tuple(game.hits)))


@functools.lru_cache(maxsize=1 << 14)
def _likeliest(size: int, misses: int, hits: tuple[int, ...]) -> int:
    every_hit = sum(hits)
    ways = []
    for own, (_, length) in zip(hits, SHIPS, strict=True):
        # A ship on a cell where another was hit overlaps every way to lay that other one, so no layout has it.
        ways.append([ship for ship in battleship.placements(size, length) if own & ~ship == 0 == ship & misses])
    counts = [0] * size**2
    carriers, battleships, destroyers = ways
    for carrier in carriers:
        for other in battleships:
            if carrier & other:
                continue
            free = [ship for ship in destroyers if not ship & (carrier | other)]
            _add(counts, carrier | other, len(free))
            for ship in free:
                _add(counts, ship, 1)
    return max((cell for cell in range(size**2) if not (misses | every_hit) >> cell & 1), key=counts.__getitem__)


def _add(counts: list[int], cells: int, weight: int) -> None:
    while cells:
        lowest = cells & -cells
        counts[lowest.bit_length() - 1] += weight
        cells ^= lowest


# ---- Cellular Automata ------------------------------------------------------------------------------------------


def _simple_cellular_automata(game: CellularAutomata, _seat: int, rng: GameRng) -> str:
    """Reads the first pair only and guesses what it does not show, again each turn."""
    guessed = {around: str(rng.randrange(2)) for around in NEIGHBOURHOODS}
    return tagged(spelled(guessed | _shown(game.pairs[:1])))


def _strong_cellular_automata(game: CellularAutomata, _seat: int, _chance: GameRng) -> str:
    """Reads every pair, which succeeds at once: a neighbourhood that no pair shows changes no output."""
    return tagged(spelled(dict.fromkeys(NEIGHBOURHOODS, "0") | _shown(game.pairs)))


def _shown(pairs: Pairs) -> dict[str, str]:
    """Returns the next state by neighbourhood, of those that the pairs show."""
    return {
        before[cell - 1] + before[cell] + before[(cell + 1) % len(before)]: after[cell]
        for before, after in pairs
        for cell in range(len(before))
    }


# ---- Minesweeper ------------------------------------------------------------------------------------------------


def _reveal(game: Minesweeper, cell: int) -> str:
    row, column = divmod(cell, game.columns)
    return tagged(f"reveal {row} {column}")


def _numbers(game: Minesweeper) -> list[tuple[int, tuple[int, ...]]]:
    """Returns for every number on the board, zeros too, how many mines lie in which hidden neighbours."""
    near, board = minesweeper.neighbours(game.rows, game.columns), game.board
    return [
        (
            0 if symbol == minesweeper.ZERO else int(symbol),
            tuple(c for c in near[cell] if board[c] == minesweeper.HIDDEN),
        )
        for cell, symbol in enumerate(board)
        if symbol != minesweeper.HIDDEN
    ]


def _simple_minesweeper(game: Minesweeper, _seat: int, rng: GameRng) -> str:
    """Opens a cell that one number alone, with the mines that single numbers give away, shows to be safe.

    Without one it opens a hidden cell at random that is not known to hold a mine.
    """
    numbers = _numbers(game)
    mines = {cell for count, hidden in numbers if count == len(hidden) for cell in hidden}
    safe = {cell for count, hidden in numbers if count == len(mines.intersection(hidden)) for cell in hidden} - mines
    left = [cell for cell, symbol in enumerate(game.board) if symbol == minesweeper.HIDDEN and cell not in mines]
    return _reveal(game, any_of(sorted(safe) or left, rng))


def _strong_minesweeper(game: Minesweeper, _seat: int, rng: GameRng) -> str:
    """Opens a cell of the lowest probability of a mine, and of these the likeliest to open its neighbours too.

    Exact: all ways to lay mines beside the numbers are counted, each with the ways to lay the others elsewhere. A board
    has at most four mines, so there are at most 8**4 ways.
    """
    near = minesweeper.neighbours(game.rows, game.columns)
    numbers = [(count, hidden) for count, hidden in _numbers(game) if hidden]
    hidden = frozenset(cell for cell, symbol in enumerate(game.board) if symbol == minesweeper.HIDDEN)
    edge = frozenset(cell for _, cells in numbers for cell in cells)
    ways = list(_ways(numbers, frozenset(), frozenset(), game.mines))

    def without_mines(cells: frozenset[int]) -> int:
        """Returns the number of layouts in which none of some hidden cells holds a mine."""
        elsewhere = len(hidden - edge - cells)
        return sum(math.comb(elsewhere, game.mines - len(laid)) for laid in ways if not laid & cells)

    values = {
        cell: (without_mines(frozenset((cell,))), without_mines(hidden.intersection((cell, *near[cell]))))
        for cell in hidden
    }
    best = max(values.values())
    return _reveal(game, any_of(sorted(cell for cell, value in values.items() if value == best), rng))


def _ways(
    numbers: list[tuple[int, tuple[int, ...]]], laid: frozenset[int], barred: frozenset[int], left: int
) -> Iterator[frozenset[int]]:
    """Yields every set of at most `left` more cells that makes all numbers true, together with `laid`, once."""
    open_number = None
    for count, cells in numbers:
        missing = count - len(laid.intersection(cells))
        if missing < 0:
            return
        if missing and open_number is None:
            open_number = cells
    if open_number is None:
        yield laid
        return
    if not left:
        return
    for cell in open_number:  # the first one of this number's cells, among those not decided, that holds a mine
        if cell not in laid and cell not in barred:
            yield from _ways(numbers, laid | {cell}, barred, left - 1)
            barred |= {cell}


BOTS = (
    GameBots(Bandit, _simple_bandit, _strong_bandit),
    GameBots(BanditRegret, _greedy, _most_probable),
    GameBots(Battleship, _simple_battleship, _strong_battleship),
    GameBots(CellularAutomata, _simple_cellular_automata, _strong_cellular_automata),
    GameBots(Minesweeper, _simple_minesweeper, _strong_minesweeper),
)
