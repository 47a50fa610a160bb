"""The scenarios of customer service and murder mystery: complete, distinct, disjoint, solvable, and without leaks."""

import collections
import itertools
import json
import pathlib
import re

import pytest

from dfc.games.bots.cases import BOTS
from dfc.games.paprika import customer_service, murder_mystery
from dfc.games.paprika.accusations import accused
from dfc.games.paprika.customer_service import GENERIC, CustomerService, cases, check, proposals, topics
from dfc.games.paprika.murder_mystery import NO_ACCUSATION, MurderMystery, accusation
from dfc.games.paprika.world import GOAL, JUDGE, NOT_VALID, VALID, WORLD
from dfc.games.rng import GameRng

SIMULATORS = {found.kind: found.simulators for found in BOTS}
SERVICE = [(split, s) for split in CustomerService.splits for s in CustomerService.scenarios(split)]
MYSTERIES = [(split, s) for split in MurderMystery.splits for s in MurderMystery.scenarios(split)]
DOMAINS = sorted({scenario.group for _, scenario in SERVICE})
DATA = pathlib.Path(customer_service.__file__).parent / "data"


def words(text):
    return set(re.findall("[a-z0-9]+", text.lower()))


def overlap(one, other):
    return len(words(one) & words(other)) / len(words(one) | words(other))


def whole_phrase(phrase, text):
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE)


def after(kind, split, task, message):
    """A game in which the agent has just said something."""
    game = kind(split=split)
    game.reset(task)
    game.step(message)
    return game


def judged(kind, split, task, message):
    """What customer or narrator and then the judge say to one message."""
    game = after(kind, split, task, message)
    said = SIMULATORS[kind]["world"](game, WORLD, GameRng(0))
    game.step(said)
    return said, SIMULATORS[kind]["judge"](game, JUDGE, GameRng(0))


# ---- customer service: the data ---------------------------------------------------------------------------------


def test_there_are_as_many_scenarios_as_the_splits_say():
    assert collections.Counter(split for split, _ in SERVICE) == CustomerService.splits == {"train": 120, "test": 40}
    assert collections.Counter(split for split, _ in MYSTERIES) == MurderMystery.splits == {"train": 60, "test": 20}


def test_every_domain_has_six_cases_for_training_and_two_for_the_test():
    assert len(DOMAINS) == 20
    counted = collections.Counter((scenario.group, split) for split, scenario in SERVICE)
    assert set(counted) == {(domain, split) for domain in DOMAINS for split in ("train", "test")}
    assert all(number == (6 if split == "train" else 2) for (_, split), number in counted.items())


@pytest.mark.parametrize("name", ["service_cases.json", "mysteries.json"])
def test_the_files_are_ascii_and_hold_one_scenario_a_line(name):
    text = (DATA / name).read_text(encoding="utf-8")
    assert text.isascii()
    assert json.dumps(json.loads(text), ensure_ascii=False).isascii()  # nor hidden in an escape
    lines = [line.rstrip(",") for line in text.split("\n") if line.startswith('{"') and len(line) > 20]
    scenarios = [json.loads(line) for line in lines]
    assert len(scenarios) == sum(len(json.loads(text)[split]) for split in ("train", "test"))


def test_cases_are_complete_and_of_readable_length():
    for _, scenario in SERVICE:
        facts = scenario.facts
        assert 15 <= len(scenario.briefing.split()) <= 26, scenario.briefing
        assert 2 <= len(facts["remedy"].split()) <= 14, scenario.name
        assert facts["remedy"].endswith(".")
        assert set(facts["checks"]) == set(topics(scenario.group))
        assert all(1 <= len(finding.split()) <= 25 for finding in facts["checks"].values())
        assert facts["remedy"] in scenario.truth


def test_each_case_shows_itself_in_three_findings_or_more():
    data = json.loads((DATA / "service_cases.json").read_text(encoding="utf-8"))
    for case in data["train"] + data["test"]:
        assert 3 <= len(case["checks"]) <= 6, case["cause"]
        usual = {topic: finding for topic, (_, finding) in data["domains"][case["domain"]].items()}
        assert all(usual[topic] != finding for topic, finding in case["checks"].items())


def test_no_two_cases_of_a_domain_have_the_same_finding_of_their_own():
    data = json.loads((DATA / "service_cases.json").read_text(encoding="utf-8"))
    for domain in DOMAINS:
        own = [item for c in data["train"] + data["test"] if c["domain"] == domain for item in c["checks"].items()]
        assert len(set(own)) == len(own), domain


def test_no_finding_is_part_of_another_of_the_same_case():
    # Else a customer who tells the one would seem to have told the other.
    for _, scenario in SERVICE:
        for one, other in itertools.permutations(scenario.facts["checks"].values(), 2):
            assert one not in other, scenario.name


def test_no_case_is_there_twice_and_none_is_near_another():
    assert len({(scenario.group, scenario.name) for _, scenario in SERVICE}) == len(SERVICE)
    assert len({scenario.facts["remedy"] for _, scenario in SERVICE}) == len(SERVICE)
    for (_, one), (_, other) in itertools.combinations(SERVICE, 2):
        assert overlap(one.briefing, other.briefing) < 0.45, (one.briefing, other.briefing)
        if one.group == other.group:
            assert overlap(one.truth, other.truth) < 0.65, (one.truth, other.truth)


def test_a_customer_who_reports_never_names_the_cause_or_the_remedy():
    for _, scenario in SERVICE:
        assert len(scenario.names) == 2
        for text in (scenario.briefing, *scenario.facts["checks"].values()):
            assert not any(whole_phrase(name, text) for name in scenario.names), (scenario.names, text)


# ---- customer service: every case can be solved -----------------------------------------------------------------


