"""Each property of `conformance.check` is found broken in a game that breaks it, and in none that does not."""

# ruff: noqa: ARG002 (each game here breaks one rule and keeps the signatures of the hooks it overrides)

import contextlib
import random
import re
import signal
import threading
import time
from typing import ClassVar

import pytest

from dfc.games.conformance import check
from dfc.games.conformance.protocol import Subject
from dfc.games.game import Game, Outcome, Verdict
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


class NoGrammar(Countdown):
    grammar = ""


class ThreeSeats(Countdown):
    seats = 3


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


class LongerThanSaid(Countdown):
    max_game_length = 3


class TwoWinners(Countdown):
    def _won_by(self, seat):
        return (Outcome.WIN, Outcome.WIN)


class OutcomeForOne(Countdown):
    def _won_by(self, seat):
        return (Outcome.WIN,)


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


class ListsTwice(Countdown):
    def legal_actions(self):
        return super().legal_actions() * 2


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


class StateShared(Countdown):
    def _state(self):
        return {"stones": self.stones}


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


class FixedInName(Countdown):
    start = "fixed"


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


class FirstOfMany(Countdown):
    def extract(self, reply):
        return next(iter(re.findall(r"\[\d+\]", reply)), None)


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


class NeverSatisfied(Answered):
    def _answered(self, seat, reply):
        return "Say it better."


class GrammarInWords(Countdown):
    grammar = "[one or two]"


class OutcomesAsTexts(Countdown):
    def _won_by(self, seat):
        return tuple("win" if s == seat else "loss" for s in range(2))


class OneOutcome(Countdown):
    def _won_by(self, seat):
        return Outcome.WIN


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


class SetInState(Countdown):
    def _state(self):
        return super()._state() | {"seen": [{"taken": {1, 2}}]}


class PairAsKey(Countdown):
    def _state(self):
        return super()._state() | {"board": {(0, 1): "x"}}


class StateIsAList(Countdown):
    def _state(self):
        return self.stones


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


class CountsInWholeNumbers(Countdown):
    def measures(self):
        return {"stones": self.stones[0]}


class CountsWhatThereWas(Countdown):
    def measures(self):
        return {f"actions_{self.actions_played}": 1.0}


