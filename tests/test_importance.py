"""Importance weights in their four modes: loops in numpy, bounds, and how weights spread over micro-batches."""

import dataclasses
import functools
import itertools
import math
import operator
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from one_layer import CONFIG, all_logprobs, weights
from rl_runs import plain

from dfc import losses, validation
from dfc.config import GrpoConfig, TrainingConfig
from dfc.losses.importance import ImportanceSums
from dfc.models.sharding import make_mesh
from dfc.packing import Segment, micro_batches, pack
from dfc.training import rl
from dfc.training.trainer import Trainer

MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
every_mode = pytest.mark.parametrize("mode", MODES)
both_ratios = pytest.mark.parametrize("ratio", ["token", "sequence"])

# Six rows: gaps, padding in front, a full row, an empty row, a single id.
MASK = np.asarray([[int(c) for c in row] for row in ("0110110", "0001110", "1111111", "0000000", "0000010", "1000011")])
RNG = np.random.default_rng(5)
LOGP = RNG.uniform(-4.0, -0.05, MASK.shape)
SAMPLED, PROXIMAL, REF = (LOGP + RNG.uniform(-0.3, 0.3, MASK.shape) for _ in range(3))
ADVANTAGES = np.asarray([1.5, -0.7, 0.4, 2.0, -1.1, -0.3])
# Two rows that hold the six sequences of MASK in another order; 0 is padding.
PACKED = [[(2, slice(0, 7)), (1, slice(3, 6))], [(5, slice(0, 7)), (4, slice(4, 6)), (0, slice(1, 7))]]
CAP = 1.1


def packed(array, fill):
    """The sequences of PACKED in rows of 16; what stands in padding is `fill`."""
    rows = np.full((2, 16), fill, array.dtype)
    for row, members in zip(rows, PACKED, strict=True):
        start = 0
        for number, part in members:
            piece = array[number, part]
            row[start : start + len(piece)] = piece
            start += len(piece)
    return rows


SEGMENTS = packed(np.arange(1, 7)[:, None] * np.ones(MASK.shape, int), 0)
SEGMENTS = np.asarray([[len(set(row[: t + 1])) if n else 0 for t, n in enumerate(row)] for row in SEGMENTS])


# ---- against loops in float64 ----------------------------------------------------------------------------------------


def weights_of(sequences, mode, cap, floor):
    """Of log-ratios by sequence: the weights of every token before and within the bounds, and what was masked."""
    free = [np.exp(one.sum()) * np.ones(len(one)) if mode.startswith("sequence") else np.exp(one) for one in sequences]
    masked = [((one < floor) | (one > cap)) & mode.endswith("mask") for one in free]
    bound = [np.where(off, 0, np.clip(one, floor, cap)) for one, off in zip(free, masked, strict=True)]
    return free, bound, masked


def total(lp, at, mode, floor, ratio):
    """The sum over tokens of weighted clipped gains, as a loop; a ratio is differentiated as that of its token."""
    found = 0
    on = [np.flatnonzero(row) for row in MASK]
    _, bound, _ = weights_of([(PROXIMAL - SAMPLED)[i, t] for i, t in enumerate(on)], mode, CAP, floor)
    for i, positions in enumerate(on):
        for t, w in zip(positions, bound[i], strict=True):
            log_ratio = (at - PROXIMAL)[i, positions].mean() if ratio == "sequence" else (at - PROXIMAL)[i, t]
            r = np.exp(log_ratio + lp[i, t] - at[i, t])
            found -= w * min(r * ADVANTAGES[i], np.clip(r, 0.9, 1.2) * ADVANTAGES[i])
            d = (REF - lp)[i, t]
            found += 0.2 * (np.exp(d) - d - 1)
    return found


def slopes(lp, *how, step=1e-6):
    """Central differences of `total`."""
    found = np.zeros_like(lp)
    for place in itertools.product(*map(range, lp.shape)):
        moved = np.zeros_like(lp)
        moved[place] = step
        found[place] = (total(lp + moved, lp, *how) - total(lp - moved, lp, *how)) / (2 * step)
    return found


