"""What a seat that an engine plays has seen and said: every token, and where the cache of them is."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from dfc.config import SamplingConfig
from dfc.inference.constraints import ActionTrie, Position
from dfc.inference.protocol import EngineReply, RolloutEngine
from dfc.samples import Choices, Sample

NO_VERSION = -1


@dataclasses.dataclass
class SeatTranscript:
    """The tokens of one seat, which of them were sampled, and where their cache is: in a slot, parked, or nowhere yet.

    Tokens are collected here and reach the engine when a reply is asked for; until the first one no slot is taken.

    Attributes:
      engine: answers. policy: the name of the weights it answers with. seed: decides, with tokens and weights, what it
        samples.
      slot: the engine's, None while there is none.
      token_ids: everything so far. mask: which were sampled. sampled_logprobs: of those, 0 elsewhere. versions: of the
        weights that sampled them, -1 elsewhere. constrained: the replies that were restricted: where each begins, its
        length, and what it was restricted to.
      kept: the sets that tokens were sampled among where filters left some, by where their reply begins.
      closed: whether the last reply ended with an end-of-turn token.
      observed: whether the last tokens are what the seat is shown before its next reply.
      sampling: how it samples; None: as the engine does by default.
    """

    engine: RolloutEngine
    policy: str
    seed: int
    slot: int | None = None
    token_ids: list[int] = dataclasses.field(default_factory=list)
    mask: list[bool] = dataclasses.field(default_factory=list)
    sampled_logprobs: list[float] = dataclasses.field(default_factory=list)
    versions: list[int] = dataclasses.field(default_factory=list)
    constrained: list[tuple[int, int, ActionTrie]] = dataclasses.field(default_factory=list)
    kept: dict[int, Choices] = dataclasses.field(default_factory=dict)
    closed: bool = False
    observed: bool = False
    sampling: SamplingConfig | None = None
    _parked: Any = None  # what the engine gave for a slot
    _actions: ActionTrie | None = None  # of the reply that was asked for
    _sent: int = 0  # tokens the engine knows

    @property
    def full(self) -> bool:
        """Whether no room is left for a single token."""
        return len(self.token_ids) >= self.engine.max_length

    def add_context(self, token_ids: Sequence[int]) -> None:
        """Adds tokens that were not sampled."""
        count = len(token_ids)
        self.token_ids += token_ids
        self.mask += [False] * count
        self.sampled_logprobs += [0.0] * count
        self.versions += [NO_VERSION] * count

    def begin_with(self, recorded: Sample) -> None:
        """Takes a conversation as it was recorded, up to what the seat was shown before its next reply."""
        self.token_ids, self.mask = recorded.token_ids.tolist(), recorded.mask.tolist()
        self.sampled_logprobs = recorded.sampled_logprobs.tolist()
        known = recorded.versions
        self.versions = [NO_VERSION] * len(self.token_ids) if known is None else known.tolist()
        self.kept = {} if recorded.choices is None else {0: recorded.choices}
        self.observed = True

    def ask(self, max_reply_length: int, actions: ActionTrie | None) -> int:
        """Asks the engine for a reply, in a free slot if it holds none; returns the slot.

        The caller sees to it that a slot is free and that the conversation is not full.
        """
        if self._parked is not None:
            self.slot, self._parked = self.engine.unpark(self._parked), None
        elif self.slot is None:
            self.slot = self.engine.open(self.seed, policy=self.policy, sampling=self.sampling)
        self.engine.append(self.slot, self.token_ids[self._sent :])
        self._sent, self._actions = len(self.token_ids), actions
        if not self.engine.ask(self.slot, max_reply_length, actions):
            raise AssertionError(
                f"slot {self.slot} refuses a reply at {len(self.token_ids)} of {self.engine.max_length} tokens"
            )
        return self.slot

    def add_reply(self, reply: EngineReply) -> None:
        """Adds the tokens of a reply the engine sampled."""
        if reply.choices is not None:  # of a constrained reply those of the actions that filters left
            self.kept[len(self.token_ids)] = reply.choices
        elif self._actions is not None:
            self.constrained.append((len(self.token_ids), len(reply.token_ids), self._actions))
        self.token_ids += reply.token_ids
        self.mask += [True] * len(reply.token_ids)
        self.sampled_logprobs += reply.sampled_logprobs
        self.versions += reply.versions
        self._sent = len(self.token_ids)

    def roll_back(self, length: int, *, closed: bool) -> None:
        """Drops everything after the first `length` tokens, here and in the engine: a question put aside and its reply.

        `length` and `closed` are `len(self.token_ids)` and `self.closed` as they were before.
        """
        for values in (self.token_ids, self.mask, self.sampled_logprobs, self.versions):
            del values[length:]
        self.constrained = [reply for reply in self.constrained if reply[0] < length]
        self.kept = {start: choices for start, choices in self.kept.items() if start < length}
        self.closed = closed
        if self._sent > length:
            self._sent = length
            assert self.slot is not None  # noqa: S101 - what was just said is in a slot
            self.engine.roll_back(self.slot, length)

    def park(self) -> None:
        """Releases the slot and keeps its cache in the host's memory, until the next `ask`."""
        if self.slot is not None:
            self._parked, self.slot = self.engine.park(self.slot), None

    def close(self) -> None:
        """Releases the slot; the tokens stay."""
        if self.slot is not None:
            self.engine.close(self.slot)
        self.slot = self._parked = None

    def sample(self) -> Sample:
        """Returns what a trainer needs of it."""
        return Sample(
            np.asarray(self.token_ids, np.int32),
            np.asarray(self.mask, bool),
            np.asarray(self.sampled_logprobs, np.float32),
            np.asarray(self.versions, np.int32),
            self._choices(),
        )

    def _choices(self) -> Choices | None:
        """Returns the tokens that each was sampled among; here, where only who is trained asks."""
        parts = dict(self.kept)
        for start, length, actions in self.constrained:
            places = [Position(actions, 0)]
            for index in range(start, start + length - 1):
                places.append(places[-1].after(self.token_ids[index : index + 1]))
            parts[start] = Choices.of(place.choices for place in places)
        return Choices.placed(len(self.token_ids), parts)
