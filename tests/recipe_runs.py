"""Whole runs in a folder, without a command line: how they begin and stop, and what they have recorded."""

import importlib
import json
import signal

import jax

from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop


def run(path, config, stop=None, *, promotion="strict"):
    """Runs a configuration and returns its folder; `promotion`: that of dtypes, "standard" where optax mixes them."""
    with RunFolder.open(path, config, command="test") as folder, jax.numpy_dtype_promotion(promotion):
        importlib.import_module(f"dfc.{config.module}").run(config, folder, stop or Stop())
    return path


def lines(path, stream="metrics"):
    """What a run has recorded in a stream."""
    return [json.loads(line) for line in (path / f"{stream}.jsonl").read_bytes().splitlines()]


def untimed(path, stream="metrics"):
    """The same without what the clock says: equal for equal runs."""
    return [{name: value for name, value in line.items() if name != "clock"} for line in lines(path, stream)]


class StopsAfter(Stop):
    """Asks for a stop at the n-th look."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    def check(self):
        self.looks -= 1
        if self.looks == 0:
            self._noted = signal.SIGTERM
        super().check()
