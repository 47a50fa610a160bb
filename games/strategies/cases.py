"""Strategies and scripted staff for the two Paprika groups of cases: customer service and murder mystery.

The staff answers from `Scenario.facts`, by keywords in what the agent says. The agents use what they were told
(`seen`), what they have said (`used`), and what is public: the cases of a domain, the list of actions.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any

from dfc.games.chance import Chance
from dfc.games.paprika.accusations import accused
from dfc.games.paprika.customer_service import CustomerService, cases, check, mentions, proposals, tokens, topics
from dfc.games.paprika.murder_mystery import NO_ACCUSATION, Clue, MurderMystery, accusation
from dfc.games.paprika.scenario import Scenario
from dfc.games.paprika.world import GOAL, NOT_VALID, VALID
from dfc.games.strategies.strategy import Strategies


def _facts(scenario: Scenario | None) -> Scenario:
    if scenario is None or not scenario.facts:
        raise ValueError(
            "the scripted staff answers only for scenarios with facts, which are those of this package; seat a chat "
            "model as world and judge for scenarios from a file"
        )
    return scenario


# ---- customer service -----------------------------------------------------------------------------------------------


def _solves(game: CustomerService) -> bool:
    """Whether the agent's last message proposes the remedy; one that proposes several never comes here."""
    scenario = _facts(game.scenario)
    return [cases(scenario.group)[number] for number in proposals(game.asked, scenario.group)] == [scenario]


_HELPLESS = re.compile(r"\b(?:restart|reboot|reset|off and on|on and off|repair|workshop|replace|reinstall)", re.ASCII)


def _customer(game: CustomerService, _seat: int, _chance: Chance) -> str:
    """Says what is found; an honest "did not help" to other remedies; that it does not understand, to the rest."""
    if _solves(game):
        return GOAL
    scenario = _facts(game.scenario)
    proposed = proposals(game.asked, scenario.group)
    said = game.asked
    listed = {check(topic): topic for topic in topics(scenario.group)}
    if said in listed:
        return str(scenario.facts["checks"][listed[said]])
    if proposed or _HELPLESS.search(said.lower()):
        return "I have tried that, but it did not help."
    spoken = tokens(said)
    hits = {t: sum(mentions(word, spoken) for word in words) for t, words in topics(scenario.group).items()}
    best = [topic for topic in sorted(hits, key=lambda t: -hits[t]) if hits[topic]][:2]
    return " ".join(scenario.facts["checks"][topic] for topic in best) or "I do not know. What should I look at?"


def _service_judge(game: CustomerService, _seat: int, _chance: Chance) -> str:
    """VALID if and only if the agent's last message proposes the remedy."""
    return VALID if _solves(game) else NOT_VALID


def _unused(game: CustomerService | MurderMystery) -> list[str]:
    actions = game.legal_actions()
    return [action for action in actions if action not in game.used] or actions


def _fitting(game: CustomerService) -> list[Mapping[str, Any]]:
    """Returns the facts of the cases of the domain that fit all findings told so far and whose remedy was not said."""
    scenario = _facts(game.scenario)
    told = {topic: scenario.facts["checks"][topic] for topic in game.seen}
    return [
        case.facts
        for case in cases(scenario.group)
        if case.facts["remedy"] not in game.used and all(case.facts["checks"][t] == told[t] for t in told)
    ]


def _simple_service(game: CustomerService, _seat: int, chance: Chance) -> str:
    """Asks about every topic in any order, then proposes any remedy that fits the findings."""
    scenario, actions = game.scenario, []
    if scenario is not None and scenario.facts:
        actions = [check(topic) for topic in topics(scenario.group) if check(topic) not in game.used]
        actions = actions or [str(facts["remedy"]) for facts in _fitting(game)]
    actions = actions or _unused(game)
    return actions[chance.below(len(actions))]


def _strong_service(game: CustomerService, seat: int, chance: Chance) -> str:
    """Asks what splits the cases of the domain best that fit all findings; proposes the remedy when one is left.

    The complaint, which would name the case at once, is not used.
    """
    scenario = game.scenario
    if scenario is None or not scenario.facts:
        return _simple_service(game, seat, chance)
    left = _fitting(game)
    if not left:
        return _simple_service(game, seat, chance)

    def remaining(topic: str) -> int:
        """The sum over the cases of how many fit the same finding."""
        findings = [facts["checks"][topic] for facts in left]
        return sum(findings.count(finding) for finding in findings)

    open_topics = [topic for topic in topics(scenario.group) if check(topic) not in game.used]
    best = min(open_topics, key=remaining, default=None)
    if len(left) == 1 or best is None or remaining(best) == len(left) ** 2:
        return str(left[0]["remedy"])
    return check(best)


# ---- murder mystery -------------------------------------------------------------------------------------------------

