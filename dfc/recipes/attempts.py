"""Which trajectories a collection is made of, and what is counted of them.

An attempt is a game, a task of it and the number of the try at this task; what comes of it depends on nothing else but
the weights and the settings.
"""

import collections
import dataclasses
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Self

from dfc import task_validation
from dfc.config import RunConfig, SamplingConfig
from dfc.data.trajectories import FAILURES, SAYS_NOTHING
from dfc.errors import ConfigError
from dfc.games import registry
from dfc.games.game import Game
from dfc.games.paprika.world import World

_DIFFICULTIES = ("easy", "medium", "hard")


class Attempt(NamedTuple):
    """One trajectory to play: a game, a task of it, and the number of the try at this task, from 0."""

    game: str
    task: int
    sample: int


@dataclasses.dataclass(frozen=True)
class Summary:
    """What came of an attempt.

    Attributes:
      attempt: which.
      turns: replies of the policy.
      max_turns: the largest number of legal actions the game can take.
      success: whether it was a win.
      failure: why no rule decided it, one of `dfc.data.trajectories.FAILURES`, or None.
      drawn: ids the policy drew.
    """

    attempt: Attempt
    turns: int
    max_turns: int
    success: bool
    failure: str | None
    drawn: int

    @property
    def says_nothing(self) -> bool:
        """Whether something outside the policy ended it."""
        return self.failure in SAYS_NOTHING


# ---- which games ----------------------------------------------------------------------------------------------------


def playing(config: RunConfig) -> RunConfig:
    """Returns a configuration as a collection plays it: games with their split, sampling as `collect` says."""
    games = {}
    for game, options in config.games.items():
        splits = registry.make(game, **options).facts.splits
        games[game] = {**options, "split": config.collect.split} if splits else dict(options)
    sampling = SamplingConfig(temperature=config.collect.temperature, min_p=config.collect.min_p)
    return dataclasses.replace(config, games=games, rollout=dataclasses.replace(config.rollout, sampling=sampling))


def tasks(config: RunConfig) -> list[tuple[str, int]]:
    """Returns every task as (game, number), games mixed: each part of the list has its share of every game."""
    ordered = []
    for place, (game, options) in enumerate(playing(config).games.items()):
        splits = registry.make(game, **options).facts.splits
        most = config.collect.tasks
        size = min(splits[config.collect.split], most or splits[config.collect.split]) if splits else most
        ordered += [((task + 0.5) / size, place, game, task) for task in range(size)]
    return [(game, task) for _, _, game, task in sorted(ordered)]


def planned(config: RunConfig) -> list[Attempt]:
    """Returns every attempt in the order of `tasks`, those at one task behind each other."""
    samples = task_validation.counts(config.collect.samples_of)
    return [
        Attempt(game, task, sample)
        for game, task in tasks(config)
        for sample in range(samples.get(game, config.collect.samples))
    ]


def task_arms(
    config: RunConfig, arms: Literal["game", "difficulty", "category"] | None = None
) -> dict[str, list[tuple[str, int]]]:
    """Returns the tasks of every group that a curriculum chooses from, as (game, number), by the group's name.

    Groups are games, or within each game the difficulties (easy to hard) or categories (by name) of its scenarios:
    ``twenty_questions easy``. Tasks without such a label are one group with the name of their game. Those that
    `task_curriculum.joined` puts together are one, at the place of the first of them.

    Args:
      config: of the run.
      arms: what a group is before some are joined; None: as `task_curriculum` says.

    Raises:
      ConfigError: `joined` is not of its form, or names a group that is not there, or one twice.
    """
    arms = arms or config.task_curriculum.arms
    by_game: dict[str, list[int]] = {game: [] for game in config.games}
    for game, task in tasks(config):
        by_game[game].append(task)
    games, found = playing(config).games, {}
    for game, numbers in by_game.items():
        labelled: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)
        world = registry.make(game, **games[game])
        for task in numbers:
            labelled[_label(world, task, arms)].append((game, task))
        for label in sorted(labelled, key=lambda text: (_rank(text), text)):
            found[f"{game} {label}" if label else game] = labelled[label]
    return _joined(found, config.task_curriculum.joined)


