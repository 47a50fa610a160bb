"""Prompts in, several replies to each out: what a method without games plays."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from dfc.config import SamplingConfig
from dfc.inference.protocol import EngineReply, RolloutEngine
from dfc.models.chat import ChatTokenizer
from dfc.rollout.transcript import NO_VERSION
from dfc.samples import Choices, Sample

_IN_FLIGHT = 2  # calls of the engine: one computes while the replies of the other are taken


def samples(
    engine: RolloutEngine,
    prompts: Sequence[Sequence[int]],
    n: int,
    *,
    seed: Callable[[int, int], int],
    max_reply_length: int,
    policy: str = "policy",
    sampling: SamplingConfig | None = None,
    check_stop: Callable[[], None] = lambda: None,
) -> list[list[Sample]]:
    """Returns n samples of every prompt: its tokens, then those of a reply.

    A sample depends on its prompt, its seed and the weights only, up to rounding. The replies to a prompt follow each
    other, so that the engine reads it once and copies it (`dfc.inference.prefixes`); where hosts have conversations of
    their own, each reply reads it.

    Prompts are tokens, markup included; `seed` of (prompt, sample) decides a sample's tokens. More samples than free
    slots wait for one. A reply also ends where the conversation fills the engine's `max_length`. `sampling` None: as
    the engine does by default. `check_stop` is called between engine calls; its exception aborts the call
    (`dfc.runs.stop_signals.Stop.check_stop`).

    Raises:
      ValueError: a prompt is empty or leaves no room for a reply, or n or max_reply_length is below 1.
    """
    if n < 1 or max_reply_length < 1:
        raise ValueError(f"expected n and max_reply_length of 1 or more, got {n} and {max_reply_length}")
    for number, prompt in enumerate(prompts):
        if not 0 < len(prompt) < engine.max_length:
            raise ValueError(
                f"prompt {number} has {len(prompt)} tokens; expected 1 to {engine.max_length - 1}, so that a reply "
                "fits; raise rollout.max_length, or shorten it"
            )
    waiting = collections.deque((prompt, number) for prompt in range(len(prompts)) for number in range(n))
    answering: dict[int, tuple[int, int]] = {}
    found: dict[tuple[int, int], Sample] = {}
    try:
        while engine.anyone(bool(waiting or answering)):
            check_stop()
            while waiting and engine.free:
                of = waiting.popleft()
                slot = engine.open(seed(*of), policy=policy, sampling=sampling)
                answering[slot] = of
                engine.append(slot, prompts[of[0]])
                engine.ask(slot, max_reply_length)
            while engine.in_flight < _IN_FLIGHT and engine.launch():
                pass
            for reply in engine.collect():
                of = answering.pop(reply.slot)
                engine.close(reply.slot)
                found[of] = _sample(prompts[of[0]], reply)
    finally:  # the engine is the caller's and plays on if it can
        for slot in answering:
            engine.close(slot)
    return [[found[prompt, number] for number in range(n)] for prompt in range(len(prompts))]


def _sample(prompt: Sequence[int], reply: EngineReply) -> Sample:
    before, length = len(prompt), len(prompt) + len(reply.token_ids)
    return Sample(
        np.asarray([*prompt, *reply.token_ids], np.int32),
        np.arange(length) >= before,
        np.asarray([0.0] * before + reply.sampled_logprobs, np.float32),
        np.asarray([NO_VERSION] * before + reply.versions, np.int32),
        None if reply.choices is None else Choices.placed(length, {before: reply.choices}),
    )


@dataclasses.dataclass(frozen=True)
class Reply:
    """What a policy answered.

    Attributes:
      text: of its tokens.
      ended: whether it ended the reply itself; False: a limit did.
      sample: its prompt and its own tokens, for a trainer.
    """

    text: str
    ended: bool
    sample: Sample


@dataclasses.dataclass
class Asker:
    """Asks the policies of an engine, in conversations of one reply.

    Attributes:
      engine: answers. tokenizer: of its model.
      check_stop: called between engine calls; its exception aborts the call (`dfc.runs.stop_signals.Stop.check_stop`).
    """

    engine: RolloutEngine
    tokenizer: ChatTokenizer
    check_stop: Callable[[], None] = lambda: None

    def prompt(self, text: str) -> list[int]:
        """Returns the tokens of a conversation that begins with a user's message.

        The message is text, whatever it contains: nothing in it becomes the markup of a role (`dfc.models.chat`).
        """
        return self.tokenizer.first_turn(text)

    def fits(self, prompt: Sequence[int], reply: int) -> bool:
        """Returns whether a prompt leaves room for a reply of so many tokens."""
        return 0 < len(prompt) <= self.engine.max_length - reply

    def ask(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        *,
        seed: Callable[[int, int], int],
        longest: int,
        policy: str = "policy",
        sampling: SamplingConfig | None = None,
    ) -> list[list[Reply]]:
        """Returns n replies of `longest` tokens at most to every prompt; the rest is as in `samples`."""
        found = samples(
            self.engine,
            prompts,
            n,
            seed=seed,
            max_reply_length=longest,
            policy=policy,
            sampling=sampling,
            check_stop=self.check_stop,
        )
        return [[self._reply(sample) for sample in group] for group in found]

    def _reply(self, sample: Sample) -> Reply:
        tokens = sample.token_ids[sample.mask].tolist()
        return Reply(self.tokenizer.decode(tokens), bool(tokens) and tokens[-1] in self._ends, sample)

    @functools.cached_property
    def _ends(self) -> frozenset[int]:
        return self.tokenizer.stop_token_ids(())
