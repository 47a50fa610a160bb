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
        self._counts: dict[str, collections.Counter[str | None]] = {}
        self._tasks: dict[tuple[str, int], tuple[bool, bool]] = {}  # whether one said something, whether one was solved
        self.add(found)

    def add(self, found: Iterable[TrajectorySummary]) -> Self:
        """Counts more trajectories, each once; returns itself."""
        for summary in found:
            game, task, _ = summary.task_sample
            counts = self._counts.setdefault(game, collections.Counter())
            counts.update({summary.failure: 1, "trajectories": 1, "generated_tokens": summary.generated_tokens})
            said, solved = self._tasks.get((game, task), (False, False))
            if not summary.inconclusive:
                counts.update({"conclusive": 1, "turns": summary.turns, "successes": summary.success})
                said, solved = True, solved or summary.success
            self._tasks[game, task] = said, solved
        return self

    def rows(self) -> dict[str, dict[str, Any]]:
        """Returns the figures by game in order of first appearance, ready for JSON.

        Of each game: ``tasks`` with a trajectory, ``trajectories``, ``successes``; ``success_rate``, ``turns_played``
        (mean; of a failure those it had, not the limit) and ``best_of_k`` (share of tasks with a success, as
        `dfc.rows.selection.GroupStatistics`) over trajectories that are conclusive about the policy, None where there
        are none; ``failures`` by label; ``generated_tokens``, the policy's tokens.
        """
        return {game: self._row(game, counts) for game, counts in self._counts.items()}

    def _row(self, game: str, counts: collections.Counter[str | None]) -> dict[str, Any]:
        tasks = [ended for (of, _), ended in self._tasks.items() if of == game]
        said, solved = (sum(column) for column in zip(*tasks, strict=True))
        conclusive = counts["conclusive"]
        return {
            "tasks": len(tasks),
            "trajectories": counts["trajectories"],
            "successes": counts["successes"],
            "success_rate": counts["successes"] / conclusive if conclusive else None,
            "best_of_k": solved / said if said else None,
            "turns_played": counts["turns"] / conclusive if conclusive else None,
            "failures": failure_counts({label: counts[label] for label in FAILURES}),
            "generated_tokens": counts["generated_tokens"],
        }

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
