"""Given ids are scored, and replies are restricted and cut, exactly as an uncached model with numpy filters says."""

import itertools

import engine_schedules
import numpy as np
import pytest
from engine_schedules import CONFIG, MAX_LENGTH, SAMPLING, distributions, weights
from tiny_models import log_softmax, uncached_logits

from dfc.config import SamplingConfig
from dfc.inference.constraints import ActionTrie
from dfc.inference.sampling import uniforms
from dfc.inference.stop_strings import StopStrings

(WIDTH,) = engine_schedules.SAME["prefill_buckets"]
SETTINGS = {
    "all filters": SAMPLING,
    "greedy": SamplingConfig(temperature=0.0),
    "temperature": SamplingConfig(temperature=1.7),
    "top-k": SamplingConfig(temperature=0.8, top_k=5),
    "top-p": SamplingConfig(top_p=0.6),
    "min-p": SamplingConfig(min_p=0.2),
    "plain": SamplingConfig(),
}
LETTERS = "abcde"


def make(*, policies=1, **options):
    engine = engine_schedules.make(**options)
    for number in range(1, policies):
        engine.set_params(weights(number), number, policy=f"policy{number}")
    return engine


def logits_of(params, token_ids):
    """Logits float64 [n, V] behind each id of a whole conversation, no cache."""
    return uncached_logits(CONFIG, params, token_ids, MAX_LENGTH)


def check(params, sampling, before, reply):
    """Both log-probabilities of every id of a reply are those of the uncached model."""
    rows = logits_of(params, before + reply.token_ids)[len(before) - 1 : -1]
    assert len(reply.token_ids) == len(reply.sampled_logprobs) == len(reply.plain_logprobs) == len(reply.versions)
    for row, token_id, sampled_logprobs, plain in zip(
        rows, reply.token_ids, reply.sampled_logprobs, reply.plain_logprobs, strict=True
    ):
        np.testing.assert_allclose(plain, log_softmax(row)[token_id], atol=1e-4, rtol=0)
        candidates = [found[token_id] for found in distributions(row, sampling)]
        assert any(sampled_logprobs == right or abs(sampled_logprobs - right) < 1e-4 for right in candidates), (
            sampled_logprobs,
            candidates,
        )


def finish(engine):
    """Replies by slot, one of each."""
    found = {}
    while engine.busy:
        while engine.in_flight < 2 and engine.launch():
            pass
        for reply in engine.collect():
            assert reply.slot not in found
            found[reply.slot] = reply
    return found


def random_tokens(count, seed):
    return np.random.default_rng(seed).integers(0, CONFIG.vocabulary, size=count).tolist()


# ---- scores ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_scores_are_the_uncached_log_probabilities(setting, number):
    """Under every policy and setting, in pieces of every size, behind 1 to 9 ids, beside slots that answer."""
    engine = make(policies=2)
    policy = ("policy", "policy1")[number]
    beside = engine.open(77)
    engine.append(beside, [1, 2, 4])
    assert engine.ask(beside, 30)
    removed = 0
    for before, scored in ((1, 1), (1, WIDTH), (2, WIDTH + 1), (WIDTH + 1, 3 * WIDTH - 1), (9, MAX_LENGTH - 9)):
        slot = engine.open(5, policy=policy, sampling=setting)
        engine.append(slot, random_tokens(before, before))
        token_ids = random_tokens(scored, 50 + scored)
        engine.score(slot, token_ids)
        reply = None
        while reply is None:
            reply = next((one for one in engine.step() if one.slot == slot), None)
        assert (reply.token_ids, reply.stopped) == (token_ids, False)
        assert reply.versions == [number] * scored
        check(weights(number), setting, random_tokens(before, before), reply)
        removed += np.isneginf(reply.sampled_logprobs).sum()
        assert engine.token_ids(slot) == random_tokens(before, before) + token_ids
        engine.close(slot)
    assert (removed > 0) == (setting not in (SETTINGS["temperature"], SETTINGS["plain"]))


