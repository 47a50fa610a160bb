"""Games that each break one property of the protocol, for the tests of the check."""

# ruff: noqa: ARG002 (each game here breaks one rule and keeps the signatures of the hooks it overrides)

import random
import re
from typing import ClassVar

from sound_games import Answered, Countdown, Partners

from dfc.games.game import Game, Outcome
from dfc.games.parsing import read_number


def broken(name, parent=Countdown, **members):
    """A game that differs from its parent by these members."""
    return type(name, (parent,), members)


class ForgetfulNobody(Countdown):
    stateless_roles = frozenset({"judge"})


class LegalBeforeTheStart(Countdown):
    def legal_actions(self):
        return super().legal_actions() or ["[1]"]


class OptionWithoutDefault(Countdown):
    def __init__(self, *, size=None, **common):
        super().__init__(**common)


class OptionByPosition(Countdown):
    def __init__(self, size=3, **common):
        super().__init__(**common)


class NothingInCommon(Countdown):
    def __init__(self, **common):
        super().__init__()


class NoCommon(Countdown):
    def __init__(self):
        super().__init__()


class Endless(Countdown):
    def _play(self, action):
        super()._play(action)
        self.stones = [5]
        return 1 - self.to_move


class NothingLegal(Countdown):
    def legal_actions(self):
        return super().legal_actions() if self.actions_played < 2 else []


class NoSuchSeat(Countdown):
    def _play(self, action):
        result = super()._play(action)
        return result if isinstance(result, tuple) else 2


class Raises(Countdown):
    def _play(self, action):
        raise KeyError("stones")


class ListsTooFew(Countdown):
    def _objection(self, action):
        return None if int(action[1:-1]) <= min(2, self.stones[0]) else "So many cannot be taken. Try again."

    def legal_actions(self):
        found = super().legal_actions()
        return found[: 1 + self.actions_played % 2]


class ListsTooMany(Countdown):
    def _objection(self, action):
        return None if int(action[1:-1]) <= self.stones[0] else "So many cannot be taken. Try again."

    def legal_actions(self):
        return [] if self.to_move is None else ["[1]", "[2]"]


class ListsAtRandom(Countdown):
    def legal_actions(self):
        found = super().legal_actions()
        return found if self.rng.randrange(2) else found[::-1]


class OtherSpelling(Countdown):
    def _read(self, action):
        return super()._read(f"[{action[1:-1].strip('0') or '0'}]")

    def legal_actions(self):
        return [action.replace("[", "[0") for action in super().legal_actions()]

    def _objection(self, action):
        return None if action.replace("[", "[0") in self.legal_actions() else "So many cannot be taken. Try again."


class ObjectionWithNumber(Countdown):
    def _objection(self, action):
        return super()._objection(action) and f"Only {self.stones[0]} are left. Try again."


class ObjectionThatMoves(Countdown):
    def _objection(self, action):
        objection = super()._objection(action)
        self.stones[0] += objection is not None
        return objection


class ObjectionThatDraws(Countdown):
    def _objection(self, action):
        objection = super()._objection(action)
        if objection:
            self.rng.randrange(2)
        return objection


class ObjectionToldToBoth(Countdown):
    def _objection(self, action):
        objection = super()._objection(action)
        if objection:
            self._tell(1 - self.to_move, "Opponent erred.")
        return objection


class RestoresLess(Countdown):
    def _restore(self, state):
        self.stones = [min(state["stones"][0], 4)]


class ClonesLess(Countdown):
    def clone(self):
        twin = super().clone()
        twin.illegal_tries = [0, 0]
        twin._rules_pending = [False, False]
        return twin


class StateKept(Countdown):
    def _restore(self, state):
        self.stones = state["stones"]


class CloneShared(Countdown):
    def clone(self):
        twin = super().clone()
        twin._news = self._news
        return twin


class LeftOvers(Countdown):
    def _begin(self):
        self.played_before = getattr(self, "played_before", 0) + 1
        self._tell_all("Again." if self.played_before > 1 else "For the first time.")
        return super()._begin()


class GlobalChance(Countdown):
    def _begin(self):
        super()._begin()
        self.stones = [random.randint(5, 12)]
        return 0


class RandomInName(Countdown):
    def _begin(self):
        super()._begin()
        self.stones = [9]
        return 0


class Draws(Countdown):
    def _play(self, action):
        random.random()
        return super()._play(action)


