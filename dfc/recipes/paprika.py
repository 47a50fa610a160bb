"""Paprika (arXiv 2502.17543), sections 3.2, 3.3 and 4, as one run; read from top to bottom.

    collect         several hot samples of every training task, by the initial model
    build_data      which of them to imitate, and pairs of a better and a worse one
    sft             supervised training on the first
    rpo             training on the pairs, with the model after sft as the reference
    evaluate_tasks  the initial model, and the model after each training, on tasks that no stage trained on

Each stage is a recipe of its own (`dfc.runs.stages`). Leaving one game out, or training on a single one, is
``build_data.leave_out`` or ``build_data.groups``; with ``collected`` such runs share one collection. Without
``build_data`` among the stages, the trainings read ``data``.

How it departs from the paper: what each stage's module lists.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from dfc.config import (
    BuildData,
    Collect,
    EvaluateTasks,
    ModelConfig,
    Paprika,
    Preference,
    Run,
    Sft,
    TaskCurriculum,
)
from dfc.data.preference_pairs import PAIRS_FILE, SFT_FILE
from dfc.recipes import build_data
from dfc.runs.run_folder import RunFolder
from dfc.runs.stages import StageRun, run_stages
from dfc.runs.stop_signals import Stop

Training = Literal["sft", "rpo"]
_Stage = TypeVar("_Stage", bound=Run)


def run(config: Paprika, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; resumes where it was stopped."""
    run_stages(folder, functools.partial(stages, config, folder.path), stop)
    folder.finish()
    report = folder.path / "evaluate_tasks" / "report.html"
    if folder.writes and report.exists():
        print(f"tables: {report.with_name('tables.md')}\nreport: {report}")  # noqa: T201 - where to look
    print(f"everything is in {folder.path}; policies: {', '.join(trained(config, folder.path)) or 'none'}", flush=True)  # noqa: T201


def stages(config: Paprika, folder: Path) -> list[StageRun]:
    """Returns the stages of a run as configurations of their own recipes.

    Args:
      config: of the whole run.
      folder: of the whole run; stages read what earlier ones wrote in it.
    """
    found, model = [], config.model
    collected = folder / "collect" if "collect" in config.stages else Path(config.collected)
    data = folder / "build_data" if "build_data" in config.stages else Path(config.data)
    policies = [f"base={config.model.path}"]
    if "collect" in config.stages:
        found.append(StageRun("collect", stage_config(Collect, config, config.collect, name="collect")))
    if "build_data" in config.stages:
        found.append(StageRun("build_data", building(config, collected), builder(config.stages, config.games)))
    for name in trainings(config):
        found.append(StageRun(name, training(config, name, model=model, data=data)))
        model = dataclasses.replace(model, path=str(folder / name / "policy"))
        policies.append(f"{name}={folder / name}")
    if "evaluate_tasks" in config.stages:
        found.append(StageRun("evaluate_tasks", evaluating(config, policies)))
    return found


def trainings(config: Paprika | TaskCurriculum) -> list[Training]:
    """Returns the trainings among the stages, in their order."""
    return [name for name in get_args(Training) if name in config.stages]


def builder(
    stages: Collection[str], known: Collection[str], *, needed: bool = True
) -> Callable[[BuildData, RunFolder, Stop], None]:
    """Returns what runs a `build_data` stage.

    Args:
      stages: of the whole run.
      known: games that may be left out although there is no trajectory of them.
      needed: whether data in which one of the trainings among the stages has no row is refused.
    """
    files = tuple(file for name, file in (("sft", SFT_FILE), ("rpo", PAIRS_FILE)) if name in stages)
    return functools.partial(build_data.run, needed=files if needed else None, known=tuple(known))


def building(config: Paprika | TaskCurriculum, collected: Path) -> BuildData:
    """Returns the configuration that builds rows from what a run collected."""
    return stage_config(BuildData, config, config.build_data, name="build_data", trajectories=str(collected))


def training(config: Paprika | TaskCurriculum, name: Training, *, model: ModelConfig, data: Path) -> Sft | Preference:
    """Returns the configuration of one training.

    Args:
      config: of the whole run.
      name: which.
      model: to start from.
      data: the run that built the rows.
    """
    given: dict[str, Any] = {"name": name, "model": model, "data": str(data)}
    if name == "sft":
        return stage_config(Sft, config, config.sft, **given)
    return stage_config(Preference, config, config.rpo, **given)


def evaluating(config: Paprika | TaskCurriculum, policies: Sequence[str]) -> EvaluateTasks:
    """Returns the configuration that evaluates what a run has trained."""
    return stage_config(EvaluateTasks, config, config.evaluate_tasks, name="evaluate_tasks", policies=tuple(policies))


def stage_config(kind: type[_Stage], config: Run, settings: object, **given: object) -> _Stage:
    """Returns the configuration of a stage: what is given, then the stage's own settings, then the whole run's."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        source = next((found for found in (settings, config) if hasattr(found, field.name)), None)
        if field.name in given:
            values[field.name] = given[field.name]
        elif source is not None:
            values[field.name] = getattr(source, field.name)
    return kind(**values)


def trained(config: Paprika, folder: Path) -> list[str]:
    """Returns the folders of the policies that a run has trained."""
    return [str(folder / name / "policy") for name in trainings(config)]
