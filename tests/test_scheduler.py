"""Which conversations share a call: those of similar lengths, and always the one that has waited longest."""

import pytest

from dfc.config import SamplingConfig
from dfc.inference.buckets import Costs, Shapes
from dfc.inference.scheduler import DECODE, PREFILL, Planner
from dfc.inference.slots import PendingReply, SlotAllocator, SlotState

SHAPES = Shapes((8, 16, 32, 64), (8, 32), (0, 512, 1024, 2048))
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


def test_short_conversations_write_without_the_long_ones():
    plan, chosen = planned(mixed())
    assert (plan.stage, plan.length, sorted(chosen)) == (DECODE, 512, list(range(48)))


def test_who_has_waited_longest_takes_part():
    plan, chosen = planned(mixed(short_since=1))
    assert (plan.rows, plan.length, sorted(chosen)) == (16, 2048, list(range(48, 64)))


def test_lengths_do_not_matter_where_attention_costs_nothing():
    plan, chosen = planned(mixed(), Costs(256, 0.0))
    assert (plan.length, len(chosen)) == (2048, 64)


@pytest.mark.parametrize("length", [10, 700, 2000])
def test_conversations_of_one_length_share_a_call(length):
    plan, chosen = planned({slot: slot_state(length) for slot in range(64)})
    assert (plan.stage, len(chosen)) == (DECODE, 64)
    assert plan.length >= length


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


def test_those_that_read_behind_short_pasts_do_not_wait_for_long_ones():
    ready = {slot: slot_state(300, pending=30) for slot in range(32)}
    ready |= {slot: slot_state(1900, pending=30) for slot in range(32, 40)}
    plan, chosen = planned(ready)
    assert (plan.stage, plan.length, plan.width, sorted(chosen)) == (PREFILL, 512, 32, list(range(32)))


def test_places_left_over_in_a_reading_call_go_to_rows_that_write_behind_no_longer_pasts():
    ready = {slot: slot_state(300, pending=30) for slot in range(6)}
    ready |= {6: slot_state(1900, since=1), 7: slot_state(100, since=1)}
    plan, chosen = planned(ready)
    assert (plan.stage, plan.rows, plan.length) == (PREFILL, 8, 512)
    assert sorted(chosen) == [0, 1, 2, 3, 4, 5, 7]
