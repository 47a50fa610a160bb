"""Repairs published dialogues as Playpen's authors did before they trained on them.

Source: "Playpen" (arXiv 2504.08590), appendix D.1, "Data Transformation", and D.3: lost and aborted dialogues went "the
same procedure". Each repair and where the source is silent about it:

  imagegame_replies: the instruction giver of the image game may end them with "what is your next instruction",
    which is what the game asks and breaks it off since version 1.6. Such replies are cut before these words. The last
    reply of an aborted dialogue stays as it is: it is what aborted it.
  wordle_format: dialogues of the three Wordles in which INVALID_FORMAT stands are left out; older versions of the games
    put it where an explanation should have stood. Looked for in every message, of this seat's dialogue only.
  wordle_asked_again: in the three Wordles a reply that was asked again is taken out with the question that asks again,
    so that the reply after it stands in its place. Whatever was wrong with the first one: its form, its length, a word
    that the game does not know.
  referencegame_examples: the source trains on the reference game of version 1.6 only. Rows do not say their version, so
    those are left out whose prompt has examples, which it had in 0.9 and 1.0 and has not in 1.6.

What the source does beside these stands elsewhere: privateshared's questions are merged in `dfc.rows.dialogue_rows`.
Dialogues of games here have other texts and are never repaired.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from dfc.config.dialogues import Repair
from dfc.records.trajectories import Message
from dfc.rows.dialogues import Dialogue

_WORDLES = ("clem_wordle", "clem_wordle_withclue", "clem_wordle_withcritic")
_INSTRUCTION = re.compile(r"\s*instruction\b", re.IGNORECASE)
_NEXT_INSTRUCTION = re.compile(r"\s*what\s+is\s+your\s+next\s+instruction", re.IGNORECASE)
_INVALID_FORMAT = "INVALID_FORMAT"
# What asks again ends with these words, and begins with none of what the other messages of a game begin with: those may
# quote a critic.
_AGAIN, _NOT_AGAIN = "please try again", ("clue:", "guess_feedback:")
_EXAMPLE = "here is an example"


class Repaired(NamedTuple):
    """The result of repairing a dialogue.

    Attributes:
      dialogue: repaired; None where it is left out.
      counts: of repairs, by the fields of `dfc.rows.dialogue_rows.DialogueStatistics`.
    """

    dialogue: Dialogue | None
    counts: Mapping[str, int]


def repaired(dialogue: Dialogue, repairs: Collection[Repair]) -> Repaired:
    """Returns a published dialogue as some repairs leave it, in any order; any other one as it is."""
    if not is_published(dialogue):
        return Repaired(dialogue, {})
    if (why := _left_out(dialogue, repairs)) is not None:
        return Repaired(None, {why: 1})
    messages, counts = dialogue.messages, {}
    if dialogue.game in _WORDLES and "wordle_asked_again" in repairs:
        messages = _without_asking_again(messages)
        counts = {"replies_asked_again": (len(dialogue.messages) - len(messages)) // 2}
    if dialogue.game == "clem_imagegame" and "imagegame_replies" in repairs:
        end = len(messages) - (dialogue.outcome == "aborted")
        messages = (*(_cut(message) for message in messages[:end]), *messages[end:])
        counts = {"replies_cut": sum(one != other for one, other in zip(messages, dialogue.messages, strict=True))}
    return Repaired(dataclasses.replace(dialogue, messages=messages), counts)


def is_published(dialogue: Dialogue) -> bool:
    """Returns whether a dialogue is of an original game of clembench and of none of those here."""
    return dialogue.instance.startswith('{"experiment":')  # as `dfc.rows.dialogues.from_conversation` writes it


def _left_out(dialogue: Dialogue, repairs: Collection[Repair]) -> str | None:
    """Returns the statistic that counts a dialogue that is left out; None if it is kept."""
    rules = dialogue.messages[: dialogue.start]
    examples = dialogue.game == "clem_referencegame" and "referencegame_examples" in repairs
    if examples and any(_EXAMPLE in message.content.casefold() for message in rules):
        return "rows_with_examples"
    formats = dialogue.game in _WORDLES and "wordle_format" in repairs
    if formats and any(_INVALID_FORMAT in message.content for message in dialogue.messages):
        return "rows_invalid_format"
    return None


def _without_asking_again(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    kept: list[Message] = []
    for message in messages:
        text = message.content.strip().casefold()
        again = message.role == "user" and _AGAIN in text and not text.startswith(_NOT_AGAIN)
        if again and kept and kept[-1].role == "assistant":
            kept.pop()
        else:
            kept.append(message)
    return tuple(kept)


def _cut(message: Message) -> Message:
    if message.role != "assistant" or not _INSTRUCTION.match(message.content):
        return message
    found = _NEXT_INSTRUCTION.search(message.content)
    return message if found is None else message._replace(content=message.content[: found.start()])
