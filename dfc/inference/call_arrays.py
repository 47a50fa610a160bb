"""The arrays of a call: filled from the conversations that take part in it, and read back."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dfc import multihost
from dfc.config import SamplingConfig
from dfc.inference import constraints
from dfc.inference.programs import CallRows, TokenTrie
from dfc.inference.sampling import row_sampling, uniforms
from dfc.inference.scheduler import DECODE, SCORE, Plan
from dfc.inference.slots import SlotAllocator, SlotState


@dataclasses.dataclass
class DeviceCall:
    """A call in flight: its future results, and which conversation each row is."""

    stage: int
    rows: dict[int, tuple[int, SlotState, int, int]]  # row -> slot, who had it, its tokens, version of the weights
    results: tuple[Any, ...]  # arrays, and the sets that tokens were sampled among, or None
    size: int  # rows, idle ones included, of this host

    @property
    def decodes(self) -> bool:
        """Whether it decodes."""
        return self.stage == DECODE


@dataclasses.dataclass(frozen=True)
class Filled:
    """The inputs of a call, rows of this host only.

    Attributes:
      rows: of the call. tokens: int32 [R, W], what each processes. targets: int32 [R, W], the tokens after them.
      numbers: float32, [R, steps] of a decode call, else [R]: the random number of each token that may be sampled.
      trie: of constraints of all hosts, or None.
    """

    rows: CallRows
    tokens: np.ndarray
    targets: np.ndarray
    numbers: np.ndarray
    trie: TokenTrie | None


def fill(
    plan: Plan,
    slot_allocator: SlotAllocator,
    at: Mapping[int, int],
    states: Mapping[int, SlotState],
    default: SamplingConfig,
    *,
    apart: bool,
) -> Filled:
    """Returns the arrays of a call.

    `at` has the slot of each row that takes part, `default` is the sampling of idle rows; `apart`: hosts have
    conversations of their own.
    """
    count, decodes = slot_allocator.shards * plan.rows, plan.stage == DECODE
    held, num_new, budget, adapter = (np.zeros(count, np.int32) for _ in range(4))
    answers, seeds = np.zeros(count, bool), np.zeros(count, np.uint64)
    tokens = np.zeros((count, 1 if decodes else plan.width), np.int32)
    targets = np.zeros_like(tokens)
    settings = [default] * count
    positions: list[constraints.Position | None] = [None] * count
    for row, slot in at.items():
        state = states[slot]
        width = min(state.num_pending, tokens.shape[1])
        tokens[row, :width] = state.token_ids[state.num_cached : state.num_cached + width]
        if plan.stage == SCORE:
            targets[row, :width] = state.token_ids[state.num_cached + 1 : state.num_cached + 1 + width]
        held[row], num_new[row], budget[row], adapter[row] = state.num_cached, width, state.left, state.adapter
        answers[row], seeds[row] = True, state.seed
        settings[row], positions[row] = state.current_sampling, state.position
    trie, node = _constraints(plan, positions, apart=apart)
    sampled_positions = (
        (held[:, None] + 1 + np.arange(plan.width)) if decodes else (held + num_new)
    )  # of the sampled tokens
    return Filled(
        rows=CallRows(
            slot=slot_allocator.rows(at, plan.rows),
            held=held,
            count=num_new,
            answers=answers,
            budget=budget,
            adapter=adapter,
            sampling=row_sampling(settings),
            node=node,
        ),
        tokens=tokens,
        targets=targets,
        numbers=uniforms(seeds[:, None] if decodes else seeds, sampled_positions.astype(np.uint64)),
        trie=trie,
    )


def _constraints(
    plan: Plan, positions: list[constraints.Position | None], *, apart: bool
) -> tuple[TokenTrie | None, np.ndarray]:
    """Returns the trie of constraints of all hosts, and the nodes of this host's rows in it."""
    if not plan.nodes:
        return None, np.full(len(positions), -1, np.int32)
    packed = constraints.pack(positions, least_nodes=plan.nodes, least_choices=plan.branches)
    if not apart:
        return TokenTrie(packed.token_ids, packed.nodes), packed.start
    token_ids, nodes = multihost.all_gather(np.stack([packed.token_ids, packed.nodes])).swapaxes(
        0, 1
    )  # [hosts, nodes, branches]
    offset = np.arange(len(nodes), dtype=np.int32)[:, None, None] * np.int32(nodes.shape[1])
    nodes = np.where(nodes >= 0, nodes + offset, nodes)
    start = np.where(packed.start >= 0, packed.start + jax.process_index() * nodes.shape[1], packed.start)
    width = token_ids.shape[2]
    return TokenTrie(token_ids.reshape(-1, width), nodes.reshape(-1, width)), start.astype(np.int32)
