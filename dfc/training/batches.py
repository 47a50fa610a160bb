"""The batches of a run over stored rows: a seeded order with random access, packed ahead of the device.

Which rows an update has, and their layout, is a function of its number, the seed and the lengths of all rows: the
same after a restart and on every host. A host fills in only the rows of a batch that its devices hold.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

import grain
import numpy as np

from dfc.packing import Halves, Layout, Segment, fill, lay_out
from dfc.rows.training_rows import TrainingRows
from dfc.samples import TokenBatch
from dfc.training.row_shares import UpdateRows

_AHEAD = 2  # updates packed ahead; each is as large as its micro-batches


class SideLogprobs(Protocol):
    """Log-probabilities of the action tokens of every row and side."""

    def side(self, row: int, side: int) -> np.ndarray:
        """Returns float32 [action tokens]."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """What one update trains on.

    Attributes:
      rows: their numbers, int64 [n].
      micro_batches: packed.
      num_tokens: of all trajectories. actions: action tokens among them. places: tokens and padding, on all devices.
    """

    rows: np.ndarray
    micro_batches: list[TokenBatch]
    num_tokens: int
    actions: int
    places: int


def sides_of(rows: TrainingRows, reference: SideLogprobs | None) -> Callable[[int], list[Segment]]:
    """Returns a function that returns the sides of a row as packing takes them."""

    def sides(row: int) -> list[Segment]:
        return [
            Segment(*side[row], reference_logprobs=None if reference is None else reference.side(row, number))
            for number, side in enumerate(rows.sides)
        ]

    return sides


class Batches:
    """The batches of a whole run; `lengths` are the tokens of each row of the data.

    Of a micro-batch [B, T] this host fills in the rows that `own` returns, None for all. `reference` goes into
    `TokenBatch.reference_logprobs`; None: there is none.
    """

    def __init__(
        self,
        rows: TrainingRows,
        update_rows: UpdateRows,
        *,
        row_length: int,
        micro_batch_rows: int,
        own: Callable[[tuple[int, int]], Collection[int] | None] = lambda _: None,
        reference: SideLogprobs | None = None,
        halves: Halves = Halves(),  # noqa: B008 - frozen
    ) -> None:
        self.updates: int = update_rows.updates
        self.lengths = rows.lengths
        self.rows, self._own = rows, own
        self._update_rows = update_rows
        self._shape = row_length, micro_batch_rows, halves
        self._sides, self._reference = sides_of(rows, reference), reference is not None

    def layouts(self, update: int) -> tuple[np.ndarray, list[Layout]]:
        """Returns the row numbers of an update and their layout; a layout's units are positions in the former."""
        chosen = self._update_rows[update]
        return chosen, lay_out(self.rows.lengths[chosen].tolist(), *self._shape)

    def __getitem__(self, update: int) -> Batch:
        """Returns the batch of an update, from 0."""
        chosen, layouts = self.layouts(update)

        def sides(unit: int) -> list[Segment]:
            return self._sides(int(chosen[unit]))

        filled = [
            fill(x, sides, reference=self._reference, own=self._own((len(x.rows), x.row_length))) for x in layouts
        ]
        return Batch(
            chosen,
            filled,
            num_tokens=int(self.rows.lengths[chosen].sum()),
            actions=int(self.rows.actions[chosen].sum()),
            places=sum(batch.tokens.size for batch in filled),
        )

    def iterate(self, first: int) -> Iterator[Batch]:
        """Yields the batches from an update on; the next ones are packed while one is trained on."""
        ahead = grain.MapDataset.range(first, self.updates).map(self.__getitem__)
        options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=_AHEAD)
        yield from ahead.to_iter_dataset(options)
