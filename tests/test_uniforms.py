"""The numbers that decide draws: splitmix64 of a seed and an index, uniform and unrelated between neighbours."""

import functools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from dfc.inference.sampling import uniforms

_MASK = 2**64 - 1


def splitmix(seed, index):
    """Steele, Lea and Flood's splitmix64 in Python's own integers: its output number `index` after `seed`."""
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def test_the_generator_is_splitmix64():
    # Published first outputs for the seed 1234567, e.g. in Rosetta Code's "Pseudo-random numbers/Splitmix64".
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [splitmix(1234567, index) for index in range(3)] == published
    numbers = uniforms(np.full(3, 1234567, np.uint64), np.arange(3, dtype=np.uint64))
    np.testing.assert_array_equal(numbers, [(z >> 40) / 2**24 for z in published])


@hypothesis.given(
    strategies.lists(strategies.tuples(strategies.integers(0, 2**63), strategies.integers(0, 2**40)), min_size=1)
)
@hypothesis.settings(max_examples=50, deadline=None)
def test_a_number_depends_on_its_seed_and_index_only(pairs):
    seeds, indices = (np.asarray(column, np.uint64) for column in zip(*pairs, strict=True))
    numbers = uniforms(seeds, indices)
    assert numbers.dtype == np.float32
    assert ((numbers >= 0) & (numbers < 1)).all()
    np.testing.assert_array_equal(numbers, [(splitmix(*pair) >> 40) / 2**24 for pair in pairs])


def test_numbers_of_a_table_of_seeds_and_indices_are_those_of_its_places():
    seeds = np.asarray([[3], [2**63]], np.uint64)
    indices = np.asarray([[0, 1, 2], [7, 8, 2**40]], np.uint64)
    numbers = uniforms(seeds, indices)
    expected = [
        [(splitmix(int(s), int(i)) >> 40) / 2**24 for i in row] for (s,), row in zip(seeds, indices, strict=True)
    ]
    np.testing.assert_array_equal(numbers, expected)
    np.testing.assert_array_equal(uniforms(seeds, indices[0]), [uniforms(s, indices[0]) for s in seeds])


@functools.cache
def many(kind):
    count = 20_000
    running, fixed = np.arange(count, dtype=np.uint64), np.full(count, 5, np.uint64)
    return uniforms(running, fixed) if kind == "seeds" else uniforms(fixed, running)


@pytest.mark.parametrize("kind", ["seeds", "indices"])
def test_numbers_of_neighbouring_seeds_and_indices_are_uniform_and_unrelated(kind):
    numbers = many(kind).astype(np.float64)
    counts = np.histogram(numbers, bins=50, range=(0, 1))[0]
    assert ((counts - 400) ** 2 / 400).sum() < 49 + 5 * np.sqrt(98)
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 5 / np.sqrt(len(numbers))
    assert len(np.unique(numbers)) > 0.99 * len(numbers)
