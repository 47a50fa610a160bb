"""A run of self-play while it runs: its state, what every iteration needs beside it, how both survive a stop."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from dfc.config import RolloutConfig, SamplingConfig
from dfc.config.self_play import LanguageSelfPlay
from dfc.errors import CheckpointError, ConfigError, TrainingError
from dfc.methods.language_self_play import hygiene, penalty, watch
from dfc.methods.language_self_play.sampling import Roles
from dfc.methods.language_self_play.update import CHALLENGER, ROLES, SOLVER, has_roles
from dfc.models import huggingface
from dfc.models.lora import LoraConfig
from dfc.models.sharding import make_mesh
from dfc.models.transformer import Adapters, Params
from dfc.rollout.trained_weights import difference, lora_config
from dfc.rollout.workers import PolicyWeights, load_tokenizer, make_decoding_mesh, make_engine
from dfc.runs.checkpoint import Checkpointer
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.training import export
from dfc.training.online_trainer import make_trainer
from dfc.training.trainer import Trainer, gone
from dfc.training.update_parts import LossFunction


@dataclasses.dataclass
class State:
    """What a checkpoint holds.

    Attributes:
      iteration: done so far. params: the trained tree, or with an adapter for each role theirs by the roles' names.
      optimizer: its state, or theirs.
      memory: of queries. watch: what alarms compare with.
      scored: of the rewards of the whole run, for the penalty of bad queries.
      judged: answers the judge was asked about in the whole run, and `marked`, those whose mark it gave.
      ended: whether an alarm has ended the run (`watch.stop`).
      updated: whether there was an update; before the first one the weights are the reference's own.
    """

    iteration: int
    params: Params
    optimizer: Any
    memory: hygiene.Memory
    watch: watch.Watch
    scored: penalty.Scored = dataclasses.field(default_factory=penalty.Scored)
    judged: int = 0
    marked: int = 0
    ended: bool = False
    updated: bool = False


@dataclasses.dataclass
class SelfPlayRun:
    """What every iteration needs beside the state.

    Attributes:
      source: the model's folder. initial_params: its weights as they play.
      judge: the weights of the reference as they play. reference_params: as the trainer reads them.
      base_params: those that adapters are trained beside; None: all weights are trained.
      data: the queries of a file; empty where the Challenger writes them.
      score: R. probes: fixed queries that R is measured on. alarms: of the newest iteration.
      saved: number of the newest checkpoint.
    """

    config: LanguageSelfPlay
    folder: RunFolder
    stop: Stop
    source: Path
    roles: Roles
    trainer: Trainer
    checkpointer: Checkpointer
    initial_params: Params
    judge: Params
    reference_params: Params
    base_params: Params | None
    score: Callable[[Sequence[str], Sequence[str]], Any]
    probes: list[str] = dataclasses.field(default_factory=list)
    data: list[str] = dataclasses.field(default_factory=list)
    alarms: list[watch.Alarm] = dataclasses.field(default_factory=list)
    saved: int | None = None

    @classmethod
    def open(
        cls,
        config: LanguageSelfPlay,
        folder: RunFolder,
        stop: Stop,
        losses: Mapping[str, LossFunction],
        score: Callable[[Sequence[str], Sequence[str]], Any],
    ) -> "SelfPlayRun":
        """Loads the model, and makes what samples and what trains.

        Args:
          config: of the run.
          folder: of the run.
          stop: asked between calls of the engine and between micro-batches.
          losses: by role.
          score: R, a `dfc.scoring.scorer.Scorer`.
        """
        print(f"loading {config.model.path}", flush=True)  # noqa: T201 - progress
        source = huggingface.resolve(config.model.path)
        mesh = make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
        model, weights = huggingface.load(source, mesh=mesh, dtype=config.model.dtype, nf4=config.adapter.base == "nf4")
        tokenizer = load_tokenizer(source, enable_thinking=config.model.enable_thinking)
        folder.note_device(f"{jax.device_count()} x {jax.devices()[0].device_kind}, jax {jax.__version__}")
        rollout = engine_config(config)
        playing = mesh
        if mesh.size > 1:
            playing = make_decoding_mesh(rollout, model, mesh, conversations=config.rollout.slots, policies=2)
        engine = make_engine(
            rollout,
            model,
            tokenizer,
            weights,
            playing,
            sampling=SamplingConfig(temperature=config.temperature),
            slots=config.rollout.slots,
        )
        roles = Roles(engine, tokenizer, tokenizer.stop_token_ids(()), stop.check_stop)
        trainer = make_trainer(config, model, losses, mesh)
        trainer.bound_growth(trainer.initial_params(weights, config.seed))
        frozen = trainer.frozen_params(weights)
        judge = _reference(config, mesh) if config.reference else weights
        return cls(
            config,
            folder,
            stop,
            source,
            roles,
            trainer,
            Checkpointer(folder.checkpoints, keep=config.checkpoint.keep),
            weights,
            judge,
            trainer.frozen_params(judge) if config.reference else frozen,
            frozen if config.adapter.rank else None,
            score,
        )

    @property
    def lora(self) -> LoraConfig | None:
        """What is trained instead of all weights, if it is."""
        return lora_config(self.config.adapter)

    def challenger(self, trained: Params) -> PolicyWeights | None:
        """Returns what writes queries, from what is trained; None where it is what answers."""
        return self.policy(trained[CHALLENGER]) if has_roles(trained) else None

    def policy(self, trained: Params) -> PolicyWeights:
        """Returns what answers, from what is trained, and where roles share it what writes queries."""
        played = self.trainer.policy(_of_solver(trained))
        if self.lora is None:
            return PolicyWeights(played)
        return PolicyWeights(self.initial_params, Adapters(played, self.lora.scale))

    def save(self, state: State) -> None:
        """Writes a checkpoint from which the run resumes exactly here."""
        progress = {
            "positions": self.folder.positions(),
            "memory": state.memory.state(),
            "watch": dataclasses.asdict(state.watch),
            "scored": dataclasses.asdict(state.scored),
            "judged": state.judged,
            "marked": state.marked,
            "ended": state.ended,
            "updated": state.updated,
        }
        self.checkpointer.save(state.iteration, {"params": state.params, "optimizer": state.optimizer}, progress)
        self.saved = state.iteration

    def restore(self) -> State:
        """Returns the state of the newest checkpoint; without one, empties the streams and begins."""

        def begin() -> Params:  # made again where it is needed: kept, it would be one more copy
            return self.trainer.initial_params(self.initial_params, self.config.seed)

        def first() -> Any:  # noqa: ANN401 - any tree of arrays
            return {role: begin() for role in ROLES} if self._has_roles else begin()

        def like(_: Any) -> dict[str, Any]:  # noqa: ANN401 - any tree of arrays
            own = begin()
            shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), own)  # type: ignore[no-untyped-call]  # jax leaves it untyped
            found = {"params": shapes, "optimizer": self.trainer.abstract_state(own)}
            return {name: dict.fromkeys(ROLES, tree) for name, tree in found.items()} if self._has_roles else found

        restored = self.checkpointer.restore(like)
        if restored is None:
            self.folder.rewind(dict.fromkeys(self.folder.positions(), 0))
            params, state = first(), self.trainer.initial_state
            optimizer = {role: state(own) for role, own in params.items()} if self._has_roles else state(params)
            return State(0, params, optimizer, hygiene.Memory(), watch.Watch())
        known = restored.progress
        if "scored" not in known:
            self._refuse_other_penalty(restored.step, ended=known["ended"])
        self.folder.rewind(known["positions"])
        self.saved = restored.step
        print(f"resuming after iteration {restored.step}; records after it are made again", flush=True)  # noqa: T201 - progress
        return State(
            restored.step,
            # Before the first update they are the reference's own, with which a run that was not stopped shares calls.
            restored.arrays["params"] if known["updated"] else first(),
            restored.arrays["optimizer"],
            hygiene.Memory(known["memory"]),
            watch.Watch(**known["watch"]),
            penalty.Scored(**known.get("scored", {})),
            known["judged"],
            known["marked"],
            known["ended"],
            known["updated"],
        )

    def _refuse_other_penalty(self, step: int, *, ended: bool) -> None:
        """Raises a `CheckpointError` if what follows an older checkpoint would be trained by another rule than it."""
        own = self.config.challenger
        if ended or step >= self.config.iterations or not self.config.trains_challenger:
            return
        if "worst" in (own.bad_queries, own.unsolved_queries):
            raise CheckpointError(
                f"{self.folder.path}: its checkpoint of iteration {step} is of an older version of dfc, in which what "
                "'worst' penalises earned the least reward of the others; now it earns less than they do. Begin a new "
                "run under another name, or end this one with the version that began it"
            )

    @property
    def _has_roles(self) -> bool:
        """Whether each role trains a tree of its own."""
        return self.config.adapter_per_role

    def save_policy(self, trained: Params, path: Path, adapter: Path) -> None:
        """Writes a policy, and its adapters if these are what is trained; of roles with adapters the Solver's.

        The Challenger's lie beside it (`dfc.runs.run_folder.RunFolder.of_challenger`).
        """
        if has_roles(trained):
            self.save_policy(trained[CHALLENGER], self.folder.of_challenger(path), self.folder.of_challenger(adapter))
        export.save_policy(
            path,
            adapter,
            self.trainer.policy(_of_solver(trained)),
            model=self.trainer.config,
            lora=self.lora,
            source=self.source,
            name=self.config.model.path,
            # The files have what four bits have lost. Placed as the adapters are: one program merges both.
            weights=lambda: huggingface.load(
                self.source, mesh=self.trainer.execution.mesh, dtype=self.config.model.dtype
            )[1],
        )

    def diverged(self, state: State, why: str) -> TrainingError:
        """Writes the newest policy that is left, and returns what to report to whoever started the run.

        Args:
          state: before the update, which may have taken its arrays.
          why: which update is refused, and for what.
        """
        rate = self.config.optimizer.learning_rate
        if gone(state.params):
            state = self.restore()
        if state.iteration == 0:
            return export.diverged(why, rate)
        self.save_policy(state.params, self.folder.last_good, self.folder.last_good_adapter)
        return export.diverged(why, rate, self.folder.last_good, state.iteration)


def _of_solver(trained: Params) -> Params:
    return trained[SOLVER] if has_roles(trained) else trained


def _reference(config: LanguageSelfPlay, mesh: Mesh) -> Params:
    """Returns the weights of a reference that is not the run's own model.

    Raises:
      ConfigError: it has another shape or tokenizer.
    """
    folder = huggingface.resolve(config.reference)
    if (what := difference(str(folder), config.model.path)) is not None:
        hint = "name the model that the earlier run began with"
        raise ConfigError(
            [f"reference={config.reference!r}: has another {what} than model.path={config.model.path!r}; {hint}"]
        )
    return huggingface.load(folder, mesh=mesh, dtype=config.model.dtype)[1]


def engine_config(config: LanguageSelfPlay) -> RolloutConfig:
    """Returns how the engine is made, as `make_engine` takes it."""
    own = config.rollout
    return RolloutConfig(
        slots=own.slots,
        rows=own.rows,
        max_length=own.max_length,
        max_reply_length=max(
            own.max_query_length, own.max_answer_length, own.max_judgement_length if config.judges else 0
        ),
        decode_steps=own.decode_steps,
        prefill_buckets=own.prefill_buckets,
    )
