"""Book-keeping of an engine: which slots there are and where, and what every conversation has said and still has to."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

import jax
import numpy as np
from jax.sharding import Mesh

from dfc.config import SamplingConfig
from dfc.models.execution import ROWS as ROW_AXES
from dfc.rollout.constraints import Position


@dataclasses.dataclass(frozen=True)
class Reply:
    """What a slot answered, or the ids it was given to score.

    Attributes:
      slot: which conversation.
      ids: the ids drawn, the stop id included if one was drawn.
      logprobs: of each id under the distribution it was drawn from: temperature, filters and constraint applied.
      plain_logprobs: of each id under the untruncated distribution at temperature 1.
      versions: of the weights each id was drawn under.
      stopped: whether a stop id or a stop string ended it; otherwise the length limit cut the reply.
    """

    slot: int
    ids: list[int]
    logprobs: list[float]
    plain_logprobs: list[float]
    versions: list[int]
    stopped: bool


@dataclasses.dataclass
class EngineCounts:
    """What an engine has done since it was made; all numbers are ids or calls, of this host.

    Attributes:
      calls: of the device.
      steps: of decode calls.
      fed: ids read, drawn ones included.
      drawn: ids drawn.
      computed: rows x ids per row, summed over calls: what the device worked on, padding included.
      row_steps: rows x steps of decode calls.
      useful_steps: of them, those that drew an id that counts.
    """

    calls: int = 0
    steps: int = 0
    fed: int = 0
    drawn: int = 0
    computed: int = 0
    row_steps: int = 0
    useful_steps: int = 0


@dataclasses.dataclass
class Answer:
    """A reply in the making.

    Attributes:
      begin: ids of the conversation before it.
      room: ids it may have.
      scored: whether its ids are given.
      position: where it stands among the replies allowed; None: all are.
      ids, logprobs, plain, versions: so far.
    """

    begin: int
    room: int
    scored: bool = False
    position: Position | None = None
    ids: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[float] = dataclasses.field(default_factory=list)
    plain: list[float] = dataclasses.field(default_factory=list)
    versions: list[int] = dataclasses.field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether it is one of the replies allowed, to the end."""
        return self.position is not None and self.position.complete

    def fitting(self, ids: list[int]) -> int:
        """Returns how many of the ids belong to it: those up to the end of a reply allowed."""
        position = self.position
        for count, id_ in enumerate(ids if position is not None else ()):
            assert position is not None  # noqa: S101 - the loop is empty otherwise
            if position.complete:
                return count
            position = position.after([id_])
        return len(ids)

    def add(self, ids: list[int], logprobs: np.ndarray, version: int) -> None:
        """Adds ids with their log-probabilities [2, n or more]."""
        self.ids.extend(ids)
        self.logprobs.extend(logprobs[0, : len(ids)].tolist())
        self.plain.extend(logprobs[1, : len(ids)].tolist())
        self.versions.extend([version] * len(ids))
        if self.position is not None:
            self.position = self.position.after(ids)

    def cut(self, count: int) -> None:
        """Forgets all but the first `count` ids."""
        for values in (self.ids, self.logprobs, self.plain, self.versions):
            del values[count:]

    def reply(self, slot: int, *, stopped: bool) -> Reply:
        """Returns it as finished."""
        return Reply(slot, self.ids, self.logprobs, self.plain, self.versions, stopped)


Stage = Literal["feed", "score", "decode"]


