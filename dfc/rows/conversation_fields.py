"""The fields of a row of conversations and of its messages: each is read, kept as description, or refused by name.

Dropping a field silently would train something other than what its file says: a reply of weight 0 is imitated, a call
of a tool becomes an empty reply. So nothing is dropped:

  read         `role`, `content` (a text, or a list of parts of type ``text``, which are joined), and at replies
               `weight` and `train`: 0 or false leaves the reply in the context and out of the loss
  described    ids, origins, scores and the like (`describes`), and whatever stands in `meta`: never trained on
  absent       null, an empty text, list or object where nothing is read: what Parquet fills in, and what clients of
               the OpenAI interface write
  refused      all others, by name; `HINTS` says for the known ones what to do

A ``developer`` message is a system message, as it is for `dfc.tools.serving`: templates that name the role write it as
they write ``system``, and the others do not know it.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from dfc.errors import cut, shown
from dfc.records.trajectories import Message, well_formed

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_PLAIN_ROLES = ("system", "user", "assistant")
_TRAINED = ("weight", "train")  # of a reply: 0 or false leave it out of the loss
_LISTED = 8  # names in one message
_NAME = 60  # characters of one
_DEEPEST = 4  # objects within an object that holds nothing


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Of a message, what changes nothing that is trained on; `type` stands in the messages of Playpen's published pairs.
_MESSAGE_DESCRIBES = _names(
    "id message_id parent_id turn turn_id turn_identifier type created created_at timestamp language lang model meta "
    "metadata"
)
# Of a row; also with chosen or rejected before or behind, and whatever is an id, a score or a rating by its name.
_ROW_DESCRIBES = _names(
    "meta metadata extra_info other_info info notes comment description title "
    "id idx index uuid hash __index_level_0__ "
    "source sources origin dataset dataset_name data_source subset config split license licence url "
    "author annotator created created_at date time timestamp version dfc_version commit "
    "category categories subcategory topic topics subject domain task task_type tag tags keywords language lang "
    "difficulty level complexity game options instance seat world sample seed outcome success experiment game_role "
    "player player_name opponent to_blame asides episode benchmark_version Aborted Lose Success target "
    "persona constraints ability ground_truth judge judge_model model models model_name generator teacher "
    "score scores rating ratings avg_rating overall_score quality turns turn num_turns n_turns "
    "tokens num_tokens n_tokens token_count length"
)
_SIDED = re.compile(r"((chosen|rejected)[_-])?(?P<name>.*?)([_-](chosen|rejected))?", re.DOTALL)
_KINDS = ("_id", "_score", "_scores", "_rating", "_ratings")

_TOOLS = "tools are not rendered here; drop the rows that teach their use, or write calls and results as texts"
_THOUGHTS = "thoughts are trained on where they stand in the content; write them there as the model writes them"
_TEMPLATE = "the model's chat template is rendered in one way for all rows; drop the rows written for another way"
_COUNTED = "write weight 0 at the replies that are not to be trained on, and drop this field"
_TOKENS = "tokens and masks are made of the messages; drop it (what dfc collected is read with its folder)"
_MEDIA = "only texts are read; drop the rows that need more"
_LAYOUT = "it belongs to another layout; write what it says into the messages"
_REWARDS = "neither sft nor preference reads it; choose rows by it, and drop it"
_EVENLY = "all rows count alike; repeat the row, give its file a share (data_shares), or drop the field"


def _each(names: str, hint: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), hint)


HINTS: Mapping[str, str] = {
    **_each("tools functions tool_choice tool_calls tool_call_id function_call documents", _TOOLS),
    **_each("reasoning_content reasoning reasoning_details thinking thought thoughts", _THOUGHTS),
    **_each("chat_template_kwargs chat_template enable_thinking reasoning_effort add_generation_prompt", _TEMPLATE),
    **_each(
        "loss loss_mask loss_scale masked train_detail train_on training completion_mask assistant_masks", _COUNTED
    ),
    **_each("input_ids token_ids attention_mask mask sampled_logprobs replies", _TOKENS),
    **_each("images image image_url videos video audio audios input_audio file objects", _MEDIA),
    **_each("system system_prompt history instruction input output query response answer text from value", _LAYOUT),
    **_each("prompt completion chosen rejected messages conversation conversations chat rejected_response", _LAYOUT),
    **_each("reward rewards advantage advantages margin ref_chosen_logps ref_rejected_logps", _REWARDS),
    **_each("weight weights sample_weight train", _EVENLY),
    **_each("labels", _TOKENS),
    "label": "a row with a label is for KTO, which is not here; keep the rows whose label is true, and drop the column",
    "name": "no name is shown to the model; write it into the content, or drop it",
    "refusal": "write the refusal as the content, or drop the row",
}
"""What to do about fields that are known to change what is trained on."""
_UNKNOWN = "put descriptive fields under `meta`, and drop the rest"
# Of a row, the values of refused fields that say what is done anyway.
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "weight": (1,),
    "train": (True,),
    "parallel_tool_calls": (True, False),  # says something about tools alone
    "tool_choice": ("none", "auto"),
}


class BadRow(Exception):  # noqa: N818 - carried to where file and row are known
    """What is wrong with a row, and the fix."""


class Said(NamedTuple):
    """Messages of a row.

    Attributes:
      messages: all of them.
      replies: how many of them are replies.
      untrained: which of the replies, from 0, are not trained on.
    """

    messages: tuple[Message, ...]
    replies: int = 0
    untrained: tuple[int, ...] = ()


# ---- names and values -----------------------------------------------------------------------------------------------


def listed(names: Iterable[str]) -> str:
    """Returns names as a message shows them: the first few, each cut, control characters escaped."""
    found = list(names)
    cuts = [cut(str(name), _NAME) for name in found[:_LISTED]]
    texts = [name if name and name.isprintable() else repr(name) for name in cuts]
    return ", ".join(texts) + (f" and {len(found) - _LISTED} more" if len(found) > _LISTED else "")


def describes(name: str) -> bool:
    """Returns whether a field of a row is known to describe it and nothing else."""
    if name in _ROW_DESCRIBES:
        return True
    if len(name) > _NAME:
        return False
    match = _SIDED.fullmatch(name)
    return match is not None and (match["name"] in _ROW_DESCRIBES or match["name"].endswith(_KINDS))


def absent(value: object, depth: int = _DEEPEST) -> bool:
    """Returns whether a value says nothing: null, an empty text, list or object, or an object of such values."""
    if value is None or value == "":
        return True
    if isinstance(value, Mapping):
        return not value or (depth > 0 and len(value) < 1000 and all(absent(one, depth - 1) for one in value.values()))
    return isinstance(value, list) and not value


def _same(value: object, neutral: object) -> bool:
    """Whether two values are equal; true is no number."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _refuse(place: str, names: Sequence[str]) -> NoReturn:
    """Raises about fields, beginning with the first one that has a hint of its own."""
    ordered = sorted(names, key=lambda name: name not in HINTS)
    hint = HINTS.get(ordered[0])
    if hint is not None:
        more = f" (and {len(names) - 1} more fields that are not read)" if len(names) > 1 else ""
        raise BadRow(f"{place}{ordered[0]} is not read, and would change what is trained on: {hint}{more}")
    raise BadRow(f"{place}no field of this name is known: {listed(ordered)}; {_UNKNOWN}")