def test_several_are_scored_together_beside_slots_that_answer():
    engine, settings = make(policies=2), list(SETTINGS.values())
    slots, expected = [], {}
    for turn in range(3):
        given = {}
        for index in range(4):
            if turn == 0:
                slots.append(engine.open(index, policy=("policy", "policy1")[index % 2], sampling=settings[index]))
            slot, new = slots[index], random_tokens(3 + index, 10 * turn + index)
            if (turn + index) % 3 == 0:  # a reply from this one
                engine.append(slot, new)
                assert engine.ask(slot, 4)
            elif turn == 0:
                engine.append(slot, new)
                engine.score(slot, [7, 8])
            else:
                engine.score(slot, new)
            given[slot] = new
        expected = finish(engine)
        assert sorted(expected) == sorted(slots)
        for index, slot in enumerate(slots):
            reply, token_ids = expected[slot], engine.token_ids(slot)
            assert token_ids[len(token_ids) - len(reply.token_ids) :] == reply.token_ids
            check(weights(index % 2), settings[index], token_ids[: len(token_ids) - len(reply.token_ids)], reply)


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_scoring_the_ids_it_drew_returns_what_it_reported(setting):
    engine = make(stops=frozenset())
    slot, other = engine.open(3, sampling=setting), engine.open(4, sampling=setting)
    for turn in range(3):
        observation = random_tokens(5, 80 + turn)
        engine.append(slot, observation)
        assert engine.ask(slot, 6)
        first = finish(engine)[slot]
        engine.append(other, observation)
        engine.score(other, first.token_ids)
        again = finish(engine)[other]
        # Its own reply, taken back and scored in the same slot.
        engine.roll_back(slot, engine.length(slot) - len(first.token_ids))
        engine.score(slot, first.token_ids)
        own = finish(engine)[slot]
        for scored in (again, own):
            assert scored.token_ids == first.token_ids
            np.testing.assert_allclose(scored.sampled_logprobs, first.sampled_logprobs, atol=1e-5, rtol=0)
            np.testing.assert_allclose(scored.plain_logprobs, first.plain_logprobs, atol=1e-5, rtol=0)
    assert engine.token_ids(slot) == engine.token_ids(other)


def test_a_reply_after_scoring_is_the_reply_after_the_same_ids_observed():
    engine = make()
    scoring, reading = engine.open(6), engine.open(6)
    for turn in range(2):
        token_ids = random_tokens(WIDTH + 3, 30 + turn)
        engine.append(scoring, token_ids[:2])
        engine.score(scoring, token_ids[2:])
        finish(engine)
        assert engine.ask(scoring, 5)  # what was scored is new to it: the last of it has not been read
        engine.append(reading, token_ids)
        assert engine.ask(reading, 5)
        found = finish(engine)
        assert found[scoring].token_ids == found[reading].token_ids
        np.testing.assert_allclose(found[scoring].sampled_logprobs, found[reading].sampled_logprobs, atol=1e-5, rtol=0)
        check(weights(0), SAMPLING, engine.token_ids(scoring)[: -len(found[scoring].token_ids)], found[scoring])


def test_scoring_that_cannot_be_is_refused():
    engine = make()
    slot = engine.open(1)
    with pytest.raises(ValueError, match="scoring needs a token before the first one scored, and one to score"):
        engine.score(slot, [1])
    engine.append(slot, [1, 2, 3])
    with pytest.raises(ValueError, match="scoring needs a token before"):
        engine.score(slot, [])
    with pytest.raises(ValueError, match=r"has 3 of 40 tokens; 38 more do not fit"):
        engine.score(slot, [1] * 38)
    assert engine.token_ids(slot) == [1, 2, 3]
    engine.score(slot, [1] * 37)
    with pytest.raises(ValueError, match="is answering"):
        engine.score(slot, [1])
    assert len(finish(engine)[slot].token_ids) == 37
    assert not engine.ask(slot, 1)


# ---- constraints ----------------------------------------------------------------------------------------------------

# Eight nodes of at most four choices each: tables of 8 and of 16 nodes, so that few programs are compiled.
REPLIES = (
    [[5, 6, 44], [5, 6, 7, 44], [5, 9, 10, 13, 44], [20, 44], [21, 22, 23]],  # some end with an id that is no stop
    [*([4, b, 44] for b in (16, 23, 42, 1)), *([8, b, 33, 44] for b in (2, 24, 41, 9)), [15, 33, 34, 35, 44]],
)
TRIES = [ActionTrie.build(replies) for replies in REPLIES]


def test_a_restricted_reply_is_legal_and_drawn_from_the_restricted_distribution():
    engine, seen = make(), set()
    for seed in range(12):
        setting = list(SETTINGS.values())[seed % len(SETTINGS)]
        slots = [engine.open(100 * seed + index, sampling=setting) for index in range(4)]
        for turn in range(2):
            before = {}
            for index, slot in enumerate(slots):
                engine.append(slot, random_tokens(1 + (3 * index + turn) % 7, 1000 + 10 * seed + turn))
                before[slot] = engine.token_ids(slot)
                assert engine.ask(slot, 8, None if index > 1 else TRIES[index])
            found = finish(engine)
            for index, slot in enumerate(slots):
                reply = found[slot]
                assert engine.token_ids(slot) == before[slot] + reply.token_ids
                if index > 1:
                    check(weights(0), setting, before[slot], reply)
                    continue
                assert reply.stopped
                assert reply.token_ids in REPLIES[index]
                seen.add((index, tuple(reply.token_ids)))
                check_restricted(setting, before[slot], reply, REPLIES[index], 100 * seed + index)
        for slot in slots:
            engine.close(slot)
    assert len([one for one in seen if one[0] == 0]) > 3
    assert len([one for one in seen if one[0] == 1]) > 6