_ALIBI = re.compile(r"\b(?:alibi|verif|confirm|check|whereabouts|witness|vouch)", re.ASCII)
_ASKING = re.compile(r"\b(?:ask|question|interview|interrogate|talk|speak|where were|did you)", re.ASCII)
_SIMPLE_LOOKS = 6  # things that the simple detective looks at before it accuses


def _narrator(game: MurderMystery, _seat: int, _chance: Chance) -> str:
    """Tells the clue that the agent's words ask for; that nothing comes of it, where they ask for none."""
    facts = _facts(game.scenario).facts
    blamed = accused(game.asked, facts["suspects"])
    if blamed and (game.accusations == 1 or blamed == {facts["culprit"]}):
        return GOAL
    if blamed:
        return "The evidence does not support this."
    clue = _asked_for(game.asked, facts["clues"], facts["suspects"])
    return "Nothing of note comes of it." if clue is None else clue.text


def _asked_for(said: str, clues: tuple[Clue, ...], suspects: tuple[str, ...]) -> Clue | None:
    for clue in clues:
        if clue.action == said:
            return clue
    named = _first_named(said, suspects)
    text = said.lower()
    if named and (_ALIBI.search(text) or _ASKING.search(text)):
        kind = "alibi" if _ALIBI.search(text) else "says"
        return next(clue for clue in clues if (clue.kind, clue.subject) == (kind, named))
    spoken = tokens(said)
    things = [clue for clue in clues if clue.kind == "thing"]
    hits = [sum(mentions(word, spoken) for word in {*tokens(clue.subject), *clue.words}) for clue in things]
    if max(hits, default=0):
        return things[hits.index(max(hits))]
    return next((clue for clue in clues if (clue.kind, clue.subject) == ("says", named)), None)


def _first_named(said: str, suspects: tuple[str, ...]) -> str:
    """Returns the suspect that is named first, in full or by one word of the name, or an empty text."""
    places = {}
    for name in suspects:
        found = _spellings(name).search(said)
        if found:
            places[name] = found.start()
    return min(places, key=lambda name: places[name], default="")


@functools.cache
def _spellings(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, [name, *name.split()]))})(?!\w)")


def _mystery_judge(game: MurderMystery, _seat: int, _chance: Chance) -> str:
    """Says what the rules read as well: whether the agent's last message accuses the culprit alone, others, nobody."""
    facts = _facts(game.scenario).facts
    blamed = accused(game.asked, facts["suspects"])
    if not blamed:
        return NO_ACCUSATION
    return VALID if blamed == {facts["culprit"]} else NOT_VALID


def _told(game: MurderMystery) -> tuple[list[str], dict[str, int], list[str]]:
    """Returns the suspects that no clue told so far clears, clues against each of them, and what is not yet done."""
    facts = {} if game.scenario is None else game.scenario.facts
    suspects, told = facts.get("suspects", ()), game.seen
    cleared = {clue.clears for clue in told}
    against = {name: sum(clue.against == name for clue in told) for name in suspects}
    tried = {name for name in suspects if accusation(name) in game.used}
    accusing = {accusation(name) for name in suspects}
    todo = [action for action in game.legal_actions() if action not in accusing and action not in game.used]
    return [name for name in suspects if name not in cleared | tried], against, todo


def _simple_mystery(game: MurderMystery, _seat: int, chance: Chance) -> str:
    """Does six things at random, then accuses one of those whom nothing clears, at random."""
    suspects, _, todo = _told(game)
    if todo and (len(game.used) < _SIMPLE_LOOKS or not suspects):
        return todo[chance.below(len(todo))]
    actions = [accusation(name) for name in suspects] or game.legal_actions()
    return actions[chance.below(len(actions))]


def _strong_mystery(game: MurderMystery, _seat: int, chance: Chance) -> str:
    """Checks alibis, then things, then asks; accuses the only one left, or who has two clues against him.

    It understands each clue that it was told, by what `Clue` says of it, and looks at no other.
    """
    suspects, against, todo = _told(game)
    certain = [name for name in suspects if against[name] >= 2]
    last_turn = game.actions_played == game.max_turns - 1
    if suspects and (len(suspects) == 1 or certain or last_turn or not todo):
        return accusation(max(certain or suspects, key=lambda name: against[name]))
    if not todo:
        actions = game.legal_actions()
        return actions[chance.below(len(actions))]
    order = ("Check", "Inspect", "Question")
    return min(todo, key=lambda action: order.index(action.split()[0]) if action.split()[0] in order else len(order))


STRATEGIES = (
    Strategies(CustomerService, _simple_service, _strong_service, {"world": _customer, "judge": _service_judge}),
    Strategies(MurderMystery, _simple_mystery, _strong_mystery, {"world": _narrator, "judge": _mystery_judge}),
)
