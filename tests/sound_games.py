"""Two small games that keep every property of the protocol, for the tests of the check."""

# ruff: noqa: ARG002 (the signatures of the hooks are the protocol's)

from dfc.games.game import Game, Outcome
from dfc.games.parsing import read_number


class Countdown(Game):
    """Take one or two of a random number of stones; whoever takes the last one wins."""

    seats = 2
    start = "random"
    grammar = "[1]"
    max_game_length = 12

    def __init__(self, **common):
        super().__init__(**common)
        self.stones = [0]

    def _begin(self):
        self.stones = [5 + self.rng.randrange(8)]
        self._tell_all("The stones lie ready.")
        return 0

    def _rules(self, seat):
        return f"Countdown. You are Player {seat}. Reply with one or two, for example [1]."

    def _read(self, action):
        number = read_number(action[1:-1])
        return None if number is None else f"[{number}]"

    def _objection(self, action):
        return None if action in self.legal_actions() else "So many cannot be taken. Try again."

    def _play(self, action):
        self.stones[0] -= int(action[1:-1])
        self._tell(1 - self.to_move, f"Opponent took {action}.")
        return 1 - self.to_move if self.stones[0] else self._won_by(self.to_move)

    def legal_actions(self):
        return [] if self.to_move is None else [f"[{n}]" for n in (1, 2) if n <= self.stones[0]]

    def _state(self):
        return {"stones": list(self.stones)}

    def _restore(self, state):
        self.stones = list(state["stones"])


class Answered(Countdown):
    """The same alone, and a world that says something after every take; an empty reply of it is of no use."""

    seats = 1
    simulators = ("world",)

    def _rules(self, seat):
        return "Say something." if seat else "Countdown. Reply with one or two, for example [1]."

    def _play(self, action):
        self.stones[0] -= int(action[1:-1])
        self._tell(1, f"The player took {action}.")
        return 1

    def legal_actions(self):
        return super().legal_actions() if self.to_move == 0 else []

    def _answered(self, seat, reply):
        if not reply:
            return "Say something."
        self._tell(0, "Go on.")
        return 0 if self.stones[0] else (Outcome.WIN,)


class Talker:
    def act(self, game, rng):
        return "<think>What to say?</think> Well done.\n\nVery  well."
