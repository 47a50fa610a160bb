"""The update of offline training: its loss against formulas written out, and what may not change it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from offline_rows import RandomReference, pairs, segments_of, sequences, write_pairs, write_sft
from tiny_models import random_params, tiny

from dfc.config import Preference, Sft, TrainingConfig
from dfc.models.sharding import make_mesh
from dfc.rows import training_rows
from dfc.stages.offline import make_loss
from dfc.training.batches import Batches
from dfc.training.row_shares import UpdateRows
from dfc.training.trainer import Trainer

CONFIG = tiny(vocabulary=1000, layers=1, heads=2, kv_heads=1, head_dim=16, tied_embedding=True)
BETA = 0.3


def source(tmp_path, *, two):
    found, write = (pairs(12, longest=60), write_pairs) if two else (sequences(12, longest=60), write_sft)
    path = write(tmp_path / "data.parquet", found)
    return training_rows.read(path, pairs=two, vocabulary=1000, row_length=128, tokenizer=None)


def micro_batches(data, *, row_length=128, micro_batch_rows=1, reference=None):
    update_rows = UpdateRows(len(data), batch_size=12, epochs=1, seed=0)
    shape = {"row_length": row_length, "micro_batch_rows": micro_batch_rows}
    return Batches(data, update_rows, reference=reference, **shape)[0].micro_batches


# ---- the loss -------------------------------------------------------------------------------------------------------


def sides(data, reference):
    """Every pair as sums over action ids, from invented log-probabilities per place of a micro-batch."""
    found = []
    for number, micro in enumerate(micro_batches(data, reference=reference)):
        logprobs = invented(number, micro.tokens.shape)
        for row, segments in enumerate(segments_of(micro)):
            start, read = 0, []
            for token_ids, mask, old in segments:
                action = np.asarray(mask) > 0
                place = slice(start, start + len(token_ids))
                read.append((logprobs[row, place][action].astype(np.float64), np.asarray(old)[action]))
                start += len(token_ids)
            found += list(zip(read[::2], read[1::2], strict=True))
    return found


def invented(number, shape):
    return -np.random.default_rng(number).uniform(0.5, 4, shape).astype(np.float32)


def total_loss(settings, data, reference):
    loss = make_loss(settings, int(data.lengths.min()))
    parts = [
        loss(jnp.asarray(invented(n, micro.tokens.shape)), micro, None)
        for n, micro in enumerate(micro_batches(data, reference=reference))
    ]
    return sum(float(part.total) for part in parts), sum(float(part.weight) for part in parts)


def softplus(x):
    return np.logaddexp(0, x)


@pytest.mark.parametrize(
    ("options", "formula"),
    [
        ({"alpha": 0.0}, lambda w, x: softplus(-0.3 * ((w[0] - w[1]).sum() - (x[0] - x[1]).sum()))),
        (
            {"alpha": 1.0},
            lambda w, x: softplus(-0.3 * ((w[0] - w[1]).sum() - (x[0] - x[1]).sum())) - w[0].mean(),
        ),
        ({"preference_weight": 0.0, "alpha": 1.0}, lambda w, _: -w[0].mean()),
        (
            {"alpha": 0.0, "normalize_length": True},
            lambda w, x: softplus(-0.3 * ((w[0] - w[1]).mean() - (x[0] - x[1]).mean())),
        ),
        (
            {"alpha": 0.0, "normalize_length": True, "reference": False, "margin": 0.2},
            lambda w, x: softplus(-(0.3 * (w[0].mean() - x[0].mean()) - 0.2)),
        ),
    ],
    ids=["DPO", "RPO", "supervised on the chosen sides", "normalized", "SimPO"],
)
def test_settings_name_the_losses_of_pairs(tmp_path, options, formula):
    data = source(tmp_path, two=True)
    reference = RandomReference(data)
    total, weight = total_loss(Preference(beta=BETA, **options), data, reference)
    expected = [formula(*pair) for pair in sides(data, reference)]
    assert weight == len(expected) == 12
    np.testing.assert_allclose(total, sum(expected), rtol=1e-5)


def test_supervised_training_is_the_mean_of_each_trajectory_s_mean(tmp_path):
    data = source(tmp_path, two=False)
    total, weight = total_loss(Sft(), data, None)
    expected = [
        -invented(number, micro.tokens.shape)[row, (micro.segments[row] == segment) & (micro.mask[row] > 0)].mean()
        for number, micro in enumerate(micro_batches(data))
        for row in range(len(micro.tokens))
        for segment in range(1, micro.segments[row].max() + 1)
    ]
    assert weight == len(expected) == 12
    np.testing.assert_allclose(total, sum(expected), rtol=1e-5)


# ---- the update -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def params():
    return random_params(CONFIG, 0, 0.2)


def update(data, params, reference, *, mesh=None, **shape):
    two = len(data.sides) == 2
    loss = make_loss(Preference(beta=BETA) if two else Sft(), int(data.lengths.min()))
    plain = TrainingConfig(scan_layers=False, remat="none")
    trainer = Trainer(CONFIG, loss, optax.sgd(0.1), training=plain, mesh=mesh)
    batches = micro_batches(data, reference=reference, **shape)
    trained = trainer.initial_params(params)
    return trainer.update(trained, trainer.initial_state(trained), batches), len(batches)


@pytest.mark.parametrize("two", [False, True], ids=["trajectories", "pairs"])
def test_packing_row_lengths_and_devices_do_not_change_an_update(tmp_path, params, two):
    data = source(tmp_path, two=two)
    reference = RandomReference(data) if two else None
    # Rows as long as the longest unit hold hardly more than one each.
    shapes = [{}, {"row_length": int(data.lengths.max())}, {"row_length": 512, "micro_batch_rows": 2}]
    shapes.append({"micro_batch_rows": 8, "mesh": make_mesh(1, 8, 1)})
    with jax.numpy_dtype_promotion("standard"):
        (first, count), *others = (update(data, params, reference, **shape) for shape in shapes)
    assert len({count, *(n for _, n in others)}) > 2
    for other, _ in others:
        assert other.weight == first.weight == 12
        assert other.loss == pytest.approx(first.loss, rel=1e-6)  # float32 near 13 is spaced by 9.5e-7
        assert other.gradient_norm == pytest.approx(first.gradient_norm, rel=1e-5)
        assert other.metrics == pytest.approx(first.metrics, abs=1e-5, rel=1e-5)
        assert other.gap == pytest.approx(first.gap, abs=1e-5, rel=1e-5)
        for one, same in zip(jax.tree.leaves(first.params), jax.tree.leaves(other.params), strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(same), atol=1e-6, rtol=0)
