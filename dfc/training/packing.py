"""Puts episodes of any length into rows of one length, several to a row, each its own segment."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from dfc.episodes import TokenBatch


@dataclasses.dataclass(frozen=True)
class Sequence1D:
    """One episode as the trainer needs it; all arrays [n].

    Attributes:
      ids: int32. mask: bool, drawn ids. logprobs: float32, of the drawn ids when drawn. advantage: of all of them.
    """

    ids: np.ndarray
    mask: np.ndarray
    logprobs: np.ndarray
    advantage: float


def trim(sequence: Sequence1D) -> Sequence1D:
    """Cuts what stands behind the last drawn id: no loss depends on it."""
    drawn = np.flatnonzero(sequence.mask)
    end = int(drawn[-1]) + 1 if len(drawn) else 0
    return Sequence1D(sequence.ids[:end], sequence.mask[:end], sequence.logprobs[:end], sequence.advantage)


def pack(sequences: Sequence[Sequence1D], row_length: int, rows_multiple: int) -> TokenBatch:
    """Packs trimmed sequences first-fit, longest first, into rows of `row_length`.

    Sequences without a drawn id are left out. The number of rows is rounded up to a multiple of `rows_multiple`
    with empty rows, so that micro-batches have one shape.

    Raises:
      ValueError: a sequence is longer than a row; its length and the cure are named.
    """
    kept = sorted((s for s in map(trim, sequences) if len(s.ids)), key=lambda s: len(s.ids), reverse=True)
    if kept and len(kept[0].ids) > row_length:
        raise ValueError(
            f"an episode has {len(kept[0].ids)} ids but a row holds {row_length}; "
            f"raise batch.row_length to at least rollout.max_length"
        )
    rows: list[list[Sequence1D]] = []
    room: list[int] = []
    first_open = 0
    for sequence in kept:
        size = len(sequence.ids)
        for row in range(first_open, len(rows)):
            if room[row] >= size:
                rows[row].append(sequence)
                room[row] -= size
                break
        else:
            rows.append([sequence])
            room.append(row_length - size)
        shortest = len(kept[-1].ids)
        while first_open < len(rows) and room[first_open] < shortest:
            first_open += 1
    count = max(1, -(-len(rows) // rows_multiple)) * rows_multiple
    batch = empty_batch(count, row_length)
    for row, members in enumerate(rows):
        start = 0
        for segment, sequence in enumerate(members, start=1):
            end = start + len(sequence.ids)
            batch.tokens[row, start:end] = sequence.ids
            batch.positions[row, start:end] = np.arange(end - start)
            batch.segments[row, start:end] = segment
            batch.mask[row, start:end] = sequence.mask
            batch.advantages[row, start:end] = sequence.advantage * sequence.mask
            batch.old_logprobs[row, start:end] = np.where(sequence.mask, sequence.logprobs, 0)
            start = end
    return batch


def empty_batch(rows: int, row_length: int) -> TokenBatch:
    """Returns a batch of padding."""
    shape = (rows, row_length)
    integers = [np.zeros(shape, np.int32) for _ in range(3)]
    floats = [np.zeros(shape, np.float32) for _ in range(3)]
    return TokenBatch(*integers, *floats)


def micro_batches(batch: TokenBatch, rows: int) -> list[TokenBatch]:
    """Cuts a batch into pieces of `rows` rows."""
    return [TokenBatch(*(x[i : i + rows] for x in batch)) for i in range(0, len(batch.tokens), rows)]
