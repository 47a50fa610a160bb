"""Puts sequences of any length into rows of few lengths, several to a row, each its own segment."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Self

import numpy as np

from dfc.samples import Choices, PackedChoices, Sample, TokenBatch

_TILE = 128  # positions; kernels of attention take whole ones
_MOST_SIZES = 4  # of micro-batches, where rows have one length; two or three of each where they have several
_LEAST_CHOICES = 16  # that a token of a batch has room for, if any has


@dataclasses.dataclass(frozen=True)
class Segment:
    """One contiguous piece of a row, a trajectory or one side of a pair; arrays are [n] unless stated otherwise.

    Attributes:
      token_ids: int32. mask: bool, the tokens to train on. advantage: of all of these, or float32 [n], of each.
      sampled_logprobs: float32, of these tokens under the distribution they were sampled from; None: 0.
      choices: as in `Sample`; None: the whole vocabulary.
      reference_logprobs: float32 [tokens to train on], of the reference policy; None: 0.
    """

    token_ids: np.ndarray
    mask: np.ndarray
    advantage: float | np.ndarray = 0.0
    sampled_logprobs: np.ndarray | None = None
    choices: Choices | None = None
    reference_logprobs: np.ndarray | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays there are, by name, as a method keeps them; `from_arrays` takes them back."""
        found = {
            name: np.asarray(value) for name, value in vars(self).items() if name != "choices" and value is not None
        }
        found["advantage"] = np.asarray(self.advantage, np.float32)
        return found | ({} if self.choices is None else self.choices.arrays())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Returns the segment whose `arrays` are given."""
        own = {name: array for name, array in arrays.items() if not name.startswith("choices")}
        return cls(**own, choices=Choices.from_arrays(arrays))


def segment(sample: Sample, advantage: float | np.ndarray) -> Segment:
    """Returns a sample up to its last sampled token, as no loss depends on what follows.

    The advantage is that of all of it, or of each token, float32 [n].
    """
    sampled = np.flatnonzero(sample.mask)
    end = int(sampled[-1]) + 1 if len(sampled) else 0
    return Segment(
        sample.token_ids[:end],
        sample.mask[:end],
        advantage[:end] if isinstance(advantage, np.ndarray) else advantage,
        sample.sampled_logprobs[:end],
        None if sample.choices is None else sample.choices.head(end),
    )


def pack(segments: Sequence[Segment], row_length: int, rows_multiple: int) -> TokenBatch:
    """Packs segments first-fit, longest first, into rows of `row_length`.

    Segments without a token to train on are left out. The number of rows is rounded up to a multiple of `rows_multiple`
    with empty rows, so that micro-batches have one shape.

    Raises:
      ValueError: a segment is longer than a row; its length and the fix are named.
    """
    kept = sorted((s for s in segments if s.mask.any()), key=lambda s: len(s.token_ids), reverse=True)
    lengths = [len(s.token_ids) for s in kept]
    _check_lengths(lengths, row_length)
    placed, _ = _first_fit(range(len(kept)), lengths, row_length, rows_multiple)
    rows = [tuple(row) for row in placed] or [()] * rows_multiple
    return fill(Layout(row_length, tuple(rows)), lambda unit: [kept[unit]])


@dataclasses.dataclass(frozen=True)
class Halves:
    """How far micro-batches may be smaller than the largest, by halves; each size is a compiled program.

    Results change by rounding only, as an update is a sum over its micro-batches. All hosts of a run have the same.

    Attributes:
      multiple: of which every size is one, the devices that rows are split over; 0: `micro_batch_rows`, so that none is
        smaller.
      tokens: above so many, sizes are halved as long as they can be; 0: no limit.
    """

    multiple: int = 0
    tokens: int = 0

    def counts(self, rows: int, row_length: int, micro_batch_rows: int, sizes: int = _MOST_SIZES) -> tuple[int, ...]:
        """Returns how many rows a micro-batch may have, descending, at most `sizes` numbers.

        The largest has `rows` of `row_length` tokens; `micro_batch_rows` is as for `lay_out`.
        """
        multiple = self.multiple or micro_batch_rows

        def halves(count: int) -> bool:
            return count % (2 * multiple) == 0

        while self.tokens and rows * row_length > self.tokens and halves(rows):
            rows //= 2
        found = [rows]
        while len(found) < sizes and halves(found[-1]):
            found.append(found[-1] // 2)
        return tuple(found)


def packed(
    segments: Sequence[Segment],
    row_length: int,
    micro_batch_rows: int,
    halves: Halves = Halves(),
) -> list[TokenBatch]:
    """Returns the micro-batches of an update: rows of one length, the shortest that holds every segment, in few sizes.

    The length is one of `row_lengths`; the sizes are at most four. Segments without a token to train on are left out;
    one micro-batch of padding stands for none. The longest rows have `row_length` tokens; `micro_batch_rows` is as for
    `lay_out`.

    Raises:
      ValueError: a segment is longer than a row; its length and the fix are named.
    """
    _, _, found = _laid_out(segments, row_length, micro_batch_rows, halves)
    if not found:
        return [empty_batch(halves.counts(micro_batch_rows, row_length, micro_batch_rows)[-1], row_length)]
    return found


def scored(
    segments: Sequence[Segment],
    score: Callable[[list[TokenBatch]], Sequence[np.ndarray]],
    row_length: int,
    micro_batch_rows: int,
    halves: Halves = Halves(),
) -> list[np.ndarray]:
    """Returns what a function gives for the action tokens of each segment, float32 [n], 0 at the other tokens.

    Of the micro-batches of `packed`, `score` returns an array [B, T] of each, such as log-probabilities
    (`Trainer.logprobs`).
    """
    kept, layouts, batches = _laid_out(segments, row_length, micro_batch_rows, halves)
    values: dict[int, np.ndarray] = {}
    for layout, found in zip(layouts, score(batches) if batches else [], strict=True):
        taken = taken_out(layout, np.asarray(found, np.float32), lambda unit: [segments[kept[unit]]])
        values |= {kept[unit]: own for unit, (own,) in taken.items()}
    every = []
    for number, one in enumerate(segments):
        every.append(np.zeros(len(one.token_ids), np.float32))
        if number in values:
            every[-1][one.mask] = values[number]
    return every


def _laid_out(
    segments: Sequence[Segment], row_length: int, micro_batch_rows: int, halves: Halves
) -> tuple[list[int], list["Layout"], list[TokenBatch]]:
    """Returns the numbers of the segments that are trained on, where each of these lies, and the micro-batches."""
    kept = [number for number, one in enumerate(segments) if one.mask.any()]
    lengths = [len(segments[number].token_ids) for number in kept]
    _check_lengths(lengths, row_length)
    shortest = min(shape for shape in row_lengths(row_length) if shape >= max(lengths, default=0))
    layouts = lay_out(lengths, row_length, micro_batch_rows, halves, shapes=(shortest,))
    found = [fill(layout, lambda unit: [segments[kept[unit]]]) for layout in layouts]
    most = max((0 if one.choices is None else one.choices.shape[2] for one in found), default=0)
    return kept, layouts, [_with_choices(one, most) if most else one for one in found]  # programs see few shapes


def _check_lengths(lengths: Sequence[int], row_length: int) -> None:
    if lengths and max(lengths) > row_length:
        raise ValueError(
            f"an episode has {max(lengths)} tokens but a row holds {row_length}; "
            f"raise batch.row_length to at least rollout.max_length"
        )


def empty_batch(rows: int, row_length: int) -> TokenBatch:
    """Returns a batch of padding."""
    shape = (rows, row_length)
    integers = [np.zeros(shape, np.int32) for _ in range(3)]
    floats = [np.zeros(shape, np.float32) for _ in range(3)]
    return TokenBatch(*integers, *floats)


def micro_batches(batch: TokenBatch, rows: int) -> list[TokenBatch]:
    """Cuts a batch into pieces of `rows` rows."""
    starts = range(0, len(batch.tokens), rows)
    return [TokenBatch(*(None if x is None else x[i : i + rows] for x in batch)) for i in starts]  # type: ignore[arg-type]  # only the last may be None


# ---- a layout from lengths alone ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the units of a micro-batch lie; a unit is a trajectory, or both sides of a pair.

    Attributes:
      row_length: tokens of a row.
      rows: the numbers of the units in each row, in their order; padding rows have none.
    """

    row_length: int
    rows: tuple[tuple[int, ...], ...]


