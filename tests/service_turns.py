"""Turns of customer service with the scripted customer and judge, for its tests."""

from dfc.games.bots.customer_service import STRATEGIES
from dfc.games.game import Verdict
from dfc.games.paprika.customer_service import CustomerService
from dfc.games.paprika.world import AGENT
from dfc.games.rng import GameRng

(FOUND,) = STRATEGIES
PHONE = 0  # task of the phone that does not charge: lint packed in the socket


def started(task=PHONE, **options):
    game = CustomerService(**options)
    game.reset(task)
    return game


def simulator_reply(game):
    return FOUND.simulators[game.role(game.to_move)](game, game.to_move, GameRng(0))


def random_agent(game, _seat, rng):
    actions = game.legal_actions()
    return actions[rng.randrange(len(actions))]


def turn(game, message):
    """One message of the agent and the answers of the simulators; what the customer said."""
    assert game.step(message) is Verdict.PLAYED
    said = simulator_reply(game)
    assert game.step(said) is Verdict.PLAYED
    assert game.step(simulator_reply(game)) is Verdict.PLAYED
    return said


def played(task, agent, seed=0, **options):
    game = started(task, **options)
    rng = GameRng(seed)
    while not game.over:
        reply = agent(game, AGENT, rng) if game.to_move == AGENT else simulator_reply(game)
        assert game.step(reply) is Verdict.PLAYED
    return game