def check_restricted(setting, before, reply, replies, seed):
    rows = logits_of(weights(0), before + reply.token_ids)[len(before) - 1 : -1]
    for place, (row, token_id) in enumerate(zip(rows, reply.token_ids, strict=True)):
        choices = {one[place] for one in replies if one[:place] == reply.token_ids[:place]}
        restricted = np.where(np.isin(np.arange(len(row)), list(choices)), row, -np.inf)
        np.testing.assert_allclose(reply.plain_logprobs[place], log_softmax(row)[token_id], atol=1e-4, rtol=0)
        uniform = uniforms(np.asarray([seed], np.uint64), np.asarray([len(before) + place], np.uint64))[0]

        def right(found, token_id=token_id, place=place, uniform=uniform):
            after = np.exp(found[: token_id + 1]).sum()
            inside = after - np.exp(found[token_id]) - 1e-4 <= uniform <= after + 1e-4
            return inside and abs(found[token_id] - reply.sampled_logprobs[place]) < 1e-4

        assert any(right(found) for found in distributions(restricted, setting))
        assert len(choices) > 1 or reply.sampled_logprobs[place] == 0


def test_a_restricted_reply_that_does_not_fit_is_cut():
    engine = make()
    slot = engine.open(2)
    engine.append(slot, [1, 2, 3])
    assert engine.ask(slot, 2, TRIES[1])  # all of them are longer
    reply = finish(engine)[slot]
    assert len(reply.token_ids) == 2
    assert not reply.stopped
    assert reply.token_ids in [one[:2] for one in REPLIES[1]]
    check_restricted(SAMPLING, [1, 2, 3], reply, REPLIES[1], 2)
    engine.append(slot, [4])
    before = engine.token_ids(slot)
    assert engine.ask(slot, 5)  # without a constraint again
    check(weights(0), SAMPLING, before, finish(engine)[slot])


# ---- stop strings ---------------------------------------------------------------------------------------------------


def spelled(token_ids):
    """One letter for most ids, two for some, so that strings span ids and end inside of one."""
    return "".join(
        LETTERS[token_id % 5] + (LETTERS[token_id // 10] if token_id % 7 == 0 else "") for token_id in token_ids
    )


def test_a_stop_string_of_several_ids_cuts_the_reply_where_it_is_complete():
    strings = ("abc", "ee", "da")
    ends, cut, later = StopStrings(strings, spelled), 0, 0
    engine, free = make(ends=ends), make()
    for seed in range(16):
        slot, whole = engine.open(seed), free.open(seed)
        observation = random_tokens(6, seed)
        for one, where in ((engine, slot), (free, whole)):
            one.append(where, observation)
            assert one.ask(where, 12)
        reply, longer = finish(engine)[slot], finish(free)[whole]
        complete = [
            n
            for n in range(1, len(longer.token_ids) + 1)
            if any(string in spelled(longer.token_ids[:n]) for string in strings)
        ]
        kept = complete[0] if complete else len(longer.token_ids)
        assert reply.token_ids == longer.token_ids[:kept]
        assert reply.stopped == (bool(complete) or longer.stopped)
        np.testing.assert_allclose(reply.sampled_logprobs, longer.sampled_logprobs[:kept], atol=1e-5, rtol=0)
        check(weights(0), SAMPLING, observation, reply)
        cut += kept < len(longer.token_ids)
        # It goes on as if exactly those ids had been drawn: as one does that was told them.
        told = free.open(seed)
        free.append(told, observation + reply.token_ids + [9, 10])
        engine.append(slot, [9, 10])
        assert engine.token_ids(slot) == free.token_ids(told)
        assert engine.ask(slot, 4)
        assert free.ask(told, 4)
        after, expected = finish(engine)[slot], finish(free)[told]
        kept = next(
            (n for n in itertools.count(1) if ends(expected.token_ids[:n]) or n == len(expected.token_ids)), None
        )
        assert after.token_ids == expected.token_ids[:kept]
        np.testing.assert_allclose(after.sampled_logprobs, expected.sampled_logprobs[:kept], atol=1e-5, rtol=0)
        later += len(after.token_ids) > 1
        engine.close(slot)
        free.close(whole)
        free.close(told)
    assert cut > 5
    assert later > 5
