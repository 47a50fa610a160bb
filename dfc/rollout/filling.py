"""Fills the arrays of a call from the conversations that take part in it."""

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np

from dfc import agreement
from dfc.config import SamplingConfig
from dfc.rollout import constraints
from dfc.rollout.planning import DECODE, SCORE, Plan
from dfc.rollout.programs import Rows, Table
from dfc.rollout.sampling import row_sampling, uniforms
from dfc.rollout.slots import Conversation, Places


@dataclasses.dataclass(frozen=True)
class Filled:
    """What a call is given, rows of this host only.

    Attributes:
      rows: of the call. tokens: int32 [R, W], what each feeds. targets: int32 [R, W], the ids behind them.
      numbers: float32, [R, steps] of a decode call, else [R]: the random number of each id that may be drawn.
      table: of constraints of all hosts, or None.
    """

    rows: Rows
    tokens: np.ndarray
    targets: np.ndarray
    numbers: np.ndarray
    table: Table | None


def fill(
    plan: Plan,
    places: Places,
    at: Mapping[int, int],
    conversations: Mapping[int, Conversation],
    default: SamplingConfig,
    *,
    apart: bool,
) -> Filled:
    """Returns the arrays of a call.

    Args:
      plan: of the call.
      places: of the slots.
      at: the slot of each row that takes part.
      conversations: by slot.
      default: how rows that stand idle would draw.
      apart: whether hosts have conversations of their own.
    """
    count, decodes = places.shards * plan.rows, plan.stage == DECODE
    held, fed, budget, adapter = (np.zeros(count, np.int32) for _ in range(4))
    answers, seeds = np.zeros(count, bool), np.zeros(count, np.uint64)
    tokens = np.zeros((count, 1 if decodes else plan.width), np.int32)
    targets = np.zeros_like(tokens)
    settings = [default] * count
    positions: list[constraints.Position | None] = [None] * count
    for row, slot in at.items():
        one = conversations[slot]
        width = min(one.unread, tokens.shape[1])
        tokens[row, :width] = one.ids[one.fed : one.fed + width]
        if plan.stage == SCORE:
            targets[row, :width] = one.ids[one.fed + 1 : one.fed + 1 + width]
        held[row], fed[row], budget[row], adapter[row] = one.fed, width, one.left, one.adapter
        answers[row], seeds[row] = True, one.seed
        settings[row], positions[row] = one.sampling, one.position
    table, node = _constraints(plan, positions, apart=apart)
    drawn = (held[:, None] + 1 + np.arange(plan.width)) if decodes else (held + fed)  # places of the ids drawn
    return Filled(
        rows=Rows(
            slot=places.rows(at, plan.rows),
            held=held,
            count=fed,
            answers=answers,
            budget=budget,
            adapter=adapter,
            sampling=row_sampling(settings),
            node=node,
        ),
        tokens=tokens,
        targets=targets,
        numbers=uniforms(seeds[:, None] if decodes else seeds, drawn.astype(np.uint64)),
        table=table,
    )


def _constraints(
    plan: Plan, positions: list[constraints.Position | None], *, apart: bool
) -> tuple[Table | None, np.ndarray]:
    """Returns the table of constraints of all hosts, and where the rows of this one stand in it."""
    if not plan.nodes:
        return None, np.full(len(positions), -1, np.int32)
    packed = constraints.pack(positions, least_nodes=plan.nodes, least_choices=plan.branches)
    if not apart:
        return Table(packed.ids, packed.nodes), packed.start
    ids, nodes = agreement.stacked(np.stack([packed.ids, packed.nodes])).swapaxes(0, 1)  # [hosts, nodes, branches]
    offset = np.arange(len(nodes), dtype=np.int32)[:, None, None] * np.int32(nodes.shape[1])
    nodes = np.where(nodes >= 0, nodes + offset, nodes)
    start = np.where(packed.start >= 0, packed.start + jax.process_index() * nodes.shape[1], packed.start)
    width = ids.shape[2]
    return Table(ids.reshape(-1, width), nodes.reshape(-1, width)), start.astype(np.int32)