def _joined(arms: dict[str, list[tuple[str, int]]], entries: tuple[str, ...]) -> dict[str, list[tuple[str, int]]]:
    """Returns the groups with those of each entry ``NAME=GROUP+GROUP`` as one."""
    of: dict[str, str] = {}
    problems = []
    for entry in entries:
        name, _, listed = entry.partition("=")
        members = [member.strip() for member in listed.split("+")]
        wrong = [member for member in members if member not in arms or member in of]
        if not name.strip() or wrong:
            problems.append(
                f"task_curriculum.joined: {entry!r} must be NAME=GROUP+GROUP with groups of this run, each in one "
                f"entry at most: {', '.join(arms)}"
            )
        elif name.strip() in {*arms, *of.values()}.difference(members):
            problems.append(f"task_curriculum.joined: {entry!r}: {name.strip()} is the name of another group")
        of |= dict.fromkeys(members, name.strip())
    if problems:
        raise ConfigError(problems)
    found: dict[str, list[tuple[str, int]]] = {}
    for name, tasks_ in arms.items():
        found.setdefault(of.get(name, name), []).extend(tasks_)
    return found


def _label(game: Game, task: int, arms: str) -> str:
    if arms == "game" or not isinstance(game, World):
        return ""
    game.reset(task)
    assert game.scenario is not None  # noqa: S101 - it has begun
    return game.scenario.difficulty if arms == "difficulty" else game.scenario.group


def _rank(label: str) -> int:
    return _DIFFICULTIES.index(label) if label in _DIFFICULTIES else len(_DIFFICULTIES)


# ---- figures --------------------------------------------------------------------------------------------------------


class Figures:
    """What came of trajectories by game, added up as they come."""

    def __init__(self, found: Iterable[Summary] = ()) -> None:
        self._games: dict[str, _Counts] = {}
        self.add(found)

    def add(self, found: Iterable[Summary]) -> Self:
        """Counts more trajectories, each once; returns itself."""
        for summary in found:
            self._games.setdefault(summary.attempt.game, _Counts()).add(summary)
        return self

    def rows(self) -> dict[str, dict[str, Any]]:
        """Returns the figures by game in order of first appearance, ready for JSON.

        Of each game: ``tasks`` with a trajectory, ``trajectories``, ``successes``; ``success_rate``, ``turns_played``
        (mean; of a failure those it had, not the limit) and ``best_of_k`` (share of tasks with a success, as
        `dfc.data.selection.GroupStatistics`) over trajectories that say something about the policy, None where there
        are none; ``failures`` by label; ``drawn``, the ids of the policy.
        """
        return {game: counts.row() for game, counts in self._games.items()}


class _Counts:
    """The figures of one game."""

    def __init__(self) -> None:
        self._tasks: set[int] = set()
        self._said: set[int] = set()
        self._solved: set[int] = set()
        self._failures: collections.Counter[str | None] = collections.Counter()
        self._trajectories = self._counted = self._successes = self._turns = self._drawn = 0

    def add(self, summary: Summary) -> None:
        task = summary.attempt.task
        self._tasks.add(task)
        self._trajectories += 1
        self._failures[summary.failure] += 1
        self._drawn += summary.drawn
        if summary.says_nothing:
            return
        self._said.add(task)
        self._counted += 1
        self._turns += summary.turns
        if summary.success:
            self._solved.add(task)
            self._successes += 1

    def row(self) -> dict[str, Any]:
        return {
            "tasks": len(self._tasks),
            "trajectories": self._trajectories,
            "successes": self._successes,
            "success_rate": self._successes / self._counted if self._counted else None,
            "best_of_k": len(self._solved) / len(self._said) if self._said else None,
            "turns_played": self._turns / self._counted if self._counted else None,
            "failures": {label: self._failures[label] for label in FAILURES},
            "drawn": self._drawn,
        }
