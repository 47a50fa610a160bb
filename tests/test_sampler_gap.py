"""What the trainer makes of the ids' log-probabilities when sampled: measured in every update, corrected if wanted."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from one_layer import CONFIG, all_logprobs, weights

from dfc.config import GrpoConfig, TrainingConfig
from dfc.models.lora import ALL_LINEAR, LoraConfig, merge
from dfc.models.sharding import make_mesh
from dfc.packing import Segment, micro_batches, pack
from dfc.training.rl import make_loss
from dfc.training.trainer import Trainer

HALF = dataclasses.replace(CONFIG, dtype="bfloat16")
ROW = 32
RATE = 0.1
UNROLLED = TrainingConfig(scan_layers=False, remat="none")
NAMES = {"sampler_gap/mean", "sampler_gap/max", "sampler_gap/kl"}


def alone(params, token_ids):
    """Log-probabilities [n] of one sequence by itself, the first one 0."""
    table = all_logprobs(params, np.pad(token_ids, (0, ROW - len(token_ids))))
    return jnp.concatenate([jnp.zeros(1), table[np.arange(len(token_ids) - 1), token_ids[1:]]])


@functools.cache
def honest():
    """Sequences as a float32 sampler of the weights leaves them; they fill rows, so that few programs are compiled."""
    rng, found = np.random.default_rng(1), []
    for length in (9, 14, 16, 20, 11, 6, 30, 15):
        mask = rng.random(length) < 0.9
        mask[0], mask[-1] = False, True
        token_ids = rng.integers(0, CONFIG.vocabulary, size=length).astype(np.int32)
        found.append(Segment(token_ids, mask, float(rng.normal()), np.asarray(alone(weights(), token_ids))))
    return found


@functools.cache
def sequences():
    """The same from a sampler that is off by up to 0.3."""
    rng = np.random.default_rng(3)
    off = [(s.sampled_logprobs + rng.uniform(-0.3, 0.3, len(s.token_ids))).astype(np.float32) for s in honest()]
    return [
        dataclasses.replace(s, sampled_logprobs=sampled_logprobs)
        for s, sampled_logprobs in zip(honest(), off, strict=True)
    ]


def cut(members, rows):
    return micro_batches(pack(members, ROW, rows), rows)


@functools.cache
def trainer(config=CONFIG, cap=0.0, mesh=None, lora=None):
    loss = make_loss(GrpoConfig(clip_ratio=0.2, kl_coefficient=0.0, importance_cap=cap), ROW)
    return Trainer(config, loss, optax.sgd(RATE), training=UNROLLED, mesh=mesh, lora=lora, workers=2)


def split_trainer():
    return trainer(cap=1.1, mesh=make_mesh(4, 1, 1, devices=jax.devices()[:4]))


def update(learner, members, rows=1, **options):
    params = learner.initial_params(weights())
    return learner.update(params, learner.initial_state(params), cut(members, rows), **options)


def expected_gap(found, batches):
    """The three numbers from log-probabilities per micro-batch, in float64."""
    pieces = [
        np.asarray(values, np.float64)[batch.mask > 0] - batch.sampled_logprobs[batch.mask > 0]
        for values, batch in zip(found, batches, strict=True)
    ]
    d = np.concatenate(pieces)
    return dict(zip(sorted(NAMES), (np.mean(np.exp(d) - 1 - d), np.abs(d).max(), np.abs(d).mean()), strict=True))


# ---- log-probabilities of what is trained -------------------------------------------------------------------------


def test_the_trainers_log_probabilities_are_those_of_each_sequence_alone():
    batches = cut(honest(), 1)
    assert len(batches) == 4
    found = trainer().logprobs(trainer().initial_params(weights()), batches)
    for values, batch in zip(found, batches, strict=True):
        np.testing.assert_allclose(values, batch.sampled_logprobs, atol=1e-4)


def test_the_trainers_log_probabilities_are_those_of_the_merged_adapters():
    lora = LoraConfig(rank=2, alpha=4.0, targets=ALL_LINEAR, dropout=0.5)
    learner = trainer(lora=lora)
    rng = np.random.default_rng(2)
    random_adapters = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape).astype(np.float32) * 0.2), learner.initial_params(weights())
    )
    batch = cut(honest(), 1)[0]
    (found,) = learner.logprobs(random_adapters, [batch], base_params=weights())
    merged = merge(weights(), random_adapters, lora.scale)
    (expected,) = trainer().logprobs(merged, [batch])
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(found - batch.sampled_logprobs).max() > 0.1
    with pytest.raises(ValueError, match="base: give the frozen weights with lora, and only then"):
        learner.logprobs(random_adapters, [batch])


# ---- the measurement ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("optax_promotion")
def test_in_float32_the_gap_of_right_log_probabilities_is_below_1e_4():
    gap = update(trainer(), honest(), 4).gap
    assert gap.keys() == NAMES
    assert 0 < gap["sampler_gap/mean"] <= gap["sampler_gap/max"] < 1e-4
    assert 0 <= gap["sampler_gap/kl"] < 1e-8


@pytest.mark.usefixtures("optax_promotion")
def test_a_bfloat16_trainer_reports_its_gap_to_a_float32_sampler_and_weighs_ids_by_it():
    learner, batches = trainer(HALF, cap=2.0), cut(honest(), 1)
    result = update(learner, honest())
    found = learner.logprobs(learner.initial_params(weights()), batches)
    # One bfloat16 program fuses, and so rounds, a little differently from another.
    assert result.gap == pytest.approx(expected_gap(found, batches), rel=0.1)
    assert result.gap["sampler_gap/mean"] > 1e-3
    on = np.concatenate([b.mask for b in batches]) > 0
    d = np.concatenate(found).astype(np.float64)[on] - np.concatenate([b.sampled_logprobs for b in batches])[on]
    assert result.metrics["importance_weight"] == pytest.approx(np.exp(d).mean(), abs=1e-4)
    assert result.metrics["importance_capped"] == 0


@pytest.mark.usefixtures("optax_promotion")
@pytest.mark.parametrize("kind", ["one micro-batch", "several", "split over devices"])
def test_the_gap_is_that_of_all_action_ids_however_they_are_cut(kind):
    learner = split_trainer() if kind == "split over devices" else trainer()
    batches = cut(sequences(), 1 if kind == "several" else 4)
    gap = update(learner, sequences(), 1 if kind == "several" else 4).gap
    right = [batch.sampled_logprobs for batch in cut(honest(), 1 if kind == "several" else 4)]
    assert gap == pytest.approx(expected_gap(right, batches), rel=1e-3)
    assert gap["sampler_gap/max"] > 0.2


@pytest.mark.usefixtures("optax_promotion")
def test_an_update_on_nothing_has_no_gap():
    assert update(split_trainer(), [], 4).gap == dict.fromkeys(NAMES, 0)


# ---- the correction -------------------------------------------------------------------------------------------------


@jax.jit
def one_gradient(params, token_ids, old, before, mask, advantage):
    """Corrected GRPO of one padded sequence, written out, with a cap of 1.1 and clips at 0.8 and 1.2."""

    def total(params):
        table = all_logprobs(params, token_ids)
        logp = jnp.concatenate([jnp.zeros(1), table[jnp.arange(ROW - 1), token_ids[1:]]])
        ratio = jnp.exp(logp - before)
        clipped = jnp.where(ratio > 1.2, 1.2, jnp.where(ratio < 0.8, 0.8, ratio))
        weight = jnp.where(before - old > jnp.log(1.1), 1.1, jnp.exp(before - old))
        return -(mask * weight * jnp.minimum(ratio * advantage, clipped * advantage)).sum()

    return jax.grad(total)(params)


def expected_step(params, sampled_by, members):
    """Weights after one step of plain gradient descent on the mean over action ids."""
    gradients = []
    for s in members:
        room = (0, ROW - len(s.token_ids))
        padded = [
            np.pad(x, room)
            for x in (s.token_ids, s.sampled_logprobs, alone(sampled_by, s.token_ids), s.mask.astype(np.float32))
        ]
        gradients.append(one_gradient(params, *padded, np.float32(s.advantage)))
    count = sum(int(s.mask.sum()) for s in members)
    return jax.tree.map(lambda p, *g: np.asarray(p) - RATE * sum(map(np.asarray, g)) / count, params, *gradients)


def assert_close(tree, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=0), tree, other)


@pytest.mark.usefixtures("optax_promotion")
def test_both_updates_of_a_corrected_iteration_are_the_steps_of_the_formula():
    """The second one's ratio is against the weights that sampled, asked before the first, which are gone by then."""
    learner, shares = trainer(cap=1.1), (sequences()[:4], sequences()[4:])
    params = learner.initial_params(jax.tree.map(jnp.array, weights()))
    later = learner.logprobs(params, cut(shares[1], 1))
    first = learner.update(params, learner.initial_state(params), cut(shares[0], 1), donate=True)
    expected = expected_step(weights(), weights(), shares[0])
    assert_close(first.params, expected)
    assert first.metrics["ratio"] == 1
    assert 0 < first.metrics["importance_capped"] < 1
    second = learner.update(first.params, first.optimizer_state, cut(shares[1], 1), proximal=later)
    assert second.metrics["ratio"] != 1
    assert_close(second.params, expected_step(jax.tree.map(jnp.asarray, expected), weights(), shares[1]))


