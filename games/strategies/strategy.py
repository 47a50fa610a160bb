"""What a strategy is: a function that chooses an action for the seat to move; a game has a simple and a strong one.

Every module of this package holds those of a few games in `STRATEGIES`. A strategy looks into the game instead of
reading its text, but only at what the seat to move may know.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from dfc.games.chance import Chance
from dfc.games.game import Game

Choose = Callable[[Any, int, Chance], str]
"""(game, seat to move, the player's own randomness) -> a legal action; the game is not changed."""


@dataclasses.dataclass(frozen=True)
class Strategies:
    """How one kind of game is played by a program.

    Attributes:
      kind: the game's class.
      simple: plays by a rule of thumb that a beginner would follow.
      strong: plays as well as a program of this size can.
      staff: by role, who answers for the game's world, from the game's own facts.
    """

    kind: type[Game]
    simple: Choose
    strong: Choose
    staff: dict[str, Choose] = dataclasses.field(default_factory=dict)
