"""Prefixes that several conversations share: read once, copied, and never from other weights."""

import dataclasses

import engine_talks
import jax
import numpy as np
from engine_talks import CONFIG, SAMPLING, Talk, run
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc.inference import prefixes
from dfc.inference.slots import PendingReply, SlotState
from dfc.models.sharding import make_mesh, param_shardings

LENGTH = 256
params = engine_talks.params  # the fixture


def make(params, slots=8, **options):
    shape = {"slots": slots, "max_length": LENGTH, "prefill_buckets": (8, 32), "decode_steps": 4}
    return engine_talks.make(params, stops=frozenset({3}), **shape, **options)


def opening(seed, count=90):
    return np.random.default_rng(seed).integers(4, CONFIG.vocabulary, size=count).tolist()


def group(prompt, count, seed=0):
    """Talks that begin alike and go on apart; the last observation of each is short."""
    rng = np.random.default_rng(seed)
    tails = [rng.integers(4, CONFIG.vocabulary, size=5).tolist() for _ in range(count)]
    return [Talk(100 * seed + i, [[*prompt, i], tail], cap=5) for i, tail in enumerate(tails)]


def alone(params, found):
    """The same talks, each in an engine of its own."""
    every = [talk.fresh() for talk in found]
    for talk in every:
        run(make(params, 1), [talk])
    return every


def check(params, found):
    for talk, expected in zip(found, alone(params, found), strict=True):
        talk.same(expected)


def test_a_group_reads_its_opening_once(params):
    engine, found = make(params), group(opening(1), 8)
    run(engine, found)
    check(params, found)
    assert engine.counts.shared_tokens == 7 * 90
    distinct = 90 + sum(len(talk.token_ids) - 90 for talk in found)
    assert engine.counts.processed_tokens <= 1.15 * distinct


def test_two_groups_share_each_its_own(params):
    engine, found = make(params), [talk for seed in (1, 2) for talk in group(opening(seed), 4, seed)]
    run(engine, found[::2] + found[1::2])
    check(params, found)
    assert engine.counts.shared_tokens == 2 * 3 * 90


def test_those_that_come_later_take_it_from_a_slot_that_is_free_again(params):
    engine, found = make(params, 2), group(opening(3), 6)
    run(engine, found, at_once=1)
    check(params, found)
    assert engine.counts.shared_tokens == 5 * 90


def test_a_conversation_that_is_sent_again_as_a_whole_is_read_once(params):
    """Ten turns of a client that keeps no state: 60 tokens each, and every time all of it."""
    engine, said, seen = make(params, 4), 0, opening(4, 10)
    for turn in range(10):
        slot = engine.open(turn)
        engine.append(slot, seen)
        assert engine.ask(slot, 8)
        while engine.busy:
            for reply in engine.step():
                seen = [*seen, *reply.token_ids, *opening(50 + turn, 12)]
                said += 1
        engine.close(slot)
    assert said == 10
    assert engine.counts.processed_tokens <= 1.15 * len(seen)


def test_nothing_is_taken_over_from_other_weights(params):
    engine, other = make(params), jax.tree.map(lambda leaf: leaf * 0.9, params)
    found = group(opening(5), 3)
    run(engine, found)
    before = engine.counts.shared_tokens
    resident = engine.open(7)  # read under the old weights, and still there
    engine.append(resident, [*opening(5), 9])
    engine.ask(resident, 1)
    while engine.busy:
        engine.step()
    assert engine.counts.shared_tokens == before + 90
    engine.set_params(other, 1)
    again = group(opening(5), 2)
    run(engine, again)
    check(other, again)
    assert engine.counts.shared_tokens == before + 2 * 90  # one of the two from the other one


def test_policies_of_the_same_weights_share_and_others_do_not(params):
    engine = make(params)
    engine.set_params(params, 0, policy="twin")
    engine.set_params(jax.tree.map(lambda leaf: leaf * 0.9, params), 0, policy="other")
    for policy, shared in (("policy", 0), ("twin", 90), ("other", 90)):
        slot = engine.open(0, policy=policy)
        engine.append(slot, [*opening(6), 8])
        engine.ask(slot, 2)
        while engine.busy:
            engine.step()
        assert engine.counts.shared_tokens == shared


def test_a_reader_that_is_closed_leaves_nobody_waiting(params):
    engine, found = make(params), group(opening(7), 4)
    slots = [engine.open(talk.seed) for talk in found]
    for slot, talk in zip(slots, found, strict=True):
        engine.append(slot, talk.observations[0])
        engine.ask(slot, 3)
    engine.launch()
    engine.close(slots[0])
    replied = []
    while engine.busy:
        replied += [reply.slot for reply in engine.step()]
    assert sorted(replied) == sorted(slots[1:])


def test_eight_devices_say_what_one_does(params):
    mesh = make_mesh(2, 2, 2)
    engine = make(jax.device_put(params, param_shardings(CONFIG, mesh)), 16, mesh=mesh)
    found = group(opening(8), 16)
    run(engine, found)
    check(params, found)
    # Four shards, each with a reader of its own; for the last two tokens nobody has to wait.
    assert 12 * 88 <= engine.counts.shared_tokens <= 12 * 90


