"""Reads maps and adventures of clembench's instances: Python literals of rooms and moves, facts such as ``on(a,b)``."""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dfc.games.dialogue.adventure_world import PHRASES, Adventure, Place, Vocabulary
from dfc.games.dialogue.maps import BACK, STEPS, RoomMap

_LITERAL = 20_000  # characters; the longest of the release has 2,000
_ROOMS = 12  # the search for useful steps grows fast with rooms
_NAME = 60
_FACTS = 2_000  # a world of the release has 150
_FACT = re.compile(r"([a-z_]{1,40})\(([a-z0-9_]{1,40})(?:,([a-z0-9_]{1,40}))?\)", re.ASCII)
# Kinds of things and rooms whose name is two words; the facts write it as one.
_TWO_WORDS = {
    "broomcloset": "broom closet",
    "livingroom": "living room",
    "diningroom": "dining room",
    "pottedplant": "potted plant",
    "sidetable": "side table",
}
_VARIANTS = ("basic", "plan")
_RENAMED = ("go", "take", "put", "open", "close", "examine")  # verbs that an instance may give a word of its own
_WORD = re.compile(r"[a-z]{2,40}", re.ASCII)
_MEANING = re.compile(r"(?:To \w{1,40} is )?(.{1,300}?)\.?", re.ASCII)


class NoMapError(ValueError):
    """What is wrong with a map or an adventure."""


def _literal(text: str, what: str, kind: type) -> Any:  # noqa: ANN401 (as in the file)
    try:
        found = ast.literal_eval(text) if len(text) <= _LITERAL else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found = None
    if type(found) is not kind:
        raise NoMapError(f"field {what!r} must be a {kind.__name__} written in Python, got {text[:80]!r}")
    return found


def room_map(nodes: str, moves: str, position: str, *others: str) -> dict[str, Any]:
    """Returns a map: ``map``, a `RoomMap`.

    Args:
      nodes: a list of names of rooms, as a literal.
      moves: a list of ``{"node": name, "node_moves": [(direction, name), ...]}``, as a literal; a room may come twice.
      position: the name of the room where the player begins.
      *others: the name of the room to be found, if there is one, and of the experiment.

    Raises:
      NoMapError: it is no map of different rooms that are all connected by passages that lead both ways.
    """
    names = _literal(nodes, "Graph_Nodes", list)
    if not all(isinstance(name, str) and name.isprintable() and 0 < len(name) <= _NAME for name in names):
        raise NoMapError(f"field 'Graph_Nodes' must be names of rooms, got {nodes[:80]!r}")
    if not 1 < len(names) <= _ROOMS or len({name.lower() for name in names}) < len(names):
        raise NoMapError(f"field 'Graph_Nodes' must be 2 to {_ROOMS} different rooms, got {nodes[:80]!r}")
    for room in (position, *others[:-1]):
        if room not in names:
            raise NoMapError(f"names a room {room[:80]!r} that is not in 'Graph_Nodes'")
    behind = _passages(moves)
    both_ways = all(
        way in STEPS and room in behind and behind[room].get(BACK[way]) == name
        for name, ways in behind.items()
        for way, room in ways.items()
    )
    if set(behind) != set(names) or not both_ways:
        raise NoMapError("field 'Moves' must have every room of 'Graph_Nodes', and for each passage the way back")
    exits = tuple({way: names.index(behind[name][way]) for way in STEPS if way in behind[name]} for name in names)
    reached = [0]
    for number in reached:
        reached += [beside for beside in exits[number].values() if beside not in reached]
    if len(reached) < len(names):
        raise NoMapError("field 'Moves' must connect all rooms")
    target = names.index(others[0]) if len(others) > 1 else -1
    return {"map": RoomMap(tuple(names), exits, names.index(position), target)}


def _passages(moves: str) -> dict[str, dict[str, str]]:
    """Returns by room the room behind each of its passages, by direction."""
    behind: dict[str, dict[str, str]] = {}
    for move in _literal(moves, "Moves", list):
        try:
            ways = {str(direction): str(room) for direction, room in move["node_moves"]}
            known = behind.setdefault(str(move["node"]), ways)
        except (TypeError, KeyError, ValueError) as error:
            raise NoMapError(f"field 'Moves' has an entry {str(move)[:80]!r}") from error
        if known != ways:
            raise NoMapError(f"field 'Moves' has two different entries of room {str(move['node'])[:80]!r}")
    return behind


