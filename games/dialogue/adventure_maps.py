"""Draws adventures for the text adventure: rooms, what stands in them, what lies where, and what is to be done."""

import functools
from collections.abc import Mapping, Sequence
from typing import TypeVar

from dfc.games.dialogue.adventure_world import Adventure, Difficulty, Place, Vocabulary, data
from dfc.games.rng import GameRng, derive_seed
from dfc.games.task import DistinctTasks, distinct_tasks

DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "hard")
GOALS = 3
_ROOMS = {"easy": 4, "hard": 6}
_OTHERS = {"easy": 4, "hard": 6}  # things that no goal names
_INVENTED_VERBS = 1
_HALL = "hallway"
_MOST_EXITS = 4
_T = TypeVar("_T")


def _drawn(items: Sequence[_T], number: int, rng: GameRng) -> list[_T]:
    """Returns different items by chance, in the order in which they are drawn."""
    left = list(items)
    return [left.pop(rng.randrange(len(left))) for _ in range(number)]


def _joined(rooms: int, extra: bool, rng: GameRng) -> list[set[int]]:
    """Returns for each room those beside it: a random tree, with `extra` one more way where there is room for it."""
    exits: list[set[int]] = [set() for _ in range(rooms)]
    for room in range(1, rooms):
        free = [other for other in range(room) if len(exits[other]) < _MOST_EXITS]
        exits[room].add(free[rng.randrange(len(free))])
        for other in exits[room]:
            exits[other].add(room)
    apart = [(a, b) for a in range(rooms) for b in range(a) if b not in exits[a] and a != b]
    if extra and apart:
        first, second = apart[rng.randrange(len(apart))]
        exits[first].add(second)
        exits[second].add(first)
    return exits


def draw(difficulty: Difficulty, rng: GameRng) -> Adventure:
    """Returns an adventure.

    Easy: four rooms, and three things that can be seen are to be put on one and the same place, on which nothing of
    them lies. Hard: six rooms; the three things lie in closed containers and are to be put in or on three other places,
    at least one of them a closed container.
    """
    known: Mapping[str, Mapping[str, list[str]]] = data()["rooms"]
    rooms = [_HALL, *_drawn([room for room in known if room != _HALL], _ROOMS[difficulty] - 1, rng)]
    exits = _joined(len(rooms), difficulty == "hard", rng)
    places: list[Place] = []
    for number, room in enumerate(rooms):
        places += [Place(name, number, container=False, open=True) for name in known[room]["supports"]]
        for name in known[room]["containers"]:
            is_open = difficulty == "easy" and rng.randrange(2) == 0
            places.append(Place(name, number, container=True, open=is_open))
    things = _drawn(list(data()["items"]), GOALS + _OTHERS[difficulty], rng)
    closed = [number for number, place in enumerate(places) if not place.open]
    visible = [number for number, place in enumerate(places) if place.open]
    if difficulty == "easy":
        supports = [number for number in visible if not places[number].container]
        targets = _drawn(supports, 1, rng) * GOALS
        sources = [place for place in visible if place not in targets]
        lying = [sources[rng.randrange(len(sources))] for _ in range(GOALS)]
    else:
        first = _drawn(closed, 1, rng)
        others = [place for place in range(len(places)) if place not in first]
        targets = [*first, *_drawn(others, GOALS - 1, rng)]
        sources = [place for place in closed if place not in targets]
        lying = [sources[rng.randrange(len(sources))] for _ in range(GOALS)]
    lying += [rng.randrange(len(places)) for _ in range(_OTHERS[difficulty])]
    order = _drawn(range(GOALS), GOALS, rng)
    return Adventure(
        rooms=tuple(rooms),
        exits=tuple(tuple(sorted(beside)) for beside in exits),
        start=rng.randrange(len(rooms)),
        places=tuple(places),
        things=tuple(things),
        lying=tuple(lying),
        goals=tuple((thing, targets[thing]) for thing in order),
    )


@functools.cache
def adventures(group: str, sizes: tuple[tuple[str, int], ...]) -> DistinctTasks[Adventure]:
    """Returns the adventures of all splits, easy and hard in turn; no two have the same map and goals.

    `group` is a part of the streams' seeds; `sizes` are pairs of a split and how many it has.
    """

    def sample(rng: GameRng, split: str, number: int) -> tuple[Adventure, object]:
        del split
        found = draw(DIFFICULTIES[number % len(DIFFICULTIES)], rng)
        goals = frozenset((found.things[thing], found.places[place].name) for thing, place in found.goals)
        ways = {
            frozenset((name, found.rooms[b])) for name, to in zip(found.rooms, found.exits, strict=True) for b in to
        }
        return found, (goals, frozenset(ways))

    return distinct_tasks(group, dict(sizes), sample)


def invented(adventure: Adventure, number: int) -> Vocabulary:
    """Returns invented words for the three things of the goals and for one verb, chosen by the number of the task."""
    rng = GameRng(derive_seed("invented words", number, *adventure.things, *adventure.rooms))
    meanings = data()["items"], data()["verbs"]
    things = [adventure.things[thing] for thing, _ in adventure.goals]
    verbs = _drawn(list(meanings[1]), _INVENTED_VERBS, rng)
    said = _drawn(data()["invented"], GOALS + _INVENTED_VERBS, rng)
    known = [meanings[0][thing] for thing in things] + [meanings[1][verb] for verb in verbs]
    return Vocabulary(
        things=dict(zip(things, said[:GOALS], strict=True)),
        verbs=dict(zip(verbs, said[GOALS:], strict=True)),
        meanings=dict(zip(said, known, strict=True)),
    )
