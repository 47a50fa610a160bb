"""Random schedules of everything an engine can be told; every reply is compared with a model without a cache.

A script is what one conversation does; a schedule is when the host launches, collects, moves a script on or changes the
weights. Replies must follow from scripts alone: `test_no_schedule_and_no_shape_changes_a_reply` holds the engine to it.
Where weights change in mid conversation, the oracle feeds one id at a time under the version that fed it in the engine.
"""

import collections
import dataclasses
import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import random_params, tiny

from dfc.config import SamplingConfig
from dfc.inference.engine import Engine
from dfc.inference.sampling import uniforms
from dfc.models.cache import empty_cache
from dfc.models.transformer import bind

CONFIG = tiny(sliding_window=9, windowed_layers=(True, False))
MAX_LENGTH = 40
STOPS = frozenset({3, 11, 12, 29, 30, 31, 44})
SAMPLING = SamplingConfig(temperature=0.9, top_k=30, top_p=0.95, min_p=0.01)  # every filter: one program for all
SETTINGS = (
    SAMPLING,
    SamplingConfig(temperature=0.0),
    SamplingConfig(temperature=1.3, top_k=5),
    SamplingConfig(temperature=0.7, top_p=0.6),
    SamplingConfig(min_p=0.2),
    SamplingConfig(),
)
SAME = {"slots": 4, "rows": 2, "prefill_buckets": (4,), "cache_buckets": (MAX_LENGTH,), "decode_steps": 3}
OTHER = {"slots": 2, "rows": None, "prefill_buckets": (7,), "cache_buckets": (MAX_LENGTH,), "decode_steps": 5}
FEW = hypothesis.settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)


weights = functools.cache(functools.partial(random_params, CONFIG))


def make(params=None, **shape):
    params = weights(0) if params is None else params
    return Engine(
        CONFIG,
        params,
        max_length=MAX_LENGTH,
        stop_token_ids=STOPS,
        sampling=SAMPLING,
        plain_logprobs=True,
        **(shape or SAME),
    )


# ---- what the model says without a cache ----------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=0)
def _whole(config, params, tokens, positions, segments):
    model = bind(config, params)
    return jnp.matmul(model(tokens, positions, segments), model.output_embedding.T)


@functools.partial(jax.jit, static_argnums=0)
def _single(config, params, token, start, cache):
    model = bind(config, params)
    hidden, cache = model.feed(token, start, cache)
    return jnp.matmul(hidden[0, 0], model.output_embedding.T), cache


def logits_of(token_ids, versions):
    """Logits float64 [n, V] behind each of n ids, the k-th fed under the weights of versions[k]."""
    if len(set(versions)) == 1:
        tokens, segments = np.zeros((1, MAX_LENGTH), np.int32), np.zeros((1, MAX_LENGTH), np.int32)
        tokens[0, : len(token_ids)], segments[0, : len(token_ids)] = token_ids, 1
        positions = np.arange(MAX_LENGTH, dtype=np.int32)[None] * segments
        found = _whole(CONFIG, weights(versions[0]), tokens, positions, segments)
        return np.asarray(found, np.float64)[0, : len(token_ids)]
    cache, rows = empty_cache(CONFIG, 1, MAX_LENGTH), []
    for place, (token_id, version) in enumerate(zip(token_ids, versions, strict=True)):
        token, start = np.full((1, 1), token_id, np.int32), jnp.full(1, place, jnp.int32)
        row, cache = _single(CONFIG, weights(version), token, start, cache)
        rows.append(row)
    return np.asarray(rows, np.float64)


def log_softmax(row):
    shifted = row - row.max()
    return shifted - np.log(np.exp(shifted).sum())


def distributions(row, sampling):
    """The filtered log-probabilities, and those where rounding moves an id in or out of a filter."""
    if sampling.temperature == 0:
        return [np.where(np.arange(len(row)) == best, 0.0, -np.inf) for best in np.flatnonzero(row >= row.max() - 1e-4)]
    found = []
    for shift in (0.0, 1e-5, -1e-5):
        p = np.exp(log_softmax(row / sampling.temperature))
        if sampling.top_k:
            p[p < np.sort(p)[-sampling.top_k]] = 0
        if sampling.top_p < 1:
            falling = np.sort(p)[::-1]
            last = np.searchsorted(falling.cumsum() / p.sum(), sampling.top_p + shift)
            p[p < falling[last]] = 0
        p[p < sampling.min_p * (1 + shift) * p.max()] = 0
        with np.errstate(divide="ignore"):
            found.append(np.log(p / p.sum()))
    return found


