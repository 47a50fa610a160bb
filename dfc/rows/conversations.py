"""Conversations in the layouts that others publish and train on: read, checked, written, as JSON lines or Parquet.

Supervised: one conversation per row in a column `messages` (TRL's "conversational language modeling"; Paprika's data),
or `conversation`, `chat`; or a `prompt` and its `completion` (TRL's "prompt-completion"), of which only the completion
counts. Preference: `chosen` and `rejected`, each a whole conversation (TRL's "implicit prompt"), or what follows a
`prompt` (its "explicit prompt"; Playpen's pairs of one turn), where nothing of the prompt counts.

Every field of a row and of a message is read, kept as description, or refused by name (`dfc.rows.conversation_fields`).
A file is checked to its end before anything of it is handed out.
"""

import dataclasses
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from dfc.files import replacing
from dfc.models.chat import ChatTokenizer
from dfc.records.trajectories import Message
from dfc.records.trajectory_files import DatasetError, write_atomically
from dfc.rows.conversation_fields import BadRow, Said, absent, listed, messages_of, meta_of, refuse_fields
from dfc.rows.row_files import MAX_ROW_BYTES, parsed_rows

Scalar: TypeAlias = str | int | float | bool | None
Layout = Literal["explicit", "implicit"]
SupervisedLayout = Literal["messages", "prompt_completion"]
CONVERSATION_COLUMNS = ("messages", "conversation", "chat")


@dataclasses.dataclass(frozen=True)
class Conversation:
    """Messages that end with a reply, and scalars that describe them, e.g. ``{"game": "wordle"}``.

    Attributes:
      messages: all of them.
      meta: scalars that describe them.
      context_replies: how many of the first replies are shown and not trained on: those of a `prompt`.
      untrained: which of the replies after them, from 0 over all, are not trained on either: those of `weight` 0.
    """

    messages: tuple[Message, ...]
    meta: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)
    context_replies: int = 0
    untrained: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class ConversationPair:
    """Two whole conversations that begin alike; the chosen one is better.

    Attributes:
      chosen: all messages. rejected: all messages.
      meta: scalars that describe them.
      context_replies: how many of the first replies both sides have in common and are not compared: those of an
        explicit `prompt`, or of `weight` 0.
    """

    chosen: tuple[Message, ...]
    rejected: tuple[Message, ...]
    meta: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)
    context_replies: int = 0

    @property
    def prompt(self) -> tuple[Message, ...]:
        """What both sides are shown before the first reply that counts."""
        return opening(self.chosen, self.context_replies)

    @property
    def identical(self) -> bool:
        """Whether both sides are the same: no preference, but an example for the supervised term of RPO."""
        return self.chosen == self.rejected


def opening(messages: Sequence[Message], context_replies: int = 0) -> tuple[Message, ...]:
    """Returns the messages before the first reply, or before the one after so many replies of context."""
    replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
    return tuple(messages[: replies[context_replies]] if len(replies) > context_replies else messages)


# ---- reading --------------------------------------------------------------------------------------------------------


def read_conversations(
    path: Path, *, column: str | None = None, cut_unanswered: bool = False, max_row_bytes: int = MAX_ROW_BYTES
) -> list[Conversation]:
    """Returns the conversations of a file, all of them checked.

    Scalars of a `meta` column are kept, and so are those of columns that describe a row; any other column is refused. A
    path ends with ``.jsonl``, ``.json`` (one array, or lines) or ``.parquet``. `column` has the messages; None for the
    first of `CONVERSATION_COLUMNS` that the row has, and where it has none of them for `prompt` and `completion`: each
    a list of messages, or the text of one. `cut_unanswered` drops what follows the last reply instead of refusing it.

    Raises:
      DatasetError: the file is cut, empty or too large, a row's messages are missing, malformed, none, or end with
        no reply, no reply is trained on, or a field is not read (`dfc.rows.conversation_fields`); the file, the first
        such row (counted from 0) and the fix are named.
    """

    def parse(row: Mapping[str, Any]) -> Conversation:
        name = column or next((c for c in CONVERSATION_COLUMNS if not absent(row.get(c))), None)
        if name is None and row.get("completion") is not None:
            return _completed(row, cut_unanswered)
        name = name or next((c for c in CONVERSATION_COLUMNS if c in row), None)
        if name is None or name not in row:
            wanted = column or " or ".join(CONVERSATION_COLUMNS)
            raise BadRow(
                f"no column {wanted}, it has {listed(row)}; rename the one with the messages, or name it: column=..."
            )
        refuse_fields(row, (name, "prompt") if column is None else (*CONVERSATION_COLUMNS, name, "prompt"))
        said = messages_of(row[name], name)
        messages = _checked(said.messages, name, cut_unanswered)
        _refuse_other_prompt(row.get("prompt"), row[name], messages, name)
        if len(said.untrained) == said.replies:
            raise BadRow(f"{name}: no reply of it is trained on (weight 0 or train false); drop the row")
        return Conversation(messages, meta_of(row), untrained=said.untrained)

    return parsed_rows(path, parse, max_row_bytes)