class LookingChanges(Countdown):
    def observation(self, seat):
        self.rng.randrange(2)
        return super().observation(seat)


class RulesTwice(Countdown):
    def _play(self, action):
        self._rules_pending = [True, True]
        return super()._play(action)


class RulesForNobody(Countdown):
    def _rules(self, seat):
        return "Countdown. Reply with one or two, for example [1]."


class NotAscii(Countdown):
    def _rules(self, seat):
        return super()._rules(seat) + " \u2013 good luck"


class EmptyLine(Countdown):
    def _play(self, action):
        self._tell(1 - self.to_move, "")
        return super()._play(action)


class NamesPlayers(Countdown):
    def _play(self, action):
        self._tell(1 - self.to_move, f"Player {self.to_move} moves.")
        return super()._play(action)


class TellsAll(Countdown):
    def observation(self, seat):
        own = super().observation(seat)
        return own + "\nThe other was told more." if self.history else own


class Forgets(Countdown):
    def _replied(self, seat, said):
        super()._replied(seat, said)
        self._past[seat] = self._past[seat][-3:]


class FirstOrAny(Countdown):
    def extract(self, reply):
        return next(iter(re.findall(r"\[\d+\]", reply)), "[1]")


class ReadsAnything(Countdown):
    def _read(self, action):
        return super()._read(action) or "[1]"


class Impatient(Countdown):
    def extract(self, reply):
        if not reply and self.malformed_allowance:
            self.malformed_allowance = 0
        return super().extract(reply)


class Backtracks(Countdown):
    def _read(self, action):
        match = re.fullmatch(r"\[\s*,?\s*([0-9]+)\]", action)
        return match and super()._read(f"[{match[1]}]")


class TellsTheReply(Countdown):
    def step(self, reply):
        seat = self.to_move
        verdict = super().step(reply)
        self._tell(1 - seat, f"Opponent: {reply}")
        return verdict


class ConvertsHuge(Countdown):
    def _read(self, action):
        return f"[{int(action[1:-1])}]" if action[1:-1].isdecimal() and action.isascii() else None


class TakesEmptyAnswers(Answered):
    def _answered(self, seat, reply):
        return super()._answered(seat, reply or "Well.")


class RefusalMoves(Answered):
    def _answered(self, seat, reply):
        self.stones[0] += not reply
        return super()._answered(seat, reply)


class OutcomesAsTexts(Countdown):
    def _won_by(self, seat):
        return tuple("win" if s == seat else "loss" for s in range(2))


class MovesNobody(Countdown):
    def _play(self, action):
        super()._play(action)


class OnTheClass(Countdown):
    pile: ClassVar[list[int]] = []

    def __init__(self, **common):
        Game.__init__(self, **common)

    @property
    def stones(self):
        return self.pile

    @stones.setter
    def stones(self, stones):
        self.pile[:] = stones


class PairAsKey(Countdown):
    def _state(self):
        return super()._state() | {"board": {(0, 1): "x"}}


class SecondSpelling(Countdown):
    def _read(self, action):
        return action if read_number(action[1:-1]) else None

    def _objection(self, action):
        return None if 1 <= int(action[1:-1]) <= min(2, self.stones[0]) else "So many cannot be taken. Try again."


class NeverCanonical(Countdown):
    open_actions = True

    def _read(self, action):
        number = read_number(action[1:-1].strip())
        return None if number is None else action if action == f"[{number}]" else f"[ {action[1:-1]}]"

    def _objection(self, action):
        return None if 1 <= int(action[1:-1]) <= min(2, self.stones[0]) else "So many cannot be taken. Try again."


class SaysNoReply(Countdown):
    def _rules(self, seat):
        return f"Countdown. You are Player {seat}. Say one or two, for example [1]."


class TellsTheAside(Partners):
    def _play(self, action):
        if self.aside:
            self._tell(0, f"Partner expects {action}.")
        return super()._play(action)


class SharesNoOutcome(Partners):
    def _play(self, action):
        result = super()._play(action)
        return result if isinstance(result, int) else self._won_by(0)


class DrawsTogether(Partners):
    def _play(self, action):
        result = super()._play(action)
        return result if isinstance(result, int) else self._drawn()


class InvalidWithoutReason(Partners):
    def _play(self, action):
        result = super()._play(action)
        return result if isinstance(result, int) else self._team(Outcome.INVALID)


class QualityOfAnAbort(Partners):
    def measures(self):
        return {"quality": 10.0} if self.over else {}