# ---- of a row -------------------------------------------------------------------------------------------------------


def refuse_fields(row: Mapping[str, Any], read: Collection[str]) -> None:
    """Raises unless every field of a row is read by the caller, describes the row, or says nothing.

    Raises:
      BadRow: the field and what to do.
    """
    wrong = [
        name
        for name, value in row.items()
        if name not in read
        and name not in _ROW_DESCRIBES
        and not describes(name)
        and not absent(value)
        and not any(_same(value, neutral) for neutral in _NEUTRAL.get(name, ()))
    ]
    if wrong:
        _refuse("", wrong)


def meta_of(row: Mapping[str, Any]) -> dict[str, str | int | float | bool | None]:
    """Returns the scalars that describe a row: its own, and those in `meta`."""
    nested = row.get("meta")
    found = {name: value for name, value in row.items() if _scalar(value) and describes(name)}
    if isinstance(nested, Mapping):
        found |= {name: value for name, value in nested.items() if _scalar(value)}
    return found


def _scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


# ---- of a message ---------------------------------------------------------------------------------------------------


def messages_of(value: object, name: str) -> Said:
    """Returns a row's list of messages.

    Raises:
      BadRow: it is none, or a message has a field that is not read, another role, or no text.
    """
    if not isinstance(value, list):
        raise BadRow(f"{name} must be a list of messages, got {type(value).__name__}; write [{{role, content}}, ...]")
    if not value:
        raise BadRow(f"{name} has no message; drop the row")
    found: list[Message] = []
    untrained: list[int] = []
    replies = 0
    for place, entry in enumerate(value):
        # Nearly all messages are these two fields, and reading them is most of the time that a file takes.
        plain = type(entry) is dict and len(entry) == 2
        if plain and (role := entry.get("role")) in _PLAIN_ROLES and type(content := entry.get("content")) is str:
            message, trained = Message(role, content if content.isascii() else well_formed(content)), True
        else:
            message, trained = _message(entry, f"message {place} of {name}")
        found.append(message)
        if message.role == "assistant":
            if not trained:
                untrained.append(replies)
            replies += 1
    return Said(tuple(found), replies, tuple(untrained))