@every_mode
@both_ratios
@pytest.mark.parametrize("floor", [0.0, 0.9])
@pytest.mark.parametrize("rows", ["unpacked", "packed"])
def test_every_mode_agrees_with_a_loop_over_tokens(mode, ratio, floor, rows):
    arrays, mask, options = (LOGP, SAMPLED, PROXIMAL, REF), MASK, {}
    advantages = np.broadcast_to(ADVANTAGES[:, None], MASK.shape)
    if rows == "packed":
        arrays, advantages, mask = [packed(x, 9.0) for x in arrays], packed(advantages, 7.0), packed(MASK, 0)
        options = {"segments": SEGMENTS, "num_segments": 4}
    lp, sampled, proximal, reference = arrays

    def loss(x):
        found = losses.grpo_loss(
            x,
            sampled,
            advantages,
            mask,
            clip_ratio=0.1,
            clip_ratio_high=0.2,
            reference_logprobs=reference,
            kl_coefficient=0.2,
            proximal_logprobs=proximal,
            importance_cap=CAP,
            importance_floor=floor,
            importance_mode=mode,
            ratio=ratio,
            **options,
        )
        return found.total, (found, found.metric_means)

    with jax.enable_x64(True):  # noqa: FBT003 - jax's own signature
        grad, (found, means) = jax.grad(loss, has_aux=True)(jnp.asarray(lp))
    np.testing.assert_allclose(found.total, total(LOGP, LOGP, mode, floor, ratio), rtol=1e-12)
    expected = slopes(LOGP, mode, floor, ratio)
    np.testing.assert_allclose(grad, packed(expected, 0.0) if rows == "packed" else expected, rtol=1e-6, atol=1e-8)
    assert float(found.weight) == MASK.sum()  # masked ones too
    # The metrics, from the same weights.
    differences = [(PROXIMAL - SAMPLED)[i, row > 0] for i, row in enumerate(MASK) if row.any()]
    free, bound, masked = weights_of(differences, mode, CAP, floor)
    outside = np.concatenate([(one < floor) | (one > CAP) for one in free])
    assert 0 < outside.sum() < MASK.sum()
    np.testing.assert_allclose(found.metrics["importance_weight"], np.concatenate(bound).sum(), rtol=1e-12)
    assert float(found.metrics["importance_capped"]) == outside.sum()
    assert_spread(means, free, bound, masked, mode, rtol=1e-12)


def assert_spread(found, free, bound, masked, mode, rtol):
    """The three metrics of weights that are given by sequence."""
    if mode.startswith("sequence"):
        free, bound, masked = ([one[:1] for one in of] for of in (free, bound, masked))
    free, bound, masked = (np.concatenate(of) for of in (free, bound, masked))
    np.testing.assert_allclose(found["importance/max"], free.max(), rtol=rtol)
    np.testing.assert_allclose(found["importance/masked"], masked.mean(), rtol=rtol)
    ess = bound.sum() ** 2 / (len(bound) * (bound**2).sum())
    np.testing.assert_allclose(found["importance/ess"], ess, rtol=rtol)
    assert 0 < ess < 1


@every_mode
def test_a_masked_token_keeps_its_kl_term_and_its_place_in_the_mean(mode):
    """The first sequence's weights are 3, out of bounds; the second's are 1."""
    lp, sampled = jnp.full((2, 1), -1.0), jnp.asarray([[-1.0 - math.log(3)], [-1.0]])
    bounds = {"importance_cap": 2.0, "importance_mode": mode}
    options = {"reference_logprobs": lp + math.log(2), "kl_coefficient": 0.5, **bounds}
    loss = losses.grpo_loss(lp, sampled, jnp.asarray([1.0, 1.0]), jnp.ones((2, 1)), **options)
    first = 0 if mode.endswith("mask") else 2
    kl = 2 - math.log(2) - 1
    np.testing.assert_allclose(loss.mean, -(first + 1) / 2 + 0.5 * kl, rtol=1e-6)
    assert float(loss.metric_means["importance_capped"]) == 0.5


@both_ratios
def test_the_mode_alone_says_whose_the_weight_is(ratio):
    """A sequence of two tokens, one twice as likely in the trainer and one half: its product is 1."""
    lp = jnp.log(jnp.asarray([[0.4, 0.2]]))
    sampled = lp - jnp.log(jnp.asarray([[2.0, 0.5]]))

    def weights_in(mode):
        options = {"importance_cap": 9.0, "importance_mode": mode, "ratio": ratio}
        grad = jax.grad(lambda x: losses.grpo_loss(x, sampled, jnp.ones(1), jnp.ones((1, 2)), **options).total)(lp)
        return -np.asarray(grad)[0]

    np.testing.assert_allclose(weights_in("token_truncate"), [2, 0.5], rtol=1e-6)
    np.testing.assert_allclose(weights_in("sequence_truncate"), [1, 1], rtol=1e-6)