def read_pairs(
    path: Path, *, cut_unanswered: bool = False, max_row_bytes: int = MAX_ROW_BYTES
) -> list[ConversationPair]:
    """Returns the preference pairs of a file, all of them checked; see `read_conversations`.

    `chosen` and `rejected` are lists of messages, or the text of one reply. With a `prompt`, a list of messages or the
    text of one user message, they follow it, unless they repeat it, and replies within it do not count. Without, both
    are whole conversations. Pairs with
    two identical sides are kept (`ConversationPair.identical`): Paprika's published pairs very probably hold some.
    Replies of `weight` 0 that both sides begin with do not count either; a `messages` column may repeat the chosen
    side.

    Raises:
      DatasetError: as for `read_conversations`, the sides share no prompt, or a reply that is compared has weight 0.
    """

    def parse(row: Mapping[str, Any]) -> ConversationPair:
        if missing := [name for name in _SIDES if name not in row]:
            raise BadRow(f"no column {' and no '.join(missing)}, it has {listed(row)}; rename the columns")
        repeated = ("messages",) if row.get("messages") == row["chosen"] else ()
        refuse_fields(row, (*_SIDES, "prompt", *repeated))
        prompt = _prompt(row.get("prompt"))
        sides = [_side(row[name], name, prompt, cut_unanswered) for name in _SIDES]
        context = 0 if prompt is None else prompt.replies
        for name, side in zip(_SIDES, sides, strict=True):
            if side.replies <= context:
                raise BadRow(f"{name} has no reply of its own after the prompt; drop the row")
        context = _uncompared(sides, context)
        chosen, rejected = (side.messages for side in sides)
        if opening(chosen, context) != opening(rejected, context):
            raise BadRow(
                "the sides share no prompt: chosen and rejected must begin with the same messages before the first "
                "reply that counts; pair conversations of one task, or drop the row"
            )
        return ConversationPair(chosen, rejected, meta_of(row), context)

    return parsed_rows(path, parse, max_row_bytes)


_SIDES = ("chosen", "rejected")


def _completed(row: Mapping[str, Any], cut_unanswered: bool) -> Conversation:
    refuse_fields(row, ("prompt", "completion"))
    prompt = _prompt(row.get("prompt"))
    if prompt is None:
        raise BadRow("a completion and no prompt; add the messages before it as `prompt`")
    said = _side(row["completion"], "completion", prompt, cut_unanswered)
    if said.replies <= prompt.replies:
        raise BadRow("completion has no reply of its own, so there is nothing to train on; drop the row")
    untrained = tuple(reply for reply in said.untrained if reply >= prompt.replies)
    if len(untrained) == said.replies - prompt.replies:
        raise BadRow("completion: no reply of it is trained on (weight 0 or train false); drop the row")
    return Conversation(said.messages, meta_of(row), prompt.replies, untrained)


def _prompt(value: object) -> Said | None:
    if value is None:
        return None
    said = messages_of([{"role": "user", "content": value}] if isinstance(value, str) else value, "prompt")
    if said.messages[-1].role != "user":
        raise BadRow("prompt ends with no user message, so that nothing asks for the reply; drop its last message")
    return said


def _refuse_other_prompt(prompt: object, column: object, messages: Sequence[Message], name: str) -> None:
    """Raises unless a `prompt` beside whole conversations is their first question, as some data sets repeat it."""
    if absent(prompt):
        return
    start = opening(messages)
    if isinstance(prompt, str):
        told = start[-1].content.strip() == prompt.strip()
    else:
        told = isinstance(column, list) and prompt == column[: len(start)]
    if not told:
        raise BadRow(
            f"a prompt beside {name}, and {name} does not begin with it; drop one of the two, or call what follows the "
            "prompt `completion`"
        )


