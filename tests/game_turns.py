"""Games that have just begun and turns of them, for the tests of games."""

from dfc.games import registry
from dfc.games.game import Verdict


def started(kind, seed=0, **options):
    """A game of this class or id after its reset."""
    game = registry.make(kind, **options) if isinstance(kind, str) else kind(**options)
    game.reset(seed)
    return game


def said(game, *replies):
    """The game after these replies, whoever gives them; each must be played at once."""
    for reply in replies:
        assert game.step(reply) is Verdict.PLAYED, (reply, game.observation(game.to_move))
    return game


def played(game, *replies):
    """The verdict on the last of these replies."""
    return [game.step(reply) for reply in replies][-1]


def pick(rng, items):
    """One of these, from the stream of a game."""
    return items[rng.randrange(len(items))]
