"""One update, many ways to compute it: layouts, types, devices, adapters; and what each leaves alone."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_models import tiny

from dfc.config import GrpoConfig, TrainingConfig
from dfc.models.config import LinearRope
from dfc.models.lora import ALL_LINEAR, LoraConfig, merge
from dfc.models.quantization import quantize_params
from dfc.models.sharding import make_mesh, param_shardings
from dfc.models.transformer import abstract_params, is_stacked
from dfc.packing import Halves, Segment, packed
from dfc.training.rl import make_loss
from dfc.training.trainer import Trainer

LLAMA = tiny(vocabulary=64, width=64, head_dim=16, feed_forward=128, qkv_bias=False)
FAMILIES = {
    "llama": LLAMA,
    "qwen2": dataclasses.replace(LLAMA, qkv_bias=True, tied_embedding=True),
    "qwen3": dataclasses.replace(LLAMA, qk_norm=True),
    "mistral": dataclasses.replace(LLAMA, sliding_window=7),
    "gemma3": dataclasses.replace(
        LLAMA,
        tied_embedding=True,
        activation="gelu_tanh",
        qk_norm=True,
        unit_offset_norm=True,
        sandwich_norms=True,
        scaled_embedding=True,
        attention_scale=0.3,
        rope_scaling=LinearRope(8.0),
        sliding_window=7,
        windowed_layers=(True, False),
        local_rope_theta=1e3,
    ),
}
ROW = 40
GRPO = GrpoConfig(kl_coefficient=0.2)
LORA = LoraConfig(rank=4, alpha=8.0, targets=ALL_LINEAR)
UNROLLED = TrainingConfig(scan_layers=False, remat="none")


@functools.cache
def random_params(config, seed=0):
    rng = np.random.default_rng(seed)

    def random_leaf(leaf):
        one = leaf.ndim == 1 and not config.unit_offset_norm
        return jnp.asarray((rng.normal(size=leaf.shape) * 0.12 + one).astype(np.float32)).astype(leaf.dtype)

    return jax.tree.map(random_leaf, abstract_params(config))


def segments(count):
    rng = np.random.default_rng(5)
    found = []
    for length in rng.integers(8, 30, count).tolist():
        mask = rng.random(length) < 0.5
        mask[0], mask[-1] = False, True
        logprobs = np.where(mask, rng.normal(size=length) - 4, 0).astype(np.float32)
        token_ids = rng.integers(0, 64, length).astype(np.int32)
        found.append(Segment(token_ids, mask, float(rng.normal()), logprobs))
    return found


def batches(rows=4, count=2):
    cut = packed(segments(24), ROW, rows)
    assert len(cut) >= count
    return cut[:count]


def make(config, *, training=UNROLLED, **options):
    return Trainer(config, make_loss(GRPO, ROW), optax.sgd(0.1), training=training, **options)


def step(trainer, params, reference_params, **options):
    tree = trainer.initial_params(params)
    return trainer.update(
        tree, trainer.initial_state(tree), batches(), trainer.frozen_params(reference_params), **options
    )


def assert_close(found, expected, relative):
    """Each array's distance is within `relative` of its norm."""
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        gap = np.linalg.norm(np.asarray(one, np.float64) - np.asarray(other, np.float64))
        assert gap <= relative * np.linalg.norm(np.asarray(other, np.float64))


def difference(after, before):
    return jax.tree.map(lambda a, b: np.asarray(a, np.float32) - np.asarray(b, np.float32), after, before)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_scan_with_recomputed_layers_makes_the_update_of_unrolled_layers(family):
    config = FAMILIES[family]
    params, reference_params = random_params(config), random_params(config, 1)
    expected = step(make(config), params, reference_params)
    scanned = make(config, training=TrainingConfig(remat="layer"))
    found = step(scanned, params, reference_params)
    assert is_stacked(found.params)
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    assert_close(scanned.policy(found.params), expected.params, 1e-5)


@pytest.mark.parametrize(("halves", "sizes"), [(Halves(1), [8, 4]), (Halves(1, 2 * ROW), [2] * 6)], ids=str)
def test_smaller_micro_batches_for_what_is_left_make_the_same_update(halves, sizes):
    """12 rows: in two micro-batches of 8, four of them empty, or in none too many."""
    sequences, params = segments(26), random_params(LLAMA)
    trainer = make(LLAMA)
    tree = trainer.initial_params(params)
    found = {}
    for name, how in (("whole", Halves()), ("halves", halves)):
        cut = packed(sequences, ROW, 8, how)
        found[name] = trainer.update(tree, trainer.initial_state(tree), cut, trainer.frozen_params(params))
        assert [len(batch.tokens) for batch in cut] == ([8, 8] if name == "whole" else sizes)
    assert found["halves"].loss == pytest.approx(found["whole"].loss, rel=1e-5)
    assert found["halves"].weight == found["whole"].weight
    moved = [difference(one.params, tree) for one in found.values()]
    assert_close(moved[1], moved[0], 1e-4)


@pytest.mark.parametrize(("family", "training"), [(f, TrainingConfig()) for f in FAMILIES] + [("gemma3", UNROLLED)])
def test_eight_devices_make_the_update_of_one(family, training):
    config = FAMILIES[family]
    params, reference_params = random_params(config), random_params(config, 1)
    one = step(make(config, training=training), params, reference_params)
    mesh = make_mesh(1, 4, 2)
    split = make(config, training=training, mesh=mesh)
    placed = [jax.device_put(tree, param_shardings(config, mesh)) for tree in (params, reference_params)]
    eight = step(split, *placed)
    assert eight.loss == pytest.approx(one.loss, rel=1e-5)
    assert eight.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-5)
    assert_close(eight.params, one.params, 1e-5)
    kernel = eight.params["layers"]["mlp"]["up"]["kernel"] if training.scan_layers else None
    if kernel is not None:
        assert kernel.sharding.spec == jax.sharding.PartitionSpec(None, "fsdp", "tensor")


