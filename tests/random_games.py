"""Random play of every registered game, for the tests of the protocol."""

from dfc.games import registry, scripted
from dfc.games.game import Verdict
from dfc.games.rng import GameRng

GAME_IDS = registry.own_game_ids()
TWO_SEATS = [game_id for game_id in GAME_IDS if registry.kind(game_id).seats == 2]
WITH_SIMULATORS = [game_id for game_id in GAME_IDS if registry.kind(game_id).simulators]


def reply_of(game, rng):
    """What the seat to move says: a player one of the listed actions, a simulator what its script says."""
    if game.to_move < game.seats:
        return rng.choice(game.legal_actions())
    return scripted.simulators(game)[game.role(game.to_move)].act(game, GameRng(rng.getrandbits(32)))


def everything_seen(game):
    return (
        game.to_move,
        game.outcomes,
        game.legal_actions(),
        [game.observation(seat) for seat in range(game.seats + len(game.simulators))],
        game.measures(),
        game.to_json(),
    )


def play_random(game, rng):
    """Plays to the end and yields what is seen before every reply and at the end."""
    yield everything_seen(game)
    while not game.over:
        assert game.step(reply_of(game, rng)) is Verdict.PLAYED
        yield everything_seen(game)
