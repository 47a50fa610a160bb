"""The world of the text adventure: rooms, places in and on which things lie, commands in words and their answers.

A small model of our own; every answer is computed from where things are. A player's words are compared without letter
case, articles and punctuation at their end. What cannot be seen is answered as what does not exist.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dfc.games.task import count_of

_FILE = pathlib.Path(__file__).parent / "data" / "adventure.json"
_ARTICLES = frozenset({"a", "an", "the", "some", "my"})
_PREPOSITIONS = frozenset({"in", "into", "inside", "on", "onto", "to", "at"})
_SHOWN = 40  # characters of a player's own words that an answer repeats
CARRIED = -1  # where a thing is that the player carries
PHRASES: Mapping[str, tuple[str, ...]] = {
    "go": ("go to", "go back to", "go into", "go", "walk to", "move to", "return to", "enter"),
    "take": ("take", "pick up", "get", "grab"),
    "put": ("put", "place", "leave", "lay"),
    "open": ("open",),
    "close": ("close", "shut"),
    "examine": ("examine", "look at", "look in", "look inside", "look into", "inspect", "search", "check"),
    "look": ("look", "look around"),
    "inventory": ("inventory", "check inventory"),
    "done": ("done", "finish", "quit"),
}
"""What is said for each verb, its usual phrase first."""
_ALONE = ("look", "inventory", "done")  # verbs that name nothing
Difficulty = Literal["easy", "hard"]


@dataclasses.dataclass(frozen=True)
class Place:
    """Something in a room that is never carried and on or in which things lie.

    Attributes:
      name: no other place of the world has it.
      room: number of its room.
      container: whether things lie in it, and it can be opened and closed; else they lie on it.
      open: at the start; True of whatever is no container.
    """

    name: str
    room: int
    container: bool
    open: bool


@dataclasses.dataclass(frozen=True)
class Adventure:
    """A world at its start, and what is to be done in it.

    Attributes:
      rooms: names. exits: for each room, the rooms beside it. start: the player's room.
      places: all of them.
      things: names of what can be carried. lying: for each of them, the number of its place.
      goals: pairs (thing, place), by number.
    """

    rooms: tuple[str, ...]
    exits: tuple[tuple[int, ...], ...]
    start: int
    places: tuple[Place, ...]
    things: tuple[str, ...]
    lying: tuple[int, ...]
    goals: tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What things are called and how verbs are said, where that is not as usual.

    Attributes:
      things: usual name -> invented word. verbs: verb -> invented word.
      meanings: invented word -> what it means, for the player.
    """

    things: Mapping[str, str] = dataclasses.field(default_factory=dict)
    verbs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    meanings: Mapping[str, str] = dataclasses.field(default_factory=dict)


@functools.cache
def data() -> dict[str, Any]:
    """Returns rooms with their places, things and verbs with what they mean, and invented words."""
    found: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def listed(names: Sequence[str]) -> str:
    """Returns names with articles, as text.

    >>> listed(["mug", "apple", "pen"]), listed([])
    ('a mug, an apple and a pen', 'nothing')
    """
    found = [f"{'an' if name[0] in 'aeiou' else 'a'} {name}" for name in names]
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found) or "nothing"


def words(said: str) -> list[str]:
    """Returns the words of a command: lower case, no articles, no punctuation at the ends.

    >>> words("Put the mug ON a table!")
    ['put', 'mug', 'on', 'table']
    """
    return [word for word in said.lower().strip(" .!\"'`*").split() if word not in _ARTICLES]