def test_the_remedy_of_every_case_is_valid_and_solves_it():
    for split in CustomerService.splits:
        for task, scenario in enumerate(CustomerService.scenarios(split)):
            assert judged(CustomerService, split, task, scenario.facts["remedy"]) == (GOAL, VALID), scenario.name


def test_no_other_listed_sentence_is_valid_for_a_case():
    for split in CustomerService.splits:
        for task, scenario in enumerate(CustomerService.scenarios(split)):
            game = CustomerService(split=split)
            game.reset(task)
            others = [action for action in game.legal_actions() if action != scenario.facts["remedy"]]
            assert len(others) == 17
            for action in others:
                said, verdict = judged(CustomerService, split, task, action)
                assert verdict == NOT_VALID, (scenario.name, action)
                assert said != GOAL
                remedy = action in GENERIC or any(action == case.facts["remedy"] for case in cases(scenario.group))
                assert remedy == ("did not help" in said), (action, said)


def test_every_listed_check_is_answered_with_its_finding():
    for split in CustomerService.splits:
        for task, scenario in enumerate(CustomerService.scenarios(split)):
            for topic, finding in scenario.facts["checks"].items():
                assert judged(CustomerService, split, task, check(topic)) == (finding, NOT_VALID)


def test_keywords_match_the_remedy_they_belong_to_and_no_check():
    for domain in DOMAINS:
        for number, case in enumerate(cases(domain)):
            assert proposals(case.facts["remedy"], domain) == [number]
        assert all(proposals(check(topic), domain) == [] for topic in topics(domain))


# ---- murder mystery: the data -----------------------------------------------------------------------------------


def test_mysteries_are_complete_and_of_readable_length():
    for _, scenario in MYSTERIES:
        facts = scenario.facts
        assert 40 <= len(scenario.briefing.split()) <= 70, scenario.name
        assert 30 <= len(scenario.truth.split()) <= 65, scenario.name
        assert 3 <= len(facts["suspects"]) <= 4
        assert facts["culprit"] in facts["suspects"]
        assert all(name in scenario.briefing for name in facts["suspects"]), scenario.name
        assert 10 <= len(facts["clues"]) <= 16, scenario.name
        assert scenario.truth.endswith(f"The culprit: {facts['culprit']}.")
        assert all(1 <= len(clue.text.split()) <= 30 for clue in facts["clues"])


def test_suspects_are_listed_without_a_hint_at_the_culprit():
    places = {split: collections.Counter() for split in MurderMystery.splits}
    for split, scenario in MYSTERIES:
        suspects = scenario.facts["suspects"]
        assert list(suspects) == sorted(suspects)
        places[split][suspects.index(scenario.facts["culprit"])] += 1
    for split, counts in places.items():
        fair = MurderMystery.splits[split] / 3
        assert all(abs(counts[place] - fair) < 1 for place in range(3)), (split, counts)


def test_clues_single_out_the_culprit():
    for _, scenario in MYSTERIES:
        clues, culprit = scenario.facts["clues"], scenario.facts["culprit"]
        assert sum(clue.against == culprit for clue in clues) >= 2, scenario.name
        assert {clue.against for clue in clues} <= {"", culprit}
        assert {clue.clears for clue in clues} - {""} == set(scenario.facts["suspects"]) - {culprit}, scenario.name


def test_what_is_asked_for_and_told_is_distinct():
    for _, scenario in MYSTERIES:
        clues = scenario.facts["clues"]
        assert len({clue.action for clue in clues}) == len(clues), scenario.name
        for one, other in itertools.permutations(clues, 2):
            assert one.text not in other.text, scenario.name


def test_no_mystery_is_there_twice_and_none_is_near_another():
    assert len({scenario.name for _, scenario in MYSTERIES}) == len(MYSTERIES)
    for (_, one), (_, other) in itertools.combinations(MYSTERIES, 2):
        assert overlap(one.briefing, other.briefing) < 0.4, (one.name, other.name)
        assert overlap(one.truth, other.truth) < 0.4, (one.name, other.name)
        assert not set(one.facts["suspects"]) & set(other.facts["suspects"]), (one.name, other.name)


def test_no_clue_and_no_briefing_says_who_did_it():
    for _, scenario in MYSTERIES:
        for text in (scenario.briefing, *(clue.text for clue in scenario.facts["clues"])):
            assert accused(text, scenario.facts["suspects"]) == frozenset(), (scenario.name, text)


# ---- murder mystery: every case can be solved -------------------------------------------------------------------


def test_accusing_the_culprit_is_valid_and_accusing_anybody_else_is_not():
    for split in MurderMystery.splits:
        for task, scenario in enumerate(MurderMystery.scenarios(split)):
            for name in scenario.facts["suspects"]:
                expected = VALID if name == scenario.facts["culprit"] else NOT_VALID
                assert judged(MurderMystery, split, task, accusation(name)) == (GOAL, expected), (scenario.name, name)
            everybody = "I accuse " + " and ".join(scenario.facts["suspects"]) + "."
            assert judged(MurderMystery, split, task, everybody)[1] == NOT_VALID


def test_every_listed_look_is_answered_with_its_clue():
    for split in MurderMystery.splits:
        for task, scenario in enumerate(MurderMystery.scenarios(split)):
            for clue in scenario.facts["clues"]:
                assert judged(MurderMystery, split, task, clue.action) == (clue.text, NO_ACCUSATION), scenario.name


def test_scenarios_are_made_once():
    for kind in (CustomerService, MurderMystery):
        for split in kind.splits:
            assert kind.scenarios(split) is kind.scenarios(split)
    assert customer_service.cases("phone") is customer_service.cases("phone")
    assert murder_mystery.MurderMystery.scenarios("test")[0].name == "The Salt Mine"
