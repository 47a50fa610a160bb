"""Answers of policies to queries, each a conversation of one reply: one engine, and one policy's weights at a time."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dfc.config import EvaluateAnswers
from dfc.errors import ConfigError
from dfc.inference.engine import Engine
from dfc.models import huggingface, sharding
from dfc.models.chat import ChatTokenizer
from dfc.models.config import DecoderConfig
from dfc.players import player_specs
from dfc.players.player_specs import PlayerSpec
from dfc.rollout import trained_weights, workers
from dfc.rollout.samples import samples


def where(config: EvaluateAnswers, spec: PlayerSpec) -> str:
    """Returns where a policy's weights are."""
    return str(huggingface.resolve(config.model.path)) if spec.who == "initial" else spec.who


class AnsweringPolicy:
    """The engine, and whose weights answer in it.

    `queries` are by the key of the configuration that named their file; `note_device` is called with the hardware of
    the engine, `check_stop` between engine calls: its exception aborts the call.

    Raises:
      ConfigError: a query leaves no room for an answer.
    """

    def __init__(
        self,
        config: EvaluateAnswers,
        queries: Mapping[str, Sequence[str]],
        note_device: Callable[[str], None],
        check_stop: Callable[[], None],
    ) -> None:
        self._config, self._check_stop, self._note_device = config, check_stop, note_device
        shape, _ = trained_weights.kind_of(config.model.path)
        self._shape: DecoderConfig = dataclasses.replace(shape, dtype=config.model.dtype)
        self._tokenizer: ChatTokenizer = workers.load_tokenizer(
            huggingface.resolve(config.model.path), enable_thinking=config.model.enable_thinking
        )
        mesh = sharding.make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
        rollout = config.engine_rollout
        if mesh.size > 1:
            mesh = workers.make_decoding_mesh(rollout, self._shape, mesh, conversations=rollout.slots)
        self._mesh = mesh
        self._engine: Engine | None = None
        self._refuse_long(queries)

    def _refuse_long(self, queries: Mapping[str, Sequence[str]]) -> None:
        most, found = self._config.rollout.max_length, []
        for key, texts in queries.items():
            lengths = [len(self._tokenizer.first_turn(text)) for text in texts]
            if long := sum(length >= most for length in lengths):
                found.append(
                    f"{key}: {long} of {len(texts)} take up to {max(lengths)} tokens and leave no room for an "
                    f"answer; rollout.max_length={most} must be larger"
                )
        if found:
            raise ConfigError(found)

    def load(self, spec: PlayerSpec) -> None:
        """Loads a policy to answer with.

        Raises:
          ConfigError: it differs from the run's model in shape or tokenizer.
        """
        config, weights = self._config, player_specs.weights_in(where(self._config, spec))
        if (what := trained_weights.difference(weights.folder, config.model.path)) is not None:
            place = f"policies: {spec.name!r} ({weights.folder})"
            hint = f"than model.path={config.model.path!r}; give it a run of its own"
            raise ConfigError([f"{place} has another {what} {hint}"])
        if (why := player_specs.thinking_problem(weights, config.model)) is not None:
            raise ConfigError([f"policies: {spec.name!r} {why}"])
        params = trained_weights.load(weights, self._shape, self._mesh)
        if self._engine is not None:
            self._engine.set_params(params, self._engine.version() + 1)
            return
        self._engine = workers.make_engine(
            config.engine_rollout,
            self._shape,
            self._tokenizer,
            params,
            self._mesh,
            sampling=config.sampling,
            slots=config.rollout.slots,
        )
        self._note_device(f"{jax.device_count()} x {jax.devices()[0].device_kind}, jax {jax.__version__}")

    def answer(self, queries: Sequence[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
        """Returns for each query what was answered, how many tokens that took, and whether a limit cut it."""
        config = self._config
        assert self._engine is not None  # noqa: S101 - `load` comes before
        found = samples(
            self._engine,
            [self._tokenizer.first_turn(query) for query in queries],
            1,
            seed=lambda place, _: seeds[place],
            max_reply_length=config.rollout.max_reply_length,
            sampling=config.sampling,
            check_stop=self._check_stop,
        )
        ends = self._tokenizer.stop_token_ids(())
        return [self._said(one.token_ids[one.mask], ends) for (one,) in found]

    def _said(self, token_ids: np.ndarray, ends: frozenset[int]) -> dict[str, Any]:
        tokens = token_ids.tolist()
        cut = not tokens or tokens[-1] not in ends
        return {"answer": self._tokenizer.decode(tokens), "tokens": len(tokens), "cut": cut}
