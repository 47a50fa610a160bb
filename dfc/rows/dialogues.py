"""Dialogues of any number of collections, and published ones, as one kind of record: what one seat saw and said.

Source: "Playpen" (arXiv 2504.08590), section 3.2 (perspectives) and 4.3 (its interactions). A trajectory of dfc gives
a dialogue for every seat of a player; a row of the published interactions is one seat already. A perspective needs
no record of its own: replies and rules give all of it again (`dfc.games.replay`).

Departures from the source: a published row says how a game ended and not how well, so that a success has quality 100
and a failure 0; players of one name are one player; a game that was stopped from outside (a full context, a limit of
actions, something that raised) is counted and is no dialogue.
"""

import collections
import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dfc.errors import ConfigError
from dfc.games import registry
from dfc.games.game import Outcome, Verdict
from dfc.games.replay import ReplayedTurn, ReplayError, replay
from dfc.players import player_specs
from dfc.records.trajectories import Message, Trajectory, canonical_json
from dfc.records.trajectory_files import DatasetError, part_trajectories, parts
from dfc.rows.conversations import Conversation, read_conversations
from dfc.rows.row_files import MAX_ROW_BYTES, row_place

Result = Literal["success", "failure", "aborted"]
RESULTS: tuple[Result, ...] = ("success", "failure", "aborted")
PUBLISHED_PREFIX = "clem_"  # before a published game's name it is the id of the same game here
_ITSELF = ("itself", "initial", "none")  # in the place of an opponent: the player of the collection
_PROBED, _PROBE = "clem_privateshared", "ASIDE:"  # the published game that asks aside, and what its probes begin with
_RESULT_OF: Mapping[Outcome, Result] = {
    Outcome.WIN: "success",
    Outcome.DRAW: "failure",
    Outcome.LOSS: "failure",
    Outcome.INVALID: "aborted",
}
_QUALITY_OF = {Outcome.WIN: 100.0, Outcome.DRAW: 50.0, Outcome.LOSS: 0.0}


class Exchange(NamedTuple):
    """One reply of a seat and all that the seat had seen before it.

    Attributes:
      context: what it had been shown and had said, the new observation last; of what was asked aside before, nothing.
      turn: the reply with the game's verdict.
      number: of the reply among those of all seats, from 0.
    """

    context: tuple[Message, ...]
    turn: ReplayedTurn
    number: int

    @property
    def messages(self) -> tuple[Message, ...]:
        """The context and the reply."""
        return (*self.context, Message("assistant", self.turn.reply))


def exchanges(turns: Iterable[ReplayedTurn], seat: int, system: str | None = None) -> Iterator[Exchange]:
    """Yields the replies of one seat, each with what the seat had seen.

    Args:
      turns: of a game, in order.
      seat: a player's, or a simulator's.
      system: what the seat was shown before the first observation; None for nothing.
    """
    past: tuple[Message, ...] = () if system is None else (Message("system", system),)
    for number, turn in enumerate(turns):
        if turn.seat == seat:
            found = Exchange((*past, Message("user", turn.observation)), turn, number)
            yield found
            if not turn.aside:
                past = found.messages


def perspective(record: Mapping[str, Any], seat: int, system: str | None = None) -> list[Exchange]:
    """Returns a recorded game from one seat; both seats of a game for two give two perspectives.

    Args:
      record: a line of episodes.jsonl, or `dfc.records.trajectories.Trajectory.record`.
      seat: whose.
      system: what the seat was shown before the first observation; None for nothing.

    Raises:
      ReplayError: it is no record, or the rules contradict it.
    """
    return list(exchanges(replay(record), seat, system))


class Aside(NamedTuple):
    """A question put aside, which leaves no trace in the dialogue, and its accepted reply.

    Attributes:
      after: how many messages of the dialogue were there before it.
      question: all that was new to the seat.
      reply: to it.
    """

    after: int
    question: str
    reply: str


