r"""Chat messages to tokens and back, always by appending: what was sampled or shown is never tokenized again.

A conversation's tokens are `first_turn`, the reply's own tokens, `next_turn`, the next reply's own tokens, and so on.
The fixed strings around messages are read off the folder's own chat template once (`dfc.models.chat_template`). Special
tokens of those fixed strings become token ids; a message that spells one, or any other token that was added to the
vocabulary, stays text. A message is tokenized together with the plain text the template puts beside it (such as
``user\n``), so the tokens are those of `apply_chat_template` over the whole conversation.
"""

import copy
import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from dfc.errors import WeightsError
from dfc.models import chat_template
from dfc.models.chat_template import CLOSED, OPENED
from dfc.models.tokenizer_files import (
    FILES,
    chat_template_of,
    declared_end_token_ids,
    declared_vocabulary,
    libraries_at,
    read_tokenizer,
)

_CACHED_MESSAGES = 65_536
_FOLD = "\n\n"


@dataclasses.dataclass(frozen=True)
class _Slot:
    """What surrounds a message: tokens, the plain text tokenized together with it, tokens."""

    before: tuple[int, ...]
    left: str
    right: str
    after: tuple[int, ...]


def _inside(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Returns a copy that tokenizes text as it stands after a special token, and never makes one from text.

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


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    """Returns a pattern that finds the longest of some texts."""
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)")


