"""The loss on rows that are not trained on, and which of the policies it was taken of becomes the run's.

The loss is that of training, over all rows held out at once and without dropout: the same mean, so it does not depend
on how rows are cut into micro-batches or placed on devices. The weights of every policy that may still be chosen are in
the folder ``candidates`` of the run; no optimizer's state is among them, and beside adapters not the model either.

A kill at any moment changes nothing: a policy is written before the record of its check, and one that no checkpoint
could resume into needing is removed after a checkpoint is saved.
"""

import dataclasses
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from dfc import multihost
from dfc.config import HeldOutConfig
from dfc.errors import CheckpointError, DivergenceError
from dfc.losses import Loss
from dfc.models.sharding import batch_sharding
from dfc.models.transformer import Params
from dfc.runs.checkpoint import Checkpointer
from dfc.samples import TokenBatch
from dfc.training.trainer import Trainer

_FOLDER = "candidates"
_ROUNDING = 1e-9  # 0.7 + 0.1 is below 0.8 as floating-point numbers are added


# ---- when, and which -------------------------------------------------------------------------------------------------


def interval(every: float, updates: int) -> int:
    """Returns the updates between two checks; `every` below 1 is a share, rounded up (transformers' `eval_steps`)."""
    return int(every) if every >= 1 else max(1, math.ceil(every * updates - _ROUNDING))


def kept(losses: Sequence[float], keep: str, tolerance: float) -> int:
    """Returns which check's policy is kept, from 0.

    ``before_lowest`` is Playpen's rule (arXiv 2504.08590, appendix E.1: "the first checkpoint before the minimal
    evaluation loss that has a distance of less than or equal to 0.015 from the minimal evaluation loss"): the first
    check, among those before the lowest loss, whose loss is at most the lowest plus the tolerance; the lowest itself if
    none is. Of equal lowest losses the first one counts.

    The paper's own example adds wrongly: to 0.2315 it adds 0.015 and gets 0.2430. The rule as it is written, and this
    function, take 0.2465. And the paper trained a further model for as many updates, its learning rate falling to zero
    within them; here the checkpoint of the one run is kept, whose rate had not fallen as far.

    Args:
      losses: of every check, at least one.
      keep: ``last``, ``best`` or ``before_lowest``.
      tolerance: of ``before_lowest``.

    Example:
      >>> kept([0.31, 0.2465, 0.2430, 0.2315, 0.25], "before_lowest", 0.015)
      1
      >>> kept([0.31, 0.25, 0.2315, 0.24], "before_lowest", 0.015)
      2
    """
    if keep == "last":
        return len(losses) - 1
    lowest = min(losses)
    within = lowest + (tolerance + _ROUNDING if keep == "before_lowest" else 0.0)
    return next(check for check, loss in enumerate(losses) if loss <= within)


def candidates(losses: Sequence[float], keep: str, tolerance: float) -> list[int]:
    """Returns which checks `kept` may still return, whatever the losses of further ones are.

    With ``best`` it is one. With ``before_lowest`` it is every check that was the lowest when it was made and lies
    within the tolerance of the lowest so far: a still lower one to come can rule out the first of them, not bring back
    others.
    """
    if keep == "last" or not losses:
        return []
    if keep == "best":
        return [kept(losses, keep, tolerance)]
    first = kept(losses, keep, tolerance)
    return [check for check in range(first, len(losses)) if losses[check] < min(losses[:check], default=math.inf)]


