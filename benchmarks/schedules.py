"""The engine planner's schedules of conversations, counted without a model: `python benchmarks/schedules.py`.

The engine and its planner are the real ones. In place of the device's programs stand functions that sample nothing but
zeros and end a reply where it is as long as the workload says; what a call costs is what the planner's own cost model
says of it (`dfc.inference.buckets.Costs`, on a CPU). So the counts are the same on every machine and in every run.

Two workloads sample as many tokens of as many conversations: equal ones, and ragged ones whose numbers of turns and
lengths are drawn. The ideal takes the rows of a turn out of the cache once, and has neither padding nor waiting.
"""

import argparse
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Self
from unittest import mock

import numpy as np

from dfc.config import SamplingConfig
from dfc.inference.engine import Engine
from dfc.inference.programs import CallRows, Shape
from dfc.inference.protocol import EngineReply
from dfc.inference.scheduler import DECODE, Plan
from dfc.models.config import DecoderConfig

MODEL = DecoderConfig(  # of 5M weights
    vocabulary=8192,
    width=256,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=64,
    feed_forward=688,
    rope_theta=1e4,
    norm_epsilon=1e-5,
    qkv_bias=False,
    tied_embedding=True,
)
Conversation = Sequence[tuple[int, int]]  # turns: tokens heard, tokens said


@dataclasses.dataclass(frozen=True)
class Counted:
    """What a schedule took.

    Attributes:
      cost: of all calls, in tokens processed. said: tokens sampled. calls: of the device.
      useful_rows: share of the rows x steps of decode calls that sampled a token that counts.
      processed: share of the computed tokens that were prefilled or decoded; the rest is padding and waiting.
    """

    cost: float
    said: int
    calls: int
    useful_rows: float
    processed: float

    @property
    def per_token(self) -> float:
        """Cost of a sampled token."""
        return self.cost / self.said


class _CountedPrograms:
    """Stands for `dfc.inference.programs.Programs`: no arithmetic, only what calls cost."""

    shards, rows = 1, None

    def __init__(self) -> None:
        self.empty: Callable[..., Any] = lambda *_: ()

    def prefill(
        self, _weights: object, cache: object, _rows: CallRows, tokens: np.ndarray, *_: object, shape: Shape
    ) -> tuple[Any, ...]:
        """Samples token 0 in every row."""
        del shape
        return _Result(np.zeros(len(tokens), np.int32)), _Result(np.zeros((1, len(tokens)), np.float32)), cache

    def decode(
        self,
        _weights: object,
        cache: object,
        rows: CallRows,
        _token: object,
        uniform: np.ndarray,
        _stops: object,
        _trie: object,
        limit: int,
        least: int,
        *,
        shape: Shape,
    ) -> tuple[Any, ...]:
        """Samples token 0 in every row up to its budget, until fewer than `least` rows are writing."""
        del shape
        budget = np.where(np.asarray(rows.answers), np.asarray(rows.budget), 0)
        steps = 0
        while steps < limit and np.count_nonzero(budget > steps) >= max(least, 1):
            steps += 1
        sampled = np.minimum(budget, steps).astype(np.int32)
        found = np.zeros((len(budget), uniform.shape[1]), np.int32), np.zeros((1, *uniform.shape), np.float32)
        return (*map(_Result, found), _Result(sampled), _Result(np.int32(steps)), cache)


class _Result(np.ndarray):
    """An array that is on the host already."""

    def __new__(cls, values: np.ndarray | np.generic) -> Self:
        return np.asarray(values).view(cls)

    def copy_to_host_async(self) -> None:
        """Nothing is under way."""


