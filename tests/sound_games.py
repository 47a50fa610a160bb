"""Small games that keep every property of the protocol, for the tests of the check."""

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


class Partners(Game):
    """A team: seat 0 says a hidden number, seat 1 is asked aside what it expects, says it again; [3] breaks off."""

    seats = 2
    team = True
    player_roles = ("teller", "hearer")
    has_quality = True
    start = "random"
    grammar = "[1]"
    max_game_length = 4
    asides = 2

    def __init__(self, **common):
        super().__init__(**common)
        self.number, self.told, self.noted = 0, 0, []

    def _begin(self):
        self.number, self.told, self.noted = 1 + self.rng.randrange(2), 0, []
        self._tell(0, f"The number is {self.number}.")
        return 0

    def _rules(self, seat):
        return f"Partners. You are Player {seat}. Reply with a number, for example [1]."

    def _read(self, action):
        return action if action in ("[1]", "[2]", "[3]", "[4]") else None

    def _objection(self, action):
        return "Nobody has so many. Try again." if action == "[4]" else None

    def _play(self, action):
        if self.aside:
            self.noted.append(action)
        elif self.to_move == 0:
            self.told = int(action[1])
            self._tell(1, f"Partner says {action}.")
        elif action == "[3]":
            return self._abort("three is nobody's number", by=1)
        else:
            return self._team(Outcome.WIN if int(action[1]) == self.number else Outcome.LOSS)
        if len(self.noted) < self.asides:
            return self._ask_aside(1, f"What do you expect, {len(self.noted)}?")
        return 1

    def measures(self):
        if self.outcomes is None or self.abort_reason is not None or self.outcomes[0] is Outcome.TRUNCATED:
            return {}
        return {"quality": 100.0 if self.outcomes[0] is Outcome.WIN else 0.0}

    def legal_actions(self):
        return [] if self.to_move is None else ["[1]", "[2]", "[3]"]

    def _state(self):
        return {"number": self.number, "told": self.told, "noted": list(self.noted)}

    def _restore(self, state):
        self.number, self.told, self.noted = state["number"], state["told"], list(state["noted"])


class Unasked(Partners):
    """The same without asides."""

    asides = 0


class Patient(Unasked):
    """The same; whoever hears may be misread three times."""

    def allowances(self, seat):
        return (0, 3) if seat else (0, 0)


class Talker:
    def act(self, game, rng):
        return "<think>What to say?</think> Well done.\n\nVery  well."
