"""The collecting of one round of a curriculum (Paprika, arXiv 2502.17543, Algorithm 1): from groups that it chooses.

    choose     a group by its score so far, and a task of it
    play       the task several times; every trajectory is written
    observe    the spread of turns is the group's result

A group's score is the mean over its tasks so far of the coefficient of variation of turns, every failure counted as
the turn limit. With ``strategy="uniform"`` every task is as likely, whatever its group.

How it departs from the paper: several tasks may be chosen before the results of the first are known
(`dfc.curriculum.UpperConfidenceBound`); a game that failed, about which nothing is known, counts as no result, and a
task with fewer than two results as a choice of its group without a result.
"""

import collections
import contextlib
import dataclasses
import functools
import time
from collections.abc import Sequence

from dfc import curriculum, multihost
from dfc.config import CollectRound
from dfc.curriculum import UpperConfidenceBound
from dfc.files import write_json
from dfc.games.rng import GameRng, derive_seed
from dfc.records import collection
from dfc.records.attempts import CollectionStatistics, TaskSample, TrajectorySummary
from dfc.records.collection import Collection
from dfc.records.task_groups import playing, task_groups
from dfc.rollout.host import PolicyWeights
from dfc.rollout.workers import RolloutWorkers
from dfc.runs.costs import Costs
from dfc.runs.metrics import MetricsWriter
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop

CHOICES = "choices.json"  # how often which group was chosen, and its score


def run(config: CollectRound, folder: RunFolder, stop: Stop) -> None:
    """Collects the trajectories of one round from groups chosen as it goes; resumes where it was stopped.

    The choices follow from the seed and the stored trajectories, so nothing else is stored.

    Raises:
      DfcError: no trajectory of a game is conclusive about the policy, although many were played.
    """
    steps = config.steps
    arms = task_groups(config.games, config, config.arms, config.join_groups)
    print(f"{len(arms)} groups: " + ", ".join(f"{name} {len(tasks)}" for name, tasks in arms.items()), flush=True)  # noqa: T201 - what is chosen from
    workers = RolloutWorkers(playing(config), stop.check_stop, sampling=config.sampling)
    with contextlib.closing(workers):
        folder.note_device(workers.host.device)
        provenance = collection.make_provenance(config, workers.host.source)
        play = functools.partial(workers.play, policy=PolicyWeights(workers.initial_params), opponent="itself")
        with Collection(config, play, folder.path / collection.FOLDER, provenance) as collected:
            chooser = Chooser(config, arms)
            so_far = CollectionStatistics(_went_on(folder, chooser, collected))
            so_far.refuse_inconclusive()
            costs = Costs(folder)
            done = chooser.step - len(chooser.waiting)
            with MetricsWriter(folder) as writer, Progress(steps, start_step=done, shorter=config.shorter) as progress:
                while chooser.step < steps or chooser.waiting:
                    played = _Played(workers, costs)
                    found = collected.play(_next(chooser), stop=stop, on_chunk=played.chunk)
                    chooser.observe(found)
                    figures = so_far.add(found).rows()
                    writer.write(
                        step=chooser.step,
                        stage=config.name,
                        iteration=chooser.step,
                        metrics={f"chosen/{name}": chooser.chosen[name] for name in arms}
                        | {f"score/{name}": mean for name, mean in chooser.means.items()}
                        | costs.unreported(),
                        clock={"time": time.time(), "seconds": played.seconds},
                    )
                    progress.update(
                        stage=config.name,
                        iteration=chooser.step,
                        iterations=steps,
                        step=chooser.step,
                        episodes_per_second=played.games / played.seconds if played.games else 0.0,
                        tokens_per_second=played.generated_tokens / played.seconds if played.games else 0.0,
                        win_rates={
                            g: row["success_rate"] for g, row in figures.items() if row["success_rate"] is not None
                        },
                        cost=str(costs),
                    )
                    so_far.refuse_inconclusive()  # how many are to come of a game is not known
    games = so_far.rows()
    so_far.refuse_inconclusive({game: row["trajectories"] for game, row in games.items()})
    if folder.writes:
        record = {
            "chosen": dict(chooser.chosen),
            "scores": chooser.means,
            "games": games,
            "seconds": sum(float(line["clock"]["seconds"]) for line in folder.records("metrics")),
            "cost": costs.total,
        }
        write_json(folder.path / CHOICES, record)
        for name in arms:
            print(f"{name}: chosen {chooser.chosen[name]} times, score {chooser.means[name]:.3f}", flush=True)  # noqa: T201 - the result
        if str(costs):
            print(f"cost: {costs}", flush=True)  # noqa: T201 - the result
    folder.finish()


