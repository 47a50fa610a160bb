"""Map navigation: one player walks through rooms that it learns of step by step and says when it is done; clembench."""

import functools
import itertools
import json
import re
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Unpack

from dfc.games.dialogue.dialogue_game import DialogueGame
from dfc.games.dialogue.maps import BACK, STEPS, RoomMap, descriptions, distance, draw, useful_moves
from dfc.games.game import Common, Outcome
from dfc.games.parsing import spoken
from dfc.games.rng import GameRng
from dfc.games.task import DistinctTasks, distinct_tasks

DONE = "DONE"
_SPOKEN = re.compile(rf"go:\s*({'|'.join(STEPS)})|done", re.IGNORECASE | re.ASCII)
_LONGEST_GRAPH = 4_000  # characters of a reply with a graph that are read; longer ones cannot be read
_FENCED = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)
_SIZES = {"small": (4, 0), "medium": (6, 0), "large": (8, 0), "medium_cycle": (6, 1), "large_cycle": (8, 1)}
_EXAMPLE = json.dumps(
    {
        "action": "GO: south",
        "graph": {"nodes": ["Hall", "Tower"], "edges": {"north": [["Hall", "Tower"]], "south": []}},
    }
)
_DISTANCES = {"near": (1, 1), "middle": (2, 2), "far": (3, 7)}


