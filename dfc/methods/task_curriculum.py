"""Paprika's curriculum (arXiv 2502.17543, section 3.4, Algorithm 1), in rounds; read from top to bottom.

    round r   collect_round  choose a group of tasks, draw a task of it, play it several times; once for every step
              build_data     what to imitate, and pairs
              sft, rpo       training of the last round's policy, which is also the reference
    then      evaluate_tasks, the initial model and the policy after each round

How it departs from the paper: what each stage's module lists.
"""

import dataclasses
import functools
import json
from pathlib import Path

from dfc import multihost
from dfc.config import BuildData, CollectRound, EvaluateTasks, TaskCurriculum
from dfc.config.tasks import TRAININGS
from dfc.games.rng import derive_seed
from dfc.records.task_groups import learned_games
from dfc.records.trajectory_files import DatasetError
from dfc.rows.preference_pairs import STATISTICS_FILE
from dfc.rows.training_rows import DATA_FOLDER, TABLES
from dfc.runs.run_folder import RunFolder
from dfc.runs.stages import Plan, StageRun, run_stages
from dfc.runs.stop_signals import Stop


def run(config: TaskCurriculum, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; resumes where it was stopped.

    Raises:
      DatasetError: no round has anything to train on.
    """
    run_stages(folder, functools.partial(stages, config, folder.path), stop)


def stages(config: TaskCurriculum, folder: Path) -> list[StageRun]:
    """Returns the stages of a run: those of every round in a folder of its own, then the evaluation.

    A training for which a round has built no row is left out, and what follows starts from the policy before it.

    Tasks are chosen from the games that `build_data` learns from; all games are evaluated. Collecting and evaluating
    play the weights as they are stored, at full precision, whatever the trainings do with them.

    Raises:
      DatasetError: no round has built anything to train on, or what was built cannot be read.
    """
    plan, model, learned = Plan(config, folder), config.model, learned_games(config.games, config.build_data)
    policies = [f"base={model.path}"]
    for number in range(1, config.rounds + 1):
        place, trained = f"round_{number}", None
        # A seed of its own: the same task chosen again in another round is sampled again.
        seed = derive_seed("round", config.seed, number) % 2**32
        collected = plan.add(
            f"{place}/collect", CollectRound, config.collect, name=place, games=learned, model=model, seed=seed
        )
        data = plan.add(
            f"{place}/build_data",
            BuildData,
            config.build_data,
            trajectories=str(collected),
            needed="none",
            seed=seed,
        )
        for name in (name for name in TRAININGS if name in config.stages and _has_rows(folder / place, name)):
            settings = getattr(config, name)
            trained = plan.add(f"{place}/{name}", TRAININGS[name], settings, model=model, data=str(data), seed=seed)
            model = dataclasses.replace(model, path=str(trained / "policy"))
        policies += [] if trained is None else [f"{place}={trained}"]
    if len(policies) == 1:
        raise DatasetError(
            f"{folder}: no round built a row to train on, see {data / TABLES}; begin again with more steps or samples, "
            "easier tasks or other limits in build_data"
        )
    plan.add("evaluate_tasks", EvaluateTasks, config.evaluate_tasks, policies=tuple(policies))
    return plan.stages


def _has_rows(place: Path, name: str) -> bool:
    """Returns whether a training of a round has anything to learn from; yes where that is not known yet."""

    def rows() -> int:
        built = place / "build_data"
        if (place / name / "finished.json").exists() or not (built / "finished.json").exists():
            return 1
        file = built / DATA_FOLDER / STATISTICS_FILE
        try:
            groups = json.loads(file.read_bytes())["groups"]
            return sum(int(group[{"sft": "sft", "rpo": "pairs"}[name]]) for group in groups)
        except (OSError, ValueError, KeyError) as error:
            raise DatasetError(f"{file}: cannot be read ({error}); delete {built} to build it again") from error

    return bool(multihost.broadcast(multihost.on_all_hosts(lambda: rows() if multihost.is_primary() else 0)))
