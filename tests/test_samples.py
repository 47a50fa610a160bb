"""Several replies to each of many prompts: those of conversations alone, every prompt read once, nothing kept."""

import engine_talks
import pytest
from test_prefixes import make, opening

from dfc.config import SamplingConfig
from dfc.rollout.samples import samples

PROMPTS = [opening(seed, 60 + seed) for seed in range(5)]
params = engine_talks.params  # the fixture


def seed(prompt, number):
    return 1000 * prompt + number


def of_each_alone(params, prompts, n, length):
    found = []
    for p, prompt in enumerate(prompts):
        for number in range(n):
            engine = make(params, 1)
            slot = engine.open(seed(p, number))
            engine.append(slot, prompt)
            engine.ask(slot, length)
            replies = []
            while engine.busy:
                replies += engine.step()
            found.append([*prompt, *replies[0].token_ids])
    return found


@pytest.mark.parametrize("slots", [3, 32])
def test_samples_are_those_of_conversations_alone(params, slots):
    found = samples(make(params, slots), PROMPTS, 3, seed=seed, max_reply_length=6)
    assert [len(group) for group in found] == [3] * 5
    assert [one.token_ids.tolist() for group in found for one in group] == of_each_alone(params, PROMPTS, 3, 6)
    for prompt, group in zip(PROMPTS, found, strict=True):
        for one in group:
            assert one.mask.tolist() == [False] * len(prompt) + [True] * (len(one.token_ids) - len(prompt))
            assert (one.sampled_logprobs[one.mask] < 0).all()
            assert not one.sampled_logprobs[~one.mask].any()
            assert set(one.versions[one.mask]) == {0}
    assert len({tuple(one.token_ids) for one in found[0]}) > 1


def test_a_prompt_is_read_once(params):
    engine = make(params, 16)
    found = samples(engine, PROMPTS, 8, seed=seed, max_reply_length=4)
    prefilled = engine.counts.processed_tokens - sum(one.generated_tokens for group in found for one in group)
    assert prefilled <= 1.1 * sum(map(len, PROMPTS)) + 8 * len(PROMPTS)  # each reply processes its prompt's last token


def test_another_way_of_sampling_and_a_stop_leave_no_slot_taken(params):
    engine = make(params, 4)
    greedy = samples(engine, PROMPTS[:1], 3, seed=seed, max_reply_length=6, sampling=SamplingConfig(temperature=0.0))
    assert len({tuple(one.token_ids) for one in greedy[0]}) == 1
    looks = iter(range(3))

    def check_stop():
        if next(looks) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        samples(engine, PROMPTS, 4, seed=seed, max_reply_length=30, check_stop=check_stop)
    assert engine.free == 4
    assert len(samples(engine, PROMPTS[:1], 1, seed=seed, max_reply_length=2)[0]) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n": 0}, "n and max_reply_length of 1 or more, got 0 and 4"),
        ({"prompts": [[5], []]}, "prompt 1 has 0 tokens"),
        ({"prompts": [opening(1, 256)]}, "prompt 0 has 256 tokens; expected 1 to 255"),
    ],
)
def test_what_cannot_be_sampled_is_a_sentence(params, change, says):
    given = {"prompts": PROMPTS[:1], "n": 1} | change
    with pytest.raises(ValueError, match=says):
        samples(make(params, 2), given["prompts"], given["n"], seed=seed, max_reply_length=4)


def test_nothing_is_asked_where_there_is_no_prompt(params):
    assert samples(make(params, 2), [], 4, seed=seed, max_reply_length=4) == []