def _side(value: object, name: str, prompt: Said | None, cut_unanswered: bool) -> Said:
    """Returns a whole conversation: a side of a pair or a completion, with the prompt before it."""
    if isinstance(value, str) and prompt is None:
        raise BadRow(f"{name} is a text and there is no prompt; add the messages before it as `prompt`")
    own = messages_of([{"role": "assistant", "content": value}] if isinstance(value, str) else value, name)
    if prompt is None or own.messages[: len(prompt.messages)] == prompt.messages:
        return own._replace(messages=_checked(own.messages, name, cut_unanswered))
    return Said(
        _checked(prompt.messages + own.messages, name, cut_unanswered),
        prompt.replies + own.replies,
        tuple(prompt.replies + reply for reply in own.untrained),
    )


def _uncompared(sides: Sequence[Said], context: int) -> int:
    """Returns how many first replies are not compared; BadRow if another has weight 0, or none is left."""
    while all(context in side.untrained for side in sides):
        context += 1
    for name, side in zip(_SIDES, sides, strict=True):
        if side.untrained and side.untrained[-1] >= context:
            raise BadRow(
                f"{name}: a reply that is compared has weight 0 (or train false): of a pair every reply counts that "
                "does not stand in the prompt; put what is shown only into `prompt`, or drop the field"
            )
        if side.replies <= context:
            raise BadRow(f"{name}: no reply of it is compared (weight 0 or train false); drop the row")
    return context


def _checked(messages: tuple[Message, ...], name: str, cut_unanswered: bool) -> tuple[Message, ...]:
    if cut_unanswered:
        replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
        messages = messages[: replies[-1] + 1] if replies else ()
        if not messages:
            raise BadRow(f"{name} has no reply, so there is nothing to train on; drop the row")
    start = 1 if messages[0].role == "system" else 0
    for place, message in enumerate(messages[start:]):
        expected = "assistant" if place % 2 else "user"
        if message.role != expected:
            raise BadRow(
                f"message {start + place} of {name} is of role {message.role}, expected {expected}: after a system "
                "message, if any, user and assistant take turns; merge messages of one role, or drop the row"
            )
    if messages[-1].role != "assistant":
        raise BadRow(
            f"{name} ends with a {messages[-1].role} message without a reply; drop it from the row, or pass "
            "cut_unanswered=True"
        )
    return messages


# ---- writing --------------------------------------------------------------------------------------------------------


def write_conversations(
    path: Path, conversations: Iterable[Conversation], *, layout: SupervisedLayout = "messages"
) -> int:
    """Writes conversations as TRL's SFTTrainer, and `read_conversations`, read them; returns how many.

    Replies within it that are not trained on get a `weight` of 0, as OpenAI's layout has it; TRL reads no weights. A
    path ends with ``.jsonl`` or ``.parquet``; an existing file is replaced when the new one is complete. For Parquet
    every `meta` has the same names. Empty conversations are left out. Layouts are ``messages``: whole conversations,
    whose replies all count; and ``prompt_completion``: a `prompt`, and what follows it as `completion`, which alone
    counts.

    Raises:
      DatasetError: there is no conversation, or the ending is another, or replies do not count in the layout in which
        all do.
    """

    def row(conversation: Conversation) -> dict[str, Any]:
        if layout == "messages":
            _refuse_context(path, conversation.context_replies, "layout='prompt_completion'")
            return {"messages": _plain(conversation.messages, conversation.untrained)} | _extra(conversation.meta)
        start = len(opening(conversation.messages, conversation.context_replies))
        plain = _plain(conversation.messages, conversation.untrained)
        return {"prompt": plain[:start], "completion": plain[start:]} | _extra(conversation.meta)

    return _write(path, (row(conversation) for conversation in conversations))


