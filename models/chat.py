r"""Chat messages to ids and back, always by appending: what was sampled or shown is never tokenized again.

A conversation's ids are `first_turn`, the reply's own ids, `next_turn`, the next reply's own ids, and so on. The fixed
strings around messages are read off the folder's own chat template once, by rendering conversations of marked messages.
Special tokens of those fixed strings become ids; a message that spells a special token stays text. A message is
tokenized together with the plain text the template puts beside it (such as ``user\n``), so the ids are those of
`apply_chat_template` over the whole conversation.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import tokenizers

from dfc.errors import WeightsError

_USERS = ("FIRST-MESSAGE", "SECOND-MESSAGE", "THIRD-MESSAGE")
_REPLIES = ("FIRST-REPLY", "SECOND-REPLY")
_SYSTEM = "SYSTEM-MESSAGE"
_PADDING = "\n "
_THOUGHT = "<think>\nTHOUGHT\n</think>\n\n"
# The default of Llama 3.1's and 3.2's own templates; without it Llama 3.2 would show every model the day of the run.
_DATE = "26 Jul 2024"
_CACHED_MESSAGES = 65_536


@dataclasses.dataclass(frozen=True)
class _Slot:
    """What surrounds a message: ids, the plain text tokenized together with it, ids."""

    before: tuple[int, ...]
    left: str
    right: str
    after: tuple[int, ...]


def _refusal(folder: Path, expected: str) -> WeightsError:
    return WeightsError(
        f"{folder}: the chat template cannot be used: {expected}. Conversations are only ever appended to; edit "
        "chat_template.jinja so that rendering more messages only adds text, and load the folder again."
    )


def _between(text: str, *marks: str) -> list[str] | None:
    """Splits a text at marks that must each occur once, in this order; None if they do not."""
    parts, rest = [], text
    for mark in marks:
        head, found, rest = rest.partition(mark)
        if not found or mark in rest:
            return None
        parts.append(head)
    return [*parts, rest]


def _declared_vocabulary(folder: Path) -> int | None:
    """Returns vocab_size of the folder's config.json, or None if it declares none."""
    path = folder / "config.json"
    if not path.is_file():
        return None
    config = json.loads(path.read_text(encoding="utf-8"))
    size = config.get("vocab_size", config.get("text_config", {}).get("vocab_size"))
    return None if size is None else int(size)


def _declared_end_ids(folder: Path) -> tuple[int, ...]:
    """Returns eos_token_id of the folder's generation_config.json, a number or a list there."""
    path = folder / "generation_config.json"
    if not path.is_file():
        return ()
    declared = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
    if declared is None:
        return ()
    return tuple(declared) if isinstance(declared, list) else (int(declared),)


def _pretrained(folder: Path) -> Any:  # noqa: ANN401  # transformers carries no types
    """Returns transformers' tokenizer of a folder, from local files only."""
    # Importing transformers takes over a second, and only a process that loads a model needs it.
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: PLC0415 - slow to import

    cure = "a Hugging Face folder holds tokenizer.json, tokenizer_config.json and its chat template: copy them there"
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise WeightsError(f"{folder}: no tokenizer (tokenizer.json, tokenizer.model or vocab.json) found: {cure}")
    # tokenizer.json states the whole pipeline; the model-specific classes behind AutoTokenizer may replace parts of it.
    kind = PreTrainedTokenizerFast if (folder / "tokenizer.json").is_file() else AutoTokenizer
    pretrained = kind.from_pretrained(str(folder), local_files_only=True)
    if not isinstance(pretrained, PreTrainedTokenizerFast):
        raise WeightsError(f"{folder}: {type(pretrained).__name__} has no form of the `tokenizers` library: {cure}")
    if not pretrained.chat_template:
        raise WeightsError(f"{folder}: no chat template (chat_template.jinja or in tokenizer_config.json): {cure}")
    return pretrained


