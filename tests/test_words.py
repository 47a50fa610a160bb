"""The words of Wordle and their splits: counts, letters, no doubles, tasks that never change."""

import hashlib
import itertools
import pathlib
import re
import subprocess
import sys

import pytest

from dfc.games.paprika import wordle
from dfc.games.paprika.wordle import LENGTHS, targets, words

SIZES = {length: {"train": 1515, "test": 800} if length == 5 else {"train": 150, "test": 100} for length in LENGTHS}

# sha256 of a split's words in the order of the tasks, first 16 digits. A change of one word changes tasks and so every
# result measured on them; change these only together with the notes on comparability.
GOLDEN = {
    (4, "train"): "bea9e718d722f9af",
    (4, "test"): "e8cbe047f5fce03c",
    (5, "train"): "31858a60f5575fad",
    (5, "test"): "b0382fc4ac73ce8f",
    (6, "train"): "a70b28222a654e79",
    (6, "test"): "96c1c31759ebb90f",
    (7, "train"): "ad70fc68793fadc5",
    (7, "test"): "200f8f26ae84e7fa",
    (8, "train"): "6fe5cf11821541b7",
    (8, "test"): "4651e9a10a227713",
    (9, "train"): "e385a3046351237f",
    (9, "test"): "2bdaf80700ab0a58",
    (10, "train"): "c337c065f9714fd6",
    (10, "test"): "ae22b366eb32140a",
}


def digest(length, split):
    return hashlib.sha256(" ".join(targets(length, split)).encode()).hexdigest()[:16]


@pytest.mark.parametrize("length", LENGTHS)
def test_words_are_small_letters_of_their_length_sorted_and_without_doubles(length):
    assert all(re.fullmatch("[a-z]+", word) and len(word) == length for word in words(length))
    assert list(words(length)) == sorted(set(words(length)))
    assert len(words(length)) >= (2400 if length == 5 else 250)


def test_the_file_holds_nothing_but_these_words():
    text = wordle._FILE.read_text(encoding="utf-8")
    assert text.isascii()
    assert text.split() == [word for length in LENGTHS for word in words(length)]
    assert all(len(line) <= 120 for line in text.split("\n"))


@pytest.mark.parametrize("length", LENGTHS)
def test_splits_are_disjoint_and_of_their_sizes(length):
    train, test = targets(length, "train"), targets(length, "test")
    assert {"train": len(train), "test": len(test)} == SIZES[length]
    assert len(set(train) | set(test)) == len(train) + len(test)
    assert set(train) | set(test) <= set(words(length))


@pytest.mark.parametrize("split", ["train", "test"])
def test_tasks_are_in_no_alphabetical_order_and_use_all_of_the_alphabet(split):
    found = targets(5, split)
    rises = sum(a < b for a, b in itertools.pairwise(found)) / len(found)
    assert 0.45 < rises < 0.55
    first, everyone = [sum(word < "m" for word in part) / len(part) for part in (found, words(5))]
    assert abs(first - everyone) < 0.05


@pytest.mark.parametrize(("length", "split"), [(length, split) for length in LENGTHS for split in ("train", "test")])
def test_tasks_never_change(length, split):
    assert digest(length, split) == GOLDEN[length, split]


def test_another_process_with_another_hash_seed_has_the_same_tasks():
    code = "from dfc.games.paprika.wordle import targets; print(*targets(5, 'train')[:50], *targets(8, 'test')[:50])"
    here = [*targets(5, "train")[:50], *targets(8, "test")[:50]]
    for seed in ("1", "2"):
        found = subprocess.run(  # noqa: S603 (our own code)
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            cwd=pathlib.Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.split() == here


def test_the_example_in_the_rules_is_never_the_word():
    for length, example in wordle._EXAMPLES.items():
        assert len(example) == length
        assert example not in targets(length, "train") + targets(length, "test")


@pytest.mark.parametrize("length", [3, 11, 0, -5])
def test_a_length_without_words_is_refused(length):
    with pytest.raises(ValueError, match=rf"length must be from 4 to 10, got {length}"):
        words(length)
    with pytest.raises(ValueError, match=rf"length must be from 4 to 10, got {length}"):
        wordle.Wordle(length=length)


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="split must be one of train, test, got 'dev'"):
        targets(5, "dev")
