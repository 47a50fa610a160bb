"""What an iteration plays: how many groups of each game, which deals, from which seats, and against whom.

Deals are random ones (`rollout_specs`), or the tasks of the games' splits in epochs, every one once and in a new order
each time (`epoch_specs`). An iteration of an epoch takes the next `groups_per_iteration` of its order; the last one
takes what is left, so that no instance comes twice in an epoch and none in two epochs at once. What is played depends
on the run's seed, the stage and the number of the iteration only: a resumed run, and every host, plays the same.

Source of the epochs: Playpen (arXiv 2504.08590), appendices D.4 and E.3: 686 instances of seven games, 16 of them an
update, 5 epochs, which are 5 x 43 = 215 updates. Departure: the paper does not say how an epoch ends; here with an
update of 14.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dfc import curriculum
from dfc.config import OpponentPoolConfig, RlRunConfig
from dfc.episodes import Episode
from dfc.evaluation import matches
from dfc.games import registry
from dfc.games.instances import iterations_of_an_epoch, number_of_tasks, numbers_of_instances
from dfc.games.rng import derive_seed
from dfc.rollout.runner import EpisodeSpec
from dfc.rollout.workers import Opponent
from dfc.training.games_run import GamesRun, State

INITIAL = "initial"


def planned(
    games: Sequence[str], win_rates: Mapping[str, float], config: RlRunConfig, stage: str, iteration: int
) -> tuple[dict[str, int], list[EpisodeSpec]]:
    """Returns how many groups an iteration plays of each game, and its episodes: of random deals, or in epochs."""
    if config.deals == "epochs":
        return epoch_specs(games, config, stage, iteration)
    seeds = allocate(games, win_rates, config)
    return seeds, rollout_specs(seeds, config, stage, iteration)


def allocate(games: Sequence[str], win_rates: Mapping[str, float], config: RlRunConfig) -> dict[str, int]:
    """Returns how many groups, of a rollout seed each, a game gets; their sum is groups_per_game x games (3.2.3)."""
    budget = config.groups_per_game * len(games)
    priority = config.mixed_priority
    if not priority.enabled:
        weights = np.ones(len(games))
    else:
        rates = [win_rates[game] for game in games]
        weights = curriculum.mixed_priority_weights(rates, a=priority.a, b=priority.b, floor=priority.floor)
    seeds = curriculum.allocate_seeds(weights, budget, minimum=1)
    return dict(zip(games, seeds.tolist(), strict=True))


def rollout_specs(
    seeds: Mapping[str, int], config: RlRunConfig, stage: str, iteration: int, *, refill: int = 0
) -> list[EpisodeSpec]:
    """Returns `group_size` episodes of every rollout seed; seats alternate from seed to seed.

    Episodes of one group follow each other, and games take turns, so that all lengths are in flight together. Of a
    round of `refill`, from 1, they have seeds of their own; 0: those that an iteration begins with.
    """
    seed, options = config.seed, config.games
    purpose, rounds = ("refill", (refill,)) if refill else ("rollout", ())
    place = iteration if config.randomize_seeds else 0
    specs: list[tuple[float, EpisodeSpec]] = []
    group = 0
    for game, count in seeds.items():
        made = registry.make(game, **options[game])
        for index in range(count):
            deal = derive_seed(f"{purpose} deal", seed, stage, game, place, *rounds, index)
            deal = deal % config.tasks if config.tasks else deal
            for copy in range(config.group_size):
                sampling_seed = derive_seed(f"{purpose} draws", seed, stage, game, iteration, *rounds, index, copy)
                seat = matches.policy_seat(game, made, index + iteration + refill, config.learner_roles)
                spec = EpisodeSpec(game, options[game], deal, seat, group, sampling_seed, config.random_action_rate)
                specs.append((index / count, spec))
            group += 1
    return [spec for _, spec in sorted(specs, key=lambda item: item[0])]


def instances_of(
    numbers: Mapping[str, int], size: int, seed: int, stage: str, iteration: int
) -> tuple[int, list[tuple[str, int]]]:
    """Returns the epoch of an iteration, from 0, and the instances that it plays, as (game, task).

    `numbers` are instances by game, one at least in all; every stage has orders of its own. Iterations count from 0 in
    each stage.
    """
    every = [(game, task) for game, number in numbers.items() for task in range(number)]
    epoch, place = divmod(iteration, iterations_of_an_epoch(numbers, size))
    rng = np.random.Generator(np.random.Philox(derive_seed("epoch", seed, stage, epoch)))
    order = rng.permutation(len(every))
    return epoch, [every[number] for number in order[place * size : (place + 1) * size]]


def epoch_specs(
    games: Sequence[str], config: RlRunConfig, stage: str, iteration: int
) -> tuple[dict[str, int], list[EpisodeSpec]]:
    """Returns how many instances of each game an iteration plays, and `group_size` episodes of each.

    Where the policy has no role of its own in a game for two, its seat alternates from task to task and, at each of
    them, from epoch to epoch. Trials of a task (`dfc.games.task.Task`) follow each other from epoch to epoch.
    Iterations count from 0 in each stage.
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


