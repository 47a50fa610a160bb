"""Which tasks a run collects from, and the groups of them that a curriculum chooses from."""

import collections
import dataclasses
from typing import Literal

from dfc.config import GameOptions, RunConfig, SamplingConfig
from dfc.errors import ConfigError
from dfc.games import registry
from dfc.games.game import Game
from dfc.games.paprika.world import World

_DIFFICULTIES = ("easy", "medium", "hard")


def playing(config: RunConfig) -> RunConfig:
    """Returns a configuration as a collection plays it: games with their split, sampling as `collect` says."""
    games = {}
    for game, options in config.games.items():
        splits = registry.make(game, **options).info.splits
        games[game] = {**options, "split": config.collect.split} if splits else dict(options)
    sampling = SamplingConfig(temperature=config.collect.temperature, min_p=config.collect.min_p)
    return dataclasses.replace(config, games=games, rollout=dataclasses.replace(config.rollout, sampling=sampling))


def learned_games(config: RunConfig) -> dict[str, GameOptions]:
    """Returns the games that `build_data` learns from, none where it leaves none."""
    build = config.build_data
    return {
        game: options
        for game, options in config.games.items()
        if game not in build.leave_out and (not build.groups or game in build.groups)
    }


def tasks(config: RunConfig) -> list[tuple[str, int]]:
    """Returns every task as (game, number), games mixed: each part of the list has its share of every game."""
    ordered = []
    for place, (game, options) in enumerate(playing(config).games.items()):
        splits = registry.make(game, **options).info.splits
        most = config.collect.tasks
        size = min(splits[config.collect.split], most or splits[config.collect.split]) if splits else most
        ordered += [((task + 0.5) / size, place, game, task) for task in range(size)]
    return [(game, task) for _, _, game, task in sorted(ordered)]


def task_groups(
    config: RunConfig, arms: Literal["game", "difficulty", "category"] | None = None
) -> dict[str, list[tuple[str, int]]]:
    """Returns the tasks of every group that a curriculum chooses from, as (game, number), by the group's name.

    Groups are games, or within each game the difficulties (easy to hard) or categories (by name) of its scenarios:
    ``twenty_questions easy``. Tasks without such a label are one group with the name of their game. Those that
    `task_curriculum.join_groups` puts together are one, at the place of the first of them.

    Args:
      config: of the run.
      arms: what a group is before some are joined; None: as `task_curriculum.arms` says.

    Raises:
      ConfigError: `join_groups` is not of its form, or names a group that is not there, or one twice.
    """
    arms = arms or config.task_curriculum.arms
    by_game: dict[str, list[int]] = {game: [] for game in config.games}
    for game, task in tasks(config):
        by_game[game].append(task)
    games, found = playing(config).games, {}
    for game, numbers in by_game.items():
        labelled: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)
        instance = registry.make(game, **games[game])
        for task in numbers:
            labelled[_label(instance, task, arms)].append((game, task))
        for label in sorted(labelled, key=lambda text: (_rank(text), text)):
            found[f"{game} {label}" if label else game] = labelled[label]
    return _joined(found, config.task_curriculum.join_groups)


def _joined(groups: dict[str, list[tuple[str, int]]], entries: tuple[str, ...]) -> dict[str, list[tuple[str, int]]]:
    """Returns the groups with those of each entry ``NAME=GROUP+GROUP`` as one."""
    of: dict[str, str] = {}
    problems = []
    for entry in entries:
        name, _, listed = entry.partition("=")
        members = [member.strip() for member in listed.split("+")]
        wrong = [member for n, member in enumerate(members) if member in members[:n]]
        wrong += [member for member in members if member not in groups or member in of]
        if not name.strip() or wrong:
            problems.append(
                f"task_curriculum.join_groups: {entry!r} must be NAME=GROUP+GROUP with groups of this run, each in one "
                f"entry at most: {', '.join(groups)}"
            )
        elif name.strip() in {*groups, *of.values()}.difference(members):
            problems.append(f"task_curriculum.join_groups: {entry!r}: {name.strip()} is the name of another group")
        of |= dict.fromkeys(members, name.strip())
    if problems:
        raise ConfigError(problems)
    found: dict[str, list[tuple[str, int]]] = {}
    for name, tasks_ in groups.items():
        found.setdefault(of.get(name, name), []).extend(tasks_)
    return found


def _label(game: Game, task: int, arms: str) -> str:
    if arms == "game" or not isinstance(game, World):
        return ""
    game.reset(task)
    assert game.scenario is not None  # noqa: S101 - it has started
    return game.scenario.difficulty if arms == "difficulty" else game.scenario.group


def _rank(label: str) -> int:
    return _DIFFICULTIES.index(label) if label in _DIFFICULTIES else len(_DIFFICULTIES)
