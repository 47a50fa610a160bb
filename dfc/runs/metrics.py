"""Metrics of a run: ``metrics.jsonl`` is the record, TensorBoard a view of it."""

import dataclasses
import shutil
import sys
from collections.abc import Mapping
from types import ModuleType, TracebackType
from typing import Any, Self, cast

from dfc.runs.run_folder import RunFolder


@dataclasses.dataclass(frozen=True, kw_only=True)
class IterationRecord:
    """The results of an iteration, as recorded and shown.

    Attributes:
      stage, iteration, step, metrics, clock: as `MetricsWriter.write` takes them; the clock has ``episodes_per_second``
        and ``tokens_per_second``.
      iterations: of the stage.
      win_rates: the latest by game, 0 to 1.
      cost: what the run has cost so far, as text.
    """

    stage: str
    iteration: int
    iterations: int
    step: int
    metrics: Mapping[str, float]
    clock: Mapping[str, float]
    win_rates: Mapping[str, float]
    cost: str = ""


class MetricsWriter:
    """Writes metrics to ``metrics.jsonl`` and to TensorBoard; does nothing where the folder does not write.

    Make it after `RunFolder.rewind`: TensorBoard's files are built again from what ``metrics.jsonl`` holds then, so
    that a resumed run shows no point twice.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._board: Any = None
        if not folder.writes:
            return
        shutil.rmtree(folder.tensorboard, ignore_errors=True)
        self._board = _tensorboard().SummaryWriter(str(folder.tensorboard))
        for record in folder.records("metrics"):
            self._show(record)

    def write(
        self, *, step: int, stage: str, iteration: int, metrics: Mapping[str, float], clock: Mapping[str, float]
    ) -> None:
        """Records the metrics of one iteration.

        `step` counts iterations of the whole run so far (TensorBoard's horizontal axis), `iteration` those within the
        stage, e.g. ``divide g1``. The configuration determines `metrics`; not finite ones are written as text. `clock`
        is everything that reads a clock: ``time`` (seconds since 1970, used by TensorBoard), durations, rates.
        """
        if not self._folder.writes:
            return
        record = {
            "step": int(step),
            "stage": stage,
            "iteration": int(iteration),
            "metrics": {name: float(value) for name, value in metrics.items()},
            "clock": {name: float(value) for name, value in clock.items()},
        }
        self._folder.append("metrics", [record])
        self._folder.flush()
        self._show(record)

    def close(self) -> None:
        """Writes what TensorBoard's writer holds back."""
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _show(self, record: Mapping[str, Any]) -> None:
        time = record["clock"].get("time")
        for prefix, values in (("", record["metrics"]), ("clock/", record["clock"])):
            for name, value in values.items():
                if name != "time":
                    # float() also reads back the texts "nan" and "inf" of a resumed run.
                    self._board.add_scalar(prefix + name, float(value), record["step"], walltime=time)


def _tensorboard() -> ModuleType:
    """Returns tensorboardX; nothing but a run in progress needs it.

    It imports torch where that is installed, in case it is given tensors: 1.4 of 1.5 seconds. It is given numbers.
    """
    hidden = "torch" not in sys.modules
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        import tensorboardX  # noqa: PLC0415 - slow to import
    finally:
        if hidden:
            del sys.modules["torch"]
    return cast("ModuleType", tensorboardX)