def _next(chooser: "Chooser") -> list[TaskSample]:
    """Returns the attempts that were chosen and not played yet, otherwise those at the next tasks."""
    return [task_sample for task in chooser.waiting or chooser.choose_next() for task_sample in task]


def _went_on(folder: RunFolder, chooser: "Chooser", collected: Collection) -> list[TrajectorySummary]:
    """Goes through the finished steps without playing or writing anything; returns their outcomes.

    A step is done if its line and all of its trajectories are on record. Lines after the last such one are cut off.
    """
    folder.mend()
    lines = multihost.broadcast(len(folder.records("metrics")) if folder.writes else None)
    found: list[TrajectorySummary] = []
    done = 0
    while done < lines and not collected.missing(wanted := _next(chooser)):
        summaries = collected.summaries(wanted)
        chooser.observe(summaries)
        found += summaries
        done += 1
        if chooser.step == chooser.steps:
            break
    if folder.writes:
        path = folder.stream("metrics")
        kept = path.read_bytes().splitlines(keepends=True)[:done] if path.exists() else []
        folder.rewind({"metrics": sum(map(len, kept))})
    return found


@dataclasses.dataclass
class _Played:
    """What one step cost to play; zero if its trajectories were stored already."""

    workers: RolloutWorkers
    costs: Costs
    games: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0

    def chunk(self, found: list[TrajectorySummary], seconds: float) -> None:
        """Records a chunk's outcomes and its cost: a stop before the step's end loses nothing."""
        self.games += len(found)
        self.generated_tokens += sum(summary.generated_tokens for summary in found)
        self.seconds += seconds
        self.costs.note(self.workers.endpoints)


class Chooser:
    """Chooses groups and draws tasks of them; what it does follows from the seed and from what it observes.

    Of `arms`, the tasks of a group as (game, number), `chosen` counts choices by name; `step` of `steps` tasks are
    chosen.
    """

    def __init__(self, config: CollectRound, arms: dict[str, list[tuple[str, int]]]) -> None:
        self._config = config
        self._arms, self._names = arms, list(arms)
        self._all = [(arm, task) for arm, name in enumerate(self._names) for task in arms[name]]
        self._bound = UpperConfidenceBound(len(arms), c=self._config.c)
        self._times_sampled: collections.Counter[tuple[str, int]] = collections.Counter()
        self._waiting: list[tuple[int, list[TaskSample]]] = []
        self.step, self.steps = 0, self._config.steps
        self.chosen: collections.Counter[str] = collections.Counter()

    @property
    def means(self) -> dict[str, float]:
        """Mean score of every group so far, 0 for those without a result."""
        return dict(zip(self._names, self._bound.means.tolist(), strict=True))

    @property
    def waiting(self) -> list[list[TaskSample]]:
        """The attempts that were chosen and not observed yet, by task."""
        return [task_samples for _, task_samples in self._waiting]

    def choose_next(self) -> list[list[TaskSample]]:
        """Chooses as many tasks as are played together, or as are left; see `choose`."""
        return self.choose(min(self._config.tasks_at_once, self.steps - self.step))

    def choose(self, count: int) -> list[list[TaskSample]]:
        """Returns the attempts at each of the next tasks; their results are to be observed before the next choice."""
        uniform = self._config.strategy == "uniform"
        arms = [None] * count if uniform else self._bound.choose(count)
        for arm_chosen in arms:
            rng = GameRng(derive_seed("task of a group", self._config.seed, self.step))
            if arm_chosen is None:
                arm, task = self._all[rng.randrange(len(self._all))]
            else:
                arm, tasks = arm_chosen, self._arms[self._names[arm_chosen]]
                task = tasks[rng.randrange(len(tasks))]
            # Tasks are drawn with replacement: a task that comes again is tried again.
            first = self._times_sampled[task] * self._config.samples
            self._times_sampled[task] += 1
            self.chosen[self._names[arm]] += 1
            self.step += 1
            self._waiting.append((arm, [TaskSample(*task, first + n) for n in range(self._config.samples)]))
        return self.waiting

    def observe(self, found: Sequence[TrajectorySummary]) -> None:
        """Records the outcomes of the attempts chosen last."""
        by_task_sample = {summary.task_sample: summary for summary in found}
        for arm, task_samples in self._waiting:
            said = [
                by_task_sample[task_sample]
                for task_sample in task_samples
                if not by_task_sample[task_sample].inconclusive
            ]
            if len(said) > 1:
                turns = [summary.turns if summary.success else summary.max_turns for summary in said]
                self._bound.observe(arm, curriculum.coefficient_of_variation(turns))
            else:
                self._bound.observe_nothing(arm)
        self._waiting = []