@dataclasses.dataclass(frozen=True)
class Dialogue:
    """One game as one seat saw it.

    Attributes:
      messages: a system message, if any; then what it was shown and what it replied, in turns; the last is a reply.
      game: registered id, or the name of a published game that is not among dfc's.
      instance: what was dealt, as JSON: split and task; options and deal; or the experiment and number of a published
        game.
      seat: the role that the seat plays, or its number where it has none.
      player: who replied: a model, or a demonstrator.
      outcome: how it ended for the seat; ``aborted``: by a reply that could not be read or broke the rules.
      quality: from 0 to 100; None for what was aborted.
      world: what of the game's world depends on more than the instance (`dfc.records.trajectories.world`).
      to_blame: whether, if it was aborted, a reply of this seat did it; True where it is not known.
      asides: in order.
    """

    messages: tuple[Message, ...]
    game: str
    instance: str
    seat: str
    player: str
    outcome: Result
    quality: float | None
    world: str | None = None
    to_blame: bool = True
    asides: tuple[Aside, ...] = ()

    @functools.cached_property
    def key(self) -> str:
        """A digest of everything: two dialogues with one key are the same."""
        values = [getattr(self, field.name) for field in dataclasses.fields(self)]
        return hashlib.blake2b(json.dumps(values).encode(), digest_size=16).hexdigest()

    @property
    def start(self) -> int:
        """Where its first reply stands among the messages: 1, or 2 behind a system message."""
        return 2 if self.messages[0].role == "system" else 1

    @property
    def replies(self) -> int:
        """How many there are."""
        return (len(self.messages) - self.start + 1) // 2


class Dialogues(NamedTuple):
    """The contents of a source.

    Attributes:
      dialogues: in its order.
      unfinished: games that were stopped from outside, by id.
    """

    dialogues: tuple[Dialogue, ...]
    unfinished: Mapping[str, int]


def read_dialogues(
    source: Path,
    *,
    wanted: Callable[[str], bool] | None = None,
    cut_unanswered: bool = False,
    max_row_bytes: int = MAX_ROW_BYTES,
) -> Dialogues:
    """Returns the dialogues of a folder of trajectories, or of a file of published interactions.

    Trajectories may be of several models, samplings and seeds; each is replayed, which proves it. A file (``.jsonl``,
    ``.json``, ``.parquet``) has rows with `messages` and, in `meta`, `game`, `experiment`, `task_id`, `game_role` or
    `player_name`, `model` and `outcome` (one of `RESULTS`), as those of playpen-data. Only games whose id is `wanted`
    are read. `cut_unanswered` drops what follows the last reply of a published row instead of refusing it.

    Raises:
      DatasetError: there is nothing, a file cannot be read, a published row lacks something or ends without a reply, or
        the rules contradict a trajectory; file, row and fix are named.
    """
    if source.is_dir():
        return _of_trajectories(source, wanted)
    if not source.exists():
        raise DatasetError(f"{source}: there is no such place; name a folder of trajectories, a run, or a file")
    found = []
    read = read_conversations(source, cut_unanswered=cut_unanswered, max_row_bytes=max_row_bytes)
    for number, conversation in enumerate(read):
        try:
            dialogue = from_conversation(conversation)
        except ValueError as error:
            raise DatasetError(f"{row_place(source, number)}: {error}") from error
        if wanted is None or wanted(dialogue.game):
            found.append(dialogue)
    return Dialogues(tuple(found), {})


# ---- of collections -------------------------------------------------------------------------------------------------


def _of_trajectories(folder: Path, wanted: Callable[[str], bool] | None) -> Dialogues:
    found: list[Dialogue] = []
    unfinished: collections.Counter[str] = collections.Counter()
    paths = parts(folder)
    if not paths:
        raise DatasetError(f"{folder}: no trajectory in it; collect some first, or name their folder or their run")
    for path in paths:
        for number, row in enumerate(part_trajectories(path)):
            if wanted is not None and not wanted(row.game):
                continue
            if row.outcomes and all(outcome == Outcome.TRUNCATED for outcome in row.outcomes):
                unfinished[row.game] += 1
                continue
            try:
                found += from_trajectory(row)
            except ValueError as error:
                raise DatasetError(
                    f"{path}, row {number}: {error}; collect it again with these rules, or leave {row.game} out "
                    "(leave_out)"
                ) from error
    return Dialogues(tuple(found), unfinished)


