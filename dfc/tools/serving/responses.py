"""What a client gets: OpenAI's objects of a chat completion, whole or in parts, and of an error."""

import dataclasses
import json
from collections.abc import Collection, Sequence
from typing import Any

from dfc.inference.protocol import EngineReply
from dfc.models.chat import ChatTokenizer
from dfc.tools.serving.requests import RequestError

Json = dict[str, Any]
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
_CONTEXT = 8  # tokens before one, with which it is decoded: its text may depend on them


@dataclasses.dataclass(frozen=True)
class Head:
    """Fields that all parts of an answer share. Attributes: id, created (seconds since 1970), model, fingerprint."""

    id: str
    created: int
    model: str
    fingerprint: str

    def of(self, kind: str) -> Json:
        """Returns the fields of an object of a kind."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


class ReplyText:
    """The text of one reply as it grows: without the stop string that ends it, and only what no token can change.

    Held back are the beginning of a stop string, the bytes of a character that is not whole, and tokens at the end
    whose text depends on what follows (`revocable`).
    """

    def __init__(self, tokenizer: ChatTokenizer, stop: Sequence[str], held: Collection[int]) -> None:
        """Begins with no text; the first of the `stop` strings ends it, `held` is what `revocable` returns."""
        self._tokenizer, self._stop, self._held = tokenizer, stop, held
        self._said = ""

    def more(self, reply: EngineReply, *, whole: bool) -> str:
        """Returns what follows the text so far; of a whole reply all the rest."""
        token_ids = without_end(reply.token_ids, self._tokenizer)
        if not whole:
            last = next((n for n in range(len(token_ids), 0, -1) if token_ids[n - 1] not in self._held), 0)
            token_ids = token_ids[:last]
        text = self._tokenizer.decode(token_ids)
        places = [place for place in map(text.find, self._stop) if place >= 0]
        if places:
            text = text[: min(places)]
        elif not whole:
            text = text.rstrip(_INCOMPLETE)
            text = text[: len(text) - max((_begun(text, stop) for stop in self._stop), default=0)]
        if not text.startswith(self._said):  # a decoder that changed earlier text; what was sent stays
            return ""
        more, self._said = text[len(self._said) :], text
        return more


def revocable(tokenizer: ChatTokenizer) -> frozenset[int]:
    """Returns the tokens whose text the next token may change: single bytes, of tokenizers that fall back to them.

    Their decoders make one text of all bytes that follow each other: where one does not fit, all of them are no text.
    Tokens without a text, such as special ones, do not part them.
    """
    texts = {token_id: tokenizer.decode([token_id]) for token_id in range(tokenizer.vocabulary)}
    broken = next((token_id for token_id, text in texts.items() if text == _INCOMPLETE), None)
    if broken is None:
        return frozenset()
    # Single characters that stay what they are before a byte that fits nowhere are none of these bytes.
    short = [token_id for token_id, text in texts.items() if len(text) == 1 and text != _INCOMPLETE]
    held = {token_id for token_id in short if not tokenizer.decode([token_id, broken]).startswith(texts[token_id])}
    others = {token_id for token_id, text in texts.items() if not text.strip(_INCOMPLETE)}
    return frozenset(held | others) if held else frozenset()


def _begun(text: str, stop: str) -> int:
    """Returns how many characters at the end of a text begin a stop string."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)


def without_end(token_ids: Sequence[int], tokenizer: ChatTokenizer) -> Sequence[int]:
    """Returns the tokens of a reply without the one that ends its turn."""
    ended = bool(token_ids) and token_ids[-1] in tokenizer.end_token_ids
    return token_ids[:-1] if ended else token_ids


def logprobs(reply: EngineReply, tokenizer: ChatTokenizer, start: int = 0) -> Json:
    """Returns the log-probabilities of the sampled tokens from `start` on, the end of the turn left out.

    They are those of the model itself, at temperature 1 and without filters. A token of single bytes of a character
    has no bytes of its own (null).
    """
    token_ids, found = without_end(reply.token_ids, tokenizer), []
    for place in range(start, len(token_ids)):
        before = tokenizer.decode(token_ids[max(0, place - _CONTEXT) : place])
        after = tokenizer.decode(token_ids[max(0, place - _CONTEXT) : place + 1])
        apart = after.startswith(before) and _INCOMPLETE not in after
        text = after[len(before) :] if apart else tokenizer.decode([token_ids[place]])
        spelled = None if _INCOMPLETE in text else list(text.encode())
        found.append({"token": text, "logprob": reply.plain_logprobs[place], "bytes": spelled, "top_logprobs": []})
    return {"content": found, "refusal": None}


def finish_reason(reply: EngineReply) -> str:
    """Returns why a whole reply ended: ``stop``, or ``length`` where a limit cut it."""
    return "stop" if reply.stopped else "length"


def usage(prompt: int, replies: Sequence[EngineReply]) -> Json:
    """Returns the numbers of tokens; those of the prompt count once for all choices, as they are read once."""
    completion = sum(len(reply.token_ids) for reply in replies)
    # Choices after the first copy what the first has read; what the first one found there is what was saved.
    cached = min((reply.shared_tokens for reply in replies), default=0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def completion(head: Head, choices: Sequence[Json], numbers: Json) -> Json:
    """Returns a whole answer of choices (`choice`) and `usage`."""
    return {**head.of("chat.completion"), "choices": list(choices), "usage": numbers}


def choice(index: int, text: str, reply: EngineReply, its_logprobs: Json | None) -> Json:
    """Returns one whole choice."""
    return {
        "index": index,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "logprobs": its_logprobs,
        "finish_reason": finish_reason(reply),
    }


def chunk(head: Head, index: int, delta: Json, *, reason: str | None = None, its_logprobs: Json | None = None) -> Json:
    """Returns a part of one choice."""
    part = {"index": index, "delta": delta, "logprobs": its_logprobs, "finish_reason": reason}
    return {**head.of("chat.completion.chunk"), "choices": [part]}


def last_chunk(head: Head, numbers: Json) -> Json:
    """Returns the part after the choices', with `usage`."""
    return {**head.of("chat.completion.chunk"), "choices": [], "usage": numbers}


def model(name: str, created: int, policy: str) -> Json:
    """Returns the entry of ``/v1/models``; `policy` is a text that says which weights answer."""
    return {"id": name, "object": "model", "created": created, "owned_by": "dfc", "policy": policy}


def error(problem: RequestError) -> Json:
    """Returns OpenAI's object of an error."""
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(problem.status, "invalid_request_error" if problem.status < 500 else "server_error")
    return {"error": {"message": problem.message, "type": kind, "param": problem.param, "code": problem.code}}


def encoded(data: Json) -> bytes:
    """Returns an object as JSON, in ASCII."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


def event(data: bytes) -> bytes:
    """Returns data as one event of a stream (SSE)."""
    return b"data: " + data + b"\n\n"


DONE = event(b"[DONE]")
