"""Which shapes an engine's programs have, and which of them a call takes.

Every shape is a compiled program, so there are few: rows of a call by halves, tokens prefilled per row in steps of
four. How much of its slot a row reads is no shape. All of it is plain arithmetic on numbers that every host of a run
has.
"""

import dataclasses
from collections.abc import Sequence

from dfc.models.cache_kernels import POSITIONS
from dfc.models.config import DecoderConfig
from dfc.models.execution import Platform


@dataclasses.dataclass(frozen=True)
class Costs:
    """What device work costs, in tokens processed.

    Attributes:
      call: a call, beside its tokens.
      position: attention of one token to one position of a row's cache.
    """

    call: float
    position: float

    def of_token(self, length: int) -> float:
        """Returns what processing a token after `length` positions costs."""
        return 1 + length * self.position

    def of_call(self, rows: int, width: int, lengths: Sequence[int]) -> float:
        """Returns what a call of `rows` x `width` tokens costs, of which some read so many positions."""
        return self.call + width * (rows + self.position * sum(lengths))


@dataclasses.dataclass(frozen=True)
class Shapes:
    """Attributes: rows of a call per shard, prefill buckets (tokens per row), ascending."""

    rows: tuple[int, ...]
    prefill_buckets: tuple[int, ...]

    def rows_for(self, count: int) -> int:
        """Returns the fewest rows that hold `count`, or the most there are."""
        return next((rows for rows in self.rows if rows >= count), self.rows[-1])

    def best_prefill(self, pending: Sequence[Sequence[tuple[int, int]]], costs: Costs) -> tuple[int, int, float]:
        """Returns (rows, width) with the most useful work per unit of device work, and that ratio.

        Done is what the tokens that are processed would cost if no row had to be as wide as another. `pending` has, of
        every shard, pending tokens of its conversations and positions those have to read, in the order in which they
        take part.
        """
        best = self.rows[0], self.prefill_buckets[0], -1.0
        for rows in self.rows:
            lengths = [length for shard in pending for _, length in shard[:rows]]
            for width in self.prefill_buckets:
                done = sum(min(n, width) * costs.of_token(own) for shard in pending for n, own in shard[:rows])
                rate = done / costs.of_call(rows * len(pending), width, lengths)
                if rate > best[2]:
                    best = rows, width, rate
            if rows >= max(map(len, pending)):
                break
        return best


def default_rows(most: int) -> tuple[int, ...]:
    """Returns `most` and its halves down to an eighth, ascending: (8, 16, 32, 64) for 64."""
    return tuple(sorted({max(1, -(-most // divisor)) for divisor in (1, 2, 4, 8)}))


def default_prefill_buckets(max_length: int) -> tuple[int, ...]:
    """Returns 8, 32, 128 as far as a conversation needs them."""
    prefill_buckets = [8]
    while prefill_buckets[-1] < min(128, max_length):
        prefill_buckets.append(prefill_buckets[-1] * 4)
    return tuple(prefill_buckets)


def cache_positions(max_length: int, platform: Platform) -> int:
    """Returns the positions of a slot that holds `max_length`: a multiple of what the platform's kernel takes."""
    return max_length if platform == "cpu" else -(-max_length // POSITIONS) * POSITIONS


def default_costs(config: DecoderConfig, platform: Platform) -> Costs:
    """Returns what device work costs on a platform for a model.

    An accelerator reads all weights for a call, which takes as long as computing on some hundred tokens; on a CPU small
    batches are nearly as efficient as large ones. Attention reads keys and values from memory, a token's products take
    two operations per weight: a position costs (numbers read / weights) * (operations per number read at the rates of
    the platform / 2). On two CPU cores a decode step of 64 rows of 5M weights took 9 ms, and 17 ms more per 1,024
    positions.
    """
    heads = config.heads + config.kv_heads
    layer = config.width * (2 * heads * config.head_dim + 3 * config.feed_forward)
    weights = config.layers * layer + config.vocabulary * config.width
    read = config.layers * 2 * config.kv_heads * config.head_dim
    return Costs(16, 9 * read / weights) if platform == "cpu" else Costs(256, 300 * read / weights)