class World:
    """An adventure in progress.

    Attributes:
      adventure, vocabulary: as given. hands: how many things can be carried, 0 for any number.
      room: the player's. where: for each thing its place, or `CARRIED`. open: for each place whether it is.
      visited: for each room whether the player was there. seen: for each place whether its contents were seen.
    """

    def __init__(self, adventure: Adventure, hands: int = 0, vocabulary: Vocabulary | None = None) -> None:
        self.adventure = adventure
        self.hands = hands
        self.vocabulary = vocabulary or Vocabulary()
        self.names = tuple(self.vocabulary.things.get(thing, thing) for thing in adventure.things)
        said = {verb: (word,) for verb, word in self.vocabulary.verbs.items()}
        self._verbs = {phrase: verb for verb, usual in PHRASES.items() for phrase in said.get(verb, usual)}
        self._places_of = _places_of(adventure)
        self.room = adventure.start
        self.where = list(adventure.lying)
        self.open = [place.open for place in adventure.places]
        self.visited = [False] * len(adventure.rooms)
        self.seen = [False] * len(adventure.places)
        self._see()

    # ---- what is so -----------------------------------------------------------------------------------------------

    def reached(self) -> int:
        """Returns how many goals hold now."""
        return sum(self.where[thing] == place for thing, place in self.adventure.goals)

    def carried(self) -> list[int]:
        """Returns the things that the player carries."""
        return [thing for thing, place in enumerate(self.where) if place == CARRIED]

    def here(self) -> tuple[int, ...]:
        """Returns the places of the player's room."""
        return self._places_of[self.room]

    def at(self, place: int) -> list[int]:
        """Returns the things that lie at a place."""
        return [thing for thing, lies in enumerate(self.where) if lies == place]

    def state(self) -> dict[str, Any]:
        """Returns what changes, as JSON-ready data; `restore` inverts it."""
        return {
            "room": self.room,
            "where": list(self.where),
            "open": list(self.open),
            "visited": list(self.visited),
            "seen": list(self.seen),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Sets what changes from `state`'s data, keeping none of its lists."""
        self.room = state["room"]
        self.where, self.open = list(state["where"]), list(state["open"])
        self.visited, self.seen = list(state["visited"]), list(state["seen"])

    def _see(self) -> None:
        self.visited[self.room] = True
        for place in self.here():
            self.seen[place] = self.seen[place] or self.open[place]

    # ---- in words -------------------------------------------------------------------------------------------------

    def say(self, verb: str, thing: int = 0, place: int = 0) -> str:
        """Returns the command for a verb, with what it needs: a thing, a place or both, or as `place` a room."""
        phrase = self.vocabulary.verbs.get(verb, PHRASES[verb][0])
        if verb in _ALONE:
            return phrase
        if verb == "go":
            return f"{phrase} {self.adventure.rooms[place]}"
        if verb == "take":
            return f"{phrase} {self.names[thing]}"
        target = self.adventure.places[place]
        if verb == "put":
            return f"{phrase} {self.names[thing]} {'in' if target.container else 'on'} {target.name}"
        return f"{phrase} {target.name}"

    def goal(self) -> str:
        """Returns the goal as text."""
        parts = [
            f"the {self.names[thing]} {self._in(place)} the {self.adventure.places[place].name}"
            for thing, place in self.adventure.goals
        ]
        listed_ = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
        return f"{self.vocabulary.verbs.get('put', 'put')} {listed_}"

    def describe(self) -> str:
        """Returns what the player sees in the room."""
        lines = [f"You are in the {self.adventure.rooms[self.room]}."]
        lines += [self._contents(place) for place in self.here()]
        lines.append(f"You can go to: {', '.join(self.adventure.rooms[room] for room in self._exits())}.")
        return "\n".join(lines)

    def _in(self, place: int) -> str:
        return "in" if self.adventure.places[place].container else "on"

    def _exits(self) -> tuple[int, ...]:
        return self.adventure.exits[self.room]

    def _contents(self, place: int) -> str:
        name = self.adventure.places[place].name
        if not self.open[place]:
            return f"There is {listed([name])}; it is closed."
        what = "an open" if self.adventure.places[place].container else "a"
        what = f"There is {what} {name}" if what != "a" else f"There is {listed([name])}"
        return f"{what}; {self._in(place)} it: {listed([self.names[thing] for thing in self.at(place)])}."

    def _load(self) -> str:
        return f"You carry {listed([self.names[thing] for thing in self.carried()])}."

    # ---- commands -------------------------------------------------------------------------------------------------

    def feasible(self) -> list[str]:
        """Returns the commands that would change something, then those that look, and the one that ends the game."""
        found = [self.say("go", place=room) for room in self._exits()]
        full = self.hands and len(self.carried()) >= self.hands
        for place in self.here():
            if self.adventure.places[place].container:
                found.append(self.say("close" if self.open[place] else "open", place=place))
            if self.open[place]:
                found += [] if full else [self.say("take", thing) for thing in self.at(place)]
                found += [self.say("put", thing, place) for thing in self.carried()]
        return [*found, *map(self.say, _ALONE)]

    def verb(self, said: str) -> tuple[str, list[str]]:
        """Returns the verb of a command, "" if it is unknown, and the words behind it."""
        tokens = words(said)
        for length in (3, 2, 1):
            verb = self._verbs.get(" ".join(tokens[:length])) if len(tokens) >= length else None
            if verb is not None and (verb not in _ALONE or len(tokens) == length):
                return verb, tokens[length:]
        return "", tokens

    def do(self, said: str) -> tuple[str, bool]:
        """Carries a command out; returns the answer, and whether it was carried out."""
        verb, rest = self.verb(said)
        if not verb:
            return f"You do not know how to do that: {_short(said)}", False
        if verb in _ALONE:
            return {"look": self.describe, "inventory": self._load}.get(verb, lambda: "You are done.")(), True
        if not rest:
            return f"Name also what or where: {_short(said)} ...", False
        if verb == "put":
            return self._put(rest)
        if verb == "take" and "from" in rest:  # where it is taken from goes without saying
            rest = rest[: rest.index("from")]
        name = " ".join(rest)
        if verb in {"open", "close"}:
            return self._turn(name, to_open=verb == "open")
        return {"go": self._go, "take": self._take, "examine": self._examine}[verb](name)

    def _go(self, name: str) -> tuple[str, bool]:
        if name == self.adventure.rooms[self.room]:
            return f"You are already in the {name}.", False
        for room in self._exits():
            if name == self.adventure.rooms[room]:
                self.room = room
                self._see()
                return self.describe(), True
        return f"You cannot go to the {_short(name)} from here.", False

    def _turn(self, name: str, *, to_open: bool) -> tuple[str, bool]:
        place = self._place(name)
        if place is None:
            return self._no_place(name, f"The {_short(name)} cannot be opened or closed.")
        if not self.adventure.places[place].container:
            return f"The {name} cannot be opened or closed.", False
        if self.open[place] == to_open:
            return f"The {name} is already {'open' if to_open else 'closed'}.", False
        self.open[place] = to_open
        self._see()
        return (f"You open it. {self._contents(place)}" if to_open else f"You close the {name}."), True

    def _take(self, name: str) -> tuple[str, bool]:
        if self._place(name) is not None:
            return f"You cannot carry the {name}.", False
        thing = self._thing(name)
        if thing is None:
            return f"You see no {_short(name)} here.", False
        if self.where[thing] == CARRIED:
            return f"You already carry the {name}.", False
        if self.hands and len(self.carried()) >= self.hands:
            return f"You can carry only {count_of(self.hands, 'thing')} at a time. {self._load()}", False
        self.where[thing] = CARRIED
        return f"You have the {name} now. {self._load()}", True

    def _put(self, rest: list[str]) -> tuple[str, bool]:
        cut = next((number for number, word in enumerate(rest) if number and word in _PREPOSITIONS), len(rest) - 1)
        name, target = " ".join(rest[:cut]), " ".join(rest[cut + 1 :])
        if not name or not target:
            return "Say also where, in or on what.", False
        thing, place = self._thing(name), self._place(target)
        if thing is None or self.where[thing] != CARRIED:
            return f"You do not carry a thing called {_short(name)}.", False
        if place is None:
            return self._no_place(target, f"Nothing can lie in or on the {_short(target)}.")
        if not self.open[place]:
            return f"The {target} is closed.", False
        self.where[thing] = place
        return f"The {name} is now {self._in(place)} the {target}.", True

    def _examine(self, name: str) -> tuple[str, bool]:
        place = self._place(name)
        if place is not None:
            return self._contents(place), True
        if name == self.adventure.rooms[self.room]:
            return self.describe(), True
        thing = self._thing(name)
        if thing is None:
            return f"You see no {_short(name)} here.", False
        lies = self.where[thing]
        return (
            f"You carry the {name}."
            if lies == CARRIED
            else f"The {name} is {self._in(lies)} the {self.adventure.places[lies].name}."
        ), True

    def _place(self, name: str) -> int | None:
        """Returns the place of the player's room with a name."""
        return next((place for place in self.here() if self.adventure.places[place].name == name), None)

    def _thing(self, name: str) -> int | None:
        """Returns the thing with a name, if it is carried or can be seen."""
        thing = self.names.index(name) if name in self.names else None
        if thing is None or self.where[thing] == CARRIED:
            return thing
        return thing if self.where[thing] in self.here() and self.open[self.where[thing]] else None

    def _no_place(self, name: str, otherwise: str) -> tuple[str, bool]:
        return (f"You see no {_short(name)} here." if self._thing(name) is None else otherwise), False


def _short(said: str) -> str:
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."


@functools.lru_cache(maxsize=512)
def _places_of(adventure: Adventure) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(number for number, place in enumerate(adventure.places) if place.room == room)
        for room in range(len(adventure.rooms))
    )
