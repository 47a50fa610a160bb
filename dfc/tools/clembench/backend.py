"""A policy as a model of clemcore, which then plays, scores and evaluates it as it does every other model.

clemcore looks for backends in its working directory: `dfc.tools.clembench.register` writes the file there that names
this one. Needs clemcore 3.7.2.

Source: clemcore 3.7.2, `clemcore.backends` (its `huggingface_local_api` for what a local model returns).

Departure: a conversation that leaves no room for a reply is answered with an empty reply, so that its game is broken
off and counts as not played. clemcore's own local models raise an error, upon which a game has no score and leaves
every mean.
"""

import collections
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from clemcore.backends import Backend, BatchGenerativeModel, ModelSpec
from clemcore.backends.utils import ensure_alternating_roles

from dfc.errors import ConfigError, shown
from dfc.games.parsing import spoken
from dfc.games.rng import derive_seed
from dfc.rollout.samples import samples
from dfc.samples import Sample
from dfc.tools.clembench import register
from dfc.tools.serving import requests, responses, server
from dfc.tools.serving.requests import ChatRequest, RequestError

Json = dict[str, Any]


class Response(NamedTuple):
    """The results of one dialogue for clemcore. Attributes: prompt, as sent; raw, for the log; text, for the game."""

    prompt: list[Json]
    raw: Json
    text: str


class DfcBackend(Backend):  # type: ignore[misc]  # clemcore has no types
    """Loads policies for clemcore; ``clem run -m NAME`` finds it by the registry's entry of that name."""

    def get_model_for(self, model_spec: ModelSpec) -> "DfcModel":
        """Returns a policy as a model; its programs are compiled.

        Args:
          model_spec: `model_id` is a folder with weights or a run, or ``tiny_player``; `model_config` may set what
            `register.SETTINGS` names, and ``seed``.

        Raises:
          ConfigError: the entry is wrong, or names no model. WeightsError, CheckpointError: weights cannot be read.
        """
        config, seed = register.settings_of(getattr(model_spec, "model_config", None) or {})
        path = getattr(model_spec, "model_id", None)
        if not isinstance(path, str) or not path:
            raise ConfigError([f"model_id: expected a folder with weights, a run or tiny_player, got {shown(path)}"])
        return DfcModel(model_spec, server.load(path, config), seed)


class DfcModel(BatchGenerativeModel):  # type: ignore[misc]  # clemcore has no types
    """A policy that replies to dialogues, as many at once as its engine has slots.

    What is sampled depends on the dialogue, the seed, the weights, and how often this very dialogue was asked before;
    not on the batch that it came in, up to rounding.
    """

    def __init__(self, model_spec: ModelSpec, policy: server.Policy, seed: int = 0) -> None:
        """Makes a model of an entry whose policy replies; `seed` is for temperatures above 0."""
        super().__init__(model_spec)
        self._policy, self._seed = policy, seed
        self._asked: collections.Counter[str] = collections.Counter()

    def generate_response(self, messages: Sequence[Json]) -> Response:
        """Returns the reply to one dialogue; see `generate_batch_response`."""
        return self.generate_batch_response([messages])[0]

    def generate_batch_response(self, batch_messages: Sequence[Sequence[Json]]) -> list[Response]:
        """Returns the replies to dialogues, in their order.

        The last message of a dialogue is the user's; those of one role that follow each other are joined. Temperature
        and tokens of a reply are those that clemcore has set.

        Raises:
          ValueError: a message is no text, such as an image, or the temperature or the length is none.
        """
        engine = self._policy.engine
        dialogues = [ensure_alternating_roles(list(messages)) for messages in batch_messages]
        asked = [self._request(messages) for messages in dialogues]
        prompts = [self._prompt(request) for request in asked]
        fitting = [number for number, prompt in enumerate(prompts) if len(prompt) < engine.max_length]
        found = [self._no_room(messages) for messages in dialogues]
        if not fitting:
            return found
        replies = samples(
            engine,
            [prompts[number] for number in fitting],
            1,
            seed=lambda place, _: self._next_seed(prompts[fitting[place]]),
            max_reply_length=asked[0].max_tokens or engine.max_length,
            sampling=asked[0].sampling,
        )
        for number, (reply,) in zip(fitting, replies, strict=True):
            found[number] = self._response(dialogues[number], reply)
        return found

    def _request(self, messages: list[Json]) -> ChatRequest:
        try:
            sampling = {"temperature": self.temperature, "max_tokens": self.max_tokens}
            return requests.parse(json.dumps({"model": self.name, "messages": messages, **sampling}).encode())
        except RequestError as error:
            raise ValueError(f"{self.name}: {error.message}") from error

    def _prompt(self, request: ChatRequest) -> list[int]:
        try:
            return requests.token_ids(request, self._policy.served.tokenizer)
        except RequestError as error:
            raise ValueError(f"{self.name}: {error.message}") from error

    def _next_seed(self, prompt: Sequence[int]) -> int:
        """Returns a seed that belongs to a dialogue, another one each time that it is asked."""
        key = f"{derive_seed('clembench', self._seed, *prompt):x}"
        self._asked[key] += 1
        return derive_seed("clembench", key, self._asked[key])

    def _response(self, messages: list[Json], reply: Sample) -> Response:
        tokenizer = self._policy.served.tokenizer
        token_ids = reply.token_ids[reply.mask].tolist()
        ended = responses.without_end(token_ids, tokenizer)
        text = tokenizer.decode(ended)
        reason = "stop" if len(ended) < len(token_ids) else "length"
        return self._told(messages, spoken(text) or "", text=text, finish_reason=reason, tokens=len(token_ids))

    def _no_room(self, messages: list[Json]) -> Response:
        return self._told(messages, "", text="", finish_reason="length", tokens=0, error="context_length_exceeded")

    def _told(self, messages: list[Json], said: str, **raw: object) -> Response:
        # Under this key clemcore's own models repeat what the game was given.
        return Response(messages, {**raw, "clem_player": {"response": said, "model_name": self.name}}, said)
