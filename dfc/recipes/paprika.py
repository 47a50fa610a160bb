"""Paprika (arXiv 2502.17543), sections 3.2, 3.3 and 4, as one run; read from top to bottom.

    collect         several hot samples of every training task, by the initial model
    build_data      which of them to imitate, and pairs of a better and a worse one
    sft             supervised training on the first
    rpo             training on the pairs, with the model after sft as the reference
    evaluate_tasks  the initial model, and the model after each training, on tasks that no stage trained on

Each stage is a recipe of its own (`dfc.runs.stages`). Leaving one game out, or training on a single one, is
``build_data.leave_out`` or ``build_data.groups``; with ``paprika.collected`` such runs share one collection. Without
``build_data`` among the stages, the trainings read ``offline.data``.

How it departs from the paper: what each stage's module lists.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from dfc.config import AdapterConfig, RunConfig
from dfc.data.preference_pairs import PAIRS_FILE, SFT_FILE
from dfc.recipes import build_data
from dfc.runs.run_folder import RunFolder
from dfc.runs.stages import StageRun, run_stages
from dfc.runs.stop_signals import Stop


def run(config: RunConfig, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; resumes where it was stopped."""
    run_stages(folder, functools.partial(stages, config, folder.path), stop)
    folder.finish()
    report = folder.path / "evaluate_tasks" / "report.html"
    if folder.writes and report.exists():
        print(f"tables: {report.with_name('tables.md')}\nreport: {report}")  # noqa: T201 - where to look
    print(f"everything is in {folder.path}; policies: {', '.join(trained(config, folder.path)) or 'none'}", flush=True)  # noqa: T201


def stages(config: RunConfig, folder: Path) -> list[StageRun]:
    """Returns the stages of a run as configurations of their own recipes.

    Args:
      config: of the whole run.
      folder: of the whole run; stages read what earlier ones wrote in it.
    """
    wanted, found = config.paprika.stages, []
    collected = folder / "collect" if "collect" in wanted else Path(config.paprika.collected)
    data, model = folder / "build_data", config.model
    policies = [f"base={config.model.path}"]
    trainings = [name for name in ("sft", "rpo") if name in wanted]
    # Nothing is trained where games are played: the model is played as it is, at full precision.
    plays = dataclasses.replace(config, adapter=AdapterConfig())
    if "collect" in wanted:
        found.append(StageRun("collect", dataclasses.replace(plays, name="collect", recipe="collect")))
    if "build_data" in wanted:
        found.append(StageRun("build_data", building(config, collected), builder(trainings)))
    else:
        data = Path(config.offline.data)
    for name in trainings:
        start = dataclasses.replace(config, model=model)
        found.append(StageRun(name, training(start, name, data)))
        model = dataclasses.replace(model, path=str(folder / name / "policy"))
        policies.append(f"{name}={folder / name}")
    if "evaluate_tasks" in wanted:
        evaluate = dataclasses.replace(plays, name="evaluate_tasks", recipe="evaluate_tasks", policies=tuple(policies))
        found.append(StageRun("evaluate_tasks", evaluate))
    return found


def builder(trainings: Sequence[str]) -> Callable[[RunConfig, RunFolder, Stop], None]:
    """Returns what runs a `build_data` stage: it refuses data in which one of the trainings after it has no row.

    Args:
      trainings: some of ``sft`` and ``rpo``.
    """
    files = {"sft": SFT_FILE, "rpo": PAIRS_FILE}
    return functools.partial(build_data.run, needed=tuple(files[name] for name in trainings))


def building(config: RunConfig, collected: Path) -> RunConfig:
    """Returns the configuration that builds rows from what a run collected."""
    build = dataclasses.replace(config.build_data, trajectories=str(collected))
    return dataclasses.replace(config, name="build_data", recipe="build_data", build_data=build)


def training(config: RunConfig, name: str, data: Path) -> RunConfig:
    """Returns the configuration of one training: ``sft``, or ``rpo`` from the settings of `offline` for pairs.

    Args:
      config: of the whole run, with the model to start from.
      name: which.
      data: the run that built the rows.
    """
    settings = config.paprika
    supervised = name == "sft"
    offline = dataclasses.replace(
        config.offline,
        data=str(data),
        objective="supervised" if supervised else "preference",
        epochs=settings.sft_epochs if supervised else settings.rpo_epochs,
    )
    rate = settings.sft_learning_rate if supervised else settings.rpo_learning_rate
    optimizer = dataclasses.replace(config.optimizer, learning_rate=rate)
    return dataclasses.replace(config, name=name, recipe="offline", offline=offline, optimizer=optimizer)


def trained(config: RunConfig, folder: Path) -> list[str]:
    """Returns the folders of the policies that a run has trained."""
    return [str(folder / name / "policy") for name in ("sft", "rpo") if name in config.paprika.stages]