# ---- how much, and what ----------------------------------------------------------------------------------------------


def games_played(config: RlRunConfig, turns: int) -> tuple[int, int]:
    """Returns the games that `turns` (iterations x games of each) play to train on, and those that decide what is kept.

    With `RlRunConfig.refill` these are the most that they may play: every group of every round teaches nothing.
    """
    judged = 0 if config.acceptance.rule == "always" else config.acceptance.games
    groups = turns * config.most_groups(len(config.games)) // max(1, len(config.games))
    return groups * config.group_size * (1 + config.refill), turns * judged


def games_lines(config: RlRunConfig) -> list[str]:
    """Returns a line for every game whose rules differ from those of its id."""
    changed = {
        game: ", ".join(f"{name} = {value}" for name, value in options.items())
        for game, options in config.games.items()
    }
    return [f"{game} differs from its id's rules: {changes}" for game, changes in changed.items() if changes]


# ---- opponents -------------------------------------------------------------------------------------------------------


def choose_opponent(run: GamesRun, state: State, seed: int) -> tuple[Opponent, str]:
    """Returns an iteration's opponent, and its name in the records.

    The opponent ``pool`` samples one of the past policies, the initial one among them.
    """
    settings = run.config
    if settings.opponent != "pool":
        return settings.opponent, settings.opponent
    names = [INITIAL, *state.pool]
    rates = [state.met.get(name, 0.5) for name in names]
    chances = choice_probabilities(rates, settings.pool)
    uniform = np.random.Generator(np.random.Philox(seed)).random()
    name = names[min(int(np.searchsorted(np.cumsum(chances), uniform, side="right")), len(names) - 1)]
    past: Opponent = INITIAL if name == INITIAL else run.policy(state.pool[name])
    return past, f"pool {name}"


def choice_probabilities(win_rates: Sequence[float], settings: OpponentPoolConfig) -> np.ndarray:
    """Returns the probability of meeting each opponent, float64 [opponents], from the policy's win rates against each.

    Weights are ``hardest`` (1 - w)^2, ``even`` w (1 - w), ``uniform`` 1, each plus 0.01 so that nobody is forgotten.

    Source: prioritised fictitious self-play, Vinyals et al., Nature 575 (2019), Methods; the 0.01 is ours.
    """
    w = np.asarray(win_rates, np.float64)
    weights = {"hardest": (1 - w) ** 2, "even": w * (1 - w), "uniform": np.ones_like(w)}[settings.choice] + 0.01
    return np.asarray(weights / weights.sum())


def remember_opponent(run: GamesRun, state: State, who: str, played: Sequence[Episode]) -> None:
    """Notes how a past policy was met, and lets the policy join the pool after every `every` iterations."""
    settings = run.config
    if settings.opponent != "pool":
        return
    records = matches.by_game(matches.tally(e for e in played if e.opponent == who)).values()
    scores = [r.score.estimate for r in records if r.games > r.truncated]  # truncated games have no score
    if scores:
        state.met = {**state.met, who.removeprefix("pool "): sum(scores) / len(scores)}
    if (state.iteration + 1) % settings.pool.every == 0:
        pool = {**state.pool, f"iteration {state.iteration + 1}": state.best}
        state.pool = dict(list(pool.items())[-settings.pool.size :])
        state.met = {name: rate for name, rate in state.met.items() if name in {INITIAL, *state.pool}}