# ---- extremes --------------------------------------------------------------------------------------------------------

HARSH = (0.0, -1.0, -89.0, -1e4, -1e30, -np.inf)


@every_mode
@both_ratios
@pytest.mark.parametrize(("cap", "floor"), [(2.0, 0.5), (math.inf, 0.0)])
def test_no_combination_of_log_probabilities_gives_nan_and_a_masked_weight_gives_0(mode, ratio, cap, floor):
    """Every triple of policy, sampler and trainer before the update, three times in a row: sums are huge."""
    logp, sampled, proximal = (
        jnp.tile(jnp.asarray(x, jnp.float32)[:, None], 3) for x in zip(*itertools.product(HARSH, repeat=3), strict=True)
    )
    bounds = {"importance_cap": cap, "importance_floor": floor, "importance_mode": mode}

    @jax.jit
    def both(x, advantage):
        def value(x):
            options = {"proximal_logprobs": proximal, "ratio": ratio, "unit": "sequence", **bounds}
            found = losses.grpo_loss(x, sampled, jnp.full(len(x), advantage), jnp.ones_like(x), **options)
            return found.total, (found, found.metric_means)

        return jax.grad(value, has_aux=True)(x)

    with np.errstate(over="ignore"):
        limited = [np.maximum(np.asarray(x, np.float64), -1e30) for x in (proximal, sampled)]
        difference = limited[0] - limited[1]
        free = np.exp(difference.sum(1, keepdims=True) + 0 * difference if mode[0] == "s" else difference)
    masked = ((free < floor) | (free > cap)) & mode.endswith("mask")
    for advantage in (1.0, -1.0, 0.0):
        grad, found = both(logp, advantage)
        assert np.isfinite(grad).all()
        assert not any(np.isnan(x).any() for x in jax.tree.leaves(found))
        assert (np.asarray(grad)[masked] == 0).all()
        means = found[1]
        assert all(np.isfinite(means[name]) for name in ("importance/max", "importance/masked", "importance/ess"))
        assert 0 < float(means["importance/ess"]) < 1
    assert masked.any() == (mode.endswith("mask") and cap == 2.0)


@pytest.mark.parametrize("mode", ["token_mask", "sequence_mask"])
def test_a_batch_of_masked_tokens_alone_is_exactly_0(mode):
    """The ratio is beyond every number, the weight out of bounds."""
    lp, proximal, sampled = jnp.zeros((1, 2)), jnp.full((1, 2), -1e30), jnp.full((1, 2), -3.0)
    bounds = {"importance_cap": 2.0, "importance_floor": 0.5, "importance_mode": mode}
    loss, grad = jax.value_and_grad(
        lambda x: (
            losses.grpo_loss(x, sampled, -jnp.ones(1), jnp.ones((1, 2)), proximal_logprobs=proximal, **bounds).total
        )
    )(lp)
    assert float(loss) == 0
    assert np.asarray(grad).tolist() == [[0, 0]]


# ---- how weights spread ----------------------------------------------------------------------------------------------


def spread_of(logs, sequences=None):
    """The loss of sampled tokens whose weights are exp of `logs`, without an upper bound."""
    logs = jnp.asarray(logs, jnp.float32)
    mode = "token_truncate" if sequences is None else "sequence_truncate"
    options = {"importance_cap": math.inf, "importance_mode": mode}
    return losses.grpo_loss(jnp.zeros_like(logs), -logs, jnp.ones(len(logs)), jnp.ones_like(logs), **options)


@pytest.mark.parametrize("largest", [0.5, 50.0, 400.0, 1e20])
def test_the_effective_sample_size_is_right_beyond_what_numbers_hold(largest):
    """Micro-batches whose weights, or their squares, are no numbers of float32; of 1e20 one weight is all."""
    logs = np.asarray([[0.0, 0.3], [largest, largest - 0.7], [-0.2, largest - 2.0]])
    parts = [spread_of(logs[n : n + 1]) for n in range(3)]
    # In units of the largest weight; float32 has 400 and not 399.3 times itself.
    exact = np.asarray(logs, np.float32).astype(np.float64)
    w = np.exp(exact - exact.max())
    for joined in (functools.reduce(operator.add, parts), functools.reduce(operator.add, parts[::-1]), spread_of(logs)):
        found = joined.metric_means
        np.testing.assert_allclose(found["importance/ess"], w.sum() ** 2 / (6 * (w**2).sum()), rtol=1e-5)
        np.testing.assert_allclose(found["importance/max"], min(math.exp(min(largest, 700)), 1.7e38), rtol=2e-3)