BROKEN = {
    "it declares what it is": [
        (NoGrammar, "`grammar` is empty"),
        (GrammarInWords, "`grammar` is '[one or two]', which `_read` cannot read"),
        (ThreeSeats, "`seats` must be 1 or 2, got 3"),
        (ForgetfulNobody, "`stateless_roles` must name roles of `simulators`"),
        (LegalBeforeTheStart, "before `reset`"),
    ],
    "it is made by keywords": [
        (OptionWithoutDefault, "'size' needs a default of its type"),
        (OptionByPosition, "'size' must be keyword-only"),
        (NothingInCommon, "does not hand `**common`"),
        (NoCommon, "must take `**common: Unpack[Common]`"),
    ],
    "it ends": [
        (Endless, "13 actions were played and `max_game_length` is 12"),
        (LongerThanSaid, "4 actions were played and `max_game_length` is 3"),
        (TwoWinners, "one winner and one loser or in two draws, got win, win"),
        (OutcomeForOne, "the outcomes must be 2 of Outcome"),
        (OutcomesAsTexts, "got ('win', 'loss'); let `_play` return `self._won_by(seat)`, `self._drawn()` or a tuple"),
        (
            OneOutcome,
            "the outcomes must be 2 of Outcome, got <Outcome.WIN: 'win'>; let `_play` return `self._won_by(",
        ),
        (MovesNobody, "`to_move` is None, which is no seat; `_begin` returns who moves, `_play` who moves next, or"),
        (NothingLegal, "is to move and `legal_actions` is empty"),
        (NoSuchSeat, "`to_move` is 2, which is no seat"),
        (Raises, "it raised KeyError: 'stones'"),
    ],
    "its position can be written": [
        (
            SetInState,
            "`_state()['seen'][0]['taken']` is {1, 2} of type set, which JSON does not have; return `sorted(...)`",
        ),
        (PairAsKey, "`_state()['board']` has the key (0, 1) of type tuple"),
        (StateIsAList, "`_state` must return a dictionary, got ["),
    ],
    "games are apart": [
        (OnTheClass, "two games share state: one changed while another was played; set the position in")
    ],
    "an action has one spelling": [
        (
            SecondSpelling,
            "'[01]' is played beside '[1]' and is read as '[01]', which is not listed; let `_read` return",
        ),
        (NeverCanonical, "'[01]' is read as '[ 01]', which is not read as itself"),
    ],
    "what is listed is legal": [
        (ListsTooFew, "'[2]' was played and is not listed"),
        (ListsTooMany, "the listed action '[2]' got the verdict illegal"),
        (ListsTwice, "lists an action twice"),
        (ListsAtRandom, "another list when it is asked again"),
        (OtherSpelling, "is not canonical"),
    ],
    "what is illegal changes nothing": [
        (ObjectionWithNumber, "without digits"),
        (ObjectionThatMoves, "changed the position"),
        (ObjectionThatDraws, "changed the position"),
        (ObjectionToldToBoth, "another seat was shown"),
    ],
    "copies play on alike": [
        (RestoresLess, "`from_json` does not restore what `to_json` wrote"),
        (ClonesLess, "a clone differs"),
    ],
    "copies are independent": [
        (StateShared, "what `to_json` returned changes with the game"),
        (StateKept, "changes the record it was read from"),
        (CloneShared, "a clone changes with the game"),
    ],
    "the seed alone decides": [
        (LeftOvers, "leads to another game when it is played again"),
        (GlobalChance, "leads to another game"),
        (FixedInName, "`start` is 'fixed' and 20 seeds begin in"),
        (RandomInName, "`start` is 'random' and 20 seeds begin alike"),
    ],
    "the global generator is left alone": [(Draws, "the global generator of `random` was used")],
    "observations are well-formed": [
        (LookingChanges, "`observation` or `legal_actions` changes the game"),
        (RulesTwice, "shown first and once"),
        (RulesForNobody, "must say 'You are Player 0'"),
        (SaysNoReply, "shown first and once, that says 'Reply with'"),
        (NotAscii, "not ASCII"),
        (EmptyLine, "an empty line"),
        (NamesPlayers, "must say 'Opponent'"),
    ],
    "history is what was shown and said": [(TellsAll, "The other was told more"), (Forgets, "history is")],
    "malformed replies play nothing": [
        (FirstOfMany, "holds no single action and got the verdict played"),
        (ReadsAnything, "'[]' holds no single action and got the verdict played"),
        (Impatient, "with malformed_allowance=1 an empty reply got the verdict forfeit_malformed"),
    ],
    "huge replies are read at once": [
        (Backtracks, "s to read"),
        (ConvertsHuge, "it raised ValueError: Exceeds the limit"),
    ],
    "what is not seen is not handed on": [
        (TellsTheReply, "is shown '\\x00', which the player on seat 0 wrote"),
    ],
    "simulators can fail": [
        (TakesEmptyAnswers, "empty replies of the world got the verdicts played"),
        (RefusalMoves, "a refused reply of the world changed the position"),
        (NeverSatisfied, "the script of the world was refused"),
    ],
    "measures are numbers": [
        (CountsInWholeNumbers, "must be floats by name"),
        (CountsWhatThereWas, "different names after different games"),
    ],
}


def subject(kind):
    return Subject(kind, range(4), {"world": Talker()} if kind.simulators else {})


def test_every_property_is_broken_by_a_game():
    assert BROKEN.keys() == check.PROPERTIES.keys()


@pytest.mark.parametrize("kind", [Countdown, Answered])
def test_a_game_that_keeps_the_protocol_has_no_faults(kind):
    assert check.check(kind, range(6), subject(kind).simulators) == []


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [pytest.param(name, *case, id=case[0].__name__) for name, cases in BROKEN.items() for case in cases],
)
def test_a_broken_property_is_found_and_named(name, kind, sentence):
    found = check.run(name, check.PROPERTIES[name], subject(kind))
    assert found
    assert len(found) <= 4
    assert all(finding.startswith(f"{name}: ") for finding in found)
    assert any(sentence in finding for finding in found), found


def test_rules_without_reply_with_are_not_taken_for_news():
    found = check.run("texts", check.PROPERTIES["observations are well-formed"], subject(SaysNoReply))
    assert found
    assert not [finding for finding in found if "a player's number" in finding]


def test_the_class_that_holds_shared_state_is_told_with_the_name():
    (finding,) = check.check(OnTheClass)
    assert finding.endswith("not on the class or module (the class has pile)")


@pytest.mark.parametrize("kind", [Raises, NothingLegal, Endless, SetInState, OutcomesAsTexts])
def test_after_a_fault_that_all_others_follow_from_nothing_else_is_tried(kind):
    found = check.check(kind)
    assert 1 <= len(found) <= 3
    assert len({finding.partition(": ")[0] for finding in found}) == 1


def test_an_error_that_several_properties_meet_is_told_once_with_a_count():
    class Unrestored(Countdown):
        def _restore(self, state):
            raise KeyError("stones")

    found = [finding for finding in check.check(Unrestored) if "KeyError" in finding]
    assert len(found) == 1
    assert re.search(r"in _restore\) \([4-9] times, also of: .*copies play on alike, ", found[0])


