"""Prompts read before anything is asked for, replies watched while they grow, and what a reply brings of its own."""

import engine_talks
import jax
import numpy as np
import pytest
from engine_talks import CONFIG, Talk, run, weights

from dfc.config import SamplingConfig
from dfc.models.sharding import make_mesh, param_shardings

LENGTH = 128
params = engine_talks.params  # the fixture


def make(params, *, slots=8, stops=(3,), **options):
    shape = {"slots": slots, "max_length": LENGTH, "prefill_buckets": (8, 16), "decode_steps": 4}
    return engine_talks.make(params, stops=frozenset(stops), **shape, **options)


def prompt(seed=0, count=41):
    return np.random.default_rng(seed).integers(4, CONFIG.vocabulary, size=count).tolist()


def finish(engine, slot):
    while True:
        for reply in engine.step():
            assert reply.slot == slot
            return reply


def ask(engine, slot, tokens, length=6, **asked):
    if tokens:
        engine.append(slot, tokens)
    assert engine.ask(slot, length, **asked)
    return finish(engine, slot)


def read(engine, tokens, seed=7):
    """Returns a slot that has read all but the last of some tokens."""
    slot = engine.open(seed)
    engine.append(slot, tokens)
    assert engine.read(slot)
    assert engine.busy
    reply = finish(engine, slot)
    assert not engine.busy
    assert (reply.token_ids, reply.sampled_logprobs, reply.versions, reply.stopped) == ([], [], [], False)
    return slot


@pytest.mark.parametrize("count", [2, 3, 16, 17, 18, 41])
def test_what_is_read_is_all_but_the_last_token_and_changes_no_reply(params, count):
    engine, plain = make(params), make(params)
    slot = read(engine, prompt(count=count))
    assert engine.counts.processed_tokens == count - 1
    assert engine.counts.generated_tokens == 0
    assert not engine.read(slot)  # there is nothing new
    other = plain.open(7)
    for tokens in ([], [5, 6, 9]):
        one = ask(engine, slot, tokens)
        same = ask(plain, other, tokens or prompt(count=count))
        assert one.token_ids == same.token_ids
        np.testing.assert_allclose(one.sampled_logprobs, same.sampled_logprobs, atol=1e-4, rtol=0)
    assert engine.counts.processed_tokens == plain.counts.processed_tokens


@pytest.mark.parametrize("sizes", [None, (2, 2, 1)], ids=["one device", "four devices"])
def test_a_prompt_is_read_once_for_all_its_forks(params, sizes):
    tokens, mesh = prompt(), None
    if sizes is not None:
        mesh = make_mesh(*sizes, devices=jax.devices()[:4])
        params = jax.device_put(params, param_shardings(CONFIG, mesh))
    engine = make(params, mesh=mesh)
    slot = read(engine, tokens)
    forks = [slot, *(engine.fork(slot, seed) for seed in (8, 9))]
    for fork in forks:
        assert engine.ask(fork, 5)
    replies = {}
    while len(replies) < 3:
        replies |= {reply.slot: reply for reply in engine.step()}
    sampled = sum(len(reply.token_ids) for reply in replies.values())
    # Read once; each fork then processes the last token and what it samples but its last.
    assert engine.counts.processed_tokens == len(tokens) - 1 + sampled
    for fork, seed in zip(forks, (7, 8, 9), strict=True):
        talk = Talk(seed, [tokens], cap=5)
        run(make(weights(0)), [talk])
        assert talk.replies[0].token_ids == replies[fork].token_ids


def test_conversations_that_begin_alike_copy_what_one_has_read(params):
    engine, tokens = make(params), prompt(count=60)
    read(engine, tokens)
    slot = engine.open(20)
    reply = ask(engine, slot, [*tokens, 5])
    assert engine.counts.shared_tokens == reply.shared_tokens == 59
    assert ask(engine, slot, [6]).shared_tokens == 0  # it reads its own cache
    talk = Talk(20, [[*tokens, 5]], cap=6)
    run(make(params), [talk])
    assert reply.token_ids == talk.replies[0].token_ids
    # One that only reads does so where everything is there to be copied: by one token.
    for seed, length in ((21, 60), (22, 40)):
        before = engine.counts.processed_tokens
        read(engine, tokens[:length], seed)
        assert engine.counts.processed_tokens == before + 1


