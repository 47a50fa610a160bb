"""Recipes made of others: each stage is a run of another recipe, in a folder inside the whole run's.

    def stages(config, folder):
        plan = Plan(config, folder)
        collected = plan.add("collect", Collect, config.collect)
        built = plan.add("build_data", BuildData, config.build_data, trajectories=str(collected))
        plan.add("sft", Sft, config.sft, data=str(built))
        return plan.stages

A stage has its own configuration, records, checkpoints and ``finished.json``, so the whole resumes where it was
stopped, within the stage. A stage's folder belongs to the configuration that the whole run gave it; a stage alone, or
with other settings, is its own recipe in another folder.
"""

import dataclasses
import gc
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dfc import multihost
from dfc.config import RunConfig
from dfc.errors import RunFolderError
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop


@dataclasses.dataclass(frozen=True)
class StageRun:
    """One stage.

    Attributes:
      name: of its folder, with slashes if it is deeper.
      config: what runs there, by the recipe of its class.
    """

    name: str
    config: RunConfig


class Plan:
    """The stages of a run, added one after another; they read what earlier ones wrote in its folder."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.stages: list[StageRun] = []
        self._config, self._folder = config, folder

    def add(self, name: str, kind: type[RunConfig], settings: object = None, /, **given: object) -> Path:
        """Adds a stage; returns its folder.

        Each value of its configuration is the one given, otherwise that of the stage's own settings, otherwise that of
        the whole run, otherwise the recipe's default. The last part of `name` is the name of the stage's run, unless
        `name` is among the given values too; `kind` is the class of its configuration, its recipe; `settings` are of
        the stage in the configuration of the whole run.

        Raises:
          TypeError: the recipe has no such setting.
        """
        values: dict[str, Any] = {"name": name.rpartition("/")[2], **given}
        for field in dataclasses.fields(kind):
            for source in (settings, self._config):
                if field.name not in values and hasattr(source, field.name):
                    values[field.name] = getattr(source, field.name)
        self.stages.append(StageRun(name, kind(**values)))
        return self._folder / name


def planned(config: RunConfig, folder: Path) -> list[StageRun] | None:
    """Returns the stages of a run; None where its recipe is not made of others.

    What earlier stages wrote in the folder may decide about later ones.
    """
    name = f"dfc.{config.module}"
    if config.module.endswith(".py") or importlib.util.find_spec(name) is None:  # a custom recipe
        return None
    stages: Callable[[RunConfig, Path], list[StageRun]] | None = getattr(importlib.import_module(name), "stages", None)
    return None if stages is None else stages(config, folder)


def open_together(path: Path, config: RunConfig, *, command: str, within: Path | None = None) -> RunFolder:
    """Opens a run folder in the first process; the others follow it, or fail with it.

    `config` is checked, the same in every process; `within` is the run folder of which this is a stage's.

    Raises:
      RunFolderError: see `RunFolder.open`; on every process.
    """
    folder, refusal = None, None
    if multihost.is_primary():
        try:
            folder = RunFolder.open(path, config, command=command, within=within)
        except RunFolderError as error:
            refusal = error
    reported = multihost.broadcast({"existed": folder is not None and folder.existed, "refusal": str(refusal or "")})
    if refusal is not None:
        raise refusal
    if reported["refusal"]:
        raise RunFolderError(reported["refusal"])
    return folder or RunFolder.follow(path, config, existed=reported["existed"])


def run_stages(folder: RunFolder, plan: Callable[[], Sequence[StageRun]], stop: Stop) -> None:
    """Runs the unfinished stages one after another, marks the whole run as finished and prints its results' places.

    `plan` returns the stages in their order. It is asked before each of them, since what one of them found may decide
    about those after it, and gives the finished ones as before. Every stage asks `stop` where it has saved.

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
        command = f"stage {stage.name} of the run in {folder.path}"
        with open_together(path, stage.config, command=command, within=folder.path) as own:
            importlib.import_module(f"dfc.{stage.config.module}").run(stage.config, own, stop)
        gc.collect()  # the next stage needs the memory of this one's weights and caches
        stop.check()
    folder.finish()
    if folder.writes:
        _show(folder.path, stages)


def _show(folder: Path, stages: Sequence[StageRun]) -> None:
    """Prints where the results are: those of the last stage, if it has tables, and every policy."""
    tables = folder / stages[-1].name / "tables.md"
    if tables.exists() and (report := tables.with_name("report.html")).exists():
        print(f"tables: {tables}\nreport: {report}")  # noqa: T201 - where to look
    policies = [str(path) for stage in stages if (path := folder / stage.name / "policy").exists()]
    print(f"everything is in {folder}; policies: {', '.join(policies) or 'none'}", flush=True)  # noqa: T201 - the same
