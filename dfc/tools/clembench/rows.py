"""Dialogues as rows of playpen-data, the published interactions of clembench.

Source: the data set's card: `messages`, and `meta` of game, experiment, task_id, game_role, player_name, model and
outcome (``success``, ``failure``, ``aborted``). `dfc.rows.dialogues.read_dialogues` reads such rows.

Departures: games keep the ids they have here (``clem_taboo``), since their texts are not the original's; further
fields of `meta` (`quality`, `instance`, `world`, `to_blame`, `asides`) hold what the seven cannot express, so that
reading gives the same dialogues. Asides stand among the messages, as privateshared's probes do in the published rows.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from dfc.games import registry
from dfc.records.trajectories import Message
from dfc.rows.conversations import Conversation, Scalar, write_conversations
from dfc.rows.dialogues import Dialogue

_USUAL_QUALITY: Mapping[str, float | None] = {"success": 100.0, "failure": 0.0, "aborted": None}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")  # as it comes back from a whole number


def write_rows(path: Path, dialogues: Iterable[Dialogue]) -> int:
    """Writes dialogues as rows; returns how many.

    The path ends with ``.jsonl`` or ``.parquet``; an existing file is replaced when the new one is complete.

    Raises:
      DatasetError: there is no dialogue, or the ending is another.
    """
    return write_conversations(path, (to_conversation(dialogue) for dialogue in dialogues))


def to_conversation(dialogue: Dialogue) -> Conversation:
    """Returns a dialogue as a row; `dfc.rows.dialogues.from_conversation` gives the same dialogue again."""
    experiment, task_id, published = _named(dialogue.instance)
    messages, places = _with_asides(dialogue)
    quality = dialogue.quality
    meta: dict[str, Scalar] = {
        "game": dialogue.game,
        "experiment": experiment,
        "task_id": task_id,
        "game_role": dialogue.seat,
        "player_name": _player_name(dialogue),
        "model": dialogue.player,
        "outcome": dialogue.outcome,
        "quality": None if quality == _USUAL_QUALITY[dialogue.outcome] else quality,
        "instance": None if published else dialogue.instance,
        "world": dialogue.world,
        "to_blame": dialogue.to_blame,
        "asides": places,
    }
    return Conversation(messages, meta)


def _named(instance: str) -> tuple[str, int, bool]:
    """Returns the experiment and the number of what was dealt, and whether these two identify it completely."""
    try:
        dealt = json.loads(instance)
    except ValueError:
        dealt = None
    match dealt:
        case {"experiment": str(experiment), "task_id": str(task), **more} if experiment and _NUMBER.fullmatch(task):
            return experiment, int(task), not more
        case {"split": str(split), "task": int(number)}:
            return split, number, False
        case {"deal": int(number)}:
            return "deals", number, False
        case _:
            return "instances", 0, False


def _player_name(dialogue: Dialogue) -> str:
    """Returns clembench's name of a seat: ``Player 1`` moves first."""
    if dialogue.seat.isdecimal():
        return f"Player {int(dialogue.seat) + 1}"
    if dialogue.game in registry.game_ids():
        roles = registry.make(dialogue.game).info.player_roles
        if dialogue.seat in roles:
            return f"Player {roles.index(dialogue.seat) + 1}"
    return dialogue.seat


def _with_asides(dialogue: Dialogue) -> tuple[tuple[Message, ...], str]:
    """Returns the messages with the asides where they were asked, and the places of their questions, as ``2,4``."""
    found: list[Message] = []
    places = []
    for before in range(len(dialogue.messages) + 1):
        for aside in dialogue.asides:
            if aside.after == before:
                places.append(str(len(found)))
                found += [Message("user", aside.question), Message("assistant", aside.reply)]
        found += dialogue.messages[before : before + 1]
    return tuple(found), ",".join(places)
