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
import json
import time
from collections.abc import Mapping
from typing import Any

from dfc import agreement
from dfc.config import RolloutConfig, RunConfig
from dfc.data.trajectories import FAILURES, Provenance
from dfc.errors import DfcError
from dfc.evaluation import report
from dfc.evaluation.live_report import LiveReport
from dfc.evaluation.text_tables import TextTable
from dfc.interruption import Stop
from dfc.metrics import MetricsWriter
from dfc.progress import Progress
from dfc.recipes import attempts, collection
from dfc.recipes.attempts import Attempt, AttemptResult, Figures
from dfc.recipes.collection import Collection
from dfc.recipes.costs import Costs
from dfc.recipes.table import Policy, Table
from dfc.run_folder import RunFolder, write_whole
from dfc.task_groups import playing

RESULT = "collection.json"
_MANY_CUT = 0.1  # of a game's trajectories, cut by limits outside of its rules, that are worth a word
_ENOUGH = 20  # trajectories of a game, none of which says anything, after which going on is a waste


def run(config: RunConfig, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; goes on with what is missing."""
    if agreement.from_first(folder.finished.exists()):
        print(f"{folder.path} holds this run, finished", flush=True)  # noqa: T201 - why nothing happens
        _show(folder)
        return
    wanted = attempts.planned(config)
    print(f"loading {config.model.path}", flush=True)  # noqa: T201 - progress
    table = Table(playing(config), stop.look)
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
                so_far = Figures(collected.summaries(wanted))
                planned = collections.Counter(attempt.game for attempt in wanted)
                refuse_if_nothing_is_said(so_far.rows(), planned)
                watched = _Watched(planned, so_far, table, costs, writer, progress, live)
                collected.play(wanted, Policy(table.initial), stop=stop, on_chunk=watched.chunk)
    if folder.writes:
        _write_result(folder, so_far, provenance, costs)
    folder.finish()
    if folder.writes:
        report.build(folder.path)
    _show(folder)


def _counted(wanted: list[Attempt]) -> str:
    tasks = {attempt[:2] for attempt in wanted}
    return f"{len(wanted)} trajectories of {len(tasks)} tasks of {len({game for game, _ in tasks})} games"


class _Watched:
    """Records and shows every chunk of a collection."""

    def __init__(
        self,
        planned: "collections.Counter[str]",
        so_far: Figures,
        table: Table,
        costs: Costs,
        writer: MetricsWriter,
        progress: Progress,
        live: LiveReport,
    ) -> None:
        self._so_far, self._table, self._costs = so_far, table, costs
        self._writer, self._progress, self._live = writer, progress, live
        self._planned = planned

    def chunk(self, found: list[AttemptResult], seconds: float) -> None:
        """Takes what came of a chunk and the seconds that playing it took.

        Raises:
          DfcError: nothing of a game says anything about the policy, although many were played.
        """
        self._costs.note(self._table.endpoints)
        if not found:  # every game raised; the caller says so
            return
        every = self._so_far.add(found).rows()
        rates = {game: row["success_rate"] for game, row in every.items() if row["success_rate"] is not None}
        done = sum(row["trajectories"] for row in every.values())
        drawn = sum(result.drawn for result in found)
        # Of all so far, not of the chunk: the last line says what there is, whatever a kill has kept from being told.
        metrics = {
            f"games/{game}/{name}": float(row[name])
            for game, row in every.items()
            for name in ("success_rate", "trajectories", "turns_played", "drawn")
            if row[name] is not None
        }
        self._writer.write(
            step=done,
            stage="collect",
            iteration=done,
            metrics=metrics | {"trajectories": len(found), "drawn": drawn} | self._costs.untold(),
            clock={
                "time": time.time(),
                "seconds": seconds,
                "episodes_per_second": len(found) / seconds,
                "tokens_per_second": drawn / seconds,
            },
        )
        self._progress.update(
            stage="collect",
            iteration=done,
            iterations=self._planned.total(),
            step=done,
            episodes_per_second=len(found) / seconds,
            tokens_per_second=drawn / seconds,
            win_rates=rates,
            cost=str(self._costs),
        )
        self._live.refresh()
        refuse_if_nothing_is_said(every, self._planned)


def refuse_if_nothing_is_said(so_far: Mapping[str, Mapping[str, Any]], planned: Mapping[str, int]) -> None:
    """Stops where going on would only spend time: staff that cannot play its part, a game that raises.

    Args:
      so_far: what came of the trajectories, the rows of `dfc.recipes.attempts.Figures`.
      planned: trajectories by game; games whose number is not known yet are left out.

    Raises:
      DfcError: a game has no trajectory that says anything about the policy, although all or many were played.
    """
    for game, figures in so_far.items():
        count = figures["trajectories"]
        if figures["success_rate"] is None and count >= min(_ENOUGH, planned.get(game, _ENOUGH)):
            labels = ", ".join(f"{number} {label}" for label, number in figures["failures"].items() if number)
            raise DfcError(
                f"{game}: none of {count} trajectories says anything about the policy ({labels}; failure_reason in the "
                "trajectories has the words); name other staff.who, or leave the game out, in another --workdir"
            )


# ---- the result -----------------------------------------------------------------------------------------------------


def _write_result(folder: RunFolder, figures: Figures, provenance: Provenance, costs: Costs) -> None:
    result = {
        "model": provenance.model,
        "model_hash": provenance.model_hash,
        "sampling": dict(provenance.sampling),
        "seed": provenance.seed,
        "games": figures.rows(),
        "seconds": sum(float(line["clock"]["seconds"]) for line in folder.records("metrics")),
        "cost": costs.total,
    }
    write_whole(folder.path / RESULT, json.dumps(result, indent=1, allow_nan=False) + "\n")


def result_table(games: Mapping[str, Mapping[str, Any]]) -> TextTable:
    """Returns the figures of a collection by game, the rows of `dfc.recipes.attempts.Figures`, as a table."""
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


def hints(games: Mapping[str, Mapping[str, Any]], rollout: RolloutConfig) -> list[str]:
    """Returns a line for every game of which limits outside of its rules ended many trajectories.

    Args:
      games: the rows of `dfc.recipes.attempts.Figures`.
      rollout: whose limits they are.
    """
    found = []
    for game, figures in games.items():
        cut, count = figures["failures"]["truncated"], figures["trajectories"]
        if cut > _MANY_CUT * count:
            found.append(
                f"{game}: {cut / count:.0%} were cut by a limit outside the rules (rollout.max_length="
                f"{rollout.max_length} ids, rollout.max_prompt_length={rollout.max_prompt_length}, rollout.max_actions="
                f"{rollout.max_actions}, or one of the game's package) and count as failures; collect with larger "
                "limits in another --workdir"
            )
    return found


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _show(folder: RunFolder) -> None:
    """Prints the result and where to look."""
    if not folder.writes:
        return
    result = json.loads((folder.path / RESULT).read_bytes())
    for line in result_table(result["games"]).lines():
        print(line)  # noqa: T201 - the result
    for hint in hints(result["games"], folder.config.rollout):
        print(hint)  # noqa: T201 - the result
    if result["cost"]:
        print("cost: " + ", ".join(f"{name} {value:,.6g}" for name, value in result["cost"].items()))  # noqa: T201 - the result
    print(f"trajectories: {folder.path / collection.FOLDER}, played in {result['seconds']:.0f} s", flush=True)  # noqa: T201
