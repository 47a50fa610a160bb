"""A run that trains, while it runs: what is open, and how it is saved, resumed, stopped and ended.

Whatever is trained on (games, queries of its own, stored rows, transcripts) has a class of each: a `RunState`, which a
checkpoint holds, and a `TrainingRun`, which says how the state begins and what its arrays look like.

Resume order: 1. the run folder's streams are cut to the checkpoint's sizes; 2. arrays and progress are read; 3. `loop`
goes on with the next iteration. Every random number is derived from the run's seed and the iteration's place, so what
follows is the same, bit for bit, as without the stop. A stop does not wait for the end of an iteration: what it has
made is thrown away, the state before it is saved, and the iteration begins again when the run resumes.
"""

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import jax

from dfc.config import LanguageSelfPlay, Preference, RlRunConfig, Sft
from dfc.errors import DivergenceError, Interrupted, TrainingError
from dfc.models import huggingface
from dfc.models.lora import LoraConfig
from dfc.models.safetensors_format import Location
from dfc.models.transformer import Adapters, Params
from dfc.rollout.host import PolicyWeights
from dfc.rollout.trained_weights import lora_config
from dfc.runs.checkpoint import Checkpointer, Restored
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.training import export
from dfc.training.trainer import Trainer, gone


class RunState(Protocol):
    """What a checkpoint holds: where the run is, and the weights it needs from here on."""

    @property
    def number(self) -> int:
        """Of its checkpoint; it grows from iteration to iteration."""

    @property
    def steps(self) -> int:
        """Iterations done in the whole run."""

    @property
    def trained(self) -> Params:
        """The weights that the next iteration begins with, which an update may take."""

    def arrays(self) -> dict[str, Any]:
        """Returns all trees of arrays to save, by name."""

    def progress(self) -> dict[str, Any]:
        """Returns the rest, as JSON."""


@dataclasses.dataclass
class ParamsState:
    """A `RunState` of one trained tree.

    Attributes:
      done: iterations.
      params: the trained tree.
      optimizer: its state.
    """

    done: int
    params: Params
    optimizer: Any

    @property
    def number(self) -> int:
        """Of its checkpoint."""
        return self.done

    @property
    def steps(self) -> int:
        """Iterations done."""
        return self.done

    @property
    def trained(self) -> Params:
        """What the next iteration begins with."""
        return self.params

    def arrays(self) -> dict[str, Any]:
        """Returns all trees of arrays to save, by name."""
        return {"params": self.params, "optimizer": self.optimizer}

    def progress(self) -> dict[str, Any]:
        """Returns the rest, as JSON; nothing here."""
        return {}


@dataclasses.dataclass(frozen=True)
class Updated:
    """What updates made: the trained weights, the optimizer's state, metrics."""

    params: Params
    optimizer: Any
    metrics: dict[str, float]


S = TypeVar("S", bound=RunState)
R = TypeVar("R")


