"""A run that makes a small model by imitation: packed ahead, measured, saved, resumed where it was stopped."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from dfc.config import SmallModel
from dfc.errors import DivergenceError, TrainingError
from dfc.models.transformer import Params
from dfc.runs.checkpoint import Checkpointer, Restored
from dfc.runs.metrics import MetricsWriter
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.training import divergence
from dfc.training.run import ParamsState, TrainingRun, loop

_SHOWN_EVERY = 20  # updates


class Batch(Protocol):
    """A micro-batch."""

    @property
    def segments(self) -> np.ndarray:
        """int32 [rows, tokens], 0 at padding."""


_B = TypeVar("_B", bound=Batch)


@dataclasses.dataclass
class ImitationRun(TrainingRun[ParamsState]):
    """What is open while a small model is made.

    Attributes:
      initial: the state before the first update.
    """

    initial: ParamsState

    UNIT = "update"

    def begin(self) -> ParamsState:
        """Returns the state of a run that begins."""
        return self.initial

    def template(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Returns arrays of the structure, types and placement that a checkpoint's arrays are to have."""
        del saved
        return self.initial.arrays()

    def state_of(self, restored: Restored) -> ParamsState:
        """Returns the state that a checkpoint holds."""
        return ParamsState(restored.step, restored.arrays["params"], restored.arrays["optimizer"])

    def diverged(self, state: ParamsState | None, why: str) -> TrainingError:
        """Returns the refusal: a small model is made again, and no policy of before is of use."""
        del state
        return DivergenceError(why)


class _Done(NamedTuple):
    """An update that was made: its loss, its tokens, its seconds."""

    loss: float
    tokens: int
    seconds: float


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

    `batches` returns the micro-batches of an update, by its number from 0; `update` takes (weights, optimizer state,
    micro-batches, bounds of `dfc.training.divergence`) and returns weights, state, loss. A stop is asked for after
    every update. Checkpoints are in the run's folder of that name by default.

    Raises:
      Interrupted: it was stopped; everything done is saved.
      DivergenceError: an update must not be kept.
    """
    bounds = divergence.bounds(np.asarray(divergence.largest(params)), config.training.max_growth)
    checkpointer = Checkpointer(checkpoints or folder.checkpoints, keep=config.checkpoint.keep)
    run = ImitationRun(folder, stop, checkpointer, ParamsState(0, params, state))
    now = run.restore() or run.begin()
    metrics = MetricsWriter(folder)
    with (
        Progress(config.steps, start_step=now.done, shorter=config.shorter) as progress,
        ThreadPoolExecutor(1) as ahead,
    ):
        upcoming = [ahead.submit(batches, now.done)]  # the next step's batches are packed while the device works

        def once(now: ParamsState) -> _Done:
            begun = time.perf_counter()
            given = upcoming.pop().result()
            upcoming.append(ahead.submit(batches, now.done + 1))
            now.params, now.optimizer, loss = update(now.params, now.optimizer, given, bounds)
            now.done += 1
            return _Done(loss, sum(int((b.segments > 0).sum()) for b in given), time.perf_counter() - begun)

        def show(found: _Done) -> None:
            if now.done % _SHOWN_EVERY and now.done < config.steps:
                return
            metrics.write(
                step=now.done,
                stage="supervised",
                iteration=now.done,
                metrics={"loss": found.loss, "tokens": found.tokens},
                clock={"seconds": found.seconds, "tokens_per_second": found.tokens / found.seconds},
            )
            progress.update(
                stage="supervised",
                iteration=now.done,
                iterations=config.steps,
                step=now.done,
                episodes_per_second=config.transcripts_per_step / found.seconds,
                tokens_per_second=found.tokens / found.seconds,
                win_rates={},
            )

        def due() -> bool:
            return now.done % config.checkpoint.every == 0 or now.done == config.steps

        loop(run, now, once, show, left=lambda: now.done < config.steps, due=due)
    return now.params
