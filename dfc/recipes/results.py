"""What a run has to show: matches after every stage and at the end, the exported policy, the summary."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from dfc.errors import TrainingError
from dfc.evaluation import matches, summary
from dfc.models import huggingface, peft
from dfc.models.lora import merge
from dfc.models.transformer import Params
from dfc.recipes import conquer, trained_weights
from dfc.recipes.table import Policy, Table
from dfc.recipes.training_run import Run, State
from dfc.run_folder import RunFolder


def show(folder: RunFolder) -> None:
    """Prints the result and where to look."""
    if not folder.writes:
        return
    for line in summary.lines(folder.path):
        print(line)  # noqa: T201 - the result
    if folder.adapter.exists():
        print(f"adapter: {folder.adapter}")  # noqa: T201 - where to look
    print(f"policy: {folder.policy}\nreport: {folder.report}", flush=True)  # noqa: T201 - where to look


def measure_stage(run_: Run, name: str, params: Params, ids: Collection[str]) -> dict[str, float]:
    """Plays some ids against the initial policy for the table of stages; returns the win rates."""
    config, folder, table = run_.config, run_.folder, run_.table
    games = {game: options for game, options in config.games.items() if game in ids}
    jobs = matches.match_jobs(games, config.evaluation.stage_games, config.seed, f"stage {name}")
    episodes = table.play(jobs, run_.policy(params), "initial")
    folder.append("episodes", (e.record(stage=name, iteration=0, kind="evaluate", reward=None) for e in episodes))
    rows = matches.evaluation_rows(episodes, stage=name, policy="stage", opponent="initial")
    folder.append("evaluations", without_opponent(rows, table))
    return conquer.win_rates(episodes)


def initial_matches(run_: Run) -> None:
    """Plays the initial policy as `final_matches` plays the final one."""
    _matches(run_, "initial", Policy(run_.table.initial), run_.config.games)


def final_matches(run_: Run, params: Params, ids: Collection[str]) -> None:
    """Plays the final policy of some ids against the initial policy and against a random legal player."""
    _matches(run_, "final", run_.policy(params), ids)


def _matches(run_: Run, name: str, policy: Policy, ids: Collection[str]) -> None:
    config, folder, table = run_.config, run_.folder, run_.table
    games = {game: options for game, options in config.games.items() if game in ids}
    two_seats = {game: options for game, options in games.items() if table.facts[game].seats > 1}
    for opponent, chosen in (("initial", games), ("random_legal", two_seats)):
        if not chosen:
            continue
        run_.stop.check()  # these matches are played anew after a stop
        jobs = matches.match_jobs(chosen, config.evaluation.games, config.seed, f"final {opponent}")
        episodes = table.play(jobs, policy, opponent)
        record = {"stage": "final", "iteration": 0, "kind": "evaluate", "reward": None}
        folder.append("episodes", (e.record(policy=name, **record) for e in episodes))
        rows = matches.evaluation_rows(episodes, stage="final", policy=name, opponent=opponent)
        folder.append("evaluations", without_opponent(rows, table))
    folder.flush()


def without_opponent(rows: list[dict[str, Any]], table: Table) -> list[dict[str, Any]]:
    """Returns rows in which games of one seat name no opponent."""
    return [{**row, "opponent": "none"} if table.facts[row["game"]].seats == 1 else row for row in rows]


def diverged(run_: Run, state: State, why: str) -> TrainingError:
    """Writes the last good policy, and returns what to tell whoever started the run.

    Args:
      run_: of the run.
      state: before the update.
      why: which update is refused, and for what.
    """
    policy, step = run_.last_good(state)
    folder, rate = run_.folder, run_.config.optimizer.learning_rate
    if policy is run_.start or step == 0:
        return TrainingError(trained_weights.way_on(why, "optimizer.learning_rate", rate))
    save_policy(run_, policy, folder.last_good, folder.path / "last_good_adapter")
    return TrainingError(trained_weights.way_on(why, "optimizer.learning_rate", rate, folder.last_good, step))


def save_policy(run_: Run, trained: Params, path: Path, adapter: Path) -> None:
    """Writes a policy; with adapters the merged model at full precision, and the adapters as PEFT has them."""
    table, lora = run_.table, run_.lora
    policy = run_.policy(trained)
    params = policy.params
    if lora is not None and policy.adapters is not None:
        adapters = policy.adapters.weights
        if run_.config.adapter.base != "full":  # the files have what four bits have lost
            # Room for the whole model: this is the last thing that a run with such weights does.
            table.close()
            run_.reference = run_.start = None
            _, params = huggingface.load(table.source, mesh=table.mesh, dtype=run_.config.model.dtype)
        params = merge(params, adapters, lora.scale)
        if huggingface.reads_images(table.source):
            print("adapter/ is left out: PEFT would look for the image model's names; policy/ has it merged")  # noqa: T201 - why a folder is missing
        else:
            peft.save_adapter(adapter, lora, adapters, table.model, run_.config.model.path)
    huggingface.save(path, table.model, params, copy_from=table.source)
