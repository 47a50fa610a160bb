"""The result of training on rows: a summary of its records, and lines for the terminal."""

import json
from collections.abc import Mapping
from typing import Any

from dfc.files import write_json
from dfc.report.tables import Table
from dfc.runs.run_folder import RunFolder

SUMMARY = "summary.json"


def write(
    folder: RunFolder,
    *,
    objective: str,
    rows: Mapping[str, int],
    held_out: Mapping[str, Any] | None = None,
) -> None:
    """Writes ``summary.json`` from what was recorded, of every start of the run.

    Args:
      folder: of the run.
      objective: what was learned, by its name in records.
      rows: how many the file of the data has, and those that a share came from.
      held_out: the checks of rows held out and what was kept (`dfc.training.held_out.HeldOut.summary`).
    """
    if not folder.writes:
        return
    records = folder.records("metrics")
    tenth = max(1, len(records) // 10)
    data, *others = rows

    def mean(name: str, some: list[dict[str, Any]]) -> float:
        return sum(float(record["metrics"][name]) for record in some) / len(some)

    summary: dict[str, Any] = {
        "objective": objective,
        "data": data,
        "rows": rows[data],
        "updates": len(records),
        "trained_tokens": int(sum(record["metrics"]["trained_tokens"] for record in records)),
        "tokens": int(sum(record["metrics"]["tokens"] for record in records)),
        "seconds": sum(record["clock"]["seconds"] for record in records),
    }
    for name in ("loss", "accuracy", "margin"):
        if name in records[0]["metrics"]:
            summary[name] = {"first": mean(name, records[:tenth]), "last": mean(name, records[-tenth:])}
    if others:
        summary["further_data"] = {other: rows[other] for other in others}
    if held_out is not None:
        summary["held_out"] = dict(held_out)
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
    if "held_out" in found:
        lines += _checks(found["held_out"])
    if folder.adapter.exists():
        lines.append(f"adapter: {folder.adapter}")
    print("\n".join([*lines, f"policy: {folder.policy}"]), flush=True)  # noqa: T201 - the result


def _checks(held_out: Mapping[str, Any]) -> list[str]:
    """Returns the checks of rows held out as lines, and why this policy is kept."""
    checks, kept = held_out["checks"], held_out["kept"]
    lowest = min(checks, key=lambda check: float(check["loss"]))["update"]
    why = {
        "last": "the last one",
        "best": "the lowest",
        "before_lowest": f"the first within {held_out['tolerance']:g} of the lowest, that of update {lowest}",
    }[held_out["keep"]]
    rows = tuple((str(c["update"]), f"{c['loss']:.4f}", why if c["update"] == kept else "") for c in checks)
    return Table(f"loss on rows held out, {held_out['data']}", ("update", "loss", "kept"), rows).lines()
