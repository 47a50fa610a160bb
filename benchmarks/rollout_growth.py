"""How decoding speed and memory grow with conversations, their length and the model.

    python benchmarks/rollout_growth.py [--repeats=3] [--plot=docs/performance_growth.svg] [--quick]

Measured: 32 tokens sampled by every conversation, float32, temperature 1 and min-p 0.1, no stop tokens. One of three is
varied around a middle point (5M weights, 64 conversations, 1,024 tokens each): conversations in flight, tokens each
already has, weights. The conversations of a point are forks of one, so that the point does not take the time of
prefilling all of them; a fork has a cache of its own, and what is sampled differs. After every run all are rolled back
to where they were.

Memory is the process's largest resident size, beside what must be there: weights and the cache of all conversations
at the point's length. Every point runs in a process of its own, which decodes once before the clock starts; medians
with the smallest and largest value. There is no baseline: these are curves. Expected is that a step for some tens of
conversations costs little more than for one, since weights are read once for all, and that from there tokens per second
stay level; that memory is weights and cache and little beside; that the cost of the context is attention's alone.

Prints a table, one JSON line, and draws the three curves where matplotlib is installed.
"""

import argparse
import dataclasses
import json
import os
import resource
import runpy
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import rollout_workloads as workloads
from rollout_workloads import SIZES, seconds_of, shown, spread

import dfc

STEPS = 32


@dataclasses.dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes:
      size: name of the model's shape. slots: conversations in flight. context: tokens of each, those sampled included.
    """

    size: str = "5M"
    slots: int = 64
    context: int = 1024


MIDDLE = Point()
AXES: dict[str, tuple[Point, ...]] = {
    "slots": tuple(dataclasses.replace(MIDDLE, slots=n) for n in (1, 4, 16, 64, 128, 256)),
    "context": tuple(dataclasses.replace(MIDDLE, context=n) for n in (256, 512, 1024, 2048, 4096, 8192)),
    "size": tuple(dataclasses.replace(MIDDLE, size=name) for name in SIZES),
}
QUICK: dict[str, tuple[Point, ...]] = {
    "slots": (Point("0.5M", 1, 64), Point("0.5M", 4, 64)),
    "context": (Point("0.5M", 4, 64), Point("0.5M", 4, 128)),
    "size": (Point("0.5M", 4, 64), Point("1M", 4, 64)),
}


def measured(point: Point, folder: Path, repeats: int) -> dict[str, Any]:
    """Returns one point's figures, measured in this process."""
    config, params = workloads.load(folder)
    token_ids = workloads.random_tokens(config.vocabulary, 1)
    engine = workloads.make_engine(config, params, slots=point.slots, max_length=point.context)
    slots: list[int] = []
    fill_seconds = seconds_of(
        lambda: slots.extend(workloads.fill(engine, point.slots, point.context - STEPS - 1, token_ids))
    )
    times = workloads.decode_seconds(engine, slots, STEPS, repeats)
    cache = config.layers * 2 * config.kv_heads * config.head_dim * point.slots * point.context * 4
    return {
        **dataclasses.asdict(point),
        "weights": workloads.weight_count(params),
        "tokens_per_second": spread([point.slots * STEPS / t for t in times]),
        "milliseconds_per_step": 1e3 * statistics.median(times) / STEPS,
        "fill_seconds": fill_seconds,
        "weight_bytes": 4 * workloads.weight_count(params),
        "cache_bytes": cache,
        "largest_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # kilobytes on Linux
    }


