"""Trajectories to learn from: several samples of every task, played by one policy; read from top to bottom.

    play        a chunk of games, in an order that mixes games and keeps the samples of a task together
    write       every trajectory of the chunk, however it ended, to the disk; then the next chunk
    collection  collection.json: results per game

Resume: what is on disk is not played again (`dfc.records.collection`); the chunk that was being played is.

The policy is the run's model, or a demonstrator: a scripted player or a chat endpoint, whose games are stored in that
model's tokens.

The recipe branch is this one with games that begin at turns of recorded ones (`dfc.records.branches`).

How it departs from the paper (Paprika, arXiv 2502.17543, section 3.2 and appendix E): trajectories in a wrong format,
and those whose simulators failed, are kept and labelled instead of dropped; all samples of a task are played in one
world, so that they can be compared (`docs/data.md`).
"""

import collections
import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Mapping
from typing import Any

from dfc import multihost
from dfc.config import Branch, Collect, RolloutConfig
from dfc.files import write_json
from dfc.records import attempts, branches, collection
from dfc.records.attempts import CollectionStatistics, TaskSample, TrajectorySummary
from dfc.records.collection import Branched, Collection, PlayGames
from dfc.records.task_groups import playing
from dfc.records.trajectories import Provenance
from dfc.report import data_tables, run_page
from dfc.report.watched import Watched
from dfc.rollout.host import PolicyWeights
from dfc.rollout.workers import RolloutWorkers
from dfc.runs import players_on_record
from dfc.runs.costs import Costs
from dfc.runs.metrics import IterationRecord
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.stages.demonstrations import Demonstrations

RESULT = "collection.json"
_MANY_CUT = 0.1  # of a game's trajectories, cut by limits outside of its rules, from which a warning is printed


