"""Paprika's curriculum (arXiv 2502.17543, section 3.4, Algorithm 1), in rounds; read from top to bottom.

    round r   collect      choose a group of tasks, draw a task of it, play it several times; once for every step
              build_data   what to imitate, and pairs
              sft, rpo     training of the last round's policy, which is also the reference
    then      evaluate_tasks, the initial model and the policy after each round

A group's score is the mean over its tasks so far of the coefficient of variation of turns, every failure counted as
the turn limit. With ``strategy="uniform"`` every task is as likely, whatever its group.

How it departs from the paper: several tasks may be chosen before the results of the first are known
(`dfc.curriculum.UpperConfidenceBound`); a game that failed, about which nothing is known, counts as no result, and a
task with fewer than two results counts nothing.
"""

import collections
import contextlib
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path

from dfc import curriculum
from dfc.config import RunConfig
from dfc.curriculum import UpperConfidenceBound
from dfc.games.chance import Chance, derive_seed
from dfc.interruption import Stop
from dfc.metrics import MetricsWriter
from dfc.progress import Progress
from dfc.recipes import collection
from dfc.recipes.collection import Attempt, Collection, Summary, task_arms
from dfc.recipes.paprika import building, training
from dfc.recipes.stage_runs import StageRun, run_stages
from dfc.recipes.table import Policy, Table
from dfc.run_folder import RunFolder

CHOICES = "choices.json"  # of a round's collection: how often which group was chosen, and its score


