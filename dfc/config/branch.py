"""Configuration of playing on from turns of recorded games: the recipe branch."""

import dataclasses
from typing import ClassVar, Literal

from dfc.config.ranges import Count, CountOrZero
from dfc.config.tasks import CollectingRunConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Branch(CollectingRunConfig, recipe="branch", module="stages.collect"):
    """Trajectories that play on from turns of recorded ones: siblings with the same instance, seat and history.

    Attributes:
      trajectories: the folder of the recorded ones, or the run that collected them, of this run's games.
      tasks: per game, those of the first ones; 0: of all.
      turns: of the recorded seat that it is played on from: its ``first`` reply, or ``all`` of them.
      turns_per_dialogue: with ``all``, how many turns of one dialogue at most, chosen by the seed; 0: all of them.
      siblings: games played on from each turn.
      opponent: who plays the other seat of games for two from there on: ``initial``, ``itself``, or a player, as in
        collect.
    """

    shorter: ClassVar[tuple[str, ...]] = ("tasks", "turns_per_dialogue", "siblings", "rollout.max_reply_length")

    trajectories: str = ""
    tasks: CountOrZero = 0
    turns: Literal["first", "all"] = "first"
    turns_per_dialogue: CountOrZero = 0
    siblings: Count = 4
    opponent: str = "itself"
