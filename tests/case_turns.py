"""Turns of a Paprika group of cases with its scripted world and judge, for the tests of both groups."""

from dfc.games.game import Verdict
from dfc.games.paprika.world import AGENT
from dfc.games.rng import GameRng


def random_agent(game, _seat, rng):
    actions = game.legal_actions()
    return actions[rng.randrange(len(actions))]


class CaseTurns:
    """Games of one kind, whose simulators are those of its bots."""

    def __init__(self, kind, bots, task):
        self.kind, self.bots, self.task = kind, bots, task

    def started(self, task=None, **options):
        game = self.kind(**options)
        game.reset(self.task if task is None else task)
        return game

    def simulator_reply(self, game):
        return self.bots.simulators[game.role(game.to_move)](game, game.to_move, GameRng(0))

    def turn(self, game, message):
        """One message of the agent and the answers of the simulators; what the world said."""
        assert game.step(message) is Verdict.PLAYED
        said = self.simulator_reply(game)
        assert game.step(said) is Verdict.PLAYED
        assert game.step(self.simulator_reply(game)) is Verdict.PLAYED
        return said

    def played(self, task, agent, seed=0, **options):
        game = self.started(task, **options)
        rng = GameRng(seed)
        while not game.over:
            reply = agent(game, AGENT, rng) if game.to_move == AGENT else self.simulator_reply(game)
            assert game.step(reply) is Verdict.PLAYED
        return game
