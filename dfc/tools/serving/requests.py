"""What a client asks for: the body of a chat completion, checked field by field.

A field that would change the answer and is not computed here is refused with its name; one that changes nothing
(`user`, `metadata`) passes, and so does a refused field with a value that leaves the answer as it is (`fields`).
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from dfc.config import SamplingConfig
from dfc.errors import WeightsError, shown
from dfc.files import half_a_pair
from dfc.models.chat import ChatTokenizer
from dfc.tools.serving import fields

MOST_CHOICES, MOST_STOPS = 8, 4
_MOST_MESSAGES = 4096
_LONGEST_STOP = 256  # characters
_SEEDS = 1 << 63
_STREAM_OPTIONS = {"include_usage", "include_obfuscation", "continuous_usage_stats"}
_THINKING = "chat_template_kwargs.enable_thinking"
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
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


def _wrong(param: str, expected: str, value: object, *, code: str | None = "invalid_value") -> NoReturn:
    raise RequestError(400, f"{param}: expected {expected}, got {shown(value)}", code=code, param=param)


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
        raise RequestError(400, f"the body must be one JSON object, got {_kind(data)}")
    for name, value in data.items():
        if (refused := fields.problem(name, value)) is not None:
            code, message = refused
            raise RequestError(400, message, code=code, param=name[:100])
    system, turns = _conversation(data.get("messages"))
    model = data.get("model")
    if not isinstance(model, str) or not model:
        _wrong("model", "the name of the model; GET /v1/models lists it", model)
    stream = _flag(data, "stream")
    return ChatRequest(
        model=model,
        system=system,
        turns=turns,
        max_tokens=_most_tokens(data),
        sampling=SamplingConfig(
            temperature=_number(data, "temperature", 1.0, lambda x: 0 <= x <= 2, "a number from 0 to 2"),
            top_p=_number(data, "top_p", 1.0, lambda x: 0 < x <= 1, "a number above 0 and at most 1"),
            top_k=max(0, _whole(data, "top_k", 0, (-1, 2**31 - 1))),  # -1 is vLLM's word for off
            min_p=_number(data, "min_p", 0.0, lambda x: 0 <= x <= 1, "a number from 0 to 1"),
        ),
        seed=None if data.get("seed") is None else _whole(data, "seed", 0, (-_SEEDS, _SEEDS - 1)) % (1 << 64),
        stop=_stops(data.get("stop")),
        n=_whole(data, "n", 1, (1, MOST_CHOICES)),
        logprobs=_flag(data, "logprobs"),
        stream=stream,
        usage=_usage_wanted(data.get("stream_options"), stream=stream),
        enable_thinking=_thinking_wanted(data.get("chat_template_kwargs")),
    )


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


# ---- fields ---------------------------------------------------------------------------------------------------------


def _kind(value: object) -> str:
    names = {list: "a list", dict: "an object", str: "a text", bool: "true or false"}
    return names.get(type(value), "nothing" if value is None else "a number")


def _flag(data: Mapping[str, Any], name: str) -> bool:
    value = data.get(name)
    if value is not None and not isinstance(value, bool):
        _wrong(name, "true or false", value)
    return bool(value)


def _number(data: Mapping[str, Any], name: str, default: float, fits: Callable[[float], bool], expected: str) -> float:
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not fits(value):
        _wrong(name, expected, value)
    return float(value)


def _whole(data: Mapping[str, Any], name: str, default: int, bounds: tuple[int, int]) -> int:
    value = data.get(name)
    if value is None:
        return default
    low, high = bounds
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        _wrong(name, f"a whole number from {low} to {high}", value)
    return value


def _most_tokens(data: Mapping[str, Any]) -> int | None:
    names = [name for name in ("max_tokens", "max_completion_tokens") if data.get(name) is not None]
    values = [_whole(data, name, 0, (1, 2**31 - 1)) for name in names]
    if len(set(values)) > 1:
        _wrong("max_tokens", "the same as max_completion_tokens, or one of the two", values[0])
    return values[0] if values else None


def _stops(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if (
        not isinstance(stops, list)
        or len(stops) > MOST_STOPS
        or not all(isinstance(s, str) and 0 < len(s) <= _LONGEST_STOP and "\ufffd" not in s for s in stops)
    ):
        expected = f"a text or {MOST_STOPS} at most, each of 1 to {_LONGEST_STOP} characters and without U+FFFD"
        _wrong("stop", expected, value)
    return tuple(stops)


def _usage_wanted(options: object, *, stream: bool) -> bool:
    if options is None:
        return False
    if not stream:
        _wrong("stream_options", "nothing unless stream is true", options)
    if not isinstance(options, dict) or options.keys() - _STREAM_OPTIONS:
        _wrong("stream_options", 'an object such as {"include_usage": true}', options)
    for name in ("include_obfuscation", "continuous_usage_stats"):
        if options.get(name) not in (None, False):
            _wrong(f"stream_options.{name}", "false", options[name])
    return _flag(options, "include_usage")


def _thinking_wanted(options: object) -> bool | None:
    if options is None:
        return None
    if not isinstance(options, dict):
        _wrong("chat_template_kwargs", 'an object such as {"enable_thinking": false}', options)
    for name in options:
        if name != "enable_thinking":
            field = f"chat_template_kwargs.{name[:100]}"
            why = f"{shown(field)}: not supported here, and it could change the answer; leave it out"
            raise RequestError(400, why, code="unsupported_parameter", param=field)
    value = options.get("enable_thinking")
    if value is not None and not isinstance(value, bool):
        _wrong(_THINKING, "true or false", value)
    return value


# ---- messages -------------------------------------------------------------------------------------------------------


def _conversation(messages: object) -> tuple[str | None, tuple[tuple[str, str | None], ...]]:
    """Returns the system message, and the user's messages with the replies to them."""
    if not isinstance(messages, list) or not 0 < len(messages) <= _MOST_MESSAGES:
        raise RequestError(
            400, f"messages: expected a list of 1 to {_MOST_MESSAGES} messages, got {_kind(messages)}", param="messages"
        )
    said = [_message(f"messages[{number}]", message) for number, message in enumerate(messages)]
    system = said.pop(0)[1] if said[0][0] == "system" else None
    wanted = ["assistant" if number % 2 else "user" for number in range(len(said))]
    if [role for role, _ in said] != wanted or not len(said) % 2:
        message = (
            "messages: expected a system message or none, then user and assistant in turn, the user first and last; "
            "join messages of one role that follow each other"
        )
        raise RequestError(400, message, code="invalid_value", param="messages")
    users, replies = said[::2], said[1::2]
    return system, tuple(
        (user, reply) for (_, user), reply in zip(users, [*(text for _, text in replies), None], strict=True)
    )


