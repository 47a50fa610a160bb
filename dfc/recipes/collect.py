"""Trajectories to learn from: several samples of every task, played by one model; read from top to bottom.

    play        a chunk of games, in an order that mixes games and keeps the samples of a task together
    write       every trajectory of the chunk, however it ended, to the disk; then the next chunk
    collection  collection.json: what came of it, per game

Resume: what lies on the disk is not played again (`dfc.recipes.collection`); the chunk that was being played is.

How it departs from the paper (Paprika, arXiv 2502.17543, section 3.2 and appendix E): trajectories in a wrong format,
and those whose world or judge failed, are kept and labelled instead of dropped; all samples of a task are played in one
world, so that they can be compared (`docs/data.md`).
"""

import collections
import contextlib
import dataclasses
import json
import time
from collections.abc import Mapping
from typing import Any

from dfc import agreement
from dfc.config import RunConfig
from dfc.data.trajectories import FAILURES, Provenance
from dfc.errors import DfcError
from dfc.evaluation import report
from dfc.evaluation.live_report import LiveReport
from dfc.evaluation.text_tables import TextTable
from dfc.interruption import Stop
from dfc.metrics import MetricsWriter
from dfc.progress import Progress
from dfc.recipes import collection
from dfc.recipes.collection import Attempt, Collection, Summary
from dfc.recipes.costs import Costs
from dfc.recipes.table import Policy, Table
from dfc.run_folder import RunFolder, write_whole

RESULT = "collection.json"
_ENOUGH = 20  # trajectories of a game, none of which says anything, after which going on is a waste


