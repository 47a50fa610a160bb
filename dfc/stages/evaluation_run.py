"""What evaluations have in common: a schedule, a store of what was played, results; read from top to bottom.

    schedule  parts, each the games, answers or comparisons of some policies
    store     what is not on record yet is played, recorded and shown; resume: `dfc.records.episode_store`
    results   published once; a run that is finished only shows them

A recipe brings its schedule, who plays it (`dfc.records.episode_store.Players`) and its results.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from dfc import multihost
from dfc.config import Evaluate, EvaluateAnswers, EvaluateTasks
from dfc.records.episode_store import EpisodeStore, K, Part, Players
from dfc.report import page
from dfc.report.page import Results
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop


def evaluate(
    config: Evaluate | EvaluateAnswers | EvaluateTasks,
    folder: RunFolder,
    stop: Stop,
    phases: Sequence[tuple[Sequence[Part[K, Any]], Callable[[], AbstractContextManager[Players[Any]]]]],
    key: Callable[[Mapping[str, Any]], K],
    results: Callable[[], Results],
    *,
    prepare: Callable[[], None] = lambda: None,
    passing: Callable[[Mapping[str, Any]], bool] = lambda _: False,
    counted: str = "",
    finishes: bool = True,
) -> int:
    """Plays what is not on record yet, publishes the results and marks the run as finished.

    The schedule is in phases, each with who plays it; they are opened if something of it is missing, one phase at a
    time, after `prepare`. `key` and `passing` are those of the `EpisodeStore`. `counted` says what the schedule holds;
    without it these are games. Without `finishes` the run is never marked, and every start plays games that failed.

    Returns:
      How many games of the schedule are missing for a reason that passes; the run is not marked then.
    """
    finished, left = finishes and multihost.broadcast(folder.finished.exists()), 0
    if not finished:
        store, schedule = EpisodeStore(folder, key, passing), [part for parts, _ in phases for part in parts]
        total = sum(len(part.wanted) for part in schedule)
        done = total - sum(len(store.missing(part.wanted)) for part in schedule)
        say(f"{counted or f'{total} games'}, {done} of them on record")
        if done < total:
            prepare()
            with Progress(total, start_step=done, shorter=config.shorter) as progress:
                for parts, players in phases:
                    if missing := [part for part in parts if store.missing(part.wanted)]:
                        with players() as who:
                            for part in missing:
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
