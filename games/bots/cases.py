"""Bots and simulators for the case games of PAPRIKA: customer service and murder mystery.

The simulators answer from `Scenario.facts`, by keywords in what the agent says. The agents use what they were told
(`seen`), what they have said (`used`), and what is public: the list of actions, in customer service also the cases of
a domain.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.bots.simulators import with_facts
from dfc.games.paprika.accusations import accused
from dfc.games.paprika.customer_service import CustomerService, cases, check, mentions, proposals, tokens, topics
from dfc.games.paprika.murder_mystery import NO_ACCUSATION, Clue, MurderMystery, accusation
from dfc.games.paprika.world import GOAL, NOT_VALID, VALID
from dfc.games.rng import GameRng

# ---- Customer service -------------------------------------------------------------------------------------------

_WHAT = re.compile(  # asks for the complaint itself, which the agent has read
    r"\b(?:describe|explain|what exactly|what happens|what is the (?:problem|matter)|what's (?:the problem|wrong))\b",
    re.IGNORECASE | re.ASCII,
)
_HELPLESS = re.compile(r"\b(?:restart|reboot|reset|off and on|on and off|repair|workshop|replace|reinstall)", re.ASCII)


def _solves(game: CustomerService) -> bool:
    """Whether the agent's last message proposes the remedy; one that proposes several never comes here."""
    scenario = with_facts(game)
    return [cases(scenario.group)[number] for number in proposals(game.asked, scenario.group)] == [scenario]


def _customer(game: CustomerService, _seat: int, _chance: GameRng) -> str:
    """Says what is found; an honest "did not help" to other remedies; that it does not understand, to the rest."""
    if _solves(game):
        return GOAL
    scenario = with_facts(game)
    proposed = proposals(game.asked, scenario.group)
    said = game.asked
    listed = {check(topic): topic for topic in topics(scenario.group)}
    if said in listed:
        return str(scenario.facts["checks"][listed[said]])
    if proposed or _HELPLESS.search(said.lower()):
        return "I have tried that, but it did not help."
    spoken = tokens(said)
    hits = {topic: sum(_weight(word, spoken) for word in words) for topic, words in topics(scenario.group).items()}
    best = [topic for topic in sorted(hits, key=lambda t: -hits[t]) if hits[topic]][:2]
    if best:
        return " ".join(scenario.facts["checks"][topic] for topic in best)
    return f"As I said: {scenario.briefing}" if _WHAT.search(said) else "I do not know. What should I look at?"


def _weight(word: str, spoken: list[str]) -> int:
    """Returns how much a word of a topic or clue counts: said as it is, more than as the beginning of another."""
    return 2 if word in spoken else int(mentions(word, spoken))


def _judge_remedy(game: CustomerService, _seat: int, _chance: GameRng) -> str:
    """VALID if and only if the agent's last message proposes the remedy."""
    return VALID if _solves(game) else NOT_VALID


def _unused(game: CustomerService) -> list[str]:
    actions = game.legal_actions()
    return [action for action in actions if action not in game.used] or actions


def _fitting(game: CustomerService) -> list[Mapping[str, Any]]:
    """Returns the facts of the cases of the domain that fit all findings so far and whose remedy was not said."""
    scenario = with_facts(game)
    told = {topic: scenario.facts["checks"][topic] for topic in game.seen}
    return [
        case.facts
        for case in cases(scenario.group)
        if case.facts["remedy"] not in game.used and all(case.facts["checks"][t] == told[t] for t in told)
    ]


def _simple_agent(game: CustomerService, _seat: int, rng: GameRng) -> str:
    """Asks about every topic in any order, then proposes any remedy that fits the findings."""
    scenario, actions = game.scenario, []
    if scenario is not None and scenario.facts:
        actions = [check(topic) for topic in topics(scenario.group) if check(topic) not in game.used]
        actions = actions or [str(facts["remedy"]) for facts in _fitting(game)]
    actions = actions or _unused(game)
    return any_of(actions, rng)


def _strong_agent(game: CustomerService, seat: int, rng: GameRng) -> str:
    """Asks what splits the cases of the domain best that fit all findings; proposes the remedy when one is left.

    The complaint, which would name the case at once, is not used.
    """
    scenario = game.scenario
    if scenario is None or not scenario.facts:
        return _simple_agent(game, seat, rng)
    left = _fitting(game)
    if not left:
        return _simple_agent(game, seat, rng)

    def remaining(topic: str) -> int:
        """The sum over the cases of how many fit the same finding."""
        findings = [facts["checks"][topic] for facts in left]
        return sum(findings.count(finding) for finding in findings)

    open_topics = [topic for topic in topics(scenario.group) if check(topic) not in game.used]
    best = min(open_topics, key=remaining, default=None)
    if len(left) == 1 or best is None or remaining(best) == len(left) ** 2:
        return str(left[0]["remedy"])
    return check(best)


# ---- Murder mystery ---------------------------------------------------------------------------------------------

_ALIBI = re.compile(r"\b(?:alibi|verif|confirm|check|whereabouts|witness|vouch)", re.ASCII)
_ASKING = re.compile(
    r"\b(?:ask|question|interview|interrogate|talk|speak|where were|did you)"
    r"|^(?:did|does|do|was|is|has|had|where|what|why|how)\b",
    re.ASCII,
)
_WHETHER = re.compile(r"^(?:does|do|has|had)\b", re.ASCII)
_SEEN = re.compile(
    r"\b(?:any(?:one|body)|some(?:one|body)|who|witness(?:es)?)\b.{0,20}\b(?:see|saw|seen|hear|heard)\b", re.ASCII
)
_SEARCHING = re.compile(r"^(?:\w+ )?(?:search|inspect|examine|look|investigate|analy[sz]e|test|check)\b", re.ASCII)
_AROUND = re.compile(r"\b(?:around|about|scene|room|clues?|area|place|everything|evidence)\b", re.ASCII)
_SIMPLE_LOOKS = 6  # things that the simple detective looks at before it accuses


