"""Which tasks a run collects from, and the groups of them that a curriculum chooses from."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

from dfc.config import ChoiceConfig, CollectingRunConfig, GameOptions, Games, SelectionLimits, TaskCollectionConfig
from dfc.errors import ConfigError
from dfc.games import registry
from dfc.games.game import Game
from dfc.games.paprika.world import World

_Collecting = TypeVar("_Collecting", bound=CollectingRunConfig)
_DIFFICULTIES = ("easy", "medium", "hard")


def split_games(games: Games, split: str) -> dict[str, GameOptions]:
    """Returns games with a split in the options of those that have splits."""
    return {
        game: {**options, "split": split} if registry.make(game, **options).info.splits else dict(options)
        for game, options in games.items()
    }


def playing(config: _Collecting) -> _Collecting:
    """Returns a configuration with the games as a collection plays them: those with splits with theirs."""
    return dataclasses.replace(config, games=split_games(config.games, config.split))


def evaluation_only(games: Iterable[str]) -> list[str]:
    """Returns those games that declare themselves to be for evaluation only; a name that is no id is none of them."""
    known = [game for game in games if not registry.problems(game, {})]
    return [game for game in known if registry.make(game).info.evaluation_only]


def learned_games(games: Games, selection: SelectionLimits) -> dict[str, GameOptions]:
    """Returns the games that rows are made of, none where the selection leaves none."""
    return {game: options for game, options in games.items() if game not in selection.leave_out}


def tasks(games: Games, settings: TaskCollectionConfig) -> list[tuple[str, int]]:
    """Returns every task as (game, number), games mixed: each part of the list has its share of every game."""
    ordered = []
    for place, (game, options) in enumerate(split_games(games, settings.split).items()):
        splits = registry.make(game, **options).info.splits
        most = settings.tasks
        size = min(splits[settings.split], most or splits[settings.split]) if splits else most
        ordered += [((task + 0.5) / size, place, game, task) for task in range(size)]
    return [(game, task) for _, _, game, task in sorted(ordered)]


def task_groups(
    games: Games,
    settings: TaskCollectionConfig,
    arms: Literal["game", "difficulty", "category"] = ChoiceConfig.arms,
    join_groups: Mapping[str, tuple[str, ...]] | None = None,
) -> dict[str, list[tuple[str, int]]]:
    """Returns the tasks of every group that a curriculum chooses from, as (game, number), by the group's name.

    Groups are games, or within each game the difficulties (easy to hard) or categories (by name) of its scenarios:
    ``twenty_questions easy``. Tasks without such a label are one group with the name of their game. Those that
    `join_groups` puts together are one, at the place of the first of them.

    Raises:
      ConfigError: `join_groups` names a group that is not there, or one twice.
    """
    by_game: dict[str, list[int]] = {game: [] for game in games}
    for game, task in tasks(games, settings):
        by_game[game].append(task)
    options, found = split_games(games, settings.split), {}
    for game, numbers in by_game.items():
        labelled: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)
        instance = registry.make(game, **options[game])
        for task in numbers:
            labelled[_label(instance, task, arms)].append((game, task))
        for label in sorted(labelled, key=lambda text: (_rank(text), text)):
            found[f"{game} {label}" if label else game] = labelled[label]
    return _joined(found, join_groups or {})


def _joined(
    groups: dict[str, list[tuple[str, int]]], joins: Mapping[str, tuple[str, ...]]
) -> dict[str, list[tuple[str, int]]]:
    """Returns the groups with those that are put together as one."""
    of: dict[str, str] = {}
    problems = []
    for name, members in joins.items():
        wrong = [member for n, member in enumerate(members) if member in members[:n]]
        wrong += [member for member in members if member not in groups or member in of]
        if not name.strip() or not members or wrong:
            problems.append(
                f"join_groups: {name!r}: {members!r} must be groups of this run, each in one entry at most: "
                f"{', '.join(groups)}"
            )
        elif name in set(groups).difference(members):
            problems.append(f"join_groups: {name!r} is the name of another group")
        of |= dict.fromkeys(members, name)
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
