"""A run of reinforcement learning from games while it runs: its state, and what every step needs beside it."""

import copy
import dataclasses
from typing import Any

import numpy as np

from dfc.config import RlRunConfig
from dfc.errors import TrainingError
from dfc.models import huggingface
from dfc.models.transformer import Params
from dfc.rollout.workers import RolloutWorkers
from dfc.runs import checkpoint, players_on_record
from dfc.runs.checkpoint import Checkpointer, Restored
from dfc.runs.costs import Costs
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.training.forecast import Pace
from dfc.training.online_trainer import make_trainer
from dfc.training.run import PolicyRun
from dfc.training.trainer import LossFunction


@dataclasses.dataclass
class Memory:
    """What a method keeps from iteration to iteration, saved and restored with the run: a replay buffer, a baseline.

    A method gets a copy in each iteration, which becomes the run's at its end; so it may put other arrays in the place
    of these, and must not write into them.

    Attributes:
      arrays: by name, numpy arrays, or dicts, lists and tuples of them.
      values: by name, what JSON can hold.
    """

    arrays: dict[str, Any] = dataclasses.field(default_factory=dict)
    values: dict[str, Any] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raises a `TrainingError` that names the place of what a checkpoint cannot hold, or gives back changed."""
        try:
            checkpoint.check(_without_names(self.arrays, "memory.arrays"), self.values, "memory")
        except TypeError as error:
            raise TrainingError(f"the method's {error}") from None

    def copy(self) -> "Memory":
        """Returns the same with containers of its own, and the same arrays."""
        return Memory(_containers(self.arrays), copy.deepcopy(self.values))


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
    memory: Memory = dataclasses.field(default_factory=Memory)  # of the method

    @property
    def number(self) -> int:
        """Of its checkpoint: it grows, as the end of a stage is iteration 0 of the next."""
        return self.stage * (1 << 20) + self.iteration

    @property
    def trained(self) -> Params:
        """The policy that the next iteration begins with."""
        return self.best

    def arrays(self) -> dict[str, Any]:
        """Returns all trees of arrays to save, by name."""
        found = {name: getattr(self, name) for name in _ARRAYS}
        return {**found, "memory": self.memory.arrays} if self.memory.arrays else found

    def progress(self) -> dict[str, Any]:
        """Returns the rest, as JSON."""
        rest = {name: value for name, value in vars(self).items() if name not in _ARRAYS and name != "memory"}
        return {"state": rest, **({"memory": self.memory.values} if self.memory.values else {})}


_ARRAYS = ("best", "optimizer", "policies", "pool")


@dataclasses.dataclass
class GamesRun(PolicyRun[State]):
    """What every step needs beside the state.

    Attributes:
      workers: which play.
      initial_params: the initial policy as the trainer trains it.
      reference_params: the initial policy as the trainer reads it, or None if it does not.
      reads_reference: whether the loss compares with it.
      missed: share of the last average of adapters that their rank could not hold.
      pace: of the games before the first step.
    """

    config: RlRunConfig
    workers: RolloutWorkers
    initial_params: Params
    reference_params: Params
    reads_reference: bool
    missed: float | None = dataclasses.field(default=None, kw_only=True)
    pace: Pace = dataclasses.field(default_factory=Pace, kw_only=True)
    _costs: Costs | None = dataclasses.field(default=None, kw_only=True)

    UNIT = "step"

    @classmethod
    def open(
        cls,
        config: RlRunConfig,
        folder: RunFolder,
        stop: Stop,
        loss: LossFunction,
        *,
        reads_reference: bool = False,
        asks_reference: bool = False,
        policies: tuple[str, ...] = (),
    ) -> "GamesRun":
        """Loads the model, and makes the workers and the trainer.

        The loss compares with the initial policy if it `reads_reference`, the method does if it `asks_reference`.
        `policies` are the names of those that are trained, where they are several. A stop is asked for between calls of
        the engine and between micro-batches.
        """
        print(f"loading {config.model.path}", flush=True)  # noqa: T201 - progress
        sampling, nf4 = config.sampling, config.adapter.base == "nf4"
        workers = RolloutWorkers(config, stop.check_stop, sampling=sampling, nf4=nf4)
        opponent = workers.seat(config.opponent) if config.opponent != "pool" else {}
        trainer = make_trainer(config, workers.host.model, loss, workers.host.mesh)
        checkpointer = Checkpointer(folder.checkpoints, keep=config.checkpoint.keep)
        initial_params = trainer.initial_params(workers.initial_params, config.seed)
        trainer.bound_growth(initial_params)
        if policies:  # maybe one tree for all of them, so that no update may take its memory
            initial_params = {name: trainer.initial_params(workers.initial_params, config.seed) for name in policies}
        read = config.adapter.rank > 0 or reads_reference or asks_reference
        reference_params = trainer.frozen_params(workers.initial_params) if read else None
        folder.note_device(workers.host.device)
        players_on_record.refuse_others(folder, opponent)
        return cls(
            folder,
            stop,
            checkpointer,
            config,
            workers.host.source,
            workers.initial_params,
            trainer,
            workers,
            initial_params,
            reference_params,
            reads_reference,
            policies=policies,
        )

    def close(self) -> None:
        """Records what endpoints have cost, and closes the workers; nothing can be played afterwards."""
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
        return State(best=self.initial_params, optimizer=self.initial_state(self.initial_params))

    def template(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Returns arrays of the structure, types and placement that a checkpoint's arrays are to have."""
        own = self.shapes(self.initial_params)
        found = {
            "best": own["params"],
            "optimizer": own["optimizer"],
            "policies": dict.fromkeys(saved["policies"], own["params"]),
            "pool": dict.fromkeys(saved["pool"], own["params"]),
        }
        return {**found, "memory": _on_host(saved["memory"])} if "memory" in saved else found

    def state_of(self, restored: Restored) -> State:
        """Returns the state that a checkpoint holds."""
        arrays = dict(restored.arrays)
        memory = Memory(arrays.pop("memory", {}), restored.progress.get("memory", {}))
        return State(**restored.progress["state"], **arrays, memory=memory)

    def restore(self) -> State | None:
        """Returns the state of the newest checkpoint, if there is one, and counts what endpoints cost from there on."""
        state = super().restore()
        self._costs = Costs(self.folder)
        return state

    def full_weights(self) -> Params:
        """Returns the model's weights at full precision."""
        if self.config.adapter.base == "full":
            return self.workers.initial_params
        # The files hold the precision that four bits lose. There is room for the whole model: the run ends here.
        self.close()
        self.weights = self.reference_params = self.initial_params = None
        return huggingface.load(self.source, mesh=self.workers.host.mesh, dtype=self.config.model.dtype)[1]

    def last_good(self, state: State | None) -> tuple[Params, int]:
        """Returns the weights to continue from after an update was refused, and their step; 0 for the initial ones."""
        trained, steps = super().last_good(state)
        return trained, 0 if trained is self.initial_params else steps


