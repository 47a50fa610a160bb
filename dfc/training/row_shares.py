"""Which rows each update of a run has: of the data, and a share from each further file.

The data itself is gone through as usual, every row once per epoch. Mixed in are rows of what is not to be
forgotten (rehearsal: Playpen, arXiv 2504.08590, appendix E.1, which does not say the share): a further file is gone
through in seeded orders, again and again, as often as its share asks for.
"""

from collections.abc import Sequence
from fractions import Fraction

import grain
import numpy as np

from dfc.games.rng import derive_seed
from dfc.rows.training_rows import Sequences, TrainingRows


def joined(files: Sequence[TrainingRows]) -> TrainingRows:
    """Returns the rows of several files, all of trajectories or all of pairs, one after another, nothing copied.

    They are under the path of the first file.
    """
    sides = zip(*(file.sides for file in files), strict=True)
    return files[0] if len(files) == 1 else TrainingRows(files[0].path, tuple(map(_one_after_another, sides)))


def _one_after_another(files: Sequence[Sequences]) -> Sequences:
    parts = np.cumsum([0, *(len(file.token_ids) for file in files[:-1])])
    return Sequences(
        [array for file in files for array in file.token_ids],
        [array for file in files for array in file.mask],
        np.concatenate([file.part + start for file, start in zip(files, parts, strict=True)]),
        *(np.concatenate([getattr(file, name) for file in files]) for name in ("start", "lengths", "actions")),
    )


class UpdateRows:
    """The row numbers of every update of a run, by number: those of the data first, those of further files after them.

    Each epoch has every row of the data once, in an order of its own; its last update has what is left. `others` are
    rows and share of every further file, whose rows are numbered after those of the data, as in `joined` files;
    `batch_size` are the rows of one update, all files together. The run ends after `max_updates`; 0: after all
    `epochs`.

    How a share is met that is no whole number of an update's rows: of the first t rows of an epoch, the rounded-down
    share of t comes from a further file, whatever the updates are. So every file is less than one row behind its share
    after every update, and an update has at most one row more or less than the next.

    Attributes:
      updates: how many the run has.

    Raises:
      ValueError: the shares leave nothing for the data, or an update has too few rows for all further files.
    """

    def __init__(
        self,
        rows: int,
        *,
        batch_size: int,
        epochs: int,
        seed: int,
        others: Sequence[tuple[int, float]] = (),
        max_updates: int = 0,
    ) -> None:
        # A share is what is written: 0.1 is a tenth, so that ten rows of a hundred are no nine.
        self._shares = [Fraction(str(share)) for _, share in others]
        most = sum(-(-batch_size * share.numerator // share.denominator) for share in self._shares)
        if sum(self._shares) >= 1 or most > batch_size:
            raise ValueError(f"expected shares that fit into updates of {batch_size} rows, got {others}")
        self._batch_size, self._epoch_rows = batch_size, rows
        # One row more is at most one of the data more, so what is missing can be added and nothing is passed over.
        while missing := rows - self._taken(self._epoch_rows)[0]:
            self._epoch_rows += missing
        self._per_epoch = -(-self._epoch_rows // batch_size)
        self.updates: int = min(self._per_epoch * epochs, max_updates or self._per_epoch * epochs)
        seeds = [
            derive_seed("order of rows", seed),
            *(derive_seed("order of further rows", seed, file) for file in range(len(others))),
        ]
        sizes = [rows, *(size for size, _ in others)]
        self._starts = np.cumsum([0, *sizes[:-1]])
        # Every pass over a file has an order of its own.
        self._orders = [
            grain.MapDataset.range(size).seed(seed % 2**32).shuffle().repeat(None)
            for size, seed in zip(sizes, seeds, strict=True)
        ]

    def _taken(self, rows: int) -> list[int]:
        """Returns how many of an epoch's first rows come from the data and from every further file."""
        others = [rows * share.numerator // share.denominator for share in self._shares]
        return [rows - sum(others), *others]

    def __getitem__(self, update: int) -> np.ndarray:
        """Returns the row numbers of an update, from 0: int64 [at most batch_size]."""
        found = []
        for start, end, order, first in zip(
            self._passed(update), self._passed(update + 1), self._orders, self._starts, strict=True
        ):
            found += [first + order[place] for place in range(start, end)]
        return np.asarray(found, np.int64)

    def _passed(self, updates: int) -> list[int]:
        """Returns how many rows of the data and of every further file the first updates have had."""
        epoch, update = divmod(updates, self._per_epoch)
        so_far = self._taken(min(update * self._batch_size, self._epoch_rows))
        return [epoch * whole + part for whole, part in zip(self._taken(self._epoch_rows), so_far, strict=True)]

    def counts(self) -> list[int]:
        """Returns how many rows of the data and of every further file the run trains on."""
        return self._passed(self.updates)
