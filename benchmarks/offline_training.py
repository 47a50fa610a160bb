"""How fast trajectories and pairs are trained on, beside TRL: same rows, shapes, batch size, threads, float32.

    python benchmarks/offline_training.py --trl-python=PATH [--sizes=1M,33M] [--objectives=sft,rpo] [--alternations=3]
                                          [--updates=3] [--quick]

PATH is an interpreter with trl and its torch (a virtual environment of its own). Both sides run in processes of their
own, one after another, pinned to the same 2 cores with 2 threads, and take turns.

Rows: conversations of 8 turns and 150 to 900 tokens, a quarter of them action tokens, ragged, random, fixed seed. sft:
packed supervised training on the action tokens. rpo: pairs, beta 0.1, alpha 1, log-probabilities of the reference
computed once before the clock starts. One epoch in updates of 32 trajectories or pairs, AdamW after a clip, nothing
recomputed in the backward pass. The model is a Llama with random weights made by transformers, saved, and read by both.

Ours is what the recipe `offline` runs: `dfc.training.batches` and `dfc.training.trainer.Trainer`. The baseline is TRL's
`SFTTrainer` and `DPOTrainer` (see `offline_training_trl.py`), whose DPO counts every token after the prompt. Each side
takes the cut into micro-batches that needed least time for an update of 8, tried before for each objective and size;
the table names it.

Measured: tokens of all rows, prompts and environment included, per second of the epoch, the same number for both sides,
and action tokens per second. Not counted: loading, preparing rows, compiling or a first update; those stand beside it.
Goal: 1.3 times. Medians with the smallest and largest value; a table and one JSON line. On a machine that others use
too, look at the ratio of the fastest runs: threads of torch wait for each other busily, so that a taken core costs the
baseline more than ours, in processor time as well.
"""

import argparse
import dataclasses
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import rollout_workloads as workloads

import dfc
from dfc.config import OptimizerConfig, Preference, Sft, TrainingConfig
from dfc.models import huggingface
from dfc.packing import Segment, taken_out
from dfc.rows import training_rows as data_rows
from dfc.samples import TokenBatch
from dfc.stages.offline import make_loss
from dfc.training.batch_logprobs import action_capacity
from dfc.training.batches import Batches
from dfc.training.optimizer import make_optimizer
from dfc.training.row_shares import UpdateRows
from dfc.training.trainer import Trainer

CORES = 2
TURNS, SHORTEST, LONGEST, ACTIONS = 8, 150, 900, 0.25
BATCH_SIZE = 32
TRIAL = 4  # by which a trial's update is smaller
BASELINE = Path(__file__).with_name("offline_training_trl.py")
OBJECTIVES = ("sft", "rpo")
# Row length, rows of a micro-batch, micro-batches side by side; a row of pairs holds both sides of the longest.
OUR_CUTS = {
    "sft": ("1024x1x1", "1024x1x2", "1024x4x1"),
    "rpo": ("2048x1x1", "2048x1x2"),
}
THEIR_CUTS = {"sft": ("padded-1", "padded-4", "packed-1"), "rpo": ("padded-1", "padded-2")}


# ---- rows ----------------------------------------------------------------------------------------------------------


def split(numbers: np.random.Generator, total: int, parts: int) -> np.ndarray:
    """Returns lengths of ragged parts, each at least 1, int64 [parts]."""
    return 1 + numbers.multinomial(total - parts, numbers.dirichlet(np.full(parts, 4.0)))


