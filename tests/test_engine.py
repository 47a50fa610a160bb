"""The decoding engine: cached equals uncached, and nobody's reply depends on who else is in the batch."""

import collections
import dataclasses
import functools
import math

import engine_talks
import jax
import numpy as np
import pytest
from engine_talks import CONFIG, MAX_LENGTH, STOPS, TEMPERATURE, Talk, make, run, start, take, talks, weights
from tiny_models import log_softmax, uncached_logits

from dfc.inference.sampling import uniforms
from dfc.models.sharding import make_mesh, param_shardings

params = engine_talks.params  # the fixture


@functools.cache
def _alone(seed, count):
    """Every talk of a set by itself in a new engine."""
    found = talks(count, seed)
    for talk in found:
        run(make(weights(0)), [talk])
    return found


def full_forward(params, token_ids):
    """Logits float64 [n, V] of a whole conversation at once, no cache; what could not be answered is left out."""
    return uncached_logits(CONFIG, params, token_ids[:MAX_LENGTH], MAX_LENGTH)


def check_against_full_forward(params, talk):
    logits, sampled_positions = full_forward(params, talk.token_ids), np.flatnonzero(talk.mask)
    for number, place in enumerate(sampled_positions):
        token_id, row = talk.token_ids[place], logits[place - 1]
        sampled = log_softmax(row / TEMPERATURE)
        np.testing.assert_allclose(talk.sampled_logprobs[number], sampled[token_id], atol=1e-4, rtol=0)
        np.testing.assert_allclose(talk.plain[number], log_softmax(row)[token_id], atol=1e-4, rtol=0)
        # The number of its own seed and of its place in the conversation decides an id.
        uniform = uniforms(np.asarray([talk.seed], np.uint64), np.asarray([place], np.uint64))[0]
        after = np.exp(sampled).cumsum()[token_id]
        assert after - np.exp(sampled[token_id]) - 1e-4 <= uniform <= after + 1e-4


def test_cached_equals_uncached(params):
    found = talks(12)
    run(make(params), found)
    assert max(len(talk.replies) for talk in found) > 3
    assert max(len(talk.token_ids) for talk in found) > 32
    for talk in found:
        check_against_full_forward(params, talk)


@pytest.mark.parametrize(("order", "at_once", "pause"), [(1, 99, 0), (-1, 99, 0), (1, 2, 0), (-1, 99, 3)], ids=str)
def test_a_reply_does_not_depend_on_the_others_the_slot_or_the_time(params, order, at_once, pause):
    found = talks(9, 1)
    engine = make(params)
    run(engine, found[::order], at_once=at_once, pause=pause)
    for talk, expected in zip(found, _alone(1, 9), strict=True):
        talk.same(expected)
    assert engine.free == 4


