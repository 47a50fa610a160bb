"""Prompts in, several replies to each out: what a method without games plays."""

import collections
from collections.abc import Callable, Sequence

import numpy as np

from dfc.config import SamplingConfig
from dfc.inference.engine import Engine
from dfc.inference.slots import EngineReply
from dfc.rollout.transcript import NO_VERSION
from dfc.samples import Choices, Sample

_IN_FLIGHT = 2  # calls of the engine: one computes while the replies of the other are taken


def samples(
    engine: Engine,
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