def conversation(numbers: np.random.Generator, vocabulary: int, prompt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns tokens int32 [n] and mask bool [n] of a prompt and turns of reply and observation, the last a reply."""
    length = int(numbers.integers(SHORTEST, LONGEST + 1))
    actions = round(ACTIONS * length)
    replies = split(numbers, actions, TURNS)
    heard = [len(prompt), *split(numbers, length - actions - len(prompt), TURNS - 1)]
    mask = np.repeat([False, True] * TURNS, np.stack([heard, replies], axis=1).ravel())
    token_ids = numbers.integers(2, vocabulary, length).astype(np.int32)  # 0 and 1 are padding and end
    token_ids[: len(prompt)] = prompt
    return token_ids, mask


def write_rows(folder: Path, vocabulary: int, count: int) -> None:
    """Writes `count` trajectories and as many pairs, as `dfc.rows.training_rows` reads them."""
    folder.mkdir()
    numbers = np.random.default_rng(0)

    def prompt() -> np.ndarray:
        return numbers.integers(2, vocabulary, int(numbers.integers(20, 60))).astype(np.int32)

    def column(values: list[np.ndarray], kind: pa.DataType) -> pa.Array:
        return pa.array(values, pa.list_(kind))

    single = [conversation(numbers, vocabulary, prompt()) for _ in range(count)]
    table = {
        "token_ids": column([token_ids for token_ids, _ in single], pa.int32()),
        "mask": column([m for _, m in single], pa.bool_()),
    }
    pq.write_table(pa.table(table), folder / "sft.parquet")
    prompts = [prompt() for _ in range(count)]
    table = {}
    for side in ("chosen", "rejected"):
        own = [conversation(numbers, vocabulary, begin) for begin in prompts]
        table[f"{side}_token_ids"] = column([token_ids for token_ids, _ in own], pa.int32())
        table[f"{side}_mask"] = column([mask for _, mask in own], pa.bool_())
    pq.write_table(pa.table(table), folder / "pairs.parquet")


# ---- ours ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Reference:
    """Log-probabilities of the model before training, per side of a row."""

    values: dict[int, tuple[np.ndarray, ...]]

    def side(self, row: int, side: int) -> np.ndarray:
        """Returns those of one side, float32 [action tokens]."""
        return self.values[row][side]


class Ours:
    """The recipe's parts around one checkpoint and one file of rows."""

    def __init__(self, objective: str, model: Path, rows: Path, cut: str, batch_size: int) -> None:
        self._model, weights = huggingface.load(model, dtype="float32")
        self._row_length, self._micro_batch_rows, workers = map(int, cut.split("x"))
        pairs = objective == "rpo"
        path = rows / ("pairs.parquet" if pairs else "sft.parquet")
        self.rows = data_rows.read(
            path, pairs=pairs, vocabulary=self._model.vocabulary, row_length=self._row_length, tokenizer=_no_tokenizer
        )
        self._batch_size = batch_size
        self.trainer = Trainer(
            self._model,
            make_loss(Preference() if pairs else Sft(), int(self.rows.lengths.min())),
            make_optimizer(OptimizerConfig()),
            training=TrainingConfig(scan_layers=False, remat="none"),
            workers=workers,
        )
        self._weights = weights
        self._reference = self._logprobs() if pairs else None

    def batches(self, reference: Reference | None) -> Batches:
        """Returns the source of one epoch."""
        return Batches(
            self.rows,
            UpdateRows(len(self.rows), batch_size=self._batch_size, epochs=1, seed=0),
            row_length=self._row_length,
            micro_batch_rows=self._micro_batch_rows,
            reference=reference,
        )

    def _logprobs(self) -> Reference:
        params, source = self.trainer.initial_params(self._weights), self.batches(None)
        found = {}
        for update in range(source.updates):
            chosen, layouts = source.layouts(update)
            values = self.trainer.logprobs(params, source[update].micro_batches)
            for layout, value in zip(layouts, values, strict=True):

                def sides(unit: int, chosen: np.ndarray = chosen) -> list[Segment]:
                    return [Segment(*side[int(chosen[unit])]) for side in self.rows.sides]

                of_units = taken_out(layout, np.asarray(value), sides)
                found.update({int(chosen[unit]): own for unit, own in of_units.items()})
        return Reference(found)

    def compile(self) -> None:
        """Runs every program of the epoch once, each on two micro-batches."""
        source, seen = self.batches(self._reference), set()
        for update in range(source.updates):
            for batch in source[update].micro_batches:
                kind = batch.tokens.shape, action_capacity(batch)
                if kind not in seen:
                    seen.add(kind)
                    self.updated([[batch, batch]])

    def updated(self, updates: Sequence[Sequence[TokenBatch]] | None = None) -> list[float]:
        """Makes updates from fresh weights, those of the epoch if none are given; returns their losses."""
        params = self.trainer.initial_params(jax.tree.map(np.copy, self._weights))
        state = self.trainer.initial_state(params)
        losses = []
        given = (b.micro_batches for b in self.batches(self._reference).iterate(0)) if updates is None else updates
        for micro_batches in given:
            update = self.trainer.update(params, state, micro_batches, donate=True)
            params, state = update.params, update.optimizer_state
            losses.append(update.loss)
        jax.block_until_ready(params)  # type: ignore[no-untyped-call]  # jax leaves it untyped
        return losses

    def first(self) -> list[TokenBatch]:
        """Returns the micro-batches of the first update."""
        return self.batches(self._reference)[0].micro_batches


def _no_tokenizer() -> Any:  # noqa: ANN401 - never called
    raise AssertionError("rows of token ids need no tokenizer")


def our_side(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures of one process of dfc."""
    begun = time.perf_counter()
    ours = Ours(options.objective, options.model, options.rows, options.cut, options.batch_size)
    figures: dict[str, Any] = {"preparation_seconds": time.perf_counter() - begun}
    begun = time.perf_counter()
    ours.compile()
    figures["compile_seconds"] = time.perf_counter() - begun
    if options.trial:
        begun = time.perf_counter()
        ours.updated([ours.first()])
        figures["second_seconds"] = time.perf_counter() - begun
    else:
        begun, used = time.perf_counter(), time.process_time()
        losses = ours.updated()
        figures |= {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - used}
        figures |= {"first_loss": losses[0], "updates": len(losses), "epochs": 1.0}
    figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts KiB
    return figures


# ---- both ----------------------------------------------------------------------------------------------------------


def in_process(side: str, trl_python: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Runs one side on its cores and returns its figures."""
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    command = [sys.executable, __file__, "--side"] if side == "ours" else [trl_python, str(BASELINE)]
    environment = os.environ | {"OMP_NUM_THREADS": str(CORES), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(  # noqa: S603 - this file or its baseline
        [*command, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    if done.returncode:
        raise SystemExit(f"{side} failed: {' '.join(command + list(arguments))}\n{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def fastest(side: str, cuts: Sequence[str], trl_python: str, arguments: Sequence[str]) -> tuple[str, dict[str, float]]:
    """Returns the cut whose first update takes least time, and the seconds of all."""
    name = "--cut" if side == "ours" else "--mode"
    seconds = {
        cut: in_process(side, trl_python, [*arguments, f"{name}={cut}", "--trial"])["second_seconds"] for cut in cuts
    }
    return min(seconds, key=seconds.__getitem__), seconds


def compared(objective: str, size: str, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Returns one row of the table: both sides on the rows of a folder."""
    rows = pq.read_table(work / "rows" / ("pairs.parquet" if objective == "rpo" else "sft.parquet"))
    flags = [name for name in rows.column_names if name.endswith("mask")]
    tokens = sum(len(row) for name in flags for row in rows[name].to_pylist())
    actions = sum(sum(row) for name in flags for row in rows[name].to_pylist())
    common = [f"--objective={objective}", f"--model={work / 'model'}"]
    trial = [*common, f"--rows={work / 'trial'}", f"--batch-size={options.batch_size // TRIAL}"]
    arguments = [*common, f"--rows={work / 'rows'}", f"--batch-size={options.batch_size}"]
    cuts: dict[str, str] = {}
    tried: dict[str, dict[str, float]] = {}
    for side, all_cuts in (("ours", OUR_CUTS), ("trl", THEIR_CUTS)):
        choice = all_cuts[objective][:1] if options.quick else all_cuts[objective]
        cuts[side], tried[side] = fastest(side, choice, options.trl_python, trial)
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "trl": []}
    for _, side in itertools.product(range(options.alternations), runs):
        cut = f"--cut={cuts['ours']}" if side == "ours" else f"--mode={cuts['trl']}"
        runs[side].append(in_process(side, options.trl_python, [*arguments, cut]))
    losses = [runs[side][0]["first_loss"] for side in runs]
    if abs(losses[0] - losses[1]) > 0.05 * max(losses):
        raise SystemExit(f"{objective}, {size}: the first losses are {losses}: not the same work")
    rates = {side: [tokens / run["seconds"] for run in own] for side, own in runs.items()}
    return {
        "objective": objective,
        "size": size,
        "tokens": tokens,
        "action_tokens": actions,
        "rows": rows.num_rows,
        "cuts": cuts,
        "tried_seconds": tried,
        "tokens_per_second": rates,
        "ratio": statistics.median(rates["ours"]) / statistics.median(rates["trl"]),
        "fastest_ratio": max(rates["ours"]) / max(rates["trl"]),
        "cpu_ratio": statistics.median(r["cpu_seconds"] for r in runs["trl"])
        / statistics.median(r["cpu_seconds"] for r in runs["ours"]),
        "runs": runs,
    }


def shown(row: dict[str, Any]) -> list[str]:
    """Returns the lines of one row of the table."""
    lines = []
    for side, rates in row["tokens_per_second"].items():
        runs, middle = row["runs"][side], statistics.median(rates)
        before = {
            name: statistics.median(run.get(f"{name}_seconds", 0) for run in runs)
            for name in ("preparation", "compile", "warm_up")
        }
        lines.append(
            f"{row['objective']:5}{row['size']:6}{side:6}{row['cuts'][side]:10}{middle:10,.0f} "
            f"({min(rates):,.0f}..{max(rates):,.0f})".ljust(56)
            + f"{middle * row['action_tokens'] / row['tokens']:9,.0f}"
            + f"{statistics.median(run['cpu_seconds'] for run in runs) / (row['tokens'] / 1000):12.2f}"
            + f"{before['preparation']:9.1f}{before['compile'] + before['warm_up']:9.1f}"
            + f"{statistics.median(run['peak_mib'] for run in runs):10,.0f}"
            + (f"{row['ratio']:8.2f}{row['fastest_ratio']:9.2f}{row['cpu_ratio']:8.2f}" if side == "ours" else "")
        )
    return lines


def main() -> None:
    """Runs the benchmark, or one process of dfc."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1M,33M")
    parser.add_argument("--objectives", default=",".join(OBJECTIVES))
    parser.add_argument("--alternations", type=int, default=3)
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one small update: to see that it runs")
    parser.add_argument("--trl-python", default="")
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE, help=argparse.SUPPRESS)
    for hidden in ("--objective", "--cut"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    for hidden in ("--model", "--rows"):
        parser.add_argument(hidden, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--side", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--trial", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(our_side(options)))
        return
    if not options.trl_python:
        raise SystemExit("expected --trl-python=PATH: make a virtual environment and install trl and torch into it")
    if options.quick:
        options.alternations, options.updates, options.batch_size, options.sizes = 1, 1, 4, "0.5M"
    load = os.getloadavg()[0]
    print(
        f"{CORES} cores, {CORES} threads, updates of {options.batch_size}, {options.updates} to an epoch, "
        f"{options.alternations} alternations; load of the machine before: {load:.1f}\n"
        "                                                    action tokens   cpu s per    seconds before\n"
        "what size  side  cut       tokens/s, median (range)            /s"
        "   1k tokens prepared  warm-up  peak MiB   ratio  fastest  by cpu"
    )
    rows = []
    for size in options.sizes.split(","):
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            workloads.save_random(size, work / "model")
            vocabulary = workloads.SIZES[size][0]
            write_rows(work / "rows", vocabulary, options.batch_size * options.updates)
            write_rows(work / "trial", vocabulary, options.batch_size // TRIAL)
            for objective in options.objectives.split(","):
                rows.append(compared(objective, size, work, options))
                print("\n".join(shown(rows[-1])), flush=True)
    print(
        json.dumps(
            {
                "benchmark": "offline_training",
                "dfc": dfc.__version__,
                "jax": jax.__version__,
                "load": [load, os.getloadavg()[0]],
                "rows": rows,
            }
        )
    )


if __name__ == "__main__":
    main()