def from_trajectory(row: Trajectory) -> list[Dialogue]:
    """Returns the dialogues of a trajectory, one for every seat of a player that replied; none of a stopped game.

    What the other seat was shown before its first observation is what the trajectory's own seat was shown.

    Raises:
      ReplayError: the rules contradict the record.
      ValueError: its quality is none.
    """
    turns = list(replay(row.record()))
    options = json.loads(row.options)
    info = registry.make(row.game, **options).info
    if len(row.outcomes) != info.seats:
        raise ReplayError(f"{row.game}: {len(row.outcomes)} outcomes of {info.seats} seats")
    system = row.messages[0].content if row.messages and row.messages[0].role == "system" else None
    dealt = instance_of(row)
    found = []
    for seat, text in enumerate(row.outcomes):
        outcome = Outcome(text)
        messages, asides = _dialogue_of(turns, seat, system)
        if outcome is Outcome.TRUNCATED or not messages:
            continue
        found.append(
            Dialogue(
                messages=messages,
                game=row.game,
                instance=dealt,
                seat=info.player_roles[seat] if info.player_roles else str(seat),
                player=player_of(row, seat),
                outcome=_RESULT_OF[outcome],
                quality=_quality(row, outcome, measured=info.has_quality and (info.team or info.seats == 1)),
                world=row.world,
                to_blame=outcome is not Outcome.INVALID or row.forfeited_by in (None, seat),
                asides=asides,
            )
        )
    return found


def instance_of(row: Trajectory) -> str:
    """Returns what was dealt, as `Dialogue.instance` has it: split and task, or options and deal."""
    options = json.loads(row.options)
    if row.split is None:
        return canonical_json({"options": options, "deal": row.task})
    named = {"instances": options["instances"]} if "instances" in options else {}
    return canonical_json({"split": row.split, "task": row.task, **named})


def player_of(row: Trajectory, seat: int) -> str:
    """Returns who replied on a seat: the collection's model, or its opponent."""
    own = seat == row.seat or row.opponent in _ITSELF
    return row.provenance.model if own else _name(row.opponent)


def _dialogue_of(
    turns: Sequence[ReplayedTurn], seat: int, system: str | None
) -> tuple[tuple[Message, ...], tuple[Aside, ...]]:
    """Returns a seat's dialogue, empty where it never replied, and what it was asked aside."""
    messages: tuple[Message, ...] = ()
    asides = []
    before = 0 if system is None else 1
    for exchange in exchanges(turns, seat, system):
        if not exchange.turn.aside:
            messages = exchange.messages
        elif exchange.turn.verdict is Verdict.PLAYED:
            asides.append(Aside(len(messages) or before, exchange.turn.observation, exchange.turn.reply))
    return messages, tuple(asides)


def _quality(row: Trajectory, outcome: Outcome, *, measured: bool) -> float | None:
    if outcome is Outcome.INVALID:
        return None
    quality = row.measures.get("quality") if measured else None
    found = _QUALITY_OF[outcome] if quality is None else float(quality)
    if not 0 <= found <= 100:
        raise ValueError(f"quality is {found}, but must be between 0 and 100")
    return found


def _name(opponent: str) -> str:
    try:
        return player_specs.parse(opponent).name
    except ConfigError:
        return opponent


# ---- published ones -------------------------------------------------------------------------------------------------


