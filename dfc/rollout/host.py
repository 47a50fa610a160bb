"""One model ready to play, answer, judge or be served: its shape, its tokenizer, devices, weights and engines."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import jax

from dfc import multihost
from dfc.config import MeshConfig, ModelConfig, RolloutConfig, SamplingConfig
from dfc.errors import ConfigError
from dfc.inference import decoding_mesh
from dfc.inference.engine import Engine
from dfc.inference.protocol import RolloutEngine
from dfc.inference.slots import tensor_devices_on_one_host
from dfc.inference.stop_strings import StopStrings
from dfc.models import huggingface, sharding
from dfc.models.chat import ChatTokenizer
from dfc.models.execution import platform_of
from dfc.models.transformer import Adapters, Params
from dfc.players import player_specs
from dfc.players.player_specs import WeightsSource
from dfc.rollout import trained_weights


@dataclasses.dataclass(frozen=True)
class PolicyWeights:
    """The weights to play with, in the engine's form, and the adapters on them, if any."""

    params: Params
    adapters: Adapters | None = None


class ModelHost:
    """A model of one shape and tokenizer, on the devices it has; policies differ in weights alone.

    Attributes:
      source: its folder. model: its shape. tokenizer: with the setting of its chat template.
      mesh: devices as weights are loaded onto. playing_mesh: the same as engines split them.
      apart: whether every host can play games of its own: each has whole copies of the model, or shards that no other
        host shares.
      device: the hardware, as text.
    """

    def __init__(
        self,
        model: ModelConfig,
        rollout: RolloutConfig,
        *,
        slots: int,
        mesh: MeshConfig | None = None,
        nf4: bool = False,
        trained_copies: int = 0,
    ) -> None:
        """Reads configuration and tokenizer of `model.path`, no weights.

        Args:
          model: the model.
          rollout: how engines play.
          slots: conversations of one engine; there are `rollout.workers` of them.
          mesh: how training splits the devices; None: the first one is used.
          nf4: whether weights are held in four bits.
          trained_copies: policies whose weights are moved from where they are trained to where engines play, at once
            and all engines together; 0: nothing is trained, and weights are loaded where they play.

        Raises:
          WeightsError: the folder holds no supported model, or its chat template cannot be used. ConfigError: the mesh
            does not fit the devices.
        """
        self._config, self._rollout, self._slots, self._nf4 = model, rollout, slots, nf4
        self.source: Path = huggingface.resolve(model.path)
        self.model = dataclasses.replace(trained_weights.kind_of(str(self.source))[0], dtype=model.dtype)
        devices = jax.devices()[:1] if mesh is None else None
        self.mesh = sharding.make_mesh(*dataclasses.astuple(mesh or MeshConfig()), devices=devices)
        self.playing_mesh = self.mesh
        if self.mesh.size > 1:
            self.playing_mesh = self._decoding_mesh(max(1, trained_copies))
            self.mesh = self.mesh if trained_copies else self.playing_mesh
        self.tokenizer = load_tokenizer(self.source, enable_thinking=model.enable_thinking)
        self.apart = jax.process_count() > 1 and tensor_devices_on_one_host(self.playing_mesh)
        self.device = multihost.device_text()

    def _decoding_mesh(self, policies: int) -> jax.sharding.Mesh:
        """Returns the mesh that engines play on, over the same devices; a choice is printed."""
        rollout, mesh = self._rollout, self.mesh
        chosen = decoding_mesh.choose(
            rollout.sharding,
            self.model,
            MeshConfig(*mesh.devices.shape),
            of_a_host=jax.local_device_count(),
            platform=platform_of(mesh),
            memory=decoding_mesh.device_memory(mesh) if rollout.sharding == "auto" else None,
            rows=rollout.rows or rollout.slots,
            conversations=self._slots * rollout.workers,
            positions=rollout.max_length,
            nf4=self._nf4,
            policies=policies,
        )
        if chosen.sharding != "training" and multihost.is_primary():
            print(f"playing: {chosen.describe()}", flush=True)  # noqa: T201 - progress
        return decoding_mesh.make(mesh, chosen.sizes)

    def initial_params(self) -> Params:
        """Reads the weights of the folder onto `mesh`.

        Raises:
          WeightsError: they cannot be read.
        """
        return huggingface.load(self.source, mesh=self.mesh, dtype=self.model.dtype, nf4=self._nf4)[1]

    def policy_params(self, weights: WeightsSource) -> Params:
        """Returns the weights of a folder or run of this shape, on `mesh`, adapters merged.

        Raises:
          WeightsError, CheckpointError: they cannot be read.
        """
        return trained_weights.load(weights, self.model, self.mesh)

    def refuse_other(self, weights: WeightsSource, name: str, hint: str) -> None:
        """Raises a `ConfigError` if weights cannot play in this model's engines: `name` is whose, `hint` the cure."""
        path = self._config.path
        if (what := trained_weights.difference(weights.folder, path)) is not None:
            raise ConfigError([f"{name} ({weights.folder}) has another {what} than model.path={path!r}{hint}"])
        if (problem := player_specs.thinking_problem(weights, self._config)) is not None:
            raise ConfigError([f"{name} {problem}"])

    def engine(
        self,
        params: Params,
        *,
        sampling: SamplingConfig,
        hosts: Literal["same", "own"] = "same",
        other_sampling: Sequence[SamplingConfig] = (),
        plain_logprobs: bool = False,
        kept_sets: bool = False,
    ) -> Engine:
        """Returns an engine that plays as the configuration says; `params` are of its policy ``policy``.

        The rest is as in `dfc.inference.engine.Engine`.
        """
        rollout, tokenizer = self._rollout, self.tokenizer
        longer = [text for text in rollout.stop if len(text) > 1]  # a single character is whole in one token
        return Engine(
            self.model,
            params,
            slots=self._slots,
            max_length=rollout.max_length,
            stop_token_ids=tokenizer.stop_token_ids(rollout.stop),
            sampling=sampling,
            rows=rollout.rows or rollout.slots,
            prefill_buckets=rollout.prefill_buckets or None,
            decode_steps=min(rollout.decode_steps, rollout.max_reply_length),
            ends=StopStrings(longer, tokenizer.decode) if longer else None,
            mesh=self.playing_mesh,
            hosts=hosts,
            other_sampling=other_sampling,
            plain_logprobs=plain_logprobs,
            kept_sets=kept_sets,
        )


