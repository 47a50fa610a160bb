"""Recipes made of others: each stage is a run of its own, in a folder inside the whole run's.

A stage has its own configuration, records, checkpoints and ``finished.json``, so the whole resumes where it was
stopped, within the stage. A stage's folder belongs to the configuration that the whole run gave it; a stage alone, or
with other settings, is its own recipe in another folder.
"""

import dataclasses
import gc
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dfc import multihost
from dfc.config import Run
from dfc.errors import RunFolderError
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop


@dataclasses.dataclass(frozen=True)
class StageRun:
    """One stage.

    Attributes:
      name: of its folder, with slashes if it lies deeper.
      config: what runs there.
      run: what runs it; None: the recipe of its configuration.
    """

    name: str
    config: Run
    run: Callable[[Any, RunFolder, Stop], None] | None = None


def open_together(path: Path, config: Run, *, command: str) -> RunFolder:
    """Opens a run folder in the first process; the others follow it, or fail with it.

    Args:
      path: the folder.
      config: checked, the same in every process.
      command: the command line, kept in the folder.

    Raises:
      RunFolderError: see `RunFolder.open`; on every process.
    """
    folder, refusal = None, None
    if multihost.is_primary():
        try:
            folder = RunFolder.open(path, config, command=command)
        except RunFolderError as error:
            refusal = error
    reported = multihost.broadcast({"existed": folder is not None and folder.existed, "refusal": str(refusal or "")})
    if refusal is not None:
        raise refusal
    if reported["refusal"]:
        raise RunFolderError(reported["refusal"])
    return folder or RunFolder.follow(path, config, existed=reported["existed"])


def run_stages(folder: RunFolder, plan: Callable[[], Sequence[StageRun]], stop: Stop) -> None:
    """Runs what is not finished of some stages, one after another.

    Args:
      folder: of the whole run.
      plan: returns the stages in their order. It is asked before each of them, since what one of them found may decide
        about those after it, and gives the finished ones as before.
      stop: asked by every stage where it has saved.

    Raises:
      Interrupted: a stage was stopped; the same call resumes it.
    """
    number = 0
    while number < len(stages := plan()):
        stage = stages[number]
        number += 1
        path = folder.path / stage.name
        if multihost.broadcast((path / "finished.json").exists()):
            print(f"[{number}/{len(stages)}] {stage.name}: finished, in {path}", flush=True)  # noqa: T201 - progress
            continue
        print(f"[{number}/{len(stages)}] {stage.name}: {path}", flush=True)  # noqa: T201 - progress
        with open_together(path, stage.config, command=f"stage {stage.name} of the run in {folder.path}") as own:
            run = stage.run or importlib.import_module(f"dfc.recipes.{stage.config.module}").run
            run(stage.config, own, stop)
        gc.collect()  # the next stage needs the memory of this one's weights and caches
        stop.check()
