"""Families of queries: what is right by other programs, how many queries there are, what is read and what is not."""

import collections

import numpy as np
import pytest

from dfc.games.rng import GameRng
from dfc.methods.language_self_play import families
from dfc.methods.language_self_play.families import FAMILIES, LEVELS
from dfc.methods.language_self_play.rewards import FamiliesScorer


def truth(name, texts):
    """What is right, in other ways than the families' own."""
    text = texts[-1]
    if name == "sort_digits":
        return "".join(digit * text.count(digit) for digit in "0123456789")
    if name == "reverse_letters":
        return "".join(text[len(text) - 1 - place] for place in range(len(text)))
    if name == "add_digits":
        return str(sum(value * text.count(str(value)) for value in range(10)))
    if name == "count_letter":
        return str(len(text.split(texts[0])) - 1)
    places = int(texts[0]) if name == "shift_letters" else int("12342341"[int(texts[0]) - 1])
    return "".join(chr((ord(letter) - 97 + places) % 10 + 97) for letter in text)


@pytest.mark.parametrize("name", FAMILIES)
def test_queries_are_read_back_with_their_difficulty_and_truth(name):
    family, rng = FAMILIES[name], GameRng(3)
    for difficulty in LEVELS:
        for _ in range(30):
            query = family.query(difficulty, rng)
            problem = families.read(query)
            assert (problem.family, problem.difficulty) == (name, difficulty)
            filled = families.Template(family.template).filled(query)
            assert (int(filled[0]) if name == "encode_letters" else len(filled[-1]) - 2) == difficulty
            assert problem.truth == truth(name, filled)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_query_that_is_too_hard_is_of_no_family(name):
    family, rng = FAMILIES[name], GameRng(4)
    for difficulty in (9, 10, 11):
        query = family.beyond(difficulty, rng)
        assert families.Template(family.template).filled(query) is not None
        assert families.read(query) is None


def test_what_is_right_for_one_key_is_the_mistake_for_another():
    family = FAMILIES["encode_letters"]
    answers = {key: (family.solve(key, "abcdefghij"), family.mistake(key, "abcdefghij")) for key in "12345678"}
    assert sorted(answers.values()) == sorted((wrong, right) for right, wrong in answers.values())
    assert all(right != wrong for right, wrong in answers.values())
    assert len(set(answers.values())) == len(LEVELS)  # no two keys are of the same pair


@pytest.mark.parametrize("name", FAMILIES)
def test_there_are_too_many_queries_to_know_by_heart(name):
    """A sample of n of m equally likely ones has about n^2 / 2m pairs that are alike."""
    family, rng = FAMILIES[name], GameRng(0)
    assert len({family.query(1, rng) for _ in range(12_000)}) >= 1000
    count = 4000
    seen = collections.Counter(family.query(4, rng) for _ in range(count))
    pairs = sum(number * (number - 1) // 2 for number in seen.values())
    # 10^6 give 8 pairs on average; 30 is more than seven standard deviations above.
    assert pairs < 30


@pytest.mark.parametrize(
    "query",
    [
        "",
        "What is 2 + 2?",
        "Sort the digits 12 from small to large.",  # two are below the lowest difficulty
        "Sort the digits 12345678901 from small to large.",
        "Sort the digits 1a2 from small to large.",
        "Sort the digits \u0661\u0662\u0663 from small to large.",  # digits of another script
        "sort the digits 123 from small to large.",
        "Sort the digits 123 from small to large. Thanks",
        "Write the letters ABC backwards.",
        "Count the letter ab in abc.",
        "Shift forward by 0 the letters abc; after j comes a.",
        "Shift forward by 5 the letters abc; after j comes a.",
        "Shift forward by 2 the letters abk; after j comes a.",
        "Encode by the key 9 the letters abcdef.",
        "Encode by the key 1 the letters abcde.",
        "Encode by the key 1 the letters abcdefgh.",
        "Add up the digits " + "1" * 100_000 + ".",
    ],
)
def test_other_queries_are_of_no_family(query):
    assert families.read(query) is None


def test_every_difficulty_that_is_none_is_refused():
    for difficulty in (0, 9):
        with pytest.raises(ValueError, match="expected a difficulty of 1 to 8"):
            FAMILIES["add_digits"].query(difficulty, GameRng(0))


def test_only_the_right_answer_alone_is_worth_something():
    query = "Sort the digits 312 from small to large."
    answers = ["123", " 123.\n", "132", "The answer is 123", "123 123", "", "123.."]
    found = FamiliesScorer()([query] * len(answers), answers)
    np.testing.assert_array_equal(found.values, [1, 1, 0, 0, 0, 0, 0])
    assert found.mask.all()
    assert found.counts == {"right": 2, "wrong": 5}


def test_a_query_of_no_family_is_worth_nothing_and_counts():
    scorer = FamiliesScorer(("add_digits",))
    found = scorer(["Add up the digits 111.", "Sort the digits 312 from small to large."], ["3", "123"])
    np.testing.assert_array_equal(found.values, [1, 0])
    assert found.mask.all()
    assert found.counts == {"right": 1, "no_family": 1}


def test_probes_are_fixed_and_even():
    found = families.probe(tuple(FAMILIES), 96, seed=5)
    assert found == families.probe(tuple(FAMILIES), 96, seed=5)
    assert found != families.probe(tuple(FAMILIES), 96, seed=6)
    problems = [families.read(query) for query in found]
    assert set(collections.Counter((p.family, p.difficulty) for p in problems).values()) == {2}
    assert families.by_difficulty([*problems, None]) == dict.fromkeys(LEVELS, 12)
