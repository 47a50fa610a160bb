"""What a run has to show: matches after every stage and at the end, the exported policy, the summary."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from dfc.errors import TrainingError
from dfc.evaluation import matches
from dfc.models import huggingface, peft
from dfc.models.lora import merge
from dfc.models.transformer import Params
from dfc.recipes import conquer, trained_weights
from dfc.recipes.training_run import Run, State
from dfc.report import summary
from dfc.rollout.workers import PolicyWeights, RolloutWorkers
from dfc.runs.run_folder import RunFolder


def show(folder: RunFolder) -> None:
    """Prints the result and where to look."""
    if not folder.writes:
        return
    for line in summary.lines(folder.path):
        print(line)  # noqa: T201 - the result
    if folder.adapter.exists():
        print(f"adapter: {folder.adapter}")  # noqa: T201 - where to look
    print(f"policy: {folder.policy}\nreport: {folder.report}", flush=True)  # noqa: T201 - where to look


def measure_stage(run_: Run, name: str, params: Params, game_ids: Collection[str]) -> dict[str, float]:
    """Plays some games against the initial policy for the table of stages; returns the win rates."""
    config, folder, workers = run_.config, run_.folder, run_.workers
    games = {game: options for game, options in config.games.items() if game in game_ids}
    specs = matches.match_specs(games, config.evaluation.stage_games, config.seed, f"stage {name}")
    episodes = workers.play(specs, run_.policy(params), "initial")
    folder.append("episodes", (e.record(stage=name, iteration=0, kind="evaluate", reward=None) for e in episodes))
    rows = matches.evaluation_rows(episodes, stage=name, policy="stage", opponent="initial")
    folder.append("evaluations", without_opponent(rows, workers))
    return conquer.win_rates(episodes)


def initial_matches(run_: Run) -> None:
    """Plays the initial policy as `final_matches` plays the final one."""
    _matches(run_, "initial", PolicyWeights(run_.workers.initial_params), run_.config.games)


def final_matches(run_: Run, params: Params, game_ids: Collection[str]) -> None:
    """Plays the final policy at some games against the initial policy and against a random legal player."""
    _matches(run_, "final", run_.policy(params), game_ids)


def _matches(run_: Run, name: str, policy: PolicyWeights, game_ids: Collection[str]) -> None:
    config, folder, workers = run_.config, run_.folder, run_.workers
    games = {game: options for game, options in config.games.items() if game in game_ids}
    two_seats = {game: options for game, options in games.items() if workers.info[game].seats > 1}
    for opponent, chosen in (("initial", games), ("random_legal", two_seats)):
        if not chosen:
            continue
        run_.stop.check()  # these matches are played again after a stop
        specs = matches.match_specs(chosen, config.evaluation.games, config.seed, f"final {opponent}")
        episodes = workers.play(specs, policy, opponent)
        record = {"stage": "final", "iteration": 0, "kind": "evaluate", "reward": None}
        folder.append("episodes", (e.record(policy=name, **record) for e in episodes))
        rows = matches.evaluation_rows(episodes, stage="final", policy=name, opponent=opponent)
        folder.append("evaluations", without_opponent(rows, workers))
    folder.flush()


def without_opponent(rows: list[dict[str, Any]], workers: RolloutWorkers) -> list[dict[str, Any]]:
    """Returns rows in which games of one seat name no opponent."""
    return [{**row, "opponent": "none"} if workers.info[row["game"]].seats == 1 else row for row in rows]


def diverged(run_: Run, state: State, why: str) -> TrainingError:
    """Writes the last good policy, and returns what to report to whoever started the run.

    Args:
      run_: of the run.
      state: before the update.
      why: which update is refused, and for what.
    """
    policy, step = run_.last_good(state)
    folder, rate = run_.folder, run_.config.optimizer.learning_rate
    if policy is run_.initial_params or step == 0:
        return TrainingError(trained_weights.way_on(why, "optimizer.learning_rate", rate))
    save_policy(run_, policy, folder.last_good, folder.path / "last_good_adapter")
    return TrainingError(trained_weights.way_on(why, "optimizer.learning_rate", rate, folder.last_good, step))


def save_policy(run_: Run, trained: Params, path: Path, adapter: Path) -> None:
    """Writes a policy; with adapters the merged model at full precision, and the adapters as PEFT has them."""
    workers, lora = run_.workers, run_.lora
    policy = run_.policy(trained)
    params = policy.params
    if lora is not None and policy.adapters is not None:
        adapters = policy.adapters.weights
        if run_.config.adapter.base != "full":  # the files have what four bits have lost
            # Room for the whole model: this is the last thing that a run with such weights does.
            workers.close()
            run_.reference_params = run_.initial_params = None
            _, params = huggingface.load(workers.source, mesh=workers.mesh, dtype=run_.config.model.dtype)
        params = merge(params, adapters, lora.scale)
        if huggingface.reads_images(workers.source):
            print("adapter/ is left out: PEFT would look for the image model's names; policy/ has it merged")  # noqa: T201 - why a folder is missing
        else:
            peft.save_adapter(adapter, lora, adapters, workers.model, run_.config.model.path)
    huggingface.save(path, workers.model, params, copy_from=workers.source)
