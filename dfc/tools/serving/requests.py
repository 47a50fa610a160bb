"""What a client asks for: the body of a chat completion, checked by pydantic.

A field that would change the answer and is not computed here is refused with its name; one that changes nothing
(`user`, `metadata`) passes, and so does a refused field with a value that leaves the answer as it is (`fields`).
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NoReturn

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
)

from dfc.config import SamplingConfig
from dfc.errors import WeightsError, shown
from dfc.files import half_a_pair
from dfc.models.chat import ChatTokenizer
from dfc.tools.serving import fields

MOST_CHOICES, MOST_STOPS = 8, 4
_MOST_MESSAGES = 4096
_LONGEST_STOP = 256  # characters
_SEEDS = 1 << 63
_THINKING = "chat_template_kwargs.enable_thinking"
# Of a message: what the openai client sends back of a reply that it was given, by this server or by vLLM's.
_EMPTY_IN_A_MESSAGE = {
    *("refusal", "tool_calls", "function_call", "audio", "annotations", "name", "reasoning", "reasoning_content"),
}


class RequestError(Exception):
    """A request that gets no answer.

    Attributes:
      status: of HTTP. message: what was expected, what came, how to do better. code: OpenAI's word for it. param: the
        field. headers: of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = dict(headers or {})


@dataclasses.dataclass(frozen=True)
class ChatRequest:
    """One chat completion.

    Attributes:
      model: the name asked for.
      system: the system message; None: none.
      turns: user messages with the replies to them; the last has none (None) and waits for it.
      max_tokens: of each reply; None: as many as fit.
      sampling: how tokens are sampled.
      seed: of the first choice; None: any.
      stop: texts that end a reply and do not belong to it.
      n: choices.
      logprobs: whether those of the sampled tokens are returned.
      stream: whether the answer comes in parts. usage: whether a stream ends with the numbers of tokens.
      enable_thinking: passed to the chat template; None: the server's default.
    """

    model: str
    system: str | None
    turns: tuple[tuple[str, str | None], ...]
    max_tokens: int | None
    sampling: SamplingConfig
    seed: int | None
    stop: tuple[str, ...]
    n: int
    logprobs: bool
    stream: bool
    usage: bool
    enable_thinking: bool | None = None


# ---- what a body may hold -------------------------------------------------------------------------------------------


def _text(text: str) -> str:
    """Returns a text that can be written as UTF-8; JSON can encode halves of a surrogate pair."""
    if half_a_pair(text):
        raise ValueError("expected text, got half of a surrogate pair")
    return text


def _without_empty(message: object) -> object:
    """Returns a message without fields that say nothing."""
    if not isinstance(message, dict):
        return message
    return {name: value for name, value in message.items() if value or name not in _EMPTY_IN_A_MESSAGE}


_Text = Annotated[str, AfterValidator(_text)]
_Tokens = Annotated[int, Field(ge=1, lt=2**31)]
_Stop = Annotated[str, Field(min_length=1, max_length=_LONGEST_STOP, pattern="^[^\ufffd]*$")]
_ONE, _SEVERAL = "<one>", "<several>"  # which kind of a value is checked; no part of the place in an error


class _Checked(BaseModel):
    """No value is turned into one of another type, and every field is known."""

    model_config = ConfigDict(strict=True, extra="forbid")


class _Part(_Checked):
    type: Literal["text"]
    text: _Text