def adventure(initial: Sequence[object], goals: Sequence[object], variant: str, experiment: str) -> dict[str, Any]:
    """Returns an adventure: ``adventure``, ``planning``, and ``hands``: things that can be carried, 0 for any number.

    Args:
      initial: facts at the start: ``room(r,kind)``, ``exit(r,r)``, ``at(x,r)``, ``type(x,kind)``, ``support(x)``,
        ``container(x)``, ``closed(x)``, ``takeable(x)``, ``in(x,y)``, ``on(x,y)``; others say nothing here.
      goals: facts to be reached, ``in`` and ``on``.
      variant: ``basic`` or ``plan``.
      experiment: its name; with ``invlimittwo`` two things can be carried.

    Raises:
      NoMapError: something is missing, unknown or contradictory.
    """
    if variant not in _VARIANTS:
        raise NoMapError(f"field 'variant' must be {' or '.join(_VARIANTS)}, got {variant[:80]!r}")
    facts = _facts(initial, "initial_state")
    rooms = {first: _name(kind) for first, kind in facts.get("room", ())}
    kinds = {first: _name(kind) for first, kind in facts.get("type", ())}
    located, lies = dict(facts.get("at", ())), dict((*facts.get("in", ()), *facts.get("on", ())))
    closed = {first for first, _ in facts.get("closed", ())}
    containers = [first for first, _ in facts.get("container", ())]
    supports = [first for first, _ in facts.get("support", ())]
    supports = [name for name in supports if kinds.get(name) != "floor" or name in lies.values()]
    things = [first for first, _ in facts.get("takeable", ())]
    if not rooms or len(set(rooms.values())) < len(rooms) or located.get("player1") not in rooms:
        raise NoMapError("field 'initial_state' must have rooms of different kinds, and the player in one of them")
    places = [*supports, *containers]
    if len(set(places)) < len(places) or not all(located.get(name) in rooms and name in kinds for name in places):
        raise NoMapError("field 'initial_state' must have a room and a type of each support and container")
    if not things or not all(name in kinds and lies.get(name) in places for name in things):
        raise NoMapError("field 'initial_state' must have a type of each takeable thing, and its place")
    if len({kinds[name] for name in things}) < len(things):
        raise NoMapError("field 'initial_state' must have takeable things of different types")
    numbers = {name: number for number, name in enumerate(rooms)}
    exits: dict[str, set[int]] = {name: set() for name in rooms}
    for first, second in facts.get("exit", ()):
        if first not in rooms or second not in rooms:
            raise NoMapError(f"field 'initial_state' has an exit between {first} and {second}")
        exits[first].add(numbers[second])
    wanted = [(kind, pair) for kind, pairs in _facts(goals, "goal_state").items() for pair in pairs]
    if not wanted or not all(kind in ("in", "on") and a in things and b in places for kind, (a, b) in wanted):
        raise NoMapError("field 'goal_state' must say of takeable things in or on what they shall lie")
    found = Adventure(
        rooms=tuple(rooms.values()),
        exits=tuple(tuple(sorted(beside)) for beside in exits.values()),
        start=numbers[located["player1"]],
        places=tuple(
            Place(kinds[name], numbers[located[name]], container=name in containers, open=name not in closed)
            for name in places
        ),
        things=tuple(kinds[name] for name in things),
        lying=tuple(places.index(lies[name]) for name in things),
        goals=tuple((things.index(a), places.index(b)) for _, (a, b) in wanted),
    )
    return {"adventure": found, "planning": variant == "plan", "hands": 2 if "invlimittwo" in experiment else 0}


def has_other_rules(own: Mapping[str, Any]) -> bool:
    """Returns whether an instance brings rules that the world here has not: events, or actions with other effects.

    Of clembench 3 these are the instances of made-up actions and states, and those of brewing potions.
    """
    actions = own.get("action_definitions")
    for action in actions if isinstance(actions, list) else ():
        verb = action.get("type_name") if isinstance(action, dict) else "look"  # a name: one of its files of actions
        if verb not in [*PHRASES] or (verb not in _RENAMED and "new_word" in action):
            return True
    return bool(own.get("event_definitions"))


def vocabulary(actions: Sequence[object]) -> Vocabulary:
    """Returns the words that an instance gives to verbs, with what they mean; other actions are as usual.

    Args:
      actions: names of files, or definitions, of which ``type_name``, ``new_word`` and ``explanation`` are read.

    Raises:
      NoMapError: a word is no single word, or stands for two verbs, or its meaning is not told.
    """
    verbs: dict[str, str] = {}
    meanings: dict[str, str] = {}
    usual = {phrase for phrases in PHRASES.values() for phrase in phrases}
    for action in actions:
        word = action.get("new_word") if isinstance(action, dict) else None
        if not isinstance(action, dict) or word is None:
            continue
        told = action.get("explanation")
        means = _MEANING.fullmatch(told) if isinstance(told, str) and told.isprintable() else None
        if not isinstance(word, str) or not _WORD.fullmatch(word) or word in {*meanings, *usual} or means is None:
            raise NoMapError(
                "field 'action_definitions' must give each verb another word of small letters, 'new_word', with an "
                f"'explanation' of one line, got {str(word)[:40]!r}, {str(told)[:80]!r}"
            )
        verbs[action["type_name"]], meanings[word] = word, means[1]
    return Vocabulary(verbs=verbs, meanings=meanings)


def _facts(found: Sequence[object], field: str) -> Mapping[str, list[tuple[str, str]]]:
    """Returns facts by name, each with two arguments; the second of those with one is empty."""
    facts: dict[str, list[tuple[str, str]]] = {}
    for fact in found[: _FACTS + 1]:
        read = _FACT.fullmatch(fact) if isinstance(fact, str) else None
        if read is None or len(found) > _FACTS:
            raise NoMapError(
                f"field {field!r} must be at most {_FACTS} facts such as 'on(cup1,desk1)', got {str(fact)[:80]!r}"
            )
        facts.setdefault(read[1], []).append((read[2], read[3] or ""))
    return facts


def _name(kind: str) -> str:
    return _TWO_WORDS.get(kind, kind.replace("_", " "))