@pytest.mark.usefixtures("optax_promotion")
def test_the_correction_works_on_rows_split_over_devices():
    found = []
    for learner, rows in ((trainer(cap=1.1), 1), (split_trainer(), 4)):
        before = learner.logprobs(learner.initial_params(weights()), cut(sequences(), rows))
        found.append(update(learner, sequences(), rows, proximal=before))
    assert_close(found[0].params, found[1].params)
    assert found[1].metrics == pytest.approx(found[0].metrics, abs=1e-5)


@pytest.mark.usefixtures("optax_promotion")
def test_without_a_cap_the_ratio_is_against_the_samplers_log_probabilities():
    right = np.concatenate(
        [(s.sampled_logprobs - t.sampled_logprobs)[s.mask] for s, t in zip(honest(), sequences(), strict=True)]
    )
    found = update(trainer(), sequences())
    assert set(found.metrics) == {"ratio", "clip_fraction", "negative_logprob"}
    assert found.metrics["ratio"] == pytest.approx(np.exp(right).mean(), rel=1e-4)
    assert abs(found.metrics["ratio"] - 1) > 1e-3
    # Nor is a fourth argument a correction then.
    (batch,), loss = cut(sequences(), 4), make_loss(GrpoConfig(kl_coefficient=0.0), ROW)
    three, four = (loss(batch.sampled_logprobs + 0.1, batch, None, *more) for more in ((), (batch.sampled_logprobs,)))
    jax.tree.map(np.testing.assert_array_equal, three, four)


def test_log_probabilities_must_be_given_for_every_micro_batch():
    with pytest.raises(ValueError, match=r"proximal: 1 arrays for \d micro-batches; give one for each"):
        update(trainer(cap=2.0), sequences(), 1, proximal=[np.zeros((1, ROW), np.float32)])
