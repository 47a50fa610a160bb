"""Several policies in one engine: each answers as it would alone, under its own weights and version."""

import dataclasses
import functools
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_schedules import CONFIG, MAX_LENGTH, make, weights
from tiny_models import log_softmax, uncached_logits

from dfc.models.lora import ALL_LINEAR, LoraConfig, abstract_adapters, merge, pool
from dfc.models.transformer import Adapters

LORA = LoraConfig(rank=2, alpha=2.0, targets=ALL_LINEAR)


def another(seed):
    """The same weights in arrays of their own, which a test may give up."""
    return jax.tree.map(jnp.array, weights(seed))


@functools.cache
def adapter(seed):
    rng = np.random.default_rng(seed)
    shapes = abstract_adapters(CONFIG, LORA)
    return jax.tree.map(lambda x: (rng.normal(size=x.shape) * 0.3).astype(np.float32), shapes)


def plain_logprobs(params, token_ids):
    """Log-probability float64 of each id but the first, of a whole conversation at once, no cache."""
    found = log_softmax(uncached_logits(CONFIG, params, token_ids, MAX_LENGTH))
    return found[np.arange(len(token_ids) - 1), token_ids[1:]]


@dataclasses.dataclass
class Talk:
    """What is said to one conversation, who answers, and what came back."""

    seed: int
    observations: list
    policy: str = "policy"
    adapter: int = 0
    token_ids: list = dataclasses.field(default_factory=list)
    replies: list = dataclasses.field(default_factory=list)

    def again(self, policy="policy"):
        return Talk(self.seed, self.observations, policy)

    def same(self, other):
        assert self.token_ids == other.token_ids
        for one, two in zip(self.replies, other.replies, strict=True):
            assert one.stopped == two.stopped
            np.testing.assert_allclose(one.sampled_logprobs, two.sampled_logprobs, atol=1e-5, rtol=0)
            np.testing.assert_allclose(one.plain_logprobs, two.plain_logprobs, atol=1e-5, rtol=0)

    def check(self, params):
        """The reported plain log-probabilities are those of the model without a cache."""
        expected, place = plain_logprobs(params, self.token_ids), 0
        for observation, reply in zip(self.observations, self.replies, strict=True):
            place += len(observation)
            here = expected[place - 1 : place - 1 + len(reply.token_ids)]
            np.testing.assert_allclose(reply.plain_logprobs, here, atol=1e-4, rtol=0)
            place += len(reply.token_ids)


def talks(count, seed, **more):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 8, size=(count, 3))
    return [
        Talk(100 * seed + index, [rng.integers(0, 50, size=n).tolist() for n in row], **more)
        for index, row in enumerate(sizes)
    ]


def run(engine, waiting, between=lambda: None):
    """Plays talks to their end, with up to two calls in flight; `between` is called before each launch."""
    waiting, live = list(waiting), {}

    def say(slot, talk):
        observation = talk.observations[len(talk.replies)]
        engine.append(slot, observation)
        talk.token_ids += observation
        assert engine.ask(slot, 5)

    while waiting or live:
        while waiting and engine.free:
            talk = waiting.pop(0)
            slot = engine.open(talk.seed, policy=talk.policy, adapter=talk.adapter)
            live[slot] = talk
            say(slot, talk)
        between()
        while engine.in_flight < 2 and engine.launch():
            pass
        for reply in engine.collect():
            talk = live[reply.slot]
            talk.replies.append(reply)
            talk.token_ids += reply.token_ids
            if len(talk.replies) < len(talk.observations):
                say(reply.slot, talk)
            else:
                engine.close(reply.slot)
                del live[reply.slot]


def test_policies_of_one_engine_answer_as_each_would_alone():
    names = ("policy", "opponent", "initial")
    engine = make(weights(0))
    for number, name in enumerate(names[1:], 1):
        engine.set_params(weights(number), 10 * number, policy=name)
    together = talks(9, 1)
    for index, talk in enumerate(together):
        talk.policy = names[index % 3]
    run(engine, together)
    for number, name in enumerate(names):
        mine = [talk for talk in together if talk.policy == name]
        alone = [talk.again() for talk in mine]
        run(make(weights(number)), alone)
        for talk, expected in zip(mine, alone, strict=True):
            talk.same(expected)
            talk.check(weights(number))
            assert {version for reply in talk.replies for version in reply.versions} == {10 * number}
    first = [talk.again() for talk in together[1:2]]
    run(make(weights(0)), first)
    assert first[0].token_ids != together[1].token_ids  # the policies are not the same one


def test_policies_of_the_same_weights_share_calls_and_keep_their_own_versions():
    calls, replies = {}, {}
    for kind, params in (("one", None), ("shared", weights(0)), ("apart", another(0))):
        engine = make(weights(0))
        engine.set_params(weights(0), 3)
        if params is not None:
            engine.set_params(params, 7, policy="twin")
        found = talks(2, 2)  # as many as a call has rows
        found[1].policy = "policy" if params is None else "twin"
        run(engine, found)
        calls[kind], replies[kind] = engine.counts.calls, [talk.token_ids for talk in found]
        for talk in found:
            talk.check(weights(0))
            version = 7 if talk.policy == "twin" else 3
            assert {version for reply in talk.replies for version in reply.versions} == {version}
    assert replies["one"] == replies["shared"] == replies["apart"]
    assert calls["one"] == calls["shared"] < calls["apart"]