@dataclasses.dataclass
class TrainingRun(abc.ABC, Generic[S]):
    """What is open while a run trains.

    Attributes:
      folder: of the run.
      stop: asked between iterations and inside them.
      checkpointer: of the run.
      saved: number of the newest checkpoint, which may be under way.
    """

    folder: RunFolder
    stop: Stop
    checkpointer: Checkpointer
    saved: int | None = dataclasses.field(default=None, kw_only=True)

    UNIT: ClassVar[str] = "iteration"
    """What `RunState.steps` counts, as text."""

    def __post_init__(self) -> None:
        """Lets the folder stay this process's until nothing is written there."""
        self.folder.before_close(self.checkpointer.close)

    @abc.abstractmethod
    def begin(self) -> S:
        """Returns the state of a run that begins."""

    @abc.abstractmethod
    def template(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Returns arrays of the structure, types and placement that a checkpoint's arrays, `saved`, are to have."""

    @abc.abstractmethod
    def state_of(self, restored: Restored) -> S:
        """Returns the state that a checkpoint holds.

        Raises:
          CheckpointError: the run cannot go on from it.
        """

    @abc.abstractmethod
    def diverged(self, state: S | None, why: str) -> TrainingError:
        """Returns the message that the run ends with after an update that is refused.

        The state is that before the update, which may have reused the memory of its arrays; None: what was measured of
        an update that was made is not finite, so that the newest checkpoint is what is left.
        """

    def save(self, state: S) -> None:
        """Writes a checkpoint from which the run resumes exactly here, unless it is the newest one already.

        It is written while the run goes on, and complete once `settle` returns.
        """
        if self.saved == state.number:
            return
        progress = {"positions": self.folder.positions(), **state.progress()}
        self.checkpointer.save(state.number, state.arrays(), progress, wait=False)
        self.saved = state.number

    def settle(self) -> None:
        """Returns once the newest checkpoint is complete; CheckpointError: it could not be written."""
        self.checkpointer.wait()

    def save_or_stop(self, state: S) -> None:
        """Writes a checkpoint, and ends the run with it if a stop was asked for."""
        self.save(state)
        try:
            self.stop.check()
        except Interrupted:
            self.settle()
            raise

    def restore(self) -> S | None:
        """Returns the state of the newest checkpoint; without one, empties the streams and returns None."""
        restored = self.checkpointer.restore(self.template)
        if restored is None:
            self.folder.rewind(dict.fromkeys(self.folder.positions(), 0))
            return None
        state = self.state_of(restored)
        self.folder.rewind(restored.progress["positions"])
        self.saved = restored.step
        print(f"resuming after {self.UNIT} {state.steps}; records after it are made again", flush=True)  # noqa: T201 - progress
        return state

    @contextlib.contextmanager
    def interruptible(self, state: S) -> Iterator[None]:
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
            if not gone(state.trained):
                self.save(state)
            self.settle()
            raise

    def iterated(self, state: S, iterate: Callable[[S], R]) -> R:
        """Runs one iteration, or leaves the run as it was before: saved for a resume, or with its last good policy."""
        try:
            with self.interruptible(state):
                return iterate(state)
        except DivergenceError as error:
            why = str(error)
        raise self.diverged(state, why)  # here, where the error no longer holds the refused weights

    def measured(self, measure: Callable[[], None]) -> None:
        """Measures what an update has made; where that is not finite, the run ends with its newest checkpoint."""
        try:
            measure()
        except DivergenceError as error:
            why = str(error)
        else:
            return
        raise self.diverged(None, why)


def loop(
    run: TrainingRun[S],
    state: S,
    iterate: Callable[[S], R],
    show: Callable[[R], None],
    *,
    left: Callable[[], bool],
    due: Callable[[], bool],
) -> None:
    """Runs the iterations that are left; saves now and then, and when asked to stop. At its end all is saved.

    An `iterate` changes the state at its end only; `show` takes what it returned; `due` says whether the state is to be
    saved after the iteration that was shown last.

    Raises:
      Interrupted: a stop was asked for; what is done is saved.
      TrainingError: training has diverged; says how to continue.
    """
    while left():
        made = [run.iterated(state, iterate)]
        run.measured(lambda: show(made.pop()))  # noqa: B023 - called at once; so that nothing holds what was made
        if run.stop.requested is not None or due():
            run.save_or_stop(state)
    run.settle()


@dataclasses.dataclass
class PolicyRun(TrainingRun[S]):
    """A run whose `Trainer` trains a policy of a model that was loaded.

    Attributes:
      config: of the run.
      source: of the model.
      weights: of the model as it plays, beside which adapters are trained; None where they are not kept.
      trainer: of the policy.
      policies: names of the policies that are trained, where they are several: what is trained is then a tree of each
        by its name, and the first one is what plays and is saved where nothing else is said.
    """

    config: RlRunConfig | LanguageSelfPlay | Sft | Preference
    source: Location
    weights: Params | None
    trainer: Trainer
    policies: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)

    @property
    def lora(self) -> LoraConfig | None:
        """What is trained instead of all weights, if it is."""
        return lora_config(self.config.adapter)

    @property
    def learning_rate_key(self) -> str:
        """The setting to lower where training diverges."""
        return "optimizer.learning_rate"

    def one(self, trained: Params, name: str = "") -> Params:
        """Returns the parameters of one policy, where several are trained: that of a name, or the first."""
        return trained[name or self.policies[0]] if self.policies else trained

    def policy(self, trained: Params, name: str = "") -> PolicyWeights:
        """Returns the rollout weights of trained parameters, of several policies those of `one`."""
        played = self.trainer.policy(self.one(trained, name))
        if self.lora is None:
            return PolicyWeights(played)
        return PolicyWeights(self.weights, Adapters(played, self.lora.scale))

    def initial_state(self, params: Params) -> Any:  # noqa: ANN401 - any tree of arrays
        """Returns the optimizer's state before the first update, of several policies one of each."""
        if self.policies:
            return {name: self.trainer.initial_state(params[name]) for name in self.policies}
        return self.trainer.initial_state(params)

    def shapes(self, params: Params) -> dict[str, Any]:
        """Returns shapes and placement of trained parameters and of their optimizer's state, for `template`."""
        one = self.one(params)
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), one)  # type: ignore[no-untyped-call]  # jax leaves it untyped
        found = {"params": like, "optimizer": self.trainer.abstract_state(one)}
        return {name: dict.fromkeys(self.policies, tree) for name, tree in found.items()} if self.policies else found

    def full_weights(self) -> Params:
        """Returns the model's weights at full precision: the files hold the precision that four bits lose."""
        mesh = self.trainer.execution.mesh
        return huggingface.load(self.source, mesh=mesh, dtype=self.config.model.dtype)[1]

    def save_policy(self, trained: Params, path: Path, adapter: Path) -> None:
        """Writes the policy that plays, and its adapters if these are what is trained."""
        self.write_policy(trained, path, adapter)

    def write_policy(self, trained: Params, path: Path, adapter: Path, name: str = "") -> None:
        """Writes a policy, of several that of `one`, and its adapters if these are what is trained."""
        self.write_played(self.trainer.policy(self.one(trained, name)), path, adapter)

    def write_played(self, played: Params, path: Path, adapter: Path) -> None:
        """Writes a policy of weights as they are played (`Trainer.policy`)."""
        export.save_policy(
            path,
            adapter,
            played,
            model=self.trainer.config,
            lora=self.lora,
            source=self.source,
            name=self.config.model.path,
            weights=self.full_weights,
        )

    def diverged(self, state: S | None, why: str) -> TrainingError:
        """Writes the newest policy that is left, and returns what to report."""
        rate, key = self.config.optimizer.learning_rate, self.learning_rate_key
        trained, steps = self.last_good(state)
        if not steps:
            return export.diverged(why, rate, key=key)
        self.save_policy(trained, self.folder.last_good, self.folder.last_good_adapter)
        return export.diverged(why, rate, self.folder.last_good, steps, key=key)

    def last_good(self, state: S | None) -> tuple[Params, int]:
        """Returns the weights to continue from, and their step: those of a state that has its arrays, or saved ones.

        The state is that before an update, which may have reused the memory of its arrays; None: of what was updated
        something is not finite.
        """
        return self.newest_saved() if state is None or gone(state.trained) else (state.trained, state.steps)

    def newest_saved(self) -> tuple[Params, int]:
        """Returns the weights of the newest checkpoint, and their step; None and 0 without one."""
        restored = self.checkpointer.restore(self.template)
        if restored is None:
            return None, 0
        state = self.state_of(restored)
        return state.trained, state.steps
