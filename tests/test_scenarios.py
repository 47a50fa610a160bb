"""Topics and cities: how many there are, and that the files keep what the code and the games rely on."""

import collections
import itertools
import json
import pathlib
import re

import pytest

from dfc.games import paprika
from dfc.games.paprika import guess_my_city, twenty_questions
from dfc.games.paprika.guess_my_city import GuessMyCity, cities
from dfc.games.paprika.twenty_questions import TwentyQuestions, topics
from dfc.games.paprika.world import fold

KINDS = (TwentyQuestions, GuessMyCity)
DATA = pathlib.Path(paprika.__file__).parent / "data"
DIFFICULTIES = {"easy", "medium", "hard"}


def every(kind):
    return [scenario for split in kind.splits for scenario in kind.scenarios(split)]


def plain(name):
    """A name without case, punctuation, articles and the s of a plural."""
    words = re.findall(r"[a-z0-9]+", fold(name).replace("'", "").replace("-", " "))
    return " ".join(
        w.removesuffix("s") if len(w) > 3 and not w.endswith("ss") else w for w in words if w not in {"a", "an", "the"}
    )


@pytest.mark.parametrize(("kind", "train", "test"), [(TwentyQuestions, 500, 100), (GuessMyCity, 300, 100)])
def test_the_splits_are_as_large_as_declared_and_large_enough(kind, train, test):
    assert {split: len(kind.scenarios(split)) for split in kind.splits} == dict(kind.splits)
    assert kind.splits["train"] >= train
    assert kind.splits["test"] >= test
    assert all(kind.scenarios(split) is kind.scenarios(split) for split in kind.splits)


def test_no_topic_occurs_twice_within_or_between_splits():
    counts = collections.Counter(plain(name) for scenario in every(TwentyQuestions) for name in scenario.names)
    assert [name for name, count in counts.items() if count > 1] == []


def test_no_city_occurs_twice_within_or_between_splits():
    spellings = ({plain(name).replace(" ", "") for name in scenario.names} for scenario in every(GuessMyCity))
    counts = collections.Counter(name for names in spellings for name in names)
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("kind", KINDS)
def test_scenarios_are_plain_text_with_a_known_difficulty(kind):
    for scenario in every(kind):
        assert scenario.difficulty in DIFFICULTIES
        for text in (scenario.name, scenario.briefing, scenario.truth, *scenario.names):
            assert text.isascii()
            assert text == " ".join(text.split())
        assert scenario.truth.startswith(scenario.names[0])
        assert scenario.group
    counts = collections.Counter(scenario.difficulty for scenario in every(kind))
    assert min(counts[level] for level in DIFFICULTIES) > 0.1 * sum(counts.values())


@pytest.mark.parametrize("kind", KINDS)
def test_both_splits_hold_all_difficulties_and_walk_through_mixed_groups(kind):
    for split in kind.splits:
        scenarios = kind.scenarios(split)
        assert {scenario.difficulty for scenario in scenarios} == DIFFICULTIES
        same = sum(a.group == b.group for a, b in itertools.pairwise(scenarios))
        assert same < 0.2 * len(scenarios)


def test_every_category_is_large_enough_and_in_both_splits():
    counts = {
        split: collections.Counter(s.group for s in TwentyQuestions.scenarios(split))
        for split in TwentyQuestions.splits
    }
    assert set(counts["train"]) == set(counts["test"]) == set(topics().by_category)
    assert len(counts["train"]) >= 15
    assert min(counts["train"].values()) >= 40
    assert min(counts["test"].values()) >= 8


def test_every_key_of_the_table_has_a_question_and_is_used():
    data = json.loads((DATA / "topics.json").read_text(encoding="utf-8"))
    known, used = set(data["attributes"]), set()
    for keys in data["categories"].values():
        used |= set(keys.split())
    for name, category, _difficulty, split, own, *_aliases in data["topics"]:
        keys = own.split()
        assert split in {"train", "test"}
        assert category in data["categories"], name
        assert len(set(keys)) == len(keys), name
        everywhere = set(data["categories"][category].split())
        for key in keys:
            if key.startswith("-"):
                assert key[1:] in everywhere, name
            else:
                assert key not in everywhere, name
                used.add(key)
    assert used == known


def test_questions_are_distinct_and_can_be_told_by_their_words():
    pool = topics()
    assert len(set(pool.questions.values())) == len(pool.questions)
    assert all(question.endswith("?") and question.isascii() for question in pool.questions.values())
    words = collections.Counter(word for synonyms in pool.synonyms.values() for word in synonyms)
    assert [word for word, count in words.items() if count > 1] == []
    linking = {key for key, question in pool.questions.items() if question.startswith("Is it linked with ")}
    assert {key for key, synonyms in pool.synonyms.items() if synonyms} == linking


def test_few_topics_share_all_their_answers():
    pool = topics()
    total = sum(map(len, pool.by_category.values()))
    shared, largest = 0, 0
    for category, found in pool.by_category.items():
        groups = collections.Counter(topic.yes for topic in found)
        shared += sum(count for count in groups.values() if count > 1)
        largest = max(largest, *groups.values())
        assert len(pool.varying[category]) >= 15
        for key in pool.varying[category]:
            assert {key in topic.yes for topic in found} == {True, False}
    assert shared < 0.07 * total
    assert largest <= 5