def test_a_pool_of_adapters_answers_beside_full_weights():
    engine = make(weights(0))
    engine.set_params(weights(0), 1, Adapters(pool([adapter(5), adapter(6)]), LORA.scale), policy="players")
    engine.set_params(weights(1), 2, policy="opponent")
    found = talks(8, 3)
    kinds = [("policy", 0), ("players", 0), ("players", 1), ("opponent", 0)]
    for index, talk in enumerate(found):
        talk.policy, talk.adapter = kinds[index % 4]
    run(engine, found)
    merged = [merge(weights(0), adapter(seed), LORA.scale) for seed in (5, 6)]
    models = dict(zip(kinds, (weights(0), *merged, weights(1)), strict=True))
    for kind, params in models.items():
        mine = [talk for talk in found if (talk.policy, talk.adapter) == kind]
        alone = [talk.again() for talk in mine]
        run(make(params), alone)
        for talk, expected in zip(mine, alone, strict=True):
            assert talk.token_ids == expected.token_ids
            talk.check(params)


def test_an_adapter_that_went_while_its_conversation_was_parked_is_missed():
    engine = make(weights(0))
    engine.set_params(weights(0), 1, Adapters(pool([adapter(5), adapter(6)]), LORA.scale))
    parked = engine.park(engine.open(0, adapter=1))
    engine.set_params(weights(0), 2)
    with pytest.raises(ValueError, match="adapter 1: expected one of 0 to 0"):
        engine.unpark(parked)
    assert engine.free == 4


def test_new_weights_of_one_policy_in_mid_run_change_only_that_policy():
    engine, calls = make(weights(0)), []
    engine.set_params(weights(1), 5, policy="opponent")

    def change():
        calls.append(0)
        if len(calls) % 4 == 0:
            engine.set_params(weights(2 + len(calls)), len(calls), policy="opponent")

    found = talks(8, 4)
    for talk in found[1::2]:
        talk.policy = "opponent"
    run(engine, found, change)
    quiet = found[::2]
    alone = [talk.again() for talk in quiet]
    run(make(weights(0)), alone)
    for talk, expected in zip(quiet, alone, strict=True):
        talk.same(expected)
        assert {version for reply in talk.replies for version in reply.versions} == {0}
    assert len({version for talk in found[1::2] for reply in talk.replies for version in reply.versions}) > 3
    assert engine.version() == 0
    assert engine.version("opponent") == max(n for n in range(len(calls) + 1) if n % 4 == 0)


def test_weights_that_change_in_mid_reply_are_named_id_by_id():
    """What a call in flight draws was drawn under the weights it was launched with."""
    engine = make(weights(0), stops=frozenset())
    slot = engine.open(9)
    engine.append(slot, [5, 6, 7])
    assert engine.ask(slot, 20)
    expected, found, version = [], [], 0
    while not found:
        assert engine.launch()
        version += 1
        engine.set_params(weights(version), version)  # while the call runs
        before = engine.length(slot)
        found = engine.collect()
        expected += [version - 1] * (engine.length(slot) - before)
    assert found[0].versions == expected
    assert len(set(expected)) > 2
    # Up to where the weights changed first the conversation is the old weights' own.
    under = expected.count(0)
    token_ids = [5, 6, 7, *found[0].token_ids[:under]]
    np.testing.assert_allclose(
        found[0].plain_logprobs[:under], plain_logprobs(weights(0), token_ids)[-under:], atol=1e-4, rtol=0
    )
    # A conversation opened now is the new weights' own from its first id.
    engine.close(slot)
    fresh = talks(2, 5)
    run(engine, fresh)
    for talk in fresh:
        talk.check(weights(version))


def test_taking_weights_over_makes_no_arrays():
    engine, given = make(weights(0)), [another(1), another(2)]
    gc.collect()
    arrays = len(jax.live_arrays())
    for version, name in enumerate(("opponent", "initial", "policy", "policy", "opponent")):
        engine.set_params(given[version % 2], version, policy=name)
        assert len(jax.live_arrays()) == arrays


@pytest.mark.parametrize("name", ["policy", "opponent"])
def test_the_engine_keeps_no_weights_but_the_last_ones_given(name):
    engine = make(weights(0))
    old, new = another(1), another(2)
    engine.set_params(old, 1, policy=name)
    slot = engine.open(4, policy=name)
    engine.append(slot, [8, 9, 10, 13, 14])
    assert engine.ask(slot, 30)
    engine.step()
    assert engine.launch()
    seen = [weakref.ref(leaf) for leaf in jax.tree.leaves(old)]
    engine.set_params(new, 2, policy=name)
    engine.collect()
    del old
    gc.collect()
    assert not [ref for ref in seen if ref() is not None]
    while engine.busy:
        engine.step()
    assert engine.version(name) == 2


def test_the_old_weights_may_be_deleted_while_conversations_go_on():
    engine, kept = make(another(1)), another(1)
    slot = engine.open(4)
    engine.append(slot, [8, 9, 10, 13, 14])
    assert engine.ask(slot, 5)
    first = next(reply for _ in range(9) for reply in engine.step())
    old = engine._policies["policy"].weights.params
    engine.set_params(kept, 2)
    for leaf in jax.tree.leaves(old):
        leaf.delete()
    engine.append(slot, [20, 21])
    assert engine.ask(slot, 5)
    second = next(reply for _ in range(9) for reply in engine.step())
    expected = Talk(4, [[8, 9, 10, 13, 14], [20, 21]])
    alone = make(kept)
    run(alone, [expected])
    assert [first.token_ids, second.token_ids] == [reply.token_ids for reply in expected.replies]
    assert second.versions == [2] * len(second.token_ids)
