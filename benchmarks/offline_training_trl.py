"""The baseline of `offline_training.py`: TRL's trainers on the same rows, run by an interpreter with trl alone.

    PYTHON benchmarks/offline_training_trl.py --objective=sft --model=FOLDER --rows=FOLDER --mode=padded-1
        --batch-size=32

Rows come as token ids, so TRL prepares and tokenizes nothing. Modes: ``packed-N``, TRL's best-fit packing into rows of
1,024, N of them flattened to one sequence without padding (attention gets a mask of their square); ``padded-N``, N
trajectories, or pairs, padded to the longest. Either way gradients are summed until an update has the same number of
trajectories as ours, up to what packing cannot divide.

Gradient checkpointing is off, the type float32, attention torch's fused one, the optimizer torch's fused AdamW; the
rest is TRL's default. Prints one JSON line.
"""

import argparse
import json
import math
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false"}

import datasets
import numpy as np
import pyarrow.parquet as pq
import tokenizers
import torch
import transformers
import trl

ROW_LENGTH = 1024
PREPARATION_BATCH = 1000


class Prepared(trl.DPOTrainer):  # type: ignore[misc]  # TRL is not installed where types are checked
    """Preference training on rows that are token ids already."""

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:  # noqa: ANN401 - as TRL declares it
        return dataset


def processing() -> transformers.PreTrainedTokenizerFast:
    """Returns a tokenizer that is asked for the token id of padding only."""
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "<end>": 1}, unk_token="<pad>"))  # noqa: S106 - an id
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")  # noqa: S106 - ids


def supervised_rows(path: Path) -> list[dict[str, Any]]:
    """Returns token ids and labels, -100 where the environment wrote."""
    rows = pq.read_table(path).to_pylist()
    return [
        {"input_ids": row["token_ids"], "labels": np.where(row["mask"], row["token_ids"], -100).tolist()}  # TRL's mark
        for row in rows
    ]


def preference_rows(path: Path) -> list[dict[str, Any]]:
    """Returns the prompt and both sides after it; TRL has no mask for what the environment wrote later."""
    found = []
    for row in pq.read_table(path).to_pylist():
        start = row["chosen_mask"].index(True)
        sides = {f"{side}_ids": row[f"{side}_token_ids"][start:] for side in ("chosen", "rejected")}
        found.append({"prompt_ids": row["chosen_token_ids"][:start], **sides})
    return found


class Losses(transformers.TrainerCallback):  # type: ignore[misc]  # transformers leaves it untyped
    """Keeps what the trainer logs."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:  # noqa: ANN401 - as transformers declares it
        """Keeps the loss of an update."""
        if "loss" in logs:
            self.found.append(logs["loss"])


def trainer_of(
    objective: str, model: Path, out: str, rows: datasets.Dataset, mode: str, batch_size: int, updates: int
) -> tuple[transformers.Trainer, Losses]:
    """Returns a trainer that makes `updates` updates of one epoch.

    Args:
      objective: sft or rpo.
      model: its folder.
      out: the trainer's folder.
      rows: to train on.
      mode: see above.
      batch_size: trajectories, or pairs, of an update.
      updates: how many.
    """
    kind, _, count = mode.partition("-")
    settings: dict[str, Any] = {
        "output_dir": out,
        "per_device_train_batch_size": int(count),
        "gradient_accumulation_steps": max(1, batch_size // int(count)),
        "max_steps": updates,
        "learning_rate": 2e-6,
        "lr_scheduler_type": "constant",
        "adam_beta2": 0.95,
        "max_grad_norm": 1.0,
        "optim": "adamw_torch_fused",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "max_length": None,
    }
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
    )
    losses = Losses()
    given = {"model": loaded, "train_dataset": rows, "processing_class": processing(), "callbacks": [losses]}
    if objective == "rpo":
        args = trl.DPOConfig(
            **settings,
            beta=0.1,
            loss_type=["sigmoid", "sft"],
            loss_weights=[1.0, 1.0],
            precompute_ref_log_probs=True,
            precompute_ref_batch_size=int(count),
        )
        return Prepared(args=args, **given), losses
    if kind == "packed":
        packed = trl.pack_dataset(rows, ROW_LENGTH, "bfd", {"batch_size": PREPARATION_BATCH})
        settings["gradient_accumulation_steps"] = max(1, math.ceil(len(packed) / updates / int(count)))
        settings |= {"packing": True, "packing_strategy": "bfd", "max_length": ROW_LENGTH}
    return trl.SFTTrainer(args=trl.SFTConfig(**settings), **given), losses


def main() -> None:
    """Trains one epoch after a warm-up of one update and prints the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--objective", choices=["sft", "rpo"], required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--trial", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    path = options.rows / ("pairs.parquet" if options.objective == "rpo" else "sft.parquet")
    rows = preference_rows(path) if options.objective == "rpo" else supervised_rows(path)
    updates = len(rows) // options.batch_size
    size, figures = options.batch_size, dict[str, Any]()
    with tempfile.TemporaryDirectory() as out:
        datasets.config.HF_DATASETS_CACHE = Path(out) / "cache"
        datasets.disable_progress_bars()

        def made(count: int) -> tuple[transformers.Trainer, Losses]:
            some = datasets.Dataset.from_list(rows[: count * size])
            return trainer_of(options.objective, options.model, out, some, options.mode, size, count)

        for name in ("warm_up_seconds", "second_seconds")[: 2 if options.trial else 1]:
            warm, _ = made(1)
            begun = time.perf_counter()
            warm.train()
            figures[name] = time.perf_counter() - begun
        if not options.trial:
            begun = time.perf_counter()
            trainer, losses = made(updates)
            figures["preparation_seconds"] = time.perf_counter() - begun
            begun, used = time.perf_counter(), time.process_time()
            trainer.train()
            figures["seconds"] = time.perf_counter() - begun
            figures["cpu_seconds"] = time.process_time() - used
            figures["first_loss"] = losses.found[0]
            figures["updates"] = trainer.state.global_step
            figures["epochs"] = trainer.state.epoch
    figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts KiB
    figures["versions"] = {"trl": trl.__version__, "torch": torch.__version__, "threads": torch.get_num_threads()}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
