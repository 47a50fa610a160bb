"""What the scripted world of Guess My City says to free words that name no place."""

import functools
import re
from collections.abc import Mapping
from typing import Any

from dfc.games.bots.simulators import meanings, phrase_table, plain_words
from dfc.games.paprika import guess_my_city
from dfc.games.paprika.city_marks import RELIGIONS, currencies, marks
from dfc.games.paprika.world import CANNOT_SAY, fold

_NAMES = "I may not tell you names, but you can ask whether it is a certain one."
_ASKED = {  # words by which an open question is recognised
    guess_my_city.KNOWN: (
        "known for|famous|landmark|sight|popular|attraction|industry|special|tourist|visit|building|monument|museum"
        "|food|dish|cuisine|eat|drink|festival|music|sport|football|history|historic|culture|art|architecture|park|church"
        "|cathedral|tower|bridge|castle|palace|statue|market|university|film|movie|tradition|product|beer|wine|nickname"
    ),
    guess_my_city.CONTINENT: "continent|which part of the world|what part of the world|where in the world|region",
    guess_my_city.LANGUAGE: "language|speak|spoken",
    guess_my_city.HEMISPHERE: "hemisphere|equator",
    guess_my_city.COAST: (
        "coast|coastal|sea|ocean|beach|beaches|port|harbour|harbor|inland|landlocked|coastline|seaside|shore"
    ),
    guess_my_city.CAPITAL: "capital|capital city",
    guess_my_city.SIZE: (
        "population|many people|how big|how large|big|large|small|million|inhabitant|resident|metropolis|size|megacity"
    ),
    guess_my_city.CLIMATE: "climate|weather|hot|cold|snow|rain|rainy|tropical|winter|summer|warm|temperature|humid|dry",
}
_POLAR = re.compile(
    r"^(?:(?:so|ok|okay|and|well|then|hmm|tell me)[,:]? )*(?:is|are|was|were|does|do|did|has|have|can|could|would|will"
    r"|isn't|aren't|doesn't|don't|it is|it's|you|your)\b"
)
_UNCLEAR = frozenset(("not", "never", "and", "but", "than", "without", "n't", "most", "largest", "only"))
_ONCE = frozenset(("former", "once", "formerly", "ever", "state", "province", "region", "provincial", "regional"))
_NUMBER = re.compile(r"(\d[\d,.]*|one|two|three|four|five|six|eight|ten|half a|a)\s*(million|thousand)?\b")
_NUMBERS = {
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "eight": 8,
    "ten": 10,
    "half a": 0.5,
    "a": 1,
}
_UNDER = re.compile(r"\b(?:less|fewer|under|below|smaller|at most)\b")
_OVER = re.compile(r"\b(?:more|over|above|larger|bigger|greater|at least|exceed\w*)\b")
_PEOPLE = (("large", 5e6, float("inf")), ("middle", 1e6, 5e6), ("small", 0, 1e6))
_EMPTY = frozenset(  # words of a question about a sight that say nothing of it
    plain_words(
        "is are was there has have do does your you city town it any some in near by famous known for well important "
        "big large old beautiful many lot of with at to its that popular located ancient around close"
    )
)


@functools.cache
def _open_phrases() -> dict[str, str]:
    return phrase_table((word, question) for question, words in _ASKED.items() for word in words.split("|"))


@functools.cache
def _mark_phrases() -> dict[str, str]:
    return phrase_table((phrase, name) for name, mark in marks().items() for phrase in mark.ask)


@functools.cache
def _values(question: str) -> dict[str, str]:
    """Returns all that answers of the pool name, by their words: continents or languages."""
    named = {value for city in guess_my_city.cities() for value in _named(question, city.answers[question])}
    return phrase_table((value, value) for value in sorted(named))


def _named(question: str, answer: str) -> list[str]:
    """Returns the continent or the languages that an answer names."""
    start = len("It is on this continent: ") if question == guess_my_city.CONTINENT else len("Mainly ")
    return re.split(", | and ", answer[start:-1])


def about_words(asked: str, facts: Mapping[str, Any]) -> str:
    """Returns what is said to words that name no city and no country.

    A question for yes or no is answered so where the facts decide; elsewhere the sentence of the listed question that
    it comes near is told, or that it cannot be said.
    """
    said = fold(asked).strip()
    answers, words = facts["answers"], set(plain_words(asked))
    polar = _POLAR.match(said) is not None
    told = _by_marks(said, words, facts, polar) or _by_values(asked, words, answers)
    understood = meanings(asked, _open_phrases())
    if told is None and understood:
        first = min(understood, key=lambda question: question == guess_my_city.KNOWN)
        told = _by_question(first, said, words, answers, polar)
    if told is None and polar:
        told = _by_sight(words, answers)
    if told is not None:
        return told
    return _NAMES if {"name", "country", "called"} & words else f"{CANNOT_SAY}."


def _by_marks(said: str, words: set[str], facts: Mapping[str, Any], polar: bool) -> str | None:
    """Answers from the marks; None where none is asked for."""
    known = facts["marks"]
    if not polar and {"currency", "money"} & words:
        return next((f"It is called {name}." for name in currencies() if known.get(name)), f"{CANNOT_SAY}.")
    if not polar and "religion" in words:
        return next((f"Mainly {name.capitalize()}." for name in RELIGIONS if known.get(name)), f"{CANNOT_SAY}.")
    asked = meanings(said, _mark_phrases())
    if not {"currency", "money", "pay", "use"} & words:
        asked = [name for name in asked if name not in currencies()]
    if not asked or not polar:
        return None
    if len(asked) == 1 and known.get(asked[0]) is None and asked[0] not in _complete():
        seen = _by_sight(words, facts["answers"])
        return seen if seen and seen.startswith("Yes") else f"{CANNOT_SAY}."
    holds = [known.get(name) for name in asked]
    if _UNCLEAR & words or "n't " in said or None in holds:
        return f"{CANNOT_SAY}."
    return "Yes." if any(holds) and ("or" in words or all(holds)) else "No."


