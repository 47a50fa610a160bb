"""Packing loses nothing and mixes nothing up."""

import re

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from dfc.packing import Halves, Segment, cut, empty_batch, lay_out, micro_batches, pack, packed, segment
from dfc.samples import Choices, Sample

ROW = 24


def sequence(mask, *, advantage=1.0, seed=0):
    """Ids and log-probabilities nobody else has; `mask` is a picture such as ``..##.#.``."""
    rng, mask = np.random.default_rng(seed), np.asarray([c == "#" for c in mask], bool)
    token_ids = rng.integers(1, 1_000_000, size=len(mask)).astype(np.int32)
    sampled_logprobs = -rng.uniform(0.1, 9, size=len(mask)).astype(np.float32)
    return segment(Sample(token_ids, mask, sampled_logprobs), advantage)


def unpack(batch):
    """Every segment of every row as (ids, mask, advantages, old log-probabilities), read place by place."""
    found = []
    for row in range(len(batch.tokens)):
        parts = {}
        for place, number in enumerate(batch.segments[row].tolist()):
            parts.setdefault(number, []).append(place)
        padding = parts.pop(0, [])
        for array in (batch.tokens, batch.positions, batch.mask, batch.advantages, batch.sampled_logprobs):
            assert not array[row, padding].any()
        assert padding == list(range(ROW - len(padding), ROW))
        assert list(parts) == list(range(1, len(parts) + 1))
        for places in parts.values():
            assert places == list(range(places[0], places[-1] + 1))
            assert batch.positions[row, places].tolist() == list(range(len(places)))
            columns = (batch.tokens, batch.mask, batch.advantages, batch.sampled_logprobs)
            found.append(tuple(tuple(array[row, places].tolist()) for array in columns))
    return found


def expected(sequences):
    """The same from the sequences, with zeros where nothing was sampled."""
    found = []
    for s in sequences:
        if len(s.token_ids):
            mask = tuple(1.0 if m else 0.0 for m in s.mask)
            advantages = tuple(float(np.float32(s.advantage)) * m for m in mask)
            sampled_logprobs = tuple(float(p) * m for p, m in zip(s.sampled_logprobs, mask, strict=True))
            found.append((tuple(s.token_ids.tolist()), mask, advantages, sampled_logprobs))
    return found


sets = strategies.lists(
    strategies.tuples(strategies.text(".#", max_size=ROW), strategies.sampled_from([-1.5, -0.3, 0.25, 2.0])),
    max_size=25,
)


@hypothesis.given(sets, strategies.integers(1, 5))
@hypothesis.settings(max_examples=150, deadline=None)
def test_nothing_is_lost_and_rows_come_in_multiples(pictures, multiple):
    sequences = [sequence(mask, advantage=a, seed=n) for n, (mask, a) in enumerate(pictures)]
    batch = pack(sequences, ROW, multiple)
    assert sorted(unpack(batch)) == sorted(expected(sequences))
    assert {array.shape for array in batch[:6]} == {(len(batch.tokens), ROW)}
    assert [array.dtype for array in batch[:6]] == [np.int32] * 3 + [np.float32] * 3
    rows = batch.segments.any(axis=1)
    assert len(rows) % multiple == 0
    assert len(rows) - rows.sum() < multiple or not rows.any()
    # First fit: no two rows could have been one.
    filled = (batch.segments[rows] > 0).sum(axis=1)
    assert (filled[:-1] + filled[1:] > ROW).all()


def test_longer_sequences_come_first_and_fill_rows():
    pictures = ["." * (n - 1) + "#" for n in (4, 20, 10, 14, 24)]
    batch = pack([sequence(p, seed=n) for n, p in enumerate(pictures)], ROW, 1)
    assert [np.bincount(row[row > 0])[1:].tolist() for row in batch.segments] == [[24], [20, 4], [14, 10]]


def test_what_stands_behind_the_last_drawn_id_is_cut():
    cut = sequence("..#.#....", advantage=0.5)
    assert [len(x) for x in (cut.token_ids, cut.mask, cut.sampled_logprobs)] == [5, 5, 5]
    assert cut.advantage == 0.5
    assert len(sequence("......").token_ids) == 0
    # A conversation longer than a row fits if what was drawn does.
    assert pack([sequence("." * 20 + "#" + "." * 90)], ROW, 1).mask.sum() == 1


def test_log_probabilities_of_observations_cannot_leak_in():
    s = sequence("..##")
    s.sampled_logprobs[:2] = np.nan
    batch = pack([s], ROW, 1)
    assert np.isfinite(batch.sampled_logprobs).all()


def test_a_sequence_longer_than_a_row_is_refused_with_the_cure():
    text = "an episode has 25 tokens but a row holds 24; raise batch.row_length to at least rollout.max_length"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        pack([sequence("#"), sequence("." * 24 + "#.")], ROW, 1)


@pytest.mark.parametrize("sequences", [[], [sequence("....")], [sequence("")]], ids=["none", "undrawn", "empty"])
def test_nothing_to_train_on_gives_padding_of_the_usual_shape(sequences):
    batch = pack(sequences, ROW, 4)
    assert batch.reference_logprobs is None
    for array, padding in zip(batch[:6], empty_batch(4, ROW)[:6], strict=True):
        np.testing.assert_array_equal(array, padding)
        assert not array.any()


