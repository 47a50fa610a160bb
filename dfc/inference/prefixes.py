"""Prefixes that a resident conversation has read already: who copies what from whom, and who waits for that.

Games of a group begin alike, and a client that keeps no state sends its whole conversation again. What such
conversations have in common is read once; the others copy it within the cache.

Nothing that is copied lies where something else is written in the same launch: sources are conversations that have
read, or lie in slots that nobody owns; what a new conversation's own slot still holds is taken over as it lies there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from dfc.inference.slots import SlotState

LEAST = 32  # tokens in common that are worth a copy; also the block by which they are looked for
_MORE = 8  # tokens beyond a copy that is possible now, for which it is worth to wait
_PATIENCE = 4  # how many times as many tokens a reader may have to read until then

_Family = tuple[int, int, int]  # shard, adapter, weights: what conversations have to share beside tokens
_Index = dict[int, tuple[int, SlotState]]  # by a hash of the family and of the first blocks


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
) -> tuple[list[Copy], dict[int, int]]:
    """Decides what conversations of which nothing is cached yet take from others.

    One that begins like another one that is still reading waits for it; of several new ones the first reads. Looked for
    are whole blocks of `LEAST` tokens, so that the work grows with the tokens there are.

    Args:
      new: slots of conversations that want a reply and have nothing in the cache, in the order in which they would
        read.
      states: of all conversations, by slot.
      left: what lies in slots whose conversations were closed, until somebody else's tokens are written there.
      shard: of a slot; nothing is copied between shards.
      weights: the number of those that a conversation's next tokens are processed with.

    Returns:
      The copies, of which what a slot's own leftover holds is one from itself; and the slots that wait, with the slot
      that each waits for.
    """
    long = [slot for slot in new if len(states[slot].token_ids) > LEAST]
    if not long:
        return [], {}
    there, coming = _Index(), _Index()
    for slot, state in (*states.items(), *((slot, state) for slot, state in left.items() if slot not in states)):
        _note(there, (shard(slot), state.adapter, state.weights), slot, state, state.num_cached)
    for slot, state in states.items():
        if _reads(state) and (not state.num_cached or state.weights == weights(state)):
            _note(coming, (shard(slot), state.adapter, weights(state)), slot, state, len(state.token_ids))
    copies: list[Copy] = []
    waiting: dict[int, int] = {}
    for slot in long:
        mine = states[slot]
        family = (shard(slot), mine.adapter, weights(mine))
        best = Copy(slot, slot, 0)
        for other, theirs in (_longest(there, family, mine), _own(slot, left, family)):
            if theirs is not None:
                common = min(in_common(mine.token_ids, theirs.token_ids), theirs.num_cached, mine.most_shared)
                best = max(best, Copy(other, slot, common), key=lambda copy: copy.tokens)
        reader, reading = _longest(coming, family, mine)
        if reading is not None and _worth_waiting(mine, reading, best.tokens):
            waiting[slot] = reader
        elif best.tokens >= LEAST:
            copies.append(best)
        else:
            _note(coming, family, slot, mine, len(mine.token_ids))
    return copies, waiting


def _worth_waiting(mine: SlotState, reading: SlotState, tokens: int) -> bool:
    """Whether more than so many tokens will be there soon."""
    common = min(in_common(mine.token_ids, reading.token_ids), mine.most_shared)
    more = common - tokens
    enough = more >= (_MORE if tokens >= LEAST else LEAST)
    return enough and _PATIENCE * more >= common - reading.num_cached


def _reads(state: SlotState) -> bool:
    """Whether a conversation is in the middle of its prefill."""
    under_way = state.pending_reply is not None and state.stage == "prefill"
    return under_way and (state.num_cached > 0 or state.in_flight)


def _own(slot: int, left: Mapping[int, SlotState], family: _Family) -> tuple[int, SlotState | None]:
    """Returns what lies in a new conversation's own slot, if it may be taken over."""
    state = left.get(slot)
    return slot, state if state is not None and (state.adapter, state.weights) == family[1:] else None


def _note(index: _Index, family: _Family, slot: int, state: SlotState, tokens: int) -> None:
    """Enters every whole block of a conversation's first tokens, where nobody has entered it."""
    key = hash(family)
    for start in range(0, tokens - LEAST + 1, LEAST):
        key = hash((key, *state.token_ids[start : start + LEAST]))
        index.setdefault(key, (slot, state))


def _longest(index: _Index, family: _Family, mine: SlotState) -> tuple[int, SlotState | None]:
    """Returns who has most blocks in common with a conversation; its slot is -1 if nobody has one."""
    key, found = hash(family), (-1, None)
    for start in range(0, mine.most_shared - LEAST + 1, LEAST):
        key = hash((key, *mine.token_ids[start : start + LEAST]))
        if key not in index:
            break
        found = index[key]  # type: ignore[assignment]  # what is found is somebody
    return found
