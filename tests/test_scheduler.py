"""Which conversations share a call, and that nobody waits for ever."""

import pytest

from dfc.config import SamplingConfig
from dfc.inference.buckets import Costs, Shapes
from dfc.inference.scheduler import DECODE, PREFILL, Planner
from dfc.inference.slots import PendingReply, SlotAllocator, SlotState

SHAPES = Shapes((8, 16, 32, 64), (8, 32))
BY_LENGTH = Costs(16, 0.002)  # attention to 500 positions costs as much as all else of an id


def slot_state(length, pending=1, since=0):
    pending_reply = PendingReply(length + pending, 32, position=None)
    token_ids = [0] * (length + pending)
    return SlotState(
        0,
        "policy",
        0,
        SamplingConfig(),
        token_ids=token_ids,
        num_cached=length,
        pending_reply=pending_reply,
        since=since,
    )


def planned(ready, costs=BY_LENGTH):
    planner = Planner(SHAPES, SlotAllocator(64, 1, None), steps=16, costs=costs, apart=False)
    return planner.next(ready, lambda _: 0)


def mixed(*, short_since=0, long_since=0):
    """48 conversations of 300 ids and 16 of 1,900."""
    short = {slot: slot_state(300, since=short_since) for slot in range(48)}
    return short | {slot: slot_state(1900, since=long_since) for slot in range(48, 64)}


@pytest.mark.parametrize("costs", [BY_LENGTH, Costs(256, 0.0)])
def test_conversations_of_all_lengths_decode_together(costs):
    """Every row reads its own length: a long one costs the others nothing."""
    plan, chosen = planned(mixed(), costs)
    assert (plan.stage, plan.rows, len(chosen)) == (DECODE, 64, 64)


def test_who_has_waited_longest_takes_part():
    ready = {slot: slot_state(300, since=1) for slot in range(80, 144)} | {1: slot_state(1900, since=0)}
    planner = Planner(SHAPES, SlotAllocator(144, 1, None), steps=16, costs=BY_LENGTH, apart=False)
    _, chosen = planner.next(ready, lambda _: 0)
    assert len(chosen) == 64
    assert chosen[0] == 1


def test_everybody_takes_part_in_a_few_calls():
    ready = mixed() | {slot: slot_state(900) for slot in range(20, 30)}
    waited = dict.fromkeys(ready, 0)
    for call in range(1, 13):
        _, chosen = planned(ready)
        for slot, state in ready.items():
            waited[slot] = 0 if slot in chosen else waited[slot] + 1
            state.since = call if slot in chosen else state.since
        assert max(waited.values()) <= 3


@pytest.mark.parametrize("pending", [2, 3, 31])
def test_who_has_little_to_read_does_not_wait_as_long_as_others_come_with_more(pending):
    """Eight rows are full of those with most to read, and a ninth would double the call."""
    ready = {slot: slot_state(300, pending=32) for slot in range(8)} | {8: slot_state(300, pending=pending)}
    for call in range(1, 7):
        plan, chosen = planned(ready)
        assert plan.stage == PREFILL
        if 8 in chosen:
            return
        ready |= {slot: slot_state(300, pending=32, since=call) for slot in chosen}
    raise AssertionError("it was left out of six calls")


def test_places_left_over_in_a_prefill_call_go_to_rows_that_decode():
    ready = {slot: slot_state(300, pending=30) for slot in range(6)}
    ready |= {6: slot_state(1900, since=1), 7: slot_state(100, since=1)}
    plan, chosen = planned(ready)
    assert (plan.stage, plan.rows) == (PREFILL, 8)
    assert sorted(chosen) == list(range(8))


def test_decoding_goes_first_while_it_gets_more_done_and_prefill_has_not_waited():
    ready = {slot: slot_state(300) for slot in range(60)}
    assert planned(ready | {60: slot_state(300, pending=2)})[0].stage == DECODE
    assert planned(ready | {60: slot_state(300, pending=2, since=-4)})[0].stage == PREFILL
