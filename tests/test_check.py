"""Each property of `conformance.check` is found broken in a game that breaks it, and in none that does not."""

# ruff: noqa: ARG002, ARG005 (each game here breaks one rule and keeps the signatures of the hooks it overrides)

import contextlib
import random
import re
import signal
import threading
import time

import faulty_games
import pytest
from faulty_games import broken
from sound_games import Answered, Countdown, Partners, Talker

from dfc.games.conformance import check
from dfc.games.conformance.protocol import Subject
from dfc.games.game import Game, Outcome, Verdict

# By the property that is broken: the game, and a part of what is said of it.
BROKEN = {
    "it declares what it is": [
        (broken("TeamOfOne", Answered, team=True), "`team` is for two seats or more, got seats=1"),
        (broken("OneRole", Partners, player_roles=("teller",)), "a name of its own for each of 2 seats"),
        (broken("RoleOfEverybody", Partners, player_roles=("player", "hearer")), "must not name 'player'"),
        (broken("HalfATry", Partners, default_allowances=(0.5, 0)), "`default_allowances` must be two whole numbers"),
        (broken("NoGrammar", grammar=""), "`grammar` is empty"),
        (broken("GrammarInWords", grammar="[one or two]"), "`grammar` is '[one or two]', which `_read` cannot read"),
        (broken("ThreeSeats", seats=3), "`seats` must be 1 or 2, got 3"),
        (faulty_games.ForgetfulNobody, "`stateless_roles` must name roles of `simulators`"),
        (faulty_games.LegalBeforeTheStart, "before `reset`"),
    ],
    "it is made by keywords": [
        (faulty_games.OptionWithoutDefault, "'size' needs a default of its type"),
        (faulty_games.OptionByPosition, "'size' must be keyword-only"),
        (faulty_games.NothingInCommon, "does not hand `**common`"),
        (faulty_games.NoCommon, "must take `**common: Unpack[Common]`"),
    ],
    "it ends": [
        (faulty_games.SharesNoOutcome, "a game of a team ends for all seats alike in a win or a loss"),
        (faulty_games.DrawsTogether, "a game of a team ends for all seats alike in a win or a loss"),
        (faulty_games.InvalidWithoutReason, "a game that is broken off is invalid for all and says why"),
        (faulty_games.Endless, "13 actions were played and `max_game_length` is 12"),
        (broken("LongerThanSaid", max_game_length=3), "4 actions were played and `max_game_length` is 3"),
        (
            broken("TwoWinners", _won_by=lambda self, seat: (Outcome.WIN, Outcome.WIN)),
            "one winner and one loser or in two draws, got win, win",
        ),
        (broken("OutcomeForOne", _won_by=lambda self, seat: (Outcome.WIN,)), "the outcomes must be 2 of Outcome"),
        (
            faulty_games.OutcomesAsTexts,
            "got ('win', 'loss'); let `_play` return `self._won_by(seat)`, `self._drawn()` or a tuple",
        ),
        (
            broken("OneOutcome", _won_by=lambda self, seat: Outcome.WIN),
            "the outcomes must be 2 of Outcome, got <Outcome.WIN: 'win'>; let `_play` return `self._won_by(",
        ),
        (
            faulty_games.MovesNobody,
            "`to_move` is None, which is no seat; `_begin` returns who moves, `_play` who moves next, or",
        ),
        (faulty_games.NothingLegal, "is to move and `legal_actions` is empty"),
        (faulty_games.NoSuchSeat, "`to_move` is 2, which is no seat"),
        (faulty_games.Raises, "it raised KeyError: 'stones'"),
    ],
    "its position can be written": [
        (
            broken("SetInState", _state=lambda self: Countdown._state(self) | {"seen": [{"taken": {1, 2}}]}),
            "`_state()['seen'][0]['taken']` is {1, 2} of type set, which JSON does not have; return `sorted(...)`",
        ),
        (faulty_games.PairAsKey, "`_state()['board']` has the key (0, 1) of type tuple"),
        (broken("StateIsAList", _state=lambda self: self.stones), "`_state` must return a dictionary, got ["),
    ],
    "games are apart": [
        (faulty_games.OnTheClass, "two games share state: one changed while another was played; set the position in")
    ],
    "an action has one spelling": [
        (
            faulty_games.SecondSpelling,
            "'[01]' is played beside '[1]' and is read as '[01]', which is not listed; let `_read` return",
        ),
        (faulty_games.NeverCanonical, "'[01]' is read as '[ 01]', which is not read as itself"),
    ],
    "what is listed is legal": [
        (faulty_games.ListsTooFew, "'[2]' was played and is not listed"),
        (faulty_games.ListsTooMany, "the listed action '[2]' got the verdict illegal"),
        (broken("ListsTwice", legal_actions=lambda self: Countdown.legal_actions(self) * 2), "lists an action twice"),
        (faulty_games.ListsAtRandom, "another list when it is asked again"),
        (faulty_games.OtherSpelling, "is not canonical"),
    ],
    "what is illegal changes nothing": [
        (faulty_games.ObjectionWithNumber, "without digits"),
        (faulty_games.ObjectionThatMoves, "changed the position"),
        (faulty_games.ObjectionThatDraws, "changed the position"),
        (faulty_games.ObjectionToldToBoth, "another seat was shown"),
    ],
    "copies play on alike": [
        (faulty_games.RestoresLess, "`from_json` does not restore what `to_json` wrote"),
        (faulty_games.ClonesLess, "a clone differs"),
    ],
    "copies are independent": [
        (
            broken("StateShared", _state=lambda self: {"stones": self.stones}),
            "what `to_json` returned changes with the game",
        ),
        (faulty_games.StateKept, "changes the record it was read from"),
        (faulty_games.CloneShared, "a clone changes with the game"),
    ],
    "the seed alone decides": [
        (faulty_games.LeftOvers, "leads to another game when it is played again"),
        (faulty_games.GlobalChance, "leads to another game"),
        (broken("FixedInName", start="fixed"), "`start` is 'fixed' and 20 seeds begin in"),
        (faulty_games.RandomInName, "`start` is 'random' and 20 seeds begin alike"),
    ],
    "the global generator is left alone": [(faulty_games.Draws, "the global generator of `random` was used")],
    "observations are well-formed": [
        (faulty_games.LookingChanges, "`observation` or `legal_actions` changes the game"),
        (faulty_games.RulesTwice, "shown first and once"),
        (faulty_games.RulesForNobody, "must say 'You are Player 0'"),
        (faulty_games.SaysNoReply, "shown first and once, that says 'Reply with'"),
        (faulty_games.NotAscii, "not ASCII"),
        (faulty_games.EmptyLine, "an empty line"),
        (faulty_games.NamesPlayers, "must say 'Opponent'"),
    ],
    "history is what was shown and said": [
        (faulty_games.TellsAll, "The other was told more"),
        (faulty_games.Forgets, "history is"),
    ],
    "malformed replies play nothing": [
        (faulty_games.FirstOrAny, "holds no single action and got the verdict played"),
        (faulty_games.ReadsAnything, "'[]' holds no single action and got the verdict played"),
        (faulty_games.Impatient, "with malformed_allowance=1 an empty reply got the verdict forfeit_malformed"),
    ],
    "huge replies are read at once": [
        (faulty_games.Backtracks, "s to read"),
        (faulty_games.ConvertsHuge, "it raised ValueError: Exceeds the limit"),
    ],
    "what is not seen is not handed on": [
        (faulty_games.TellsTheReply, "is shown '\\x00', which the player on seat 0 wrote"),
    ],
    "what is asked aside leaves no trace": [(faulty_games.TellsTheAside, "what follows depends on its answer")],
    "simulators can fail": [
        (faulty_games.TakesEmptyAnswers, "empty replies of the world got the verdicts played"),
        (faulty_games.RefusalMoves, "a refused reply of the world changed the position"),
        (
            broken("NeverSatisfied", Answered, _answered=lambda self, seat, reply: "Say it better."),
            "the script of the world was refused",
        ),
    ],
    "measures are numbers": [
        (broken("CountsInWholeNumbers", measures=lambda self: {"stones": self.stones[0]}), "must be floats by name"),
        (
            broken("CountsWhatThereWas", measures=lambda self: {f"actions_{self.actions_played}": 1.0}),
            "different names after different games",
        ),
        (faulty_games.QualityOfAnAbort, "ended with invalid, invalid and `measures` has 'quality'"),
        (broken("NoQuality", Partners, measures=lambda self: {}), "and `measures` has no 'quality'"),
        (broken("TooGood", Partners, measures=lambda self: dict.fromkeys(Partners.measures(self), 101.0)), "0 to 100"),
        (broken("QualityUndeclared", Partners, has_quality=False), "set `has_quality = True`"),
    ],
}


def subject(kind):
    return Subject(kind, range(4), {"world": Talker()} if kind.simulators else {})


def test_every_property_is_broken_by_a_game():
    assert BROKEN.keys() == check.PROPERTIES.keys()


@pytest.mark.parametrize("kind", [Countdown, Answered, Partners])
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
    found = check.run("texts", check.PROPERTIES["observations are well-formed"], subject(faulty_games.SaysNoReply))
    assert found
    assert not [finding for finding in found if "a player's number" in finding]


def test_the_class_that_holds_shared_state_is_told_with_the_name():
    (finding,) = check.check(faulty_games.OnTheClass)
    assert finding.endswith("not on the class or module (the class has pile)")


@pytest.mark.parametrize(
    "kind", [faulty_games.Raises, faulty_games.NothingLegal, faulty_games.Endless, faulty_games.OutcomesAsTexts]
)
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
    check.check(faulty_games.Draws)
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
