"""The sets that tokens were sampled among, from sampler to trainer: against numpy, id by id, and a dense model."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from rl_episodes import episode
from test_sampling import CONFIGS, remaining, settings_of
from tiny_models import random_params, tiny

from dfc.config import SamplingConfig
from dfc.episodes import from_bytes, to_bytes
from dfc.errors import TrainingError
from dfc.inference.constraints import ActionTrie, action_replies
from dfc.inference.engine import Engine
from dfc.inference.sampling import sample_tokens
from dfc.inference.stop_strings import StopStrings
from dfc.losses import grpo_loss
from dfc.models.transformer import bind
from dfc.packing import Segment, pack, packed, segment
from dfc.rollout.samples import samples
from dfc.samples import MOST_CHOICES, Choices, Sample, choices_metrics
from dfc.training import rl
from dfc.training.batch_logprobs import batch_logprobs

FILTERS = {name: config for name, config in CONFIGS.items() if config.filtered and name != "top_k_1"}
COMBINATIONS = {
    "top-k": SamplingConfig(top_k=5),
    "top-p": SamplingConfig(top_p=0.8),
    "min-p": SamplingConfig(min_p=0.3),
    "hot min-p": SamplingConfig(temperature=1.3, min_p=0.1),
    "top-k and top-p": SamplingConfig(temperature=0.7, top_k=9, top_p=0.9),
    "top-k and min-p": SamplingConfig(top_k=4, min_p=0.2),
    "top-p and min-p": SamplingConfig(temperature=2.0, top_p=0.9, min_p=0.25),
    "all": SamplingConfig(temperature=1.5, top_k=12, top_p=0.9, min_p=0.05),
}
_sample = jax.jit(sample_tokens, static_argnames=("filters", "most_kept"))


def sampled(logits, sampling, *, most, allowed=None, seed=0):
    rows, filters = settings_of(sampling, len(logits))
    numbers = np.random.default_rng(seed).random(len(logits), np.float32)
    how = {"filters": filters, "allowed": allowed}
    found = _sample(jnp.asarray(logits), numbers, rows, most_kept=most, **how)
    return jax.tree.map(np.asarray, found), jax.tree.map(np.asarray, _sample(jnp.asarray(logits), numbers, rows, **how))


# ---- the sampler ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", FILTERS.values(), ids=FILTERS.keys())
def test_a_set_is_what_the_filters_leave_by_their_definitions(sampling):
    logits = (2 * np.random.default_rng(1).normal(size=(16, 40))).astype(np.float32)
    found, plain = sampled(logits, sampling, most=40)
    np.testing.assert_array_equal(found.token_ids, plain.token_ids)
    np.testing.assert_allclose(found.sampled_logprobs, plain.sampled_logprobs, atol=1e-6, rtol=0)
    np.testing.assert_array_equal(found.plain_logprobs, plain.plain_logprobs)
    for row, token_ids, kept, token, logprob in zip(
        logits, found.sets.token_ids, found.sets.kept, found.token_ids, found.sampled_logprobs, strict=True
    ):
        p = remaining(row, sampling)
        assert token_ids[:kept].tolist() == np.flatnonzero(p).tolist()
        assert (token_ids[kept:] == -1).all()
        assert logprob == pytest.approx(np.log(p[token]), abs=1e-5)


def test_sets_of_a_large_vocabulary_are_whole_up_to_their_room_and_then_the_likeliest():
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(6, 3001)).astype(np.float32)
    logits[5] = 0.25  # all alike: of as likely ones the first
    settings = [SamplingConfig(top_k=k) for k in (3, 65, 511, 512, 700)] + [SamplingConfig(min_p=0.5)]
    found, _ = sampled(logits, settings, most=512)
    assert found.sets.kept.tolist() == [3, 65, 511, 512, 700, 3001]
    for row, setting, token_ids, kept, token, logprob in zip(
        logits, settings, found.sets.token_ids, found.sets.kept, found.token_ids, found.sampled_logprobs, strict=True
    ):
        size = min(kept, 512)
        likeliest = np.sort(np.argsort(-row, kind="stable")[:size])
        assert token_ids[:size].tolist() == likeliest.tolist(), setting
        weights = np.exp(row[likeliest].astype(np.float64))
        assert logprob == pytest.approx(np.log(np.exp(row[token]) / weights.sum()), abs=1e-5)
        assert token in likeliest


def test_rows_without_a_filter_are_as_without_sets_and_a_greedy_one_has_one_token():
    logits = np.random.default_rng(3).normal(size=(4, 300)).astype(np.float32)
    logits[3, [7, 9]] = 9.0
    settings = [
        SamplingConfig(),
        SamplingConfig(temperature=1.7),
        SamplingConfig(min_p=0.2),
        SamplingConfig(temperature=0),
    ]
    found, plain = sampled(logits, settings, most=300)
    free = [0, 1, 3]
    for name in ("token_ids", "sampled_logprobs", "plain_logprobs"):
        np.testing.assert_array_equal(getattr(found, name)[free], getattr(plain, name)[free])
    assert found.sets.kept[:2].tolist() == [0, 0]
    assert found.sets.kept[3] == 1
    assert found.sets.token_ids[3].tolist() == [7] + [-1] * 299


def test_a_set_holds_allowed_tokens_only():
    logits = np.random.default_rng(4).normal(size=(8, 200)).astype(np.float32)
    allowed = np.random.default_rng(5).random((8, 200)) < 0.05
    allowed[:, 17] = True
    sampling = SamplingConfig(temperature=1.3, min_p=0.3)
    found, _ = sampled(logits, sampling, most=200, allowed=jnp.asarray(allowed))
    for row, of, token_ids, kept in zip(logits, allowed, found.sets.token_ids, found.sets.kept, strict=True):
        assert token_ids[:kept].tolist() == np.flatnonzero(remaining(row, sampling, np.flatnonzero(of))).tolist()


def test_tokens_of_a_set_are_sampled_as_often_as_they_are_likely():
    logits = np.tile(np.random.default_rng(6).normal(size=200).astype(np.float32), (4_000, 1))
    found, _ = sampled(logits, SamplingConfig(min_p=0.4, temperature=1.2), most=64)
    p = remaining(logits[0], SamplingConfig(min_p=0.4, temperature=1.2))
    shares = np.bincount(found.token_ids, minlength=200) / len(logits)
    assert np.abs(shares - p).max() < 4 * np.sqrt(0.25 / len(logits))


@pytest.mark.parametrize("sampling", COMBINATIONS.values(), ids=COMBINATIONS.keys())
def test_filters_apply_in_the_order_of_transformers(sampling):
    """Oracle: `generate` of a model whose logits are given, and the scores from which it samples."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=120, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(100)
    names = {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    how = {"do_sample": True, "max_new_tokens": 1, "output_scores": True, "output_logits": True}
    ids = torch.arange(1, 25).reshape(8, 3)
    theirs = model.generate(ids, return_dict_in_generate=True, pad_token_id=0, **how, **names)
    found, _ = sampled(theirs.logits[0].numpy(), sampling, most=120)
    for scores, token_ids, kept in zip(theirs.scores[0], found.sets.token_ids, found.sets.kept, strict=True):
        assert token_ids[:kept].tolist() == torch.nonzero(torch.isfinite(scores))[:, 0].tolist()
    assert len(set(found.sets.kept.tolist())) > 1 or sampling.top_k


# ---- as arrays ------------------------------------------------------------------------------------------------------


def test_sets_are_cut_joined_and_laid_out():
    one = Choices.of([[4, 7], [], [1, 2, 9]])
    assert one.sizes.tolist() == [2, 0, 3]
    assert one.head(2).table().tolist() == [[4, 7], [-1, -1]]
    assert one.table().tolist() == [[4, 7, -1], [-1, -1, -1], [1, 2, 9]]
    whole = Choices.placed(6, {4: Choices.of([[3]]), 0: one})
    assert whole.table().tolist() == [[4, 7, -1], [-1] * 3, [1, 2, 9], [-1] * 3, [3, -1, -1], [-1] * 3]
    assert Choices.placed(5, {4: one}).table().tolist()[4] == [4, 7]
    assert Choices.placed(3, {1: Choices.of([[], []]), 9: one}) is None
    large = Choices.of([range(MOST_CHOICES), [5]], [1000, 1])
    assert large.sizes.tolist() == [512, 1]
    both = Sample(np.asarray([3, 5], np.int32), np.ones(2, bool), np.zeros(2, np.float32), choices=large)
    assert choices_metrics([both]) == {"kept_tokens/mean": 500.5, "kept_tokens/max": 1000, "kept_tokens/cut": 0.5}
    assert large.table().shape == (2, 512)


def test_sets_that_do_not_fit_each_other_are_refused():
    with pytest.raises(ValueError, match="got one at 1 where one ends at 2"):
        Choices.placed(6, {0: Choices.of([[1], [2]]), 1: Choices.of([[3]])})
    with pytest.raises(ValueError, match="arrays of an older version"):
        Sample.from_arrays({"choices": np.zeros((3, 2), np.int32)})


def test_a_wide_set_widens_no_array_before_it_is_read():
    """Sets of three tokens in 64 rows, and one of 512: the micro-batches of an update hold them end to end."""
    narrow, wide = [[]] + [[3, 4, 5]] * 63, [[]] + [range(512)] + [[3, 4, 5]] * 62
    mask = np.arange(64) > 0
    ids = np.full(64, 3, np.int32)
    segments = [Segment(ids, mask, 1.0, None, Choices.of(narrow)) for _ in range(63)]
    found = packed([Segment(ids, mask, 1.0, None, Choices.of(wide)), *segments], 64, 8)
    assert {batch.choices.shape for batch in found} == {(8, 64, 512)}
    held = sum(row.token_ids.nbytes + row.kept.nbytes for batch in found for row in batch.choices.rows)
    assert held < 4 * 64 * 64 * 4 + 4 * 512
    whole = np.concatenate([np.asarray(batch.choices) for batch in found])
    assert (whole >= 0).sum() == 63 * 63 * 3 + 512 + 62 * 3
    for batch in found:  # as the devices of a host ask for their rows
        np.testing.assert_array_equal(batch.choices[2:5, :, :7], np.asarray(batch.choices)[2:5, :, :7])


def test_a_filter_that_float32_rounds_to_none_is_none():
    assert not SamplingConfig(top_p=1 - 1e-9).filtered
    assert not SamplingConfig(min_p=1e-60).filtered
    assert SamplingConfig(top_p=0.99).filtered


def test_a_run_refuses_tokens_that_were_sampled_with_a_filter_and_came_without_their_sets():
    with_sets = episode()
    rl._require_sets([with_sets])
    for choices in (None, Choices.of([[]] * len(with_sets.sample.mask))):
        without = dataclasses.replace(with_sets, sample=dataclasses.replace(with_sets.sample, choices=choices))
        with pytest.raises(TrainingError, match="kept_sets=True"):
            rl._require_sets([with_sets, without])


# ---- the engine, and the trainer's log-probabilities ----------------------------------------------------------------

MODEL = tiny(vocabulary=64, layers=2)


@functools.cache
def params():
    return random_params(MODEL)


def engine(sampling, **more):
    return Engine(MODEL, params(), slots=4, max_length=48, stop_token_ids=frozenset({63}), sampling=sampling, **more)


def trained(found, temperature):
    """Log-probabilities of samples as the trainer computes them, beside those of the sampler."""
    batch = pack([segment(sample, 1.0) for sample in found], 64, 2)
    values = jax.jit(lambda: batch_logprobs(MODEL, params(), batch, None, temperature))()
    return batch, np.asarray(values)


@pytest.mark.parametrize("sampling", COMBINATIONS.values(), ids=COMBINATIONS.keys())
def test_the_trainer_has_the_log_probabilities_of_the_sampler(sampling):
    """On-policy, every likelihood ratio is 1."""
    made = engine(sampling, kept_sets=True)
    found = samples(made, [[1, 2, 3], [9, 8]], 4, seed=lambda i, j: 10 * i + j, max_reply_length=12)
    flat = [sample for group in found for sample in group]
    batch, values = trained(flat, sampling.temperature)
    np.testing.assert_allclose(values, batch.sampled_logprobs, atol=1e-5, rtol=0)
    loss = grpo_loss(values, batch.sampled_logprobs, batch.advantages, batch.mask)
    assert float(loss.metric_means["ratio"]) == pytest.approx(1, abs=1e-5)
    _, uncorrected = trained([Sample(s.token_ids, s.mask, s.sampled_logprobs) for s in flat], sampling.temperature)
    assert np.abs(uncorrected - batch.sampled_logprobs).max() > 0.01
    without = samples(engine(sampling), [[1, 2, 3], [9, 8]], 4, seed=lambda i, j: 10 * i + j, max_reply_length=12)
    for sample, plain in zip(flat, itertools.chain(*without), strict=True):
        np.testing.assert_array_equal(sample.token_ids, plain.token_ids)
        assert plain.choices is None
        assert (sample.choices.kept[sample.mask] > 0).all()
        assert not sample.choices.kept[~sample.mask].any()


def asked(made, slot, count, **more):
    made.ask(slot, count, **more)
    while made.busy:
        for reply in made.step():
            if reply.slot == slot:
                return reply
    raise AssertionError("no reply")


@functools.partial(jax.jit, static_argnums=0)
def dense_logits(config, params, ids):
    """Logits [n, V] behind each token of a conversation."""
    model = bind(config, params, None)
    return model.logits(model(ids[None], jnp.arange(len(ids))[None], jnp.ones_like(ids)[None]))[0]


def behind(tokens):
    """Logits behind each token, computed in one shape: what follows changes nothing before it."""
    return np.asarray(dense_logits(MODEL, params(), np.asarray([*tokens, *[0] * (48 - len(tokens))], np.int32)))


def follows(reply, context, sampling):
    """Whether each token's set is what filters leave of the model's distribution behind the context, in numpy."""
    logits, table = behind([*context, *reply.token_ids]), reply.choices.table()
    for place in range(len(reply.token_ids)):
        left = np.flatnonzero(remaining(logits[len(context) + place - 1], sampling))
        assert table[place][table[place] >= 0].tolist() == left.tolist()
    assert len(table) == len(reply.token_ids)


def test_sets_travel_through_forks_parking_rolled_back_and_cut_replies():
    sampling = SamplingConfig(temperature=1.4, min_p=0.2)
    made = engine(sampling, kept_sets=True, ends=StopStrings(["<7>"], lambda ids: "".join(f"<{i}>" for i in ids)))
    slot, context = made.open(5), [1, 2, 3, 4]
    made.append(slot, context)
    first = asked(made, slot, 6)
    follows(first, context, sampling)
    beside = made.fork(slot, 6)
    made.append(beside, [11])
    context = [*context, *first.token_ids]
    follows(asked(made, beside, 6), [*context, 11], sampling)
    made.close(beside)
    again = made.unpark(made.park(slot))
    made.append(again, [12, 13])
    second = asked(made, again, 6)
    follows(second, [*context, 12, 13], sampling)
    made.roll_back(again, len(context) + 2, seed=99)
    follows(asked(made, again, 6), [*context, 12, 13], sampling)
    for seed in range(20):  # a reply that a stop string ends, in a call that sampled more
        slot = made.open(seed)
        made.append(slot, [seed + 1])
        reply = asked(made, slot, 24)
        follows(reply, [seed + 1], sampling)
        made.close(slot)


def test_a_constrained_reply_is_sampled_among_the_actions_that_filters_leave():
    sampling = SamplingConfig(temperature=2.0, min_p=0.5)
    made = engine(sampling, kept_sets=True)
    words = {"a": [5, 6], "b": [5, 7], "c": [8], "d": [9, 6, 6], "e": [5, 6, 9]}
    trie = ActionTrie.build(action_replies(list(words), words.__getitem__, [63]))
    for seed in range(8):
        slot = made.open(seed)
        made.append(slot, [1, 2, 3])
        reply = asked(made, slot, 6, actions=trie)
        logits = behind([1, 2, 3, *reply.token_ids])
        place = trie.after([])
        for number, (token_id, row) in enumerate(zip(reply.token_ids, reply.choices.table(), strict=True)):
            left = remaining(logits[2 + number], sampling, np.asarray(place.choices))
            assert row[row >= 0].tolist() == np.flatnonzero(left).tolist()
            place = place.after([token_id])
        assert place.complete
        made.close(slot)


# ---- beside enumeration ---------------------------------------------------------------------------------------------


def test_value_and_gradient_are_those_of_all_replies_one_by_one():
    """Of the mean reward over every reply of two tokens that the filter leaves, from a dense model, masked."""
    model, prompt, rewards = tiny(vocabulary=12, layers=1), [3, 1], np.random.default_rng(8).normal(size=(12, 12))
    weights = random_params(model)
    sampling = SamplingConfig(temperature=1.3, min_p=0.1)

    def logits(params, tokens):
        return dense_logits(model, params, jnp.asarray([*tokens, *[0] * (3 - len(tokens))]))[len(tokens) - 1]

    first = np.flatnonzero(remaining(np.asarray(logits(weights, prompt)), sampling))
    sets = {a: np.flatnonzero(remaining(np.asarray(logits(weights, [*prompt, a])), sampling)) for a in first.tolist()}
    assert 2 < len(first) < 12
    replies = [(a, b) for a in sets for b in sets[a].tolist()]
    mask = np.asarray([False, False, True, True])
    rows = [
        Segment(np.asarray([*prompt, a, b], np.int32), mask, rewards[a, b], None, Choices.of([[], [], first, sets[a]]))
        for a, b in replies
    ]
    batch = pack(rows, 4, 1)  # a reply a row

    def ours(params):
        chance = jnp.exp(batch_logprobs(model, params, batch, None, sampling.temperature).sum(axis=1))
        return (chance * batch.advantages[:, -1]).sum(), chance.sum()

    def dense(params):
        total = 0.0
        for a in sets:
            p = jax.nn.softmax(logits(params, prompt)[first] / sampling.temperature)[first.tolist().index(a)]
            q = jax.nn.softmax(logits(params, [*prompt, a])[sets[a]] / sampling.temperature)
            total += p * (q * rewards[a][sets[a]]).sum()
        return total

    (value, chance), gradient = jax.jit(jax.value_and_grad(ours, has_aux=True))(weights)
    expected, other = jax.jit(jax.value_and_grad(dense))(weights)
    assert float(chance) == pytest.approx(1, abs=1e-5)
    assert float(value) == pytest.approx(float(expected), abs=1e-5)
    for mine, theirs in zip(jax.tree.leaves(gradient), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-5 * max(1, float(jnp.abs(theirs).max())))


def test_sets_come_back_from_another_host():
    (told,) = from_bytes(to_bytes([episode()]))
    np.testing.assert_array_equal(told.sample.choices.table(), episode().sample.choices.table())
