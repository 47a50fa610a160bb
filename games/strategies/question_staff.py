"""World and judge of Twenty Questions and Guess My City: they answer from the scenario's facts."""

import functools
import re
from collections.abc import Iterable, Mapping

from dfc.games.chance import Chance
from dfc.games.paprika import guess_my_city, twenty_questions
from dfc.games.paprika.guess_my_city import GuessMyCity
from dfc.games.paprika.scenario import Scenario
from dfc.games.paprika.twenty_questions import TwentyQuestions
from dfc.games.paprika.world import GOAL, NOT_VALID, VALID, World, fold

_WORD = re.compile(r"[^\W_]+")
_LONGEST_PHRASE = 7  # words
_ARTICLES = frozenset(("a", "an", "the"))
_ASKS_BACK = re.compile(r"^[a-z]{1,6}n't ")

# ---- words ------------------------------------------------------------------------------------------------------


def _words(text: str) -> list[str]:
    """Returns the words of a text, without accents, articles and the s of a plural."""
    words = _WORD.findall(fold(text).replace("'", ""))
    return [
        w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w for w in words if w not in _ARTICLES
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


@functools.lru_cache(maxsize=4096)
def _guessing(names: tuple[str, ...], kind: str, country: str) -> re.Pattern[str]:
    """Returns what finds one of the names as a guess: "is it a X?", "my guess is X.", "X!"; not "bigger than a X"."""
    singular = [re.sub(r"(?<=\w\w\w[^suoi])s$", "", fold(name)) for name in names]  # "a glove" names gloves
    name = "|".join(filter(None, map(_spelled, singular))) or "(?!)"
    leads = ["it", "is", "was", "be", "guess", "answer", "topic", "say", "mean", "called", "thinking of"]
    leads += ["this", "that", "these", "those", "they", *([kind] if kind else [])]
    if kind == "city":
        leads += ["come from", "you from", "are from", "re from", "live in"]  # not "far from", "south from"
    before = rf"(?:^|[.;:!?,\"(]|(?<![^\W_])(?:{'|'.join(map(_spelled, leads))}))"
    article = r"[\s\"'*(]{0,4}(?:(?:an?|the)\s{1,4})?[\"'*(]{0,4}"
    ends = ["because", "since", "given", "based", "the"]
    if kind == "city":
        ends += ["in", *([country] if country else [])]
    behind = rf"(?:e?s)?(?![^\W_])[\s\"'*)]{{0,4}}(?=$|[.,;:!?)]|(?:{'|'.join(map(_spelled, ends))})(?![^\W_]))"
    return re.compile(f"{before}{article}(?:{name}){behind}")


def _spelled(name: str) -> str:
    """Returns a pattern of a name's words with whatever may stand between them."""
    return r"[\W_]+".join(map(re.escape, _WORD.findall(fold(name))))


def _names_it(scenario: Scenario, asked: str, kind: str, country: str, pool: Mapping[str, str]) -> bool:
    """Whether words name the secret as their guess, and no other name of the pool but its country's."""
    others = set(_found(asked, pool)) - {scenario.name, country}
    return not others and _guessing(scenario.names, kind, country).search(fold(asked)) is not None


# ---- Twenty Questions: world and judge --------------------------------------------------------------------------


@functools.cache
def _keys_by_question() -> dict[str, str]:
    return {question: key for key, question in twenty_questions.topics().questions.items()}


@functools.cache
def _keys_by_phrase() -> dict[str, str]:
    pool = twenty_questions.topics()
    return _phrases((word, key) for key, words in pool.synonyms.items() for word in words)


@functools.cache
def _topic_names(category: str) -> dict[str, str]:
    found = twenty_questions.topics().by_category.get(category, ())
    return _phrases((name, topic.name) for topic in found for name in (topic.name, *topic.aliases))


def _names_topic(game: TwentyQuestions) -> bool:
    scenario = scenario_of(game)
    return _names_it(scenario, game.asked, scenario.briefing, "", _topic_names(scenario.briefing))


@functools.cache
def _kinds() -> dict[str, str]:
    return _phrases((name, name) for name in twenty_questions.topics().by_category)


def _is_guess(asked: str, name: str) -> bool:
    return _guessing((name,), "", "").search(fold(asked)) is not None


def answer_topic(game: TwentyQuestions, _seat: int, _chance: Chance) -> str:
    """Answers the questions of the table from it, free text by the words in it, all else with no.

    Several keys in one question must all hold, or one of them if it says "or"; "not" turns the answer round, but for
    questions that begin with it ("Isn't it big?"), where a yes means that it is big.
    """
    scenario = _with_facts(game)
    yes, category = scenario.facts["yes"], scenario.facts["category"]
    key = _keys_by_question().get(game.asked)
    if key is not None:
        return "Yes" if key in yes else "No"
    if _names_topic(game):
        return GOAL
    for name in _found(game.asked, _topic_names(category)):
        if name == scenario.name or _is_guess(game.asked, name):
            return "No"  # the secret in a comparison or among others, or another topic
    kinds = [name for name in _found(game.asked, _kinds()) if _is_guess(game.asked, name)]
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
    return VALID if _names_topic(game) else NOT_VALID


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
def _places() -> dict[str, str]:
    """Returns by name every country and city, a city as its full name; of one name for both, the city."""
    found = guess_my_city.cities()
    countries = _phrases((country, country) for country in _countries().values())
    return countries | _phrases((name, city.full_name) for city in found for name in (city.name, *city.aliases))


@functools.cache
def _values(question: str) -> dict[str, str]:
    """Returns all that answers of the pool name, by their words: continents or languages."""
    named = {value for city in guess_my_city.cities() for value in _named(question, city.answers[question])}
    return _phrases((value, value) for value in sorted(named))


def _named(question: str, answer: str) -> list[str]:
    """Returns the continent or the languages that an answer names."""
    start = len("It is on this continent: ") if question == guess_my_city.CONTINENT else len("Mainly ")
    return re.split(", | and ", answer[start:-1])


def _names_city(game: GuessMyCity) -> bool:
    scenario = scenario_of(game)
    country = scenario.group or scenario.name.partition(",")[2]
    return _names_it(scenario, game.asked, "city", country, _places())


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
    if _names_city(game):
        return GOAL
    places = _found(game.asked, _places())
    return _about_places(places, scenario, country) if places else _about_words(game.asked, answers)


def _about_places(places: list[str], scenario: Scenario, country: str) -> str:
    if scenario.name in places:
        return "I can only confirm a single guess."
    if any(place not in _countries().values() for place in places):
        return "No, it is another city."
    return guess_my_city.IN_COUNTRY[country in places]


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
    """Valid if and only if the words name the city or an alias as a guess, and no other city of the pool."""
    return VALID if _names_city(game) else NOT_VALID


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
