"""Turns of Twenty Questions and Guess My City with their scripted world and judge, for the tests of both."""

from dfc.games import scripted
from dfc.games.game import Verdict
from dfc.games.paprika.guess_my_city import GuessMyCity
from dfc.games.paprika.twenty_questions import TwentyQuestions
from dfc.games.paprika.world import AGENT
from dfc.games.rng import GameRng


class CandidateTurns:
    """Games of one kind, each by the name of its secret."""

    def __init__(self, kind):
        self.kind = kind
        self.simulators = scripted.simulators(kind())
        tasks = ((split, number, s.name) for split in kind.splits for number, s in enumerate(kind.scenarios(split)))
        self.where = {name: (split, number) for split, number, name in tasks}

    def holding(self, name, **options):
        split, task = self.where[name]
        game = self.kind(split=split, **options)
        game.reset(task)
        assert game.scenario.name == name
        return game

    def scenario_of(self, name):
        split, number = self.where[name]
        return self.kind.scenarios(split)[number]

    def answers(self, name, asked):
        """What world and judge say to one question; what the game says, and None, where it answers itself."""
        return self._asked(self.holding(name), asked)

    def replies(self, scenario, asked):
        """What is said to a question, as `answers` returns it, if that were the scenario."""
        game = self.kind()
        game.reset(0)
        game.scenario = scenario
        return self._asked(game, asked)

    def _asked(self, game, asked):
        assert game.step(asked) is Verdict.PLAYED
        if game.to_move == AGENT:
            return game.observation(AGENT), None
        world = self.simulators["world"].act(game, GameRng(0))
        assert game.step(world) is Verdict.PLAYED
        return world, self.simulators["judge"].act(game, GameRng(0))


TOPICS, CITIES = CandidateTurns(TwentyQuestions), CandidateTurns(GuessMyCity)
