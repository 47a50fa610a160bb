"""Decodes many conversations at once; each keeps its cache from its first id to its last.

A slot belongs to one conversation. `append` adds ids the conversation has not seen (an observation), `ask` wants a
reply to all of them, and every `step` feeds each asking slot a few of its unseen ids and, once none is left, draws
one id. Feeding and drawing are one program, so slots that still read and slots that already write share a call, and
nothing is ever fed twice.

Shapes are static: slots x (a few widths) x (a few cache lengths). A row that has less to feed than the width is
padded; padding lies behind the row's live positions, is masked, and is overwritten by the next call. A row that sits
a call out writes at the spare tail of the cache, never at a live position. The cache is as long as its longest
conversation needs, rounded up: it grows when one does, and starts small again when all slots are free.

On several devices the rows of the cache are split over the mesh's data and fsdp axes and the key/value heads over its
tensor axis. What goes in is the same on every host, and what is drawn comes back to all of them.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dfc.config import SamplingConfig
from dfc.models.decoder_config import DecoderConfig
from dfc.models.transformer import Adapters, Cache, Params, bind, empty_cache, resized_cache
from dfc.rollout.sampling import draw, uniforms


@dataclasses.dataclass(frozen=True)
class Reply:
    """What a slot answered.

    Attributes:
      slot: which conversation.
      ids: the ids drawn, the stop id included if one was drawn.
      logprobs: of each id under the distribution it was drawn from.
      plain_logprobs: of each id under the untruncated distribution at temperature 1.
      stopped: whether the last id is a stop id; otherwise the length limit cut the reply.
    """

    slot: int
    ids: list[int]
    logprobs: list[float]
    plain_logprobs: list[float]
    stopped: bool


@dataclasses.dataclass
class EngineCounts:
    """What an engine has done since it was made; all numbers are ids or calls."""

    calls: int = 0
    fed: int = 0
    drawn: int = 0
    computed: int = 0  # rows x width summed over calls: what the device worked on, padding included


def _extend_and_draw_once(
    params: Params,
    adapters: Adapters | None,
    cache: Cache,
    tokens: jax.Array,
    start: jax.Array,
    last: jax.Array,
    uniform: jax.Array,
    *,
    config: DecoderConfig,
    sampling: SamplingConfig,
) -> tuple[jax.Array, jax.Array, Cache]:
    """Feeds tokens [B, T] and draws one id per row behind position `last`; returns ids [B], logprobs [2, B]."""
    model = bind(config, params, adapters)
    hidden, cache = model.extend(tokens, start, cache)
    final = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
    ids, chosen, plain = draw(model.logits(final), uniform, sampling)
    return ids, jnp.stack([chosen, plain]), cache


# On one device; `_Placement` has the programs for several.
_extend_and_draw = jax.jit(_extend_and_draw_once, static_argnames=("config", "sampling"), donate_argnames=("cache",))


class _Placement:
    """Where a cache lies on several devices, and the programs that leave it there."""

    def __init__(self, mesh: Mesh, config: DecoderConfig) -> None:
        heads = "tensor" if config.kv_heads % mesh.shape["tensor"] == 0 else None  # heads are split whole or not at all
        spec: Any = PartitionSpec  # jax leaves it untyped
        cache = NamedSharding(mesh, spec(("data", "fsdp"), heads, None, None))
        whole = NamedSharding(mesh, spec())
        self.shards = mesh.shape["data"] * mesh.shape["fsdp"]
        self.empty = jax.jit(empty_cache, static_argnums=(0, 1, 2), out_shardings=cache)
        self.extend_and_draw = jax.jit(
            _extend_and_draw_once,
            static_argnames=("config", "sampling"),
            donate_argnames=("cache",),
            out_shardings=(whole, whole, cache),
        )
        self._resize_layer = jax.jit(resized_cache, static_argnums=1, out_shardings=cache)

    def resized(self, cache: Cache, positions: int) -> Cache:
        """Returns the cache with other positions; layer by layer, so that two of one layer exist at a time."""
        layers, resized = list(cache), []
        del cache
        while layers:
            resized += self._resize_layer((layers.pop(0),), positions)
        return tuple(resized)


_placement = functools.lru_cache(maxsize=8)(_Placement)  # engines of one mesh share compiled programs


@dataclasses.dataclass
class _Slot:
    """Book-keeping of one conversation."""

    seed: int
    adapter: int = 0
    fed: int = 0
    drawn: int = 0
    pending: list[int] = dataclasses.field(default_factory=list)
    reply: Reply | None = None
    room: int = 0


class Engine:
    """Slots with resident caches over one set of weights.

    Attributes:
      counts: what was done so far.
      version: names the weights; see `set_params`.
    """

    def __init__(
        self,
        config: DecoderConfig,
        params: Params,
        *,
        slots: int,
        max_length: int,
        stop_ids: frozenset[int],
        sampling: SamplingConfig,
        widths: Sequence[int] = (1, 2, 4, 8),
        lengths: Sequence[int] | None = None,
        mesh: Mesh | None = None,
    ) -> None:
        """Allocates the cache.

        Args:
          config: of the model.
          params: its weights.
          slots: conversations at once; on several devices rounded up to a multiple of the mesh's data x fsdp.
          max_length: positions of one conversation.
          stop_ids: a reply ends with the first of these.
          sampling: how ids are drawn.
          widths: ids fed per call, ascending; each is one compiled program per cache length.
          lengths: lengths the cache may have, ascending; by default doublings of 32 up to max_length.
          mesh: the devices of all hosts, with axes data, fsdp and tensor, over which the cache is split; None, or one
            device, leaves it whole. Every host then makes the same calls in the same order.
        """
        self._placement = None if mesh is None or mesh.size == 1 else _placement(mesh, config)
        self._config = config
        self._params = params
        self._adapters: Adapters | None = None
        self._pool: int | None = None  # adapters of a pool
        self.version = 0
        self._stop_ids = stop_ids
        self._sampling = sampling
        self._widths = tuple(widths)
        self.max_length = max_length
        self._lengths = _lengths(max_length) if lengths is None else tuple(lengths)
        self._length = self._lengths[0]
        if self._placement is None:
            self._cache = empty_cache(config, slots, self._length + self._spare)
        else:
            slots = -(-slots // self._placement.shards) * self._placement.shards
            self._cache = self._placement.empty(config, slots, self._length + self._spare)
        self._free = list(range(slots - 1, -1, -1))
        self._slots: list[_Slot | None] = [None] * slots
        self._asking: dict[int, _Slot] = {}
        self.counts = EngineCounts()

    @property
    def _spare(self) -> int:
        return self._widths[-1]  # idle rows write behind the last position a conversation may use

    @property
    def free(self) -> int:
        """Number of slots no conversation owns."""
        return len(self._free)

    @property
    def busy(self) -> bool:
        """Whether any slot waits for a reply."""
        return bool(self._asking)

    def set_params(self, params: Params, version: int, adapters: Adapters | None = None) -> None:
        """Takes over new weights of the same shapes; conversations in flight keep their caches.

        Args:
          params: the weights, unrolled.
          version: names them.
          adapters: corrections of the weights, unrolled; a pool of several (`dfc.models.lora.pool`) serves each
            conversation with the one it was opened with. `rows` is the engine's own business.

        Raises:
          ValueError: a conversation in flight uses an adapter that would be gone.
        """
        pool = _pool_size(adapters)
        beyond = sorted({state.adapter for state in self._slots if state is not None and state.adapter >= (pool or 1)})
        if beyond:
            raise ValueError(f"conversations in flight use adapters {beyond}, but only {pool or 1} would be there")
        self._params = params
        self._adapters = adapters
        self._pool = pool
        self.version = version

    def open(self, seed: int, adapter: int = 0) -> int:
        """Gives a new conversation a slot; `seed` alone (with ids and weights) determines what it draws.

        Args:
          seed: of what it draws.
          adapter: its place in a pool of adapters.

        Raises:
          ValueError: no slot is free, or there is no such adapter.
        """
        if not 0 <= adapter < (self._pool or 1):
            raise ValueError(f"adapter {adapter}: expected one of 0 to {(self._pool or 1) - 1}, the adapters given")
        if not self._free:
            raise ValueError(f"all {len(self._slots)} slots are taken; close a conversation first, or make more slots")
        slot = self._free.pop()
        self._slots[slot] = _Slot(seed, adapter)
        return slot

    def close(self, slot: int) -> None:
        """Ends a conversation; the slot is free at once."""
        self._state(slot)  # a slot given back twice would be given to two conversations
        self._asking.pop(slot, None)
        self._slots[slot] = None
        self._free.append(slot)
        if len(self._free) == len(self._slots):
            self._free.sort(reverse=True)  # a resumed run finds the slots in the same order
            if self._length > self._lengths[0]:
                self._resize(self._lengths[0])

    def length(self, slot: int) -> int:
        """Ids of the conversation so far, fed or not."""
        state = self._state(slot)
        return state.fed + len(state.pending)

    def append(self, slot: int, ids: Sequence[int]) -> None:
        """Adds ids the conversation has not seen; they are fed when a reply is asked for."""
        self._quiet(slot).pending.extend(ids)

    def ask(self, slot: int, max_reply_length: int) -> bool:
        """Asks for a reply; returns False, and does nothing, if no room is left for a single id.

        A reply is cut at `max_reply_length` ids, or where the conversation reaches `max_length`.

        Raises:
          ValueError: the slot is free, is answering already, or has nothing new to reply to.
        """
        state = self._quiet(slot)
        if not state.pending:
            raise ValueError(f"slot {slot} was asked for a reply without anything new to reply to; append ids first")
        state.room = min(max_reply_length, self.max_length - state.fed - len(state.pending))
        if state.room <= 0:
            return False
        state.reply = Reply(slot, [], [], [], stopped=False)
        self._asking[slot] = state
        return True

    def step(self) -> list[Reply]:
        """Runs one call over all asking slots; returns the replies it finished."""
        asking = self._asking
        if not asking:
            return []
        width = self._width([len(state.pending) for state in asking.values()])
        rows = len(self._slots)
        tokens = np.zeros((rows, width), np.int32)
        reach = max(state.fed + min(width, len(state.pending)) for state in asking.values())
        if reach > self._length:
            self._resize(next(length for length in self._lengths if length >= reach))
        start = np.full((rows,), self._length + self._spare - width, np.int32)
        last = np.zeros((rows,), np.int32)
        chosen = np.zeros((rows,), np.int32)
        seeds = np.zeros((rows,), np.uint64)
        drawn = np.zeros((rows,), np.uint64)
        for slot, state in asking.items():
            chunk = state.pending[:width]
            count = len(chunk)
            tokens[slot, :count] = chunk
            start[slot] = state.fed
            last[slot] = count - 1
            chosen[slot] = state.adapter
            seeds[slot] = state.seed
            drawn[slot] = state.drawn
        program = _extend_and_draw if self._placement is None else self._placement.extend_and_draw
        adapters = self._adapters
        if adapters is not None:
            adapters = dataclasses.replace(adapters, rows=None if self._pool is None else chosen)
        ids, logprobs, self._cache = program(
            self._params,
            adapters,
            self._cache,
            tokens,
            start,
            last,
            uniforms(seeds, drawn),
            config=self._config,
            sampling=self._sampling,
        )
        self.counts.calls += 1
        self.counts.computed += rows * width
        return self._collect(width, np.asarray(ids).tolist(), np.asarray(logprobs))

    def _collect(self, width: int, ids: list[int], logprobs: np.ndarray) -> list[Reply]:
        finished = []
        chosen, plain = logprobs.tolist()
        for slot, state in list(self._asking.items()):
            count = min(width, len(state.pending))
            state.fed += count
            self.counts.fed += count
            del state.pending[:count]
            if state.pending:
                continue
            reply = state.reply
            assert reply is not None  # noqa: S101 - asking slots have one
            state.drawn += 1
            self.counts.drawn += 1
            reply.ids.append(ids[slot])
            reply.logprobs.append(chosen[slot])
            reply.plain_logprobs.append(plain[slot])
            state.pending.append(ids[slot])  # drawn, not yet in the cache
            stopped = ids[slot] in self._stop_ids
            if stopped or len(reply.ids) >= state.room:
                finished.append(dataclasses.replace(reply, stopped=stopped))
                state.reply = None
                del self._asking[slot]
        return finished

    def _resize(self, length: int) -> None:
        old, self._cache = self._cache, ()
        if self._placement is None:
            self._cache = resized_cache(old, length + self._spare)
        else:
            self._cache = self._placement.resized(old, length + self._spare)
        self._length = length

    def _state(self, slot: int) -> _Slot:
        state = self._slots[slot]
        if state is None:
            raise ValueError(f"slot {slot} is free; open a conversation first")
        return state

    def _quiet(self, slot: int) -> _Slot:
        """Returns a slot's state where no reply is under way: ids added now would land in the middle of it."""
        if slot in self._asking:
            raise ValueError(f"slot {slot} is answering; call step() until its reply is there")
        return self._state(slot)

    def _width(self, pending: list[int]) -> int:
        """The width that feeds the most ids per unit of device work; a call costs about as much as two ids a row."""
        best, best_rate = self._widths[0], 0.0
        for width in self._widths:
            rate = sum(min(n, width) for n in pending) / (width + 1.0)
            if rate > best_rate:
                best, best_rate = width, rate
        return best


def _pool_size(adapters: Adapters | None) -> int | None:
    """Returns how many adapters there are in a pool; None if it is none: [P, D, R] instead of [D, R]."""
    leaves = [] if adapters is None else jax.tree.leaves(adapters.weights)
    return int(leaves[0].shape[0]) if leaves and leaves[0].ndim > 2 else None


def _lengths(max_length: int) -> tuple[int, ...]:
    lengths = []
    n = 32
    while n < max_length:
        lengths.append(n)
        n *= 2
    return (*lengths, max_length)
