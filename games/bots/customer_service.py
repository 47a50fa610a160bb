"""Bots and simulators for customer service.

The simulators answer from `Scenario.facts`, by keywords in what the agent says. The agents use what they were told
(`seen`), what they have said (`used`), and what is public: the cases of a domain, the list of actions.
"""

import re
from collections.abc import Mapping
from typing import Any

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.bots.simulators import with_facts
from dfc.games.paprika.customer_service import CustomerService, cases, check, mentions, proposals, tokens, topics
from dfc.games.paprika.world import GOAL, NOT_VALID, VALID
from dfc.games.rng import GameRng

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
    """Returns how much a word of a topic counts: said as it is, more than as the beginning of another."""
    return 2 if word in spoken else int(mentions(word, spoken))


def _judge(game: CustomerService, _seat: int, _chance: GameRng) -> str:
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


def _simple(game: CustomerService, _seat: int, rng: GameRng) -> str:
    """Asks about every topic in any order, then proposes any remedy that fits the findings."""
    scenario, actions = game.scenario, []
    if scenario is not None and scenario.facts:
        actions = [check(topic) for topic in topics(scenario.group) if check(topic) not in game.used]
        actions = actions or [str(facts["remedy"]) for facts in _fitting(game)]
    actions = actions or _unused(game)
    return any_of(actions, rng)


def _strong(game: CustomerService, seat: int, rng: GameRng) -> str:
    """Asks what splits the cases of the domain best that fit all findings; proposes the remedy when one is left.

    The complaint, which would name the case at once, is not used.
    """
    scenario = game.scenario
    if scenario is None or not scenario.facts:
        return _simple(game, seat, rng)
    left = _fitting(game)
    if not left:
        return _simple(game, seat, rng)

    def remaining(topic: str) -> int:
        """The sum over the cases of how many fit the same finding."""
        findings = [facts["checks"][topic] for facts in left]
        return sum(findings.count(finding) for finding in findings)

    open_topics = [topic for topic in topics(scenario.group) if check(topic) not in game.used]
    best = min(open_topics, key=remaining, default=None)
    if len(left) == 1 or best is None or remaining(best) == len(left) ** 2:
        return str(left[0]["remedy"])
    return check(best)


BOTS = (GameBots(CustomerService, _simple, _strong, {"world": _customer, "judge": _judge}),)
