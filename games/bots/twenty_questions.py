"""Agents, world and judge of Twenty Questions; see `dfc.games.bots.questions` for what each knows."""

import functools

from dfc.games.bots.bot import GameBots
from dfc.games.bots.question_reader import read_question
from dfc.games.bots.questions import Table, masks_of, simple, strong
from dfc.games.bots.simulators import scenario_of, with_facts
from dfc.games.paprika import twenty_questions
from dfc.games.paprika.twenty_questions import Topic, TwentyQuestions, key_of, read_topics
from dfc.games.paprika.world import CANNOT_SAY, GOAL, NOT_VALID, VALID, World
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


def _answer(game: TwentyQuestions, _seat: int, _chance: GameRng) -> str:
    """Answers the questions of the table from it, free text by what is true of the topic, all else with "cannot say".

    A question of the table that tells no topics of the category apart is read as free text: there, a key that is not
    among the topic's may be one that nobody wrote down. The guess of another topic gets a no, but not where the
    topic may be one of them (`_is_a_kind_of`); one that is named in passing ("Is it like a tiger?") is a word like any
    other.
    """
    scenario = with_facts(game)
    named = read_topics(game.asked, scenario)
    if named.guess and scenario.name in named.named:
        return GOAL
    if named.guess:
        return CANNOT_SAY if _is_a_kind_of(scenario.facts["topic"], named.named[0]) else "No"
    pool, category = twenty_questions.topics(), scenario.facts["category"]
    listed = key_of(game.asked)
    if listed in scenario.facts["yes"]:
        return "Yes"
    if listed in pool.varying[category]:
        return "No"
    reading = read_question(game.asked)
    said = None if reading is None else reading.of(scenario.facts["topic"])
    return CANNOT_SAY if said is None else "Yes" if said else "No"


@functools.cache
def _is_a_kind_of(topic: Topic, other: str) -> bool:
    """Returns whether a topic may be one of another by its name: a school bus is a bus, a guinea pig is no pig."""
    pool = twenty_questions.topics().by_category[topic.category]
    called = next(((each.name, *each.aliases) for each in pool if each.name == other), ())
    return " of " not in topic.name and any(topic.name.lower().endswith(f" {name.lower()}") for name in called)


def _judge(game: TwentyQuestions, _seat: int, _chance: GameRng) -> str:
    """Valid if and only if the words name the topic or an alias as a guess, and no other topic of its category."""
    scenario = scenario_of(game)
    topics = read_topics(game.asked, scenario)
    return VALID if topics.guess and scenario.name in topics.named else NOT_VALID


BOTS = (GameBots(TwentyQuestions, simple(_table_of), strong(_table_of), {"world": _answer, "judge": _judge}),)
