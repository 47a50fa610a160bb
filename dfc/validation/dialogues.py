"""Rules between the settings of building rows from dialogues."""

from pathlib import Path

from dfc.config import BuildDialogues
from dfc.config.dialogues import REPAIRS, WANTED
from dfc.records import task_groups


def problems(config: BuildDialogues) -> list[str]:
    """Returns every problem, one sentence each."""
    found = []
    if not config.wanted or len(set(config.wanted)) < len(config.wanted):
        found.append(f"wanted={config.wanted}: must be some of {', '.join(WANTED)}, each once")
    if len(set(config.repairs)) < len(config.repairs):
        found.append(f"repairs={config.repairs}: must be some of {', '.join(REPAIRS)}, each once")
    if both := sorted(set(config.game_groups) & set(config.leave_out)):
        found.append(f"game_groups and leave_out both name {', '.join(both)}")
    if measured := task_groups.evaluation_only(config.game_groups):
        what = "is for evaluation only and makes no rows to train on; leave it out"
        found.append(f"game_groups={config.game_groups}: {', '.join(measured)} {what}")
    return found


def path_problems(config: BuildDialogues) -> list[str]:
    """Returns which sources do not exist."""
    hint = "name a run that collected trajectories, a folder of them, or a file of published interactions"
    if not config.sources:
        return [f"sources is empty; {hint}"]
    return [
        f"sources: {source!r}: there is no such place (current folder: {Path.cwd()}); {hint}"
        for source in config.sources
        if not source or not Path(source).expanduser().exists()
    ]
