"""Turns of customer service with the scripted customer and judge, for its tests."""

from dfc.games.chance import Chance
from dfc.games.game import Verdict
from dfc.games.paprika.customer_service import CustomerService
from dfc.games.paprika.world import AGENT
from dfc.games.strategies.cases import STRATEGIES

FOUND = next(found for found in STRATEGIES if found.kind is CustomerService)
PHONE = 0  # task of the phone that does not charge: lint packed in the socket


def started(task=PHONE, **options):
    game = CustomerService(**options)
    game.reset(task)
    return game


def staff(game):
    return FOUND.staff[game.role(game.to_move)](game, game.to_move, Chance(0))


def random_agent(game, _seat, chance):
    actions = game.legal_actions()
    return actions[chance.below(len(actions))]


def turn(game, message):
    """One message of the agent and the answers of scripted staff; what the customer said."""
    assert game.step(message) is Verdict.PLAYED
    said = staff(game)
    assert game.step(said) is Verdict.PLAYED
    assert game.step(staff(game)) is Verdict.PLAYED
    return said


def played(task, agent, seed=0, **options):
    game = started(task, **options)
    chance = Chance(seed)
    while not game.over:
        reply = agent(game, AGENT, chance) if game.to_move == AGENT else staff(game)
        assert game.step(reply) is Verdict.PLAYED
    return game