def run(config: RunConfig, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; goes on with what is missing."""
    if agreement.from_first(folder.finished.exists()):
        print(f"{folder.path} holds this run, finished", flush=True)  # noqa: T201 - why nothing happens
        _show(folder)
        return
    wanted = collection.attempts(config)
    print(f"loading {config.model.path}", flush=True)  # noqa: T201 - progress
    table = Table(collection.playing(config))
    with contextlib.closing(table):
        folder.note_device(table.device)
        provenance = collection.make_provenance(config, table.source)
        folder.mend()
        costs = Costs(folder)
        with Collection(config, table, folder.path / collection.FOLDER, provenance) as collected:
            done = len(wanted) - len(collected.missing(wanted))
            if folder.writes:
                print(f"{_counted(wanted)}; {done} of them are on disk", flush=True)  # noqa: T201 - progress
            with (
                LiveReport(folder.path, total_steps=len(wanted), writes=folder.writes) as live,
                MetricsWriter(folder) as writer,
                Progress(len(wanted), start_step=done) as progress,
            ):
                watched = _Watched(wanted, collected, table, costs, writer, progress, live)
                found = collected.play(wanted, Policy(table.initial), stop=stop, on_chunk=watched.chunk)
    refuse_if_nothing_is_said(found, collections.Counter(attempt.game for attempt in wanted))
    if folder.writes:
        _write_result(folder, found, provenance, costs)
    folder.finish()
    if folder.writes:
        report.build(folder.path)
    _show(folder)


def _counted(wanted: list[Attempt]) -> str:
    tasks = {attempt[:2] for attempt in wanted}
    return f"{len(wanted)} trajectories of {len(tasks)} tasks of {len({game for game, _ in tasks})} games"


@dataclasses.dataclass
class _Watched:
    """Records and shows every chunk of a collection."""

    wanted: list[Attempt]
    collected: Collection
    table: Table
    costs: Costs
    writer: MetricsWriter
    progress: Progress
    live: LiveReport

    def chunk(self, found: list[Summary], seconds: float) -> None:
        """Takes what came of a chunk and the seconds that playing it took.

        Raises:
          DfcError: nothing of a game says anything about the policy, although many were played.
        """
        every = self.collected.summaries(self.wanted)
        rates = {g: figures["success_rate"] for g, figures in collection.by_game(every).items()}
        rates = {game: rate for game, rate in rates.items() if rate is not None}
        drawn = sum(summary.drawn for summary in found)
        self.costs.note(self.table.endpoints)
        metrics = {f"games/{game}/success_rate": rate for game, rate in rates.items()}
        metrics |= {
            f"games/{game}/{name}": float(figures[name])
            for game, figures in collection.by_game(found).items()
            for name in ("trajectories", "turns_played", "drawn")
            if figures[name] is not None
        }
        self.writer.write(
            step=len(every),
            stage="collect",
            iteration=len(every),
            metrics=metrics | {"trajectories": len(found), "drawn": drawn} | self.costs.untold(),
            clock={"time": time.time(), "seconds": seconds, "tokens_per_second": drawn / seconds},
        )
        self.progress.update(
            stage="collect",
            iteration=len(every),
            iterations=len(self.wanted),
            step=len(every),
            episodes_per_second=len(found) / seconds,
            tokens_per_second=drawn / seconds,
            win_rates=rates,
            cost=str(self.costs),
        )
        self.live.refresh()
        refuse_if_nothing_is_said(every, collections.Counter(attempt.game for attempt in self.wanted))


def refuse_if_nothing_is_said(found: list[Summary], planned: Mapping[str, int]) -> None:
    """Stops where going on would only spend time: staff that cannot play its part, a game that raises.

    Args:
      found: what came of the trajectories so far.
      planned: trajectories by game; games whose number is not known yet are left out.

    Raises:
      DfcError: a game has no trajectory that says anything about the policy, although all or many were played.
    """
    for game, figures in collection.by_game(found).items():
        count = figures["trajectories"]
        if figures["success_rate"] is None and count >= min(_ENOUGH, planned.get(game, _ENOUGH)):
            labels = ", ".join(f"{number} {label}" for label, number in figures["failures"].items() if number)
            raise DfcError(
                f"{game}: none of {count} trajectories says anything about the policy ({labels}; failure_reason in the "
                "trajectories has the words); name other staff.who, or leave the game out, in another --workdir"
            )


# ---- the result -----------------------------------------------------------------------------------------------------


def _write_result(folder: RunFolder, found: list[Summary], provenance: Provenance, costs: Costs) -> None:
    result = {
        "model": provenance.model,
        "model_hash": provenance.model_hash,
        "sampling": dict(provenance.sampling),
        "seed": provenance.seed,
        "games": collection.by_game(found),
        "seconds": sum(float(line["clock"]["seconds"]) for line in folder.records("metrics")),
        "cost": costs.total,
    }
    write_whole(folder.path / RESULT, json.dumps(result, indent=1, allow_nan=False) + "\n")


def result_table(games: Mapping[str, Mapping[str, Any]]) -> TextTable:
    """Returns the figures of a collection by game, as `dfc.recipes.collection.by_game` gives them, as a table."""
    rows = [
        (
            game,
            f"{figures['tasks']:,}",
            f"{figures['trajectories']:,}",
            _share(figures["success_rate"]),
            _share(figures["best_of_k"]),
            "-" if figures["turns_played"] is None else f"{figures['turns_played']:.1f}",
            *(f"{figures['failures'][label]:,}" for label in FAILURES),
            f"{figures['drawn']:,}",
        )
        for game, figures in games.items()
    ]
    head = ("game", "tasks", "trajectories", "success", "best of k", "turns played", *FAILURES, "ids drawn")
    return TextTable("Collected trajectories", head, tuple(rows))


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _show(folder: RunFolder) -> None:
    """Prints the result and where to look."""
    if not folder.writes:
        return
    result = json.loads((folder.path / RESULT).read_bytes())
    for line in result_table(result["games"]).lines():
        print(line)  # noqa: T201 - the result
    if result["cost"]:
        print("cost: " + ", ".join(f"{name} {value:,.6g}" for name, value in result["cost"].items()))  # noqa: T201 - the result
    print(f"trajectories: {folder.path / collection.FOLDER}, played in {result['seconds']:.0f} s", flush=True)  # noqa: T201
