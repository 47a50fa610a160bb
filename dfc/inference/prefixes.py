"""Prefixes that a resident conversation has read already: who copies what from whom, and who waits for that.

Games of a group begin alike, and a client that keeps no state sends its whole conversation again. What such
conversations have in common is read once; the others copy it within the cache.
"""

import collections
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from dfc.inference.slots import SlotState

LEAST = 32  # tokens in common that are worth a copy, and a wait of a call or two


class Copy(NamedTuple):
    """A copy within the cache: the first tokens of one slot to another one."""

    source: int
    target: int
    tokens: int


def in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns how many tokens two conversations begin with alike."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low < high:  # the first `low` are alike, the first `high` + 1 are not
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def shared(
    new: Iterable[int],
    states: Mapping[int, SlotState],
    left: Mapping[int, SlotState],
    shard: Callable[[int], int],
    weights: Callable[[SlotState], int],
) -> tuple[list[Copy], set[int]]:
    """Decides what conversations of which nothing is cached yet take from others.

    One that begins like another one that is still reading waits for it; of several new ones the first reads.

    Args:
      new: slots of conversations that want a reply and have nothing in the cache, in the order in which they would
        read.
      states: of all conversations, by slot.
      left: what lies in slots whose conversations were closed, until somebody else's tokens are written there.
      shard: of a slot; nothing is copied between shards.
      weights: the number of those that a conversation's next tokens are processed with.

    Returns:
      The copies, of which a slot's own leftover is one from itself; and the slots that wait.
    """
    long = [slot for slot in new if len(states[slot].token_ids) > LEAST]
    if not long:
        return [], set()
    alike: dict[tuple[int, ...], list[tuple[int, SlotState]]] = collections.defaultdict(list)
    for slot, state in itertools.chain(left.items(), states.items()):
        alike[tuple(state.token_ids[:LEAST])].append((slot, state))
    copies: list[Copy] = []
    waiting: set[int] = set()
    read: set[int] = set()  # new ones that read
    for slot in long:
        mine, best, coming = states[slot], Copy(slot, slot, 0), 0
        for other, theirs in alike[tuple(mine.token_ids[:LEAST])]:
            same = weights(mine) == (theirs.weights if theirs.num_cached else weights(theirs))
            if theirs is mine or not same or (shard(other), theirs.adapter) != (shard(slot), mine.adapter):
                continue
            common = min(in_common(mine.token_ids, theirs.token_ids), mine.most_shared)
            best = max(best, Copy(other, slot, min(common, theirs.num_cached)), key=lambda copy: copy.tokens)
            coming = max(coming, common if _reads(theirs) or other in read else 0)
        if coming >= max(LEAST, best.tokens + 1):
            waiting.add(slot)
        elif best.tokens >= LEAST:
            copies.append(best)
        else:
            read.add(slot)
    return copies, waiting


def _reads(state: SlotState) -> bool:
    """Whether a conversation is in the middle of its prefill."""
    under_way = state.pending_reply is not None and state.stage == "prefill"
    return under_way and (state.num_cached > 0 or state.in_flight)