@dataclasses.dataclass
class Conversation:
    """One conversation.

    Attributes:
      seed: of what it draws. policy, adapter: who answers. sampling: how.
      ids: all of them, in order.
      fed: how many of them the cache holds.
      answer: under way, or None.
      in_flight: whether a call works on it.
      since: number of the call it last took part in, or of the last one before it was opened.
    """

    seed: int
    policy: str
    adapter: int
    sampling: SamplingConfig
    ids: list[int] = dataclasses.field(default_factory=list)
    fed: int = 0
    answer: Answer | None = None
    in_flight: bool = False
    since: int = 0

    @property
    def ready(self) -> bool:
        """Whether it wants a call."""
        return self.answer is not None and not self.in_flight

    @property
    def stage(self) -> Stage:
        """What it needs next, if it is answering."""
        answer = self.answer
        if answer is not None and answer.scored:
            return "score" if self.fed >= answer.begin - 1 else "feed"
        return "decode" if len(self.ids) - self.fed == 1 else "feed"

    @property
    def unread(self) -> int:
        """Ids to be fed in this stage."""
        answer = self.answer
        if answer is None or not answer.scored:
            return len(self.ids) - self.fed
        # What lies before the first scored id is read; the last one is scored but not fed.
        return (len(self.ids) if self.stage == "score" else answer.begin) - 1 - self.fed

    @property
    def left(self) -> int:
        """Ids its answer may still have."""
        return 0 if self.answer is None else self.answer.room - len(self.answer.ids)

    @property
    def position(self) -> Position | None:
        """Where its answer stands among the replies allowed."""
        return None if self.answer is None else self.answer.position


@dataclasses.dataclass(frozen=True)
class Parked:
    """A conversation in host memory: what it was, and its keys and values [K, fed, H] per layer."""

    conversation: Conversation
    arrays: list[tuple[np.ndarray, np.ndarray]]


class Places:
    """Slots and the shards of devices they lie on; numbers are those of this host.

    Attributes:
      shards: of this host. per_shard: slots of each. total: slots of all hosts. first: number of this host's first
        shard among all.
    """

    def __init__(self, slots: int, shards: int, own: Mesh | None) -> None:
        """Lays out slots.

        Args:
          slots: of all hosts together; rounded up to a multiple of the shards.
          shards: of all hosts.
          own: the mesh, if this host has only the slots of its own devices.

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
        """Number of slots nobody owns."""
        return sum(map(len, self._free))

    def take(self, like: int | None = None) -> int:
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

    def give(self, slot: int) -> None:
        """Makes a slot free."""
        shard, place = divmod(slot, self.per_shard)
        self._free[shard].append(place)
        self._free[shard].sort(reverse=True)

    def shard(self, slot: int) -> int:
        """Returns the shard of this host that a slot lies on."""
        return slot // self.per_shard

    def by_shard(self, slots: Iterable[int]) -> list[list[int]]:
        """Returns the slots of each shard, in the order given."""
        found: list[list[int]] = [[] for _ in range(self.shards)]
        for slot in slots:
            found[self.shard(slot)].append(slot)
        return found

    def assign(self, slots: Iterable[int], rows: int, *, whole: bool) -> dict[int, int]:
        """Returns row -> slot for a call of `rows` rows per shard; with `whole` a slot's row is its own place."""
        if whole:
            return {slot: slot for slot in slots}
        return {
            shard * rows + place: slot
            for shard, mine in enumerate(self.by_shard(slots))
            for place, slot in enumerate(mine)
        }

    def rows(self, at: Mapping[int, int], rows: int) -> np.ndarray:
        """Returns, per row of a call, the place of its slot in its shard; `per_shard` for rows that stand idle."""
        found = np.full(self.shards * rows, self.per_shard, np.int32)
        for row, slot in at.items():
            found[row] = slot % self.per_shard
        return found

    def single(self, slot: int) -> np.ndarray:
        """Returns the rows of a call with one row per shard, all idle but the slot's."""
        return self.rows({self.shard(slot): slot}, 1)


def tensor_devices_on_one_host(mesh: Mesh) -> bool:
    """Returns whether every shard of rows lies on devices of one process, and each process's shards are neighbours."""
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
            "hosts cannot have conversations of their own: a shard of rows lies on devices of several hosts; make the "
            "mesh's tensor axis no larger than a host, or give all hosts the same conversations"
        )
    return [shard for shard, hosts in enumerate(_hosts(mesh)) if hosts[0] == jax.process_index()]