def test_sequences_count_once_whatever_their_length():
    """Weights 4 and 1, of sequences of one token and of five; those of tokens would count 1 against 5."""
    lp = jnp.zeros((2, 5))
    sampled = jnp.asarray([[-math.log(4), 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    mask = np.asarray([[1, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    for unit in ("token", "sequence"):
        found = losses.grpo_loss(
            lp, sampled, jnp.ones(2), mask, importance_cap=9.0, importance_mode="sequence_truncate", unit=unit
        )
        np.testing.assert_allclose(found.metric_means["importance/ess"], 25 / (2 * 17), rtol=1e-6)
    spread = found.importance
    assert isinstance(spread, ImportanceSums)
    assert float(spread.units) == 2


def test_nothing_to_weigh_changes_no_metric_and_all_masked_is_an_effective_sample_size_of_0():
    one = spread_of([[0.1, 0.9]])
    nothing = losses.grpo_loss(
        jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.ones(1), jnp.zeros((1, 2)), importance_cap=math.inf
    )
    for joined in (one + nothing, nothing + one):
        assert {name: float(x) for name, x in joined.metric_means.items()} == pytest.approx(
            {name: float(x) for name, x in one.metric_means.items()}
        )
    assert all(float(x) == 0 for x in (nothing + nothing).metric_means.values())
    masked = losses.grpo_loss(
        jnp.zeros((1, 2)),
        -jnp.ones((1, 2)),
        jnp.ones(1),
        jnp.ones((1, 2)),
        importance_cap=2,
        importance_mode="token_mask",
    )
    found = {name: float(x) for name, x in masked.metric_means.items()}
    assert found["importance/ess"] == found["importance_weight"] == 0
    assert found["importance/masked"] == found["importance_capped"] == 1
    assert found["importance/max"] == pytest.approx(math.e)


def test_losses_with_and_without_importance_weights_are_not_added():
    with pytest.raises(ValueError, match="expected two with importance weights or two without, got one of each"):
        spread_of([[0.0]]) + dataclasses.replace(spread_of([[0.0]]), importance=None)


# ---- through the trainer ---------------------------------------------------------------------------------------------

ROW = 32


@functools.cache
def sampled():
    """Sequences from a sampler that is off by up to 0.3 a token, with the right ones; they fill 4 rows."""
    rng, found = np.random.default_rng(1), []
    for length in (9, 14, 16, 20, 11, 6, 30, 15):
        mask = rng.random(length) < 0.9
        mask[0], mask[-1] = False, True
        token_ids = rng.integers(0, CONFIG.vocabulary, size=length).astype(np.int32)
        table = np.asarray(all_logprobs(weights(), np.pad(token_ids, (0, ROW - length))))
        own = np.append(0, table[np.arange(length - 1), token_ids[1:]])
        off = np.float32(own + rng.uniform(-0.3, 0.3, length))
        found.append((Segment(token_ids, mask, float(rng.normal()), off), own))
    return found


def sequences():
    return [one for one, _ in sampled()]


CUT = {"importance_cap": 1.25, "importance_floor": 0.7}


def settings_of(mode):
    return GrpoConfig(kl_coefficient=0.0, importance_mode=mode, updates_per_iteration=2, **CUT)


@functools.cache
def trainer(mode, *, split=False):
    mesh = make_mesh(4, 1, 1, devices=jax.devices()[:4]) if split else None
    training = TrainingConfig(scan_layers=False, remat="none")
    return Trainer(
        CONFIG, rl.make_loss(settings_of(mode), ROW), optax.sgd(0.1), training=training, mesh=mesh, workers=2
    )


def expected_weights(members, mode):
    """From log-probabilities of each sequence alone, in float64."""
    logs = [(own - one.sampled_logprobs)[one.mask].astype(np.float64) for one, own in members]
    return weights_of(logs, mode, CUT["importance_cap"], CUT["importance_floor"])


@pytest.mark.usefixtures("optax_promotion")
@every_mode
def test_metrics_are_those_of_all_sequences_however_they_are_cut(mode):
    learner = trainer(mode)
    params = learner.initial_params(weights())
    free, bound, masked = expected_weights(sampled(), mode)
    for rows, split in ((1, False), (4, True)) if mode == "sequence_mask" else ((1, False),):
        batches = micro_batches(pack(sequences(), ROW, rows), rows)
        assert len(batches) == 4 // rows
        made = trainer(mode, split=split).update(params, learner.initial_state(params), batches)
        assert_spread(made.metrics, free, bound, masked, mode, rtol=2e-3)
        assert made.metrics["importance_weight"] == pytest.approx(np.concatenate(bound).mean(), abs=1e-3)
        outside = np.concatenate([(one < 0.7) | (one > 1.25) for one in free])
        assert 0 < outside.mean() < 1
        assert made.metrics["importance_capped"] == pytest.approx(outside.mean())


@pytest.mark.usefixtures("optax_promotion")
@every_mode
def test_an_iteration_of_two_updates_weighs_as_its_settings_say(mode):
    """Of both updates the weights are at the policy that the iteration began with."""
    learner = trainer(mode)
    config = dataclasses.replace(plain(), grpo=settings_of(mode))
    config = dataclasses.replace(config, batch=dataclasses.replace(config.batch, row_length=ROW, micro_batch_rows=1))
    stop = types.SimpleNamespace(check_stop=lambda: None)
    run = types.SimpleNamespace(
        config=config, trainer=learner, reference_params=None, reads_reference=False, lora=None, stop=stop
    )
    halves = [sampled()[:4], sampled()[4:]]
    params = learner.initial_params(weights())
    shares = [[one for one, _ in half] for half in halves]
    made = rl.update(run, shares, params, learner.initial_state(params), donate=False)
    expected = []
    for half in halves:
        free, bound, masked = expected_weights(half, mode)
        if mode.startswith("sequence"):
            free, bound, masked = ([one[:1] for one in of] for of in (free, bound, masked))
        w = np.concatenate(bound)
        expected.append((np.concatenate(masked).mean(), w.sum() ** 2 / (len(w) * (w**2).sum()), max(map(np.max, free))))
    masked_shares, sizes, largest = zip(*expected, strict=True)
    assert made.metrics["importance/masked"] == pytest.approx(np.mean(masked_shares), abs=1e-5)
    assert made.metrics["importance/ess"] == pytest.approx(np.mean(sizes), rel=2e-3)
    assert made.metrics["importance/max"] == pytest.approx(max(largest), rel=2e-3)
    assert made.metrics["importance_weight"] > 0


# ---- what does not go together ---------------------------------------------------------------------------------------

ONES = np.ones((1, 2), np.float32)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"importance_floor": 0.5}, "grpo_loss: importance_floor is 0.5 but importance_cap is 0; give both"),
        (
            {"importance_cap": 2.0, "importance_floor": 3.0},
            r"grpo_loss: importance_floor must be finite and at most importance_cap=2\.0, got 3\.0",
        ),
        ({"importance_cap": math.inf, "importance_floor": math.inf}, "importance_floor must be finite"),
        ({"importance_cap": 2.0, "importance_floor": -1.0}, "importance_floor must be 0 or more, got -1"),
        (
            {"importance_mode": "row_mask"},
            "importance_mode must be 'token_truncate' or .* or 'sequence_mask', got 'row",
        ),
    ],
)
def test_bounds_that_do_not_go_together_are_refused_by_the_loss(options, told):
    with pytest.raises(ValueError, match=told):
        losses.grpo_loss(-ONES, -ONES, np.ones(1, np.float32), ONES, **options)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"importance_floor": 0.5},
            ["grpo.importance_floor=0.5: needs grpo.importance_cap above 0; at 0 nothing is weighted"],
        ),
        (
            {"importance_floor": 3.0, "importance_cap": 2.0},
            ["grpo.importance_floor=3.0: must be at most grpo.importance_cap=2.0, the upper bound"],
        ),
        ({"importance_floor": 2.0, "importance_cap": 2.0}, []),
        ({"importance_floor": 0.5, "importance_cap": 2.0, "importance_mode": "sequence_mask"}, []),
    ],
)
def test_bounds_that_do_not_go_together_are_problems_of_a_configuration(settings, told):
    config = plain(grpo=dataclasses.replace(plain().grpo, **settings))
    assert [problem for problem in validation.problems(config) if "importance" in problem] == told


def test_a_mode_without_a_cap_is_noted():
    noted = [
        [note for note in validation.notices(plain(grpo=GrpoConfig(**settings))) if "importance" in note]
        for settings in (
            {"importance_mode": "token_mask"},
            {"importance_mode": "token_mask", "importance_cap": 2.0},
            {},
        )
    ]
    said = "grpo.importance_mode changes nothing: grpo.importance_cap is 0, so that nothing is weighted"
    assert noted == [[said], [], []]
