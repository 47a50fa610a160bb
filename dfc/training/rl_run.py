"""A run of reinforcement learning while it runs: its state, what every step needs beside it, how both survive a stop.

Resume order: 1. the run folder's streams are cut to the checkpoint's sizes; 2. weights, optimizer state, finished
group policies and past policies are read; 3. the loop resumes at the checkpoint's stage and iteration. Every random
number is derived from (seed, stage, iteration), so what follows is the same, bit for bit, as without the stop.

A stop does not wait for the end of an iteration: its games are thrown away, the state before it is saved, and the
iteration begins again when the run resumes.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from dfc.config import RlRunConfig, SamplingConfig
from dfc.errors import CheckpointError, Interrupted, TrainingError
from dfc.models import huggingface
from dfc.models.lora import LoraConfig
from dfc.models.transformer import Adapters, Params
from dfc.rollout.trained_weights import lora_config
from dfc.rollout.workers import PolicyWeights, RolloutWorkers
from dfc.runs import players_on_record
from dfc.runs.checkpoint import Checkpointer
from dfc.runs.costs import Costs
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.training import export
from dfc.training.forecast import Pace
from dfc.training.online_trainer import make_trainer
from dfc.training.trainer import LossFunction, Trainer, gone


@dataclasses.dataclass
class State:
    """What a checkpoint holds: where the run is, and the weights it needs from here on."""

    groups: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # of games, ready for JSON; of some methods
    stage: int = 0
    iteration: int = 0
    steps: int = 0
    best: Params = None
    optimizer: Any = None
    policies: dict[str, Params] = dataclasses.field(default_factory=dict)  # finished group policies, not yet fused
    pool: dict[str, Params] = dataclasses.field(default_factory=dict)  # past policies, oldest first
    met: dict[str, float] = dataclasses.field(default_factory=dict)  # win rate when a past policy was last met
    win_rates: dict[str, float] = dataclasses.field(default_factory=dict)
    previous: float = 0.0
    highest: float = 0.0


_ARRAYS = ("best", "optimizer", "policies", "pool")


@dataclasses.dataclass
class TrainingRun:
    """What every step needs beside the state."""

    config: RlRunConfig
    folder: RunFolder
    stop: Stop
    workers: RolloutWorkers
    trainer: Trainer
    checkpointer: Checkpointer
    initial_params: Params  # the initial policy as the trainer trains it
    reference_params: Params  # the initial policy as the trainer reads it, or None if it does not
    _costs: Costs | None = None
    missed: float | None = None  # share of the last average of adapters that their rank could not hold
    saved: int | None = None  # number of the newest checkpoint
    pace: Pace = dataclasses.field(default_factory=Pace)  # of the games before the first step

    @classmethod
    def open(
        cls, config: RlRunConfig, folder: RunFolder, stop: Stop, loss: LossFunction, *, reads_reference: bool
    ) -> "TrainingRun":
        """Loads the model, and makes what plays and what trains it.

        Args:
          config: of the run.
          folder: of the run.
          stop: asked between calls of the engine and between micro-batches.
          loss: what is trained on.
          reads_reference: whether the loss compares with the initial policy.
        """
        print(f"loading {config.model.path}", flush=True)  # noqa: T201 - progress
        sampling, nf4 = SamplingConfig(temperature=config.temperature), config.adapter.base == "nf4"
        workers = RolloutWorkers(config, stop.check_stop, sampling=sampling, nf4=nf4)
        opponent = workers.seat(config.opponent) if config.opponent != "pool" else {}
        trainer = make_trainer(config, workers.model, loss, workers.mesh)
        checkpointer = Checkpointer(folder.checkpoints, keep=config.checkpoint.keep)
        initial_params = trainer.initial_params(workers.initial_params, config.seed)
        trainer.bound_growth(initial_params)
        read = config.adapter.rank > 0 or reads_reference
        reference_params = trainer.frozen_params(workers.initial_params) if read else None
        folder.note_device(workers.device)
        players_on_record.refuse_others(folder, opponent)
        return cls(config, folder, stop, workers, trainer, checkpointer, initial_params, reference_params)

    def close(self) -> None:
        """Notes what endpoints have cost, and gives up what plays; nothing can be played afterwards."""
        if self._costs is not None:
            self._costs.note(self.workers.endpoints)
        self.workers.close()

    @property
    def costs(self) -> Costs:
        """What the run's endpoints have cost over all its starts; known once `restore` has cut the streams."""
        assert self._costs is not None  # noqa: S101 - every recipe begins with it
        return self._costs

    def begin(self) -> State:
        """Returns the state of a run that begins."""
        return State(best=self.initial_params, optimizer=self.trainer.initial_state(self.initial_params))

    @property
    def lora(self) -> LoraConfig | None:
        """What is trained instead of all weights, if it is."""
        return lora_config(self.config.adapter)

    def policy(self, trained: Params) -> PolicyWeights:
        """Returns what plays, from what is trained."""
        played = self.trainer.policy(trained)
        if self.lora is None:
            return PolicyWeights(played)
        return PolicyWeights(self.workers.initial_params, Adapters(played, self.lora.scale))

    def save(self, state: State) -> None:
        """Writes a checkpoint from which the run resumes exactly here."""
        arrays = {name: getattr(state, name) for name in _ARRAYS}
        progress = {
            "positions": self.folder.positions(),
            "state": {name: value for name, value in vars(state).items() if name not in arrays},
        }
        self.saved = _number(state)
        self.checkpointer.save(self.saved, arrays, progress)

    @contextlib.contextmanager
    def interruptible(self, state: State) -> Iterator[None]:
        """Saves the state as it was before, if a stop, a refused update or games that all failed end what is inside.

        Until its last call that may be interrupted, the inside changes neither the state nor its arrays. At the
        beginning of a stage, where it does (a fuse), the checkpoint that the last stage ended with is the one to resume
        from.
        """
        before = self.folder.sizes()
        try:
            yield
        except (Interrupted, TrainingError):  # such as an opponent that is down
            self.folder.rewind(before)
            if self.saved != _number(state) and not gone(state.best):
                self.save(state)
            raise

    def save_policy(self, trained: Params, path: Path, adapter: Path) -> None:
        """Writes a policy, and its adapters if these are what is trained."""
        workers = self.workers

        def weights() -> Params:
            if self.config.adapter.base == "full":
                return workers.initial_params
            # The files have what four bits have lost. Room for the whole model: this is the last thing such a run does.
            self.close()
            self.reference_params = self.initial_params = None
            return huggingface.load(workers.source, mesh=workers.mesh, dtype=self.config.model.dtype)[1]

        played = self.trainer.policy(trained)
        export.save_policy(
            path,
            adapter,
            played,
            model=workers.model,
            lora=self.lora,
            source=workers.source,
            name=self.config.model.path,
            weights=weights,
        )

    def diverged(self, state: State, why: str) -> TrainingError:
        """Writes the last good policy, and returns what to report to whoever started the run.

        Args:
          state: before the update.
          why: which update is refused, and for what.
        """
        policy, step = self.last_good(state)
        rate = self.config.optimizer.learning_rate
        if policy is self.initial_params or step == 0:
            return export.diverged(why, rate)
        self.save_policy(policy, self.folder.last_good, self.folder.last_good_adapter)
        return export.diverged(why, rate, self.folder.last_good, step)

    def last_good(self, state: State) -> tuple[Params, int]:
        """Returns the policy to continue from after an update was refused, and its step: the newest that is saved.

        Args:
          state: before the update, which may have taken its arrays.
        """
        if not gone(state.best):
            return state.best, state.steps
        restored = self.checkpointer.restore(like=lambda saved: _template(saved, self.initial_params, self.trainer))
        if restored is None:
            raise CheckpointError(
                f"{self.folder.checkpoints}: there is no checkpoint, although the run saves one first"
            )
        return restored.arrays["best"], restored.progress["state"]["steps"]

    def restore(self) -> State | None:
        """Returns the state of the newest checkpoint; without one, empties the streams and returns None."""
        restored = self.checkpointer.restore(like=lambda saved: _template(saved, self.initial_params, self.trainer))
        if restored is None:
            self.folder.rewind(dict.fromkeys(self.folder.positions(), 0))
            self._costs = Costs(self.folder)
            return None
        self.folder.rewind(restored.progress["positions"])
        self._costs = Costs(self.folder)
        self.saved = restored.step
        state = restored.progress["state"]
        print(f"resuming after step {state['steps']}; records after it are made again", flush=True)  # noqa: T201 - progress
        return State(**state, **restored.arrays)


def _number(state: State) -> int:
    """Returns the number of a state's checkpoint: it grows, as the end of a stage is iteration 0 of the next."""
    return state.stage * (1 << 20) + state.iteration


def _template(saved: dict[str, Any], params: Params, trainer: Trainer) -> dict[str, Any]:
    """Returns arrays of the structure, types and placement that a checkpoint's arrays are to have."""
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), params)  # type: ignore[no-untyped-call]  # jax leaves it untyped
    return {
        "best": like,
        "optimizer": trainer.abstract_state(params),
        "policies": dict.fromkeys(saved["policies"], like),
        "pool": dict.fromkeys(saved["pool"], like),
    }