# ---- the checks of a run ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
      update: updates done before it.
      loss: the mean.
    """

    update: int
    loss: float


class HeldOut:
    """The checks of one run; `checks` has those made so far, in their order.

    `micro_batches` are the rows held out, packed; with log-probabilities of the reference if the loss reads them.
    """

    def __init__(
        self,
        config: HeldOutConfig,
        *,
        updates: int,
        trainer: Trainer,
        loss: Callable[[jax.Array, TokenBatch, None], Loss],
        mesh: Mesh,
        micro_batches: Sequence[TokenBatch],
        folder: Path,
    ) -> None:
        self.checks: list[Check] = []
        self.config, self._updates = config, updates
        self._trainer, self._micro_batches, self._mesh = trainer, micro_batches, mesh
        self._loss = jax.jit(lambda logprobs, batch: loss(logprobs, batch, None))
        self._every = interval(config.every, updates)
        self._folder = folder / _FOLDER
        self._weights = Checkpointer(self._folder, keep=None)

    def due(self, done: int) -> bool:
        """Returns whether a check comes after so many updates and is not made."""
        return (done % self._every == 0 or done == self._updates) and done not in {c.update for c in self.checks}

    def check(
        self, done: int, params: Params, base_params: Params | None, check_stop: Callable[[], None]
    ) -> dict[str, float]:
        """Takes the loss of the policy after so many updates, and writes its weights if it may be the one kept.

        Returns:
          Metrics by name: ``held_out_loss``, and the loss's own as ``held_out_<name>``.

        Raises:
          DivergenceError: the loss is not finite. Interrupted: `check_stop` raised it; nothing is changed.
        """
        loss, metrics = self._mean(params, base_params, check_stop)
        # The first process decides for all which policy is kept.
        loss = float(multihost.broadcast(str(loss)))
        if not math.isfinite(loss):
            raise DivergenceError(f"after update {done} the loss on the rows held out is {loss}")
        checks = [*self.checks, Check(done, loss)]
        # The weights of the last update are at hand, and in its checkpoint.
        if done < self._updates and done in self._candidates(checks):
            self._weights.save(done, self._trainer.policy(params), {})
        self.checks = checks
        return {"held_out_loss": loss, **{f"held_out_{name}": value for name, value in metrics.items()}}

    def _mean(
        self, params: Params, base_params: Params | None, check_stop: Callable[[], None]
    ) -> tuple[float, dict[str, float]]:
        """Returns the mean loss and its metrics; sums over micro-batches are taken in float64."""
        # Without those of the reference the program is the one that computed them.
        bare = [batch._replace(reference_logprobs=None) for batch in self._micro_batches]
        scored = self._trainer.logprobs(params, bare, base_params=base_params, check_stop=check_stop)
        found = [
            self._loss(logprobs, _placed(batch, self._mesh))
            for logprobs, batch in zip(scored, self._micro_batches, strict=True)
        ]
        weight = sum(float(loss.weight) for loss in found)
        metrics = {name: sum(float(loss.metrics[name]) for loss in found) / weight for name in found[0].metrics}
        return sum(float(loss.total) for loss in found) / weight, metrics

    def kept(self) -> Check:
        """Returns the check whose policy is kept; there is one at least."""
        losses = [check.loss for check in self.checks]
        return self.checks[kept(losses, self.config.keep, self.config.tolerance)]

    def summary(self) -> dict[str, Any]:
        """Returns the checks and which policy is kept, as JSON-ready data."""
        return {
            "keep": self.config.keep,
            "tolerance": self.config.tolerance,
            "kept": self.kept().update,
            "checks": [{"update": check.update, "loss": check.loss} for check in self.checks],
        }

    def policy(self) -> Params | None:
        """Returns the policy that is kept, as it is played; None: that after the last update.

        Raises:
          CheckpointError: its weights are damaged or gone.
        """
        update = self.kept().update
        if update == self._updates:
            return None

        def like(saved: Any) -> Any:  # noqa: ANN401 - any tree of arrays
            places = self._trainer.shardings(stacked=False)
            if places is None:
                return saved
            return jax.tree.map(
                lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),  # type: ignore[no-untyped-call]  # jax leaves it untyped
                saved,
                places,
            )

        restored = self._weights.restore(like, step=update)
        if restored is None:
            raise CheckpointError(
                f"{self._folder} has no weights of update {update}, of which the loss on the rows held out is the one "
                "to keep: put them back, or train again in a new --workdir"
            )
        params: Params = restored.arrays
        return params

    # ---- what survives a stop -----------------------------------------------------------------------------------

    def progress(self) -> list[list[float]]:
        """Returns the checks as JSON-ready data."""
        return [[check.update, check.loss] for check in self.checks]

    def resume(self, progress: Sequence[Sequence[float]]) -> None:
        """Takes the checks of a checkpoint instead of those made so far."""
        self.checks = [Check(int(update), float(loss)) for update, loss in progress]

    def forget(self, checkpoints: Sequence[int]) -> None:
        """Removes the weights that no policy to keep can need, also of a run that resumes from an older checkpoint.

        A checkpoint is saved after each of the numbers of updates in `checkpoints`.
        """
        needed = self._candidates(self.checks)
        for done in checkpoints:
            needed |= self._candidates([check for check in self.checks if check.update <= done])
        self._weights.keep_only(needed)

    def remove(self) -> None:
        """Removes all weights, once the policy is written."""
        if multihost.is_primary():
            shutil.rmtree(self._folder, ignore_errors=True)

    def _candidates(self, checks: Sequence[Check]) -> set[int]:
        losses = [check.loss for check in checks]
        return {checks[n].update for n in candidates(losses, self.config.keep, self.config.tolerance)}


def _placed(batch: TokenBatch, mesh: Mesh) -> TokenBatch:
    """Returns a batch on the devices; every process hands its own devices their rows, the only ones it filled."""
    rows = batch_sharding(mesh)
    placed: TokenBatch = jax.tree.map(
        lambda x: jax.make_array_from_callback(x.shape, rows, np.asarray(x).__getitem__), batch
    )
    return placed
