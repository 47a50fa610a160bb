"""Small runs of offline training, and what they wrote, for the tests of it."""

import json
import signal

import jax
from offline_rows import pairs, sequences, write_pairs, write_sft

from dfc.config import BatchConfig, CheckpointConfig, ModelConfig, ScheduledOptimizerConfig, Sft, TrainingConfig
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.stages import offline

ROWS = 20


def write_data(folder):
    """Sequences and pairs, as build_data leaves them."""
    folder.mkdir()
    write_sft(folder / "sft.parquet", sequences(ROWS))
    write_pairs(folder / "pairs.parquet", pairs(ROWS))
    return folder


def configured(model, data, kind=Sft, **changes):
    settings = {
        "model": ModelConfig(path=str(model)),
        "data": str(data),
        "epochs": 2,
        "batch_size": 8,
        "optimizer": ScheduledOptimizerConfig(learning_rate=1e-2, schedule="cosine", warmup_ratio=0.2),
        "batch": BatchConfig(row_length=128, micro_batch_rows=8),
        "training": TrainingConfig(scan_layers=False, remat="none"),
        "checkpoint": CheckpointConfig(every=2, keep=2),
    }
    return kind(**settings | changes)


class StopsAfter(Stop):
    """Asks for a stop at the n-th look."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    @property
    def requested(self):
        self.looks -= 1
        if self.looks == 0:
            self._noted = signal.SIGTERM
        return super().requested


def run(path, config, stop=None):
    # optax mixes types within itself.
    with RunFolder.open(path, config, command="test") as folder, jax.numpy_dtype_promotion("standard"):
        offline.run(config, folder, stop or Stop())
    return path


def metrics(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def untimed(path):
    return [{k: v for k, v in line.items() if k != "clock"} for line in metrics(path)]
