"""Agents, world and judge of Twenty Questions; see `dfc.games.bots.questions` for what each knows."""

import functools
import re

from dfc.games.bots.bot import GameBots
from dfc.games.bots.questions import Table, masks_of, simple, strong
from dfc.games.bots.simulators import meanings, phrase_table, scenario_of, with_facts
from dfc.games.paprika import twenty_questions
from dfc.games.paprika.candidates import Pool, read
from dfc.games.paprika.twenty_questions import TwentyQuestions, key_of, read_topics
from dfc.games.paprika.world import GOAL, NOT_VALID, VALID, World
from dfc.games.rng import GameRng

# ---- agents -----------------------------------------------------------------------------------------------------


@functools.cache
def _table(category: str) -> Table:
    pool = twenty_questions.topics()
    found = pool.by_category.get(category, ())
    keys = pool.varying.get(category, ())
    rows = (((pool.questions[key], "Yes" if key in topic.yes else "No") for key in keys) for topic in found)
    return Table(tuple(map(twenty_questions.guess, found)), masks_of(rows))


def _table_of(game: World) -> Table:
    return _table(scenario_of(game).briefing)


# ---- world and judge --------------------------------------------------------------------------------------------

_ASKS_BACK = re.compile(r"^[a-z]{1,6}n't ")


@functools.cache
def _keys_by_phrase() -> dict[str, str]:
    pool = twenty_questions.topics()
    return phrase_table((word, key) for key, words in pool.synonyms.items() for word in words)


@functools.cache
def _kinds() -> dict[str, Pool]:
    return {name: Pool([(name, name)], kind="") for name in twenty_questions.topics().by_category}


def _answer(game: TwentyQuestions, _seat: int, _chance: GameRng) -> str:
    """Answers the questions of the table from it, free text by the words in it, all else with no.

    Several keys in one question must all hold, or one of them if it says "or"; "not" turns the answer round, but for
    questions that begin with it ("Isn't it big?"), where a yes means that it is big. The guess of another topic
    gets a no; a topic named in passing ("Is it like a tiger?") is a word like any other.
    """
    scenario = with_facts(game)
    yes, category = scenario.facts["yes"], scenario.facts["category"]
    topics = read_topics(game.asked, scenario)
    if topics.guess:
        return GOAL if scenario.name in topics.named else "No"
    listed = key_of(game.asked)
    if listed is not None:
        return "Yes" if listed in yes else "No"
    kinds = [name for name, pool in _kinds().items() if read(game.asked, pool).guess]
    if kinds:
        return "Yes" if category in kinds else "No"
    keys = meanings(game.asked, _keys_by_phrase())
    if not keys:
        return "No"
    words = _ASKS_BACK.sub("", game.asked.lower().replace("\u2019", "'")).replace("n't", " not").split()
    holds = any(key in yes for key in keys) if "or" in words else all(key in yes for key in keys)
    return "Yes" if holds != ("not" in words) else "No"


def _judge(game: TwentyQuestions, _seat: int, _chance: GameRng) -> str:
    """Valid if and only if the words name the topic or an alias as a guess, and no other topic of its category."""
    scenario = scenario_of(game)
    topics = read_topics(game.asked, scenario)
    return VALID if topics.guess and scenario.name in topics.named else NOT_VALID


BOTS = (GameBots(TwentyQuestions, simple(_table_of), strong(_table_of), {"world": _answer, "judge": _judge}),)