class ChatTokenizer:
    """The tokenizer and the chat template of one model folder; make one with `load`.

    Works with every template that is append-only: the model in the box, ChatML (Qwen 2.5), Llama 3. One that changes
    earlier text when a conversation grows, or drops the thoughts of earlier replies (Qwen 3), is refused.

    Attributes:
      vocabulary: number of ids, the highest one plus 1; the model may have more (padding).
      end_ids: ids that end a reply, the template's own first.
    """

    def __init__(self, pretrained: Any, folder: Path, declared_end_ids: tuple[int, ...] = ()) -> None:  # noqa: ANN401  # transformers carries no types
        self._pretrained = pretrained
        self._folder = folder
        self._special = tokenizers.Tokenizer.from_str(pretrained.backend_tokenizer.to_str())
        self._special.no_truncation()
        self._special.no_padding()
        self._plain = tokenizers.Tokenizer.from_str(self._special.to_str())
        self._plain.encode_special_tokens = True
        added = self._special.get_added_tokens_decoder()
        self._special_ids = frozenset(id_ for id_, token in added.items() if token.special)
        names = sorted((token.content for token in added.values()), key=len, reverse=True)
        self._added = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        self.vocabulary: int = max(self._special.get_vocab(with_added_tokens=True).values()) + 1
        self._stop_ids: dict[tuple[str, ...], frozenset[int]] = {}
        self._refuse_forgeable(added)
        self._read_template()
        end_ids = (self._end, *declared_end_ids, pretrained.eos_token_id)
        self.end_ids: tuple[int, ...] = tuple(dict.fromkeys(id_ for id_ in end_ids if id_ is not None))
        cached = functools.lru_cache(maxsize=_CACHED_MESSAGES)
        self._first: Callable[[str, str | None], tuple[int, ...]] = cached(self._encode_first)
        self._next: Callable[[str], tuple[int, ...]] = cached(self._encode_next)
        self._reply: Callable[[str], tuple[int, ...]] = cached(self._encode_plain)

    @classmethod
    def load(cls, folder: Path) -> "ChatTokenizer":
        """Reads the tokenizer, chat template and end-of-turn ids of a folder in the Hugging Face layout.

        Raises:
          WeightsError: the folder has no tokenizer or chat template, its ids do not fit its config.json, or its
            template is not append-only.
        """
        folder = Path(folder)
        tokenizer = cls(_pretrained(folder), folder, _declared_end_ids(folder))
        size = _declared_vocabulary(folder)
        highest = max(tokenizer.vocabulary - 1, *tokenizer.end_ids)
        if size is not None and highest >= size:
            raise WeightsError(
                f"{folder}: the tokenizer's highest id is {highest}, but config.json declares vocab_size {size} (ids 0 "
                f"to {size - 1}): the tokenizer belongs to another model; copy the tokenizer files of this one"
            )
        return tokenizer

    # ---- conversations ----------------------------------------------------------------------------------------

    def first_turn(self, content: str, *, system: str | None = None) -> list[int]:
        """Returns the ids of a new conversation up to where the first reply begins.

        Args:
          content: the first user message.
          system: the system message; None leaves it to the template, which may have its own.

        Raises:
          WeightsError: a system message was given and the template takes none.
        """
        return list(self._first(content, system))

    def next_turn(self, content: str, *, closed: bool) -> list[int]:
        """Returns the ids to append to a reply's own, up to where the next reply begins.

        Args:
          content: the next user message.
          closed: whether the reply's ids already end with one of `end_ids`; otherwise the template's own comes first.
        """
        ids = self._next(content)
        return list(ids[1:] if closed else ids)

    def encode_reply(self, text: str) -> list[int]:
        """Returns the ids of a reply's text, without an end-of-turn id."""
        return list(self._reply(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids; special tokens and ids beyond the vocabulary have none."""
        text: str = self._plain.decode(list(ids), skip_special_tokens=True)
        return text

    def stop_ids(self, stop: Sequence[str]) -> frozenset[int]:
        """Returns the ids a reply ends with: `end_ids`, and every id whose text contains one of the given strings.

        Raises:
          ValueError: an empty stop string, which every id contains.
        """
        key = tuple(stop)
        if isinstance(stop, str) or "" in key:
            raise ValueError(f"stop must be a sequence of strings that are not empty, got {stop!r}")
        if key not in self._stop_ids:
            found = set(self.end_ids)
            if key:
                texts = self._plain.decode_batch([[id_] for id_ in range(self.vocabulary)], skip_special_tokens=True)
                found.update(id_ for id_, text in enumerate(texts) if any(string in text for string in key))
            self._stop_ids[key] = frozenset(found)
        return self._stop_ids[key]

    # ---- encoding ---------------------------------------------------------------------------------------------

    def _encode_plain(self, text: str) -> tuple[int, ...]:
        return tuple(self._plain.encode(text, add_special_tokens=False).ids)

    def _encode_special(self, text: str) -> tuple[int, ...]:
        return tuple(self._special.encode(text, add_special_tokens=False).ids)

    def _fill(self, slot: _Slot, content: str) -> tuple[int, ...]:
        message = content.strip() if self._strips else content
        return (*slot.before, *self._encode_plain(f"{slot.left}{message}{slot.right}"), *slot.after)

    def _encode_next(self, content: str) -> tuple[int, ...]:
        return self._fill(self._next_slot, content)

    def _encode_first(self, content: str, system: str | None) -> tuple[int, ...]:
        if system is None:
            return self._fill(self._first_slot, content)
        head, middle = self._with_system()
        message = system.strip() if self._strips else system
        marks = list(self._added.finditer(middle))
        if not marks:
            # No special token lies between the two messages: they are one stretch of text.
            slot = self._slot(head, self._tail)
            return self._fill(dataclasses.replace(slot, left=f"{slot.left}{message}{middle}"), content)
        start, stop = marks[0].start(), marks[-1].end()
        slot = self._slot(head, "")
        user = dataclasses.replace(
            self._slot("", self._tail), before=self._encode_special(middle[start:stop]), left=middle[stop:]
        )
        opening = self._encode_plain(f"{slot.left}{message}{middle[:start]}")
        return (*slot.before, *opening, *self._fill(user, content))

    def _slot(self, before: str, after: str) -> _Slot:
        """Splits the fixed strings around a message into ids and the plain text next to it."""
        matches = list(self._added.finditer(before))
        cut = matches[-1].end() if matches else 0
        match = self._added.search(after)
        stop = match.start() if match else len(after)
        return _Slot(self._encode_special(before[:cut]), before[cut:], after[:stop], self._encode_special(after[stop:]))

    # ---- the template -----------------------------------------------------------------------------------------

    def _render(self, *messages: tuple[str, str]) -> str:
        rows = [{"role": role, "content": content} for role, content in messages]
        text: str = self._pretrained.apply_chat_template(
            rows, tokenize=False, add_generation_prompt=True, date_string=_DATE
        )
        return text

    def _read_template(self) -> None:
        """Finds the fixed strings around messages and whether messages are stripped; refuses unfit templates."""
        (user1, user2, user3), (reply1, reply2) = _USERS, _REPLIES
        one = [("user", user1)]
        two = [*one, ("assistant", reply1), ("user", user2)]
        three = [*two, ("assistant", reply2), ("user", user3)]
        try:
            first, second, third = (self._render(*messages) for messages in (one, two, three))
            padded = self._render(("user", f"{_PADDING}{user1}{_PADDING}"))
            thinking = self._render(*one, ("assistant", _THOUGHT + reply1), *two[2:])
        except jinja2.TemplateError as error:
            raise _refusal(self._folder, f"it fails on plain user and assistant messages ({error})") from error
        parts = _between(first, user1)
        if parts is None:
            raise _refusal(self._folder, "a user message must appear in it once")
        head, tail = parts
        turns = _between(second, user1, reply1, user2)
        if turns is None or turns[0] != head or turns[1] != tail or turns[3] != tail:
            raise _refusal(self._folder, "a second turn must leave the text of the first one as it was")
        between = turns[2]
        if third != f"{second}{reply2}{between}{user3}{tail}":
            raise _refusal(self._folder, "a third turn must add what a second one adds")
        if thinking != second.replace(reply1, _THOUGHT + reply1):
            raise _refusal(self._folder, "a reply that thinks (<think>...</think>) must stay whole in later turns")
        self._strips = padded == first
        if not self._strips and padded != f"{head}{_PADDING}{user1}{_PADDING}{tail}":
            raise _refusal(self._folder, "a user message must appear as it is, or stripped")
        end = self._added.match(between)
        opening = self._encode_special(between)[:1]
        if end is None or not self._special_ids.issuperset(opening):
            raise _refusal(self._folder, "a reply must be followed by a special token, the end of its turn")
        self._end = opening[0]
        self._tail = tail
        self._first_slot = self._slot(head, tail)
        self._next_slot = self._slot(between, tail)
        self._check_ids(two)

    def _check_ids(self, messages: list[tuple[str, str]]) -> None:
        """Refuses a tokenizer that gives other ids for the pieces of a conversation than for its whole text."""
        whole = self._encode_special(self._render(*messages))
        (_, user1), (_, reply), (_, user2) = messages
        pieces = (*self._encode_first(user1, None), *self._encode_plain(reply), *self._encode_next(user2))
        if whole != pieces:
            raise _refusal(
                self._folder,
                f"its text must tokenize to the same ids in pieces as in one go, got {pieces} and {whole}",
            )

    @functools.cached_property
    def _system_parts(self) -> tuple[str, str] | None:
        try:
            text = self._render(("system", _SYSTEM), ("user", _USERS[0]))
        except jinja2.TemplateError:
            return None
        parts = _between(text, _SYSTEM, _USERS[0])
        return None if parts is None or parts[2] != self._tail else (parts[0], parts[1])

    def _with_system(self) -> tuple[str, str]:
        if self._system_parts is None:
            raise WeightsError(
                f"{self._folder}: the chat template takes no system message; put its text before the first user message"
            )
        return self._system_parts

    def _refuse_forgeable(self, added: dict[int, tokenizers.AddedToken]) -> None:
        """Refuses a tokenizer whose ordinary vocabulary spells a special token, so that a message could forge one."""
        forged = [t.content for i, t in added.items() if t.special and i in self._encode_plain(t.content)]
        if forged:
            raise WeightsError(
                f"{self._folder}: text that spells {', '.join(forged)} becomes that special token; give it a score or "
                "merges in tokenizer.json that ordinary text cannot reach"
            )
