"""Single rows of an engine's cache: copied within it, taken to host memory and back."""

import dataclasses
from collections.abc import Iterable, Sequence

import jax
import numpy as np

from dfc import multihost
from dfc.inference.buckets import Shapes
from dfc.inference.prefixes import Copy
from dfc.inference.programs import Programs
from dfc.inference.slots import HostRow, SlotAllocator
from dfc.models.cache import BLOCK, Cache


@dataclasses.dataclass(frozen=True)
class CacheRows:
    """Moves rows; methods that take a cache and return one donate it.

    Attributes:
      programs: of the engine. slot_allocator: of its slots. shapes: of its programs.
    """

    programs: Programs
    slot_allocator: SlotAllocator
    shapes: Shapes

    def copied(self, cache: Cache, copies: Sequence[Copy]) -> Cache:
        """Returns the cache after copies within shards, none of which is from where another one writes.

        A call copies as few rows as a program has: most copies are of one row.
        """
        source = {copy.target: copy.source for copy in copies}
        tokens = {copy.target: copy.tokens for copy in copies}
        by_shard = self.slot_allocator.by_shard(source)
        rows = self.shapes.rows[0]
        for start in range(0, max(map(len, by_shard)), rows):
            some = [slot for shard in by_shard for slot in shard[start : start + rows]]
            at = self.slot_allocator.assign(some, rows)
            targets = self.slot_allocator.rows(at, rows)
            sources = self.slot_allocator.rows({row: source[slot] for row, slot in at.items()}, rows)
            cache = self.programs.copy(cache, sources, targets, np.int32(max(tokens[slot] for slot in some)))
        return cache

    def to_host(self, cache: Cache, slot: int, tokens: int) -> list[HostRow]:
        """Returns what a slot holds of the tokens, of every layer, in host memory."""
        rows, shard = self.slot_allocator.single(slot), self.slot_allocator.shard(slot)
        taken: Cache = self.programs.take(cache, rows, self._positions(cache, tokens))
        return [
            tuple(multihost.to_host(x)[shard][_first(tokens, layer.axis - 1)] for x in layer.arrays) for layer in taken
        ]

    def from_host(self, cache: Cache, slot: int, arrays: Iterable[HostRow]) -> Cache:
        """Returns the cache with what a slot held as it was in host memory."""
        rows, shard = self.slot_allocator.single(slot), self.slot_allocator.shard(slot)

        def row(x: np.ndarray, axis: int) -> np.ndarray:
            sizes = list(x.shape)
            sizes[axis] = self._positions(cache, x.shape[axis])
            wide = np.zeros((len(rows), *sizes), x.dtype)
            wide[shard][_first(x.shape[axis], axis)] = x
            return wide

        wide = [row(x, layer.axis - 1) for layer, held in zip(cache, arrays, strict=True) for x in held]
        written: Cache = self.programs.put(cache, rows, jax.tree.unflatten(jax.tree.structure(cache), wide))
        return written

    @staticmethod
    def _positions(cache: Cache, tokens: int) -> int:
        """Returns a number of positions that holds the tokens; there are few such numbers, each a program."""
        most = cache[0].positions
        return min(most, BLOCK << max(0, (tokens - 1) // BLOCK).bit_length())


def _first(tokens: int, axis: int) -> tuple[slice, ...]:
    """Returns an index of the first tokens on an axis."""
    return (*[slice(None)] * axis, slice(tokens))
