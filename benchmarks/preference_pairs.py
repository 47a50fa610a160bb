"""How long it takes to build preference pairs from a folder of trajectories, and in how much memory.

    python benchmarks/preference_pairs.py [--trajectories=1000000] [--samples=20] [--repeats=1] [--folder=]
        [--quick]

Measured: `dfc.rows.selection.select` (which rows: columns of a few bytes per row) and `dfc.rows.preference_pairs.build`
(the same, then reading the selected rows and writing ``sft.parquet`` and ``pairs.parquet``), each in a process of its
own on 2 cores: wall time, processor time, peak resident memory. Nothing is compared against; the goal for a million
trajectories of about 2.5 kB is 2 minutes and 2 GB.

The limit: decompressing every column of every row group that holds a selected row, once; with one pair per 20
trajectories those are all row groups. Next come writing the two files, and the rows' way through a temporary file,
which puts them in order: it takes the uncompressed size of the selected rows on the disk of the result.

The set is made first and not timed: tasks of ten groups, 20 trajectories each, 1,024 per file, about 300 tokens and 1
kB of text per trajectory, one third of them successes. Its random words compress worse than a model's. The page cache
is warm. Prints a table and one JSON line.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from dfc.records.trajectories import SCHEMA
from dfc.records.trajectory_files import write_atomically
from dfc.rows import preference_pairs
from dfc.rows.selection import select

_ROWS_PER_PART = 1024  # as the writer does
_GROUPS = 10
_CORES = 2
_WORDS = np.asarray([f"word{n}" for n in range(4000)])
_MEAN_TOKENS, _TURNS, _WORDS_PER_MESSAGE = 300, 5, 13


def make_set(folder: Path, trajectories: int, samples: int) -> int:
    """Writes a made-up set; returns the bytes of its tokens and messages."""
    content = 0
    for number, start in enumerate(range(0, trajectories, _ROWS_PER_PART)):
        rows = np.arange(start, min(start + _ROWS_PER_PART, trajectories))
        table = _part(np.random.default_rng(number), rows, samples)
        content += sum(table[name].nbytes for name in ("messages", "token_ids", "mask"))
        write_atomically(table, folder / f"part-00000-of-00001-{number:06d}.parquet")
    return content


def _part(numbers: np.random.Generator, rows: np.ndarray, samples: int) -> pa.Table:
    count = len(rows)
    task = rows // samples
    turns = numbers.integers(1, 2 * _TURNS, count).astype(np.int32)
    success = numbers.random(count) < 1 / 3
    lengths = numbers.integers(_MEAN_TOKENS // 2, _MEAN_TOKENS * 3 // 2, count)
    token_ids = numbers.integers(0, 128_000, lengths.sum()).astype(np.int32)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    messages = 2 * int(turns.sum())
    words = numbers.choice(_WORDS, (messages, _WORDS_PER_MESSAGE))
    message = pa.StructArray.from_arrays(
        [pa.array(np.resize(["user", "assistant"], messages)), pa.array([" ".join(line) for line in words])],
        names=["role", "content"],
    )
    message_offsets = pa.array(np.concatenate([[0], 2 * np.cumsum(turns)]).astype(np.int32))
    given = {
        "game": pa.array([f"group{n}" for n in task % _GROUPS]),
        "task": pa.array(task // _GROUPS),
        "sample": pa.array((rows % samples).astype(np.int32)),
        "game_seed": pa.array(task // _GROUPS),
        "outcome": pa.array(np.where(success, "win", "loss")),
        "success": pa.array(success),
        "turns": pa.array(turns),
        "tokens": pa.array(lengths.astype(np.int32)),
        "action_tokens": pa.array((lengths // 2).astype(np.int32)),
        "messages": pa.ListArray.from_arrays(message_offsets, message),
        "token_ids": pa.ListArray.from_arrays(offsets, pa.array(token_ids)),
        "mask": pa.ListArray.from_arrays(offsets, pa.array(np.arange(len(token_ids)) % 2 == 1)),
    }
    same = {
        "options": "{}",
        "split": "train",
        "seat": 0,
        "opponent": "none",
        "model": "made up",
        "model_hash": "0" * 64,
        "sampling": '{"min_p":0.3,"temperature":1.5}',
        "seed": 0,
        "dfc_version": "0",
        "illegal_tries": 0,
        "policy_version": 0,
    }
    columns = []
    for field in SCHEMA:
        value = given.get(field.name)
        if value is None:
            value = pa.array([same[field.name]] * count) if field.name in same else pa.nulls(count)
        columns.append(value.cast(field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def measured(what: str, folder: str) -> dict[str, float]:
    """Runs one stage here and returns its figures."""
    pa.set_cpu_count(_CORES)
    pa.set_io_thread_count(_CORES)
    started, used = time.perf_counter(), time.process_time()
    if what == "select":
        pairs = len(select(Path(folder)).chosen)
    else:
        with tempfile.TemporaryDirectory(dir=folder) as out:
            found = preference_pairs.build(Path(folder), Path(out))
            pairs = sum(group.pairs for group in found)
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - used,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,  # Linux counts KiB
        "pairs": pairs,
    }


def _in_process(what: str, folder: Path) -> dict[str, float]:
    cores = sorted(os.sched_getaffinity(0))[:_CORES]
    command = [sys.executable, __file__, f"--stage={what}", f"--folder={folder}"]
    done = subprocess.run(  # noqa: S603 - this file again
        command, capture_output=True, text=True, check=True, preexec_fn=lambda: os.sched_setaffinity(0, cores)
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main(argv: Sequence[str] | None = None) -> None:
    """Makes the set, measures, prints a table and a JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trajectories", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", default="", help="where the set is made; default: a temporary folder")
    parser.add_argument("--stage", choices=["select", "build"], help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="2,000 trajectories, to see that it runs")
    options = parser.parse_args(argv)
    options.trajectories = 2000 if options.quick else options.trajectories
    if options.stage:
        print(json.dumps(measured(options.stage, options.folder)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder or None) as made:
        folder = Path(made)
        content = make_set(folder, options.trajectories, options.samples)
        on_disk = sum(path.stat().st_size for path in folder.iterdir())
        print(
            f"{options.trajectories:,} trajectories, {content / options.trajectories:,.0f} bytes of tokens and messages"
            f" each, {on_disk / 1e6:,.0f} MB on disk, {platform.machine()}, {_CORES} cores"
        )
        record: dict[str, object] = {
            "trajectories": options.trajectories,
            "bytes_each": round(content / options.trajectories),
            "disk_mb": round(on_disk / 1e6),
        }
        print(f"{'stage':8}{'seconds':>10}{'processor':>11}{'peak MiB':>10}{'pairs':>10}")
        for stage in ("select", "build"):
            runs = [_in_process(stage, folder) for _ in range(options.repeats)]
            middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
            record[stage] = {name: round(value, 2) for name, value in middle.items()}
            print(
                f"{stage:8}{middle['seconds']:10.1f}{middle['cpu_seconds']:11.1f}{middle['peak_mib']:10,.0f}"
                f"{middle['pairs']:10,.0f}"
            )
        print(json.dumps(record))


if __name__ == "__main__":
    main()
