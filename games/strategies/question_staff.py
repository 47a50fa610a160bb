"""World and judge of Twenty Questions and Guess My City: they answer from the scenario's facts.

Which candidates of the pool some words name, and whether as a guess, is read by `dfc.games.paprika.candidates`, which
knows the pool and not the secret. So an answer depends on the secret in two ways only: by the table of its facts, and
by the one candidate that is guessed. Words that name several candidates are answered by the games themselves.
"""

import functools
import re
from collections.abc import Iterable, Mapping

from dfc.games.chance import Chance
from dfc.games.paprika import guess_my_city, twenty_questions
from dfc.games.paprika.candidates import ARTICLES, Pool, Reading, read
from dfc.games.paprika.guess_my_city import GuessMyCity, places, read_places
from dfc.games.paprika.scenario import Scenario
from dfc.games.paprika.twenty_questions import TwentyQuestions, key_of, read_topics
from dfc.games.paprika.world import GOAL, NOT_VALID, VALID, World, fold, words_of

_LONGEST_PHRASE = 7  # words
_ASKS_BACK = re.compile(r"^[a-z]{1,6}n't ")

# ---- words ------------------------------------------------------------------------------------------------------


def _words(text: str) -> list[str]:
    """Returns the words of a text, without accents, articles and the s of a plural."""
    words = words_of(fold(text).replace("'", ""))
    return [
        w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w for w in words if w not in ARTICLES
    ]


