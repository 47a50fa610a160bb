"""Runs the study of Language Self-Play: every arm with a small model, each run by itself, each resumed if stopped.

    python benchmarks/lsp_study.py [--out=runs/lsp] [--seeds=20,21,22,23,24] [--only=TEXT] [--list] [--iterations=200]
        [--base=runs/lsp_base/policy]

Of every seed: reinforcement on given queries (`data`); self-play with a Challenger that is not trained, without
self-reward as in the paper, the same where queries that are broken or that nobody solves pay nothing, with self-reward
of weight 1/7, with both guards, with the KL term as published, with weight 1; and `data` on what self-play with
self-reward has made. Two of them, `untrained_challenger` and `lsp_zero_worst`, have five seeds, the others three.
Equal answers: 8 to each of 32 queries in every iteration. `configs/lsp_base.py` makes the model first.

Every run is a process of one thread. Seeds come before arms: the first seed's arms are all run before the second's. Two
of this script may work side by side, each with its own seeds.
`--list` prints the runs and the minutes each has taken. `benchmarks/lsp_study_results.py` measures what was made and
makes the tables.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from dfc.configs import lsp_study
from dfc.games.rng import GameRng, derive_seed
from dfc.self_play import families

TEST = 1000  # queries, the same for all; 25 of each family and difficulty
GIVEN = "queries.txt"
SEEDS = (20, 21, 22, 23, 24)
FEW = 3  # seeds of most arms, the first ones
_WORST = ("--config.challenger.bad_queries=worst", "--config.challenger.unsolved_queries=worst")


@dataclasses.dataclass(frozen=True)
class Arm:
    """One arm: what is changed in `configs/lsp_study.py`, and whose policy it starts from."""

    name: str
    changes: tuple[str, ...]
    start: str = ""  # another arm of the same seed; empty: the base
    every_seed: bool = False


ARMS = (
    Arm("data", ("--config.method=data",)),
    Arm("untrained_challenger", ("--config.method=untrained_challenger",), every_seed=True),
    Arm("lsp_zero", ("--config.method=lsp_zero",)),
    Arm("lsp_zero_worst", ("--config.method=lsp_zero", *_WORST), every_seed=True),
    Arm("lsp", ("--config.method=lsp",)),
    Arm("lsp_worst", ("--config.method=lsp", *_WORST)),
    Arm("lsp_published", ("--config.method=lsp", "--config.kl_gradient=published")),
    Arm("lsp_w1", ("--config.method=lsp", "--config.self_reward.weight=1.0")),
    Arm("lsp_then_data", ("--config.method=data",), "lsp"),
)


def names() -> tuple[str, ...]:
    """Returns the families of the study."""
    return tuple(lsp_study.get_config().tasks)


def test_queries() -> list[str]:
    """Returns the fixed queries that every policy is measured on, equal numbers of every family and difficulty."""
    return families.probe(names(), TEST, derive_seed("lsp study", "test"))


def write_queries(path: Path, seed: int, count: int) -> None:
    """Writes the queries of a data-backed run: equal numbers of every family and difficulty, none of the test's.

    Args:
      path: one query a line.
      seed: of them.
      count: how many.
    """
    left_out, rng = set(test_queries()), GameRng(derive_seed("lsp study", "data", seed))
    found: list[str] = []
    cells = [(name, level) for name in names() for level in families.LEVELS]
    while len(found) < count:
        for name, level in sorted(cells, key=lambda _: rng.uniform()):
            query = families.FAMILIES[name].query(level, rng)
            while query in left_out:
                query = families.FAMILIES[name].query(level, rng)
            found.append(query)
    path.write_text("\n".join(found[:count]) + "\n", encoding="utf-8")


def command_of(arm: Arm, out: Path, seed: int, base: str, iterations: int) -> list[str]:
    """Returns the words that run an arm of a seed."""
    model = str(out / arm.start / "policy") if arm.start else base
    words = [sys.executable, "-m", "dfc.launch", "--config=configs/lsp_study.py", f"--workdir={out / arm.name}"]
    words += [f"--config.seed={seed}", f"--config.model.path={model}", f"--config.iterations={iterations}"]
    given = (f"--config.data={out / GIVEN}",) if "--config.method=data" in arm.changes else ()
    return [*words, *arm.changes, *given]


def seconds(path: Path) -> float:
    """Returns what the iterations of a run have taken so far, by its records."""
    lines = path / "metrics.jsonl"
    rows = [json.loads(line) for line in lines.read_text().splitlines() if line.endswith("}")] if lines.exists() else []
    return float(sum(row["clock"]["seconds"] for row in rows))


def carry_out(arm: Arm, out: Path, seed: int, base: str, iterations: int) -> bool:
    """Runs or continues an arm of a seed and prints a line about it; returns whether it is finished."""
    if (out / arm.name / "finished.json").exists():
        return True
    begun = time.perf_counter()
    with (out / f"{arm.name}.log").open("a") as log:
        # One thread: the products are small.
        threads = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}
        command = command_of(arm, out, seed, base, iterations)
        code = subprocess.run(command, stdout=log, stderr=log, env=os.environ | threads, check=False).returncode  # noqa: S603 - our own command
    state = "finished" if code == 0 else f"stopped with exit code {code}, see {arm.name}.log"
    print(f"{seed}/{arm.name}: {state} after {(time.perf_counter() - begun) / 60:.1f} min", flush=True)
    return code == 0


def main() -> None:
    """Carries out the runs that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/lsp"))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--only", default="", help="runs whose SEED/NAME holds this text")
    parser.add_argument("--iterations", type=int, default=lsp_study.get_config().iterations)
    parser.add_argument("--base", default="runs/lsp_base/policy")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    for seed in map(int, options.seeds.split(",")):
        out = options.out / str(seed)
        out.mkdir(parents=True, exist_ok=True)
        if not (out / GIVEN).exists():
            write_queries(out / GIVEN, seed, lsp_study.get_config().queries * options.iterations)
        for arm in ARMS:
            if options.only not in f"{seed}/{arm.name}" or not (arm.every_seed or seed in SEEDS[:FEW]):
                continue
            if options.list:
                done = "finished" if (out / arm.name / "finished.json").exists() else ""
                print(f"{seed}/{arm.name:24}{done:10}{seconds(out / arm.name) / 60:8.1f} min")
            elif not carry_out(arm, out, seed, options.base, options.iterations):
                raise SystemExit(1)


if __name__ == "__main__":
    main()
