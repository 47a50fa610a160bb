r"""Chat messages to ids and back, always by appending: what was sampled or shown is never tokenized again.

A conversation's ids are `first_turn`, the reply's own ids, `next_turn`, the next reply's own ids, and so on. The fixed
strings around messages are read off the folder's own chat template once (`dfc.models.chat_templates`). Special tokens
of those fixed strings become ids; a message that spells a special token stays text. A message is tokenized together
with the plain text the template puts beside it (such as ``user\n``), so the ids are those of `apply_chat_template`
over the whole conversation.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from dfc.errors import WeightsError
from dfc.models import chat_templates

_CACHED_MESSAGES = 65_536
_FOLD = "\n\n"


@dataclasses.dataclass(frozen=True)
class _Slot:
    """What surrounds a message: ids, the plain text tokenized together with it, ids."""

    before: tuple[int, ...]
    left: str
    right: str
    after: tuple[int, ...]


def _declared_vocabulary(folder: Path) -> int | None:
    """Returns vocab_size of the folder's config.json or of its text_config, None if neither declares one."""
    path = folder / "config.json"
    if not path.is_file():
        return None
    config = json.loads(path.read_text(encoding="utf-8"))
    # A model with an image tower (Gemma 3) keeps its decoder's entries in text_config.
    size = config.get("vocab_size", (config.get("text_config") or {}).get("vocab_size"))
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


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Lets transformers keep its advice to itself, such as to install PyTorch, which no tokenizer needs."""
    variable = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def _pretrained(folder: Path) -> Any:  # noqa: ANN401  # transformers carries no types
    """Returns transformers' tokenizer of a folder, from local files only."""
    # Importing transformers takes over a second, and only a process that loads a model needs it.
    with _without_advice():
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


