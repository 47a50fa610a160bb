"""Training instances in epochs: every task of the games' splits once, in a new order each time.

An iteration takes the next `groups_per_iteration` of the epoch's order; the last one of an epoch takes what is left,
so that no instance comes twice in an epoch and none in two epochs at once. What an iteration plays depends on the run's
seed, the stage and the number of the iteration only: a resumed run, and every host, plays the same.

Source: Playpen (arXiv 2504.08590), appendices D.4 and E.3: 686 instances of seven games, 16 of them an update, 5
epochs, which are 5 x 43 = 215 updates. Departure: the paper does not say how an epoch ends; here with an update of 14.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dfc.config import RlRunConfig
from dfc.evaluation import matches
from dfc.games import registry
from dfc.games.instances import iterations_of_an_epoch, number_of_tasks, numbers_of_instances
from dfc.games.rng import derive_seed
from dfc.rollout.runner import EpisodeSpec


def instances_of(
    numbers: Mapping[str, int], size: int, seed: int, stage: str, iteration: int
) -> tuple[int, list[tuple[str, int]]]:
    """Returns the epoch of an iteration, from 0, and the instances that it plays, as (game, task).

    Args:
      numbers: instances by game, one at least in all.
      size: instances of an iteration.
      seed: of the run.
      stage: a name; every stage has orders of its own.
      iteration: from 0, counted in the stage.
    """
    every = [(game, task) for game, number in numbers.items() for task in range(number)]
    epoch, place = divmod(iteration, iterations_of_an_epoch(numbers, size))
    rng = np.random.Generator(np.random.Philox(derive_seed("epoch", seed, stage, epoch)))
    order = rng.permutation(len(every))
    return epoch, [every[number] for number in order[place * size : (place + 1) * size]]


def of_iteration(
    games: Sequence[str], config: RlRunConfig, stage: str, iteration: int
) -> tuple[dict[str, int], list[EpisodeSpec]]:
    """Returns how many instances of each game an iteration plays, and `group_size` episodes of each.

    Where the policy has no role of its own in a game for two, its seat alternates from task to task and, at each of
    them, from epoch to epoch. Trials of a task (`dfc.games.task.Task`) follow each other from epoch to epoch.

    Args:
      games: those that the stage trains on.
      config: of the run.
      stage: a name.
      iteration: from 0, counted in the stage.
    """
    numbers = numbers_of_instances({game: config.games[game] for game in games}, config.tasks)
    size = config.most_groups(len(games))
    epoch, chosen = instances_of(numbers, size, config.seed, stage, iteration)
    made = {game: registry.make(game, **config.games[game]) for game, _ in chosen}
    specs = []
    for group, (game, task) in enumerate(chosen):
        trial = epoch * number_of_tasks(made[game])
        seat = matches.policy_seat(game, made[game], task + epoch, config.learner_roles)
        for copy in range(config.group_size):
            seed = derive_seed("epoch draws", config.seed, stage, iteration, group, copy)
            specs.append(
                EpisodeSpec(game, config.games[game], task + trial, seat, group, seed, config.random_action_rate)
            )
    counts = dict.fromkeys(games, 0)
    for game, _ in chosen:
        counts[game] += 1
    return counts, specs
