"""Strategies and scripted staff for the two Paprika groups of cases: customer service and murder mystery.

The staff answers from `Scenario.facts`, by keywords in what the agent says. The agents use what they were told
(`seen`), what they have said (`used`), and what is public: the cases of a domain, the list of actions.
"""

import functools
import itertools
import re
from collections.abc import Iterable

from dfc.games.chance import Chance
from dfc.games.paprika.customer_service import CustomerService, cases, check, topics
from dfc.games.paprika.murder_mystery import Clue, MurderMystery, accusation, accused
from dfc.games.paprika.scenario import Scenario
from dfc.games.paprika.world import GOAL, NOT_VALID, VALID
from dfc.games.strategies.strategy import Strategies

_TOKEN = re.compile(r"[a-z0-9](?:[a-z0-9.'-]*[a-z0-9])?")
_NEGATIONS = frozenset({"not", "don't", "dont", "never", "no", "without", "cannot", "can't"})
_IN_PLACE_OF = frozenset({("instead", "of"), ("rather", "than")})
_PREFIX = 4  # a word of so many letters is recognised at the start of a longer one: "clean" in "cleaning"


def _facts(scenario: Scenario | None) -> Scenario:
    if scenario is None or not scenario.facts:
        raise ValueError(
            "the scripted staff answers only for scenarios with facts, which are those of this package; seat a chat "
            "model as world and judge for scenarios from a file"
        )
    return scenario


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text.lower())


def _mentions(word: str, tokens: Iterable[str]) -> bool:
    if len(word) < _PREFIX:
        return any(token in (word, f"{word}s") for token in tokens)
    return any(token.startswith(word) for token in tokens)


# ---- customer service -----------------------------------------------------------------------------------------------


_LOOKING = re.compile(
    r"(?:tell me|describe)\b|(?:is|are|does|do you|what(?! about)|when|which|where|how(?! about)|has|was|were)\b.*\?$",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)


def proposals(text: str, domain: str) -> list[int]:
    """Returns which remedies of a domain a text proposes, as numbers in `cases(domain)`.

    A remedy is proposed where one sentence holds all words of one of its keys; up to three words behind a negation or
    "instead of" do not count. A sentence that asks how things are proposes nothing; "Have you tried", "Could you",
    "What about" do.
    """
    found = []
    sentences = [part for part in re.split(r"(?<=[.!?;])\s", text.strip()) if not _LOOKING.match(part)]
    affirmed = [[word for clause in part.split(",") for word in _affirmed(_tokens(clause))] for part in sentences]
    for number, case in enumerate(cases(domain)):
        keys = case.facts["keys"]
        if any(all(_mentions(word, said) for word in key) for said in affirmed for key in keys):
            found.append(number)
    return found


def _affirmed(tokens: list[str]) -> list[str]:
    negated = [i for i, token in enumerate(tokens) if token in _NEGATIONS]
    negated += [i for i, pair in enumerate(itertools.pairwise(tokens), 1) if pair in _IN_PLACE_OF]
    denied = {j for i in negated for j in range(i, i + 4)}
    return [token for i, token in enumerate(tokens) if i not in denied]


def _solves(game: CustomerService) -> bool:
    """Whether the agent's last message proposes the remedy, and not three at once."""
    scenario = _facts(game.scenario)
    proposed = proposals(game.asked, scenario.group)
    return len(proposed) <= 2 and any(cases(scenario.group)[number] is scenario for number in proposed)


_HELPLESS = re.compile(r"\b(?:restart|reboot|reset|off and on|on and off|repair|workshop|replace|reinstall)", re.ASCII)


def _customer(game: CustomerService, _seat: int, _chance: Chance) -> str:
    """Says what is found; an honest "did not help" to other remedies; that it does not understand, to the rest."""
    if _solves(game):
        return GOAL
    scenario = _facts(game.scenario)
    proposed = proposals(game.asked, scenario.group)
    if len(proposed) > 2:
        return "That is a lot at once. One thing at a time, please."
    said = game.asked
    listed = {check(topic): topic for topic in topics(scenario.group)}
    if said in listed:
        return str(scenario.facts["checks"][listed[said]])
    if proposed or _HELPLESS.search(said.lower()):
        return "I have tried that, but it did not help."
    tokens = _tokens(said)
    hits = {t: sum(_mentions(word, tokens) for word in words) for t, words in topics(scenario.group).items()}
    best = [topic for topic in sorted(hits, key=lambda t: -hits[t]) if hits[topic]][:2]
    return " ".join(scenario.facts["checks"][topic] for topic in best) or "I do not know. What should I look at?"


def _service_judge(game: CustomerService, _seat: int, _chance: Chance) -> str:
    """VALID if and only if the agent's last message proposes the remedy and at most one other."""
    return VALID if _solves(game) else NOT_VALID


def _unused(game: CustomerService | MurderMystery) -> list[str]:
    actions = game.legal_actions()
    return [action for action in actions if action not in game.used] or actions


def _simple_service(game: CustomerService, _seat: int, chance: Chance) -> str:
    """Says any listed sentence that it has not said before."""
    actions = _unused(game)
    return actions[chance.below(len(actions))]


def _strong_service(game: CustomerService, seat: int, chance: Chance) -> str:
    """Asks what splits the cases of the domain best that fit all findings; proposes the remedy when one is left.

    The complaint, which would name the case at once, is not used.
    """
    scenario = game.scenario
    if scenario is None or not scenario.facts:
        return _simple_service(game, seat, chance)
    told = {topic: scenario.facts["checks"][topic] for topic in game.seen}
    left = [
        case.facts
        for case in cases(scenario.group)
        if case.facts["remedy"] not in game.used and all(case.facts["checks"][t] == told[t] for t in told)
    ]
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
    tokens = _tokens(said)
    things = [clue for clue in clues if clue.kind == "thing"]
    hits = [sum(_mentions(word, tokens) for word in {*_tokens(clue.subject), *clue.words}) for clue in things]
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
    """VALID if and only if the agent's last message accuses the culprit and nobody else."""
    facts = _facts(game.scenario).facts
    return VALID if accused(game.asked, facts["suspects"]) == {facts["culprit"]} else NOT_VALID


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
