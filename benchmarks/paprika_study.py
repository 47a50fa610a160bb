"""Runs the Paprika study: every comparison with a small model, each run by itself, each resumed if stopped.

    python benchmarks/paprika_study.py [--out=runs/paprika] [--seeds=20,21,22] [--parallel=3] [--only=TEXT] [--list]
        [--player=runs/paprika_player/policy]

Of every seed: one collection of the initial model's trajectories at the ten task groups; SFT and RPO on all of them;
the same without one group, for four groups, and on a single one; SFT on as many ordinary conversations; GRPO on the
ten groups with as many games; then all of them on the same test tasks; the curriculum over the difficulties of twenty
questions with its baseline, uniform; the tasks that were trained on; test tasks at other temperatures, words of another
length, and the bandit with regret. `configs/paprika_player.py` makes the model first. The rates of SFT and RPO were
chosen after an earlier study's results on these seeds were known; docs/results/paprika.md says which.

Every run is a process of one thread, `--parallel` seeds side by side. `--list` prints the runs and the minutes each has
taken. `benchmarks/paprika_study_results.py` makes the tables and figures.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LEFT_OUT = ("twenty_questions", "wordle", "murder_mystery", "minesweeper")
SINGLE = "twenty_questions"
MAIN = ("base", "sft", "rpo")
TRAINING = "--config.stages=build_data,sft,rpo"
PLAYING = (  # as paprika_tiny.py plays
    "--config.rollout.slots=64",
    "--config.rollout.max_length=640",
    "--config.rollout.max_reply_length=40",
    "--config.rollout.decode_steps=16",
    "--config.tasks=40",
    "--config.tasks_of.bandit=40",
)
TEN_GROUPS = "--config.games.battleship.show_board=false"


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: its folder in the seed's, its configuration, what is changed in it, whether it has an initial model."""

    name: str
    config: str
    changes: tuple[str, ...] = ()
    model: bool = True


def evaluated() -> tuple[str, ...]:
    """Returns the names of the policies that play the test tasks, the initial model first."""
    return (*MAIN, *(f"without_{group}" for group in LEFT_OUT), f"only_{SINGLE}", "chat", "grpo")


def where(out: Path, name: str, player: str) -> str:
    """Returns the folder of a policy of a seed."""
    if name == "base":
        return player
    if name in ("sft", "rpo"):
        return str(out / "paprika" / name)
    if name == "chat":
        return str(out / "chat" / "sft")
    return str(out / name / "rpo" if name.startswith(("without_", "only_")) else out / name)


def plan(out: Path, player: str) -> list[Run]:
    """Returns the runs of one seed in their order; later ones read what earlier ones wrote.

    Args:
      out: the seed's folder.
      player: the initial model.
    """
    collected = f"--config.collected={out / 'collected' / 'collect'}"
    trained = [
        ("paprika", ()),
        *((f"without_{group}", (f"--config.build_data.leave_out={group}",)) for group in LEFT_OUT),
        (f"only_{SINGLE}", (f"--config.build_data.groups={SINGLE}",)),
    ]
    chat = ("--config.stages=sft", f"--config.data={out / 'chat.jsonl'}")
    return [
        Run("collected", "paprika_tiny", ("--config.stages=collect",)),
        *(Run(name, "paprika_tiny", (TRAINING, collected, *changes)) for name, changes in trained),
        Run("chat", "paprika_tiny", chat),
        Run("grpo", "paprika_grpo_tiny"),
        _evaluation("evaluated", out, player, evaluated(), TEN_GROUPS),
        *(
            Run(strategy, "paprika_curriculum_tiny", (f"--config.strategy={strategy}",))
            for strategy in ("ucb", "uniform")
        ),
        _evaluation("trained_tasks", out, player, (*MAIN, "grpo"), TEN_GROUPS, "--config.split=train"),
        _evaluation("cold_and_hot", out, player, MAIN, TEN_GROUPS, "--config.temperatures=(0.3, 1.0)"),
        _evaluation("four_letters", out, player, MAIN, "--config.games={'wordle': {'length': 4, 'max_turns': 10}}"),
        _evaluation("regret", out, player, MAIN, "--config.games={'bandit_regret': {}}"),
    ]


def _evaluation(name: str, out: Path, player: str, policies: Sequence[str], *changes: str) -> Run:
    listed = ",".join(f"{policy}={where(out, policy, player)}" for policy in policies)
    return Run(name, "evaluate_tasks", (f"--config.policies={listed}", *PLAYING, *changes))


def seconds(path: Path) -> float:
    """Returns what a run and the stages inside it have taken so far, by their records."""
    total = 0.0
    for lines in path.rglob("metrics.jsonl"):
        rows = [json.loads(line) for line in lines.read_text().splitlines() if line.endswith("}")]
        total += float(sum(row["clock"].get("seconds", 0.0) for row in rows))
    return total


def write_chat(out: Path, seed: int) -> None:
    """Writes as many ordinary conversations as the seed's collection has trajectories to imitate."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import

    rows = pq.ParquetFile(out / "paprika" / "build_data" / "data" / "sft.parquet").metadata.num_rows
    script = Path(__file__).parent / "scripted_chat.py"
    words = [str(script), f"--conversations={rows}", f"--seed={seed}", f"--out={out / 'chat.jsonl'}"]
    subprocess.run([sys.executable, *words], check=True)  # noqa: S603 - our own command


def carry_out(out: Path, run: Run, seed: int, player: str) -> tuple[str, bool]:
    """Runs or continues a run; returns a line about it, and whether it is finished."""
    path = out / run.name
    title = f"{out.name}/{run.name}"
    if (path / "finished.json").exists():
        return f"{title}: finished before", True
    if run.name == "chat" and not (out / "chat.jsonl").exists():
        write_chat(out, seed)
    command = [sys.executable, "-m", "dfc.launch", f"--config=configs/{run.config}.py", f"--workdir={path}"]
    command += [f"--config.seed={seed}", *([f"--config.model.path={player}"] if run.model else []), *run.changes]
    begun = time.perf_counter()
    with (out / f"{run.name}.log").open("a") as log:
        # One thread each: small products gain nothing from more, and the runs share the cores.
        threads = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}
        process = subprocess.run(command, stdout=log, stderr=log, env=os.environ | threads, check=False)  # noqa: S603 - our own command
    code = process.returncode
    state = "finished" if code == 0 else f"stopped with exit code {code}, see {run.name}.log"
    return f"{title}: {state} after {(time.perf_counter() - begun) / 60:.1f} min", code == 0


def main() -> None:
    """Carries out the runs that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/paprika"))
    parser.add_argument("--seeds", default="20,21,22")
    parser.add_argument("--parallel", type=int, default=3)
    parser.add_argument("--only", default="", help="runs whose SEED/NAME holds this text")
    parser.add_argument("--player", default="runs/paprika_player/policy")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()

    def of_seed(seed: str) -> bool:
        out = options.out / seed
        out.mkdir(parents=True, exist_ok=True)
        for run in plan(out, options.player):
            if options.only not in f"{seed}/{run.name}":
                continue
            if options.list:
                done = "finished" if (out / run.name / "finished.json").exists() else ""
                print(f"{seed}/{run.name:28}{done:10}{seconds(out / run.name) / 60:8.1f} min")
                continue
            line, finished = carry_out(out, run, int(seed), options.player)
            print(line, flush=True)
            if not finished:  # later runs read what it would have written
                return False
        return True

    with ThreadPoolExecutor(1 if options.list else options.parallel) as pool:
        if not all(list(pool.map(of_seed, options.seeds.split(",")))):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
