"""Bots for map navigation. They know what they were told: the rooms entered, and the passages seen there."""

import json

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.dialogue.maps import distance, useful_moves
from dfc.games.dialogue.text_map import DONE, TextMap, TextMapGraph, TextMapRoom
from dfc.games.rng import GameRng


def _simple(game: TextMap, seat: int, rng: GameRng) -> str:
    """Walks at random, into a room beside this one that it has not entered where there is one; ends as `_strong`."""
    del seat
    if _finished(game) or game.round == game.rounds:
        return _reply(game, DONE)
    exits = game.map.exits[game.here]
    fresh = [direction for direction, room in exits.items() if room not in game.path]
    return _reply(game, f"GO: {any_of(fresh or list(exits), rng)}")


def _strong(game: TextMap, seat: int, rng: GameRng) -> str:
    """Takes a useful step, and says so when there is none, or in the last turn; goes back to a room it had left."""
    del seat
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


BOTS = tuple(GameBots(kind, _simple, _strong) for kind in (TextMap, TextMapRoom, TextMapGraph))