def agrees(logprobs, token_id, reported, uniform=None):
    """Whether an id has the log-probability reported, and the uniform number selects it."""
    right = logprobs[token_id] == reported or abs(logprobs[token_id] - reported) < 1e-4
    if uniform is None or not right:
        return right
    after = np.exp(logprobs[: token_id + 1]).sum()
    return after - np.exp(logprobs[token_id]) - 1e-4 <= uniform <= after + 1e-4


# ---- scripts and schedules ------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Talk:
    """One conversation: what it still has to do, and what it should be now."""

    seed: int
    setting: int
    acts: list
    slot: int | None = None
    parked: object = None
    token_ids: list = dataclasses.field(default_factory=list)
    cached_under: list = dataclasses.field(default_factory=list)  # versions, one per id the cache holds
    asked: bool = False
    scored: bool = False
    leaving: bool = False
    over: bool = False
    trace: list = dataclasses.field(default_factory=list)


class Host:
    """Plays scripts on an engine and checks every reply."""

    def __init__(self, engine, scripts, *, check=True):
        self.engine, self.check = engine, check
        self.talks = [Talk(seed, setting, list(acts)) for seed, setting, acts in scripts]
        self.all = list(self.talks)
        self.launched = collections.deque()  # the version of each call in flight
        self.replies = 0

    def play(self, schedule):
        for number in schedule:
            if number < 3 and self.engine.in_flight < 3:
                self.launch()
            elif number < 6:
                self.collect()
            elif number == 6:
                self.engine.set_params(weights(self.engine.version() + 1), self.engine.version() + 1)
            else:
                self.advance(number)
        for turn in range(2000):
            if not self.talks:
                break
            self.advance(turn)
            self.launch()
            self.collect()
        assert not self.talks
        while self.engine.in_flight:
            assert self.collect() is None
        assert not self.engine.busy
        assert self.engine.free == self.engine.slot_allocator.total
        return [talk.trace for talk in self.all]

    def launch(self):
        version = self.engine.version()
        if self.engine.launch():
            self.launched.append(version)

    def collect(self):
        version = self.launched.popleft() if self.launched else None
        for reply in self.engine.collect():
            self.take(next(talk for talk in self.talks if talk.slot == reply.slot), reply, version)
        for talk in self.talks:
            if talk.slot is not None:
                self.note(talk, version)

    def note(self, talk, version):
        num_cached = self.engine._slots[talk.slot].num_cached
        talk.cached_under += [version] * (num_cached - len(talk.cached_under))
        del talk.cached_under[num_cached:]

    def take(self, talk, reply, version):
        assert talk.asked
        talk.asked = False
        self.replies += 1
        self.note(talk, version)
        if not talk.scored:
            talk.token_ids += reply.token_ids
        assert self.engine.token_ids(talk.slot) == talk.token_ids
        assert len(talk.cached_under) == len(talk.token_ids) - 1
        if self.check:
            self.compare(talk, reply)
        if talk.leaving:
            self.end(talk)
        else:
            talk.trace.append((reply.token_ids, reply.sampled_logprobs, reply.plain_logprobs, reply.stopped))

    def compare(self, talk, reply):
        begin, setting = len(talk.token_ids) - len(reply.token_ids), SETTINGS[talk.setting]
        assert reply.token_ids == talk.token_ids[begin:]
        assert reply.versions == talk.cached_under[begin - 1 :]
        rows = logits_of(talk.token_ids[:-1], talk.cached_under)[begin - 1 :]
        for offset, (row, token_id) in enumerate(zip(rows, reply.token_ids, strict=True)):
            place = np.asarray([begin + offset], np.uint64)
            uniform = None if talk.scored else uniforms(np.asarray([talk.seed], np.uint64), place)[0]
            reported = reply.sampled_logprobs[offset]
            assert any(agrees(found, token_id, reported, uniform) for found in distributions(row, setting))
            np.testing.assert_allclose(reply.plain_logprobs[offset], log_softmax(row)[token_id], atol=1e-4, rtol=0)
        if not talk.scored:
            assert not STOPS.intersection(reply.token_ids[:-1])
            assert reply.stopped == (reply.token_ids[-1] in STOPS)

    def end(self, talk):
        self.engine.close(talk.slot)
        talk.slot = None
        self.talks.remove(talk)

    def advance(self, number):
        """Moves one conversation on: one that is quiet, wants to leave or is not there yet."""
        able = [talk for talk in self.talks if not talk.asked or talk.leaving]
        if not able:
            return
        talk = able[number % len(able)]
        if talk.leaving:
            self.end(talk)
        elif talk.slot is None:
            self.admit(talk)
        elif not talk.acts:
            assert self.engine.token_ids(talk.slot) == talk.token_ids
            self.end(talk)
        else:
            kind, *values = talk.acts.pop(0)
            getattr(self, kind)(talk, *values)

    def admit(self, talk):
        if not self.engine.free:
            return
        if talk.parked is None:
            talk.slot = self.engine.open(talk.seed, sampling=SETTINGS[talk.setting])
        else:
            talk.slot, talk.parked = self.engine.unpark(talk.parked), None

    def say(self, talk, token_ids, cap):
        self.engine.append(talk.slot, token_ids)
        talk.token_ids += token_ids
        talk.scored, talk.asked = False, self.engine.ask(talk.slot, cap)
        assert talk.asked == (len(talk.token_ids) < MAX_LENGTH)
        if not talk.asked:  # full: nothing but rolling back helps
            talk.trace.append("full")
            self.engine.roll_back(talk.slot, 5)
            del talk.token_ids[5:]
            self.note(talk, None)

    def leave(self, talk, token_ids, cap):
        self.say(talk, token_ids, cap)
        talk.leaving, talk.acts = True, []

    def score(self, talk, token_ids):
        if talk.token_ids and len(talk.token_ids) + len(token_ids) <= MAX_LENGTH:
            self.engine.score(talk.slot, token_ids)
            talk.token_ids += token_ids
            talk.scored = talk.asked = True

    def back(self, talk, percent, seed, cap):
        length = len(talk.token_ids) * percent // 100
        self.engine.roll_back(talk.slot, length, seed)
        talk.seed = talk.seed if seed is None else seed
        del talk.token_ids[length:]
        self.note(talk, None)
        if length:
            talk.scored, talk.asked = False, self.engine.ask(talk.slot, cap)

    def park(self, talk):
        talk.parked, talk.slot = self.engine.park(talk.slot), None

    def fork(self, talk, seed):
        if not self.engine.free:
            talk.acts.insert(0, ("fork", seed))  # later
            return
        acts = [act for act in talk.acts if act[0] != "fork"]
        slot = self.engine.fork(talk.slot, seed)
        child = dataclasses.replace(
            talk,
            seed=seed,
            acts=acts,
            slot=slot,
            token_ids=list(talk.token_ids),
            cached_under=list(talk.cached_under),
            trace=[],
        )
        talk.acts = list(acts)
        self.talks.append(child)
        self.all.append(child)


