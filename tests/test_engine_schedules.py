"""Random schedules of everything an engine can be told; every reply is compared with a model without a cache."""

import hypothesis
import numpy as np
import pytest
from engine_schedules import FEW, OTHER, SAME, SETTINGS, Host, changing, logits_of, make, some, steady


@FEW
@hypothesis.given(some, changing)
def test_every_reply_is_what_a_model_without_a_cache_says(scripts, schedule):
    Host(make(), scripts).play(schedule)


@FEW
@hypothesis.given(some, steady, steady)
def test_no_schedule_and_no_shape_changes_a_reply(scripts, first, second):
    expected = Host(make(), scripts, check=False).play(first)
    for shape in (SAME, OTHER):
        close_to(Host(make(**shape), scripts, check=False).play(second), expected)


def close_to(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert [x if x == "full" else (x[0], x[3]) for x in one] == [x if x == "full" else (x[0], x[3]) for x in other]
        for x, y in zip(one, other, strict=True):
            if x != "full":
                np.testing.assert_allclose(x[1], y[1], atol=1e-5, rtol=0)
                np.testing.assert_allclose(x[2], y[2], atol=1e-5, rtol=0)


@FEW
@hypothesis.given(some, changing)
def test_the_same_schedule_repeated_is_equal_to_the_bit(scripts, schedule):
    assert Host(make(), scripts, check=False).play(schedule) == Host(make(), scripts, check=False).play(schedule)


def reply_to(engine, slot, token_ids=(), cap=9):
    """Asks one slot and steps until its reply is there; nobody else answers."""
    engine.append(slot, token_ids)
    assert engine.ask(slot, cap)
    found = []
    while engine.busy:
        found += engine.step()
    assert [reply.slot for reply in found] == [slot]
    return found[0]


def same(one, other):
    assert (one.token_ids, one.stopped) == (other.token_ids, other.stopped)
    np.testing.assert_allclose(one.sampled_logprobs, other.sampled_logprobs, atol=1e-5, rtol=0)
    np.testing.assert_allclose(one.plain_logprobs, other.plain_logprobs, atol=1e-5, rtol=0)


PROMPTS = [[5, 6, 7, 8, 9, 10], [13, 14], [15, 16, 17, 18, 19]]


@pytest.mark.parametrize("setting", [SETTINGS[0], SETTINGS[5]], ids=["filters", "plain"])
def test_forks_share_what_was_and_go_on_by_their_own_seeds(setting):
    engine = make()
    slot = engine.open(11, sampling=setting)
    reply_to(engine, slot, PROMPTS[0])
    before = engine.token_ids(slot)
    twin, other = engine.fork(slot, 11), engine.fork(slot, 12)
    assert engine.token_ids(twin) == engine.token_ids(other) == before
    differs = False
    for prompt in PROMPTS[1:]:
        own, again, apart = (reply_to(engine, one, prompt, 7) for one in (slot, twin, other))
        same(own, again)
        differs |= own.token_ids != apart.token_ids
    assert differs
    assert engine.token_ids(slot) == engine.token_ids(twin)
    assert engine.token_ids(other)[: len(before)] == before
    fresh = make()  # what was forked is as never forked
    single = fresh.open(11, sampling=setting)
    for prompt, cap in zip(PROMPTS, (9, 7, 7), strict=True):
        reply_to(fresh, single, prompt, cap)
    assert fresh.token_ids(single) == engine.token_ids(slot)


def test_parked_and_taken_back_is_as_never_parked():
    replies = {}
    for parks in (False, True):
        engine = make()
        slot, found = engine.open(21), []
        for prompt in PROMPTS:
            found.append(reply_to(engine, slot, prompt, 5))
            if parks:
                parked = engine.park(slot)
                assert engine.free == engine.slot_allocator.total
                for seed in range(4):  # others have all the slots in the meantime
                    reply_to(engine, engine.open(seed), [20 + seed] * 12, 6)
                for other in range(4):
                    if other != 2:
                        engine.close(other)
                blocked = [engine.open(0), engine.open(0), engine.open(0)]
                assert blocked == [0, 1, 3]
                engine.close(2)
                slot = engine.unpark(parked)
                assert slot == 2  # another one than before
                for other in blocked:
                    engine.close(other)
        replies[parks] = found
    for one, other in zip(replies[False], replies[True], strict=True):
        same(one, other)


def test_what_is_parked_once_may_be_taken_back_twice():
    engine = make()
    slot = engine.open(22)
    reply_to(engine, slot, PROMPTS[0], 5)
    parked = engine.park(slot)
    first, second = engine.unpark(parked), engine.unpark(parked)
    assert engine.token_ids(first) == engine.token_ids(second)
    one = reply_to(engine, first, PROMPTS[1])  # the second knows nothing of it
    assert len(engine.token_ids(first)) > len(engine.token_ids(second))
    same(one, reply_to(engine, second, PROMPTS[1]))


@pytest.mark.parametrize("launches", [0, 1])
def test_what_a_call_in_flight_brings_for_a_closed_conversation_is_nobodys(launches):
    engine, alone = make(), make()
    expected = reply_to(alone, alone.open(42), PROMPTS[2], 7)
    slot = engine.open(41)
    engine.append(slot, PROMPTS[1])
    assert engine.ask(slot, 9)
    assert engine.launch()
    engine.close(slot)
    assert engine.open(42) == slot  # the next one has the same slot
    engine.append(slot, PROMPTS[2])
    assert engine.ask(slot, 7)
    for _ in range(launches):
        assert engine.launch()
    assert engine.in_flight == 1 + launches
    found = []
    while engine.busy:
        found += engine.step()
    assert len(found) == 1
    same(found[0], expected)


def test_greedy_takes_the_most_probable_id_of_the_uncached_model():
    engine, generated = make(), 0
    for seed in range(4):
        slot = engine.open(seed, sampling=SETTINGS[1])
        for prompt in PROMPTS:
            reply = reply_to(engine, slot, [*prompt, 40 + seed], 4)
            token_ids = engine.token_ids(slot)
            rows = logits_of(token_ids[:-1], [0] * (len(token_ids) - 1))[-len(reply.token_ids) :]
            assert all(row[token_id] >= row.max() - 1e-4 for row, token_id in zip(rows, reply.token_ids, strict=True))
            assert reply.sampled_logprobs == [0.0] * len(reply.token_ids)
            generated += len(reply.token_ids)
    assert generated > 20


def test_settings_mixed_in_one_batch_answer_as_each_would_alone():
    engine, settings = make(), SETTINGS[:4]
    slots = [engine.open(31, sampling=setting) for setting in settings]
    for slot in slots:
        engine.append(slot, PROMPTS[0])
        assert engine.ask(slot, 9)
    mixed = {}
    while engine.busy:
        mixed |= {reply.slot: reply for reply in engine.step()}
    for slot, setting in zip(slots, settings, strict=True):
        alone = make()
        same(mixed[slot], reply_to(alone, alone.open(31, sampling=setting), PROMPTS[0]))
    assert len({tuple(reply.token_ids) for reply in mixed.values()}) > 1


def test_nothing_compiles_after_warm_up_and_no_length_changes_a_reply(compilations):
    # A shape no other test has, so that nothing was compiled before.
    engine = make(slots=3, rows=1, prefill_buckets=(4,), decode_steps=3)
    assert engine.warm_up() == 3
    assert len(compilations) >= 3
    for seed in range(3):
        rng = np.random.default_rng(seed)
        scripts = [
            (seed * 10 + n, n % 6, [("say", rng.integers(0, 50, size=1 + n).tolist(), 4), ("back", 50, n, 5)] * 2)
            for n in range(8)
        ]
        schedule = rng.choice([0, 1, 3, 4, 7, 8, 9, 10], size=40).tolist()
        expected = Host(make(), scripts, check=False).play(schedule)
        compilations.clear()
        replies = Host(engine, scripts, check=False).play(schedule)
        assert not compilations
        close_to(replies, expected)
