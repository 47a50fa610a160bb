"""Matches of a policy in training: after every stage, and the first and the last one at the end of a run."""

from collections.abc import Collection
from typing import Any

from dfc.evaluation import matches
from dfc.models.transformer import Params
from dfc.rollout.host import PolicyWeights
from dfc.rollout.workers import RolloutWorkers
from dfc.training import forecast, game_plan, rl
from dfc.training.games_run import GamesRun


def measure_stage(run: GamesRun, name: str, params: Params, game_ids: Collection[str], count: int) -> dict[str, float]:
    """Plays `count` games per id against the initial policy for the table of stages; returns the win rates."""
    config, folder, workers = run.config, run.folder, run.workers
    games = {game: options for game, options in config.games.items() if game in game_ids}
    specs = matches.match_specs(games, count, config.seed, f"stage {name}", config.learner_roles)
    episodes = workers.play(specs, run.policy(params), "initial")
    folder.append("episodes", (e.record(stage=name, iteration=0, kind="evaluate", reward=None) for e in episodes))
    rows = matches.evaluation_rows(episodes, stage=name, policy="stage", opponent="initial")
    folder.append("evaluations", without_opponent(rows, workers))
    return rl.win_rates(episodes)


def initial_matches(run: GamesRun) -> None:
    """Plays the initial policy as `final_matches` plays the final one."""
    _matches(run, "initial", PolicyWeights(run.workers.initial_params), run.config.games)


def final_matches(run: GamesRun, params: Params, game_ids: Collection[str]) -> None:
    """Plays the final policy at some games against the initial policy and against a random legal player."""
    _matches(run, "final", run.policy(params), game_ids)


def _matches(run: GamesRun, name: str, policy: PolicyWeights, game_ids: Collection[str]) -> None:
    config, folder, workers = run.config, run.folder, run.workers
    games = {game: options for game, options in config.games.items() if game in game_ids}
    two_seats = {game: options for game, options in games.items() if workers.info[game].seats > 1}
    for opponent, chosen in (("initial", games), ("random_legal", two_seats)):
        if not chosen:
            continue
        run.stop.check()  # these matches are played again after a stop
        specs = matches.match_specs(
            chosen, config.evaluation.games, config.seed, f"final {opponent}", config.learner_roles
        )
        episodes = workers.play(specs, policy, opponent)
        record = {"stage": "final", "iteration": 0, "kind": "evaluate", "reward": None}
        folder.append("episodes", (e.record(policy=name, **record) for e in episodes))
        rows = matches.evaluation_rows(episodes, stage="final", policy=name, opponent=opponent)
        folder.append("evaluations", without_opponent(rows, workers))
    folder.flush()


def forecast_lines(run: GamesRun, turns: int, between: int = 0) -> list[str]:
    """Returns a forecast of a run's duration; `turns` are iterations x games of each."""
    config = run.config
    opponents = sum(min(2, info.seats) for info in run.workers.info.values())  # a game for two also has a random one
    final = 2 * opponents * config.evaluation.games  # of the initial policy as of the final one
    lines = forecast.lines(run.pace, *game_plan.games_played(config, turns), between + final, config.shorter)
    more = f"the games to train on are at most so many: refill={config.refill} plays further groups where groups teach"
    return [*lines, f"{more} nothing, up to {config.refill} times as many as planned"] if config.refill else lines


def without_opponent(rows: list[dict[str, Any]], workers: RolloutWorkers) -> list[dict[str, Any]]:
    """Returns rows in which games of one seat name no opponent."""
    return [{**row, "opponent": "none"} if workers.info[row["game"]].seats == 1 else row for row in rows]
