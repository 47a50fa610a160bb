"""Which shapes calls have: few, covering, and chosen by what they feed per unit of work."""

import itertools

import pytest

from dfc.inference import buckets
from dfc.inference.buckets import Costs, Shapes


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 64, 100])
def test_rows_go_down_by_halves_and_hold_any_number(most):
    rows = buckets.default_rows(most)
    assert rows[-1] == most
    assert len(rows) <= 4
    found = Shapes(rows, (8,), (0, 16))
    for count in range(1, most + 1):
        assert count <= found.rows_for(count)
        assert found.rows_for(count) in rows
        assert found.rows_for(count) <= max(rows[0], 2 * count)  # never more than twice what is needed


@pytest.mark.parametrize("longest", [20, 128, 129, 160, 836, 2600, 8192, 131072])
def test_lengths_cover_every_conversation_and_are_few(longest):
    cache_buckets = buckets.default_cache_buckets(longest)
    assert cache_buckets[0] == 0
    assert cache_buckets[-1] == longest
    assert list(cache_buckets) == sorted(set(cache_buckets))
    assert len(cache_buckets) <= 2 * max(1, longest // 64).bit_length() + 2
    found = Shapes((1,), (8,), cache_buckets)
    for held in itertools.chain(range(min(longest, 300)), [longest - 1, longest]):
        assert held <= found.cache_bucket_for(held) <= max(128, 2 * held)


@pytest.mark.parametrize(("longest", "prefill_buckets"), [(4, (8,)), (100, (8, 32, 128)), (9000, (8, 32, 128))])
def test_widths_end_where_conversations_do(longest, prefill_buckets):
    assert buckets.default_prefill_buckets(longest) == prefill_buckets


def test_reading_takes_wide_calls_for_many_ids_and_narrow_ones_for_few():
    found = Shapes((8, 16, 32, 64), (8, 32, 128), (0, 1024))
    costs = Costs(16, 0.002)
    assert found.best_prefill([[(61, 512)] * 64], costs, 512)[:2] == (64, 32)  # twice 32, not once 128 or eight times 8
    assert found.best_prefill([[(5, 512)] * 64], costs, 512)[:2] == (64, 8)
    assert found.best_prefill([[(128, 512)] * 3], costs, 512)[:2] == (8, 128)
    # One long conversation does not make the short ones pay for its width.
    assert found.best_prefill([[(500, 512), *[(3, 512)] * 63]], costs, 512)[0] == 8


def test_a_call_that_costs_much_is_made_large():
    found = Shapes((8, 64), (8, 128), (0, 1024))
    assert found.best_prefill([[(20, 512)] * 64], Costs(16, 0.002), 512)[1] == 8
    assert found.best_prefill([[(20, 512)] * 64], Costs(100_000, 0.0), 512)[:2] == (64, 128)


def test_every_shard_has_as_many_rows():
    found = Shapes((1, 2, 4), (8,), (0, 64))
    costs = Costs(0, 0.0)
    assert found.best_prefill([[(8, 512)] * 4, []], costs, 512)[0] <= 4
    # A second row would stand idle in the first shard.
    assert found.best_prefill([[(8, 512)], [(8, 512)] * 2], costs, 512)[:2] == (1, 8)


def test_work_done_per_cost_falls_with_the_length_that_is_read():
    found = Shapes((8, 64), (8, 32), (0, 1024, 4096))
    costs = Costs(16, 0.002)
    assert costs.of_call(4, 8, 0) == 16 + 32
    rates = [found.best_prefill([[(32, 0)] * 64], costs, length)[2] for length in (0, 1024, 4096)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 2 * rates[2]
