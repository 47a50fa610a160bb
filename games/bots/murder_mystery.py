"""Bots and simulators for murder mystery.

The simulators answer from `Scenario.facts`, by keywords in what the agent says. The agents use what they were told
(`seen`), what they have said (`used`), and what is public: the list of actions.
"""

import functools
import re

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.bots.simulators import with_facts
from dfc.games.paprika.accusations import accused
from dfc.games.paprika.customer_service import mentions, tokens
from dfc.games.paprika.murder_mystery import NO_ACCUSATION, Clue, MurderMystery, accusation
from dfc.games.paprika.world import GOAL, NOT_VALID, VALID
from dfc.games.rng import GameRng

_ALIBI = re.compile(r"\b(?:alibi|verif|confirm|check|whereabouts|witness|vouch)", re.ASCII)
_ASKING = re.compile(r"\b(?:ask|question|interview|interrogate|talk|speak|where were|did you)", re.ASCII)
_SIMPLE_LOOKS = 6  # things that the simple detective looks at before it accuses


def _narrator(game: MurderMystery, _seat: int, _chance: GameRng) -> str:
    """Tells the clue that the agent's words ask for; that nothing comes of it, where they ask for none."""
    facts = with_facts(game).facts
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


def _judge(game: MurderMystery, _seat: int, _chance: GameRng) -> str:
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


def _simple(game: MurderMystery, _seat: int, rng: GameRng) -> str:
    """Does six things at random, then accuses one of those whom nothing clears, at random."""
    suspects, _, todo = _evidence(game)
    if todo and (len(game.used) < _SIMPLE_LOOKS or not suspects):
        return any_of(todo, rng)
    return any_of([accusation(name) for name in suspects] or game.legal_actions(), rng)


def _strong(game: MurderMystery, _seat: int, rng: GameRng) -> str:
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


BOTS = (GameBots(MurderMystery, _simple, _strong, {"world": _narrator, "judge": _judge}),)
