"""Agents, world and judge of Guess My City; see `dfc.games.bots.questions` for what each knows."""

import functools

from dfc.games.bots.bot import GameBots
from dfc.games.bots.city_answers import about_words
from dfc.games.bots.questions import Table, masks_of, simple, strong
from dfc.games.bots.simulators import scenario_of, with_facts
from dfc.games.paprika import guess_my_city
from dfc.games.paprika.candidates import GuessReading
from dfc.games.paprika.guess_my_city import GuessMyCity, places, read_places
from dfc.games.paprika.world import GOAL, NOT_VALID, VALID, World
from dfc.games.rng import GameRng

# ---- agents -----------------------------------------------------------------------------------------------------


@functools.cache
def _table() -> Table:
    found = guess_my_city.cities()
    told = guess_my_city.OPEN[:-1]  # what a city is known for must be read; it would tell nearly every city at once
    masks = masks_of(((question, city.answers[question]) for question in told) for city in found)
    everything = (1 << len(found)) - 1
    for number, city in enumerate(found):
        answers = masks.setdefault(guess_my_city.country_question(city.country), {guess_my_city.IN_COUNTRY[True]: 0})
        answers[guess_my_city.IN_COUNTRY[True]] |= 1 << number
        answers[guess_my_city.IN_COUNTRY[False]] = everything & ~answers[guess_my_city.IN_COUNTRY[True]]
    return Table(tuple(map(guess_my_city.guess, found)), masks)


def _table_of(_game: World) -> Table:
    return _table()


# ---- world and judge --------------------------------------------------------------------------------------------


@functools.cache
def _countries() -> dict[str, str]:
    return {guess_my_city.country_question(city.country): city.country for city in guess_my_city.cities()}


def _answer(game: GuessMyCity, _seat: int, _chance: GameRng) -> str:
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


def _judge(game: GuessMyCity, _seat: int, _chance: GameRng) -> str:
    """Valid if and only if the words name the city or an alias as a guess, and no other city or country of the pool."""
    scenario = scenario_of(game)
    reading = read_places(game.asked, scenario)
    return VALID if reading.guess and scenario.name in reading.named else NOT_VALID


BOTS = (GameBots(GuessMyCity, simple(_table_of), strong(_table_of), {"world": _answer, "judge": _judge}),)