class TextMap(DialogueGame):
    """Map navigation of one player.

    Rules: rooms lie on a grid, and passages lead from some to their neighbours. The player is told which room it is in,
    what it looks like, and where passages lead. It replies with a direction, or that it is done, which ends the game.
    Its aim is to enter every room in as few steps as possible, and to notice when it has.

    Quality: the harmonic mean of two shares in percent, 0 where one of them is 0.
      - Exploration: rooms entered, the first one included, of all rooms.
      - Efficiency: useful steps of all steps. A step is useful if a shortest walk through all rooms that are left can
        begin with it: rooms behind passages that were seen and that were not entered yet (`maps.useful_moves`). When
        every room was entered no step is useful, nor is one in a direction without a passage. Without any step it is 0.

    A player that says that it is done wins, unless quality is 0; it need not have entered all rooms. One that has not
    said so after `rounds` replies has the game broken off, without anybody's fault. A reply that is neither of the two
    breaks it off by the player's fault.

    Action: ``GO: north`` (or south, east, west) and ``DONE``, in any letter case and without a full stop, as there.
    `legal_actions` lists the passages and ``DONE``; other directions can be said, lead nowhere and cost a turn.

    Differs from clembench:
      - Maps of our own in three disjoint splits (no two have the same passages seen from the start), `experiment`: 4, 6
        or 8 rooms as a tree, 6 or 8 with one more passage. All rooms have different names, and each one a description.
      - Done without having entered every room is a failure in its default environment and for its scorer; here it is
        a success, paid by quality.
      - Its walks to compare with may not enter a room twice unless there is no other way; ours are shortest ones. So
        quality is higher here: the same 150 walks on its maps had a mean of 63.4 there and of 67.9 here.
      - The reply is the action and nothing else; there it may stand in other text. One with both is unreadable in both.
      - The limit of turns stands in the rules, and what does not lead anywhere counts as a step.

    Attributes:
      map: of the task; the player may know what it was told only.
      path: the start, and the room in which each step ended.
    """

    seats: ClassVar[int] = 1
    team: ClassVar[bool] = False
    evaluation_only: ClassVar[bool] = True
    turns_per_round: ClassVar[int] = 1
    player_roles: ClassVar[tuple[str, ...]] = ("explorer",)
    tags: ClassVar[tuple[str, ...]] = ("",)
    grammar: ClassVar[str] = "GO: north or DONE"
    splits: ClassVar[Mapping[str, int]] = {"train": 50, "validation": 30, "test": 50}
    experiments: ClassVar[tuple[str, ...]] = tuple(_SIZES)

    def __init__(
        self, *, split: str = "train", rounds: int = 20, instances: str = "", **common: Unpack[Common]
    ) -> None:
        super().__init__(split=split, rounds=rounds, instances=instances, **common)
        self.map = RoomMap((), (), 0)
        self.path: list[int] = []

    @classmethod
    @functools.cache
    def maps(cls) -> DistinctTasks[RoomMap]:
        """Returns the maps of all splits by task number; the experiments take turns."""
        return distinct_tasks(cls.__name__, cls.splits, cls._drawn_map)

    @classmethod
    def _drawn_map(cls, rng: GameRng, split: str, number: int) -> tuple[RoomMap, Hashable | None]:
        """Draws a map for a task, and what it must not have in common with another one; None there: draw again."""
        del split
        drawn = draw(rng, *_SIZES[cls.experiments[number % len(cls.experiments)]])
        return (RoomMap((), (), 0), None) if drawn is None else drawn

    def _experiment(self) -> str:
        """Returns the size of the map, or how far the room to be found is."""
        return self.experiments[self.task % len(self.experiments)]

    @property
    def here(self) -> int:
        """The room in which the player is."""
        return self.path[-1]

    def shares(self) -> tuple[float, float]:
        """Returns efficiency and exploration, from 0 to 1; see the class."""
        return _shares(self.map.names, tuple(tuple(e.items()) for e in self.map.exits), tuple(self.path))

    def measures(self) -> dict[str, float]:
        """Returns turns begun, and of a game that came to its end quality, efficiency and exploration, 0 to 100."""
        found = super().measures()
        if "quality" not in found:
            return found
        efficiency, exploration = self.shares()
        return {**found, "efficiency": 100.0 * efficiency, "exploration": 100.0 * exploration}

    # ---- the game -------------------------------------------------------------------------------------------------

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the task's number decides
        found = self._from_file()
        self.map = self.maps().of(self.split, self.task) if found is None else found.fields["map"]
        self.path = [self.map.start]
        self._tell(0, self._room())

    def _room(self) -> str:
        name, exits = self.map.names[self.here], tuple(self.map.exits[self.here])
        ways = f"Passages lead {', '.join(exits)}." if len(exits) > 1 else f"A passage leads {exits[0]}."
        return f"You are in this room: {name}. {descriptions().get(name, '')} {ways}".replace("  ", " ")

    def _task_text(self) -> str:
        return (
            "You explore a building whose rooms lie on a grid. Passages lead north, south, east or west, and every "
            "passage can be walked both ways. Enter every room at least once, with as few steps as you can, and say "
            "that you are done as soon as there is no room left that you have not entered."
        )

    def _form_text(self) -> str:
        return (
            "To walk through a passage reply with GO: and a direction; to end the exploration reply with DONE; and "
            "write nothing else, for example\nGO: north\nor\nDONE"
        )

    def _rules(self, seat: int) -> str:
        del seat
        limit = f"You have {self.rounds} replies; if none of them says that you are done, nothing counts."
        return f"{self._task_text()} {limit}\n{self._form_text()}"

    def _form(self) -> str:
        return self.grammar

    def _read(self, action: str) -> str | None:
        found = _SPOKEN.fullmatch(action)
        if found is None:
            return None
        return f"GO: {found[1].lower()}" if found[1] else DONE

    def _move(self, action: str) -> str:
        """Returns what a canonical action does: ``GO: north`` or ``DONE``."""
        return action

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        move = self._move(action)
        if move == DONE:
            return self._team(Outcome.WIN if self._quality() > 0.0 else Outcome.LOSS)
        direction = move.removeprefix("GO: ")
        behind = self.map.exits[self.here].get(direction)
        self.path.append(self.here if behind is None else behind)
        if not self._next_round():
            return self._abort(f"the player had not said {DONE} after {self.rounds} replies")
        self._tell(0, f"There is no passage that leads {direction}. {self._room()}" if behind is None else self._room())
        return 0

    def _moves(self) -> list[str]:
        return [*(f"GO: {direction}" for direction in self.map.exits[self.here]), DONE]

    def legal_actions(self) -> list[str]:
        """Returns the passages of the room, and that it is done; other directions cost a turn."""
        return [] if self.to_move is None else self._moves()

    def _quality(self) -> float:
        efficiency, exploration = self.shares()
        both = efficiency + exploration
        return 100.0 * 2.0 * efficiency * exploration / both if both else 0.0

    def _position(self) -> dict[str, Any]:
        return {"map": self.map.to_json(), "path": list(self.path)}

    def _set_position(self, position: dict[str, Any]) -> None:
        self.map = RoomMap.from_json(position["map"])
        self.path = list(position["path"])


@functools.lru_cache(maxsize=1024)
def _shares(
    names: tuple[str, ...], exits: tuple[tuple[tuple[str, int], ...], ...], path: tuple[int, ...]
) -> tuple[float, float]:
    """Returns efficiency and exploration of a path; a step that ends where it began led nowhere."""
    found = RoomMap(names, tuple(map(dict, exits)), path[0])
    entered, useful = frozenset(path[:1]), 0
    for before, after in itertools.pairwise(path):
        useful += after in useful_moves(found, entered, before)
        entered |= {after}
    return useful / max(1, len(path) - 1), len(entered) / len(names)