def row_lengths(row_length: int) -> tuple[int, ...]:
    """Returns the lengths a row may have, longest first: all, half and a quarter of it, in whole tiles of attention."""
    return (row_length, *(row_length // part for part in (2, 4) if row_length % (part * _TILE) == 0))


def lay_out(
    lengths: Sequence[int],
    row_length: int,
    micro_batch_rows: int,
    halves: Halves = Halves(),
    *,
    shapes: Sequence[int] = (),
) -> list[Layout]:
    """Decides from lengths alone where units lie, so that every host decides the same.

    Units go, longest first, into the first row with room for it. Rows are of few lengths (`shapes`): a token costs
    attention over the whole of its row, so short units go into long rows only where these have room
    left. Micro-batches are of few shapes, each a compiled program: of every length as many tokens as
    `micro_batch_rows` long rows, and, for what is left, halves of that: at most four sizes where rows have one length,
    else two or three of each. The largest micro-batch has `micro_batch_rows` of the longest rows, of `row_length`
    tokens; `shapes` are the lengths of rows, longest first; empty: `row_lengths`.

    Raises:
      ValueError: a unit is longer than a row.
    """
    left = sorted(range(len(lengths)), key=lambda unit: -lengths[unit])
    if left and lengths[left[0]] > row_length:
        raise ValueError(f"expected units of at most {row_length} tokens, a row, got {lengths[left[0]]}")
    layouts = []
    shapes = shapes or row_lengths(row_length)
    for length, shorter in zip(shapes, (*shapes[1:], 0), strict=True):
        sizes = _MOST_SIZES if len(shapes) == 1 else max(2, (row_length // length).bit_length())
        counts = halves.counts(micro_batch_rows * (row_length // length), length, micro_batch_rows, sizes)
        placed, left = _first_fit(left, lengths, length, counts[-1], above=shorter)
        rows = [tuple(row) for row in placed]
        for count in cut(len(rows), counts):
            own, rows = rows[:count], rows[count:]
            layouts.append(Layout(length, (*own, *[()] * (count - len(own)))))
    return layouts


def cut(rows: int, counts: Sequence[int]) -> list[int]:
    """Returns the sizes of the micro-batches that hold so many rows: the largest, then smaller ones for what is left.

    Rows that are left go into one micro-batch where that leaves no more of it empty than the smallest size has. The
    number of rows is a multiple of the smallest size; `counts` are the sizes, descending by halves.
    """
    found = [counts[0]] * (rows // counts[0])
    left = rows % counts[0]
    while left:
        enough = min(count for count in counts if count >= left)
        count = enough if enough - left <= counts[-1] else max(count for count in counts if count <= left)
        found.append(count)
        left = max(0, left - count)
    return found


def _first_fit(
    order: Sequence[int], lengths: Sequence[int], row_length: int, at_once: int, *, above: int = 0
) -> tuple[list[list[int]], list[int]]:
    """Returns the units of each row, opened `at_once`, and those in none: units up to `above` tokens open no row."""
    rows: list[list[int]] = []
    room: list[int] = []
    left: list[int] = []
    first_open = 0
    for unit in order:
        size = lengths[unit]
        row = next((row for row in range(first_open, len(rows)) if room[row] >= size), None)
        if row is None and size <= above:
            left.append(unit)
            continue
        if row is None:
            row = len(rows)
            rows += [[] for _ in range(at_once)]
            room += [row_length] * at_once
        rows[row].append(unit)
        room[row] -= size
        while first_open < len(rows) and room[first_open] < lengths[order[-1]]:
            first_open += 1
    return rows, left


def fill(
    layout: Layout,
    sides: Callable[[int], Sequence[Segment]],
    *,
    reference: bool = False,
    own: Collection[int] | None = None,
) -> TokenBatch:
    """Returns a micro-batch: each side of a unit is a segment, side s of unit k of a row 1 + s + k * sides.

    With `reference` it has log-probabilities of the reference policy; of all hosts or of none. Rows that are not `own`
    stay empty, for a host whose devices have no part of them. None: all are filled.
    """
    batch, sets = empty_batch(len(layout.rows), layout.row_length), [dict[int, Choices]() for _ in layout.rows]
    if reference:
        batch = batch._replace(reference_logprobs=np.zeros_like(batch.sampled_logprobs))
    for row, units in enumerate(layout.rows):
        if own is not None and row not in own:
            continue
        start = 0
        for number, side in enumerate((s for unit in units for s in sides(unit)), start=1):
            mask, end = side.mask, start + len(side.token_ids)
            batch.tokens[row, start:end] = side.token_ids
            batch.positions[row, start:end] = np.arange(end - start)
            batch.segments[row, start:end] = number
            batch.mask[row, start:end] = mask
            batch.advantages[row, start:end] = side.advantage * mask
            if side.sampled_logprobs is not None:
                batch.sampled_logprobs[row, start:end] = np.where(mask, side.sampled_logprobs, 0)
            if batch.reference_logprobs is not None and side.reference_logprobs is not None:
                batch.reference_logprobs[row, start:end][mask] = side.reference_logprobs
            if side.choices is not None:
                sets[row][start] = side.choices
            start = end
    if any(sets):
        length = layout.row_length
        rows = [Choices.placed(length, own) or Choices.nothing(length) for own in sets]
        batch = batch._replace(choices=PackedChoices(tuple(rows), _room(rows)))
    return batch


def _with_choices(batch: TokenBatch, width: int) -> TokenBatch:
    """Returns a batch whose sets have so much room each; `width` is that of another one."""
    shape, old = batch.tokens.shape, batch.choices
    if old is None:
        return batch._replace(choices=PackedChoices((Choices.nothing(shape[1]),) * shape[0], width))
    assert isinstance(old, PackedChoices)  # noqa: S101 - made by `fill`
    return batch._replace(choices=PackedChoices(old.rows, width))


def _room(sets: Iterable[Choices]) -> int:
    """Returns the room of every set of a batch: a power of two, so that programs see few shapes."""
    most = max(int(one.sizes.max(initial=0)) for one in sets)
    return max(_LEAST_CHOICES, 1 << (most - 1).bit_length())


def taken_out(
    layout: Layout, values: np.ndarray, sides: Callable[[int], Sequence[Segment]]
) -> dict[int, tuple[np.ndarray, ...]]:
    """Returns of every unit its sides' values at action tokens, from an array [B, T] of a filled micro-batch."""
    found = {}
    for row, units in enumerate(layout.rows):
        start = 0
        for unit in units:
            own = []
            for side in sides(unit):
                end = start + len(side.token_ids)
                own.append(values[row, start:end][side.mask])
                start = end
            found[unit] = tuple(own)
    return found
