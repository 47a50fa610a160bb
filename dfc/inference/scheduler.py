"""Which conversations the next call is for, and of what size it is.

A call is for conversations with the same weights, and either for those in prefill or for those that decode, whichever
gets more done. Hosts with conversations of their own agree on one plan for all of them: what decides a shape or the
length of a loop is the same everywhere, hosts with nothing to do are idle in it.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from dfc import multihost
from dfc.inference import constraints
from dfc.inference.buckets import Costs, Shapes
from dfc.inference.slots import SlotAllocator, SlotState, Stage

STAGES: tuple[Stage, ...] = ("prefill", "score", "decode")  # what goes first, first
PREFILL, SCORE, DECODE = range(3)
PATIENCE = 4  # calls that those in prefill wait for company
_LEAST_NODES, _LEAST_CHOICES = 1024, 32  # every size of a trie is a program of its own
Ready = Mapping[int, SlotState]  # by slot


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a call is, as numbers: hosts with their own conversations agree on them.

    Attributes:
      stage: place in `STAGES`, -1 for no call.
      policy: its number.
      rows: per shard.
      width: tokens processed per row, or steps.
      nodes, branches: of the trie of constraints, 0 without one.
      limit: steps at most.
      writing: rows that decode, of all hosts.
    """

    stage: int = -1
    policy: int = 0
    rows: int = 0
    width: int = 0
    nodes: int = 0
    branches: int = 0
    limit: int = 0
    writing: int = 0


