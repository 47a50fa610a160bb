"""Deals of Simple Negotiation, for its tests."""

from dfc.games.textarena.simple_negotiation import (
    SimpleNegotiation,
)

OFFER = "[Offer: 3 Sheep, 2 Ore -> 5 Brick]"


def started(seed=0, **options):
    game = SimpleNegotiation(**options)
    game.reset(seed)
    return game


def dealt(stock=((9,) * 5, (9,) * 5), values=((5, 8, 12, 20, 32), (6, 12, 18, 30, 40)), **options):
    """A game with a known deal."""
    game = started(**options)
    data = game.to_json()
    data["state"] |= {"stock": [list(units) for units in stock], "values": [list(worth) for worth in values]}
    game.from_json(data)
    return game
