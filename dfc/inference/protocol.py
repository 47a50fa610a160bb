"""What rollouts need of an engine (`RolloutEngine`), and what it answers; `dfc.inference.engine.Engine` is one.

Nothing in `dfc.rollout` but `dfc.rollout.host`, which makes engines, knows which one it holds.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dfc.config import SamplingConfig
from dfc.inference.constraints import ActionTrie
from dfc.models.transformer import Adapters, Params
from dfc.samples import Choices

Ends = Callable[[list[int]], int | None]
"""For stop strings: given a reply's tokens so far, how many of them to keep if it is over, else None."""


@dataclasses.dataclass(frozen=True)
class EngineReply:
    """What a slot replied, or the tokens it was given to score; without tokens: it has read what it was asked to.

    Attributes:
      slot: which conversation.
      token_ids: the sampled tokens, the stop token included if there is one.
      sampled_logprobs: of each token under the distribution it was sampled from: temperature, filters and constraint
        applied.
      plain_logprobs: of each token under the untruncated distribution at temperature 1; empty if the engine was not
        made to compute them.
      versions: of the weights each token was sampled under.
      choices: the set of tokens that each was sampled among; None: filters removed none of the vocabulary, or the
        engine was not made to keep the sets.
      stopped: whether a stop token or a stop string ended it; otherwise the length limit cut the reply.
      shared_tokens: of the conversation before it, that were copied from another one when it was asked for.
    """

    slot: int
    token_ids: list[int]
    sampled_logprobs: list[float]
    plain_logprobs: list[float]
    versions: list[int]
    stopped: bool
    shared_tokens: int = 0
    choices: Choices | None = None


@dataclasses.dataclass
class EngineCounts:
    """What an engine has done since it was made; all numbers are tokens or calls, of this host.

    Attributes:
      calls: of the device.
      steps: of decode calls.
      processed_tokens: prefilled or decoded.
      generated_tokens: sampled.
      computed: rows x tokens per row, summed over calls: what the device worked on, padding included.
      row_steps: rows x steps of decode calls.
      useful_steps: of them, those that sampled a token that counts.
      prompt_tokens: of the processed ones, those before what is sampled or scored.
      shared_tokens: that were copied from a conversation that begins alike, instead of being prefilled.
    """

    calls: int = 0
    steps: int = 0
    processed_tokens: int = 0
    generated_tokens: int = 0
    computed: int = 0
    row_steps: int = 0
    useful_steps: int = 0
    prompt_tokens: int = 0
    shared_tokens: int = 0


class RolloutEngine(Protocol):
    """Conversations in slots, tokens in and tokens out; `dfc.inference.engine.Engine` says what each method promises.

    Attributes:
      counts: what was done so far.
      max_length: tokens of one conversation.
    """

    counts: EngineCounts
    max_length: int

    # ---- weights, by the names of policies

    def set_params(
        self, params: Params, version: int, adapters: Adapters | None = None, *, policy: str = "policy"
    ) -> None:
        """Takes over the weights of a policy; the next call uses them."""

    def version(self, policy: str = "policy") -> int:
        """Returns the version of a policy's weights."""

    def forget_copies(self) -> None:
        """Frees what holds memory between plays and can be made again."""

    # ---- conversations, by the numbers of slots

    @property
    def free(self) -> int:
        """Number of slots no conversation owns."""

    def open(self, seed: int, *, policy: str = "policy", sampling: SamplingConfig | None = None) -> int:
        """Returns the slot of a new conversation; `sampling` None: as the engine does by default."""

    def append(self, slot: int, token_ids: Sequence[int]) -> None:
        """Adds tokens that were not sampled."""

    def ask(self, slot: int, max_reply_length: int, actions: ActionTrie | None = None) -> bool:
        """Asks for a reply, one of `actions` if given; returns False if no room is left for a token."""

    def roll_back(self, slot: int, length: int) -> None:
        """Drops everything after the first `length` tokens."""

    def park(self, slot: int) -> Any:  # noqa: ANN401 - the engine's own, which only it reads
        """Frees a conversation's slot and returns what `unpark` takes it back from."""

    def unpark(self, parked: Any) -> int:  # noqa: ANN401 - as above
        """Takes a conversation back; returns its new slot."""

    def close(self, slot: int) -> None:
        """Ends a conversation, also in the middle of a reply."""

    # ---- calls

    @property
    def in_flight(self) -> int:
        """Calls that were launched and not collected."""

    def launch(self) -> bool:
        """Begins a call for conversations that were asked, without waiting; returns False if there are none."""

    def collect(self) -> list[EngineReply]:
        """Waits for the oldest call; returns the replies it finished."""

    def step(self) -> list[EngineReply]:
        """Launches a call if none is in flight, and collects one."""

    def anyone(self, flag: bool) -> bool:
        """Returns whether it is true on any host that shares the engine's calls; all of them have to ask."""
