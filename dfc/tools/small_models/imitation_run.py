"""The loop that makes a small model by imitation: packed ahead, measured, saved, resumed where it was stopped."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from dfc.config import SmallModel
from dfc.errors import Interrupted
from dfc.models.transformer import Params
from dfc.runs.checkpoint import Checkpointer
from dfc.runs.metrics import MetricsWriter
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.training import divergence


class Batch(Protocol):
    """A micro-batch."""

    @property
    def segments(self) -> np.ndarray:
        """int32 [rows, tokens], 0 where nothing lies."""


_B = TypeVar("_B", bound=Batch)


def imitate(
    config: SmallModel,
    folder: RunFolder,
    stop: Stop,
    batches: Callable[[int], Sequence[_B]],
    update: Callable[..., tuple[Params, Any, float]],
    params: Params,
    state: Any,  # noqa: ANN401 - the optimizer's, any tree of arrays
    *,
    checkpoints: Path | None = None,
) -> Params:
    """Returns the weights after all updates; resumes from the newest checkpoint.

    Args:
      config: of the run.
      folder: of the run.
      stop: asked after every update.
      batches: the micro-batches of an update, by its number from 0.
      update: (weights, optimizer state, micro-batches, bounds of `dfc.training.divergence`) -> weights, state, loss.
      params: before the first update.
      state: the optimizer's, before the first update.
      checkpoints: where they lie; None: in the run's folder of that name.

    Raises:
      Interrupted: it was stopped; everything done is saved.
      DivergenceError: an update must not be kept.
    """
    bounds = divergence.bounds(np.asarray(divergence.largest(params)), config.training.max_growth)
    checkpointer = Checkpointer(checkpoints or folder.checkpoints, keep=config.checkpoint.keep)
    restored = checkpointer.restore(like={"params": params, "optimizer": state})
    first = 0
    if restored is not None:
        first = restored.step
        params, state = restored.arrays["params"], restored.arrays["optimizer"]
    folder.rewind(restored.progress["positions"] if restored is not None else dict.fromkeys(folder.positions(), 0))
    metrics = MetricsWriter(folder)
    with Progress(config.steps, start_step=first, shorter=config.shorter) as progress, ThreadPoolExecutor(1) as ahead:
        upcoming = ahead.submit(batches, first)  # the next step's batches are packed while the device works
        for step in range(first, config.steps):
            begun = time.perf_counter()
            given = upcoming.result()
            upcoming = ahead.submit(batches, step + 1)
            params, state, loss = update(params, state, given, bounds)
            done = step + 1
            tokens = sum(int((b.segments > 0).sum()) for b in given)
            seconds = time.perf_counter() - begun
            if done % 20 == 0 or done == config.steps:
                metrics.write(
                    step=done,
                    stage="supervised",
                    iteration=done,
                    metrics={"loss": loss, "tokens": tokens},
                    clock={"seconds": seconds, "tokens_per_second": tokens / seconds},
                )
                progress.update(
                    stage="supervised",
                    iteration=done,
                    iterations=config.steps,
                    step=done,
                    episodes_per_second=config.transcripts_per_step / seconds,
                    tokens_per_second=tokens / seconds,
                    win_rates={},
                )
            if done % config.checkpoint.every == 0 or done == config.steps or stop.requested is not None:
                arrays = {"params": params, "optimizer": state}
                checkpointer.save(done, arrays, {"positions": folder.positions()})
            if stop.requested is not None:
                raise Interrupted(stop.requested)
    return params
