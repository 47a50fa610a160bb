"""One candidate at a time: how Twenty Questions and Guess My City take words that name topics, cities and countries."""

import dataclasses
import random

import pytest
from candidate_turns import CITIES, TOPICS
from question_forms import LISTS, bisected, separated

from dfc.games.game import Verdict
from dfc.games.paprika import guess_my_city, twenty_questions
from dfc.games.paprika.guess_my_city import GuessMyCity, cities
from dfc.games.paprika.twenty_questions import TwentyQuestions, topics
from dfc.games.paprika.world import AGENT, CANNOT_SAY, GOAL, JUDGE, NOT_VALID, VALID, WORLD

KYIV = "Kyiv, Ukraine"
NO_TOPIC, NO_CITY = (twenty_questions.SEVERAL, None), (guess_my_city.SEVERAL, None)
both = pytest.mark.parametrize("turns", [TOPICS, CITIES], ids=["topics", "cities"])


@pytest.mark.parametrize(
    ("turns", "name", "asked"),
    [
        *[
            (TOPICS, name, asked)
            for name, asked in (
                ("tiger", "Is it a tiger?"),
                ("tiger", "tiger"),
                ("tiger", "Tigers!"),
                ("tiger", "My final guess: the TIGER, because it has stripes."),
                ("tiger", "It is big and wild. Is the animal a tiger?"),
                ("tiger", "Could it be a tiger"),
                ("tiger", 'I say "tiger".'),
                ("gloves", "I am going to guess that the clothing is a glove."),
                ("sea turtle", "Is it a sea-turtle?"),
                ("rhinoceros", "Is it a rhino?"),
                ("Marie Curie", "Is it Curie?"),
                ("Marie Curie", "Is the famous person Marie Curie, the chemist?"),
                ("chainsaw", "Are you thinking of the chainsaw?"),
            )
        ],
        *[
            (CITIES, KYIV, asked)
            for asked in (
                "Is it Kyiv, Ukraine?",
                "Is it Kiev?",
                "Are you from Kyiv?",
                "Do you come from Kyiv, Ukraine?",
                "I think you're from Kyiv.",
                "Is your home city Kyiv?",
                "Is the city Kyiv Ukraine?",
                "Considering the cathedral, my guess is that your city is Kiev in Ukraine.",
                "It's Kyiv.",
                "I think it's Kyiv, Ukraine.",
                "Maybe Kyiv?",
                "Is it the city of Kyiv?",
                "Is your hometown Kyiv?",
                "Is your home town the city of Kyiv in Ukraine?",
                "Is Kyiv your city?",
                "Is it Kyiv or not?",
                "I'd say you're from Kyiv!",
            )
        ],
        (CITIES, "Sao Paulo, Brazil", "Is it S\u00e3o Paulo?"),
        (CITIES, "Mexico City, Mexico", "Is it Mexico City, Mexico?"),
        (CITIES, "Singapore, Singapore", "Is it Singapore?"),
        (CITIES, "Washington, United States", "Is it Washington, D.C.?"),
        (CITIES, "New York City, United States", "new york!"),
        (CITIES, "Ho Chi Minh City, Vietnam", "Is it Saigon?"),
    ],
)
def test_a_guess_is_conceded_and_valid(turns, name, asked):
    assert turns.answers(name, asked) == (GOAL, VALID)


def some_topics():
    for category, found in topics().by_category.items():
        some = [topic.name for topic in random.Random(category).sample(found, 6)]
        yield some[:4], some[2:]  # two that are named and two that are not


def some_places():
    rng = random.Random(0)
    for _ in range(5):
        some = rng.sample(cities(), 6)
        countries = dict.fromkeys(city.country for city in some[:4])
        short, full = [city.name for city in some[:4]], [city.full_name for city in some[:4]]
        for places in (short, full, [*countries, some[5].name]):
            yield places, [city.full_name for city in some[2:]]


@pytest.mark.parametrize(("turns", "lists", "told"), [(TOPICS, some_topics, NO_TOPIC), (CITIES, some_places, NO_CITY)])
@pytest.mark.parametrize("form", LISTS)
def test_words_that_name_several_are_answered_alike_whatever_the_secret_is(turns, lists, told, form):
    for named, secrets in lists():
        for secret in secrets:
            assert turns.replies(turns.scenario_of(secret), form(named)) == told, (named, secret)