class TextMapRoom(TextMap):
    """Map navigation to a room whose name is given: the player has to be in it when it says that it is done.

    Rules and actions as `TextMap`. A player that says that it is done wins in that room, quality 100, and loses in any
    other one, quality 0; the length of the way does not matter. `experiment`: the room is one step away from the start
    (near), two (middle), or more (far); maps have 8 rooms.

    Differs from clembench: as `TextMap`; no two tasks have the same passages and the same room to be found.
    """

    splits: ClassVar[Mapping[str, int]] = {"train": 50, "validation": 30, "test": 30}
    experiments: ClassVar[tuple[str, ...]] = tuple(_DISTANCES)

    @classmethod
    def _drawn_map(cls, rng: GameRng, split: str, number: int) -> tuple[RoomMap, Hashable | None]:
        del split
        least, most = _DISTANCES[cls.experiments[number % len(cls.experiments)]]
        found, shape = draw(rng, *_SIZES["large"]) or (RoomMap((), (), 0), None)
        fitting = [room for room in range(len(found.names)) if least <= distance(found, found.start, room) <= most]
        if not fitting:
            return found, None
        target = fitting[rng.randrange(len(fitting))]
        # Which room it is on these passages: the way to it from the start.
        return RoomMap(found.names, found.exits, found.start, target), (shape, _way(found, target))

    def _task_text(self) -> str:
        return (
            "You explore a building whose rooms lie on a grid. Passages lead north, south, east or west, and every "
            f"passage can be walked both ways. Find this room: {self.map.names[self.map.target]}. Say that you are "
            "done when you are in it, and nowhere else."
        )

    def _quality(self) -> float:
        return 100.0 if self.here == self.map.target else 0.0


def _way(found: RoomMap, room: int) -> tuple[str, ...]:
    """Returns the directions of the shortest walk from the start to a room."""
    walks: dict[int, tuple[str, ...]] = {found.start: ()}
    while room not in walks:
        for known, way in list(walks.items()):
            for direction, behind in found.exits[known].items():
                walks.setdefault(behind, (*way, direction))
    return walks[room]


