"""A run of self-play while it runs: its state, and what every iteration needs beside it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from dfc.config import RolloutConfig
from dfc.config.self_play import LanguageSelfPlay
from dfc.errors import CheckpointError, ConfigError
from dfc.methods.language_self_play import hygiene, penalty, watch
from dfc.methods.language_self_play.sampling import Roles
from dfc.methods.language_self_play.update import CHALLENGER, ROLES, has_roles
from dfc.models import huggingface
from dfc.models.transformer import Params
from dfc.rollout.host import ModelHost, PolicyWeights
from dfc.rollout.trained_weights import difference
from dfc.runs.checkpoint import Checkpointer, Restored
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.training.online_trainer import make_trainer
from dfc.training.run import ParamsState, PolicyRun
from dfc.training.update_parts import LossFunction


@dataclasses.dataclass
class State(ParamsState):
    """What a checkpoint holds; with an adapter for each role the trees of both, by the roles' names.

    Attributes:
      memory: of queries. watch: what alarms compare with.
      scored: of the rewards of the whole run, for the penalty of bad queries.
      judged: answers the judge was asked about in the whole run, and `marked`, those whose mark it gave.
      ended: whether an alarm has ended the run (`watch.stop`).
      updated: whether there was an update; before the first one the weights are the reference's own.
    """

    memory: hygiene.Memory
    watch: watch.Watch
    scored: penalty.Scored = dataclasses.field(default_factory=penalty.Scored)
    judged: int = 0
    marked: int = 0
    ended: bool = False
    updated: bool = False

    def progress(self) -> dict[str, Any]:
        """Returns the rest, as JSON."""
        return {
            "memory": self.memory.state(),
            "watch": dataclasses.asdict(self.watch),
            "scored": dataclasses.asdict(self.scored),
            "judged": self.judged,
            "marked": self.marked,
            "ended": self.ended,
            "updated": self.updated,
        }


@dataclasses.dataclass
class SelfPlayRun(PolicyRun[State]):
    """What every iteration needs beside the state.

    Attributes:
      roles: what samples.
      judge: the weights of the reference as they play. reference_params: as the trainer reads them.
      base_params: those that adapters are trained beside; None: all weights are trained.
      score: R. probes: fixed queries that R is measured on. alarms: of the newest iteration.
      data: the queries of a file; empty where the Challenger writes them.
    """

    config: LanguageSelfPlay
    roles: Roles
    judge: Params
    reference_params: Params
    base_params: Params | None
    score: Callable[[Sequence[str], Sequence[str]], Any]
    probes: list[str] = dataclasses.field(default_factory=list, kw_only=True)
    data: list[str] = dataclasses.field(default_factory=list, kw_only=True)
    alarms: list[watch.Alarm] = dataclasses.field(default_factory=list, kw_only=True)

    @classmethod
    def open(
        cls,
        config: LanguageSelfPlay,
        folder: RunFolder,
        stop: Stop,
        losses: Mapping[str, LossFunction],
        score: Callable[[Sequence[str], Sequence[str]], Any],
    ) -> "SelfPlayRun":
        """Loads the model, and makes the engine and the trainer; `losses` are by role, `score` is R.

        A stop is asked for between calls of the engine and between micro-batches.
        """
        print(f"loading {config.model.path}", flush=True)  # noqa: T201 - progress
        host = ModelHost(
            config.model,
            engine_config(config),
            slots=config.rollout.slots,
            mesh=config.mesh,
            nf4=config.adapter.base == "nf4",
            trained_copies=2,
        )
        weights = host.initial_params()
        folder.note_device(host.device)
        engine = host.engine(
            weights,
            sampling=config.sampling,
            other_sampling=[config.self_reward.sampling] if config.judges else [],
            kept_sets=config.sampling.filtered,
        )
        roles = Roles(engine, host.tokenizer, stop.check_stop)
        trainer = make_trainer(config, host.model, losses, host.mesh)
        trainer.bound_growth(trainer.initial_params(weights, config.seed))
        frozen = trainer.frozen_params(weights)
        judge = _reference(config, host.mesh) if config.reference else weights
        return cls(
            folder,
            stop,
            Checkpointer(folder.checkpoints, keep=config.checkpoint.keep),
            config,
            host.source,
            weights,
            trainer,
            roles,
            judge,
            trainer.frozen_params(judge) if config.reference else frozen,
            frozen if config.adapter.rank else None,
            score,
            policies=ROLES if config.adapter_per_role else (),
        )

    def challenger(self, trained: Params) -> PolicyWeights | None:
        """Returns the Challenger's rollout weights, or None if it shares the Solver's."""
        return self.policy(trained, CHALLENGER) if has_roles(trained) else None

    def begin(self) -> State:
        """Returns the state of a run that begins."""
        params = self._initial()
        return State(0, params, self.initial_state(params), hygiene.Memory(), watch.Watch())

    def template(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Returns arrays of the structure, types and placement that a checkpoint's arrays are to have."""
        del saved
        return self.shapes(self._initial())

    def state_of(self, restored: Restored) -> State:
        """Returns the state that a checkpoint holds."""
        known = restored.progress
        if "scored" not in known:
            self._refuse_other_penalty(restored.step, ended=known["ended"])
        return State(
            restored.step,
            # Before the first update they are the reference's own, with which a run that was not stopped shares calls.
            restored.arrays["params"] if known["updated"] else self._initial(),
            restored.arrays["optimizer"],
            hygiene.Memory(known["memory"]),
            watch.Watch(**known["watch"]),
            penalty.Scored(**known.get("scored", {})),
            known["judged"],
            known["marked"],
            known["ended"],
            known["updated"],
        )

    def _initial(self) -> Params:
        """Returns what is trained before the first update; it is made again where it is needed, as a copy is large."""
        if self.policies:
            return {role: self.trainer.initial_params(self.weights, self.config.seed) for role in self.policies}
        return self.trainer.initial_params(self.weights, self.config.seed)

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

    def save_policy(self, trained: Params, path: Path, adapter: Path) -> None:
        """Writes a policy, and its adapters if these are what is trained; of roles with adapters the Solver's.

        The Challenger's are stored beside it (`dfc.runs.run_folder.RunFolder.of_challenger`).
        """
        if has_roles(trained):
            self.write_policy(trained, self.folder.of_challenger(path), self.folder.of_challenger(adapter), CHALLENGER)
        super().save_policy(trained, path, adapter)


def _reference(config: LanguageSelfPlay, mesh: Mesh) -> Params:
    """Returns the weights of another reference model; ConfigError if its shape or tokenizer differs."""
    folder = huggingface.resolve(config.reference)
    if (what := difference(str(folder), config.model.path)) is not None:
        hint = "name the model that the earlier run began with"
        raise ConfigError(
            [f"reference={config.reference!r}: has another {what} than model.path={config.model.path!r}; {hint}"]
        )
    return huggingface.load(folder, mesh=mesh, dtype=config.model.dtype)[1]


def engine_config(config: LanguageSelfPlay) -> RolloutConfig:
    """Returns how the engine plays, as `dfc.rollout.host.ModelHost` takes it."""
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
