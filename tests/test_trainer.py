"""One update against calculations that share nothing with it but the model."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import one_layer
import optax
import pytest
from one_layer import CONFIG, all_logprobs

from dfc.config import GrpoConfig, OptimizerConfig
from dfc.errors import DivergenceError
from dfc.losses import Loss
from dfc.models.sharding import make_mesh
from dfc.packing import Segment, empty_batch, micro_batches, pack
from dfc.training import batch_logprobs as projecting
from dfc.training import divergence
from dfc.training.batch_logprobs import action_capacity, batch_logprobs
from dfc.training.optimizer import make_optimizer
from dfc.training.rl import make_loss
from dfc.training.trainer import Trainer

ROW = 32
GRPO = GrpoConfig(clip_ratio=0.1, kl_coefficient=0.2)
params, reference_params = one_layer.params, one_layer.reference_params  # the fixtures


def sequences(lengths=(9, 14, 5, 20, 11, 7, 30, 4), seed=0):
    rng, found = np.random.default_rng(seed), []
    for length in lengths:
        mask = rng.random(length) < 0.4
        mask[0], mask[-1] = False, True  # nothing predicts a first id
        token_ids = rng.integers(0, CONFIG.vocabulary, size=length).astype(np.int32)
        logprobs = (-4 + 0.3 * rng.normal(size=length)).astype(np.float32)
        found.append(Segment(token_ids, mask, float(rng.normal()), logprobs))
    return found


@functools.partial(jax.jit, static_argnums=(0, 3))
def logprobs(config, params, batch, capacity):
    return batch_logprobs(config, params, batch, capacity)


def full_logprobs(params, token_ids):
    """Log-probabilities [n - 1] of ids[1:]; the padding behind them is not seen from before."""
    tokens = np.zeros(ROW, np.int32)
    tokens[: len(token_ids)] = token_ids
    return all_logprobs(params, tokens)[np.arange(len(token_ids) - 1), token_ids[1:]]


def by_segment(batch, values):
    """Values at drawn ids, per sequence, known by its ids."""
    values = np.asarray(values)
    assert not values[batch.mask == 0].any()
    found = {}
    for row in range(len(values)):
        for segment in range(1, batch.segments[row].max() + 1):
            places = batch.segments[row] == segment
            sampled = places & (batch.mask[row] > 0)
            found[tuple(batch.tokens[row, places].tolist())] = values[row, sampled]
    return found


def test_packed_log_probabilities_are_those_of_each_sequence_alone(params):
    batch = pack(sequences(), ROW, 1)
    assert batch.segments.max() >= 2
    packed = by_segment(batch, logprobs(CONFIG, params, batch, action_capacity(batch)))
    assert len(packed) == 8
    for sequence in sequences():
        alone = np.asarray(full_logprobs(params, sequence.token_ids))[sequence.mask[1:]]
        np.testing.assert_allclose(packed[tuple(sequence.token_ids.tolist())], alone, atol=1e-4, rtol=0)


def test_log_probabilities_are_taken_at_the_temperature_of_sampling(params):
    (sequence,) = sequences((17,))
    batch = pack([sequence], ROW, 1)
    found = jax.jit(lambda weights: batch_logprobs(CONFIG, weights, batch, ROW, 0.7))(params)
    table = np.asarray(all_logprobs(params, batch.tokens[0]), np.float64) / 0.7
    cooled = table - np.log(np.exp(table).sum(axis=-1, keepdims=True))
    expected = cooled[np.arange(16), sequence.token_ids[1:]] * sequence.mask[1:]
    np.testing.assert_allclose(found[0, 1:17], expected, atol=1e-4, rtol=0)


def test_the_capacity_does_not_matter_as_long_as_it_suffices(params):
    batch = pack(sequences(), ROW, 1)
    needed = int(batch.mask.sum())
    results = [logprobs(CONFIG, params, batch, capacity) for capacity in (needed, batch.mask.size)]
    np.testing.assert_allclose(results[0], results[1], atol=1e-6)


@pytest.mark.parametrize(("needed", "capacity"), [(0, 16), (16, 16), (17, 32), (32, 32), (33, 64), (64, 64)])
def test_the_capacity_is_the_smallest_share_that_holds_every_action(needed, capacity):
    batch = empty_batch(2, 32)
    batch.mask.reshape(-1)[np.random.default_rng(needed).permutation(64)[:needed]] = 1
    assert action_capacity(batch) == capacity


# ---- updates ----------------------------------------------------------------------------------------------------


@functools.cache
def trainer(kind="sgd"):
    optimizer = optax.sgd(0.1) if kind == "sgd" else make_optimizer(OptimizerConfig(learning_rate=1e-2), 0)
    return Trainer(CONFIG, make_loss(GRPO, ROW), optimizer)


def close(tree, other, atol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol, rtol=0), tree, other)


@pytest.mark.usefixtures("optax_promotion")
def test_an_update_is_the_gradient_step_of_the_mean_loss(params, reference_params):
    """One sequence: GRPO written out from its formula, differentiated as a whole, applied by hand."""
    (sequence,) = sequences((17,))
    sampled = sequence.mask[1:]
    old, behind = sequence.sampled_logprobs[1:], np.asarray(full_logprobs(reference_params, sequence.token_ids))

    @jax.jit
    def mean_loss(weights):
        logp = full_logprobs(weights, sequence.token_ids)
        ratio, gap = jnp.exp(logp - old), behind - logp
        clipped = jnp.where(ratio > 1.1, 1.1, jnp.where(ratio < 0.9, 0.9, ratio))
        gain = jnp.minimum(ratio * sequence.advantage, clipped * sequence.advantage)
        return ((-gain + 0.2 * (jnp.exp(gap) - gap - 1)) * sampled.astype(np.float32)).sum() / sampled.sum()

    loss, gradient = jax.value_and_grad(mean_loss)(params)
    update = trainer().update(
        params, trainer().initial_state(params), micro_batches(pack([sequence], ROW, 2), 2), reference_params
    )
    assert update.loss == pytest.approx(float(loss), abs=1e-5)
    assert update.weight == sampled.sum()
    norm = np.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in map(np.asarray, jax.tree.leaves(gradient))))
    assert update.gradient_norm == pytest.approx(norm, rel=1e-4)
    assert norm > 0.1
    close(update.params, jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), 1e-5)


@pytest.mark.usefixtures("optax_promotion")
@pytest.mark.parametrize("kind", ["packed", "alone", "long rows"])
def test_packing_and_micro_batches_do_not_change_an_update(params, reference_params, kind):
    state = trainer().initial_state(params)
    whole = micro_batches(pack(sequences(), ROW, 4), 4)
    pieces = {
        "packed": micro_batches(pack(sequences(), ROW, 1), 1),
        "alone": [batch for s in sequences() for batch in micro_batches(pack([s], ROW, 1), 1)],
        "long rows": micro_batches(pack(sequences(), 128, 1), 1),
    }[kind]
    first, second = (trainer().update(params, state, batches, reference_params) for batches in (whole, pieces))
    assert len(whole) == 1
    close(first.params, second.params, 1e-5)
    assert second.loss == pytest.approx(first.loss, abs=1e-5)
    assert second.gradient_norm == pytest.approx(first.gradient_norm, rel=1e-4)
    assert second.weight == first.weight == sum(s.mask.sum() for s in sequences())
    assert second.metrics == pytest.approx(first.metrics, abs=1e-5)
    assert set(first.metrics) == {"ratio", "clip_fraction", "negative_logprob", "kl"}


@pytest.mark.usefixtures("optax_promotion")
def test_micro_batches_side_by_side_give_the_very_same_update(params, reference_params):
    batches = micro_batches(pack(sequences(), ROW, 1), 1)
    assert len(batches) > 3
    state = trainer().initial_state(params)
    side_by_side = Trainer(CONFIG, make_loss(GRPO, ROW), optax.sgd(0.1), workers=3)
    one, three = (t.update(params, state, batches, reference_params) for t in (trainer(), side_by_side))
    jax.tree.map(np.testing.assert_array_equal, one.params, three.params)
    assert (one.loss, one.gradient_norm, one.metrics) == (three.loss, three.gradient_norm, three.metrics)


@pytest.mark.usefixtures("optax_promotion")
def test_rows_split_over_devices_do_not_change_an_update(params, reference_params):
    mesh = make_mesh(4, 1, 1, devices=jax.devices()[:4])
    split = Trainer(CONFIG, make_loss(GRPO, ROW), optax.sgd(0.1), mesh=mesh)
    batches = micro_batches(pack(sequences(), ROW, 4), 4)
    state = trainer().initial_state(params)
    first, second = (t.update(params, state, batches, reference_params) for t in (trainer(), split))
    close(first.params, second.params, 1e-5)
    assert second.loss == pytest.approx(first.loss, abs=1e-5)
    assert second.weight == first.weight
    assert len(jax.tree.leaves(second.params)[0].sharding.device_set) == 4


@pytest.mark.usefixtures("optax_promotion")
def test_the_weights_given_are_left_as_they_were(params):
    before = jax.tree.map(np.array, params)
    state = trainer().initial_state(params)
    batches = micro_batches(pack(sequences(), ROW, 4), 4)
    first = trainer().update(params, state, batches, params)
    again = trainer().update(params, state, batches, params)
    close(params, before, 0)
    close(first.params, again.params, 0)
    # A policy compared with itself has no divergence.
    assert first.metrics["kl"] == 0


@pytest.mark.usefixtures("optax_promotion")
@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_an_update_on_nothing_leaves_the_weights(params, reference_params, kind):
    state = trainer(kind).initial_state(params)
    update = trainer(kind).update(params, state, micro_batches(pack([], ROW, 4), 4), reference_params)
    assert (update.loss, update.gradient_norm, update.weight) == (0, 0, 0)
    assert set(update.metrics.values()) == {0}
    close(update.params, params, 0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(update.optimizer_state))


@pytest.mark.usefixtures("optax_promotion")
def test_updates_lower_the_loss(params):
    """Imitation: the probability of drawn ids rises over a few steps."""

    def imitate(values, batch, _):
        sampled = jnp.asarray(batch.mask)
        return Loss(-(values * sampled).sum(), sampled.sum(), {})

    learner = Trainer(CONFIG, imitate, make_optimizer(OptimizerConfig(learning_rate=1e-2), 0))
    batches = micro_batches(pack(sequences(), ROW, 4), 4)
    weights, state, losses = params, learner.initial_state(params), []
    for _ in range(8):
        update = learner.update(weights, state, batches)
        weights, state = update.params, update.optimizer_state
        losses.append(update.loss)
    assert losses[-1] < losses[0] - 0.5


def test_only_action_positions_are_projected_to_the_vocabulary(params, monkeypatch):
    seen = []

    def spy(hidden, embedding, targets, **head):
        assert head == {"temperature": 1, "soft_cap": None, "vocab_shards": 1, "token_chunk": None}
        seen.append((hidden.shape, targets.shape))
        return jnp.zeros(targets.shape) + embedding.sum() * 0

    monkeypatch.setattr(projecting, "token_logprobs", spy)
    batch = pack(sequences(), ROW, 1)
    jax.eval_shape(lambda weights: batch_logprobs(CONFIG, weights, batch, 40), params)
    assert seen == [((40, CONFIG.width), (40,))]


# ---- what is refused, and what a stop leaves ----------------------------------------------------------------------


def trainer_of(rate):
    return Trainer(CONFIG, make_loss(GRPO, ROW), make_optimizer(OptimizerConfig(learning_rate=rate, clip_norm=1e30), 9))


@pytest.mark.usefixtures("optax_promotion")
@pytest.mark.parametrize("rate", [10.0, 1e30, 3e38])
def test_the_first_update_at_a_rate_that_explodes_is_refused(params, rate):
    trainer = trainer_of(rate)
    start = trainer.initial_params(params)
    trainer.bound_growth(start)
    batches = micro_batches(pack(sequences(), ROW, 4), 4)
    with pytest.raises(DivergenceError, match=r"the largest weight of \['\w+'\].* would be .* training.max_growth"):
        trainer.update(start, trainer.initial_state(start), batches, reference_params=trainer.frozen_params(params))


@pytest.mark.usefixtures("optax_promotion")
def test_an_update_several_times_the_size_of_the_model_is_refused(params):
    trainer = trainer_of(0.3)
    start = trainer.initial_params(params)
    trainer.bound_growth(start)
    batches = micro_batches(pack(sequences(), ROW, 4), 4)
    with pytest.raises(
        DivergenceError, match=r"change the weights by \S+ of their norm, above training.max_update=0.5"
    ):
        trainer.update(start, trainer.initial_state(start), batches, reference_params=trainer.frozen_params(params))


def test_the_size_of_an_update_is_that_of_all_arrays_together():
    tree = {"a": np.float32([3.0, 0.0]), "b": np.float32([[4.0, 0.0]])}
    changes = {"a": np.float32([0.0, 6.0]), "b": np.float32([[0.0, 8.0]])}
    assert float(divergence.share(tree, changes)) == 2.0
    # Adapters whose arrays are 0, and models that begin near it, are measured as if their weights were 0.01.
    nothing = jax.tree.map(np.zeros_like, tree)
    np.testing.assert_allclose(divergence.share(nothing, changes), 10.0 / (0.01 * 2), rtol=1e-6)
    assert float(divergence.share(nothing, nothing)) == 0.0


@pytest.mark.usefixtures("optax_promotion")
def test_a_stop_between_micro_batches_changes_nothing(params):
    trainer = trainer_of(1e-2)
    start = trainer.initial_params(params)
    state = trainer.initial_state(start)
    batches = micro_batches(pack(sequences(), ROW, 2), 2)
    assert len(batches) > 1
    looks = []

    def check_stop():
        looks.append(None)
        if len(looks) == 2:
            raise KeyboardInterrupt

    frozen_params = trainer.frozen_params(params)
    with pytest.raises(KeyboardInterrupt):
        trainer.update(start, state, batches, reference_params=frozen_params, donate=True, check_stop=check_stop)
    assert len(looks) == 2
    whole = trainer.update(start, state, batches, reference_params=frozen_params, check_stop=lambda: None)
    expected = trainer.update(start, state, batches, reference_params=frozen_params)
    jax.tree.map(np.testing.assert_array_equal, whole.params, expected.params)


def test_weights_may_grow_within_bounds_only_and_must_be_finite():
    tree = {"a": np.zeros(2), "b": np.zeros(3)}
    allowed = divergence.bounds(np.float32([0.02, 300.0]), 10.0)
    np.testing.assert_array_equal(allowed, np.float32([10.0, 3000.0]))
    fine = {"loss": 1.0, "gradient_norm": 2.0, "moved": 0.5, "most": 0.5}
    divergence.refuse(tree, np.float32([10.0, 3000.0]), allowed, **fine)
    divergence.refuse(tree, np.float32([1e9, 1e9]), None, **fine)
    for found, name in (([10.1, 1.0], "a"), ([1.0, 3001.0], "b"), ([np.nan, 1.0], "a"), ([1.0, np.inf], "b")):
        with pytest.raises(DivergenceError, match=rf"the largest weight of \['{name}'\] would be"):
            divergence.refuse(tree, np.float32(found), allowed, **fine)
    for moved in (0.51, np.inf, np.nan):
        with pytest.raises(DivergenceError, match=r"change the weights by .* above training.max_update=0.5 \(loss 1"):
            divergence.refuse(tree, np.float32([1.0, 1.0]), allowed, **(fine | {"moved": moved}))
    divergence.refuse(tree, np.float32([1.0, 1.0]), None, **(fine | {"moved": 9.0}))
    for wrong in ({"loss": np.nan}, {"gradient_norm": np.inf}):
        with pytest.raises(DivergenceError, match="the update is refused: loss"):
            divergence.refuse(tree, np.float32([1.0, 1.0]), allowed, **(fine | wrong))
    assert divergence.bounds(np.float32([1e30]), 1e30)[0] == np.finfo(np.float32).max
