"""What the run folders of the Divide-Fuse-Conquer study hold, for its tables and figures."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from dfc.evaluation.statistics import Record

TITLES = {
    "dfc": "Divide-Fuse-Conquer",
    "naive_multi": "Naive-MSRL",
    "naive_single": "Naive-SSRL",
    "imitation": "SFT on wins",
    "dfc_at_once": "fused at once",
    "dfc_ties": "fused by TIES",
    "initial": "base model",
}


def lines(path: Path, stream: str) -> list[dict[str, Any]]:
    """Returns the whole lines of a stream."""
    file = path / f"{stream}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")] if file.exists() else []


def runs_of(out: Path, name: str, *, finished: bool = True) -> dict[int, Path]:
    """Returns the run folders of a name by seed."""
    found = {int(path.name.rpartition("-")[2]): path for path in sorted(out.glob(f"{name}-[0-9]*")) if path.is_dir()}
    return {seed: path for seed, path in found.items() if not finished or (path / "finished.json").exists()}


def final_records(path: Path, policy: str, opponent: str) -> dict[str, Record]:
    """Returns the final matches' counts per game."""
    counts: dict[str, Record] = defaultdict(Record)
    for row in lines(path, "evaluations"):
        if row["stage"] == "final" and row["policy"] == policy and row["opponent"] in (opponent, "none"):
            counts[row["game"]] += Record.from_json(row)
    return dict(counts)


def curve(path: Path, metric: str) -> list[float]:
    """Returns a metric of every iteration that has it."""
    return [line["metrics"][metric] for line in lines(path, "metrics") if metric in line["metrics"]]