@pytest.mark.parametrize(
    ("sizes", "slots", "shard"),
    [((1, 2, 2), 3, (2, 1)), ((2, 1, 4), 4, (2, 2))],
    ids=["rows and heads", "more tensor devices than heads"],
)
def test_over_several_devices_replies_are_the_same_and_the_cache_is_split(params, sizes, slots, shard):
    mesh = make_mesh(*sizes, devices=jax.devices()[: math.prod(sizes)])
    split = jax.device_put(params, param_shardings(CONFIG, mesh))
    engine = make(split, slots=slots, prefill_buckets=(4,), mesh=mesh)  # fewer programs to compile
    assert engine.free == -(-slots // (sizes[0] * sizes[1])) * sizes[0] * sizes[1]
    long = Talk(7, [list(range(30))], 4)
    run(engine, [*(found := talks(9, 1)[:4]), long])
    for talk, expected in zip(found, _alone(1, 9)[:4], strict=True):
        talk.same(expected)
    assert len(long.replies) == 1
    for leaf in jax.tree.leaves(engine._cache):
        assert {part.data.shape[:2] for part in leaf.addressable_shards} == {shard}


def test_another_seed_draws_other_ids(params):
    first = talks(1, 1)[0]
    other = dataclasses.replace(first.fresh(), seed=first.seed + 1)
    run(make(params), [first, other])
    assert first.token_ids != other.token_ids


def test_a_slot_that_sits_out_many_calls_answers_as_if_alone(params):
    observations = [[5, 6, 7, 8, 9], [10, 2, 31], [4]]
    quiet = [Talk(seed, observations, 4) for seed in (70, 71)]
    expected = [talk.fresh() for talk in quiet]
    for talk in expected:
        run(make(params), [talk])
    engine = make(params)
    slots = [engine.open(talk.seed) for talk in quiet]
    for number in range(len(observations)):
        for slot, talk in zip(slots, quiet, strict=True):
            assert start(engine, slot, talk)
        while engine.busy:
            for reply in engine.step():
                take(quiet[slots.index(reply.slot)], reply)
        before = engine.counts.calls
        run(engine, talks(4, seed=20 + number))  # in the two other slots, of all widths and up to max_length
        assert engine.counts.calls - before > 10
    for talk, wanted in zip(quiet, expected, strict=True):
        talk.same(wanted)


def test_a_slot_is_as_new_after_close(params):
    engine = make(params, slots=4)
    long = [Talk(seed, [list(range(40))], 8) for seed in range(4)]
    run(engine, long)
    assert all(len(talk.token_ids) > 40 for talk in long)
    abandoned = engine.open(5)  # closed in the middle of a reply
    engine.append(abandoned, list(range(9)))
    assert engine.ask(abandoned, 6)
    engine.step()
    engine.close(abandoned)
    assert (engine.free, engine.busy, engine.step()) == (4, False, [])
    slots = [engine.open(seed) for seed in range(4)]
    assert slots == [0, 1, 2, 3]  # so that a resumed run is the same as one that was not stopped
    for slot in (2, 0, 3, 1):
        engine.close(slot)
    found = talks(4, 1)
    run(engine, found)
    for talk, expected in zip(found, _alone(1, 9), strict=False):
        talk.same(expected)


def test_the_first_stop_id_ends_a_reply_and_the_limits_cut_it(params):
    found = talks(40, 3)
    run(make(params), found)
    kinds = collections.Counter()
    for talk in found:
        length = 0
        for reply, observation in zip(talk.replies, talk.observations, strict=False):
            length += len(observation)
            assert not STOPS.intersection(reply.token_ids[:-1])
            assert reply.stopped == (reply.token_ids[-1] in STOPS)
            assert len(reply.token_ids) == len(reply.sampled_logprobs) == len(reply.plain_logprobs)
            room = min(talk.cap, MAX_LENGTH - length)
            assert len(reply.token_ids) <= room
            assert reply.stopped or len(reply.token_ids) == room
            length += len(reply.token_ids)
            kinds["stopped" if reply.stopped else "cut" if room == talk.cap else "full"] += 1
        if talk.refused:
            assert len(talk.token_ids) >= MAX_LENGTH
    assert kinds["stopped"] > 5
    assert kinds["cut"] > 5


@pytest.mark.parametrize(("length", "replied"), [(46, 2), (47, 1), (48, 0), (60, 0)])
def test_a_conversation_never_outgrows_max_length(params, length, replied):
    engine = make(params, stops=frozenset())
    slot = engine.open(1)
    token_ids = np.random.default_rng(length).integers(0, 50, size=length).tolist()
    engine.append(slot, token_ids)
    assert engine.ask(slot, 6) == (replied > 0)
    assert engine.length(slot) == length
    assert engine.busy == (replied > 0)
    found = [reply for _ in range(60) for reply in engine.step()]
    assert [len(reply.token_ids) for reply in found] == ([replied] if replied else [])
    if replied:
        assert not found[0].stopped
        assert engine.length(slot) == MAX_LENGTH
        logits = full_forward(params, token_ids + found[0].token_ids)
        sampled = [
            log_softmax(logits[length - 1 + n] / TEMPERATURE)[token_id] for n, token_id in enumerate(found[0].token_ids)
        ]
        np.testing.assert_allclose(found[0].sampled_logprobs, sampled, atol=1e-4, rtol=0)
        engine.append(slot, [1])
        assert not engine.ask(slot, 6)


def test_nothing_is_fed_twice(params):
    engine, found = make(params), [talk for talk in talks(12) if len(talk.observations) < 3]
    run(engine, found)
    assert not any(talk.refused for talk in found)
    # All but the last drawn id of each conversation.
    assert engine.counts.processed_tokens == sum(len(talk.token_ids) - 1 for talk in found)
    assert engine.counts.generated_tokens == sum(sum(talk.mask) for talk in found)
    assert engine.counts.computed >= engine.counts.processed_tokens
    assert engine.counts.row_steps >= engine.counts.useful_steps > 0


def test_widths_do_not_change_replies(params):
    found = talks(9, 1)
    run(make(params, prefill_buckets=(3,)), found)
    for talk, expected in zip(found, _alone(1, 9), strict=True):
        talk.same(expected)


def test_calls_may_be_wider_than_a_slot(params):
    wide, narrow = (make(params, max_length=20, prefill_buckets=buckets) for buckets in ((32,), (4,)))
    replies = []
    for engine in (wide, narrow):
        engine.warm_up()
        engine.append(slot := engine.open(1), list(range(3, 18)))
        assert engine.ask(slot, 8)
        while not (ended := engine.step()):
            pass
        replies.append(ended[0].token_ids)
    assert replies[0] == replies[1]


def test_nothing_compiles_after_warm_up_and_new_weights_are_taken_over(params, compilations):
    engine = make(params)
    assert engine.warm_up() == 3 * (2 + 1) + 1  # rows 1, 2 and 4, each with two widths and decoding; and copies
    other = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf * 0.9, tree))(params)  # as a trainer hands them over
    assert compilations  # at least this one
    compilations.clear()
    run(engine, talks(30, 4))
    run(engine, talks(20, 5))
    engine.set_params(other, 7)
    found = talks(6, 1)
    run(engine, found)
    assert not compilations
    assert engine.version() == 7
    assert {version for talk in found for reply in talk.replies for version in reply.versions} == {7}
    for talk in found:
        check_against_full_forward(other, talk)
    assert [talk.token_ids for talk in found] != [talk.token_ids for talk in _alone(1, 9)[:6]]


