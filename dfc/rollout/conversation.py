"""What a seat that an engine plays has seen and said: every id, and where the cache of them is."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from dfc.config import SamplingConfig
from dfc.rollout.constraints import ActionTrie
from dfc.rollout.engine import Engine
from dfc.rollout.slots import Parked, Reply

NO_VERSION = -1


@dataclasses.dataclass
class Voice:
    """The ids of one seat, which of them were drawn, and where their cache is: in a slot, parked, or nowhere yet.

    Ids are collected here and reach the engine when a reply is asked for; until the first one no slot is taken.

    Attributes:
      engine: answers. policy: the name of the weights it answers with. seed: decides, with ids and weights, what it
        draws.
      slot: the engine's, None while there is none.
      ids: everything so far. mask: which of them were drawn. logprobs, plain: of those, 0 elsewhere. versions: of the
        weights that drew them, -1 elsewhere.
      closed: whether the last reply ended with an end-of-turn id.
      sampling: how it draws; None: as the engine does by default.
    """

    engine: Engine
    policy: str
    seed: int
    slot: int | None = None
    ids: list[int] = dataclasses.field(default_factory=list)
    mask: list[bool] = dataclasses.field(default_factory=list)
    logprobs: list[float] = dataclasses.field(default_factory=list)
    plain: list[float] = dataclasses.field(default_factory=list)
    versions: list[int] = dataclasses.field(default_factory=list)
    closed: bool = False
    sampling: SamplingConfig | None = None
    _parked: Parked | None = None
    _sent: int = 0  # ids the engine knows

    @property
    def full(self) -> bool:
        """Whether no room is left for a single id."""
        return len(self.ids) >= self.engine.max_length

    def hear(self, ids: Sequence[int]) -> None:
        """Adds ids that were not drawn."""
        count = len(ids)
        self.ids += ids
        self.mask += [False] * count
        self.logprobs += [0.0] * count
        self.plain += [0.0] * count
        self.versions += [NO_VERSION] * count

    def ask(self, max_reply_length: int, actions: ActionTrie | None) -> int:
        """Asks the engine for a reply, in a free slot if it holds none; returns the slot.

        The caller sees to it that a slot is free and that the conversation is not full.
        """
        if self._parked is not None:
            self.slot, self._parked = self.engine.unpark(self._parked), None
        elif self.slot is None:
            self.slot = self.engine.open(self.seed, policy=self.policy, sampling=self.sampling)
        self.engine.append(self.slot, self.ids[self._sent :])
        self._sent = len(self.ids)
        if not self.engine.ask(self.slot, max_reply_length, actions):
            raise AssertionError(f"slot {self.slot} refuses a reply at {len(self.ids)} of {self.engine.max_length} ids")
        return self.slot

    def said(self, reply: Reply) -> None:
        """Adds the ids of a reply the engine drew."""
        self.ids += reply.ids
        self.mask += [True] * len(reply.ids)
        self.logprobs += reply.logprobs
        self.plain += reply.plain_logprobs
        self.versions += reply.versions
        self._sent = len(self.ids)

    def park(self) -> None:
        """Gives the slot back and keeps its cache in the host's memory, until the next `ask`."""
        if self.slot is not None:
            self._parked, self.slot = self.engine.park(self.slot), None

    def close(self) -> None:
        """Gives the slot back; the ids stay."""
        if self.slot is not None:
            self.engine.close(self.slot)
        self.slot = self._parked = None

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns ids int32, mask bool, logprobs and plain_logprobs float32, versions int32, all [n]."""
        return {
            "ids": np.asarray(self.ids, np.int32),
            "mask": np.asarray(self.mask, bool),
            "logprobs": np.asarray(self.logprobs, np.float32),
            "plain_logprobs": np.asarray(self.plain, np.float32),
            "versions": np.asarray(self.versions, np.int32),
        }
