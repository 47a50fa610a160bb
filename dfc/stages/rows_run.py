"""A run on stored rows while it runs: its state, and what every update needs beside it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dfc.config import Preference, Sft
from dfc.errors import CheckpointError
from dfc.models.transformer import Params
from dfc.runs.checkpoint import Restored
from dfc.training.held_out import HeldOut
from dfc.training.run import ParamsState, PolicyRun


@dataclasses.dataclass
class State(ParamsState):
    """What a checkpoint holds: so many updates.

    Attributes:
      held_out: the checks of rows that are not trained on; None: there are none.
      digests: of the rows, by name.
      unchecked: the record of the last update, not written yet because the check after it was stopped.
    """

    held_out: HeldOut | None
    digests: Mapping[str, str]
    unchecked: dict[str, Any] | None = None

    def progress(self) -> dict[str, Any]:
        """Returns the rest, as JSON."""
        if self.held_out is None:
            return dict(self.digests)
        return {**self.digests, "checks": self.held_out.progress(), "unchecked": self.unchecked}


@dataclasses.dataclass
class RowsRun(PolicyRun[State]):
    """What every update needs beside the state.

    Attributes:
      initial_params: the trained tree before the first update, which that may take.
      base_params: the weights that adapters are trained beside; None: all weights are trained.
      files: name in the checkpoint -> path and digest of rows that must be the same when the run resumes.
      held_out: the checks of rows that are not trained on; None: there are none.
    """

    config: Sft | Preference
    initial_params: Params
    base_params: Params | None
    files: Mapping[str, tuple[Path, str]]
    held_out: HeldOut | None

    UNIT = "update"

    @property
    def learning_rate_key(self) -> str:
        """The setting to lower where training diverges."""
        stage = "sft" if isinstance(self.config, Sft) else "rpo"
        return f"optimizer.learning_rate (of a stage: {stage}.optimizer.learning_rate)"

    def begin(self) -> State:
        """Returns the state of a run that begins."""
        params = self.initial_params
        return State(0, params, self.trainer.initial_state(params), self.held_out, self._digests)

    def template(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Returns arrays of the structure, types and placement that a checkpoint's arrays are to have."""
        del saved
        return self.shapes(self.initial_params)

    def state_of(self, restored: Restored) -> State:
        """Returns the state that a checkpoint holds.

        Raises:
          CheckpointError: the rows are others.
        """
        progress = restored.progress
        for name, (path, digest) in self.files.items():
            if progress[name] != digest:
                raise CheckpointError(
                    f"{path} has changed since the checkpoint of update {restored.step} in {self.folder.path}; put the "
                    "old file back, or train on the new one in a new --workdir"
                )
        if self.held_out is not None:
            self.held_out.resume(progress["checks"])
        params, optimizer = restored.arrays["params"], restored.arrays["optimizer"]
        unchecked = progress.get("unchecked")
        return State(restored.step, params, optimizer, self.held_out, self._digests, unchecked)

    def save(self, state: State) -> None:
        """Writes a checkpoint, unless it is the newest one or there is nothing to save yet."""
        if state.done:
            self.settle()
            super().save(state)

    def settle(self) -> None:
        """Returns once the newest checkpoint is complete, and forgets checks of checkpoints that are gone."""
        super().settle()
        if self.held_out is not None:
            self.held_out.forget(self.checkpointer.steps())

    def full_weights(self) -> Params:
        """Returns the model's weights at full precision; those that were trained beside make room for them."""
        self.base_params = None
        return super().full_weights()

    @property
    def _digests(self) -> dict[str, str]:
        return {name: digest for name, (_, digest) in self.files.items()}