token_ids_of = st.lists(st.integers(0, CONFIG.vocabulary - 1), min_size=1, max_size=13)
caps, seeds = st.integers(1, 9), st.integers(0, 2**64 - 1)
says = st.tuples(st.just("say"), token_ids_of, caps)
acts_of = st.one_of(
    says,
    says,
    st.tuples(st.just("leave"), token_ids_of, caps),
    st.tuples(st.just("score"), token_ids_of),
    st.tuples(st.just("back"), st.integers(0, 100), st.none() | seeds, caps),
    st.tuples(st.just("park")),
)
script = st.tuples(seeds, st.integers(0, len(SETTINGS) - 1), st.lists(acts_of, min_size=1, max_size=6))
forking = st.tuples(
    seeds,
    st.integers(0, len(SETTINGS) - 1),
    st.tuples(says, st.tuples(st.just("fork"), seeds), says, acts_of).map(list),
)
some = st.tuples(forking, st.lists(script, min_size=1, max_size=5)).map(lambda pair: [pair[0], *pair[1]])
steady = st.lists(st.sampled_from([0, 1, 3, 4, 7, 8, 9, 10]), max_size=60)
changing = st.lists(st.integers(0, 11), max_size=60)


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


def test_nothing_compiles_after_warm_up_and_no_length_changes_a_reply():
    found = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    # A shape no other test has, so that nothing was compiled before.
    engine = make(slots=3, rows=1, prefill_buckets=(4,), cache_buckets=(12, MAX_LENGTH), decode_steps=3)
    assert engine.warm_up() == 4
    assert len(found) >= 4
    for seed in range(3):
        rng = np.random.default_rng(seed)
        scripts = [
            (seed * 10 + n, n % 6, [("say", rng.integers(0, 50, size=1 + n).tolist(), 4), ("back", 50, n, 5)] * 2)
            for n in range(8)
        ]
        schedule = rng.choice([0, 1, 3, 4, 7, 8, 9, 10], size=40).tolist()
        expected = Host(make(), scripts, check=False).play(schedule)
        found.clear()
        replies = Host(engine, scripts, check=False).play(schedule)
        assert not found
        close_to(replies, expected)
