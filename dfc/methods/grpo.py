"""Group relative policy optimization on any mixture of games: one policy, from the first iteration to the last.

    begin      measure the initial policy on fresh games
    iterate    play, reward, advantages, update, accept (`dfc.training.rl`)
    final      matches on fresh seeds, export, report

It is what Divide-Fuse-Conquer (arXiv 2505.16401) compares itself with as Naive-MSRL, and with other rewards what
Paprika (arXiv 2502.17543) is compared with. Divide-Fuse-Conquer's own sampling and acceptance are off unless a
configuration turns them on.
"""

import contextlib

import jax

from dfc import multihost
from dfc.config import Grpo
from dfc.report import watched
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.training import game_plan, measurements, rl
from dfc.training.method import Method

STAGE = "all games"


def run(config: Grpo, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; resumes if the folder holds a checkpoint."""
    learn(rl.grpo(config), config, folder, stop)


def learn(method: Method, config: Grpo, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe with a method of your own, which alone reads the configuration's section `grpo`.

    A stop is asked for between iterations, and inside them.
    """
    if multihost.broadcast(folder.finished.exists()):
        watched.show_finished(folder)
        return
    with contextlib.closing(method.open(config, folder, stop)) as run_:
        state, games = run_.restore(), list(config.games)
        if state is None:
            state = run_.begin()
            run_.save_or_stop(state)
        if state.iteration == 0:
            state.best = run_.initial_params
            rl.begin(run_, state, STAGE, games)
        for line in game_plan.games_lines(config):
            print(line, flush=True)  # noqa: T201 - progress
        print(f"{config.iterations} iterations on {jax.device_count()} device(s)")  # noqa: T201 - the same
        for line in measurements.forecast_lines(run_, config.iterations * len(games)):
            print(line, flush=True)  # noqa: T201 - the same
        with watched.Watched(folder, config.iterations, state.steps, config.shorter) as shown:
            rl.train(run_, method, state, STAGE, games, config.iterations, shown.show, save_last=True)
            print("final matches", flush=True)  # noqa: T201 - progress
            measurements.initial_matches(run_)
            measurements.final_matches(run_, state.best, games)
            run_.save_policy(state.best, folder.policy, folder.adapter)
            for name in method.policies[1:]:
                path, adapter = (folder.path / f"{kind.name}_{name}" for kind in (folder.policy, folder.adapter))
                run_.write_policy(state.best, path, adapter, name)
    watched.finish(folder)
