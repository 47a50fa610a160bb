"""Bots for the bandits: which arm to try next, and which one to name at the end.

They know what the player was told; the strong one also how the means are drawn (`dfc.games.paprika.bandit`).
"""

import functools
import math

from dfc.games.bots.bot import GameBots, any_of_the_best, entropy
from dfc.games.paprika.bandit import GAPS, Bandit
from dfc.games.paprika.bandit_regret import BanditRegret
from dfc.games.paprika.task import tagged
from dfc.games.rng import GameRng

_GAPS = tuple(GAPS[0] + (GAPS[1] - GAPS[0]) * (k + 0.5) / 5 for k in range(5))  # midpoints that stand for U(GAPS)
_CELLS = 40  # midpoints of the integral over the mean of an arm that is not the best


def _simple(game: Bandit, _seat: int, rng: GameRng) -> str:
    """Tries the arms in turn, then names one with the highest average reward."""
    if _decides(game):
        values = [reward / max(reward + blank, 1) for reward, blank in _counts(game)]
    else:
        values = [-float(reward + blank) for reward, blank in _counts(game)]
    return tagged(any_of_the_best(game.arms, values, rng))


def _strong(game: Bandit, _seat: int, rng: GameRng) -> str:
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


BOTS = (GameBots(Bandit, _simple, _strong), GameBots(BanditRegret, _greedy, _most_probable))