def _without_names(tree: Any, path: str) -> Any:  # noqa: ANN401 - any tree of arrays
    """Returns a tree; a `TypeError` if it has a named tuple, which comes back as a plain one."""
    if hasattr(tree, "_fields"):
        raise TypeError(f"{path} is a named tuple, which comes back as a plain one; save a dict of its fields")
    if isinstance(tree, dict):
        return {key: _without_names(value, f"{path}[{key!r}]") for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_without_names(value, f"{path}[{place}]") for place, value in enumerate(tree))
    return tree


def _containers(tree: Any) -> Any:  # noqa: ANN401 - any tree of arrays
    """Returns a tree with containers of its own."""
    if isinstance(tree, dict):
        return {key: _containers(value) for key, value in tree.items()}
    return type(tree)(map(_containers, tree)) if isinstance(tree, list | tuple) else tree


def _on_host(saved: Any) -> Any:  # noqa: ANN401 - any tree of shapes
    """Returns a tree of arrays without memory, which a checkpoint's arrays come back like: in numpy."""
    if isinstance(saved, dict):
        return {key: _on_host(value) for key, value in saved.items()}
    if isinstance(saved, list | tuple):
        return type(saved)(map(_on_host, saved))
    return None if saved is None else np.broadcast_to(np.zeros((), saved.dtype), saved.shape)