def test_a_copy_never_reads_where_another_one_has_written(params):
    """One conversation takes the slot in which lies what the next one wants."""
    engine, one, other = make(params, 3, rows=1), opening(11), opening(12)
    first, second = engine.open(0), engine.open(1)
    for slot, prompt in ((first, one), (second, other)):
        engine.append(slot, prompt)
        engine.ask(slot, 1)
        while engine.busy:
            engine.step()
    engine.close(second)
    found = [Talk(5, [[*one, 7]], cap=5), Talk(6, [[*other, 8]], cap=5)]
    run(engine, found)
    check(params, found)


def test_a_conversation_that_could_copy_now_does_not_wait_for_little(params):
    """Somebody reads 200 tokens of which the last ten would be new here."""
    prompt = opening(13, 230)
    engine = make(params, 4)
    done = engine.open(0)
    engine.append(done, prompt[:190])
    engine.ask(done, 1)
    while engine.busy:
        engine.step()
    states = {0: engine._slots[done]}
    longer = [*prompt[:200], *opening(14, 30)]
    states[1] = SlotState(1, "policy", 0, SAMPLING, longer, 64, PendingReply(230, 4), weights=0)
    states[2] = SlotState(2, "policy", 0, SAMPLING, list(prompt), 0, PendingReply(230, 4))
    copies, waiting = prefixes.shared([2], states, {}, lambda _: 0, lambda _: 0)
    assert (copies, waiting) == ([prefixes.Copy(0, 2, 190)], {})


def test_what_follows_a_beginning_that_is_there_is_read_once_too(params):
    """Two groups begin with the same forty tokens, or thirty that only lie in the groups' own slots."""
    for common, count in ((40, 20), (30, 10)):
        shared = opening(15, common)
        engine = make(params, 8)
        run(engine, [Talk(seed, [[*shared, 5 + seed]], cap=3) for seed in range(8)])  # fills all slots with it
        before = engine.counts.prompt_tokens
        prompts = [[*shared, *opening(16 + n, count)] for n in range(2)]
        found = [Talk(100 * n + seed, [prompt], cap=5) for n, prompt in enumerate(prompts) for seed in range(4)]
        run(engine, found)
        # What is new of each group once, by its first; nobody waits for fewer than eight tokens.
        assert engine.counts.prompt_tokens - before <= 2 * count + 8 * (len(found) - 2)
        check(params, found)


# ---- the decision ----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 2), max_size=12))
def test_what_two_have_in_common(one, other):
    expected = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    assert prefixes.in_common(one, other) == expected


STATES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 100), st.booleans(), st.integers(0, 1)), max_size=6
)


@settings(deadline=None)
@given(STATES, STATES)
def test_copies_are_of_tokens_that_are_there_and_whoever_waits_has_somebody_to_wait_for(here, gone):
    def state(family, own, cached, in_flight, serial):
        token_ids = [family] * 70 + [99 - own] * own + [1]
        held = min(cached, len(token_ids) - 1)
        pending = PendingReply(len(token_ids), 4)
        made = SlotState(0, "policy", 0, SAMPLING, token_ids, held, pending, in_flight, weights=serial)
        return dataclasses.replace(made, in_flight=in_flight)

    states = {slot: state(*values) for slot, values in enumerate(here)}
    left = {slot + 3: dataclasses.replace(state(*values), pending_reply=None) for slot, values in enumerate(gone)}
    new = [slot for slot, one in states.items() if not one.num_cached and not one.in_flight]
    copies, waiting = prefixes.shared(new, states, left, lambda slot: slot % 2, lambda _: 1)
    assert {copy.target for copy in copies}.isdisjoint(waiting)
    for copy in copies:
        mine = states[copy.target]
        possible = [one for one in (states.get(copy.source), left.get(copy.source)) if one is not None]
        assert any(
            one.num_cached >= copy.tokens
            and one.weights == 1
            and one.token_ids[: copy.tokens] == mine.token_ids[: copy.tokens]
            for one in possible
        )
        assert (1 if copy.source == copy.target else prefixes.LEAST) <= copy.tokens < len(mine.token_ids)
        assert copy.source % 2 == copy.target % 2
        # Nothing is read where something is written: neither a target nor a slot that a new conversation reads into.
        assert copy.source == copy.target or copy.source not in new
    for slot, reader in waiting.items():
        assert reader not in waiting
        assert reader != slot
        assert reader % 2 == slot % 2
        assert prefixes.in_common(states[reader].token_ids, states[slot].token_ids) >= prefixes.LEAST


def test_scored_tokens_are_scored_whoever_has_read_them(params):
    """What is asked for is processed, though another conversation has it in the cache."""
    prompt, scored = opening(9, 60), opening(10, 20)
    engine, found = make(params, 4), []
    for _ in range(2):
        slot = engine.open(0)
        engine.append(slot, prompt)
        engine.score(slot, scored)
        while engine.busy:
            found += engine.step()
    assert engine.counts.shared_tokens == 59
    assert [reply.token_ids for reply in found] == [scored] * 2
    np.testing.assert_allclose(found[0].sampled_logprobs, found[1].sampled_logprobs, atol=1e-5)
