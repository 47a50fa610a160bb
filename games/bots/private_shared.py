"""Bots for private and shared: both answer what is asked; they differ in what they remember of it."""

from dfc.games.bots.bot import GameBots
from dfc.games.dialogue.private_shared import ANSWER, ASIDE, PrivateShared
from dfc.games.rng import GameRng


def _simple(game: PrivateShared, seat: int, rng: GameRng) -> str:
    """Remembers of the conversation only what it answered last."""
    del rng
    return _reply(game, seat, game.aside and game.probe[0] == len(game.filled) - 1)


def _strong(game: PrivateShared, seat: int, rng: GameRng) -> str:
    """Remembers all that it was asked."""
    del rng
    return _reply(game, seat, game.aside and game.shared_from[game.probe[0]] < len(game.filled))


def _reply(game: PrivateShared, seat: int, known: bool) -> str:
    del seat
    if game.aside:
        return f"{ASIDE} {'yes' if known else 'no'}"
    return f"{ANSWER} {game.form.values[len(game.filled)]}"


BOTS = (GameBots(PrivateShared, _simple, _strong),)
