"""Deals of Simple Negotiation, for its tests."""

import functools

import game_turns

from dfc.games.textarena.simple_negotiation import (
    SimpleNegotiation,
)

OFFER = "[Offer: 3 Sheep, 2 Ore -> 5 Brick]"
started = functools.partial(game_turns.started, SimpleNegotiation)


def dealt(stock=((9,) * 5, (9,) * 5), values=((5, 8, 12, 20, 32), (6, 12, 18, 30, 40)), **options):
    """A game with a known deal."""
    game = started(**options)
    data = game.to_json()
    data["state"] |= {"stock": [list(units) for units in stock], "values": [list(worth) for worth in values]}
    game.from_json(data)
    return game
