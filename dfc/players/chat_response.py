"""Reads what a chat endpoint sends: a reply, a reason why there is none, how long to wait. Bytes in, values out."""

import dataclasses
import email.utils
import json
import re
import time
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from dfc.players.usage import Usage, reported_usage

_NO_PACKING = ("", "identity", "none", "utf-8")  # the last two are no encodings, but are sent as such
_PACKINGS = ("gzip", "x-gzip", "deflate")
_SHOWN = 300  # characters of an answer in an error message
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


@dataclasses.dataclass(frozen=True)
class ChatReply:
    """A reply that can be played; `usage` is the tokens it took, None where the server sends no counts."""

    text: str
    usage: Usage | None


@dataclasses.dataclass(frozen=True)
class AttemptFailure:
    """Why an attempt gave no reply.

    Attributes:
      text: what came, and the fix if there is one.
      retryable: whether the same request may succeed later.
      usage: tokens the server counted for it nevertheless.
      of_request: whether the contents of this request are the reason; other requests may get a reply.
    """

    text: str
    retryable: bool = True
    usage: Usage | None = None
    of_request: bool = False


class AnswerTooLargeError(Exception):
    """An answer that is not read; the text says why, and what to do."""


async def read_body(parts: AsyncIterator[bytes], headers: Mapping[str, str], limit: int) -> bytes:
    """Returns the body of an answer, unpacked; stops at the limit, which holds before and after unpacking.

    No compression is asked for, but some gateways compress nevertheless. The limit is in bytes; names of `headers` are
    in small letters.

    Raises:
      AnswerTooLargeError: it is larger, or compressed in a way that cannot be unpacked piece by piece here.
    """
    hint = "lower max_tokens, or raise max_answer_bytes if such answers are meant"
    too_large = AnswerTooLargeError(f"the answer has more than max_answer_bytes={limit}; {hint}")
    encoding = headers.get("content-encoding", "")
    packings = [name for name in (part.strip().lower() for part in encoding.split(",")) if name not in _NO_PACKING]
    if len(packings) > 1 or not set(packings) <= set(_PACKINGS):
        raise AnswerTooLargeError(
            f"the answer is compressed ({encoding[:40]}), which was not asked for; turn that off there, or use gzip"
        )
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise too_large
    body = bytearray()
    received = 0
    unpacker: Any = None
    async for part in parts:
        received += len(part)
        if received > limit:
            raise too_large
        if packings and part:
            unpacker = unpacker or zlib.decompressobj(_window(packings[0], part[0]))
            body += unpacker.decompress(part, limit + 1 - len(body))
        else:
            body += part
        if len(body) > limit:
            raise too_large
    return bytes(body)


def _window(packing: str, first: int) -> int:
    """What zlib calls a format. Some servers send "deflate" without its header, whose first byte ends in 8."""
    if packing != "deflate":
        return 16 + zlib.MAX_WBITS
    return zlib.MAX_WBITS if first & 15 == 8 else -zlib.MAX_WBITS