@pytest.mark.parametrize(
    ("name", "yes", "no"),
    [
        ("tiger", "organism danger stripes meat fur old", "fly kept eggs metal made"),
        ("penguin", "eggs water cold organism", "fly fur legs4"),
        ("Marie Curie", "human science female old", "male modern organism killed"),
        ("Neil Armstrong", "human space male modern", "old female"),
        ("smartphone", "made electric small", "old organism edible"),
        ("World War II", "war death abstract", "old brief"),
        ("violin", "strings bowed wood made old music", "blown keys electric"),
        ("water", "edible liquid drink food", "alcohol sweet"),
        ("harp", "plucked strings", "bowed"),
        ("light", "light physics", "abstract"),
        ("blue whale", "meat water big animals", "eggs legs4"),
        ("Golden Gate Bridge", "made metal red", "old modern"),
        ("Empire State Building", "made tall", "old"),
        ("Burj Khalifa", "modern tall", "old"),
        ("Nelson Mandela", "male africa rule", "english"),
        ("Alan Turing", "killed maths", "old"),
        ("ice hockey", "old cold team sport", "ball"),
        ("quark", "physics tiny", "life"),
        ("relativity", "physics", "old"),
        ("bicycle", "old muscle twowheels", "engine"),
        ("chair", "home furniture", "worn"),
        ("telescope", "glass science", "home"),
        ("heart", "inside organ blood", "pair bone"),
        ("Sahara Desert", "place hot desert africa", "made water cold"),
    ],
)
def test_spot_checks_of_the_table(name, yes, no):
    topic = next(t for found in topics().by_category.values() for t in found if t.name == name)
    assert set(yes.split()) <= topic.yes
    assert not set(no.split()) & topic.yes


def test_persons_have_one_sex_and_eras_do_not_contradict():
    for topic in topics().by_category["famous person"]:
        assert ("male" in topic.yes) != ("female" in topic.yes)
    for found in topics().by_category.values():
        for topic in found:
            if topic.category in {"famous person", "historical event", "landmark"}:
                assert "ancient" not in topic.yes or "pre1800" in topic.yes, topic.name
                assert "pre1800" not in topic.yes or "old" in topic.yes, topic.name
                assert "modern" not in topic.yes or "pre1800" not in topic.yes, topic.name


def test_every_city_has_an_answer_to_every_open_question():
    for city in cities():
        assert tuple(city.answers) == guess_my_city.OPEN
        assert all(city.answers.values())


def test_facts_about_cities_agree_with_geography():
    by_name = {city.full_name: city for city in cities()}
    capitals = collections.Counter(c.country for c in cities() if c.answers[guess_my_city.CAPITAL].startswith("Yes"))
    # South Africa has three; of Bolivia's two one is the seat of government, the other the capital by its constitution.
    assert {country for country, count in capitals.items() if count > 1} == {"South Africa", "Bolivia"}
    continents = {c.answers[guess_my_city.CONTINENT] for c in cities()}
    assert len(continents) == 6
    south = {c.full_name for c in cities() if "southern" in c.answers[guess_my_city.HEMISPHERE]}
    assert {"Sydney, Australia", "Lima, Peru", "Jakarta, Indonesia", "Nairobi, Kenya", "Quito, Ecuador"} <= south
    assert not {"Medan, Indonesia", "Bogota, Colombia", "Kampala, Uganda", "Singapore, Singapore"} & south
    assert by_name["Istanbul, Turkey"].answers[guess_my_city.CONTINENT] == "It is on this continent: Europe."
    assert by_name["La Paz, Bolivia"].answers[guess_my_city.CAPITAL].startswith("Yes")
    assert not by_name["Bamako, Mali"].answers[guess_my_city.CLIMATE].startswith("It is dry")  # a metre of rain a year
    assert by_name["Montreal, Canada"].answers[guess_my_city.LANGUAGE] == "Mainly French."
    assert by_name["Sydney, Australia"].answers[guess_my_city.COAST].startswith("Yes")


def test_no_topic_example_in_the_rules_is_a_topic_of_the_pool():
    game = TwentyQuestions()
    game.reset(0)
    rules = plain(game.observation(0).replace(game.scenario.briefing, ""))
    names = {plain(name) for scenario in every(TwentyQuestions) for name in scenario.names}
    assert not {word for word in rules.split() if word in names}


def test_data_files_hold_one_entry_a_line():
    for name, key in (("topics.json", "topics"), ("cities.json", "cities")):
        text = (DATA / name).read_text(encoding="utf-8")
        assert text.isascii()
        assert max(map(len, text.splitlines())) < 300
        assert text.count("\n[") == len(json.loads(text)[key])


def test_the_longest_observation_of_every_scenario_is_short():
    for kind in KINDS:
        for split in kind.splits:
            game = kind(split=split)
            for seed in range(0, kind.splits[split], 7):
                game.reset(seed)
                assert max(len(game.observation(seat)) for seat in range(3)) < 1000
    assert twenty_questions.listed("no such category") == tuple(topics().questions.values())