def _phrases(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {" ".join(_words(phrase)): meaning for phrase, meaning in pairs}


def _found(text: str, phrases: Mapping[str, str]) -> list[str]:
    """Returns the meanings of the phrases in a text, each once, in order; the longest phrase at a place counts."""
    words = _words(text)
    found: dict[str, None] = {}
    at = 0
    while at < len(words):
        for length in range(min(_LONGEST_PHRASE, len(words) - at), 0, -1):
            meaning = phrases.get(" ".join(words[at : at + length]))
            if meaning is not None:
                found[meaning] = None
                at += length
                break
        else:
            at += 1
    return list(found)


# ---- Twenty Questions: world and judge --------------------------------------------------------------------------


@functools.cache
def _keys_by_phrase() -> dict[str, str]:
    pool = twenty_questions.topics()
    return _phrases((word, key) for key, words in pool.synonyms.items() for word in words)


@functools.cache
def _kinds() -> dict[str, Pool]:
    return {name: Pool([(name, name)], kind="") for name in twenty_questions.topics().by_category}


def answer_topic(game: TwentyQuestions, _seat: int, _chance: Chance) -> str:
    """Answers the questions of the table from it, free text by the words in it, all else with no.

    Several keys in one question must all hold, or one of them if it says "or"; "not" turns the answer round, but for
    questions that begin with it ("Isn't it big?"), where a yes means that it is big. The guess of another topic
    gets a no; a topic named in passing ("Is it like a tiger?") is a word like any other.
    """
    scenario = _with_facts(game)
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
    keys = _found(game.asked, _keys_by_phrase())
    if not keys:
        return "No"
    words = _ASKS_BACK.sub("", game.asked.lower().replace("\u2019", "'")).replace("n't", " not").split()
    holds = any(key in yes for key in keys) if "or" in words else all(key in yes for key in keys)
    return "Yes" if holds != ("not" in words) else "No"


def judge_topic(game: TwentyQuestions, _seat: int, _chance: Chance) -> str:
    """Valid if and only if the words name the topic or an alias as a guess, and no other topic of its category."""
    scenario = scenario_of(game)
    topics = read_topics(game.asked, scenario)
    return VALID if topics.guess and scenario.name in topics.named else NOT_VALID


# ---- Guess My City: world and judge -----------------------------------------------------------------------------

_ASKED = {  # words by which an open question is recognised
    guess_my_city.KNOWN: ("known for", "famous", "landmark", "sight", "popular", "attraction", "industry", "special"),
    guess_my_city.CONTINENT: ("continent", "which part of the world"),
    guess_my_city.LANGUAGE: ("language", "speak", "spoken"),
    guess_my_city.HEMISPHERE: ("hemisphere", "equator", "northern", "southern"),
    guess_my_city.COAST: ("coast", "coastal", "sea", "ocean", "beach", "port", "inland", "landlocked", "coastline"),
    guess_my_city.CAPITAL: ("capital",),
    guess_my_city.SIZE: ("population", "many people", "how big", "how large", "big", "large", "small", "million"),
    guess_my_city.CLIMATE: (
        "climate",
        "weather",
        "hot",
        "cold",
        "snow",
        "rain",
        "tropical",
        "desert",
        "winter",
        "warm",
    ),
}


@functools.cache
def _open_phrases() -> dict[str, str]:
    return _phrases((word, question) for question, words in _ASKED.items() for word in words)


@functools.cache
def _countries() -> dict[str, str]:
    return {guess_my_city.country_question(city.country): city.country for city in guess_my_city.cities()}


@functools.cache
def _values(question: str) -> dict[str, str]:
    """Returns all that answers of the pool name, by their words: continents or languages."""
    named = {value for city in guess_my_city.cities() for value in _named(question, city.answers[question])}
    return _phrases((value, value) for value in sorted(named))


def _named(question: str, answer: str) -> list[str]:
    """Returns the continent or the languages that an answer names."""
    start = len("It is on this continent: ") if question == guess_my_city.CONTINENT else len("Mainly ")
    return re.split(", | and ", answer[start:-1])


def answer_city(game: GuessMyCity, _seat: int, _chance: Chance) -> str:
    """Answers open questions from the facts, names of countries and cities by yes or no, all else with "cannot say".

    Of several things asked at once the first that is understood is answered.
    """
    scenario = _with_facts(game)
    answers, country = scenario.facts["answers"], scenario.facts["country"]
    if game.asked in answers:
        return str(answers[game.asked])
    if game.asked in _countries():
        return guess_my_city.IN_COUNTRY[country == _countries()[game.asked]]
    return _about_places(read_places(game.asked, scenario), scenario.name, country) or _about_words(game.asked, answers)


def _about_places(reading: Reading, city: str, country: str) -> str | None:
    """Returns the answer to words that name a place; None if there is none, or a city in passing ("near Rome")."""
    home = places().home
    for place in reading.named:
        if reading.guess and place in home:
            return GOAL if place == city else "No, it is another city."
        if place == home.get(place, place) or place == f"{home[place]}, {home[place]}":  # a country; the last is both
            return guess_my_city.IN_COUNTRY[country == home.get(place, place)]
    return None


def _about_words(asked: str, answers: Mapping[str, str]) -> str:
    for question in (guess_my_city.CONTINENT, guess_my_city.LANGUAGE):
        values = _found(asked, _values(question))
        if values:
            return "No." if set(values).isdisjoint(_named(question, answers[question])) else f"Yes. {answers[question]}"
    understood = _found(asked, _open_phrases())
    if understood:
        return answers[understood[0]]
    if {"name", "country"} & set(_words(asked)):
        return "I may not tell you names, but you can ask whether it is a certain one."
    return "I cannot say."


def judge_city(game: GuessMyCity, _seat: int, _chance: Chance) -> str:
    """Valid if and only if the words name the city or an alias as a guess, and no other city or country of the pool."""
    scenario = scenario_of(game)
    reading = read_places(game.asked, scenario)
    return VALID if reading.guess and scenario.name in reading.named else NOT_VALID


def scenario_of(game: World) -> Scenario:
    """Returns the scenario of a game.

    Raises:
      ValueError: the game has not begun.
    """
    if game.scenario is None:
        raise ValueError(f"{game.id}: no task before reset(); call reset(seed) first")
    return game.scenario


def _with_facts(game: World) -> Scenario:
    scenario = scenario_of(game)
    if not scenario.facts:
        raise ValueError(
            f"{game.id}: scenarios loaded from a file hold no facts, so no script can answer for their world; seat a "
            "chat model as world (an endpoint), or leave `scenarios` empty to play this package's own"
        )
    return scenario
