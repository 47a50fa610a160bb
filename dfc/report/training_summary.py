"""What training on rows has done: a summary of its records, and the lines a person reads."""

import json
from typing import Any

from dfc.files import write_json
from dfc.runs.run_folder import RunFolder

SUMMARY = "summary.json"


def write(folder: RunFolder, *, objective: str, data: str, rows: int) -> None:
    """Writes ``summary.json`` from what was recorded, of every start of the run.

    Args:
      folder: of the run.
      objective: what was learned, as records name it.
      data: the file of the rows.
      rows: how many there are.
    """
    if not folder.writes:
        return
    records = folder.records("metrics")
    tenth = max(1, len(records) // 10)

    def mean(name: str, some: list[dict[str, Any]]) -> float:
        return sum(float(record["metrics"][name]) for record in some) / len(some)

    summary: dict[str, Any] = {
        "objective": objective,
        "data": data,
        "rows": rows,
        "updates": len(records),
        "trained_tokens": int(sum(record["metrics"]["trained_tokens"] for record in records)),
        "tokens": int(sum(record["metrics"]["tokens"] for record in records)),
        "seconds": sum(record["clock"]["seconds"] for record in records),
    }
    for name in ("loss", "accuracy", "margin"):
        if name in records[0]["metrics"]:
            summary[name] = {"first": mean(name, records[:tenth]), "last": mean(name, records[-tenth:])}
    write_json(folder.path / SUMMARY, summary, indent=2)


def show(folder: RunFolder) -> None:
    """Prints the result and where to look."""
    if not folder.writes:
        return
    found = json.loads((folder.path / SUMMARY).read_text(encoding="utf-8"))
    done = f"{found['objective']}: {found['updates']} updates on {found['rows']:,} rows"
    lines = [
        f"{done}, {found['trained_tokens']:,} tokens trained on in {found['seconds']:.0f} s",
        *(
            f"{name}: {found[name]['first']:.4f} -> {found[name]['last']:.4f} (first and last tenth of the updates)"
            for name in ("loss", "accuracy", "margin")
            if name in found
        ),
    ]
    if folder.adapter.exists():
        lines.append(f"adapter: {folder.adapter}")
    print("\n".join([*lines, f"policy: {folder.policy}"]), flush=True)  # noqa: T201 - the result