class ChatTokenizer:
    r"""The tokenizer and the chat template of one model folder; make one with `load`.

    Tokens equal those of `apply_chat_template` over the whole conversation (with a generation prompt) for every
    template whose text only grows: the bundled model, Llama 2 and 3, Qwen 2 and 2.5 (ChatML), Mistral, Gemma. Some
    templates rewrite earlier turns. Tokens are the truth here, so that nothing sampled is ever rewritten, and
    `departure` says what the template would have done:

    * Qwen 3 drops the ``<think>...</think>`` of earlier replies. Here they stay. With replies that hold no thoughts
      the tokens are the template's own. It also puts an empty block, ``<think>\n\n</think>\n\n``, before a reply while
      that reply is the last message and nothing is to follow; here no reply gets one.
    * Qwen 3 with ``enable_thinking=False`` opens a reply with that empty block and takes it away a turn later. Here
      it stays in every turn.
    * Mistral shows the system message in the last user message, wherever that is. Here it stays in the first.

    A message that spells a token which was added to the vocabulary stays text, where the template makes that token of
    it: nobody can put an end of a turn, or Qwen's ``</think>`` and ``<tool_call>``, into what a policy reads. (What
    the ordinary vocabulary spells, such as Gemma's ``<table>`` if its merges reach it, is text anyway; added tokens
    of white space stay tokens.) In replies only special tokens stay text: thoughts of rows that are imitated are the
    tokens a policy samples.

    A template may end its prompt with ``<think>``, so that every reply begins inside a thought (Qwen 3 Thinking,
    DeepSeek R1's distillates): `opens_thought`. A sampled reply closes the thought itself. `encode_reply` closes it
    for replies that were not sampled, as the template does where it shows a reply without thoughts: with Qwen 3
    Thinking ``[4]`` becomes ``\n</think>\n\n[4]``, with one that never shows such a reply ``</think>\n\n[4]``. A text
    that holds ``</think>`` continues inside the thought, and its own ``<think>`` at the beginning is left out. Where a
    template puts a whole empty block before every reply without thoughts and keeps those of the others, so does
    `encode_reply`. Any other text between a prompt and its reply (gpt-oss's channels) is refused.

    What a template reads beside the messages is fixed: `enable_thinking` as given, and the day, which is always
    26 July 2024 (`dfc.template_day.DAY`).

    A system message goes where the template puts it. Where the template refuses the role or ignores it (Gemma 2, the
    first template of Mistral 7B v0.3), it goes before the first user message, with a blank line between.

    Attributes:
      vocabulary: number of token ids, the highest one plus 1; the model may have more (padding), or fewer by special
        tokens that no text and no template yields.
      end_token_ids: tokens that end a reply, the template's own first.
      departure: one sentence on where the template would change earlier turns; None if it never does.
      thought: what the template itself writes of a block of thought where a reply begins, such as ``<think>\\n``
        (DeepSeek R1) or a whole empty block; mostly nothing.
      opens_thought: whether it leaves that block open: every reply begins inside the thought and must close it.
      reads_thinking: whether the template looks at ``enable_thinking``; one that does not cannot be given it.
    """

    def __init__(
        self,
        pretrained: Any,  # noqa: ANN401  # transformers carries no types
        folder: Path,
        declared_end_token_ids: tuple[int, ...] = (),
        *,
        enable_thinking: bool | None = None,
    ) -> None:
        self._folder = folder
        with libraries_at(folder, "its tokenizer cannot be used"):
            self._special = tokenizers.Tokenizer.from_str(pretrained.backend_tokenizer.to_str())
            self._special.no_truncation()
            self._special.no_padding()
            self._plain = _inside(self._special)
            added = self._special.get_added_tokens_decoder()
            vocabulary = self._special.get_vocab(with_added_tokens=True)
        if not vocabulary:
            raise WeightsError(f"{folder}: its tokenizer has an empty vocabulary: {FILES}")
        self.vocabulary: int = max(vocabulary.values()) + 1
        # White space that was added (Gemma's runs of newlines) is text like any other.
        self._markup = {i: token for i, token in added.items() if not token.special and token.content.strip()}
        self._names = _any_of(token.content for token in added.values() if token.special)
        self._cuts = _any_of(token.content for i, token in added.items() if token.special or i in self._markup)
        self._refuse_forgeable(added)
        self._text, self._named = chat_template_of(pretrained, folder), pretrained.special_tokens_map
        self._declared: tuple[int | None, ...] = (*declared_end_token_ids, pretrained.eos_token_id)
        self._take_template(enable_thinking)

    def _take_template(self, enable_thinking: bool | None) -> None:
        """Reads the template's parts with a setting, and all that follows from them."""
        given = (self._text, self._named, enable_thinking, self._folder)
        self._template = chat_template.parts(*given)
        self._rendering = functools.partial(chat_template.rendering, *given)
        self.departure: str | None = self._template.departure
        self.thought: str = self._template.thought
        self.opens_thought: bool = self._template.opens_thought
        self.reads_thinking: bool = self._template.reads_thinking
        self._read_slots()
        end_token_ids = (self._close[-1], *self._declared)
        self.end_token_ids: tuple[int, ...] = tuple(
            dict.fromkeys(token_id for token_id in end_token_ids if token_id is not None)
        )
        self._stop_token_ids: dict[tuple[str, ...], frozenset[int]] = {}
        cached = functools.lru_cache(maxsize=_CACHED_MESSAGES)
        self._first: functools._lru_cache_wrapper[tuple[int, ...]] = cached(self._encode_first)
        self._next: functools._lru_cache_wrapper[tuple[int, ...]] = cached(self._encode_next)
        self._reply: functools._lru_cache_wrapper[tuple[int, ...]] = cached(self._encode_reply)

    @classmethod
    def load(cls, folder: Path, *, enable_thinking: bool | None = None) -> "ChatTokenizer":
        """Reads the tokenizer, chat template and end-of-turn token ids of a folder in the Hugging Face layout.

        `enable_thinking` is handed to the template, which decides what it means (Qwen 3: False opens every reply with
        an empty block of thoughts); None leaves the template its default. Runs, players and servers pass what was
        configured.

        Raises:
          WeightsError: the folder has no tokenizer or chat template or broken ones, asks for code of its own, its
            token ids do not fit its config.json, or its template cannot be appended to, takes too long, or does not
            look at `enable_thinking` where that is given.
        """
        folder = Path(folder)
        tokenizer = cls(read_tokenizer(folder), folder, declared_end_token_ids(folder), enable_thinking=enable_thinking)
        size = declared_vocabulary(folder)
        highest = 0 if size is None else tokenizer._highest_token_id()
        if size is not None and highest >= size:
            raise WeightsError(
                f"{folder}: the tokenizer's highest token id is {highest}, but config.json declares vocab_size {size} "
                f"(0 to {size - 1}): the tokenizer belongs to another model; copy the tokenizer files of this one"
            )
        return tokenizer

    def with_thinking(self, enable_thinking: bool) -> "ChatTokenizer":
        """Returns the same tokenizer with another setting, without reading the folder's files again.

        Raises:
          WeightsError: the template does not read the setting, or cannot be appended to with it.
        """
        other = copy.copy(self)
        vars(other).pop("_around_last", None)
        other._take_template(enable_thinking)  # noqa: SLF001 - of this class
        return other

    # ---- conversations ----------------------------------------------------------------------------------------

    def first_turn(self, content: str, *, system: str | None = None) -> list[int]:
        """Returns the tokens of a new conversation up to where the first reply begins.

        `system` None leaves the system message to the template, which may have its own.

        Raises:
          WeightsError: a system message was given and the template shows it in a way that cannot be appended to.
        """
        return list(self._first(content, system))

    def next_turn(self, content: str, *, closed: bool) -> list[int]:
        """Returns the tokens to append to a reply's own, up to where the next reply begins.

        `closed`: the reply's tokens already end with one of `end_token_ids`; otherwise the template's own comes first.
        """
        token_ids = self._next(content)
        return list(token_ids) if closed else [*self._close, *token_ids]

    def encode_reply(self, text: str) -> list[int]:
        """Returns the tokens of a reply's text, without an end-of-turn token.

        They are those the template gives a reply of this text: where it strips replies, so is this one, and where a
        reply begins with a space (Mistral), so does this one. Where `opens_thought`, the thought is closed first
        unless the text closes it. A sampled reply does not need this: keep its tokens.
        """
        return list(self._reply(text))

    def closed_turn(self, content: str, reply: str) -> list[int]:
        """Returns the tokens of a conversation that ends with one reply: what a model of preferences scores.

        They are those of `apply_chat_template` over the two messages without a generation prompt, to the template's
        last sign: what it writes around a reply that is the last message (Qwen 3: an empty block of thoughts) is there.

        Raises:
          WeightsError: the template shows the reply in a way that cannot be put together.
        """
        taken, lead, end = self._around_last
        said, first = self._template.reply_trim(reply), self._first(content, None)
        told = self._encode_after("\n", said) if lead else self._encode_said(said)
        return [*first[: len(first) - taken], *lead, *told, *end]

    @functools.cached_property
    def _around_last(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """What stands around a reply that is the last message, beyond what `_encode_said` writes.

        They are how many of the prompt's last tokens are taken back, as their text merges with what follows; the tokens
        before the reply; those behind it.
        """
        with self._rendering() as render:
            try:
                prompt = render(("user", "Hi."))
                whole = render(("user", "Hi."), ("assistant", "Yes."), add_generation_prompt=False)
            except chat_template.RefusedConversationError as error:
                raise chat_template.refusal(
                    self._folder, f"it must render one user message and reply ({error})"
                ) from error
        before, said, behind = whole.removeprefix(prompt).partition("Yes.")
        mark = self._names.search(behind)
        cut = mark.start() if mark else len(behind)
        end = (*self._encode_after("x", behind[:cut]), *self._encode_special(behind[cut:]))
        first, expected = self._first("Hi.", None), self._encode_special(whole)
        open_end = self._encode_special(self._context) if self._cuts.search(self._template.tail) else ()
        for taken, text in ((0, before), (len(open_end), self._context + before)):
            lead = () if before == self._template.lead else self._encode_special(text)
            told = self._encode_after("\n", "Yes.") if lead else self._encode_said("Yes.")
            if (*first[: len(first) - taken], *lead, *told, *end) == expected and said and whole.startswith(prompt):
                return taken, lead, end
        raise chat_template.refusal(
            self._folder, "a reply that is the last message must follow the prompt that asks for it"
        )

    def decode(self, token_ids: Iterable[int]) -> str:
        """Returns the text of token ids; special tokens and ids beyond the vocabulary have none."""
        with libraries_at(self._folder, "its tokenizer fails on token ids"):
            text: str = self._special.decode(list(token_ids), skip_special_tokens=True)
        return text

    def stop_token_ids(self, stop: Sequence[str]) -> frozenset[int]:
        """Returns the tokens that end a reply: `end_token_ids`, and each whose text contains one of the strings.

        Raises:
          ValueError: an empty stop string, which every token contains.
        """
        key = tuple(stop)
        if isinstance(stop, str) or "" in key:
            raise ValueError(f"stop must be a sequence of strings that are not empty, got {stop!r}")
        if key not in self._stop_token_ids:
            found = set(self.end_token_ids)
            if key:
                texts = self._special.decode_batch(
                    [[token_id] for token_id in range(self.vocabulary)], skip_special_tokens=True
                )
                found.update(token_id for token_id, text in enumerate(texts) if any(string in text for string in key))
            self._stop_token_ids[key] = frozenset(found)
        return self._stop_token_ids[key]

    def forget_messages(self) -> None:
        """Gives up the tokens of messages that are kept for the next time; a server gets many that never come again."""
        for kept in (self._first, self._next, self._reply):
            kept.cache_clear()

    # ---- encoding ---------------------------------------------------------------------------------------------

    def _encode(self, tokenizer: tokenizers.Tokenizer, text: str) -> tuple[int, ...]:
        with libraries_at(self._folder, f"its tokenizer fails on a text of {len(text)} characters"):
            return tuple(tokenizer.encode(text, add_special_tokens=False).ids)

    def _encode_plain(self, text: str) -> tuple[int, ...]:
        return self._encode(self._plain, text)

    def _encode_special(self, text: str) -> tuple[int, ...]:
        return self._encode(self._special, text)

    def _encode_message(self, text: str) -> tuple[int, ...]:
        """Returns the tokens of a message and the plain text beside it; no added token comes out of it."""
        token_ids = self._encode_plain(text)
        return token_ids if self._markup.keys().isdisjoint(token_ids) else self._encode(self._strict, text)

    @functools.cached_property
    def _strict(self) -> tokenizers.Tokenizer:
        """A copy that takes every added token for a special one, none of which it makes from text."""
        tokenizer = _inside(self._special)
        tokenizer.add_special_tokens(
            [
                tokenizers.AddedToken(
                    token.content,
                    single_word=token.single_word,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=token.normalized,
                    special=True,
                )
                for token in self._markup.values()
            ]
        )
        return tokenizer

    def _fill(self, slot: _Slot, message: str) -> tuple[int, ...]:
        return (*slot.before, *self._encode_message(f"{slot.left}{message}{slot.right}"), *slot.after)

    def _encode_next(self, content: str) -> tuple[int, ...]:
        return self._fill(self._next_slot, self._template.user_trim(content))

    def _encode_reply(self, text: str) -> tuple[int, ...]:
        said, block = self._template.reply_trim(text), self._template.empty_thought
        if self.opens_thought and said.startswith(OPENED):  # the prompt has opened it
            said = said.removeprefix(OPENED)
            said = said.removeprefix("\n") if self._template.tail.endswith("\n") else said
        if not block or CLOSED in said:
            return self._encode_said(said)
        mark = self._cuts.search(block)
        cut = mark.start() if mark else len(block)
        before = f"{self._context}{block}"
        marks = list(self._cuts.finditer(before))
        return (
            *(self._encode_after(self._context, block[:cut]) if cut else ()),
            *self._encode_special(block[cut:]),
            *self._encode_after(before[marks[-1].end() if marks else 0 :], said),
        )

    def _encode_said(self, said: str) -> tuple[int, ...]:
        return self._encode_after(self._context, f"{self._template.lead}{said}")

    def _encode_after(self, context: str, text: str) -> tuple[int, ...]:
        """Returns the tokens of a text that continues another; if the two melt into one, those of the text alone."""
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
        marks = list(self._cuts.finditer(middle))
        if not marks:
            # No special token is between the two messages: they are one stretch of text.
            return self._fill(self._slot(head, template.tail), f"{message}{middle}{content}")
        start = marks[0].start()
        slot = self._slot(head, "")
        opening = self._encode_message(f"{slot.left}{message}{middle[:start]}")
        return (*slot.before, *opening, *self._fill(self._slot(middle[start:], template.tail), content))

    def _highest_token_id(self) -> int:
        """Returns the highest token id that a text, the template or the end of a reply can have.

        Special tokens that the template does not write never come out of a text. Gemma 3 1B has one for images after
        its model's vocabulary.
        """
        parts = self._template
        written = [parts.head, parts.tail, parts.between, parts.lead, parts.empty_thought]
        if parts.system is not None:
            written += [parts.system.before, parts.system.middle]
        special = {i for i, token in self._special.get_added_tokens_decoder().items() if token.special}
        token_ids = set(self._special.get_vocab(with_added_tokens=True).values()) - special
        return max(token_ids.union(self.end_token_ids, *map(self._encode_special, written)))

    def _slot(self, before: str, after: str) -> _Slot:
        """Splits the fixed strings around a message into tokens and the plain text next to it."""
        matches = list(self._cuts.finditer(before))
        cut = matches[-1].end() if matches else 0
        match = self._cuts.search(after)
        stop = match.start() if match else len(after)
        return _Slot(self._encode_special(before[:cut]), before[cut:], after[:stop], self._encode_special(after[stop:]))

    def _read_slots(self) -> None:
        """Turns the template's parts into tokens, once; refuses those that are not the tokens of the whole text."""
        template = self._template
        end = self._names.search(template.between)
        if end is None or template.between[: end.start()].strip():
            raise chat_template.refusal(
                self._folder, "a reply must be followed by a special token, the end of its turn"
            )
        self._first_slot = self._slot(template.head, template.tail)
        following = self._slot(template.between[end.start() :], template.tail)
        self._next_slot = dataclasses.replace(following, before=following.before[1:])
        # Llama 2 writes a space between a reply and the end of its turn.
        self._close = (*self._encode_after("x", template.between[: end.start()]), following.before[0])
        marks = list(self._cuts.finditer(template.tail))
        self._context = template.tail[marks[-1].end() if marks else 0 :]
        text = f"{template.head}Hi.{template.tail}{template.lead}Yes.{template.between}Go.{template.tail}"
        whole = self._encode_special(text)
        pieces = (
            *self._encode_first("Hi.", None),
            *self._encode_said("Yes."),
            *self._close,
            *self._encode_next("Go."),
        )
        if not self._encode_said("Yes."):
            raise WeightsError(f"{self._folder}: its tokenizer makes no tokens of a text: {FILES}")
        if whole != pieces:
            raise chat_template.refusal(
                self._folder,
                f"its text must tokenize to the same tokens in pieces as in one go, got {pieces} and {whole}",
            )

    def _refuse_forgeable(self, added: dict[int, tokenizers.AddedToken]) -> None:
        """Refuses a tokenizer whose ordinary vocabulary can form a special token, so that a message could forge one."""
        forged = [t.content for i, t in added.items() if t.special and i in self._encode_plain(t.content)]
        if forged:
            raise WeightsError(
                f"{self._folder}: text that spells {', '.join(forged)} becomes that special token; give it a score or "
                "merges in tokenizer.json that ordinary text cannot reach"
            )
