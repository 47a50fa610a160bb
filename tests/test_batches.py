"""Batches of a run over rows: everything once per epoch, the same everywhere, nothing lost in packing."""

import grain
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies
from offline_rows import pairs, segments_of, sequences, trimmed, write_pairs, write_sft

from dfc.games.rng import derive_seed
from dfc.packing import Segment, fill, lay_out, row_lengths
from dfc.rows import training_rows
from dfc.training.batches import Batches
from dfc.training.row_shares import UpdateRows


def source(tmp_path, found):
    two = isinstance(found[0][0], tuple)
    path = (write_pairs if two else write_sft)(tmp_path / "data.parquet", found)
    return training_rows.read(path, pairs=two, vocabulary=1000, row_length=512, tokenizer=None)


def batches(data, **options):
    settings = {"batch_size": 8, "epochs": 2, "seed": 0}
    settings |= {name: options.pop(name) for name in list(options) if name in settings}
    shape = {"row_length": 512, "micro_batch_rows": 1}
    return Batches(data, UpdateRows(len(data), **settings), **shape | options)


# ---- order ----------------------------------------------------------------------------------------------------------


@hypothesis.given(
    strategies.integers(1, 60), strategies.integers(1, 70), strategies.integers(1, 3), strategies.integers(0, 2**40)
)
@hypothesis.settings(max_examples=40, deadline=None)
def test_every_row_comes_once_per_epoch(count, batch_size, epochs, seed):
    found = UpdateRows(count, batch_size=batch_size, epochs=epochs, seed=seed)
    per_epoch = -(-count // batch_size)
    assert found.updates == per_epoch * epochs
    for epoch in range(epochs):
        updates = [found[epoch * per_epoch + update].tolist() for update in range(per_epoch)]
        assert [len(update) for update in updates[:-1]] == [batch_size] * (per_epoch - 1)
        assert sorted(row for update in updates for row in update) == list(range(count))


def test_the_order_follows_from_the_seed_and_differs_between_epochs():
    def epochs(seed):
        found = UpdateRows(50, batch_size=50, epochs=2, seed=seed)
        return [found[0].tolist(), found[1].tolist()]

    assert epochs(3) == epochs(3)
    assert len({tuple(epoch) for seed in (3, 4) for epoch in epochs(seed)}) == 4


@pytest.mark.parametrize(("count", "batch_size"), [(50, 8), (7, 3), (5, 9)])
def test_the_order_is_that_of_the_library_batched_epoch_by_epoch(count, batch_size):
    seed = derive_seed("order of rows", 11) % 2**32
    library = grain.MapDataset.range(count).seed(seed).shuffle()
    expected = library.batch(batch_size, batch_fn=np.asarray).repeat(3)
    found = UpdateRows(count, batch_size=batch_size, epochs=3, seed=11)
    assert found.updates == len(expected)
    for update in range(found.updates):
        np.testing.assert_array_equal(found[update], expected[update])


# ---- layouts --------------------------------------------------------------------------------------------------------


def test_rows_are_of_few_lengths_in_whole_tiles():
    assert row_lengths(2048) == (2048, 1024, 512)
    assert row_lengths(512) == (512, 256, 128)
    assert row_lengths(256) == (256, 128)
    assert row_lengths(100) == (100,)


@hypothesis.given(strategies.lists(strategies.integers(1, 512), max_size=60), strategies.integers(1, 4))
@hypothesis.settings(max_examples=100, deadline=None)
def test_a_layout_holds_every_unit_once_and_overfills_no_row(lengths, micro_batch_rows):
    layouts = lay_out(lengths, 512, micro_batch_rows)
    placed = [unit for layout in layouts for row in layout.rows for unit in row]
    assert sorted(placed) == list(range(len(lengths)))
    m = micro_batch_rows
    shapes = {(512, m), (256, 2 * m), (256, m), (128, 4 * m), (128, 2 * m), (128, m)}
    assert {(layout.row_length, len(layout.rows)) for layout in layouts} <= shapes
    for layout in layouts:
        assert any(layout.rows)
        assert all(sum(lengths[unit] for unit in row) <= layout.row_length for row in layout.rows)


def test_short_units_lie_in_short_rows_unless_long_ones_have_room():
    (layout,) = lay_out([100, 90, 120], 512, 1)
    assert layout.row_length == 128
    assert len(layout.rows) == 4
    long, short = lay_out([400, 100, 100], 512, 1)
    assert (long.row_length, long.rows) == (512, ((0, 1),))
    assert (short.row_length, short.rows) == (128, ((2,),))


def test_a_unit_longer_than_a_row_is_refused():
    with pytest.raises(ValueError, match="expected units of at most 512 tokens, a row, got 513"):
        lay_out([3, 513], 512, 1)


# ---- contents -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 7, 40])
def test_packed_rows_are_what_the_file_holds(tmp_path, batch_size):
    found = sequences(40, longest=300)
    source_ = batches(source(tmp_path, found), batch_size=batch_size)
    seen = []
    for update in range(source_.updates):
        batch = source_[update]
        own = [segment[:2] for micro in batch.micro_batches for row in segments_of(micro) for segment in row]
        expected = [trimmed(*found[row]) for row in batch.rows]
        assert sorted(own) == sorted((token_ids, [float(m) for m in mask]) for token_ids, mask in expected)
        assert batch.num_tokens == sum(len(token_ids) for token_ids, _ in expected)
        assert batch.actions == sum(sum(mask) for _, mask in expected)
        assert batch.places == sum(micro.tokens.size for micro in batch.micro_batches)
        seen += batch.rows.tolist()
    assert sorted(seen) == sorted(list(range(40)) * 2)


class Numbered:
    """Stands where reference log-probabilities come from: the row, the side and the place of each action id."""

    def __init__(self, data):
        self.data = data

    def side(self, row, side):
        return np.float32(row + 0.5 * side) + np.arange(self.data.sides[side].actions[row], dtype=np.float32) / 256


def test_both_sides_of_a_pair_lie_in_one_row_with_their_reference(tmp_path):
    found = pairs(30, longest=150)
    data = source(tmp_path, found)
    source_ = batches(data, reference=Numbered(data), batch_size=30, epochs=1)
    by_token_ids = {str(trimmed(*pair[0])[0]): number for number, pair in enumerate(found)}
    seen = []
    for micro in source_[0].micro_batches:
        for row in segments_of(micro):
            assert len(row) % 2 == 0
            for chosen, rejected in zip(row[::2], row[1::2], strict=True):
                number = by_token_ids[str(chosen[0])]
                seen.append(number)
                for side, (token_ids, mask, old) in enumerate((chosen, rejected)):
                    assert (token_ids, [bool(m) for m in mask]) == trimmed(*found[number][side])
                    action_values = [value for value, action in zip(old, mask, strict=True) if action]
                    assert action_values == Numbered(data).side(number, side).tolist()
                    assert not any(value for value, action in zip(old, mask, strict=True) if not action)
    assert sorted(seen) == list(range(30))


def test_hosts_fill_in_their_own_rows_and_together_all_of_them(tmp_path):
    data = source(tmp_path, pairs(30, longest=150))

    def host(number):
        return batches(data, micro_batch_rows=4, own=lambda shape: set(range(number, shape[0], 3)))

    whole = batches(data, micro_batch_rows=4)
    assert whole[0].micro_batches[0].reference_logprobs is None
    hosts = [host(number) for number in range(3)]
    for update in range(whole.updates):
        parts = [h[update] for h in hosts]
        for number, micro in enumerate(whole[update].micro_batches):
            for name, array in list(micro._asdict().items())[:6]:
                filled = [getattr(part.micro_batches[number], name) for part in parts]
                assert all(f.shape == array.shape for f in filled)
                np.testing.assert_array_equal(sum(filled), array)
                assert all(not f[[r for r in range(len(f)) if r % 3 != n]].any() for n, f in enumerate(filled))
        assert {(part.num_tokens, part.actions, part.places) for part in parts} == {
            (whole[update].num_tokens, whole[update].actions, whole[update].places)
        }


def test_batches_ahead_are_those_by_number_from_any_update_on(tmp_path):
    source_ = batches(source(tmp_path, sequences(40)), epochs=2)
    for first in (0, 3, source_.updates - 1, source_.updates):
        ahead = list(source_.iterate(first))
        assert len(ahead) == source_.updates - first
        for number, batch in enumerate(ahead, start=first):
            np.testing.assert_array_equal(batch.rows, source_[number].rows)
            for micro, same in zip(batch.micro_batches, source_[number].micro_batches, strict=True):
                for one, other in zip(micro, same, strict=True):
                    np.testing.assert_array_equal(one, other)


def test_a_filled_layout_needs_no_more_than_its_units():
    (layout,) = lay_out([3], 64, 2)
    token_ids, mask = np.asarray([5, 6, 7], np.int32), np.asarray([False, True, True])
    side = Segment(token_ids, mask, reference_logprobs=np.asarray([-1, -2], np.float32))
    batch = fill(layout, lambda unit: [side], reference=True)  # noqa: ARG005 - one unit
    assert batch.tokens.shape == (2, 64)
    assert batch.tokens[0, :4].tolist() == [5, 6, 7, 0]
    assert batch.reference_logprobs[0, :4].tolist() == [0, -1, -2, 0]
    assert not batch.segments[1].any()