@functools.cache
def _complete() -> frozenset[str]:
    return frozenset(name for name, mark in marks().items() if mark.others is False)


def _by_values(asked: str, words: set[str], answers: Mapping[str, str]) -> str | None:
    """Answers from continents and languages that are named; None where none is."""
    for question in (guess_my_city.CONTINENT, guess_my_city.LANGUAGE):
        values = meanings(asked, _values(question))
        if values and not {"not", "than"} & words:
            return "No." if set(values).isdisjoint(_named(question, answers[question])) else f"Yes. {answers[question]}"
    if {"america", "american"} & words:
        continent = answers[guess_my_city.CONTINENT]
        return f"Yes. {continent}" if "America" in continent else "No."
    return None


def _by_question(question: str, said: str, words: set[str], answers: Mapping[str, str], polar: bool) -> str | None:
    """Answers from the listed question that words come near; its sentence with a yes or no where that is sure."""
    sentence = answers[question]
    if question == guess_my_city.KNOWN:
        return _by_sight(words, answers) if polar else sentence
    if question == guess_my_city.CAPITAL:
        return f"{CANNOT_SAY}." if _ONCE & words else sentence
    if question == guess_my_city.COAST:
        return _of_coast(words, sentence, polar)
    if not polar or {"not", "or"} & words:
        return sentence
    decide = {
        guess_my_city.HEMISPHERE: _of_hemisphere,
        guess_my_city.SIZE: _of_size,
        guess_my_city.CLIMATE: _of_climate,
    }.get(question)
    holds = None if decide is None else decide(said, words, sentence)
    return sentence if holds is None else f"{'Yes' if holds else 'No'}. {sentence}"


def _of_coast(words: set[str], sentence: str, polar: bool) -> str:
    """Returns where a city lies; without a yes or no where words may ask for the opposite."""
    coast = sentence.startswith("Yes")
    if not polar or {"far", "away", "not"} & words:
        return "It is on the coast." if coast else "It lies inland."
    if {"inland", "landlocked"} & words:
        return "No, it is on the coast." if coast else "Yes, it lies inland."
    return "It lies inland." if not coast and {"port", "harbour", "harbor"} & words else sentence  # on a river, perhaps


def _of_hemisphere(_said: str, words: set[str], sentence: str) -> bool | None:
    """Returns whether a city is in the hemisphere that is named; None where none is, or both."""
    north, south = {"northern", "north"} & words, {"southern", "south"} & words
    return None if bool(north) == bool(south) else bool(north) == ("northern" in sentence)


def _of_size(said: str, words: set[str], sentence: str) -> bool | None:
    """Returns whether a city is as big as asked; None where the sentence of its size does not decide."""
    low, high = next((low, high) for name, low, high in _PEOPLE if sentence == guess_my_city.SIZES[name])
    over, under = _OVER.search(said) is not None, _UNDER.search(said) is not None
    number = _NUMBER.search(said)
    if "million" in words or "thousand" in words or (number and number[1][0].isdigit()):
        found = [each for each in _NUMBER.finditer(said) if each[2] or each[1][0].isdigit()]
        if len(found) != 1 or over == under:
            return None
        figure = found[0][1]
        many = _NUMBERS.get(figure) or float(figure.replace(",", "").rstrip(".") or 0)
        many *= {"million": 1e6, "thousand": 1e3}.get(found[0][2] or "", 1)
        if low >= many or high <= many:
            return (low >= many) == over
        return None
    if over or under or "most" in words:
        return None
    if {"big", "large", "metropolis", "megacity"} & words:
        return True if low >= 5e6 else False if high <= 1e6 and "metropolis" in words else None
    return (False if low >= 5e6 else None) if "small" in words else None


def _of_climate(_said: str, words: set[str], sentence: str) -> bool | None:
    """Returns whether a climate is as asked; None where its sentence does not decide."""
    kind = next(name for name, said in guess_my_city.CLIMATES.items() if said == sentence)
    if {"snow", "snowy"} & words or ("cold" in words and "winter" in words):
        return {"cold": True, "tropical": False}.get(kind)
    if "tropical" in words:
        return None if kind == "subtropical" else kind == "tropical"
    if "cold" in words:
        return {"cold": True, "tropical": False}.get(kind)
    if {"hot", "warm"} & words and not {"summer", "winter"} & words:
        return {"tropical": True}.get(kind)
    return None


def _by_sight(words: set[str], answers: Mapping[str, str]) -> str | None:
    """Answers whether there is something: a yes if what the city is known for names it, else only what it is."""
    sentence = answers[guess_my_city.KNOWN]
    asked, known = words - _EMPTY, set(plain_words(sentence))
    if asked and all(any(_alike(word, each) for each in known) for word in asked):
        return f"Yes. {sentence}"
    return sentence if guess_my_city.KNOWN in meanings(" ".join(sorted(words)), _open_phrases()) else None


def _alike(word: str, other: str) -> bool:
    return word == other or (len(word) > 4 and len(other) > 4 and word[:5] == other[:5])