class TextMapGraph(TextMap):
    """Map navigation with a graph: beside each action the player draws what it knows of the map.

    Rules and quality as `TextMap`, trees of 4, 6 or 8 rooms (`experiment`: small, medium, large). A reply is an object
    in JSON, which may stand in a fence of three backquotes, with exactly two members: ``action``, as there, and
    ``graph``, an object with ``nodes``, a list of names of rooms, and ``edges``, an object that has for directions
    lists of pairs of names: the second room lies in that direction of the first one. Any other reply breaks the game
    off.

    ``graph_similarity`` in `measures`, from 0 to 100, is no part of the quality: the mean over all replies of the F1 of
    what was drawn, names of rooms and passages together. Right are the rooms entered before the reply, and the passages
    between two of them. A passage counts once, whichever of its ends comes first and however often it was drawn; names
    are compared in lower case.

    Action: ``{"action": "GO: north", "graph": {"nodes": ["Hall"], "edges": {"north": []}}}``. What `legal_actions`
    lists holds the right graph: random play has a similarity of 100.

    Differs from clembench: as `TextMap` (here 130 walks had a mean quality of 65.3 there and of 67.9 here); there the
    graph is compared with the whole map, by edit distance and without names, and one that cannot be read counts as
    empty.

    Attributes:
      similarities: of every graph so far, from 0 to 1.
    """

    grammar: ClassVar[str] = '{"action": "GO: north", "graph": {"nodes": [...], "edges": {"north": [[..., ...]]}}}'
    splits: ClassVar[Mapping[str, int]] = {"train": 50, "validation": 30, "test": 30}
    experiments: ClassVar[tuple[str, ...]] = ("small", "medium", "large")

    def __init__(
        self, *, split: str = "train", rounds: int = 20, instances: str = "", **common: Unpack[Common]
    ) -> None:
        super().__init__(split=split, rounds=rounds, instances=instances, **common)
        self.similarities: list[float] = []
        # What `_read` understood last, which `step` mostly plays next: canonical action, move, parts of the graph.
        self._understood: tuple[str, str, set[tuple[str, ...]]] = ("", "", set())

    def measures(self) -> dict[str, float]:
        """Returns those of `TextMap`, and the mean similarity of the graphs, from 0 to 100, once there is one."""
        if not self.similarities:
            return super().measures()
        return {**super().measures(), "graph_similarity": 100.0 * sum(self.similarities) / len(self.similarities)}

    def known_graph(self) -> dict[str, Any]:
        """Returns the graph of the rooms entered so far, each passage once."""
        entered = dict.fromkeys(self.path)
        names, edges = self.map.names, {direction: list[list[str]]() for direction in STEPS}
        for room in entered:
            for direction in ("north", "east"):  # the others are these from their other end
                behind = self.map.exits[room].get(direction)
                if behind in entered:
                    edges[direction].append([names[room], names[behind]])
        return {"nodes": [names[room] for room in entered], "edges": edges}

    def extract(self, reply: str) -> str | None:
        """Returns all that is said aloud, without a fence around it; None if that is nothing, or too long."""
        said = spoken(reply) or ""
        fenced = _FENCED.fullmatch(said) if said.startswith("`") and len(said) <= _LONGEST_GRAPH else None
        text = said if fenced is None else fenced[1]
        return text if 0 < len(text) <= _LONGEST_GRAPH else None

    def is_action(self, said: str) -> bool:
        """Returns whether a text is one reply in JSON and nothing else."""
        text = self.extract(said)
        return text is not None and self._read(text) is not None

    def _set_up(self, rng: GameRng) -> None:
        super()._set_up(rng)
        self.similarities = []

    def _form_text(self) -> str:
        return (
            "With each reply you draw the map as far as you know it: the rooms that you have entered, and the passages "
            "between them. Reply with an object in JSON and nothing else. Its member action is GO: and a direction, to "
            "walk through a passage, or DONE, to end the exploration. Its member graph has nodes, the names of the "
            "rooms, and edges, which has for each direction a list of pairs: the second room lies in that direction of "
            f"the first one. For example, if the Tower lies north of the Hall and you are in the Tower:\n"
            f"{_EXAMPLE}\n"
            f"The action at the end would be {json.dumps(DONE)}."
        )

    def _read(self, action: str) -> str | None:
        try:
            reply = json.loads(action)
        except (ValueError, RecursionError):
            return None
        if not isinstance(reply, dict) or set(reply) != {"action", "graph"} or not isinstance(reply["action"], str):
            return None
        move = super()._read(" ".join(reply["action"].split()))
        if move is None or not _is_graph(reply["graph"]):
            return None
        canonical = json.dumps({"action": move, "graph": reply["graph"]})
        self._understood = (canonical, move, _parts(reply["graph"]))
        return canonical

    def _move(self, action: str) -> str:
        if self._understood[0] != action:
            self._read(action)
        _, move, parts = self._understood
        self.similarities.append(_f1(parts, self._known_parts()))
        return move

    def _known_parts(self) -> set[tuple[str, ...]]:
        names, exits = [name.strip().lower() for name in self.map.names], self.map.exits
        entered = set(self.path)
        parts: set[tuple[str, ...]] = {(names[room],) for room in entered}
        for direction in ("north", "east"):
            for room in entered:
                behind = exits[room].get(direction)
                if behind in entered:
                    parts.add((names[room], direction, names[behind]))
        return parts

    def legal_actions(self) -> list[str]:
        """Returns the passages of the room, and that it is done, each with the right graph; any other graph counts."""
        if self.to_move is None:
            return []
        graph = json.dumps(self.known_graph())
        return [f'{{"action": "{move}", "graph": {graph}}}' for move in self._moves()]

    def _position(self) -> dict[str, Any]:
        return {**super()._position(), "similarities": list(self.similarities)}

    def _set_position(self, position: dict[str, Any]) -> None:
        super()._set_position(position)
        self.similarities = list(position["similarities"])


def _is_graph(found: object) -> bool:
    """Returns whether that is a graph: names in ``nodes``, and in ``edges`` lists of pairs of names by direction."""
    if not isinstance(found, dict) or set(found) != {"nodes", "edges"}:
        return False
    nodes, edges = found["nodes"], found["edges"]
    if not isinstance(nodes, list) or not isinstance(edges, dict) or not edges.keys() <= STEPS.keys():
        return False
    names = list(nodes)  # all that must be names; one loop is faster than one for each pair
    for pairs in edges.values():
        if not isinstance(pairs, list):
            return False
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2:
                return False
            names += pair
    return {*map(type, names)} <= {str}


def _parts(graph: Mapping[str, Any]) -> set[tuple[str, ...]]:
    """Returns rooms and passages of a graph, in lower case; those to the south and west from their other end."""
    parts: set[tuple[str, ...]] = {(name.strip().lower(),) for name in graph["nodes"]}
    for direction, pairs in graph["edges"].items():
        back = direction in ("south", "west")
        for first, second in pairs:
            one, other = first.strip().lower(), second.strip().lower()
            parts.add((other, BACK[direction], one) if back else (one, direction, other))
    return parts


def _f1(drawn: set[tuple[str, ...]], right: set[tuple[str, ...]]) -> float:
    return 2.0 * len(drawn & right) / (len(drawn) + len(right))
