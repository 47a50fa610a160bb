"""Scripts of conversations, schedules that play them on an engine, and a model without a cache that checks replies.

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
from tiny_models import log_softmax, random_params, tiny, uncached_logits

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
SAME = {"slots": 4, "rows": 2, "prefill_buckets": (4,), "decode_steps": 3}
OTHER = {"slots": 2, "rows": None, "prefill_buckets": (7,), "decode_steps": 5}
FEW = hypothesis.settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
weights = functools.cache(functools.partial(random_params, CONFIG))


def make(params=None, *, stops=STOPS, ends=None, **shape):
    params = weights(0) if params is None else params
    return Engine(
        CONFIG,
        params,
        max_length=MAX_LENGTH,
        stop_token_ids=stops,
        sampling=SAMPLING,
        ends=ends,
        plain_logprobs=True,
        **(shape or SAME),
    )


@functools.partial(jax.jit, static_argnums=0)
def _single(config, params, token, start, cache):
    model = bind(config, params)
    hidden, cache = model.extend(token, start, cache)
    return jnp.matmul(hidden[0, 0], model.output_embedding.T), cache


def logits_of(token_ids, versions):
    """Logits float64 [n, V] behind each of n ids, the k-th fed under the weights of versions[k]."""
    if len(set(versions)) == 1:
        return uncached_logits(CONFIG, weights(versions[0]), token_ids, MAX_LENGTH)
    cache, rows = empty_cache(CONFIG, 1, MAX_LENGTH), []
    for place, (token_id, version) in enumerate(zip(token_ids, versions, strict=True)):
        token, start = np.full((1, 1), token_id, np.int32), jnp.full(1, place, jnp.int32)
        row, cache = _single(CONFIG, weights(version), token, start, cache)
        rows.append(row)
    return np.asarray(rows, np.float64)


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
