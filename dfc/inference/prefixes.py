"""Prefixes that a resident conversation has read already: which conversations copy from which, and which wait.

Games of a group begin alike, and a client that keeps no state sends its whole conversation again. What such
conversations have in common is read once; the others copy it within the cache.

Nothing is copied from where something else is written in the same launch: sources are conversations that have
read, or are in slots without an owner; what a new conversation's own slot still holds is taken over in place.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dfc.inference.slots import SlotState

LEAST = 32  # tokens in common that are worth a copy; also the block by which they are looked for
_MORE = 8  # tokens beyond a copy that is possible now, for which it is worth to wait
_PATIENCE = 4  # how many times as many tokens a reader may have to read until then

_Family = tuple[int, int, int]  # shard, adapter, weights: what conversations have to share beside tokens
_Conversation = tuple[int, SlotState]
# By a hash of the family and of the first blocks: conversations that begin so, one of each way to go on for a block.
_Index = dict[int, dict[int, _Conversation]]


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

    One that begins like another one that is still reading waits for it; of several new ones the first reads, even if
    only what is new after a copy. Looked for are whole blocks of `LEAST` tokens, so that the work grows with the tokens
    there are; what a slot's own leftover holds is taken over however little it is.

    The conversations of the slots `new` want a reply and have nothing in the cache; they are in the order in which they
    would read. `left` has the contents of slots whose conversations were closed, until other tokens are written there.
    Nothing is copied between shards; `weights` numbers those that a conversation's next tokens are processed with.

    Returns:
      The copies, of which what a slot's own leftover holds is one from itself; and the slots that wait, with the slot
      that each waits for.
    """
    slots = list(new)
    if not slots:
        return [], {}
    there, coming = _Index(), _Index()
    if any(states[slot].most_shared >= LEAST for slot in slots):  # others have nothing to look for
        for slot, state in (*states.items(), *((slot, state) for slot, state in left.items() if slot not in states)):
            _note(there, (shard(slot), state.adapter, state.weights), slot, state, state.num_cached)
        for slot, state in states.items():
            if _reads(state) and (not state.num_cached or state.weights == weights(state)):
                _note(coming, (shard(slot), state.adapter, weights(state)), slot, state, len(state.token_ids))
    copies: list[Copy] = []
    waiting: dict[int, int] = {}
    ahead: dict[int, int] = {}  # of new conversations that read: tokens that they take over now
    for slot in slots:
        mine = states[slot]
        family = (shard(slot), mine.adapter, weights(mine))
        best = _best(slot, mine, [_own(slot, left, family), *_longest(there, family, mine)])
        readers = {other: in_common(mine.token_ids, one.token_ids) for other, one in _longest(coming, family, mine)}
        if readers:
            reader = max(readers, key=lambda other: readers[other])
            if _pays_to_wait(mine, states[reader], best.tokens, ahead.get(reader, 0)):
                waiting[slot] = reader
                continue
        if best.tokens >= (1 if best.source == slot else LEAST):  # what its own slot holds costs nothing
            copies.append(best)
            ahead[slot] = best.tokens
        _note(coming, family, slot, mine, len(mine.token_ids))
    return copies, waiting


def _best(slot: int, mine: SlotState, others: Iterable[tuple[int, SlotState | None]]) -> Copy:
    """Returns the copy of most tokens from one of several conversations; of no tokens where none has anything."""
    best = Copy(slot, slot, 0)
    for other, theirs in others:
        if theirs is not None:
            common = min(in_common(mine.token_ids, theirs.token_ids), theirs.num_cached, mine.most_shared)
            best = max(best, Copy(other, slot, common), key=lambda copy: copy.tokens)
    return best


def _pays_to_wait(mine: SlotState, reading: SlotState, tokens: int, ahead: int) -> bool:
    """Whether more than so many tokens will be there soon; `ahead` of them the reader does not have to read."""
    common = min(in_common(mine.token_ids, reading.token_ids), mine.most_shared)
    more = common - tokens
    return common >= LEAST and more >= _MORE and _PATIENCE * more >= common - max(ahead, reading.num_cached)


def _reads(state: SlotState) -> bool:
    """Whether a conversation is in the middle of its prefill."""
    under_way = state.pending_reply is not None and state.stage == "prefill"
    return under_way and (state.num_cached > 0 or state.in_flight)


def _own(slot: int, left: Mapping[int, SlotState], family: _Family) -> tuple[int, SlotState | None]:
    """Returns the contents of a new conversation's own slot, if they may be taken over."""
    state = left.get(slot)
    return slot, state if state is not None and (state.adapter, state.weights) == family[1:] else None


def _blocks(family: _Family, token_ids: Sequence[int], tokens: int) -> Iterator[int]:
    """Gives a hash of the family and of the first block, of the first two, ... of a conversation's first tokens."""
    key = hash(family)
    for start in range(0, tokens - LEAST + 1, LEAST):
        key = hash((key, *token_ids[start : start + LEAST]))
        yield key


def _note(index: _Index, family: _Family, slot: int, state: SlotState, tokens: int) -> None:
    """Enters a conversation at every whole block of its first tokens, unless one entered there continues alike."""
    keys = list(_blocks(family, state.token_ids, tokens))
    rest = hash(tuple(state.token_ids[len(keys) * LEAST : tokens]))
    for key, following in zip(keys, [*keys[1:], rest], strict=False):  # of no whole block nothing is entered
        index.setdefault(key, {}).setdefault(following, (slot, state))


def _longest(index: _Index, family: _Family, mine: SlotState) -> Collection[_Conversation]:
    """Returns those who have most blocks in common with a conversation; of them one has most tokens in common."""
    found: Collection[_Conversation] = ()
    for key in _blocks(family, mine.token_ids, mine.most_shared):
        if key not in index:
            break
        found = index[key].values()
    return found
