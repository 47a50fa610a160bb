"""Games of numbered tasks in disjoint splits, for one player or a team, with a turn limit.

A task is its parameters and a number; it is generated when it is needed.
"""

import abc
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeVar, Unpack

from dfc.games.game import Common, Game, GameInfo
from dfc.games.rng import GameRng, derive_seed

_T = TypeVar("_T")
_Sample = Callable[[GameRng, str, int], tuple[_T, Hashable | None]]

FRESH = "fresh"
"""A split without numbers, of games that have it: every seed deals a task of its own, which is in no other split."""
_FRESH_TASKS = 2**32  # of a fresh split; a seed deals the remainder


def count_of(number: int, one: str, more: str = "") -> str:
    """Returns a number with its word.

    >>> count_of(1, "turn"), count_of(2, "turn"), count_of(2, "try", "tries")
    ('1 turn', '2 turns', '2 tries')
    """
    return f"{number} {one if number == 1 else more or one + 's'}"


def dealt(group: str, secrets: Iterable[str], sizes: Mapping[str, int], split: str) -> tuple[str, ...]:
    """Returns the secrets of a split by task number.

    The secrets are put in the order of a hash of each, and the splits cut one after the other from it. `group` is a
    part of the hash; `sizes` are in the order in which the splits are cut.

    Raises:
      ValueError: there is no such split.
    """
    if split not in sizes:
        raise ValueError(f"split must be one of {', '.join(sizes)}, got {split!r}")
    order = sorted(secrets, key=lambda secret: derive_seed(group, secret))
    names = list(sizes)
    first = sum(sizes[name] for name in names[: names.index(split)])
    return tuple(order[first : first + sizes[split]])


class DistinctTasks(dict[str, tuple[_T, ...]]):
    """The tasks of the numbered splits, and those beside them; see `distinct_tasks`."""

    def __init__(
        self, group: str, sample: _Sample[_T], tasks: Mapping[str, tuple[_T, ...]], seen: set[Hashable]
    ) -> None:
        super().__init__(tasks)
        self._group, self._sample, self._seen = group, sample, frozenset(seen)

    def of(self, split: str, number: int) -> _T:
        """Returns a task of a split; of `FRESH` one that the number draws and that is like none of the others."""
        if split != FRESH:
            return self[split][number]
        rng = GameRng(derive_seed("fresh task", self._group, number))
        while True:
            task, key = self._sample(rng, split, number)
            if key not in self._seen:
                return task


def distinct_tasks(group: str, sizes: Mapping[str, int], sample: _Sample[_T]) -> DistinctTasks[_T]:
    """Returns the tasks of all splits, no two of them alike; each split has a stream of its own.

    `group` is a part of the streams' seeds. `sample`: (stream, split, number of the task in it) -> a task, and what two
    alike tasks have in common. A task that is like an earlier one of any split is drawn again, and so is one with None
    there, which is unusable.
    """
    tasks: dict[str, tuple[_T, ...]] = {}
    seen: set[Hashable] = {None}
    for split, size in sizes.items():
        rng = GameRng(derive_seed("tasks", group, split))
        sampled: list[_T] = []
        while len(sampled) < size:
            task, key = sample(rng, split, len(sampled))
            if key not in seen:
                seen.add(key)
                sampled.append(task)
        tasks[split] = tuple(sampled)
    return DistinctTasks(group, sample, tasks, seen)


def task_seed(seed: int, task: int, number: int) -> int:
    """Returns a seed near another one that deals a task of a split of `number` tasks; see `Task`."""
    return seed - seed % number + task


class Task(Game):
    """A game whose secret is one of a fixed number of tasks; success or failure within a turn limit.

    One player, or a team of two that wins and loses together (`seats = 2`, `team = True`).

    `reset(seed)` takes task ``seed % number_of_tasks``: seeds 0, 1, ... walk through a split, any large seed draws from
    it. What the task hides depends on group, split and task number only (`_set_up`); what happens on the way, such as
    the reward of a pull, on the whole seed (`self.rng`). So ``task + k * number_of_tasks`` is trial k of a task.

    Outcomes: WIN for success, LOSS for failure, also at the turn limit; INVALID for a reply that cannot be read
    (`malformed_allowance` gives further tries). Actions that achieve nothing (a word of a wrong length) cost a turn
    instead of being refused, unless `_objection` is overridden.

    Where `has_fresh` is set, ``split="fresh"`` deals a task of its own to every seed, one that is in no split.

    Attributes:
      split: whose tasks these are, a key of `splits`, or `FRESH`.
      max_turns: actions after which the task has failed.
      task: number of the task in its split, or -1 before the first `reset`.
    """

    seats: ClassVar[int] = 1
    start: ClassVar[Literal["fixed", "random"]] = "random"
    # Whether `_set_up` can draw the task of `FRESH`.
    has_fresh: ClassVar[bool] = False

    def __init__(self, *, split: str, max_turns: int, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        if split not in (known := (*self.splits, *([FRESH] if self.has_fresh else []))):
            raise ValueError(f"split must be one of {', '.join(known)}, got {split!r}")
        if max_turns < 1:
            raise ValueError(f"max_turns must be 1 or more, got {max_turns}")
        self.split = split
        self.max_turns = max_turns
        self.task = -1

    @property
    def number_of_tasks(self) -> int:
        """How many tasks the split has."""
        return _FRESH_TASKS if self.split == FRESH else self.splits[self.split]

    @property
    def info(self) -> GameInfo:
        """What is known before the start; `splits` is empty where every seed is a deal."""
        found = super().info
        return dataclasses.replace(found, splits={}) if self.split == FRESH else found

    @property
    def experiment(self) -> str:
        """The group of the task within its split, such as how rare its word is; empty where tasks have no groups."""
        return ""

    @property
    def max_game_length(self) -> int:
        """The turn limit."""
        return self.max_turns

    # ---- by subclass ----------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _set_up(self, rng: GameRng) -> None:
        """Draws the secret of `self.task` from a stream that belongs to the task, and tells the players the start."""

    @abc.abstractmethod
    def _position(self) -> dict[str, Any]:
        """Returns the position as JSON-ready data that shares no list with the game, without the task's number."""

    @abc.abstractmethod
    def _set_position(self, position: dict[str, Any]) -> None:
        """Sets the position from `_position`'s data, keeping none of its lists."""

    # ---- the protocol ---------------------------------------------------------------------------------------------

    def _begin(self) -> int:
        """Sets the task up; seat 0 moves first."""
        self.task = self.rng.seed % self.number_of_tasks
        self._set_up(GameRng(derive_seed("task", type(self).__name__, self.split, self.task)))
        return 0

    def _objection(self, action: str) -> str | None:
        del action  # what achieves nothing costs a turn
        return None

    def _state(self) -> dict[str, Any]:
        return {"task": self.task, "position": self._position()}

    def _restore(self, state: dict[str, Any]) -> None:
        self.task = state["task"]
        self._set_position(state["position"])