def test_micro_batches_are_the_batch_in_pieces():
    batch = pack([sequence("..#" * 6, seed=n) for n in range(11)], ROW, 3)
    pieces = micro_batches(batch, 3)
    assert {array.shape for piece in pieces for array in piece[:6]} == {(3, ROW)}
    for name in batch._fields[:6]:
        np.testing.assert_array_equal(np.concatenate([getattr(p, name) for p in pieces]), getattr(batch, name))


def test_choices_lie_at_their_tokens_and_have_room_in_powers_of_two():
    few = Segment(
        np.asarray([1, 7, 3], np.int32),
        np.asarray([False, True, True]),
        choices=Choices.of([[], [7, 9], [3]]),
    )
    more = Segment(np.asarray([2, 5], np.int32), np.asarray([False, True]), choices=Choices.of([[], range(20)]))
    free = sequence("..##", seed=3)
    assert pack([free], ROW, 1).choices is None
    alone = pack([few, free], ROW, 1)
    assert alone.choices.shape == (1, ROW, 16)
    assert (np.asarray(alone.choices) >= 0).sum() == 3
    both = pack([few, more], ROW, 1)
    assert both.choices.shape == (1, ROW, 32)
    assert np.asarray(both.choices)[0, 1, :3].tolist() == [7, 9, -1]
    assert np.asarray(both.choices)[0, 2, :2].tolist() == [3, -1]
    assert np.asarray(both.choices)[0, 4].tolist() == [*range(20), *[-1] * 12]
    assert [b.choices.shape for b in micro_batches(both._replace(), 1)] == [(1, ROW, 32)]


# ---- micro-batches of few sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("halves", "rows", "length", "expected"),
    [
        (Halves(), 8, 256, (8,)),
        (Halves(1), 8, 256, (8, 4, 2, 1)),
        (Halves(1), 64, 256, (64, 32, 16, 8)),
        (Halves(4), 8, 256, (8, 4)),
        (Halves(2), 24, 256, (24, 12, 6)),
        (Halves(1, 512), 8, 256, (2, 1)),
        (Halves(1, 512), 64, 64, (8, 4, 2, 1)),
        (Halves(2, 512), 8, 512, (2,)),
        (Halves(1, 512), 3, 512, (3,)),
    ],
)
def test_sizes_are_halves_that_devices_share_evenly(halves, rows, length, expected):
    assert halves.counts(rows, length, rows) == expected


@pytest.mark.parametrize(
    ("rows", "counts", "expected"),
    [
        (0, (8, 4, 2, 1), []),
        (48, (64, 32, 16, 8), [32, 16]),
        (12, (8, 4, 2, 1), [8, 4]),
        (7, (8, 4, 2, 1), [8]),  # one row too many, two passes fewer
        (13, (8, 4, 2, 1), [8, 4, 1]),
        (11, (8, 4, 2, 1), [8, 4]),
        (8, (8, 4), [8]),
        (20, (8, 4), [8, 8, 4]),
        (5, (1,), [1] * 5),
    ],
)
def test_what_is_left_lies_in_smaller_micro_batches(rows, counts, expected):
    assert cut(rows, counts) == expected


@hypothesis.given(strategies.integers(0, 300), strategies.integers(1, 4), strategies.integers(0, 6))
def test_at_most_one_of_the_smallest_size_is_empty(rows, multiple, doubled):
    counts = Halves(multiple).counts(multiple << doubled, 32, multiple << doubled)
    found = cut(-(-rows // counts[-1]) * counts[-1], counts)
    assert 0 <= sum(found) - rows < 2 * counts[-1]
    assert set(found) <= set(counts)
    assert found == sorted(found, reverse=True)


@hypothesis.given(sets)
@hypothesis.settings(max_examples=50, deadline=None)
def test_micro_batches_of_an_update_hold_its_sequences_in_few_shapes(pictures):
    sequences = [sequence(mask, advantage=a, seed=n) for n, (mask, a) in enumerate(pictures)]
    found = packed(sequences, ROW, 8, Halves(2))
    assert found
    assert sorted(one for batch in found for one in unpack(batch)) == sorted(expected(sequences))
    assert {batch.tokens.shape for batch in found} <= {(8, ROW), (4, ROW), (2, ROW)}


def test_rows_of_an_update_have_one_length_and_those_of_stored_rows_few_sizes_of_each():
    short = [sequence("." * 50 + "#", seed=n) for n in range(13)]
    assert {batch.tokens.shape for batch in packed(short, 512, 8, Halves(1))} == {(8, 128)}
    one_long = [*short, sequence("." * 300 + "#")]
    assert {batch.tokens.shape for batch in packed(one_long, 512, 8, Halves(1))} == {(2, 512)}
    layouts = lay_out([51] * 70, 512, 8, Halves(1))
    assert {(len(layout.rows), layout.row_length) for layout in layouts} == {(32, 128), (8, 128)}


def test_micro_batches_of_an_update_have_room_for_as_many_choices():
    choices = Choices.of([[], range(20), *[[]] * 18])
    many = Segment(np.arange(20, dtype=np.int32), np.arange(20) == 1, choices=choices)
    found = packed([many, *(sequence("." * 19 + "#", seed=n) for n in range(2))], ROW, 1)
    assert [batch.choices.shape for batch in found] == [(1, ROW, 32)] * 3
    assert sum((np.asarray(batch.choices) >= 0).sum() for batch in found) == 20
