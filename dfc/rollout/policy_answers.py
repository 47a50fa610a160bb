"""Answers of policies to queries, each a conversation of one reply: one engine, and one policy's weights at a time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dfc.config import EvaluateAnswers
from dfc.errors import ConfigError
from dfc.models import huggingface
from dfc.players import player_specs
from dfc.players.player_specs import PlayerSpec
from dfc.rollout.host import ModelHost
from dfc.rollout.samples import Asker


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
        self._host = ModelHost(config.model, config.engine_rollout, slots=config.rollout.slots, mesh=config.mesh)
        self._asker: Asker | None = None
        self._refuse_long(queries)

    def _refuse_long(self, queries: Mapping[str, Sequence[str]]) -> None:
        most, found = self._config.rollout.max_length, []
        for key, texts in queries.items():
            lengths = [len(self._host.tokenizer.first_turn(text)) for text in texts]
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
        self._host.refuse_other(weights, f"policies: {spec.name!r}", "; give it a run of its own")
        if self._asker is not None:  # otherwise old and new weights would be in memory together
            self._asker.engine.set_params({}, self._asker.engine.version())
        params = self._host.policy_params(weights)
        if self._asker is None:
            engine = self._host.engine(params, sampling=config.sampling)
            self._asker = Asker(engine, self._host.tokenizer, self._check_stop)
            self._note_device(self._host.device)
        else:
            self._asker.engine.set_params(params, self._asker.engine.version() + 1)

    def answer(self, queries: Sequence[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
        """Returns for each query what was answered, how many tokens that took, and whether a limit cut it."""
        assert self._asker is not None  # noqa: S101 - a policy was loaded
        found = self._asker.ask(
            [self._asker.prompt(query) for query in queries],
            1,
            seed=lambda query, _: seeds[query],
            longest=self._config.rollout.max_reply_length,
        )
        return [{"answer": one.text, "tokens": one.sample.generated_tokens, "cut": not one.ended} for (one,) in found]