def count(conversations: Sequence[Conversation], *, slots: int = 64, max_length: int = 0, **settings: Any) -> Counted:  # noqa: ANN401 - of Engine
    """Plays conversations through an engine that computes nothing; returns what that took.

    Args:
      conversations: those beyond the slots begin as others end.
      slots: of the engine.
      max_length: of a conversation; 0: that of the longest, in steps of 128.
      settings: of the engine, e.g. `rows`.
    """
    longest = max(sum(map(sum, conversation)) for conversation in conversations)
    with mock.patch("dfc.inference.engine.programs", return_value=_CountedPrograms()):
        engine = Engine(
            MODEL,
            {},
            slots=slots,
            max_length=max_length or 128 * math.ceil((longest + 1) / 128),
            stop_token_ids=frozenset([1]),
            sampling=SamplingConfig(),
            **settings,
        )
    run, cost = engine._run, 0.0  # noqa: SLF001 - the device is what is left out

    def costed(plan: Plan, chosen: list[int]) -> Any:  # noqa: ANN401 - a call
        nonlocal cost
        call = run(plan, chosen)
        width = int(call.results[3]) if plan.stage == DECODE else plan.width
        lengths = [state.num_cached for _, state, *_ in call.rows.values()]
        cost += engine._planner.costs.of_call(plan.rows, width, lengths)  # noqa: SLF001 - see above
        return call

    engine._run = costed  # type: ignore[method-assign]  # noqa: SLF001 - see above
    waiting = list(conversations)[::-1]
    turn_of: dict[int, tuple[Conversation, int]] = {}
    said, rng = 0, np.random.default_rng(0)  # tokens that are not shared

    def ask(slot: int) -> None:
        conversation, turn = turn_of[slot]
        heard, reply = conversation[turn]
        engine.append(slot, rng.integers(2, MODEL.vocabulary, size=heard).tolist())
        if not engine.ask(slot, reply):
            raise AssertionError(f"slot {slot} has no room for turn {turn}")

    def enter() -> None:
        while waiting and engine.free:
            slot = engine.open(0)
            turn_of[slot] = waiting.pop(), 0
            ask(slot)

    def hear(reply: EngineReply) -> None:
        nonlocal said
        said += len(reply.token_ids)
        conversation, turn = turn_of.pop(reply.slot)
        if turn + 1 == len(conversation):
            engine.close(reply.slot)
            return
        turn_of[reply.slot] = conversation, turn + 1
        ask(reply.slot)

    enter()
    while engine.busy:
        for reply in engine.step():
            hear(reply)
        enter()
    counts = engine.counts
    return Counted(
        cost,
        said,
        counts.calls,
        counts.useful_steps / max(1, counts.row_steps),
        counts.processed_tokens / counts.computed,
    )


def ideal(conversations: Sequence[Conversation]) -> float:
    """Returns the least that a sampled token can cost: every token at its own length."""
    from dfc.inference import buckets  # noqa: PLC0415 - only here

    costs = buckets.default_costs(MODEL, "cpu")
    total, said = 0.0, 0
    for conversation in conversations:
        held = 0
        for heard, reply in conversation:
            total += sum(costs.of_token(held + place) for place in range(heard + reply))
            held += heard + reply
            said += reply
    return total / said


def ragged(number: int, seed: int) -> list[Conversation]:
    """Returns conversations of 2 to 15 turns that hear 10 to 120 tokens and say a geometric number of them, mean 20."""
    rng = np.random.default_rng(seed)
    return [
        [(int(rng.integers(10, 121)), int(min(rng.geometric(1 / 20), 96))) for _ in range(int(rng.integers(2, 16)))]
        for _ in range(number)
    ]


def equal(like: Sequence[Conversation]) -> list[Conversation]:
    """Returns as many conversations of equal turns: the means of the others."""
    turns = round(sum(map(len, like)) / len(like))
    heard, said = np.mean([turn for conversation in like for turn in conversation], axis=0)
    return [[(round(float(heard)), round(float(said)))] * turns for _ in like]


def main() -> None:
    """Prints a line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="16 conversations, to see that it runs")
    arguments = parser.parse_args()
    arguments.conversations = 16 if arguments.quick else arguments.conversations
    uneven = ragged(arguments.conversations, arguments.seed)
    even = equal(uneven)
    least = ideal(uneven), ideal(even)
    print(f"ideal: ragged {least[0]:.2f}, equal {least[1]:.2f}, ratio {least[0] / least[1]:.2f}")
    for name, settings in {
        "rows of all slots": {"rows": 64},
        "half": {"rows": 32},
        "a quarter": {"rows": 16},
        "an eighth": {"rows": 8},
        "a quarter, 16 steps": {"rows": 16, "decode_steps": 16},
    }.items():
        found = [count(conversations, **settings) for conversations in (uneven, even)]
        print(
            f"{name:32s} ragged {found[0].per_token:5.2f}  equal {found[1].per_token:5.2f}  "
            f"ratio {found[0].per_token / found[1].per_token:.2f}  useful rows {found[0].useful_rows:.1%}  "
            f"processed {found[0].processed:.1%}  calls {found[0].calls}"
        )


if __name__ == "__main__":
    main()
