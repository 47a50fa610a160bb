"""How many instances games have: tasks of their splits, or deals where they have none."""

from collections.abc import Mapping
from typing import Any

from dfc.games import registry
from dfc.games.game import Game
from dfc.games.task import Task


def number_of_tasks(game: Game) -> int:
    """Returns how many tasks the split, or the file of instances, of a game has; 0 where every seed is a deal."""
    return game.number_of_tasks if isinstance(game, Task) else 0


def numbers_of_instances(games: Mapping[str, Mapping[str, Any]], tasks: int) -> dict[str, int]:
    """Returns how many instances an epoch has of each game: the tasks of its split, or deals where it has no splits.

    Args:
      games: id -> constructor values that differ from the id's own.
      tasks: the first ones only; 0: all. A game without splits has as many deals, none if it is 0.
    """
    found = {}
    for game, options in games.items():
        number = number_of_tasks(registry.make(game, **options))
        found[game] = min(number, tasks) if number and tasks else number or tasks
    return found


def iterations_of_an_epoch(numbers: Mapping[str, int], size: int) -> int:
    """Returns how many iterations of `size` instances, the last one of fewer, go through all instances once.

    >>> iterations_of_an_epoch({"clem_taboo": 10, "clem_wordle": 11}, 8)
    3
    """
    return -(-sum(numbers.values()) // size)
