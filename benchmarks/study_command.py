"""The command line of a study: its runs of every seed, each a process of its own, resumed if it was stopped."""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes:
      name: of its folder in the seed's.
      config: which one of ``configs/``.
      changes: what is set in it.
      model: whether it begins with the initial model.
      prepare: called with the seed's folder and the seed before every start, for what the run reads.
    """

    name: str
    config: str
    changes: tuple[str, ...] = ()
    model: bool = True
    prepare: Callable[[Path, int], None] | None = None


Plan = Callable[[Path, str], Sequence[StudyRun]]
"""(the seed's folder, the initial model) -> its runs in their order; later ones read what earlier ones wrote."""


def seconds(path: Path) -> float:
    """Returns what a run and the stages inside it have taken so far, by their records."""
    total = 0.0
    for lines in path.rglob("metrics.jsonl"):
        rows = [json.loads(line) for line in lines.read_text().splitlines() if line.endswith("}")]
        total += float(sum(row["clock"].get("seconds", 0.0) for row in rows))
    return total


def carry_out(out: Path, run: StudyRun, seed: int, player: str) -> tuple[str, bool]:
    """Runs or continues a run; returns a line about it, and whether it is finished."""
    path = out / run.name
    title = f"{out.name}/{run.name}"
    if (path / "finished.json").exists():
        return f"{title}: finished before", True
    if run.prepare is not None:
        run.prepare(out, seed)
    model = (f"--config.model.path={player}",) if run.model else ()
    state, finished = launch(path, run.config, (f"--config.seed={seed}", *model, *run.changes))
    return f"{title}: {state}", finished


def launch(path: Path, config: str, changes: Sequence[str]) -> tuple[str, bool]:
    """Runs or continues what a file of ``configs/`` says; returns how and when it ended, and whether it is finished.

    Args:
      path: the run's folder; what is printed goes to a log beside it, of its name.
      config: the file's name.
      changes: what is set in it.
    """
    command = [sys.executable, "-m", "dfc.launch", f"--config=configs/{config}.py", f"--workdir={path}", *changes]
    begun = time.perf_counter()
    log_file = path.with_name(f"{path.name}.log")
    with log_file.open("a") as log:
        # One thread each: small products gain nothing from more, and the runs share the cores.
        threads = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}
        process = subprocess.run(command, stdout=log, stderr=log, env=os.environ | threads, check=False)  # noqa: S603 - our own command
    code = process.returncode
    state = "finished" if code == 0 else f"stopped with exit code {code}, see {log_file.name}"
    return f"{state} after {(time.perf_counter() - begun) / 60:.1f} min", code == 0


def main(
    doc: str | None,
    name: str,
    plan: Plan,
    *,
    parallel: int,
    first: Callable[[Path, str], StudyRun] | None = None,
    seeds: Sequence[int] = (20, 21, 22),
    player: str = "",
) -> None:
    """Carries out or lists the runs that the command line asks for; exits with 1 where one does not finish.

    Args:
      doc: what the command says of itself.
      name: of the study: its folder in ``runs/``, and of its initial model's.
      plan: the runs of a seed.
      parallel: seeds side by side, unless the command line says otherwise.
      first: the run before all seeds, by the study's folder and the initial model; it has the seed 0.
      seeds: unless the command line says otherwise.
      player: the initial model; empty: of the study's own name, as above.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs") / name)
    parser.add_argument("--seeds", default=",".join(map(str, seeds)))
    parser.add_argument("--parallel", type=int, default=parallel)
    parser.add_argument("--only", default="", help="runs whose SEED/NAME holds this text")
    parser.add_argument("--player", default=player or f"runs/{name}_player/policy")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()

    def do(out: Path, run: StudyRun, seed: int) -> bool:
        title = f"{out.name}/{run.name}"
        if options.only not in title:
            return True
        if options.list:
            done = "finished" if (out / run.name / "finished.json").exists() else ""
            print(f"{title:32}{done:10}{seconds(out / run.name) / 60:8.1f} min")
            return True
        line, finished = carry_out(out, run, seed, options.player)
        print(line, flush=True)
        return finished  # if not: later runs read what it would have written

    def of_seed(seed: str) -> bool:
        out = options.out / seed
        if not options.list:
            out.mkdir(parents=True, exist_ok=True)
        return all(do(out, run, int(seed)) for run in plan(out, options.player))

    if not options.list:
        options.out.mkdir(parents=True, exist_ok=True)
    if first is not None and not do(options.out, first(options.out, options.player), 0):
        raise SystemExit(1)
    with ThreadPoolExecutor(1 if options.list else options.parallel) as pool:
        if not all(list(pool.map(of_seed, options.seeds.split(",")))):
            raise SystemExit(1)