@pytest.mark.parametrize("separator", separated())
def test_no_separator_makes_several_candidates_one(separator):
    for form in ("Is it {}?", "Does it exist compared with {}?", "{}"):
        asked = form.format(separator.join(("lion", "tiger", "giant panda")))
        for name in ("tiger", "zebra"):
            assert TOPICS.replies(TOPICS.scenario_of(name), asked) == NO_TOPIC
    for form in ("Is it {}?", "Is it in {}?", "Is it as warm as {}?", "{}"):
        for places in (("Lviv", "Kyiv", "New York City"), ("France", "Ukraine", "El Salvador"), ("Kyiv", "France")):
            asked = form.format(separator.join(places))
            for name in (KYIV, "Lyon, France", "Oslo, Norway"):
                assert CITIES.replies(CITIES.scenario_of(name), asked) == NO_CITY, asked


@pytest.mark.parametrize("ending", ["es", "s", "", "'s"])
def test_a_list_of_all_candidates_in_any_number_wins_nowhere(ending):
    for scenario in TwentyQuestions.scenarios("test"):
        names = [f"{topic.name}{ending}" for topic in topics().by_category[scenario.briefing]]
        assert TOPICS.replies(scenario, f"Is it: {', '.join(names)}?") == NO_TOPIC, scenario.name
    names = [f"{city.name}{ending}" for city in cities()]
    for part in (names[:200], names[200:]):  # 4000 characters are read
        for scenario in GuessMyCity.scenarios("test")[::9]:
            assert CITIES.replies(scenario, f"Is it: {', '.join(part)}?") == NO_CITY


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize(
    ("turns", "name", "asked", "several"),
    [
        (TOPICS, "tiger", "Is it a lion or a tiger?", twenty_questions.SEVERAL),
        (CITIES, KYIV, "Is it Kyiv or Lviv?", guess_my_city.SEVERAL),
        (CITIES, KYIV, "Is it Paris, Kyiv, Rome?", guess_my_city.SEVERAL),
        (CITIES, KYIV, "Is it in Ukraine or in France?", guess_my_city.SEVERAL),
    ],
)
def test_a_turn_with_several_candidates_is_spent_and_reaches_neither_world_nor_judge(
    turns, name, asked, several, history
):
    game = turns.holding(name, max_turns=3, history=history)
    for number in (1, 2):
        assert game.step(asked) is Verdict.PLAYED
        assert (game.to_move, game.actions_played) == (AGENT, number)
        assert game.observation(AGENT).split("\n")[-1] == several
        for seat in (WORLD, JUDGE):
            assert asked not in game.observation(seat)
            assert "lion" not in game.observation(seat)
    assert game.observation(AGENT).count(several) == (2 if history else 1)
    assert game.step(asked) is Verdict.PLAYED
    assert game.heard == [(asked, several)] * 3
    assert game.outcomes == ("loss",)


YES_OR_NO, IN_WORDS = ("Yes", "No"), ("Yes, one of these.", "No, none of these.")


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(
    ("kind", "tasks", "names", "told"),
    [
        (
            TwentyQuestions,
            range(24),
            lambda game: [t.name for t in topics().by_category[game.scenario.briefing]],
            YES_OR_NO,
        ),
        (GuessMyCity, range(0, 108, 9), lambda _: list(dict.fromkeys(c.name for c in cities())), IN_WORDS),
        (GuessMyCity, range(0, 108, 9), lambda _: list(dict.fromkeys(c.country for c in cities())), IN_WORDS),
    ],
)
def test_halving_lists_wins_nothing_from_the_most_obliging_world_and_judge(monkeypatch, kind, tasks, names, told, kept):
    if not kept:  # the attack works where the game does not keep the rule
        monkeypatch.setattr(kind, "_unanswerable", lambda _game, _action: None)
    wins = asked = 0
    for task in tasks:
        game = kind(split="test")
        game.reset(task)
        asked += bisected(game, names(game), told)
        wins += game.outcomes == ("win",)
        assert kept <= (game.actions_played == game.max_turns)
    assert wins == (0 if kept else len(tasks))
    assert (asked == 0) is kept