def _narrator(game: MurderMystery, _seat: int, _chance: GameRng) -> str:
    """Tells the clue that the agent's words ask for; a neutral sentence where they ask for none."""
    facts = with_facts(game).facts
    blamed = accused(game.asked, facts["suspects"])
    if blamed and (game.accusations == 1 or blamed == {facts["culprit"]}):
        return GOAL
    if blamed:
        return "The evidence does not support this."
    clue = _asked_for(game.asked, facts["clues"], facts["suspects"])
    if clue is not None:
        return clue.text
    text = game.asked.lower()
    if _SEARCHING.search(text) and _AROUND.search(text) and not _first_named(game.asked, facts["suspects"]):
        things = [clue.subject for clue in facts["clues"] if clue.kind == "thing"]
        return f"There is this to look at: the {', the '.join(things)}."
    return "Nothing of note comes of it."


def _asked_for(said: str, clues: tuple[Clue, ...], suspects: tuple[str, ...]) -> Clue | None:
    """Returns the clue that words ask for: of a suspect who is named and what is asked about, else of a thing."""
    listed = next((clue for clue in clues if clue.action == said), None)
    if listed is not None:
        return listed
    named, text = _first_named(said, suspects), said.lower()
    things = [clue for clue in clues if clue.kind == "thing"]
    owned = re.search(r"'s (.*)", said)
    about = owned[1] if owned and _SEARCHING.search(text) else said if _WHETHER.search(text) else ""
    found = None
    if named and about and not _ALIBI.search(about.lower()):  # "Check Ann's gloves", "Does Ann have debts?"
        plain = tokens(" ".join(word for word in about.split() if word.islower()))  # without the names of people
        found = _best(things, [sum(word in plain for word in clue.words) for clue in things])
    kind = "alibi" if _SEEN.search(text) or _ALIBI.search(text) else "says" if _ASKING.search(text) else ""
    if found is None and not (named and kind):
        spoken = tokens(said)
        hits = [sum(_weight(word, spoken) for word in {*tokens(clue.subject), *clue.words}) for clue in things]
        found = _best(things, hits)
        kind = "" if _SEARCHING.search(text) else "says"  # a search that finds nothing is no talk
    return found or next((clue for clue in clues if (clue.kind, clue.subject) == (kind, named)), None)


def _best(clues: list[Clue], hits: list[int]) -> Clue | None:
    """Returns the first clue with the most hits; None where there are none."""
    return clues[hits.index(max(hits))] if max(hits, default=0) else None


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


def _judge_accusation(game: MurderMystery, _seat: int, _chance: GameRng) -> str:
    """Says what the rules read as well: whether the agent's last message accuses the culprit alone, others, nobody."""
    facts = with_facts(game).facts
    blamed = accused(game.asked, facts["suspects"])
    if not blamed:
        return NO_ACCUSATION
    return VALID if blamed == {facts["culprit"]} else NOT_VALID


def _evidence(game: MurderMystery) -> tuple[list[str], dict[str, int], list[str]]:
    """Returns the suspects that no clue so far clears, clues against each of them, and what is not yet done."""
    facts = {} if game.scenario is None else game.scenario.facts
    suspects, told = facts.get("suspects", ()), game.seen
    cleared = {clue.clears for clue in told}
    against = {name: sum(clue.against == name for clue in told) for name in suspects}
    tried = {name for name in suspects if accusation(name) in game.used}
    accusing = {accusation(name) for name in suspects}
    todo = [action for action in game.legal_actions() if action not in accusing and action not in game.used]
    return [name for name in suspects if name not in cleared | tried], against, todo


def _simple_detective(game: MurderMystery, _seat: int, rng: GameRng) -> str:
    """Does six things at random, then accuses one of those whom nothing clears, at random."""
    suspects, _, todo = _evidence(game)
    if todo and (len(game.used) < _SIMPLE_LOOKS or not suspects):
        return any_of(todo, rng)
    return any_of([accusation(name) for name in suspects] or game.legal_actions(), rng)


def _strong_detective(game: MurderMystery, _seat: int, rng: GameRng) -> str:
    """Checks alibis, then things, then asks; accuses the only one left, or who has two clues against him.

    It understands each clue that it was told, by what `Clue` says of it, and looks at no other.
    """
    suspects, against, todo = _evidence(game)
    certain = [name for name in suspects if against[name] >= 2]
    last_turn = game.actions_played == game.max_turns - 1
    if suspects and (len(suspects) == 1 or certain or last_turn or not todo):
        return accusation(max(certain or suspects, key=lambda name: against[name]))
    if not todo:
        return any_of(game.legal_actions(), rng)
    order = ("Check", "Inspect", "Question")
    return min(todo, key=lambda action: order.index(action.split()[0]) if action.split()[0] in order else len(order))


BOTS = (
    GameBots(CustomerService, _simple_agent, _strong_agent, {"world": _customer, "judge": _judge_remedy}),
    GameBots(MurderMystery, _simple_detective, _strong_detective, {"world": _narrator, "judge": _judge_accusation}),
)