def from_conversation(conversation: Conversation) -> Dialogue:
    """Returns a row of published interactions as a dialogue.

    Games that are here too get the id they have here (``taboo`` is ``clem_taboo``), and a model that is named once for
    every seat (``m--m``) its own name. Probes of privateshared are taken out of the dialogue, as the game does.
    Rows that `dfc.tools.clembench.rows` wrote have further fields for what the published ones cannot say.

    Raises:
      ValueError: a field is not there, or is none of what it may be; or a reply is not to be trained on, where every
        reply of a dialogue becomes a row.
    """
    if conversation.context_replies or conversation.untrained:
        raise ValueError(
            "a reply is not to be trained on (it stands in a prompt, or has weight 0 or train false), but every reply "
            "of a dialogue is; train on this file as it is, or drop the field or the row"
        )
    meta = conversation.meta
    game = _field(meta, "game")
    of_ours = meta.get("to_blame") is not None  # what another game here is called may be a published game's name
    game = PUBLISHED_PREFIX + game if not of_ours and PUBLISHED_PREFIX + game in registry.game_ids() else game
    named = canonical_json({name: _field(meta, name) for name in ("experiment", "task_id")})
    instance = named if meta.get("instance") is None else _field(meta, "instance")
    seat = _field(meta, "game_role" if meta.get("game_role") else "player_name")
    model = _field(meta, "model")
    outcome = next((result for result in RESULTS if result == meta.get("outcome")), None)
    if outcome is None:
        raise ValueError(
            f"outcome of meta must be one of {', '.join(RESULTS)}, got {str(meta.get('outcome'))[:80]!r}; rename it "
            "(a part of a collection is read with its folder: name that)"
        )
    names = set(model.split("--"))
    places: Collection[int] = ()
    if meta.get("asides") is not None:
        places = _listed_places(conversation.messages, str(meta["asides"]))
    elif game == _PROBED:
        asked = (place for place, message in enumerate(conversation.messages) if message.role == "user")
        places = {place for place in asked if conversation.messages[place].content.startswith(_PROBE)}
    messages, asides = _without_asides(conversation.messages, places)
    return Dialogue(
        messages=messages,
        game=game,
        instance=instance,
        seat=seat,
        player=names.pop() if len(names) == 1 else model,
        outcome=outcome,
        quality=_published_quality(meta.get("quality"), outcome),
        world=None if meta.get("world") is None else _field(meta, "world"),
        to_blame=meta.get("to_blame") is not False,
        asides=asides,
    )


def _field(meta: Mapping[str, object], name: str) -> str:
    value = meta.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "" or len(str(value)) > 1000:
        raise ValueError(f"{name} of meta must be a text or a whole number, got {str(value)[:80]!r}; add it to the row")
    return str(value)


def _published_quality(value: object, outcome: Result) -> float | None:
    if value is None or outcome == "aborted":
        return {"success": 100.0, "failure": 0.0}.get(outcome)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise ValueError(f"quality of meta must be a number from 0 to 100, got {str(value)[:80]!r}; correct the row")
    return float(value)


def _listed_places(messages: Sequence[Message], listed: str) -> set[int]:
    """Returns where the questions of the asides stand that a row lists, such as ``2,4``; empty: none."""
    named = set(listed.split(",") if listed else [])
    found = {place for place, message in enumerate(messages) if message.role == "user" and str(place) in named}
    if len(found) < len(named):
        raise ValueError(f"asides of meta must be places of user messages, got {listed[:80]!r}; correct the row")
    return found


def _without_asides(
    messages: tuple[Message, ...], places: Collection[int]
) -> tuple[tuple[Message, ...], tuple[Aside, ...]]:
    """Takes out the questions that stand in some places, with their replies."""
    kept: list[Message] = []
    asides = []
    for place, message in enumerate(messages):
        if place in places:
            asides.append(Aside(len(kept), message.content, messages[place + 1].content))
        elif place - 1 not in places:
            kept.append(message)
    if not kept or kept[-1].role != "assistant":
        raise ValueError("every message is an aside or a probe, so that there is no dialogue; drop the row")
    return tuple(kept), tuple(asides)
