"""Small runs of offline training, and what they wrote, for the tests of it."""

import functools
import signal

import pytest
import recipe_runs
from offline_rows import pairs, save_model, sequences, write_pairs, write_sft

from dfc.config import BatchConfig, CheckpointConfig, ModelConfig, ScheduledOptimizerConfig, Sft, TrainingConfig
from dfc.runs.stop_signals import Stop

ROWS = 20


def write_data(folder):
    """Sequences and pairs, as build_data leaves them."""
    folder.mkdir()
    write_sft(folder / "sft.parquet", sequences(ROWS))
    write_pairs(folder / "pairs.parquet", pairs(ROWS))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model") / "small")


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "built")


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


run = functools.partial(recipe_runs.run, promotion="standard")  # optax mixes types within itself