def release(engine: RolloutEngine, policies: Iterable[str], initial: Params) -> None:
    """Gives policies of an engine the initial weights, so that the next update does not hold two copies of others."""
    for name in policies:
        engine.set_params(initial, engine.version(name), policy=name)
    engine.forget_copies()


def load_tokenizer(source: Path, *, enable_thinking: bool | None) -> ChatTokenizer:
    """Returns a model folder's tokenizer; where it departs from the chat template is printed once in a process.

    Raises:
      WeightsError: as `ChatTokenizer.load`.
    """
    tokenizer = ChatTokenizer.load(source, enable_thinking=enable_thinking)
    _print_departures(str(source), tokenizer.departure, tokenizer.opens_thought)
    _print_other_thinking(source, enable_thinking)
    return tokenizer


@functools.cache
def _print_departures(source: str, departure: str | None, opens_thought: bool) -> None:
    if not multihost.is_primary():
        return
    if departure is not None:
        print(f"{source}: {departure}", flush=True)  # noqa: T201 - progress
    if opens_thought:
        print(  # noqa: T201 - the same
            f"{source}: The chat template opens a thought (<think>) before every reply; replies of scripted players, "
            "disturbances and rows that do not close it begin with </think>.",
            flush=True,
        )


@functools.cache
def _print_other_thinking(source: Path, enable_thinking: bool | None) -> None:
    recorded = player_specs.recorded_thinking(source)
    if multihost.is_primary() and recorded not in (None, enable_thinking):
        print(  # noqa: T201 - the same
            f"{source}: was trained with model.enable_thinking={recorded}; here it is {enable_thinking}.", flush=True
        )