@both
def test_no_listed_action_names_several(turns):
    names = [found[0].name for found in topics().by_category.values()] if turns is TOPICS else ["Lyon, France"]
    for name in names:
        game = turns.holding(name)
        for action in game.legal_actions():
            assert game._unanswerable(action) is None, (name, action)


def pairs_of_topics():
    for category, found in topics().by_category.items():
        topic, other = random.Random(category).sample(found, 2)
        yield (
            topic.name,
            topic.name,
            dataclasses.replace(TOPICS.scenario_of(topic.name), name=other.name, names=(other.name,)),
        )


def pairs_of_cities():
    rng = random.Random(1)
    for _ in range(20):
        city, other = rng.sample(cities(), 2)
        scenario = CITIES.scenario_of(city.full_name)
        yield city.name, city.full_name, dataclasses.replace(scenario, name=other.full_name, names=(other.name,))


@pytest.mark.parametrize(
    ("turns", "pairs", "form"),
    [
        (TOPICS, pairs_of_topics, "Is it like {}?"),
        (TOPICS, pairs_of_topics, "Is it bigger than {}?"),
        (TOPICS, pairs_of_topics, "Is it not a {}?"),
        (TOPICS, pairs_of_topics, "Does it exist, unlike {}s?"),
        (TOPICS, pairs_of_topics, "Has it met a {} at sea"),
        (CITIES, pairs_of_cities, "Is it near {}?"),
        (CITIES, pairs_of_cities, "Is it larger than {}?"),
        (CITIES, pairs_of_cities, "Is {} as far from the sea?"),
        (CITIES, pairs_of_cities, "It is not {}."),
    ],
)
def test_a_candidate_that_is_named_in_passing_is_answered_by_the_facts_alone(turns, pairs, form):
    for said, name, twin in pairs():
        told = turns.replies(turns.scenario_of(name), form.format(said))
        assert told == turns.replies(twin, form.format(said))
        assert told[1] == NOT_VALID
        assert turns is CITIES or told[0] in ("Yes", "No", CANNOT_SAY)


@pytest.mark.parametrize(
    ("turns", "name", "asked", "told"),
    [
        (TOPICS, "cat", "Is it a house cat?", (GOAL, VALID)),
        (TOPICS, "great white shark", "Is it a white shark?", (GOAL, VALID)),
        (TOPICS, "orange", "Is it orange juice?", ("No", NOT_VALID)),
        (TOPICS, "orange juice", "Is it orange juice?", (GOAL, VALID)),
        (TOPICS, "orange juice", "Is it an orange, orange juice?", NO_TOPIC),
        (TOPICS, "tiger", "Tiger? A tiger! I guess tigers.", (GOAL, VALID)),
        (CITIES, "New York City, United States", "Is it New York?", (GOAL, VALID)),
        (CITIES, "York, United Kingdom", "Is it New York?", ("No, it is another city.", NOT_VALID)),
        (CITIES, "York, United Kingdom", "Is it York, United Kingdom?", (GOAL, VALID)),
        (CITIES, "York, United Kingdom", "Is it York, United States?", NO_CITY),
        (CITIES, "Singapore, Singapore", "Is it located in Singapore?", ("Yes, it is in that country.", NOT_VALID)),
        (CITIES, "York, United Kingdom", "Is it located in Singapore?", ("No, it is in another country.", NOT_VALID)),
        (CITIES, "York, United Kingdom", "Is it in the United Kingdom", ("Yes, it is in that country.", NOT_VALID)),
        (CITIES, "York, United Kingdom", "Is it France?", ("No, it is in another country.", NOT_VALID)),
    ],
)
def test_of_names_within_names_the_longest_counts_once(turns, name, asked, told):
    assert turns.replies(turns.scenario_of(name), asked) == told


@both
def test_every_candidate_and_every_alias_can_be_guessed(turns):
    for name in turns.where:
        for spelling in turns.scenario_of(name).names:
            assert turns.answers(name, f"Is it {spelling}?") == (GOAL, VALID), spelling