def test_calls_have_no_more_rows_than_are_compiled_so_far(params, compilations, monkeypatch):
    engine, rows_of_calls = make(params, decode_steps=5), []  # a shape that no other test has
    sends = engine._run
    monkeypatch.setattr(engine, "_run", lambda plan, chosen: rows_of_calls.append(plan.rows) or sends(plan, chosen))
    most = []
    for rows in engine.warm_up_rows():
        compilations.clear()
        rows_of_calls.clear()
        found = talks(9, 1)
        run(engine, found)
        assert not compilations  # what the first call finds was compiled from shapes
        for talk, expected in zip(found, _alone(1, 9), strict=True):
            talk.same(expected)
        most.append((rows, max(rows_of_calls)))
    assert most == [(1, 1), (2, 2), (4, 4)]


def test_each_program_is_compiled_once_beside_weights_of_a_mesh_of_one_device(params, compilations):
    mesh = make_mesh(1, 1, 1, devices=jax.devices()[:1])
    placed = jax.device_put(params, param_shardings(CONFIG, mesh))
    engine = make(placed, mesh=mesh, rows=1, prefill_buckets=(4,), decode_steps=6)  # a shape that no other test has
    compilations.clear()
    count = engine.warm_up()
    run(engine, talks(4, 1))
    assert len(compilations) == count == 1 + 1 + 1  # prefill, decode, copy


def test_misuse_is_refused_with_words(params):
    engine = make(params, slots=2)
    first, _ = engine.open(0), engine.open(1)
    with pytest.raises(ValueError, match="all 2 slots are taken; close a conversation first"):
        engine.open(2)
    with pytest.raises(ValueError, match=f"slot {first} was asked for a reply without anything new"):
        engine.ask(first, 4)
    engine.append(first, [1, 2])
    assert engine.ask(first, 4)
    for again in (lambda: engine.ask(first, 4), lambda: engine.append(first, [3])):
        with pytest.raises(ValueError, match=f"slot {first} is answering; call step"):
            again()
    engine.close(first)
    for late in (engine.close, engine.length, lambda slot: engine.append(slot, [1]), lambda slot: engine.ask(slot, 1)):
        with pytest.raises(ValueError, match=f"slot {first} is free; open a conversation first"):
            late(first)
    assert engine.free == 1