def run(config: RunConfig, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; goes on where it was stopped."""
    run_stages(folder, stages(config, folder.path), stop)
    folder.finish()
    tables = folder.path / "evaluate_tasks" / "tables.md"
    if folder.writes:
        print(tables.read_text(encoding="utf-8"))  # noqa: T201 - the result
        print(f"everything is in {folder.path}", flush=True)  # noqa: T201 - where to look


def stages(config: RunConfig, folder: Path) -> list[StageRun]:
    """Returns the stages of a run: those of every round in a folder of its own, then the evaluation.

    Args:
      config: of the whole run.
      folder: of the whole run.
    """
    found, model = [], config.model
    policies = [f"base={config.model.path}"]
    trainings = ("sft", "rpo") if config.task_curriculum.objective == "sft_rpo" else ("rpo",)
    for number in range(1, config.task_curriculum.rounds + 1):
        place = f"round_{number}"
        # A seed of its own: the same task drawn again in another round is another draw.
        seed = derive_seed("round", config.seed, number) % 2**32
        own = dataclasses.replace(config, model=model, seed=seed, name=place)
        found.append(StageRun(f"{place}/collect", dataclasses.replace(own, recipe="collect"), collect))
        found.append(StageRun(f"{place}/build_data", building(own, folder / place / "collect")))
        for name in trainings:
            start = dataclasses.replace(own, model=model)
            found.append(StageRun(f"{place}/{name}", training(start, name, folder / place / "build_data")))
            model = dataclasses.replace(model, path=str(folder / place / name / "policy"))
        policies.append(f"{place}={folder / place / trainings[-1]}")
    evaluate = dataclasses.replace(config, recipe="evaluate_tasks", name="evaluate_tasks", policies=tuple(policies))
    return [*found, StageRun("evaluate_tasks", evaluate)]


def collect(config: RunConfig, folder: RunFolder, stop: Stop) -> None:
    """Collects the trajectories of one round from groups chosen as it goes; goes on where it was stopped.

    What was chosen follows from the seed and from the trajectories that lie there, so nothing else is stored.
    """
    settings = config.task_curriculum
    arms = task_arms(config)
    print(f"{len(arms)} groups: " + ", ".join(f"{name} {len(tasks)}" for name, tasks in arms.items()), flush=True)  # noqa: T201 - what is chosen from
    table = Table(collection.playing(config))
    folder.note_device(table.device)
    folder.rewind(dict.fromkeys(folder.positions(), 0))  # every step is gone through again, played or not
    provenance = collection.make_provenance(config, table.source)
    policy = Policy(table.initial)
    chooser = Chooser(config, arms)
    everything: list[Summary] = []
    with (
        contextlib.closing(table),
        Collection(config, table, folder.path / collection.FOLDER, provenance) as collected,
        MetricsWriter(folder) as writer,
        Progress(settings.steps) as progress,
    ):
        while chooser.step < settings.steps:
            begun = time.perf_counter()
            wanted = chooser.choose(min(settings.tasks_at_once, settings.steps - chooser.step))
            found = collected.play([attempt for task in wanted for attempt in task], policy, stop=stop)
            everything += found
            chooser.observe(found)
            seconds = time.perf_counter() - begun
            drawn = sum(summary.drawn for summary in found)
            figures = collection.by_game(everything)
            writer.write(
                step=chooser.step,
                stage=config.name,
                iteration=chooser.step,
                metrics={f"chosen/{name}": chooser.chosen[name] for name in arms}
                | {f"score/{name}": mean for name, mean in chooser.means.items()},
                clock={"time": time.time(), "seconds": seconds},
            )
            progress.update(
                stage=config.name,
                iteration=chooser.step,
                iterations=settings.steps,
                step=chooser.step,
                episodes_per_second=len(found) / seconds,
                tokens_per_second=drawn / seconds,
                win_rates={game: row["success_rate"] or 0.0 for game, row in figures.items()},
            )
    if folder.writes:
        record = {"chosen": dict(chooser.chosen), "scores": chooser.means, "games": figures}
        (folder.path / CHOICES).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        for name in arms:
            print(f"{name}: chosen {chooser.chosen[name]} times, score {chooser.means[name]:.3f}", flush=True)  # noqa: T201 - the result
    folder.finish()


class Chooser:
    """Chooses groups and draws tasks of them; what it does follows from the seed and from what it observes.

    Attributes:
      step: tasks chosen so far. chosen: of every group, by its name.

    Args:
      config: of the round; its seed decides the draws.
      arms: the tasks of every group as (game, number), by the group's name.
    """

    def __init__(self, config: RunConfig, arms: dict[str, list[tuple[str, int]]]) -> None:
        self._config, self._settings = config, config.task_curriculum
        self._arms, self._names = arms, list(arms)
        self._all = [(arm, task) for arm, name in enumerate(self._names) for task in arms[name]]
        self._bound = UpperConfidenceBound(len(arms), c=self._settings.c)
        self._drawn: collections.Counter[tuple[str, int]] = collections.Counter()
        self._waiting: list[tuple[int, list[Attempt]]] = []
        self.step = 0
        self.chosen: collections.Counter[str] = collections.Counter()

    @property
    def means(self) -> dict[str, float]:
        """Mean score of every group so far, 0 for those without a result."""
        return dict(zip(self._names, self._bound.means.tolist(), strict=True))

    def choose(self, count: int) -> list[list[Attempt]]:
        """Returns the attempts at each of the next tasks; their results are to be observed before the next choice."""
        uniform = self._settings.strategy == "uniform"
        arms = [None] * count if uniform else self._bound.choose(count)
        for arm_chosen in arms:
            chance = Chance(derive_seed("task of a group", self._config.seed, self.step))
            if arm_chosen is None:
                arm, task = self._all[chance.below(len(self._all))]
            else:
                arm, tasks = arm_chosen, self._arms[self._names[arm_chosen]]
                task = tasks[chance.below(len(tasks))]
            # Tasks are drawn with replacement: a task that comes again is tried again.
            first = self._drawn[task] * self._settings.samples
            self._drawn[task] += 1
            self.chosen[self._names[arm]] += 1
            self.step += 1
            self._waiting.append((arm, [Attempt(*task, first + n) for n in range(self._settings.samples)]))
        return [attempts for _, attempts in self._waiting]

    def observe(self, found: Sequence[Summary]) -> None:
        """Takes what came of the attempts chosen last."""
        by_attempt = {summary.attempt: summary for summary in found}
        for arm, attempts in self._waiting:
            said = [by_attempt[attempt] for attempt in attempts if not by_attempt[attempt].says_nothing]
            if len(said) > 1:
                turns = [summary.turns if summary.success else summary.max_turns for summary in said]
                self._bound.observe(arm, curriculum.coefficient_of_variation(turns))
        self._waiting = []