def run(config: Collect | Branch, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; resumes with what is missing."""
    if multihost.broadcast(folder.finished.exists()):
        print(f"{folder.path} holds this run, finished", flush=True)  # noqa: T201 - why nothing happens
        _show(config, folder)
        return
    with contextlib.ExitStack() as stack:
        players: Demonstrations | RolloutWorkers
        if isinstance(config, Collect) and config.demonstrator:
            players = stack.enter_context(Demonstrations(playing(config), stop.check_stop))
            play: PlayGames = players.play
            source, device = players.source, players.device
        else:
            print(f"loading {config.model.path}", flush=True)  # noqa: T201 - progress
            players = stack.enter_context(
                contextlib.closing(RolloutWorkers(playing(config), stop.check_stop, sampling=config.sampling))
            )
            players_on_record.refuse_others(folder, players.seat(config.opponent))
            weights = PolicyWeights(players.initial_params)
            play = functools.partial(players.play, policy=weights, opponent=config.opponent)
            source, device = players.host.source, players.host.device
        folder.note_device(device)
        provenance = collection.make_provenance(config, source)
        branched: dict[TaskSample, Branched] = {}
        if isinstance(config, Branch):
            branched = multihost.on_all_hosts(functools.partial(branches.planned, config, provenance.model_hash))
            plan = multihost.broadcast(branches.digest(branched))  # of other rows another collection is made
            provenance = dataclasses.replace(provenance, sampling={**provenance.sampling, "branches": plan})
            wanted = list(branched)
        else:
            wanted = attempts.planned(config.games, config)
        folder.mend()
        costs = Costs(folder)
        place = folder.path / collection.FOLDER
        with Collection(config, play, place, provenance, branched=branched) as collected:
            done = len(wanted) - len(collected.missing(wanted))
            if folder.writes:
                print(f"{_counted(wanted)}; {done} of them are on disk", flush=True)  # noqa: T201 - progress
            with Watched(folder, len(wanted), done, config.shorter) as shown:
                so_far = CollectionStatistics(collected.summaries(wanted))
                planned = collections.Counter(task_sample.game for task_sample in wanted)
                so_far.refuse_inconclusive(planned)
                chunks = _Chunks(planned, so_far, players, costs, shown)
                collected.play(wanted, stop=stop, on_chunk=chunks.take)
    if folder.writes:
        _write_result(folder, so_far, provenance, costs)
    folder.finish()
    if folder.writes:
        run_page.build(folder.path)
    _show(config, folder)


def _counted(wanted: list[TaskSample]) -> str:
    tasks = {task_sample[:2] for task_sample in wanted}
    return f"{len(wanted)} trajectories of {len(tasks)} tasks of {len({game for game, _ in tasks})} games"


@dataclasses.dataclass
class _Chunks:
    """Records and shows every chunk of a collection."""

    planned: collections.Counter[str]
    so_far: CollectionStatistics
    players: Demonstrations | RolloutWorkers
    costs: Costs
    shown: Watched

    def take(self, found: list[TrajectorySummary], seconds: float) -> None:
        """Records a chunk's outcomes and the seconds it took to play; DfcError if all of a game is inconclusive."""
        self.costs.note(self.players.endpoints)
        if not found:  # every game raised; the caller says so
            return
        every = self.so_far.add(found).rows()
        done = sum(row["trajectories"] for row in every.values())
        generated_tokens = sum(result.generated_tokens for result in found)
        # Of all so far, not of the chunk: the last line says what there is, whatever a kill has kept from being
        # reported.
        metrics = {
            f"games/{game}/{name}": float(row[name])
            for game, row in every.items()
            for name in ("success_rate", "trajectories", "turns_played", "generated_tokens")
            if row[name] is not None
        }
        counts = {"trajectories": len(found), "generated_tokens": generated_tokens}
        self.shown.show(
            IterationRecord(
                stage="collect",
                iteration=done,
                iterations=self.planned.total(),
                step=done,
                metrics=metrics | counts | self.costs.unreported(),
                clock={
                    "time": time.time(),
                    "seconds": seconds,
                    "episodes_per_second": len(found) / seconds,
                    "tokens_per_second": generated_tokens / seconds,
                },
                win_rates={g: row["success_rate"] for g, row in every.items() if row["success_rate"] is not None},
                cost=str(self.costs),
            )
        )
        self.so_far.refuse_inconclusive(self.planned)


# ---- the result -----------------------------------------------------------------------------------------------------


def _write_result(folder: RunFolder, figures: CollectionStatistics, provenance: Provenance, costs: Costs) -> None:
    result = {
        "model": provenance.model,
        "model_hash": provenance.model_hash,
        "sampling": dict(provenance.sampling),
        "seed": provenance.seed,
        "games": figures.rows(),
        "seconds": sum(float(line["clock"]["seconds"]) for line in folder.records("metrics")),
        "cost": costs.total,
    }
    write_json(folder.path / RESULT, result, allow_nan=False)


def hints(games: Mapping[str, Mapping[str, Any]], rollout: RolloutConfig) -> list[str]:
    """Returns a line for every game of which limits outside of its rules ended many trajectories.

    `games` are the rows of `dfc.records.attempts.CollectionStatistics`.
    """
    found = []
    for game, figures in games.items():
        cut, count = figures["failures"]["truncated"], figures["trajectories"]
        if cut > _MANY_CUT * count:
            found.append(
                f"{game}: {cut / count:.0%} were cut by a limit outside the rules (rollout.max_length="
                f"{rollout.max_length} tokens, rollout.max_prompt_length={rollout.max_prompt_length}, "
                f"rollout.max_actions={rollout.max_actions}, or one of the game's package) and count as failures; "
                "collect with larger limits in another --workdir"
            )
    return found


def _show(config: Collect | Branch, folder: RunFolder) -> None:
    """Prints the result and where to look."""
    if not folder.writes:
        return
    result = json.loads((folder.path / RESULT).read_bytes())
    for line in data_tables.collected(result["games"]).lines():
        print(line)  # noqa: T201 - the result
    for hint in hints(result["games"], config.rollout):
        print(hint)  # noqa: T201 - the result
    if result["cost"]:
        print("cost: " + ", ".join(f"{name} {value:,.6g}" for name, value in result["cost"].items()))  # noqa: T201 - the result
    print(f"trajectories: {folder.path / collection.FOLDER}, played in {result['seconds']:.0f} s", flush=True)  # noqa: T201
