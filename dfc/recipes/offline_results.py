"""What training on rows leaves: the policy, a summary, and the lines a person reads."""

import json
from pathlib import Path
from typing import Any

import jax

from dfc.config import Preference, Sft
from dfc.data.rows import TrainingRows
from dfc.files import write_json
from dfc.models import huggingface
from dfc.models.safetensors_format import Location
from dfc.models.transformer import Params
from dfc.rollout.trained_weights import lora_config
from dfc.runs.run_folder import RunFolder
from dfc.training import export
from dfc.training.trainer import Trainer

SUMMARY = "summary.json"


def save_policy(
    config: Sft | Preference,
    source: Location,
    trainer: Trainer,
    params: Params,
    mesh: jax.sharding.Mesh,
    path: Path,
    adapter: Path,
) -> None:
    """Writes the policy, and its adapters if these are what was trained."""
    export.save_policy(
        path,
        adapter,
        trainer.policy(params),
        model=trainer.config,
        lora=lora_config(config.adapter),
        source=source,
        name=config.model.path,
        # The files have what four bits have lost; the weights trained beside are gone by now.
        weights=lambda: huggingface.load(source, mesh=mesh, dtype=config.model.dtype)[1],
    )


def objective(config: Sft | Preference) -> str:
    """Returns what is learned, as records name it."""
    return "supervised" if isinstance(config, Sft) else "preference"


def summarize(folder: RunFolder, config: Sft | Preference, rows: TrainingRows) -> None:
    """Writes ``summary.json`` from what was recorded, of every start of the run."""
    if not folder.writes:
        return
    records = folder.records("metrics")
    tenth = max(1, len(records) // 10)

    def mean(name: str, some: list[dict[str, Any]]) -> float:
        return sum(float(record["metrics"][name]) for record in some) / len(some)

    summary: dict[str, Any] = {
        "objective": objective(config),
        "data": str(rows.path),
        "rows": len(rows),
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
