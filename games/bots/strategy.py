"""What a strategy is: a function that chooses an action for the seat to move; a game has a simple and a strong one.

The module of a game in this package holds them in `STRATEGIES`, a tuple. A strategy looks into the game instead of
reading its text, but only at what the seat to move may know.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dfc.games.game import Game
from dfc.games.rng import GameRng

_Item = TypeVar("_Item")

Choose = Callable[[Any, int, GameRng], str]
"""(game, seat to move, the player's own randomness) -> a legal action; the game is not changed."""


@dataclasses.dataclass(frozen=True)
class Strategies:
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