def write_pairs(path: Path, pairs: Iterable[ConversationPair], *, layout: Layout = "explicit") -> int:
    """Writes pairs as TRL's DPOTrainer, and `read_pairs`, read them; returns how many.

    TRL's documentation recommends the explicit layout; from an implicit one it derives a prompt: what both sides begin
    with, earlier replies included. A path ends with ``.jsonl`` or ``.parquet``; an existing file is replaced when the
    new one is complete. Layouts are ``explicit``: `prompt`, and in `chosen` and `rejected` what follows; and
    ``implicit``: whole conversations.

    Raises:
      DatasetError: there is no pair, or the ending is another, or a pair of the implicit layout has replies that do not
        count.
    """

    def row(pair: ConversationPair) -> dict[str, Any]:
        if layout == "implicit":
            _refuse_context(path, pair.context_replies, "layout='explicit'")
        start = len(pair.prompt) if layout == "explicit" else 0
        prompt = {"prompt": _plain(pair.prompt)} if layout == "explicit" else {}
        return prompt | {"chosen": _plain(pair.chosen[start:]), "rejected": _plain(pair.rejected[start:])}

    return _write(path, (row(pair) | _extra(pair.meta) for pair in pairs))


def _refuse_context(path: Path, context_replies: int, hint: str) -> None:
    if context_replies:
        raise DatasetError(
            f"{path}: a row has {context_replies} replies that do not count, and here all do; use {hint}"
        )


def _plain(messages: Sequence[Message], untrained: Collection[int] = ()) -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = [{"role": message.role, "content": message.content} for message in messages]
    replies = [message for message in plain if message["role"] == "assistant"]
    for reply in untrained:
        replies[reply]["weight"] = 0
    return plain


def _extra(meta: Mapping[str, Scalar]) -> dict[str, Any]:
    return {"meta": dict(meta)} if meta else {}


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    if path.suffix not in (".jsonl", ".parquet"):
        raise DatasetError(f"{path}: expected a file ending in .jsonl or .parquet; give it such a name")
    first = next(rows, None)
    if first is None:
        raise DatasetError(f"{path}: nothing to write; select rows that exist, an empty file would train on nothing")
    every = itertools.chain([first], rows)
    if path.suffix == ".parquet":
        kept = list(every)
        write_atomically(pa.Table.from_pylist(kept), path)
        return len(kept)
    with replacing(path, errors="strict") as file:
        return sum(bool(file.write(json.dumps(row, ensure_ascii=False) + "\n")) for row in every)


# ---- between tables, conversations and tokens -----------------------------------------------------------------------

_DESCRIBED = ("game", "options", "task", "seat")


def conversations(tables: Iterable[pa.Table]) -> Iterator[Conversation]:
    """Yields the conversations of trajectories, e.g. of `dfc.rows.preference_pairs.sft_tables`."""
    names = (*_DESCRIBED, "sample", "turns", "outcome", "model", "messages")
    for table in tables:
        for row in table.select(names).to_pylist():
            messages = row.pop("messages")
            yield Conversation(tuple(Message(**message) for message in messages), row)


def conversation_pairs(tables: Iterable[pa.Table]) -> Iterator[ConversationPair]:
    """Yields the conversations of pairs, e.g. of `dfc.rows.preference_pairs.pair_tables`."""
    sided = [f"{side}_{name}" for side in _SIDES for name in ("sample", "turns", "outcome", "messages")]
    for table in tables:
        for row in table.select([*_DESCRIBED, *sided]).to_pylist():
            chosen, rejected = (tuple(Message(**message) for message in row.pop(f"{side}_messages")) for side in _SIDES)
            yield ConversationPair(chosen, rejected, row)


def encode(
    messages: Sequence[Message], tokenizer: ChatTokenizer, *, context_replies: int = 0, untrained: Collection[int] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens of a conversation as a rollout would have made them, and which are trained on.

    For conversations of others only: where tokens were sampled, those are trained on. Every reply is trained on, the
    end-of-turn token after it included. The first `context_replies` are not trained on, nor are those that `untrained`
    numbers from 0 over all replies.

    Returns:
      tokens int32 [n], mask bool [n].
    """
    system = messages[0].content if messages[0].role == "system" else None
    token_ids: list[int] = []
    mask: list[bool] = []
    replies = 0
    for message in messages[0 if system is None else 1 :]:
        if message.role == "assistant":
            replies += 1
            new = [*tokenizer.encode_reply(message.content), tokenizer.end_token_ids[0]]
        elif token_ids:
            new = [*tokenizer.next_turn(message.content, closed=True)]
        else:
            new = [*tokenizer.first_turn(message.content, system=system)]
        token_ids += new
        trained = message.role == "assistant" and replies > context_replies and replies - 1 not in untrained
        mask += [trained] * len(new)
    return np.asarray(token_ids, np.int32), np.asarray(mask, bool)
