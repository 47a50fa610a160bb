"""Which shapes an engine's programs have, and which of them a call takes.

Every shape is a compiled program, so there are few: rows of a call by halves, ids fed per row in steps of four, cache
lengths by doubling. All of it is plain arithmetic on numbers that every host of a run has.
"""

import dataclasses
from collections.abc import Sequence

import jax

_ROW_COST = 6  # what taking a row out of the cache costs, in ids; on a CPU 3 to 7 at 512 positions, little elsewhere


@dataclasses.dataclass(frozen=True)
class Shapes:
    """Attributes: rows of a call per shard, widths (ids fed per row) and cache lengths read, ascending each."""

    rows: tuple[int, ...]
    widths: tuple[int, ...]
    lengths: tuple[int, ...]

    def rows_for(self, count: int) -> int:
        """Returns the fewest rows that hold `count`, or the most there are."""
        return next((rows for rows in self.rows if rows >= count), self.rows[-1])

    def length_for(self, held: int) -> int:
        """Returns the shortest length that covers `held` positions."""
        return next(length for length in self.lengths if length >= held)

    def best_feed(self, pending: Sequence[Sequence[int]], call_cost: int) -> tuple[int, int]:
        """Returns (rows, width) that feed the most ids per unit of device work; calls and rows have costs of their own.

        Args:
          pending: of every shard, ids that wait in its conversations, largest first.
          call_cost: what a call costs beside its ids, in ids.
        """
        best, best_rate = (self.rows[0], self.widths[0]), -1.0
        for rows in self.rows:
            for width in self.widths:
                useful = sum(min(n, width) for shard in pending for n in shard[:rows])
                rate = useful / (call_cost + rows * (width + _ROW_COST) * len(pending))
                if rate > best_rate:
                    best, best_rate = (rows, width), rate
            if rows >= max(map(len, pending)):
                break
        return best


def default_rows(most: int) -> tuple[int, ...]:
    """Returns `most` and its halves down to an eighth, ascending: (8, 16, 32, 64) for 64."""
    return tuple(sorted({max(1, -(-most // divisor)) for divisor in (1, 2, 4, 8)}))


def default_widths(max_length: int) -> tuple[int, ...]:
    """Returns 8, 32, 128 as far as a conversation needs them."""
    widths = [8]
    while widths[-1] < min(128, max_length):
        widths.append(widths[-1] * 4)
    return tuple(widths)


def default_lengths(max_length: int) -> tuple[int, ...]:
    """Returns 0, 128 and longer ones below `max_length`, and `max_length`.

    Elsewhere by doubling. On a CPU, where programs compile fast and attention takes much of the time, with one length
    between; not more, because a process with some hundred programs runs out of memory maps there.
    """
    cpu = jax.default_backend() == "cpu"
    lengths, n = [0], 128
    while n < max_length:
        lengths.append(n)
        doubled = n & (n - 1) == 0
        n = n * 3 // 2 if cpu and doubled and n > lengths[1] else 1 << n.bit_length()
    return (*lengths, max_length)


def default_call_cost() -> int:
    """Returns what a call costs beside its ids, in ids, on this platform.

    An accelerator reads all weights for a call, which takes as long as computing on some hundred ids; on a CPU small
    batches are nearly as efficient as large ones.
    """
    return 16 if jax.default_backend() == "cpu" else 256