def _message(entry: object, where: str) -> tuple[Message, bool]:
    """Returns a message, and whether it is trained on if it is a reply."""
    role = entry.get("role") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(role, str) or role not in _ROLES:
        raise _malformed(where, entry)
    wrong = [
        field
        for field, value in entry.items()
        if field not in ("role", "content", *_TRAINED) and field not in _MESSAGE_DESCRIBES and not absent(value)
    ]
    if wrong:
        _refuse(f"{where}: ", wrong)
    trained = [flag for field in _TRAINED if (flag := _flag(where, field, entry.get(field))) is not None]
    if role != "assistant" and any(trained):
        what = "only replies of the assistant are trained on; drop the field, or write 0"
        raise BadRow(f"{where}: a {role} message with {' and '.join(f for f in _TRAINED if entry.get(f))}: {what}")
    if len(set(trained)) > 1:
        raise BadRow(f"{where}: weight and train contradict each other; keep one of them")
    return Message(_ROLES[role], well_formed(_text(where, entry))), all(trained)


def _malformed(where: str, entry: object) -> BadRow:
    roles = ", ".join(_ROLES)
    return BadRow(
        f"{where} must have a role of {roles} and a text as content, got {shown(entry)}; rename its fields and roles, "
        "or drop the row"
    )


def _flag(where: str, field: str, value: object) -> bool | None:
    if value is None:
        return None
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    raise BadRow(
        f"{where}: {field} must be 0 or 1 (false or true), got {shown(value)}: a reply is trained on or not; write one "
        "of the two"
    )


def _text(where: str, entry: Mapping[str, Any]) -> str:
    content = entry.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise _malformed(where, entry)
    return "".join(_part(f"{where}, part {number} of its content", part) for number, part in enumerate(content))


def _part(where: str, part: object) -> str:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise BadRow(
            f'{where}: expected {{"type": "text", "text": ...}}, got {shown(part)}; write the content as a text'
        )
    wrong = [field for field, value in part.items() if field not in ("type", "text") and not absent(value)]
    if part["type"] != "text":
        raise BadRow(f"{where} is of type {listed([part['type']])}, expected text: {_MEDIA}")
    if wrong:
        _refuse(f"{where}: ", wrong)
    if not isinstance(part.get("text"), str):
        raise BadRow(f"{where}: text must be a text, got {shown(part.get('text'))}; correct it, or drop the row")
    return str(part["text"])