def test_a_reader_beside_those_that_answer_and_score_changes_none_of_them(params):
    engine = make(params)
    asked, scored, reading = (engine.open(seed) for seed in (1, 2, 3))
    engine.append(asked, prompt(1))
    engine.append(scored, prompt(2, 9))
    engine.append(reading, prompt(3))
    assert engine.ask(asked, 20)
    engine.score(scored, prompt(4, 12))
    assert engine.read(reading)
    found = {}
    while engine.busy:
        found |= {reply.slot: reply for reply in engine.step()}
    assert found.keys() == {asked, scored, reading}
    talk = Talk(1, [prompt(1)], cap=20)
    run(make(params), [talk])
    assert found[asked].token_ids == talk.replies[0].token_ids
    assert found[scored].token_ids == prompt(4, 12)
    assert found[reading].token_ids == []


def test_a_reader_that_is_closed_or_rolled_back_leaves_a_slot_that_works(params):
    engine = make(params)
    slot = engine.open(5)
    engine.append(slot, prompt())
    engine.read(slot)
    with pytest.raises(ValueError, match="is answering"):
        engine.read(slot)
    engine.launch()
    engine.close(slot)  # in the middle
    assert engine.collect() == []
    slot = read(engine, prompt(), seed=6)
    engine.roll_back(slot, 20)
    talk = Talk(6, [prompt()[:20]], cap=6)
    run(make(params), [talk])
    assert ask(engine, slot, []).token_ids == talk.replies[0].token_ids
    with pytest.raises(ValueError, match="is free"):
        engine.read(99)


def test_a_growing_reply_can_be_watched(params):
    engine = make(params, stops=())
    slot = engine.open(4)
    assert engine.so_far(slot).token_ids == []
    engine.append(slot, prompt())
    assert engine.so_far(slot).token_ids == []
    engine.ask(slot, 23)
    seen, replies = [], []
    while not replies:
        replies = engine.step()
        seen.append(engine.so_far(slot))
    whole = replies[0].token_ids
    assert len(whole) == 23
    assert seen.pop().token_ids == []  # the reply is over
    assert len({len(part.token_ids) for part in seen}) >= 4
    for part in seen:
        length = len(part.token_ids)
        assert (part.token_ids, part.stopped) == (whole[:length], False)
        assert part.sampled_logprobs == replies[0].sampled_logprobs[:length]
        assert part.versions == replies[0].versions[:length]
    seen[-1].token_ids.append(0)  # a copy
    assert engine.token_ids(slot)[-1] == whole[-1]
    with pytest.raises(ValueError, match="is free"):
        engine.so_far(99)


def test_a_reply_ends_by_its_own_rule_and_the_next_by_the_engines(params):
    def two(token_ids):
        return 2 if len(token_ids) >= 2 else None

    def five(token_ids):
        return 5 if len(token_ids) >= 5 else None

    engine = make(params, ends=five, stops=())
    one, other = engine.open(1), engine.open(2)
    for slot in (one, other):
        engine.append(slot, prompt(slot))
    engine.ask(one, 20, ends=two)
    engine.ask(other, 20)
    found = {}
    while engine.busy:
        found |= {reply.slot: reply for reply in engine.step()}
    assert [(len(found[slot].token_ids), found[slot].stopped) for slot in (one, other)] == [(2, True), (5, True)]
    assert len(ask(engine, one, [9], length=20).token_ids) == 5


def test_a_reply_is_sampled_as_it_asks_and_the_next_as_the_conversation(params):
    greedy = SamplingConfig(temperature=0.0)
    engine = make(params, stops=())
    slot = engine.open(11)
    first = ask(engine, slot, prompt(), length=10, sampling=greedy)
    second = ask(engine, slot, [5], length=10)

    cold, warm = make(params, sampling=greedy, stops=()), make(params, stops=())
    same = cold.open(11)
    assert first.token_ids == ask(cold, same, prompt(), length=10).token_ids
    assert first.sampled_logprobs == [0.0] * 10
    other = warm.open(11)
    assert second.token_ids == ask(warm, other, [*prompt(), *first.token_ids, 5], length=10).token_ids
    assert second.token_ids != ask(cold, same, [5], length=10).token_ids
