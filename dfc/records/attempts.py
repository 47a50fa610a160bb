"""Which trajectories a collection is made of, and what is counted of them.

An attempt is a game, a task of it and the number of the try at this task; its outcome depends on nothing else but the
weights and the settings.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from dfc.config import CollectConfig, Games
from dfc.errors import DfcError
from dfc.records.task_groups import tasks
from dfc.records.trajectories import FAILURES, INCONCLUSIVE, failure_counts

_ENOUGH = 20  # trajectories of a game, all of them inconclusive, after which continuing is a waste


class TaskSample(NamedTuple):
    """One trajectory to play: a game, a task of it, and the number of the try at this task, from 0."""

    game: str
    task: int
    sample: int


@dataclasses.dataclass(frozen=True)
class TrajectorySummary:
    """The outcome of an attempt.

    Attributes:
      task_sample: which.
      turns: replies of the policy.
      max_turns: the largest number of legal actions the game can take.
      success: whether it was a win.
      failure: why no rule decided it, one of `dfc.records.trajectories.FAILURES`, or None.
      generated_tokens: tokens the policy sampled.
    """

    task_sample: TaskSample
    turns: int
    max_turns: int
    success: bool
    failure: str | None
    generated_tokens: int

    @property
    def inconclusive(self) -> bool:
        """Whether something outside the policy ended it."""
        return self.failure in INCONCLUSIVE


def planned(games: Games, settings: CollectConfig) -> list[TaskSample]:
    """Returns every attempt in the order of `dfc.records.task_groups.tasks`, those at one task next to each other."""
    return [
        TaskSample(game, task, sample)
        for game, task in tasks(games, settings)
        for sample in range(settings.samples_of.get(game, settings.samples))
    ]


# ---- figures --------------------------------------------------------------------------------------------------------


class CollectionStatistics:
    """Outcomes of trajectories by game, summed as they arrive."""

    def __init__(self, found: Iterable[TrajectorySummary] = ()) -> None:
        self._games: dict[str, _Counts] = {}
        self.add(found)

    def add(self, found: Iterable[TrajectorySummary]) -> Self:
        """Counts more trajectories, each once; returns itself."""
        for summary in found:
            self._games.setdefault(summary.task_sample.game, _Counts()).add(summary)
        return self

    def rows(self) -> dict[str, dict[str, Any]]:
        """Returns the figures by game in order of first appearance, ready for JSON.

        Of each game: ``tasks`` with a trajectory, ``trajectories``, ``successes``; ``success_rate``, ``turns_played``
        (mean; of a failure those it had, not the limit) and ``best_of_k`` (share of tasks with a success, as
        `dfc.rows.selection.GroupStatistics`) over trajectories that are conclusive about the policy, None where there
        are none; ``failures`` by label; ``generated_tokens``, the policy's tokens.
        """
        return {game: counts.row() for game, counts in self._games.items()}

    def refuse_inconclusive(self, planned: Mapping[str, int] | None = None) -> None:
        """Stops where continuing would only spend time: simulators that cannot play their part, a game that raises.

        Trajectories are `planned` by game; games whose number is not known yet are left out.

        Raises:
          DfcError: a game has no trajectory that is conclusive about the policy, although all or many were played.
        """
        for game, figures in self.rows().items():
            count = figures["trajectories"]
            if figures["success_rate"] is None and count >= min(_ENOUGH, (planned or {}).get(game, _ENOUGH)):
                labels = ", ".join(f"{number} {label}" for label, number in figures["failures"].items() if number)
                raise DfcError(
                    f"{game}: all {count} trajectories are inconclusive ({labels}; failure_reason in the "
                    "trajectories has the words); name other simulators, or leave the game out, in another --workdir"
                )


class _Counts:
    """The figures of one game."""

    def __init__(self) -> None:
        self._tasks: set[int] = set()
        self._said: set[int] = set()
        self._solved: set[int] = set()
        self._failures: collections.Counter[str | None] = collections.Counter()
        self._trajectories = self._counted = self._successes = self._turns = self._generated_tokens = 0

    def add(self, summary: TrajectorySummary) -> None:
        task = summary.task_sample.task
        self._tasks.add(task)
        self._trajectories += 1
        self._failures[summary.failure] += 1
        self._generated_tokens += summary.generated_tokens
        if summary.inconclusive:
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
            "failures": failure_counts({label: self._failures[label] for label in FAILURES}),
            "generated_tokens": self._generated_tokens,
        }
