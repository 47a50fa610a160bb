"""Paprika (arXiv 2502.17543), sections 3.2, 3.3 and 4, as one run; read from top to bottom.

    collect         several hot samples of every training task, by the initial model
    build_data      which of them to imitate, and pairs of a better and a worse one
    sft             supervised training on the first
    rpo             training on the pairs, with the model after sft as the reference
    evaluate_tasks  the initial model, and the model after each training, on tasks that no stage trained on

Each stage is a recipe of its own (`dfc.runs.stages`). Leaving one game out, or training on a single one, is
``build_data.leave_out`` or ``build_data.game_groups``; with ``collected`` such runs share one collection. Without
``build_data`` among the stages, the trainings read ``data``.

How it departs from the paper: what each stage's module lists.
"""

import dataclasses
import functools
from pathlib import Path

from dfc.config import BuildData, Collect, EvaluateTasks, Paprika
from dfc.config.tasks import TRAININGS
from dfc.runs.run_folder import RunFolder
from dfc.runs.stages import Plan, StageRun, run_stages
from dfc.runs.stop_signals import Stop

_NEEDED = {("sft", "rpo"): "both", ("sft",): "sft", ("rpo",): "pairs", (): "one"}  # rows, by the trainings


def run(config: Paprika, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; resumes where it was stopped."""
    run_stages(folder, functools.partial(stages, config, folder.path), stop)


def stages(config: Paprika, folder: Path) -> list[StageRun]:
    """Returns the stages of a run as configurations of their own recipes."""
    plan, model = Plan(config, folder), config.model
    collected, data = Path(config.collected), Path(config.data)
    policies = [f"base={model.path}"]
    trainings = tuple(name for name in TRAININGS if name in config.stages)
    if "collect" in config.stages:
        collected = plan.add("collect", Collect, config.collect)
    if "build_data" in config.stages:
        needed = _NEEDED[trainings]
        data = plan.add("build_data", BuildData, config.build_data, trajectories=str(collected), needed=needed)
    for name in trainings:
        trained = plan.add(name, TRAININGS[name], getattr(config, name), model=model, data=str(data))
        model = dataclasses.replace(model, path=str(trained / "policy"))
        policies.append(f"{name}={trained}")
    if "evaluate_tasks" in config.stages:
        plan.add("evaluate_tasks", EvaluateTasks, config.evaluate_tasks, policies=tuple(policies))
    return plan.stages