def shown(text: str) -> str:
    """Returns the beginning of a text in one line, for an error message."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def read_reply(content: bytes) -> ChatReply | AttemptFailure:
    """Returns the reply in the body of a chat completion, or what is wrong with it; blanks alone are no reply.

    Lone surrogates, which JSON can encode and no tokenizer reads, become question marks.
    """
    if not content.strip():
        return AttemptFailure("the body of the answer is empty")
    try:
        response = json.loads(content)
    except (ValueError, RecursionError):
        return AttemptFailure(f"the answer is not JSON: {shown(content.decode('utf-8', 'replace'))!r}")
    choices = response.get("choices") if isinstance(response, dict) else None
    usage = reported_usage(response.get("usage")) if isinstance(response, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return AttemptFailure(f"the answer has no choices: {message_of(response)}", usage=usage)
    message = choices[0].get("message")
    text = message.get("content") if isinstance(message, dict) else None
    finish = choices[0].get("finish_reason")
    blank = not isinstance(text, str) or not text.strip()
    if finish == "length" and blank:
        hint = "raise max_tokens (or max_completion_tokens in extra_body)"
        return AttemptFailure(
            f"the limit of tokens was used up before the reply began: {hint}",
            retryable=False,
            usage=usage,
            of_request=True,
        )
    if isinstance(text, str) and not blank:
        return ChatReply(text.encode("utf-8", "replace").decode(), usage)
    without = shown(json.dumps(choices[0], ensure_ascii=False))
    return AttemptFailure(f"the answer has no text: {without}", usage=usage, of_request=True)


def message_of(response: object) -> str:
    """Returns the message inside an error answer, in the shapes that servers use, or the whole of it."""
    found = response
    while isinstance(found, Mapping):
        found = next((found[name] for name in ("error", "message", "detail") if found.get(name)), None)
    if isinstance(found, str):
        return shown(found)
    return shown(json.dumps(response, ensure_ascii=False))


def read_error(content: bytes) -> tuple[str, str]:
    """Returns the message and the code (or an empty text) of an error answer's body."""
    text = content.decode("utf-8", "replace")
    try:
        response = json.loads(text)
    except (ValueError, RecursionError):
        return shown(text) or "no explanation", ""
    error = response.get("error", response) if isinstance(response, dict) else response
    code = error.get("code") if isinstance(error, dict) else None
    return message_of(response), str(code or "")


def model_names(content: bytes) -> list[str]:
    """Returns the ids in a server's list of models; empty where it is none."""
    try:
        response = json.loads(content)
    except (ValueError, RecursionError):
        return []
    models = response.get("data") if isinstance(response, dict) else None
    models = models if isinstance(models, list) else []
    return [str(model["id"]) for model in models if isinstance(model, dict) and "id" in model]


def read_pause(headers: Mapping[str, str], *, limited: bool = True) -> float:
    """Returns for how many seconds a server that refused a request asks to be left alone; 0 where it says nothing.

    ``retry-after-ms`` comes first, then ``retry-after`` (seconds, or a date, read by the server's own clock where it
    sends that), then ``x-ratelimit-reset*``: of the limits with nothing remaining the longest, of others the shortest.
    `limited`: a limit is why it refused (status 429). Otherwise limits with something remaining mean nothing: many
    servers send them with every answer. Names of `headers` are in small letters.
    """
    fixed = _number(headers.get("retry-after-ms"))
    if fixed is not None:
        return max(0.0, fixed / 1e3)
    after = headers.get("retry-after")
    if after is not None:
        seconds = _number(after)
        if seconds is None:
            now = _date(headers.get("date"))
            until = _date(after)
            seconds = None if until is None else until - (time.time() if now is None else now)
        if seconds is not None:
            return max(0.0, seconds)
    spent: list[float] = []
    others: list[float] = []
    for name, value in headers.items():
        if name.lower().startswith("x-ratelimit-reset"):
            seconds = _duration(value)
            if seconds is not None:
                remaining = _number(headers.get(name.lower().replace("-reset", "-remaining")))
                (spent if remaining is not None and remaining <= 0 else others).append(seconds)
    if spent:
        return max(spent)
    return min(others, default=0.0) if limited else 0.0


def _number(text: str | None) -> float | None:
    if text is None or not re.fullmatch(r"\s*-?\d{1,15}(\.\d+)?\s*", text):
        return None
    return float(text)


def _date(text: str | None) -> float | None:
    try:
        return None if text is None else email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def _duration(text: str) -> float | None:
    """Returns seconds from ``6m0s``, ``20ms``, a number of seconds, or a time since 1970 in seconds or milliseconds."""
    number = _number(text)
    if number is None:
        parts = _DURATION.findall(text)
        if not parts or "".join(value + unit for value, unit in parts) != text.strip():
            return None
        return sum(float(value) * _UNITS[unit] for value, unit in parts)
    if number > 1e9:  # seconds since 1970, or milliseconds
        number = (number / 1e3 if number > 1e11 else number) - time.time()
    return max(0.0, number)