def test_a_game_in_an_endless_loop_is_stopped_and_the_property_and_the_line_are_told(monkeypatch):
    class Circles(Countdown):
        def _play(self, action):
            while True:
                with contextlib.suppress(Exception):
                    self.stones[0] += 0

    begun = time.process_time()
    (finding,) = check.run("it ends", check.PROPERTIES["it ends"], subject(Countdown)) or ["no fault"]
    assert finding == "no fault"
    (finding,) = check.run("it ends", check.PROPERTIES["it ends"], subject(Circles), seconds=0.3)
    assert finding.startswith("it ends: it was stopped after 0.3 s of CPU time (")
    assert "test_check.py:" in finding
    assert "in _play)" in finding
    monkeypatch.setattr(check, "SECONDS", 0.3)
    assert len(check.check(Circles)) == 1  # the other properties would take as long
    assert time.process_time() - begun < 10
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_nothing_is_tried_after_a_property_that_took_too_long(monkeypatch):
    class NeverRestored(Countdown):
        def _restore(self, state):
            while True:
                pass

    monkeypatch.setattr(check, "SECONDS", 0.2)
    (finding,) = check.check(NeverRestored)
    assert finding.startswith("what is listed is legal: it was stopped after 0.2 s")
    assert finding.endswith("or slow")  # not "(9 times": the other properties would take as long


def test_a_property_is_not_limited_outside_the_main_thread():
    found = []
    thread = threading.Thread(
        target=lambda: found.append(
            check.run("it ends", check.PROPERTIES["it ends"], subject(Countdown), seconds=0.001)
        )
    )
    thread.start()
    thread.join()
    assert found == [[]]


def test_the_place_of_an_error_is_the_line_of_the_game():
    class TellsNobody(Countdown):
        def _play(self, action):
            self._tell(5, "Well.")

    (finding, *_) = check.check(TellsNobody)
    assert re.search(r"it raised IndexError: .*test_check\.py:\d+ in _play\)", finding)


def test_a_game_that_says_that_it_lists_no_actions_gets_one_finding():
    class Silent(Countdown):
        lists_actions = False

    (finding,) = check.check(Silent)
    assert finding.startswith("it can be made and begun: `lists_actions` is False")


def test_a_game_that_cannot_be_made_gets_one_finding_with_its_place():
    class Half(Game):
        seats = 1
        start = "fixed"

    (finding,) = check.check(Half)
    assert finding.startswith("it can be made and begun: it raised TypeError: Can't instantiate abstract class Half")
    (finding,) = check.check(type("NoSeats", (Countdown,), {"seats": None}))
    assert "raised TypeError" in finding
    assert finding.endswith("in __init__)")


def test_a_game_that_lists_no_action_gets_one_finding():
    class Unlisted(Countdown):
        def legal_actions(self):
            return []

    (finding,) = check.check(Unlisted)
    assert finding.startswith("it can be made and begun: `legal_actions` is empty at the first turn")


def test_simulators_without_a_script_are_a_finding():
    (finding,) = check.check(Answered)
    assert finding.startswith("simulators have a script: no simulators for 'Answered'")
    assert finding.endswith("hand it over as `simulators`")


def test_what_all_players_are_told_is_no_news_to_simulators():
    game = Answered()
    game.reset(0)
    assert game.observation(0).endswith("The stones lie ready.")
    assert game.observation(1) == "Say something."


def test_simulators_have_all_their_tries_again_at_every_question():
    game = Answered()
    game.reset(0)
    while not game.over:
        game.step("[1]")
        for _ in range(game.simulator_tries - 1):
            assert game.step("") is Verdict.REFUSED
        assert game.step("Well.") is Verdict.PLAYED
    assert game.actions_played >= 5
    assert game.outcomes == ("win",)


def test_the_global_generator_is_left_as_it_was():
    random.seed(5)
    before = random.getstate()
    check.check(Countdown)
    check.check(Draws)
    assert random.getstate() == before


def test_costs_are_measured_without_the_time_of_simulators():
    class Slow:
        def act(self, game, rng):
            begun = time.process_time()
            while time.process_time() - begun < 0.002:
                pass
            return "Well."

    slow = check.measure(Subject(Answered, range(1), {"world": Slow()}), seconds=0.01)
    assert slow.steps_per_second > 5_000  # with the time of simulators it would be 1,000

    class Heavy(Countdown):
        def _begin(self):
            self.ballast = bytes(100_000)
            return super()._begin()

        def clone(self):
            twin = super().clone()
            twin.ballast = bytearray(self.ballast)
            return twin

    assert 3 <= check.measure(Subject(Countdown, range(1), {}), seconds=0.01).longest_seen <= 12
    heavy = check.measure(Subject(Heavy, range(1), {}), seconds=0.01)
    light = check.measure(Subject(Countdown, range(1), {}), seconds=0.01)
    assert heavy.bytes_per_game - light.bytes_per_game == pytest.approx(100_000, rel=0.05)
