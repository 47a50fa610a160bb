"""Steps per second of the dialogue games on one core, and of clemcore's environment of Wordle beside ours.

    python benchmarks/dialogue_games.py [--repeats=5] [--only=ID,...] [--quick] [--clemcore=PYTHON --instances=FILE]

A step is one reply: the seat to move is shown its observation, and `step` takes what it says. All tasks of the test
split are played once per repeat, each with a new game; the replies were chosen beforehand, so what players think is
left out. Two rows a game: strong players with themselves, and random legal ones.

With `--clemcore`, a Python that has clemcore (pip install clemcore==3.7.2, in an environment of its own) and a folder
of clembench in CLEMBENCH_HOME: `gym_env("wordle")` beside `clem_wordle` on the same instances (`--instances`, that
folder's wordle/in/instances.json) with the same six guesses, whatever is told. Its observation is the newest message
only, as ours; its logging is switched off.

Limit: the interpreter; there is no arithmetic worth mentioning. Aims, flagged where missed: 20,000 steps/s, the
adventure 2,000; not slower than clemcore. Clock: the processor time of the process (time.process_time). Figures are
medians, smallest and largest in brackets. Prints a table and one JSON line.
"""

import argparse
import functools
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from dfc.games import registry, scripted
from dfc.games.rng import GameRng, derive_seed

AIM, AIM_OF_ADVENTURE = 20_000, 2_000
WORDS = ("crane", "sloth", "pudgy", "bumpy", "fjord", "vivid")
REPLIES = tuple(f"explanation: It has other letters.\nguess: {word}" for word in WORDS)
# What the other Python runs: repeats over all instances, one JSON line of rates.
CLEMCORE = """
import json, logging, sys, time
from clemcore.clemgame import gym_env
logging.disable(logging.CRITICAL)
replies, games, repeats = json.loads(sys.argv[1])
environment, rates = gym_env("wordle"), []
for _ in range(repeats + 1):
    begun, steps = time.process_time(), 0
    for _ in range(games):
        environment.reset()
        for reply in replies:
            _, _, ended, cut, _ = environment.step(reply)
            steps += 1
            if ended or cut:
                break
    rates.append(steps / (time.process_time() - begun))
print("RATES " + json.dumps(rates[1:]))
"""


def script(game_id: str, strength: scripted.Strength) -> list[list[str]]:
    """Returns the replies of both seats to every task of the test split."""
    player = scripted.player(game_id, strength)
    found = []
    for task in range(registry.make(game_id, split="test").info.splits["test"]):
        game, rng, said = registry.make(game_id, split="test"), GameRng(derive_seed("replies", game_id, task)), []
        game.reset(task)
        while not game.over:
            said.append(player.act(game, rng))
            game.step(said[-1])
        found.append(said)
    return found


def rate(make: Callable[[], Any], said: Sequence[Sequence[str]]) -> float:
    """Returns steps per second of games with given replies, seed by seed."""
    begun, steps = time.process_time(), 0
    for task, replies in enumerate(said):
        game = make()
        game.reset(task)
        for reply in replies:
            game.observation(game.to_move)
            game.step(reply)
            steps += 1
            if game.over:
                break
    return steps / (time.process_time() - begun)


def rates(make: Callable[[], Any], said: Sequence[Sequence[str]], repeats: int) -> list[float]:
    """Returns the rates of several repeats, after one that fills the caches of tables."""
    return [rate(make, said) for _ in range(repeats + 1)][1:]


def clemcore(python: str, instances: str, repeats: int) -> dict[str, list[float]]:
    """Returns the rates of both environments of Wordle on the same instances with the same replies."""
    games = registry.make("clem_wordle", instances=instances).info.splits["train"]
    wanted = json.dumps([REPLIES, games, repeats])
    with tempfile.TemporaryDirectory() as folder:  # its importing opens a log in the working directory
        command = [python, "-c", CLEMCORE, wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)  # noqa: S603
    lines = [line for line in done.stdout.splitlines() if line.startswith("RATES ")]
    if not lines:
        raise SystemExit(f"{python} did not play Wordle of clemcore:\n{done.stdout[-500:]}\n{done.stderr[-1500:]}")
    ours = rates(functools.partial(registry.make, "clem_wordle", instances=instances), [REPLIES] * games, repeats)
    return {"clem_wordle": ours, "clemcore": json.loads(lines[-1].removeprefix("RATES "))}


def shown(values: Sequence[float]) -> str:
    """Returns a median with the smallest and the largest value."""
    return f"{statistics.median(values):>9,.0f} [{min(values):,.0f}, {max(values):,.0f}]"


def main(arguments: Sequence[str]) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--clemcore", default="")
    parser.add_argument("--instances", default="")
    parser.add_argument("--quick", action="store_true", help="one repeat of each game, to see that it runs")
    args = parser.parse_args(arguments)
    args.repeats = 1 if args.quick else args.repeats
    wanted = args.only.split(",") if args.only else [g for g in registry.own_game_ids() if g.startswith("clem_")]
    measured: dict[str, Any] = {}
    for game in wanted:
        aim = AIM_OF_ADVENTURE if game == "clem_adventuregame" else AIM
        measured[game] = {}
        for strength in ("strong", "random_legal"):
            make = functools.partial(registry.make, game, split="test")
            found = rates(make, script(game, strength), args.repeats)
            measured[game][strength] = found
            missed = "  below the aim" if statistics.median(found) < aim else ""
            print(f"{game:<34}{strength:<14}{shown(found)}{missed}", flush=True)
    if args.clemcore:
        measured["beside clemcore"] = clemcore(args.clemcore, args.instances, args.repeats)
        for side, found in measured["beside clemcore"].items():
            print(f"{'the same instances and replies':<34}{side:<14}{shown(found)}")
    print(json.dumps({"python": platform.python_version(), "steps_per_second": measured}))


if __name__ == "__main__":
    main(sys.argv[1:])