@pytest.mark.parametrize("quantized", [False, True], ids=["full base", "nf4 base"])
def test_adapters_are_trained_beside_a_base_that_stays(quantized):
    config = FAMILIES["qwen2"]
    params = random_params(config)
    reports = []
    for training in (UNROLLED, TrainingConfig()):
        trainer = make(config, training=training, lora=LORA)
        base_params = trainer.frozen_params(quantize_params(params) if quantized else params)
        # Fresh adapters have b = 0, where the gradient of a is 0 too.
        adapters = jax.tree.map(lambda x: x + 0.02, trainer.initial_params(params))
        before = jax.tree.map(np.array, base_params)
        update = trainer.update(
            adapters, trainer.initial_state(adapters), batches(), base_params, base_params=base_params
        )
        jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.array, base_params))
        assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(difference(update.params, adapters)))
        assert update.metrics["kl"] > 0  # the reference is the model with its adapters off
        reports.append(update)
    assert reports[1].loss == pytest.approx(reports[0].loss, rel=1e-5)


def test_adapters_on_eight_devices_make_the_update_of_one():
    config, training = FAMILIES["gemma3"], TrainingConfig()
    params = random_params(config)
    found = []
    for mesh in (None, make_mesh(1, 4, 2)):
        trainer = make(config, training=training, lora=LORA, mesh=mesh)
        base_params = trainer.frozen_params(
            params if mesh is None else jax.device_put(params, param_shardings(config, mesh))
        )
        adapters = jax.tree.map(lambda x: x + 0.02, trainer.initial_params(params))
        found.append(
            trainer.update(adapters, trainer.initial_state(adapters), batches(), base_params, base_params=base_params)
        )
    assert found[1].loss == pytest.approx(found[0].loss, rel=1e-5)
    assert_close(found[1].params, found[0].params, 1e-5)


def test_the_gradient_of_adapters_is_that_of_the_merged_weights():
    """d loss / d b of y = x (W + s a b): s a^T times d loss / d W, the latter from training the merged weights."""
    config = FAMILIES["llama"]
    params = random_params(config)
    trainer = make(config, lora=LORA)
    adapters = jax.tree.map(lambda x: x + 0.02, trainer.initial_params(params))
    lora = trainer.update(adapters, trainer.initial_state(adapters), batches(), params, base_params=params)
    merged = merge(params, adapters, LORA.scale)
    full = make(config)
    whole = full.update(merged, full.initial_state(merged), batches(), params)
    assert lora.loss == pytest.approx(whole.loss, rel=1e-5)
    for layer in range(config.layers):
        moved = difference(whole.params, merged)["layers"][layer]["mlp"]["down"]["kernel"]
        expected = LORA.scale * np.asarray(adapters["layers"][layer]["mlp"]["down"]["a"]).T @ moved
        found = difference(lora.params, adapters)["layers"][layer]["mlp"]["down"]["b"]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_dropout_of_adapters_is_off_without_a_seed_and_repeats_with_one():
    config, params = LLAMA, random_params(LLAMA)
    trainer = make(config, lora=dataclasses.replace(LORA, dropout=0.5))
    adapters = jax.tree.map(lambda x: x + 0.05, trainer.initial_params(params))
    state = trainer.initial_state(adapters)
    plain, first, again, other = (
        trainer.update(adapters, state, batches(), params, base_params=params, dropout_seed=seed).loss
        for seed in (None, 1, 1, 2)
    )
    assert first == again
    assert len({plain, first, other}) == 3


def test_base_is_wanted_with_adapters_and_only_then():
    params = random_params(LLAMA)
    with pytest.raises(ValueError, match="base"):
        step(make(LLAMA), params, params, base_params=params)
    with pytest.raises(ValueError, match="base"):
        step(make(LLAMA, lora=LORA), params, params)


def test_float32_masters_keep_steps_that_bfloat16_weights_lose():
    config = dataclasses.replace(LLAMA, dtype="bfloat16")
    params = random_params(config)
    moved = {}
    for master in ("float32", "bfloat16"):
        training = TrainingConfig(scan_layers=False, remat="none", master_dtype=master)
        trainer = Trainer(config, make_loss(GRPO, ROW), optax.adam(1e-5), training=training)
        tree = trainer.initial_params(params)
        assert {x.dtype for x in jax.tree.leaves(tree)} == {jnp.dtype(master)}
        state = trainer.initial_state(tree)
        assert {x.dtype for x in jax.tree.leaves(state) if x.ndim} == {jnp.dtype("float32")}
        with jax.numpy_dtype_promotion("standard"):
            update = trainer.update(tree, state, batches(), params)
        moved[master] = np.mean([np.mean(d != 0) for d in jax.tree.leaves(difference(update.params, tree))])
        assert {x.dtype for x in jax.tree.leaves(trainer.policy(update.params))} == {jnp.dtype("bfloat16")}
    assert moved["float32"] > 0.95
    assert moved["bfloat16"] < 0.2


def test_a_donated_update_is_the_same_and_takes_its_input_with_it():
    params = random_params(LLAMA)
    training = TrainingConfig()
    trainer = make(LLAMA, training=training)
    kept = step(trainer, params, params)
    tree = trainer.initial_params(params)
    gone = trainer.update(tree, trainer.initial_state(tree), batches(), trainer.frozen_params(params), donate=True)
    jax.tree.map(np.testing.assert_array_equal, kept.params, gone.params)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(tree))