class _Message(_Checked):
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        Annotated[_Text, Tag(_ONE)] | Annotated[list[_Part], Field(fail_fast=True), Tag(_SEVERAL)],
        Discriminator(lambda content: _SEVERAL if isinstance(content, list) else _ONE),
    ]

    def said(self) -> tuple[str, str]:
        """Returns who says what; a developer is what the system is."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return "system" if self.role == "developer" else self.role, text


class _StreamOptions(_Checked):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None
    continuous_usage_stats: Literal[False] | None = None


class _TemplateSettings(_Checked):
    enable_thinking: bool | None = None


class _Body(_Checked):
    """The fields that are read, of those that `dfc.tools.serving.fields` lets pass."""

    model_config = ConfigDict(extra="ignore")

    messages: Annotated[
        list[Annotated[_Message, BeforeValidator(_without_empty)]],
        Field(min_length=1, max_length=_MOST_MESSAGES, fail_fast=True),
    ]
    model: Annotated[str, Field(min_length=1)]
    stream: bool = False
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] = 0  # -1 is vLLM's word for off
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Annotated[int, Field(ge=-_SEEDS, lt=_SEEDS)] | None = None
    stop: Annotated[
        list[_Stop],
        Field(max_length=MOST_STOPS),
        BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop),
    ] = []
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] = 1
    logprobs: bool = False
    stream_options: _StreamOptions = _StreamOptions()
    chat_template_kwargs: _TemplateSettings = _TemplateSettings()


def _refuse(param: str, why: str, *, code: str = "invalid_value") -> NoReturn:
    raise RequestError(400, f"{shown(param)[1:-1]}: {why}", code=code, param=param)


def _refusal(error: ValidationError) -> NoReturn:
    """Refuses a request for the first problem that pydantic found with it."""
    found = error.errors(include_url=False, include_context=False)[0]
    places = [place for place in found["loc"] if place not in (_ONE, _SEVERAL)]
    param = "".join(f"[{place}]" if isinstance(place, int) else f".{place[:100]}" for place in places).lstrip(".")
    if found["type"] == "extra_forbidden":
        _refuse(param, "not supported here, and it could change the answer; leave it out", code="unsupported_parameter")
    why = "expected an object" if found["type"] == "model_type" else found["msg"].removeprefix("Value error, ")
    got = "" if found["type"] in ("missing", "value_error") else f", got {shown(found['input'])}"
    _refuse(param, why[0].lower() + why[1:] + got)


# ---- what it is read as ---------------------------------------------------------------------------------------------


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def parse(body: bytes) -> ChatRequest:
    """Returns the request that a body holds.

    Raises:
      RequestError: it is no JSON object, a field is missing or has no such value, or would change the answer and is
        not supported.
    """
    try:
        data = json.loads(body.decode("utf-8"), parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        place = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise RequestError(400, f"the body must be one JSON object in UTF-8, and cannot be read{place}") from error
    if not isinstance(data, dict):
        raise RequestError(400, f"the body must be one JSON object, got {shown(data)}")
    for name, value in data.items():
        if name not in _Body.model_fields and (refused := fields.problem(name, value)) is not None:
            code, message = refused
            raise RequestError(400, message, code=code, param=name[:100])
    try:
        read = _Body.model_validate({name: value for name, value in data.items() if value is not None})
    except ValidationError as error:
        _refusal(error)
    limits = {read.max_tokens, read.max_completion_tokens} - {None}
    if len(limits) > 1:
        _refuse("max_tokens", "expected the same as max_completion_tokens, or one of the two")
    if data.get("stream_options") is not None and not read.stream:
        _refuse("stream_options", "expected nothing unless stream is true")
    system, turns = _conversation([message.said() for message in read.messages])
    return ChatRequest(
        model=read.model,
        system=system,
        turns=turns,
        max_tokens=next(iter(limits), None),
        sampling=SamplingConfig(
            temperature=read.temperature, top_p=read.top_p, top_k=max(0, read.top_k), min_p=read.min_p
        ),
        seed=None if read.seed is None else read.seed % (1 << 64),
        stop=tuple(read.stop),
        n=read.n,
        logprobs=read.logprobs,
        stream=read.stream,
        usage=bool(read.stream_options.include_usage),
        enable_thinking=read.chat_template_kwargs.enable_thinking,
    )


def _conversation(said: list[tuple[str, str]]) -> tuple[str | None, tuple[tuple[str, str | None], ...]]:
    """Returns the system message, and the user's messages with the replies to them."""
    system = said.pop(0)[1] if said[0][0] == "system" else None
    wanted = ["assistant" if number % 2 else "user" for number in range(len(said))]
    if [role for role, _ in said] != wanted or not len(said) % 2:
        order = "expected a system message or none, then user and assistant in turn, the user first and last"
        _refuse("messages", f"{order}; join messages of one role that follow each other")
    texts = [text for _, text in said]
    return system, tuple(zip(texts[::2], [*texts[1::2], None], strict=True))


def tokenizer(request: ChatRequest, default: ChatTokenizer, thinking: Mapping[bool, ChatTokenizer]) -> ChatTokenizer:
    """Returns the tokenizer whose chat template is set as a request asks: the default, or that of its thinking setting.

    Raises:
      RequestError: the template has no such setting.
    """
    if request.enable_thinking is None:
        return default
    if request.enable_thinking in thinking:
        return thinking[request.enable_thinking]
    why = "cannot be used with this value" if thinking else "does not read it"
    message = f"{_THINKING}: the model's chat template {why}; leave it out"
    raise RequestError(400, message, code="unsupported_parameter", param=_THINKING)


def token_ids(request: ChatRequest, tokenizer: ChatTokenizer) -> list[int]:
    """Returns the tokens of a request's conversation up to where the reply begins.

    They depend on the request alone: replies that a client sends back are tokenized from their text, so their tokens
    need not be those that were sampled.

    Raises:
      RequestError: the model's chat template takes no such conversation.
    """
    found: list[int] = []
    try:
        for user, reply in request.turns:
            if found:
                found += tokenizer.next_turn(user, closed=False)
            else:
                found += tokenizer.first_turn(user, system=request.system)
            if reply is not None:
                found += tokenizer.encode_reply(reply)
    except WeightsError as error:
        hint = "shorten or rephrase the messages" if request.system is None else "leave out the system message"
        message = f"messages: the model's chat template or tokenizer cannot take this conversation; {hint}"
        raise RequestError(400, message, code="invalid_value", param="messages") from error
    return found


def room(request: ChatRequest, prompt: int, max_length: int) -> int:
    """Returns how many tokens a reply may have, where prompt and reply have `max_length` at most.

    Raises:
      RequestError: the prompt leaves no room.
    """
    if prompt >= max_length:
        raise too_long(f"{prompt} tokens", max_length)
    return min(request.max_tokens or max_length, max_length - prompt)


def too_long(size: str, max_length: int) -> RequestError:
    """Returns the refusal of a conversation of a size that leaves no room for a reply."""
    message = (
        f"messages: the conversation has {size}, and the model reads {max_length} of prompt and reply together; "
        "send fewer or shorter messages"
    )
    return RequestError(400, message, code="context_length_exceeded", param="messages")


def characters(request: ChatRequest) -> int:
    """Returns how many characters a request's messages have together."""
    texts: Sequence[str | None] = [request.system, *(text for turn in request.turns for text in turn)]
    return sum(len(text) for text in texts if text is not None)
