"""Book-keeping of an engine: which slots there are and where, and every conversation's tokens, done and pending."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh

from dfc.config import SamplingConfig
from dfc.inference.constraints import Position
from dfc.inference.kept_sets import KeptSets
from dfc.inference.protocol import Ends, EngineReply
from dfc.models.execution import ROWS as ROW_AXES
from dfc.samples import Choices


@dataclasses.dataclass
class PendingReply:
    """What a slot was asked for: a reply under way, tokens to score, or only to read.

    Attributes:
      start: tokens of the conversation before it.
      room: tokens it may have.
      want: whether tokens are sampled, scored (they are given), or none are wanted and what is there is prefilled.
      sampling: how its tokens are sampled.
      ends: given its tokens so far, how many of them to keep if it is over, else None.
      position: its place among the replies allowed; None: all are.
      token_ids, sampled_logprobs, plain_logprobs, versions, sets, kept: so far; the last two as in `Choices`, empty
        where the engine keeps no sets.
      shared_tokens: of the conversation before it, that were copied from another one.
    """

    start: int
    room: int
    want: Literal["reply", "scores", "nothing"] = "reply"
    sampling: SamplingConfig | None = None
    ends: Ends | None = None
    position: Position | None = None
    token_ids: list[int] = dataclasses.field(default_factory=list)
    sampled_logprobs: list[float] = dataclasses.field(default_factory=list)
    plain_logprobs: list[float] = dataclasses.field(default_factory=list)
    versions: list[int] = dataclasses.field(default_factory=list)
    sets: list[np.ndarray] = dataclasses.field(default_factory=list)
    kept: list[int] = dataclasses.field(default_factory=list)
    shared_tokens: int = 0

    @property
    def complete(self) -> bool:
        """Whether it is one of the replies allowed, to the end."""
        return self.position is not None and self.position.complete

    def fitting(self, token_ids: list[int]) -> int:
        """Returns how many of the tokens belong to it: those up to the end of a reply allowed."""
        position = self.position
        for count, token_id in enumerate(token_ids if position is not None else ()):
            assert position is not None  # noqa: S101 - the loop is empty otherwise
            if position.complete:
                return count
            position = position.after([token_id])
        return len(token_ids)

    def add(self, token_ids: list[int], logprobs: np.ndarray, version: int, sets: KeptSets | None = None) -> None:
        """Adds tokens with their log-probabilities [1 or 2, n or more], sampled ones, and plain ones if computed.

        `sets` are those they were sampled among, n or more, where the engine keeps them.
        """
        self.token_ids.extend(token_ids)
        self.sampled_logprobs.extend(logprobs[0, : len(token_ids)].tolist())
        self.plain_logprobs.extend(logprobs[1:, : len(token_ids)].ravel().tolist())
        self.versions.extend([version] * len(token_ids))
        if sets is not None:
            numbers = sets.kept[: len(token_ids)].tolist()
            self.kept.extend(numbers)
            self.sets.extend(own[:number].copy() for own, number in zip(sets.token_ids, numbers, strict=False))
        if self.position is not None:
            self.position = self.position.after(token_ids)

    def cut(self, count: int) -> None:
        """Forgets all but the first `count` tokens."""
        values: tuple[list[Any], ...] = (self.token_ids, self.sampled_logprobs, self.plain_logprobs, self.versions)
        for numbers in (*values, self.sets, self.kept):
            del numbers[count:]

    @property
    def choices(self) -> Choices | None:
        """The sets so far; None where filters removed nothing."""
        return Choices.of(self.sets, self.kept) if any(self.kept) else None

    def reply(self, slot: int, *, stopped: bool) -> EngineReply:
        """Returns it as finished."""
        values = self.token_ids, self.sampled_logprobs, self.plain_logprobs, self.versions
        return EngineReply(slot, *values, stopped, self.shared_tokens, self.choices)

    def so_far(self, slot: int) -> EngineReply:
        """Returns a copy of a reply as far as it is; without tokens if none are sampled."""
        known = self if self.want == "reply" else PendingReply(self.start, 0)
        logprobs = list(known.sampled_logprobs), list(known.plain_logprobs)
        values = list(known.token_ids), *logprobs, list(known.versions)
        return EngineReply(slot, *values, stopped=False, shared_tokens=self.shared_tokens, choices=known.choices)


Stage = Literal["prefill", "score", "decode"]


@dataclasses.dataclass
class SlotState:
    """One conversation.

    Attributes:
      seed: of what it samples. policy, adapter: who answers. sampling: how.
      token_ids: all of them, in order.
      num_cached: how many of them the cache holds.
      pending_reply: under way, or None.
      in_flight: whether a call works on it.
      since: number of the call it last took part in, or of the last one before it was opened.
      weights: number of those that made all of its cache, -1 if they were several.
    """

    seed: int
    policy: str
    adapter: int
    sampling: SamplingConfig
    token_ids: list[int] = dataclasses.field(default_factory=list)
    num_cached: int = 0
    pending_reply: PendingReply | None = None
    in_flight: bool = False
    since: int = 0
    weights: int = -1

    def share(self, tokens: int, weights: int) -> None:
        """Records that its first tokens were copied from another conversation, read with such weights."""
        self.num_cached, self.weights = tokens, weights
        if self.pending_reply is not None:
            self.pending_reply.shared_tokens = tokens

    def of_prompt(self, processed: int) -> int:
        """Returns how many of so many tokens that are processed next lie before the reply."""
        start = len(self.token_ids) if self.pending_reply is None else self.pending_reply.start
        return max(0, min(self.num_cached + processed, start) - self.num_cached)

    @property
    def ready(self) -> bool:
        """Whether it wants a call."""
        return self.pending_reply is not None and not self.in_flight

    @property
    def stage(self) -> Stage:
        """What it needs next, if it is answering."""
        pending_reply = self.pending_reply
        if pending_reply is not None and pending_reply.want == "scores":
            return "score" if self.num_cached >= pending_reply.start - 1 else "prefill"
        return "decode" if len(self.token_ids) - self.num_cached == 1 else "prefill"

    @property
    def num_pending(self) -> int:
        """Tokens to be processed in this stage."""
        pending_reply = self.pending_reply
        if pending_reply is None or pending_reply.want == "reply":
            return len(self.token_ids) - self.num_cached
        if pending_reply.want == "nothing":
            return len(self.token_ids) - 1 - self.num_cached  # the last one is processed for a reply
        # What lies before the first scored token is prefilled; the last one is scored but not processed.
        return (len(self.token_ids) if self.stage == "score" else pending_reply.start) - 1 - self.num_cached

    @property
    def most_shared(self) -> int:
        """Tokens that need not be processed if the cache has them: not the last before a reply, nor what is scored.

        One that only reads processes one token at least: it is done when a call has been for it.
        """
        pending_reply = self.pending_reply
        if pending_reply is None:
            return len(self.token_ids) - 1
        return pending_reply.start - (2 if pending_reply.want == "nothing" else 1)

    @property
    def current_sampling(self) -> SamplingConfig:
        """How the reply under way is sampled."""
        asked = None if self.pending_reply is None else self.pending_reply.sampling
        return asked or self.sampling

    @property
    def left(self) -> int:
        """Tokens its answer may still have."""
        return 0 if self.pending_reply is None else self.pending_reply.room - len(self.pending_reply.token_ids)

    @property
    def position(self) -> Position | None:
        """The position of its answer among the replies allowed."""
        return None if self.pending_reply is None else self.pending_reply.position


HostRow = tuple[np.ndarray, ...]
"""Keys and values of one layer of a conversation in host memory, in the layout of the cache."""


@dataclasses.dataclass(frozen=True)
class Parked:
    """A conversation in host memory: what it was, and its keys and values per layer."""

    state: SlotState
    arrays: list[HostRow]


class SlotAllocator:
    """Slots and the shards of devices they are on; numbers are those of this host.

    Attributes:
      shards: of this host. per_shard: slots of each. total: slots of all hosts. first: number of this host's first
        shard among all.
    """

    def __init__(self, slots: int, shards: int, own: Mesh | None) -> None:
        """Lays out slots, those of all hosts together, rounded up to a multiple of the shards of all hosts.

        `own` is the mesh, if this host has only the slots of its own devices.

        Raises:
          ValueError: devices of other hosts belong to this host's shards.
        """
        self.per_shard = -(-slots // shards)
        self.total = self.per_shard * shards
        mine = list(range(shards)) if own is None else _shards_here(own)
        self.first, self.shards = mine[0], len(mine)
        # Popped from the end: a shard's lowest free slot. So a resumed run finds the slots in the same order.
        self._free = [list(range(self.per_shard - 1, -1, -1)) for _ in mine]

    @property
    def free(self) -> int:
        """Number of free slots."""
        return sum(map(len, self._free))

    def allocate(self, like: int | None = None) -> int:
        """Returns a free slot: of the same shard as `like` if possible, else where most are free.

        Raises:
          ValueError: no slot is free.
        """
        if not self.free:
            raise ValueError(
                f"all {self.per_shard * self.shards} slots are taken; close a conversation first, or make more slots"
            )
        if like is not None and self._free[self.shard(like)]:
            shard = self.shard(like)
        else:
            shard = max(range(self.shards), key=lambda s: (len(self._free[s]), -s))
        return shard * self.per_shard + self._free[shard].pop()

    def release(self, slot: int) -> None:
        """Makes a slot free."""
        shard, index = divmod(slot, self.per_shard)
        self._free[shard].append(index)
        self._free[shard].sort(reverse=True)

    def shard(self, slot: int) -> int:
        """Returns the shard of this host that a slot is on."""
        return slot // self.per_shard

    def by_shard(self, slots: Iterable[int]) -> list[list[int]]:
        """Returns the slots of each shard, in the order given."""
        found: list[list[int]] = [[] for _ in range(self.shards)]
        for slot in slots:
            found[self.shard(slot)].append(slot)
        return found

    def assign(self, slots: Iterable[int], rows: int) -> dict[int, int]:
        """Returns row -> slot for a call of `rows` rows per shard, slots of a shard in the order given."""
        return {
            shard * rows + index: slot
            for shard, mine in enumerate(self.by_shard(slots))
            for index, slot in enumerate(mine)
        }

    def rows(self, at: Mapping[int, int], rows: int) -> np.ndarray:
        """Returns, per row of a call, the place of its slot in its shard; `per_shard` for idle rows."""
        found = np.full(self.shards * rows, self.per_shard, np.int32)
        for row, slot in at.items():
            found[row] = slot % self.per_shard
        return found

    def single(self, slot: int) -> np.ndarray:
        """Returns the rows of a call with one row per shard, all idle but the slot's."""
        return self.rows({self.shard(slot): slot}, 1)


def tensor_devices_on_one_host(mesh: Mesh) -> bool:
    """Returns whether every shard of rows is on devices of one process, and each process's shards are neighbours."""
    hosts = _hosts(mesh)
    firsts = [kinds[0] for kinds in hosts]
    runs = [host for host, before in zip(firsts, [None, *firsts], strict=False) if host != before]
    return all(len(set(kinds)) == 1 for kinds in hosts) and len(runs) == len(set(runs))


def _hosts(mesh: Mesh) -> list[list[int]]:
    """Returns, per shard of rows, the processes its devices belong to."""
    devices = mesh.devices.reshape(mesh.shape[ROW_AXES[0]] * mesh.shape[ROW_AXES[1]], -1)
    return [[device.process_index for device in row] for row in devices]


def _shards_here(mesh: Mesh) -> list[int]:
    """Returns the shards of rows whose devices are this process's."""
    if not tensor_devices_on_one_host(mesh):
        raise ValueError(
            "hosts cannot have conversations of their own: a shard of rows spans devices of several hosts; make the "
            "mesh's tensor axis no larger than a host, or give all hosts the same conversations"
        )
    return [shard for shard, hosts in enumerate(_hosts(mesh)) if hosts[0] == jax.process_index()]
