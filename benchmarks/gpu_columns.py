"""The columns of docs/performance.md that need a GPU: runs the benchmarks on it and prints them as that page's tables.

    make benchmark-gpu, or python benchmarks/gpu_columns.py [--any-device] [--quick]

It wants jax and torch that both see the GPU. Without one it stops, unless ``--any-device`` asks for the tables of
whatever device there is, which are no figures of a GPU and say so. ``--quick`` makes everything small, to see that it
runs. What each figure is, is said in the benchmarks: rollouts.py, models.py, cold_start.py.

Beside `generate` both sides compute in float32, where jax and torch have settings of their own for products on a GPU
(TF32): compare with that in mind. Training is in bfloat16, ours alone, with the share of the card's published rate.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

Row = dict[str, Any]
HERE = Path(__file__).parent
SINGLE_AIMS = {"1M": 3.0, "5M": 2.2, "33M": 1.7}
TURN_AIMS = {"generate": 4.0, "generate, cache handed on": 1.0}


def measured(script: str, arguments: Sequence[str]) -> Row:
    """Returns the JSON line that a benchmark ends with; ends the program with what it wrote if it fails."""
    command = [sys.executable, str(HERE / script), *arguments]
    print(f"{' '.join(command)} ...", file=sys.stderr, flush=True)
    made = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - of this folder
    if made.returncode:
        raise SystemExit(f"{script} failed with {made.returncode}:\n{made.stdout[-2000:]}\n{made.stderr[-2000:]}")
    found: Row = json.loads(made.stdout.splitlines()[-1])
    return found


def table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a heading and a table as Markdown has them."""
    lines = [names, ["---"] * len(names), *rows]
    return f"## {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def ratio(found: Row) -> str:
    """Returns a spread as text: median (smallest to largest)."""
    return f"**{found['median']:.2f}** ({found['min']:.2f} to {found['max']:.2f})"


def rollout_tables(line: Row, device: str) -> list[str]:
    """Returns the tables of one turn and of several."""
    one = [
        [
            row["size"],
            f"{SINGLE_AIMS[row['size']]:g}" if row["size"] in SINGLE_AIMS else "none",
            f"{row['ours']['tokens_per_second']['median']:,.0f}",
            f"{row['baseline']['tokens_per_second']['median']:,.0f}",
            ratio(row["ratio"]),
        ]
        for row in line["parts"]["single"]
    ]
    several = [
        [f"{row['turns']}, {row['kind']}", name, f"{TURN_AIMS.get(name, 0):g}", ratio(found)]
        for row in line["parts"]["turns"]
        for name, found in row["ratio"].items()
        if name in TURN_AIMS
    ]
    names = ["weights", "aim", f"ours, tokens/s, {device}", "generate", "ratio"]
    return [
        table("One turn", names, one),
        table("Several turns", ["turns", "beside", "aim", f"ratio, {device}"], several),
    ]


def training_table(line: Row, device: str) -> list[str]:
    """Returns the table of training steps; beside torch on a CPU, against the card's rate on a GPU."""
    rows = []
    for row in line["rows"]:
        share = row.get("utilisation", row.get("share"))
        speed = row.get("tokens_per_second", row.get("ours"))
        beside = f"{row['ratio']:.2f}" if "ratio" in row else "not run"
        name = f"{row['size']}, {row.get('program', 'training')}"
        rows.append([name, f"{speed:,.0f}", "card unknown" if share is None else f"{share:.0%}", beside])
    names = ["weights", f"tokens/s, {device}", "share of the rate of products", "beside torch"]
    return [table("Training", names, rows)]


def start_table(line: Row, device: str) -> list[str]:
    """Returns the table of starts."""
    rows = [
        [name, f"{row['wall']:.1f}", f"{row['programs']:.0f}", f"{row['compiled']:.0f}"]
        for name, row in line["starts"].items()
    ]
    return [table("Cold start", ["compiled programs", f"seconds, {device}", "programs", "compiled"], rows)]


def main() -> None:
    """Runs everything and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--any-device", action="store_true", help="also without a GPU")
    parser.add_argument("--quick", action="store_true", help="everything small, to see that it runs")
    parser.add_argument("--config", default="configs/quickstart.py", help="what the cold start starts")
    options = parser.parse_args()
    backend = jax.default_backend()
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    if backend != "gpu" and not options.any_device:
        raise SystemExit(
            f"no GPU: jax runs on {device} here. Install jax[cuda13] on a machine with one, "
            "or give --any-device (with --quick: minutes) to see the tables without it"
        )
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch wants room beside jax
    quick = ["--quick"] * options.quick
    small = backend != "gpu" and options.quick
    training = ["--quick"] if small else ["--repeats=5"]
    parts: list[tuple[str, list[str], Callable[[Row, str], list[str]]]] = [
        ("rollouts.py", ["--only=single,turns", "--repeats=3", *quick], rollout_tables),
        ("models.py", training, training_table),
        ("cold_start.py", [f"--config={options.config}", *quick], start_table),
    ]
    if backend != "gpu":
        print(f"No figures of a GPU: this is {device}.\n")
    for script, arguments, tables in parts:
        for text in tables(measured(script, arguments), device):
            print(text, flush=True)


if __name__ == "__main__":
    main()
