"""What a run on rows saves and resumes: weights, the optimizer's state, checks of rows held out, sizes of records."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from dfc.errors import CheckpointError
from dfc.models.transformer import Params
from dfc.runs.checkpoint import Checkpointer
from dfc.runs.run_folder import RunFolder
from dfc.training.held_out import HeldOut
from dfc.training.trainer import Trainer


@dataclasses.dataclass
class RowsCheckpoints:
    """Where the updates of a run are saved.

    Attributes:
      checkpointer: of the run.
      folder: of the run.
      files: name in the checkpoint -> path and digest of rows that must be the same when the run resumes.
      held_out: the checks of rows that are not; None: there are none.
      saved: how many updates were saved last.
    """

    checkpointer: Checkpointer
    folder: RunFolder
    files: Mapping[str, tuple[Path, str]]
    held_out: HeldOut | None
    saved: int = 0

    def save(
        self,
        done: int,
        params: Params,
        state: Any,  # noqa: ANN401 - of the optimizer
        *,
        unchecked: dict[str, Any] | None = None,
    ) -> None:
        """Saves what so many updates have made, unless it is saved.

        Args:
          done: updates.
          params: the trained tree.
          state: the optimizer's.
          unchecked: the record of the last update, not written yet because the check after it was stopped.
        """
        if done == self.saved:
            return
        progress: dict[str, Any] = {"positions": self.folder.positions()}
        progress |= {name: digest for name, (_, digest) in self.files.items()}
        if self.held_out is not None:
            progress |= {"checks": self.held_out.progress(), "unchecked": unchecked}
        self.checkpointer.save(done, {"params": params, "optimizer": state}, progress)
        self.saved = done
        if self.held_out is not None:
            self.held_out.forget(self.checkpointer.steps())

    def restore(self, trainer: Trainer, params: Params) -> tuple[int, Params, Any, dict[str, Any] | None]:
        """Returns the number of updates done, the trained tree, the optimizer's state and a record without its check.

        Args:
          trainer: that of the run.
          params: the tree before the first update.

        Raises:
          CheckpointError: no checkpoint is whole, or the rows are others.
        """

        def like(_: Any) -> dict[str, Any]:  # noqa: ANN401 - any tree of arrays
            shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), params)  # type: ignore[no-untyped-call]  # jax leaves it untyped
            return {"params": shapes, "optimizer": trainer.abstract_state(params)}

        restored = self.checkpointer.restore(like)
        if restored is None:
            self.folder.rewind(dict.fromkeys(self.folder.positions(), 0))
            return 0, params, trainer.initial_state(params), None
        progress = restored.progress
        for name, (path, digest) in self.files.items():
            if progress[name] != digest:
                raise CheckpointError(
                    f"{path} has changed since the checkpoint of update {restored.step} in {self.folder.path}; put the "
                    "old file back, or train on the new one in a new --workdir"
                )
        if self.held_out is not None:
            self.held_out.resume(progress["checks"])
        self.folder.rewind(progress["positions"])
        print(f"resuming after update {restored.step}; records after it are made again", flush=True)  # noqa: T201 - progress
        self.saved = restored.step
        return restored.step, restored.arrays["params"], restored.arrays["optimizer"], progress.get("unchecked")