def _message(place: str, message: object) -> tuple[str, str]:
    """Returns the role and the text of a message."""
    if not isinstance(message, dict):
        _wrong(place, "an object with role and content", message)
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        _wrong(f"{place}.role", f"one of {', '.join(_ROLES)}", role)
    for name, value in message.items():
        if name in {"role", "content"} or (name in _EMPTY_IN_A_MESSAGE and not value):
            continue
        field = f"{place}.{name[:100]}"
        why = f"{shown(field)}: not supported here, and it would change the answer; leave it out"
        raise RequestError(400, why, code="unsupported_parameter", param=field)
    return _ROLES[role], _text(f"{place}.content", message.get("content"))


def _text(place: str, content: object) -> str:
    """Returns a content's text, which may come in parts."""
    if isinstance(content, list):
        return "".join(_part(f"{place}[{number}]", part) for number, part in enumerate(content))
    if not isinstance(content, str):
        _wrong(place, "a text", content)
    return _unicode(place, content)


def _part(place: str, part: object) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or kind != "text" or not isinstance(part.get("text"), str):
        _wrong(f"{place}.type", 'a part of the type "text"; images and sound are not supported', kind)
    if part.keys() - {"type", "text"}:
        name = min(part.keys() - {"type", "text"})
        _wrong(f"{place}.{name[:100]}", "type and text only", part[name])
    return _unicode(place, part["text"])


def _unicode(place: str, text: str) -> str:
    """Returns a text that can be written as UTF-8; JSON can encode halves of a surrogate pair."""
    if half_a_pair(text):
        raise RequestError(
            400, f"{place}: expected text, got half of a surrogate pair", code="invalid_value", param=place
        )
    return text


def characters(request: ChatRequest) -> int:
    """Returns how many characters a request's messages have together."""
    texts: Sequence[str | None] = [request.system, *(text for turn in request.turns for text in turn)]
    return sum(len(text) for text in texts if text is not None)
