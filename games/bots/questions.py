"""Agents, world and judge of Twenty Questions and Guess My City.

The agents know what everybody may know, the pool of topics or cities of both splits with the table of answers, and
what they have heard (`World.heard`); not the secret.

World and judge answer from the scenario's facts. Which candidates of the pool some words name, and whether as a guess,
is read by `dfc.games.paprika.candidates`, which knows the pool and not the secret. So an answer depends on the secret
in two ways only: by its facts, and by the one candidate that is guessed. Words that name several
candidates are answered by the games themselves.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping

from dfc.games.bots.bot import GameBots, any_of, any_of_the_best, entropy
from dfc.games.bots.city_answers import about_words
from dfc.games.bots.question_reader import read_question
from dfc.games.bots.simulators import scenario_of, with_facts
from dfc.games.paprika import guess_my_city, twenty_questions
from dfc.games.paprika.candidates import GuessReading
from dfc.games.paprika.guess_my_city import GuessMyCity, places, read_places
from dfc.games.paprika.twenty_questions import Topic, TwentyQuestions, key_of, read_topics
from dfc.games.paprika.world import CANNOT_SAY, GOAL, NOT_VALID, VALID, World
from dfc.games.rng import GameRng

# ---- Both -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Table:
    """What an agent can ask, and which secrets give which answer; a set of secrets is a number with a bit for each.

    Attributes:
      guesses: the question that names each secret.
      masks: by question, by answer, the secrets that give it.
    """

    guesses: tuple[str, ...]
    masks: Mapping[str, Mapping[str, int]]

    def left(self, heard: Iterable[tuple[str, str]]) -> int:
        """Returns the secrets that agree with what was heard; all of them again where none does.

        Of a reply that is none of the known answers, "yes" or "no" at its beginning counts, and else nothing.
        """
        everything = left = (1 << len(self.guesses)) - 1
        named = {question: number for number, question in enumerate(self.guesses)}
        for question, reply in heard:
            if question in named:
                left &= ~(1 << named[question])
                continue
            answers = self.masks.get(question)
            if answers is None:
                continue
            if reply in answers:
                left &= answers[reply]
                continue
            first = reply[:3].lower().rstrip(".,! ")
            if first in {"yes", "no"}:
                alike = [mask for answer, mask in answers.items() if answer.lower().startswith(first)]
                left &= alike[0] if alike else everything
        return left or everything

    def splitting(self, left: int) -> list[tuple[float, str]]:
        """Returns the questions that tell some of these secrets apart, with what their answer tells, in nats."""
        found = []
        for question, answers in self.masks.items():
            counts = [count for mask in answers.values() if (count := (mask & left).bit_count())]
            if len(counts) > 1:
                found.append((entropy(counts), question))
        return found


def masks_of(rows: Iterable[Iterable[tuple[str, str]]]) -> dict[str, dict[str, int]]:
    """Returns `Table.masks` from the (question, answer) pairs of each secret."""
    masks: dict[str, dict[str, int]] = {}
    for number, row in enumerate(rows):
        for question, answer in row:
            answers = masks.setdefault(question, {})
            answers[answer] = answers.get(answer, 0) | 1 << number
    return masks


def simple(table_of: Callable[[World], Table]) -> Callable[[World, int, GameRng], str]:
    """Returns the simple bot of a game whose table `table_of` gives."""

    def choose(game: World, _seat: int, rng: GameRng) -> str:
        """Half of its turns it asks at random what can still tell something, then it guesses what agrees."""
        table = table_of(game)
        if not table.guesses:
            return any_of(game.legal_actions(), rng)  # of a pool that is not ours nothing is known
        left = table.left(game.heard)
        splitting = table.splitting(left)
        if splitting and 2 * len(game.heard) < game.max_turns:
            return any_of(splitting, rng)[1]
        return _any_guess(table, left, rng)

    return choose


def strong(table_of: Callable[[World], Table]) -> Callable[[World, int, GameRng], str]:
    """Returns the strong bot of a game whose table `table_of` gives."""

    def choose(game: World, _seat: int, rng: GameRng) -> str:
        """It asks the question whose answer tells most; with two secrets left, or none to ask, it guesses."""
        table = table_of(game)
        if not table.guesses:
            return any_of(game.legal_actions(), rng)  # of a pool that is not ours nothing is known
        left = table.left(game.heard)
        splitting = table.splitting(left) if left.bit_count() > 2 else []
        if splitting and len(game.heard) + 1 < game.max_turns:
            return any_of_the_best(splitting, [told for told, _ in splitting], rng)[1]
        return _any_guess(table, left, rng)

    return choose


def _any_guess(table: Table, left: int, rng: GameRng) -> str:
    return any_of([guess for number, guess in enumerate(table.guesses) if left >> number & 1], rng)


# ---- Twenty Questions: agents -----------------------------------------------------------------------------------


@functools.cache
def _topic_table(category: str) -> Table:
    pool = twenty_questions.topics()
    found = pool.by_category.get(category, ())
    keys = pool.varying.get(category, ())
    rows = (((pool.questions[key], "Yes" if key in topic.yes else "No") for key in keys) for topic in found)
    return Table(tuple(map(twenty_questions.guess, found)), masks_of(rows))


def _topics_of(game: World) -> Table:
    return _topic_table(scenario_of(game).briefing)


# ---- Twenty Questions: world and judge --------------------------------------------------------------------------


def _answer_topic(game: TwentyQuestions, _seat: int, _chance: GameRng) -> str:
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


def _judge_topic(game: TwentyQuestions, _seat: int, _chance: GameRng) -> str:
    """Valid if and only if the words name the topic or an alias as a guess, and no other topic of its category."""
    scenario = scenario_of(game)
    topics = read_topics(game.asked, scenario)
    return VALID if topics.guess and scenario.name in topics.named else NOT_VALID


# ---- Guess My City: agents --------------------------------------------------------------------------------------


@functools.cache
def _city_table() -> Table:
    found = guess_my_city.cities()
    told = guess_my_city.OPEN[:-1]  # what a city is known for must be read; it would tell nearly every city at once
    masks = masks_of(((question, city.answers[question]) for question in told) for city in found)
    everything = (1 << len(found)) - 1
    for number, city in enumerate(found):
        answers = masks.setdefault(guess_my_city.country_question(city.country), {guess_my_city.IN_COUNTRY[True]: 0})
        answers[guess_my_city.IN_COUNTRY[True]] |= 1 << number
        answers[guess_my_city.IN_COUNTRY[False]] = everything & ~answers[guess_my_city.IN_COUNTRY[True]]
    return Table(tuple(map(guess_my_city.guess, found)), masks)


def _cities_of(_game: World) -> Table:
    return _city_table()


# ---- Guess My City: world and judge -----------------------------------------------------------------------------


@functools.cache
def _countries() -> dict[str, str]:
    return {guess_my_city.country_question(city.country): city.country for city in guess_my_city.cities()}


def _answer_city(game: GuessMyCity, _seat: int, _chance: GameRng) -> str:
    """Answers listed questions from the facts, names of places by yes or no, other words by `about_words`."""
    scenario = with_facts(game)
    answers, country = scenario.facts["answers"], scenario.facts["country"]
    if game.asked in answers:
        return str(answers[game.asked])
    if game.asked in _countries():
        return guess_my_city.IN_COUNTRY[country == _countries()[game.asked]]
    return _about_places(read_places(game.asked, scenario), scenario.name, country) or about_words(
        game.asked, scenario.facts
    )


def _about_places(reading: GuessReading, city: str, country: str) -> str | None:
    """Returns the answer to words that name a place; None if there is none, or a city in passing ("near Rome")."""
    home = places().home
    for place in reading.named:
        if reading.guess and place in home:
            return GOAL if place == city else "No, it is another city."
        if place == home.get(place, place) or place == f"{home[place]}, {home[place]}":  # a country; the last is both
            return guess_my_city.IN_COUNTRY[country == home.get(place, place)]
    return None


def _judge_city(game: GuessMyCity, _seat: int, _chance: GameRng) -> str:
    """Valid if and only if the words name the city or an alias as a guess, and no other city or country of the pool."""
    scenario = scenario_of(game)
    reading = read_places(game.asked, scenario)
    return VALID if reading.guess and scenario.name in reading.named else NOT_VALID


BOTS = (
    GameBots(TwentyQuestions, simple(_topics_of), strong(_topics_of), {"world": _answer_topic, "judge": _judge_topic}),
    GameBots(GuessMyCity, simple(_cities_of), strong(_cities_of), {"world": _answer_city, "judge": _judge_city}),
)
