"""What a bot is: a function that chooses an action for the seat to move; a game has a simple and a strong one.

The module of a game in this package holds them in `BOTS`, a tuple. A bot looks into the game instead of reading its
text, but only at what the seat to move may know. Here are also the parts that bots of several games are made of: a
choice by chance, and how much is not known.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from dfc.games.game import Game
from dfc.games.rng import GameRng

_Item = TypeVar("_Item")

# Bounds on the work of one guess where many agree with all answers; with them a choice takes some 10 ms.
GUESSES = 40  # candidates whose split is computed
SAMPLE = 250  # candidates among which it is computed

Choose = Callable[[Any, int, GameRng], str]
"""(game, seat to move, the player's own randomness) -> a legal action; the game is not changed."""


@dataclasses.dataclass(frozen=True)
class GameBots:
    """How one kind of game is played by scripted players.

    Attributes:
      kind: the game's class.
      simple: plays by a rule of thumb that a beginner would follow.
      strong: plays as well as a script of this size can.
      simulators: by role, scripts that reply from the game's own facts.
    """

    kind: type[Game]
    simple: Choose
    strong: Choose
    simulators: dict[str, Choose] = dataclasses.field(default_factory=dict)


def any_of(items: Sequence[_Item], rng: GameRng) -> _Item:
    """Returns one of the items, each with the same probability."""
    return items[rng.randrange(len(items))]


def any_of_the_best(items: Sequence[_Item], values: Sequence[float], rng: GameRng, within: float = 0.0) -> _Item:
    """Returns one of the items whose value is the largest, or at most `within` below it."""
    best = max(values)
    return any_of([item for item, value in zip(items, values, strict=True) if value >= best - within], rng)


def entropy(weights: Iterable[float]) -> float:
    """Returns the entropy in nats of cases with these weights: -sum(p * ln p), p = weight / sum of all weights.

    Weights of 0 count for nothing.

    >>> round(entropy([1, 1, 2]) / math.log(2), 12)
    1.5
    """
    counted = [weight for weight in weights if weight > 0.0]
    total = sum(counted)
    return -sum(weight / total * math.log(weight / total) for weight in counted)


def information(answers: Iterable[object]) -> float:
    """Returns what an answer tells on average, in nats: the entropy of equally likely cases by their answer."""
    return entropy(collections.Counter(answers).values())


def spread(items: Sequence[_Item], number: int) -> Sequence[_Item]:
    """Returns at most `number` of the items, evenly spread over the sequence."""
    if len(items) <= number:
        return items
    return [items[position * len(items) // number] for position in range(number)]
