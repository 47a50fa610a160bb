"""What evaluations have in common: a schedule, a store of what was played, results; read from top to bottom.

schedule  parts, each the games, answers or comparisons of some policies
store     what is not on record yet is played, recorded and shown; resume: `dfc.records.episode_store`
results   published once; a run that is finished only shows them
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from dfc import multihost
from dfc.config import Evaluate, EvaluateAnswers, EvaluateTasks
from dfc.records.episode_store import EpisodeStore, K, Part, Players
from dfc.report import page
from dfc.report.page import Results
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop

S = TypeVar("S")


def evaluate(
    config: Evaluate | EvaluateAnswers | EvaluateTasks,
    folder: RunFolder,
    stop: Stop,
    schedule: Sequence[Part[K, S]],
    key: Callable[[Mapping[str, Any]], K],
    players: Callable[[], AbstractContextManager[Players[S]]],
    results: Callable[[], Results],
    *,
    passing: Callable[[Mapping[str, Any]], bool] = lambda _: False,
    counted: str = "",
    finishes: bool = True,
) -> int:
    """Plays what is not on record yet, publishes the results and marks the run as finished.

    `key` and `passing` are those of the `EpisodeStore`; `players` are opened if something is missing. `counted` says
    what the schedule holds; without it these are games. Without `finishes` the run is never marked, and every start
    plays games that failed.

    Returns:
      How many parts of the schedule are missing for a reason that passes; the run is not marked then.
    """
    finished, left = finishes and multihost.broadcast(folder.finished.exists()), 0
    if not finished:
        store = EpisodeStore(folder, key, passing)
        total = sum(len(part.wanted) for part in schedule)
        done = total - sum(len(store.missing(part.wanted)) for part in schedule)
        say(f"{counted or f'{total} games'}, {done} of them on record")
        if done < total:
            with players() as who, Progress(total, start_step=done, shorter=config.shorter) as progress:
                for part in schedule:
                    if store.missing(part.wanted):
                        done = store.play(part, who, done, stop, progress)
        left = sum(len(store.passing(part.wanted)) for part in schedule)
    if folder.writes:
        page.publish(folder.path, results(), write=not finished)
    if finishes and not finished and not left:
        folder.finish()
    return left


def say(line: str) -> None:
    """Prints a line, in the first process alone."""
    if multihost.is_primary():
        print(line, flush=True)  # noqa: T201 - progress