def in_a_process(point: Point, folder: Path, repeats: int) -> dict[str, Any]:
    """Returns one point's figures, measured in a process of its own; those of the part that failed, if it does."""
    command = [sys.executable, __file__, f"--point={json.dumps(dataclasses.asdict(point))}", f"--folder={folder}"]
    made = subprocess.run(  # noqa: S603 - this file
        [*command, f"--repeats={repeats}"], capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise SystemExit(f"{point} failed with {made.returncode}:\n{made.stderr[-2000:]}")
    row: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return row


def draw(found: dict[str, list[dict[str, Any]]], path: Path) -> bool:
    """Draws tokens per second and memory along each axis; returns False where matplotlib is not installed."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - optional
    except ImportError:
        return False
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "dfc"  # the same figures give the same file
    import matplotlib.pyplot as plt  # noqa: PLC0415 - after the choice of a canvas

    labels = {"slots": "conversations in flight", "context": "tokens in each", "size": "weights (millions)"}
    figure, axes = plt.subplots(2, len(found), figsize=(11, 6), sharex="col", sharey="row", layout="constrained")
    for column, (axis, rows) in enumerate(found.items()):
        x = [row["weights"] / 1e6 if axis == "size" else row[axis] for row in rows]
        rates = [row["tokens_per_second"] for row in rows]
        middle = [rate["median"] for rate in rates]
        reach = [[m - r["min"] for m, r in zip(middle, rates, strict=True)]]
        reach.append([r["max"] - m for m, r in zip(middle, rates, strict=True)])
        upper, lower = axes[0][column], axes[1][column]
        upper.errorbar(x, middle, yerr=reach, marker="o", capsize=3)
        upper.set(yscale="log", ylabel="tokens sampled per second" if column == 0 else None)
        lower.plot(x, [row["largest_bytes"] / 1e9 for row in rows], marker="o", label="the process, at most")
        needed = [(row["weight_bytes"] + row["cache_bytes"]) / 1e9 for row in rows]
        lower.plot(x, needed, marker="s", linestyle="--", label="weights and cache")
        lower.set(xscale="log", yscale="log", xlabel=labels[axis], ylabel="memory, GB" if column == 0 else None)
        lower.set_xticks(x, [f"{value:,.3g}" if axis == "size" else f"{value:,}" for value in x])
        lower.minorticks_off()
        for plot in (upper, lower):
            plot.grid(visible=True, alpha=0.3)
    axes[1][0].legend()
    figure.suptitle(f"Around {MIDDLE.size} weights, {MIDDLE.slots} conversations, {MIDDLE.context:,} tokens each")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    return True


def main() -> None:
    """Measures, prints and draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="measured runs of a point")
    parser.add_argument("--plot", type=Path, default=Path("docs/performance_growth.svg"), help="a .svg or .png file")
    parser.add_argument("--quick", action="store_true", help="six small points and no plot, to see that it runs")
    parser.add_argument("--point", help="measures one point here; what the program calls itself with")
    parser.add_argument("--folder", type=Path, help="the model of --point")
    options = parser.parse_args()
    if options.point:
        runpy.run_module("dfc.launch.memory")["keep_freed_memory"]()  # what `python -m dfc.launch` does first
        print(json.dumps(measured(Point(**json.loads(options.point)), options.folder, options.repeats)))
        return

    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    print(f"{device}, {workloads.threads()} threads, load average {os.getloadavg()[0]:.1f} before the start\n")
    print(
        f"{'varied':9}{'size':6}{'slots':>6}{'context':>9}{'tokens/s':>28}{'ms/step':>9}"
        f"{'process GB':>12}{'least GB':>10}"
    )
    known: dict[Point, dict[str, Any]] = {}
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as name:
        for axis, points in (QUICK if options.quick else AXES).items():
            found[axis] = []
            for point in points:
                folder = Path(name) / point.size
                if not folder.exists():
                    workloads.save_random(point.size, folder)
                if point not in known:
                    known[point] = in_a_process(point, folder, 1 if options.quick else options.repeats)
                row = known[point]
                found[axis].append(row)
                print(
                    f"{axis:9}{point.size:6}{point.slots:6}{point.context:9,}{shown(row['tokens_per_second']):>28}"
                    f"{row['milliseconds_per_step']:9.2f}{row['largest_bytes'] / 1e9:12.2f}"
                    f"{(row['weight_bytes'] + row['cache_bytes']) / 1e9:10.2f}",
                    flush=True,
                )
    if not options.quick and not draw(found, options.plot):
        print("no plot: matplotlib is not installed (pip install matplotlib)")
    line = {
        "benchmark": "rollout_growth",
        "dfc": dfc.__version__,
        "jax": jax.__version__,
        "device": device,
        "threads": workloads.threads(),
        "steps": STEPS,
        "axes": found,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
