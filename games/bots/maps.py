"""Bots for the adventure game and for map navigation.

They know what they were told: the map as far as rooms were entered, the passages seen there, and in the adventure game
the containers that were opened.
"""

import json
from collections.abc import Collection

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.dialogue.adventure import AdventureGame
from dfc.games.dialogue.adventure_world import CARRIED, World
from dfc.games.dialogue.maps import distance, useful_moves
from dfc.games.dialogue.text_map import DONE, TextMap, TextMapGraph, TextMapRoom
from dfc.games.rng import GameRng

# ---- Adventure --------------------------------------------------------------------------------------------------

_MISTAKES = 4  # the simple one does anything in one of so many turns
_PATIENCE = 35  # turns after which the simple one gives up


def _simple_adventure(game: AdventureGame, _seat: int, rng: GameRng) -> str:
    """Takes and puts what is at hand, else opens or goes anywhere; errs now and then, and gives up after a while."""
    world = game.world
    if world.reached() == len(world.adventure.goals) or game.round > min(_PATIENCE, game.rounds - 1):
        return game.action(world.say("done"))
    feasible = world.feasible()
    if rng.randrange(_MISTAKES) == 0:
        return game.action(any_of([command for command in feasible if command != world.say("done")], rng))
    open_ones = [world.say("open", place=place) for place in world.here() if not world.open[place]]
    ways = [world.say("go", place=room) for room in world.adventure.exits[world.room]]
    return game.action(_at_hand(world) or any_of([*open_ones, *ways], rng))


def _strong_adventure(game: AdventureGame, _seat: int, _chance: GameRng) -> str:
    """Does what can be done here, then goes to the nearest room where something is known to be done, or to a new one.

    Containers are opened while something is still to be found.
    """
    world = game.world
    goals = world.adventure.goals
    if world.reached() == len(goals) or game.round == game.rounds:
        return game.action(world.say("done"))
    lost = any(world.where[thing] != CARRIED and not world.seen[world.where[thing]] for thing, _ in goals)
    unopened = [place for place in world.here() if not world.seen[place]] if lost else []
    command = _at_hand(world) or (world.say("open", place=unopened[0]) if unopened else "")
    if not command:
        errands = _errands(world) | (_with_unopened(world) if lost else set())
        unknown = {room for room, visited in enumerate(world.visited) if not visited}
        way = next((step for step in (_way(world, rooms) for rooms in (errands, unknown)) if step is not None), None)
        command = world.say("go", place=way) if way is not None else world.say("look")
    return game.action(command, plan=world.say("done"))


def _at_hand(world: World) -> str | None:
    """Returns a command that brings a goal nearer without leaving the room: to put something, open for that, or take.

    What lies where it belongs is left there.
    """
    here = world.here()
    full = world.hands and len(world.carried()) >= world.hands
    for thing, target in world.adventure.goals:
        lies = world.where[thing]
        if lies == CARRIED and target in here:
            return world.say("put", thing, target) if world.open[target] else world.say("open", place=target)
    for thing, target in world.adventure.goals:
        lies = world.where[thing]
        if lies in here and lies != target and world.seen[lies] and not full:
            return world.say("take", thing) if world.open[lies] else world.say("open", place=lies)
    if full and len(wanted := {thing for thing, _ in world.adventure.goals} & {*world.carried()}) < world.hands:
        return _laid_down(world, wanted)
    return None


def _laid_down(world: World, wanted: Collection[int]) -> str | None:
    """Returns a command that lays down something that no goal needs."""
    idle = [thing for thing in world.carried() if thing not in wanted]
    free = [place for place in world.here() if world.open[place]]
    return world.say("put", idle[0], free[0]) if idle and free else None


def _errands(world: World) -> set[int]:
    """Returns the visited rooms where something carried belongs, or where something lies that belongs elsewhere."""
    full = world.hands and len(world.carried()) >= world.hands
    rooms = set()
    for thing, target in world.adventure.goals:
        lies, goal = world.where[thing], world.adventure.places[target].room
        if lies == CARRIED:
            rooms |= {goal} if world.visited[goal] else set()
        elif lies != target and world.seen[lies] and not full:
            rooms.add(world.adventure.places[lies].room)
    return rooms


def _with_unopened(world: World) -> set[int]:
    """Returns the visited rooms with a container that was never seen open."""
    places = world.adventure.places
    return {
        place.room for place, seen in zip(places, world.seen, strict=True) if not seen and world.visited[place.room]
    }


def _way(world: World, wanted: Collection[int]) -> int | None:
    """Returns the next room on a shortest way to a wanted one through visited rooms; None if none can be reached."""
    first_step: dict[int, int | None] = {world.room: None}
    queue = [world.room]
    for room in queue:
        if room != world.room and room in wanted:
            return first_step[room]
        for beside in world.adventure.exits[room] if world.visited[room] else ():
            if beside not in first_step:
                first_step[beside] = beside if room == world.room else first_step[room]
                queue.append(beside)
    return None


# ---- Map navigation ---------------------------------------------------------------------------------------------


def _simple_text_map(game: TextMap, _seat: int, rng: GameRng) -> str:
    """Walks at random, if it can into a room beside this one that it has not entered; ends as the strong one."""
    if _finished(game) or game.round == game.rounds:
        return _reply(game, DONE)
    exits = game.map.exits[game.here]
    fresh = [direction for direction, room in exits.items() if room not in game.path]
    return _reply(game, f"GO: {any_of(fresh or list(exits), rng)}")


def _strong_text_map(game: TextMap, _seat: int, rng: GameRng) -> str:
    """Takes a useful step, and says so when there is none, or in the last turn; goes back to a room it had left."""
    if _finished(game) or game.round == game.rounds:
        return _reply(game, DONE)
    useful = useful_moves(game.map, frozenset(game.path), game.here)
    exits = game.map.exits[game.here]
    if not useful:  # the room to be found was entered and left by whoever moved before
        nearest = min(distance(game.map, room, game.map.target) for room in exits.values())
        useful = frozenset(room for room in exits.values() if distance(game.map, room, game.map.target) == nearest)
    return _reply(game, f"GO: {any_of([way for way, room in exits.items() if room in useful], rng)}")


def _finished(game: TextMap) -> bool:
    """Returns whether there is nothing left to look for: the room to be found is here, or all rooms were entered."""
    if game.map.target >= 0:
        return game.here == game.map.target
    return not useful_moves(game.map, frozenset(game.path), game.here)


def _reply(game: TextMap, move: str) -> str:
    if isinstance(game, TextMapGraph):
        return json.dumps({"action": move, "graph": game.known_graph()})
    return move


BOTS = (
    GameBots(AdventureGame, _simple_adventure, _strong_adventure),
    *(GameBots(kind, _simple_text_map, _strong_text_map) for kind in (TextMap, TextMapRoom, TextMapGraph)),
)
