"""Maps of rooms on a grid: passages lead north, south, east or west; drawn by chance, with names and descriptions.

A map is connected, and its rooms have different names. What is worth a step on it (`useful_moves`) is what a player can
know: the rooms it has entered and the passages that it saw there.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

from dfc.games.rng import GameRng

STEPS: Mapping[str, tuple[int, int]] = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
BACK: Mapping[str, str] = {"north": "south", "south": "north", "east": "west", "west": "east"}
_FILE = pathlib.Path(__file__).parent / "data" / "rooms.json"

Cell = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class RoomMap:
    """A map; rooms are numbers.

    Attributes:
      names: of the rooms.
      exits: by room, direction -> room behind that passage, in the order of `STEPS`.
      start: where the player begins.
      target: the room to be found, or -1.
    """

    names: tuple[str, ...]
    exits: tuple[Mapping[str, int], ...]
    start: int
    target: int = -1

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON-ready data, which `from_json` inverts."""
        exits = [dict(passages) for passages in self.exits]
        return {"names": list(self.names), "exits": exits, "start": self.start, "target": self.target}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Returns the map of `to_json`'s data."""
        return cls(tuple(data["names"]), tuple(map(dict, data["exits"])), data["start"], data["target"])


@functools.cache
def descriptions() -> Mapping[str, str]:
    """Returns what every room looks like, by name."""
    found: dict[str, str] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def draw(rng: GameRng, rooms: int, cycles: int = 0) -> tuple[RoomMap, tuple[tuple[int, ...], ...]] | None:
    """Draws a map, and what it has in common with maps of the same passages seen from the same start.

    A tree grows from a cell: again and again a room is added beside one of its rooms. Then `cycles` passages are added
    between neighbours that have none. The start is any room.

    Returns:
      The map without a target, and its passages relative to the start; None where there was no place for the cycles.
    """
    cells: list[Cell] = [(0, 0)]
    passages: set[tuple[int, int]] = set()
    directions = tuple(STEPS.values())
    while len(cells) < rooms:
        beside = rng.randrange(len(cells))
        step = directions[rng.randrange(len(directions))]
        cell = (cells[beside][0] + step[0], cells[beside][1] + step[1])
        if cell not in cells:
            passages.add((beside, len(cells)))
            cells.append(cell)
    for _ in range(cycles):
        closed = [
            (a, b)
            for a in range(rooms)
            for b in range(a + 1, rooms)
            if _adjacent(cells[a], cells[b]) and (a, b) not in passages
        ]
        if not closed:
            return None
        passages.add(closed[rng.randrange(len(closed))])
    start = rng.randrange(rooms)
    known = list(descriptions())
    names = tuple(known.pop(rng.randrange(len(known))) for _ in range(rooms))
    x, y = cells[start]
    seen = {
        tuple(sorted(((cells[a][0] - x, cells[a][1] - y), (cells[b][0] - x, cells[b][1] - y)))) for a, b in passages
    }
    shape = tuple(sorted((*first, *second) for first, second in seen))
    return RoomMap(names, tuple(_exits(room, cells, passages) for room in range(rooms)), start), shape


def _adjacent(first: Cell, second: Cell) -> bool:
    return abs(first[0] - second[0]) + abs(first[1] - second[1]) == 1


def _exits(room: int, cells: Sequence[Cell], passages: set[tuple[int, int]]) -> dict[str, int]:
    x, y = cells[room]
    behind = {d: cells.index(cell) for d, (dx, dy) in STEPS.items() if (cell := (x + dx, y + dy)) in cells}
    return {d: other for d, other in behind.items() if (min(room, other), max(room, other)) in passages}


def distance(found: RoomMap, first: int, second: int) -> int:
    """Returns the number of steps of a shortest walk between two rooms."""
    reached, steps = {first}, 0
    while second not in reached:
        reached |= {room for known in reached for room in found.exits[known].values()}
        steps += 1
    return steps


def useful_moves(found: RoomMap, entered: frozenset[int], here: int) -> frozenset[int]:
    """Returns the rooms that a useful step leads to: one with which a shortest walk through all that is left can begin.

    What is left are the rooms behind passages of entered rooms that were not entered yet; walks take passages that were
    seen from an entered room. Nothing is useful once there is no such room. The rooms `entered` so far have `here`,
    where the player is, among them.
    """
    left = frozenset(room for known in entered for room in found.exits[known].values()) - entered
    if not left:
        return frozenset()
    # Walks of one more step at a time: (room, rooms left) -> the first steps with which it can be reached.
    walks: dict[tuple[int, frozenset[int]], set[int]] = {}
    for room in found.exits[here].values():
        walks.setdefault((room, left - {room}), set()).add(room)
    reached = set(walks)
    while not any(not still for _, still in walks):
        longer: dict[tuple[int, frozenset[int]], set[int]] = {}
        for (room, still), firsts in walks.items():
            for behind in found.exits[room].values():
                state = (behind, still - {behind})
                if (room in entered or behind in entered) and state not in reached:
                    longer.setdefault(state, set()).update(firsts)
        reached |= set(longer)
        walks = longer
    return frozenset(first for (_, still), firsts in walks.items() if not still for first in firsts)
