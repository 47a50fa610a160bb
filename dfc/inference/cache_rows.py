"""Single rows of an engine's cache: copied within it, taken to host memory and back."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from dfc import multihost
from dfc.inference.buckets import Shapes
from dfc.inference.prefixes import Copy
from dfc.inference.programs import Programs
from dfc.inference.slots import HostRow, SlotAllocator
from dfc.models.cache import Cache


@dataclasses.dataclass(frozen=True)
class CacheRows:
    """What moves rows; methods that take a cache and return one donate it.

    Attributes:
      programs: of the engine. slot_allocator: of its slots. shapes: of its programs.
    """

    programs: Programs
    slot_allocator: SlotAllocator
    shapes: Shapes

    def copied(self, cache: Cache, copies: Sequence[Copy]) -> Cache:
        """Returns the cache after copies within shards, none of which is from where another one writes.

        A call copies as few rows as a program has: what it takes out lies beside the whole cache.
        """
        source = {copy.target: copy.source for copy in copies}
        tokens = {copy.target: copy.tokens for copy in copies}
        by_shard = self.slot_allocator.by_shard(source)
        rows = self.shapes.rows[0]
        for start in range(0, max(map(len, by_shard)), rows):
            some = [slot for shard in by_shard for slot in shard[start : start + rows]]
            at = self.slot_allocator.assign(some, rows, whole=False)
            targets = self.slot_allocator.rows(at, rows)
            sources = self.slot_allocator.rows({row: source[slot] for row, slot in at.items()}, rows)
            positions = self.shapes.cache_bucket_for(max(tokens[slot] for slot in some))
            cache = self.programs.copy(cache, sources, targets, positions)
        return cache

    def to_host(self, cache: Cache, slot: int, tokens: int) -> list[HostRow]:
        """Returns keys and values [K, tokens, H] of a slot per layer, in host memory."""
        rows, shard = self.slot_allocator.single(slot), self.slot_allocator.shard(slot)
        taken = self.programs.take(cache, rows, self.shapes.cache_bucket_for(tokens))
        return [
            (multihost.to_host(keys)[shard, :, :tokens], multihost.to_host(values)[shard, :, :tokens])
            for keys, values in taken
        ]

    def from_host(self, cache: Cache, slot: int, arrays: Iterable[HostRow]) -> Cache:
        """Returns the cache with a slot's keys and values as they were in host memory."""
        rows, shard = self.slot_allocator.single(slot), self.slot_allocator.shard(slot)

        def row(x: np.ndarray) -> np.ndarray:
            heads, held, dim = x.shape
            wide = np.zeros((len(rows), heads, self.shapes.cache_bucket_for(held), dim), x.dtype)
            wide[shard, :, :held] = x
            return wide

        new = tuple((row(keys), row(values)) for keys, values in arrays)
        written: Cache = self.programs.put(cache, rows, np.zeros_like(rows), new)
        return written
