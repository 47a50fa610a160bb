"""The statements of Truth and Deception: nothing but knowledge tells the true one of a pair."""

import itertools
import json
import math
import pathlib
import re
from collections import Counter

import pytest

from dfc.games.textarena import truth_and_deception
from dfc.games.textarena.truth_and_deception import TruthAndDeception, fact_pairs

PAIRS = fact_pairs()
ALL = [pair for pairs in PAIRS.values() for pair in pairs]
WORD = re.compile(r"[a-z0-9.,/'-]*[a-z0-9]")
NUMBER_WORDS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
STOP = {
    "a",
    "an",
    "the",
    "of",
    "is",
    "in",
    "to",
    "by",
    "on",
    "and",
    "was",
    "from",
    "has",
    "at",
    "for",
    "with",
    "it",
    "its",
    "than",
    "as",
    "are",
    "be",
    "or",
}
HEDGES = {
    "only",
    "always",
    "never",
    "all",
    "every",
    "none",
    "most",
    "mainly",
    "mostly",
    "often",
    "usually",
    "may",
    "might",
    "can",
    "about",
    "not",
    "no",
}
OVERLAP = 0.6  # of the content words of two pairs, intersection over union


def words(statement):
    return set(WORD.findall(statement.lower()))


def numbers(statement):
    found = re.findall(rf"\b(?:\d[\d.,]*\d|\d|{'|'.join(NUMBER_WORDS)})\b", statement.lower())
    return [NUMBER_WORDS.index(n) if n in NUMBER_WORDS else float(n.replace(",", "")) for n in found]


def content(pair):
    return (words(pair[0]) | words(pair[1])) - STOP


def half(wins, losses):
    """Whether a share lies between 40 and 60 %."""
    return 0.4 <= wins / (wins + losses) <= 0.6


def test_there_are_as_many_pairs_as_the_game_declares():
    assert {split: len(pairs) for split, pairs in PAIRS.items()} == TruthAndDeception.splits
    assert TruthAndDeception.splits["train"] >= 240
    assert TruthAndDeception.splits["eval"] >= 80


def test_the_file_holds_one_pair_a_line():
    path = pathlib.Path(truth_and_deception.__file__).parent / "data" / "fact_pairs.json"
    lines = path.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith('["') for line in lines) == len(ALL)
    assert len(lines) == len(ALL) + 6
    assert set(json.loads("\n".join(lines))) == {"train", "eval"}


def test_every_statement_is_one_short_plain_sentence_and_none_is_repeated():
    statements = [statement for pair in ALL for statement in pair]
    assert len(set(statements)) == len(statements)
    for statement in statements:
        assert statement.isascii()
        assert statement.isprintable()
        assert len(statement) < 120
        assert re.fullmatch(r"[A-Z0-9][^\[\]!?]*\.", statement), statement
        assert statement == " ".join(statement.split())


def test_the_two_statements_of_a_pair_have_one_form():
    for true, false in ALL:
        a, b = true.split(), false.split()
        assert abs(len(true) - len(false)) <= 8, (true, false)
        assert abs(len(a) - len(b)) <= 1, (true, false)
        assert len(set(a) & set(b)) >= len(set(a)) / 2, (true, false)
        assert len(numbers(true)) == len(numbers(false))


@pytest.mark.parametrize("split", PAIRS)
def test_length_does_not_tell_the_truth(split):
    longer = Counter((len(true) > len(false)) - (len(true) < len(false)) for true, false in PAIRS[split])
    assert half(longer[1], longer[-1])


def test_size_of_a_number_and_order_of_the_alphabet_do_not_tell_the_truth():
    sizes = Counter()
    for true, false in ALL:
        sizes.update(a > b for a, b in zip(numbers(true), numbers(false), strict=True) if a != b)
    assert sum(sizes.values()) > 50
    assert half(sizes[True], sizes[False])
    first = sum(true < false for true, false in ALL)
    assert half(first, len(ALL) - first)


def test_no_word_alone_tells_the_truth():
    true_only = Counter(word for true, false in ALL for word in words(true) - words(false))
    false_only = Counter(word for true, false in ALL for word in words(false) - words(true))
    judged = 0
    for word in set(true_only) | set(false_only):
        count = true_only[word] + false_only[word]
        rarer = min(true_only[word], false_only[word])
        chance = 2 * sum(math.comb(count, k) for k in range(rarer + 1)) / 2**count  # two-sided sign test
        judged += count >= 5
        assert chance > 0.03, (word, true_only[word], false_only[word])
    assert judged >= 5


@pytest.mark.parametrize("held_out", range(4))
def test_words_learned_from_some_pairs_do_not_tell_the_truth_of_the_others(held_out):
    """A naive Bayes classifier, fit on three quarters of the pairs and judged on the last; one half is chance."""
    learn = [pair for k, pair in enumerate(ALL) if k % 4 != held_out]
    judge = [pair for k, pair in enumerate(ALL) if k % 4 == held_out]
    weight = Counter()
    for true, false in learn:
        weight.update(words(true))
        weight.subtract(words(false))
    right = 0.0
    for true, false in judge:
        lead = sum(weight[w] for w in words(true)) - sum(weight[w] for w in words(false))
        right += 1.0 if lead > 0 else 0.5 if lead == 0 else 0.0
    assert half(right, len(judge) - right)


def test_hedges_are_balanced():
    for hedge in HEDGES:
        in_true, in_false = (sum(hedge in words(pair[k]) for pair in ALL) for k in (0, 1))
        assert in_true == in_false, hedge


def test_no_two_pairs_are_about_one_fact():
    described = [(pair, content(pair)) for pair in ALL]
    for (one, a), (two, b) in itertools.combinations(described, 2):
        assert len(a & b) < OVERLAP * len(a | b), (one, two)


def test_the_test_for_near_duplicates_finds_one():
    one = content(("Water boils at 100 degrees.", "Water boils at 90 degrees."))
    two = content(("The water boils at 100 degrees.", "The water boils at 80 degrees."))
    assert len(one & two) >= OVERLAP * len(one | two)


def test_products_are_computed_right():
    checked = 0
    for true, false in ALL:
        match = re.fullmatch(r"(\d+) times (\d+) is (\d+)\.", true)
        if match:
            a, b, product = map(int, match.groups())
            assert a * b == product
            assert false != true
            checked += 1
    assert checked == 3