@dataclasses.dataclass(frozen=True)
class Planner:
    """Chooses calls.

    Attributes:
      shapes: there are. slot_allocator: of the slots.
      steps: of a decode call at most.
      costs: of device work.
      apart: whether hosts have conversations of their own and have to agree.
    """

    shapes: Shapes
    slot_allocator: SlotAllocator
    steps: int
    costs: Costs
    apart: bool

    def next(self, ready: Ready, number: Callable[[SlotState], int]) -> tuple[Plan, list[int]]:
        """Returns what the next call is, and the slots it is for.

        The `number` of a conversation is its policy's, the same for policies with the same weights.
        """
        plan, chosen = self._largest(ready, number)
        return self._agreed(plan, ready, number) if self.apart else (plan, chosen)

    def _largest(self, ready: Ready, number: Callable[[SlotState], int]) -> tuple[Plan, list[int]]:
        """Returns a call for the policy that most conversations wait for; a long wait counts like many of them."""
        if not ready:
            return Plan(), []
        groups: dict[int, list[int]] = collections.defaultdict(list)
        for slot in sorted(ready, key=lambda slot: ready[slot].since):  # those that wait longest go first
            groups[number(ready[slot])].append(slot)
        # The first of a group has waited longest. Counted from the latest, the others' waits are what matters.
        latest = max(state.since for state in ready.values())
        policy, slots = max(groups.items(), key=lambda group: len(group[1]) + latest - ready[group[1][0]].since)
        return self._plan_for(ready, slots, policy)

    def _plan_for(self, ready: Ready, slots: list[int], policy: int) -> tuple[Plan, list[int]]:
        """Returns a call for some of the slots of one policy.

        Those in prefill wait for more of their kind while calls for those that decode get more done, `PATIENCE` calls.
        """
        reading, scoring, writing = ([slot for slot in slots if ready[slot].stage == stage] for stage in STAGES)
        chosen, rows = self._first(scoring or writing)
        if reading:
            latest = max(ready[slot].since for slot in slots)
            by_shard, prefill_rows, width, prefill_rate = self._prefill(ready, reading, latest - PATIENCE)
            lengths = [ready[slot].num_cached for slot in chosen]
            done = self.steps * sum(map(self.costs.of_token, lengths))
            rate = done / self.costs.of_call(rows * self.slot_allocator.shards, self.steps, lengths)
            if scoring or prefill_rate >= rate or ready[reading[0]].since <= latest - PATIENCE:
                # Rows left over go to those that decode: their next token costs nothing.
                more = self.slot_allocator.by_shard(writing)
                chosen = [
                    slot
                    for shard, extra in zip(by_shard, more, strict=True)
                    for slot in [*shard, *extra][:prefill_rows]
                ]
                return self._sized(Plan(PREFILL, policy, prefill_rows, width), ready, chosen)
        if scoring:
            longest = max(ready[slot].num_pending for slot in chosen)
            width = next((w for w in self.shapes.prefill_buckets if w >= longest), self.shapes.prefill_buckets[-1])
            return self._sized(Plan(SCORE, policy, rows, width), ready, chosen)
        return self._sized(Plan(DECODE, policy, rows, self.steps), ready, chosen)

    def _prefill(self, ready: Ready, reading: list[int], overdue: int) -> tuple[list[list[int]], int, int, float]:
        """Returns slots in prefill by shard, a call's rows and width, and what it gets done.

        Those that have waited since call `overdue` or longer come first, then those with most to prefill: a call is
        often for the longest alone, and a conversation with little to prefill would wait as long as others come.
        """

        def order(slot: int) -> tuple[int, int]:
            since = ready[slot].since
            return (0, since) if since <= overdue else (1, -ready[slot].num_pending)

        by_shard = self.slot_allocator.by_shard(sorted(reading, key=order))
        pending = [[(ready[slot].num_pending, ready[slot].num_cached) for slot in shard] for shard in by_shard]
        return by_shard, *self.shapes.best_prefill(pending, self.costs)

    def trie_size(self, positions: Sequence[constraints.Position | None]) -> tuple[int, int]:
        """Returns the size of the trie of constraints that holds these; most games fit the smallest there is."""
        packed = constraints.pack(positions, least_nodes=_LEAST_NODES, least_choices=_LEAST_CHOICES)
        return packed.token_ids.shape[0], packed.token_ids.shape[1]

    def kinds(self, policy: int, rows: int, *, score: bool, actions: bool) -> Iterator[Plan]:
        """Yields the calls for a policy that are programs of their own; on request scoring and constrained ones."""
        trie_sizes = [(0, 0), *([self.trie_size([])] if actions else [])]
        plans = [Plan(PREFILL, policy, rows, width) for width in self.shapes.prefill_buckets]
        plans += [Plan(SCORE, policy, rows, width) for width in self.shapes.prefill_buckets] if score else []
        for plan in [*plans, Plan(DECODE, policy, rows, self.steps)]:
            for nodes, branches in trie_sizes if plan.stage != SCORE else [(0, 0)]:
                yield dataclasses.replace(plan, nodes=nodes, branches=branches)

    def _first(self, slots: list[int]) -> tuple[list[int], int]:
        """Returns as many of the slots as a call has rows for, and how many rows per shard that takes."""
        by_shard = self.slot_allocator.by_shard(slots)
        rows = self.shapes.rows_for(max(map(len, by_shard)))
        return [slot for shard in by_shard for slot in shard[:rows]], rows

    def _sized(self, plan: Plan, ready: Ready, chosen: list[int]) -> tuple[Plan, list[int]]:
        """Returns the plan with everything that depends on the participants."""
        decodes = plan.stage == DECODE
        positions = [ready[slot].position for slot in chosen]
        nodes, branches = self.trie_size(positions) if any(positions) else (0, 0)
        plan = dataclasses.replace(
            plan,
            nodes=nodes,
            branches=branches,
            limit=min(self.steps, max((ready[slot].left for slot in chosen), default=0)) if decodes else 0,
            writing=len(chosen) if decodes else 0,
        )
        return plan, chosen

    def _agreed(self, plan: Plan, ready: Ready, number: Callable[[SlotState], int]) -> tuple[Plan, list[int]]:
        """Returns one plan for all hosts, as large as the largest of theirs, and the slots here that take part."""
        nothing = len(STAGES)
        wanted = multihost.all_gather_numbers((plan.stage if plan.stage >= 0 else nothing, plan.policy))
        stage, policy = min(wanted)
        if stage == nothing:
            return Plan(), []
        waiting = sorted(ready.items(), key=lambda item: item[1].since)
        same = [s for s, state in waiting if number(state) == policy and state.stage == STAGES[stage]]
        mine, chosen = self._plan_for(ready, same, policy) if same else (Plan(stage, policy), [])
        sizes = multihost.all_gather_numbers(dataclasses.astuple(mine)[2:])
        largest = [max(column) for column in zip(*sizes, strict=True)]
        largest[-1] = sum(row[-1] for row in sizes)
        return Plan(stage, policy, *largest), chosen
