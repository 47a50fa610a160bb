"""World, judge and agents of Twenty Questions and Guess My City.

The world and the judge answer from the scenario's facts. The agents know what everybody may know, the pool of topics
or cities of both splits with the table of answers, and what they have heard (`World.heard`); not the secret.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping

from dfc.games.chance import Chance
from dfc.games.paprika import guess_my_city, twenty_questions
from dfc.games.paprika.guess_my_city import GuessMyCity
from dfc.games.paprika.twenty_questions import TwentyQuestions
from dfc.games.paprika.world import GOAL, NOT_VALID, VALID, Scenario, World, fold
from dfc.games.strategies.strategy import Strategies

_WORD = re.compile(r"[^\W_]+")
_LONGEST_PHRASE = 7  # words
_ARTICLES = frozenset(("a", "an", "the"))

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
    scenario = _scenario(game)
    return _names_it(scenario, game.asked, scenario.briefing, "", _topic_names(scenario.briefing))


@functools.cache
def _kinds() -> dict[str, str]:
    return _phrases((name, name) for name in twenty_questions.topics().by_category)


def _is_guess(asked: str, name: str) -> bool:
    return _guessing((name,), "", "").search(fold(asked)) is not None


def _answer_topic(game: TwentyQuestions, _seat: int, _chance: Chance) -> str:
    """Answers the questions of the table from it, free text by the words in it, all else with no.

    Several keys in one question must all hold, or one of them if it says "or"; "not" turns the answer round.
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
    words = game.asked.lower().replace("n't", " not").split()
    holds = any(key in yes for key in keys) if "or" in words else all(key in yes for key in keys)
    return "Yes" if holds != ("not" in words) else "No"


def _judge_topic(game: TwentyQuestions, _seat: int, _chance: Chance) -> str:
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
    """Returns, by what an answer says, all such answers of the pool: continents or languages."""
    start = len("It is on this continent: ") if question == guess_my_city.CONTINENT else len("Mainly ")
    return _phrases((city.answers[question][start:-1], city.answers[question]) for city in guess_my_city.cities())


def _names_city(game: GuessMyCity) -> bool:
    scenario = _scenario(game)
    country = scenario.group or scenario.name.partition(",")[2]
    return _names_it(scenario, game.asked, "city", country, _places())


def _answer_city(game: GuessMyCity, _seat: int, _chance: Chance) -> str:
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
            return f"Yes. {answers[question]}" if answers[question] in values else "No."
    understood = _found(asked, _open_phrases())
    if understood:
        return answers[understood[0]]
    if {"name", "country"} & set(_words(asked)):
        return "I may not tell you names, but you can ask whether it is a certain one."
    return "I cannot say."


def _judge_city(game: GuessMyCity, _seat: int, _chance: Chance) -> str:
    """Valid if and only if the words name the city or an alias as a guess, and no other city of the pool."""
    return VALID if _names_city(game) else NOT_VALID


def _scenario(game: World) -> Scenario:
    if game.scenario is None:
        raise ValueError(f"{game.id}: no task before reset(); call reset(seed) first")
    return game.scenario


def _with_facts(game: World) -> Scenario:
    scenario = _scenario(game)
    if not scenario.facts:
        raise ValueError(
            f"{game.id}: scenarios loaded from a file hold no facts, so no script can answer for their world; seat a "
            "chat model as world (an endpoint), or leave `scenarios` empty to play this package's own"
        )
    return scenario


# ---- agents -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Table:
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
        """Returns the questions that tell some of these secrets apart, with the bits their answer tells."""
        total = left.bit_count()
        found = []
        for question, answers in self.masks.items():
            shares = [count / total for mask in answers.values() if (count := (mask & left).bit_count())]
            if len(shares) > 1:
                found.append((-sum(share * math.log2(share) for share in shares), question))
        return found


def _masks(rows: Iterable[Iterable[tuple[str, str]]]) -> dict[str, dict[str, int]]:
    masks: dict[str, dict[str, int]] = {}
    for number, row in enumerate(rows):
        for question, answer in row:
            answers = masks.setdefault(question, {})
            answers[answer] = answers.get(answer, 0) | 1 << number
    return masks


@functools.cache
def _topic_table(category: str) -> _Table:
    pool = twenty_questions.topics()
    found = pool.by_category.get(category, ())
    keys = pool.varying.get(category, ())
    rows = (((pool.questions[key], "Yes" if key in topic.yes else "No") for key in keys) for topic in found)
    return _Table(tuple(map(twenty_questions.guess, found)), _masks(rows))


@functools.cache
def _city_table() -> _Table:
    found = guess_my_city.cities()
    told = guess_my_city.OPEN[:-1]  # what a city is known for must be read; it would tell nearly every city at once
    masks = _masks(((question, city.answers[question]) for question in told) for city in found)
    everything = (1 << len(found)) - 1
    for number, city in enumerate(found):
        answers = masks.setdefault(guess_my_city.country_question(city.country), {guess_my_city.IN_COUNTRY[True]: 0})
        answers[guess_my_city.IN_COUNTRY[True]] |= 1 << number
        answers[guess_my_city.IN_COUNTRY[False]] = everything & ~answers[guess_my_city.IN_COUNTRY[True]]
    return _Table(tuple(map(guess_my_city.guess, found)), masks)


def _any_guess(table: _Table, left: int, chance: Chance) -> str:
    candidates = [number for number in range(len(table.guesses)) if left >> number & 1]
    return table.guesses[candidates[chance.below(len(candidates))]]


def _simple(table_of: Callable[[World], _Table]) -> Callable[[World, int, Chance], str]:
    def choose(game: World, _seat: int, chance: Chance) -> str:
        """Half of its turns it asks at random what can still tell something, then it guesses what agrees."""
        table = table_of(game)
        if not table.guesses:
            return _anything(game, chance)
        left = table.left(game.heard)
        splitting = table.splitting(left)
        if splitting and 2 * len(game.heard) < game.max_turns:
            return splitting[chance.below(len(splitting))][1]
        return _any_guess(table, left, chance)

    return choose


def _strong(table_of: Callable[[World], _Table]) -> Callable[[World, int, Chance], str]:
    def choose(game: World, _seat: int, chance: Chance) -> str:
        """It asks the question whose answer tells most; with two secrets left, or none to ask, it guesses."""
        table = table_of(game)
        if not table.guesses:
            return _anything(game, chance)
        left = table.left(game.heard)
        splitting = table.splitting(left) if left.bit_count() > 2 else []
        if splitting and len(game.heard) + 1 < game.max_turns:
            best = max(bits for bits, _ in splitting)
            equal = [question for bits, question in splitting if bits == best]
            return equal[chance.below(len(equal))]
        return _any_guess(table, left, chance)

    return choose


def _anything(game: World, chance: Chance) -> str:
    """Returns any listed action: of a pool that is not ours nothing is known."""
    actions = game.legal_actions()
    return actions[chance.below(len(actions))]


def _topic_table_of(game: World) -> _Table:
    return _topic_table(_scenario(game).briefing)


def _city_table_of(_game: World) -> _Table:
    return _city_table()


STRATEGIES = (
    Strategies(
        TwentyQuestions,
        _simple(_topic_table_of),
        _strong(_topic_table_of),
        {"world": _answer_topic, "judge": _judge_topic},
    ),
    Strategies(
        GuessMyCity, _simple(_city_table_of), _strong(_city_table_of), {"world": _answer_city, "judge": _judge_city}
    ),
)