def _inside(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Returns a copy that tokenizes text as it stands behind a special token, and never makes one from text.

    SentencePiece-like tokenizers (Mistral) put a space before the first word of a whole text and nowhere else.
    """
    text: str = tokenizer.to_str()
    if '"prepend_scheme":"first"' in text:  # large vocabularies take a second to parse
        state = json.loads(text)
        pieces = state["pre_tokenizer"] or {}
        for piece in (pieces, *pieces.get("pretokenizers", ())):
            if piece.get("prepend_scheme") == "first":
                piece["prepend_scheme"] = "never"
        text = json.dumps(state)
    inside = tokenizers.Tokenizer.from_str(text)
    inside.encode_special_tokens = True
    return inside


class ChatTokenizer:
    r"""The tokenizer and the chat template of one model folder; make one with `load`.

    Ids equal those of `apply_chat_template` over the whole conversation (with a generation prompt) for every template
    whose text only grows: the model in the box, Llama 2 and 3, Qwen 2 and 2.5 (ChatML), Mistral, Gemma. Some templates
    rewrite earlier turns. Ids are the truth here, so that nothing sampled is ever rewritten, and `departure` says what
    the template would have done:

    * Qwen 3 drops the ``<think>...</think>`` of earlier replies. Here they stay. With replies that hold no thoughts
      the ids are the template's own. It also puts an empty block, ``<think>\n\n</think>\n\n``, before a reply while
      that reply is the last message and nothing is to follow; here no reply gets one.
    * Qwen 3 with ``enable_thinking=False`` opens a reply with that empty block and takes it away a turn later. Here
      it stays in every turn.
    * Mistral shows the system message in the last user message, wherever that is. Here it stays in the first.

    A system message goes where the template puts it. Where the template refuses the role or ignores it (Gemma 2, the
    first template of Mistral 7B v0.3), it goes before the first user message, with a blank line between.

    Attributes:
      vocabulary: number of ids, the highest one plus 1; the model may have more (padding).
      end_ids: ids that end a reply, the template's own first.
      departure: one sentence on where the template would change earlier turns; None if it never does.
    """

    def __init__(
        self,
        pretrained: Any,  # noqa: ANN401  # transformers carries no types
        folder: Path,
        declared_end_ids: tuple[int, ...] = (),
        *,
        enable_thinking: bool | None = None,
    ) -> None:
        self._folder = folder
        self._special = tokenizers.Tokenizer.from_str(pretrained.backend_tokenizer.to_str())
        self._special.no_truncation()
        self._special.no_padding()
        self._plain = _inside(self._special)
        added = self._special.get_added_tokens_decoder()
        names = sorted((token.content for token in added.values() if token.special), key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        self.vocabulary: int = max(self._special.get_vocab(with_added_tokens=True).values()) + 1
        self._stop_ids: dict[tuple[str, ...], frozenset[int]] = {}
        self._refuse_forgeable(added)
        self._template = chat_templates.read(chat_templates.renderer(pretrained, enable_thinking), folder)
        self.departure: str | None = self._template.departure
        self._read_slots()
        end_ids = (self._close[-1], *declared_end_ids, pretrained.eos_token_id)
        self.end_ids: tuple[int, ...] = tuple(dict.fromkeys(id_ for id_ in end_ids if id_ is not None))
        cached = functools.lru_cache(maxsize=_CACHED_MESSAGES)
        self._first: Callable[[str, str | None], tuple[int, ...]] = cached(self._encode_first)
        self._next: Callable[[str], tuple[int, ...]] = cached(self._encode_next)
        self._reply: Callable[[str], tuple[int, ...]] = cached(self._encode_reply)

    @classmethod
    def load(cls, folder: Path, *, enable_thinking: bool | None = None) -> "ChatTokenizer":
        """Reads the tokenizer, chat template and end-of-turn ids of a folder in the Hugging Face layout.

        Args:
          folder: holds the tokenizer and config files.
          enable_thinking: handed to the template, which decides what it means (Qwen 3: False opens every reply with
            an empty block of thoughts); None leaves the template its default.

        Raises:
          WeightsError: the folder has no tokenizer or chat template, its ids do not fit its config.json, or its
            template cannot be appended to.
        """
        folder = Path(folder)
        tokenizer = cls(_pretrained(folder), folder, _declared_end_ids(folder), enable_thinking=enable_thinking)
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
          WeightsError: a system message was given and the template shows it in a way that cannot be appended to.
        """
        return list(self._first(content, system))

    def next_turn(self, content: str, *, closed: bool) -> list[int]:
        """Returns the ids to append to a reply's own, up to where the next reply begins.

        Args:
          content: the next user message.
          closed: whether the reply's ids already end with one of `end_ids`; otherwise the template's own comes first.
        """
        ids = self._next(content)
        return list(ids) if closed else [*self._close, *ids]

    def encode_reply(self, text: str) -> list[int]:
        """Returns the ids of a reply's text, without an end-of-turn id.

        They are those the template gives a reply of this text: where it strips replies, so is this one, and where a
        reply begins with a space (Mistral), so does this one. A sampled reply needs no such thing: keep its ids.
        """
        return list(self._reply(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids; special tokens and ids beyond the vocabulary have none."""
        text: str = self._special.decode(list(ids), skip_special_tokens=True)
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
                texts = self._special.decode_batch([[id_] for id_ in range(self.vocabulary)], skip_special_tokens=True)
                found.update(id_ for id_, text in enumerate(texts) if any(string in text for string in key))
            self._stop_ids[key] = frozenset(found)
        return self._stop_ids[key]

    # ---- encoding ---------------------------------------------------------------------------------------------

    def _encode_plain(self, text: str) -> tuple[int, ...]:
        return tuple(self._plain.encode(text, add_special_tokens=False).ids)

    def _encode_special(self, text: str) -> tuple[int, ...]:
        return tuple(self._special.encode(text, add_special_tokens=False).ids)

    def _fill(self, slot: _Slot, message: str) -> tuple[int, ...]:
        return (*slot.before, *self._encode_plain(f"{slot.left}{message}{slot.right}"), *slot.after)

    def _encode_next(self, content: str) -> tuple[int, ...]:
        return self._fill(self._next_slot, self._template.user_trim(content))

    def _encode_reply(self, text: str) -> tuple[int, ...]:
        return self._behind(self._context, f"{self._template.lead}{self._template.reply_trim(text)}")

    def _behind(self, context: str, text: str) -> tuple[int, ...]:
        """Returns the ids of a text that continues another; if the two melt into one piece, those of the text alone."""
        before, joined = self._encode_plain(context), self._encode_plain(context + text)
        return joined[len(before) :] if joined[: len(before)] == before else self._encode_plain(text)

    def _encode_first(self, content: str, system: str | None) -> tuple[int, ...]:
        template = self._template
        if system is not None and template.system is None:
            if not template.foldable:
                raise WeightsError(
                    f"{self._folder}: the chat template takes no system message: it must show one before the first "
                    "user message and leave the rest as it was; put the text into the first user message"
                )
            system, content = None, f"{system}{_FOLD}{content}"
        if system is None or template.system is None:
            return self._fill(self._first_slot, template.user_trim(content))
        head, middle = template.system.before, template.system.middle
        message, content = template.system.trim(system), template.system.user_trim(content)
        marks = list(self._names.finditer(middle))
        if not marks:
            # No special token lies between the two messages: they are one stretch of text.
            return self._fill(self._slot(head, template.tail), f"{message}{middle}{content}")
        start = marks[0].start()
        slot = self._slot(head, "")
        opening = self._encode_plain(f"{slot.left}{message}{middle[:start]}")
        return (*slot.before, *opening, *self._fill(self._slot(middle[start:], template.tail), content))

    def _slot(self, before: str, after: str) -> _Slot:
        """Splits the fixed strings around a message into ids and the plain text next to it."""
        matches = list(self._names.finditer(before))
        cut = matches[-1].end() if matches else 0
        match = self._names.search(after)
        stop = match.start() if match else len(after)
        return _Slot(self._encode_special(before[:cut]), before[cut:], after[:stop], self._encode_special(after[stop:]))

    def _read_slots(self) -> None:
        """Turns the template's parts into ids, once; refuses those that are not the ids of the whole text."""
        template = self._template
        end = self._names.search(template.between)
        if end is None or template.between[: end.start()].strip():
            raise chat_templates.refusal(
                self._folder, "a reply must be followed by a special token, the end of its turn"
            )
        self._first_slot = self._slot(template.head, template.tail)
        following = self._slot(template.between[end.start() :], template.tail)
        self._next_slot = dataclasses.replace(following, before=following.before[1:])
        # Llama 2 writes a space between a reply and the end of its turn.
        self._close = (*self._behind("x", template.between[: end.start()]), following.before[0])
        marks = list(self._names.finditer(template.tail))
        self._context = template.tail[marks[-1].end() if marks else 0 :]
        text = f"{template.head}Hi.{template.tail}{template.lead}Yes.{template.between}Go.{template.tail}"
        whole = self._encode_special(text)
        pieces = (
            *self._encode_first("Hi.", None),
            *self._encode_reply("Yes."),
            *self._close,
            *self._encode_next("Go."),
        )
        if whole != pieces:
            raise chat_templates.refusal(
                self._folder,
                f"its text must tokenize to the same ids in pieces as in one go, got {pieces} and {whole}",
            )

    def _refuse_forgeable(self, added: dict[int, tokenizers.AddedToken]) -> None:
        """Refuses a tokenizer whose ordinary vocabulary spells a special token, so that a message could forge one."""
        forged = [t.content for i, t in added.items() if t.special and i in self._encode_plain(t.content)]
        if forged:
            raise WeightsError(
                f"{self._folder}: text that spells {', '.join(forged)} becomes that special token; give it a score or "
                "merges in tokenizer.json that ordinary text cannot reach"
            )
