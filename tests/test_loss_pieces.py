"""The pieces of `grpo_loss` by themselves: against numpy and PyTorch, at extremes, and put together again."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from dfc import losses

# Five rows: gaps, padding in front, a full row, an empty row, a single token.
MASK = np.asarray([[int(c) for c in row] for row in ("0110110", "0001110", "1111111", "0000000", "0000010")])
SEGMENTS = np.asarray([[int(c) for c in row] for row in ("1112222", "0011122", "1122333", "1111111", "0000011")])
ADVANTAGES = np.asarray([1.5, -0.7, 0.4, 2.0, -1.1], np.float32)
RNG = np.random.default_rng(1)
LOGP = RNG.uniform(-4.0, -0.05, MASK.shape).astype(np.float32)
OLD, REF = ((LOGP + RNG.uniform(-0.3, 0.3, MASK.shape)).astype(np.float32) for _ in range(2))
ROWS = pytest.mark.parametrize("rows", [{}, {"segments": SEGMENTS, "num_segments": 3}], ids=["rows", "packed"])
HARSH = (0.0, -1.0, -88.0, -89.0, -1e4, -1e30, -3e38, -np.inf)
LARGEST = float(np.finfo(np.float32).max) / 2


def sequences(rows):
    """The action tokens of every sequence that has one."""
    numbers = rows.get("segments", np.ones_like(MASK))
    for row, number in itertools.product(range(len(MASK)), range(1, 4)):
        if (tokens := np.flatnonzero(MASK[row] * (numbers[row] == number))).size:
            yield row, tokens


# ---- the ratio ------------------------------------------------------------------------------------------------------


@ROWS
def test_the_ratio_of_a_token_is_its_own_and_that_of_a_sequence_the_geometric_mean(rows):
    token, sequence = (losses.log_likelihood_ratio(LOGP, OLD, MASK, kind=k, **rows) for k in ("token", "sequence"))
    ratios = np.exp(LOGP.astype(np.float64) - OLD)
    for row, tokens in sequences(rows):
        np.testing.assert_allclose(np.exp(token)[row, tokens], ratios[row, tokens], rtol=1e-5)
        mean = np.prod(ratios[row, tokens]) ** (1 / len(tokens))
        np.testing.assert_allclose(np.exp(sequence)[row, tokens], mean, rtol=1e-5)


@pytest.mark.parametrize("kind", ["token", "sequence"])
def test_the_derivative_of_a_ratio_is_that_of_the_token(kind):
    weights = RNG.normal(size=MASK.shape).astype(np.float32)
    grads = jax.grad(
        lambda new, old: (weights * losses.log_likelihood_ratio(new, old, MASK, kind=kind)).sum(), argnums=(0, 1)
    )(LOGP, OLD)
    np.testing.assert_array_equal(grads[0], weights * MASK)
    np.testing.assert_array_equal(grads[1], 0)


# ---- the surrogate --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(0.1, None), (0.05, 0.2), (0.1, math.inf), (0.0, 0.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_surrogate_and_its_gradient_are_those_of_a_minimum_and_a_clamp(low, high, weighted):
    log_ratio, log_weight = LOGP - OLD, 0.2 * REF
    leaf = torch.tensor(log_ratio.astype(np.float64), requires_grad=True)
    gain = torch.tensor(ADVANTAGES.astype(np.float64))[:, None]
    clamped = leaf.exp().clamp(1 - low, 1 + (low if high is None else high))
    weight = torch.tensor(np.exp(log_weight.astype(np.float64))) if weighted else 1.0
    expected = -weight * torch.minimum(leaf.exp() * gain, clamped * gain)
    expected.sum().backward()

    def ours(x, weight):
        options = {"clip_ratio": low, "clip_ratio_high": high, "log_weight": weight if weighted else None}
        found = losses.clipped_surrogate(x, ADVANTAGES, **options)
        return found.values.sum(), found

    grads, found = jax.grad(ours, argnums=(0, 1), has_aux=True)(log_ratio, log_weight)
    np.testing.assert_allclose(found.values, expected.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(found.ratio, np.exp(log_ratio.astype(np.float64)), rtol=1e-5)
    np.testing.assert_allclose(grads[0], leaf.grad.numpy(), rtol=1e-5)
    np.testing.assert_array_equal(grads[1], 0)
    assert found.clipped.any()
    np.testing.assert_array_equal(found.clipped, leaf.grad.numpy() == 0)


# ---- the penalty ----------------------------------------------------------------------------------------------------


def test_the_penalty_is_k3_with_its_derivative():
    value, grads = jax.value_and_grad(lambda *a: losses.k3(*a, MASK, coefficient=0.3).sum(), argnums=(0, 1))(LOGP, REF)
    gap = REF.astype(np.float64) - LOGP
    np.testing.assert_allclose(value, (0.3 * (np.exp(gap) - gap - 1) * MASK).sum(), rtol=1e-5)
    np.testing.assert_allclose(grads[0], 0.3 * (1 - np.exp(gap)) * MASK, rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(grads[1], 0)


# ---- the sum --------------------------------------------------------------------------------------------------------


@ROWS
@pytest.mark.parametrize("unit", ["token", "sequence", "fixed_length"])
def test_values_are_summed_over_tokens_or_sequences(rows, unit):
    own = list(sequences(rows))
    means = [LOGP[row, tokens].astype(np.float64).mean() for row, tokens in own]
    lengths = [len(tokens) for _, tokens in own]
    longest = 9 if unit == "fixed_length" else 0
    total, weight, metric = {
        "token": (np.dot(means, lengths), sum(lengths), np.dot(means, lengths)),
        "sequence": (sum(means), len(means), sum(means)),
        "fixed_length": (np.dot(means, lengths) / 9, len(means), sum(means)),
    }[unit]
    loss = losses.aggregate(LOGP, MASK, unit=unit, max_length=longest, metrics={"same": LOGP}, **rows)
    np.testing.assert_allclose([loss.total, loss.weight, loss.metrics["same"]], [total, weight, metric], rtol=1e-5)


def test_booleans_are_counted_as_metrics_and_no_metric_has_a_gradient():
    loss = losses.aggregate(LOGP, MASK, metrics={"low": LOGP < -2})
    assert float(loss.metrics["low"]) == (LOGP[MASK > 0] < -2).sum() > 0
    grad = jax.grad(lambda x: losses.aggregate(x, MASK, metrics={"same": x}).metrics["same"])(LOGP)
    np.testing.assert_array_equal(grad, 0)


def test_large_values_of_both_signs_give_infinity_and_not_nan():
    values = np.asarray([[LARGEST, LARGEST, LARGEST, -LARGEST, -LARGEST, -LARGEST]], np.float32)
    assert not math.isnan(losses.aggregate(values, np.ones_like(values)).total)
    below = losses.aggregate(np.full((1, 1), -1e35, np.float32), np.ones((1, 1)))
    assert float(below.total) == pytest.approx(-1e35)  # log-probabilities are bounded, values are not


def test_a_segment_out_of_range_makes_the_total_nan():
    assert math.isnan(losses.aggregate(LOGP, MASK, segments=SEGMENTS, num_segments=2).total)


# ---- together -------------------------------------------------------------------------------------------------------


def from_pieces(logprobs, old, advantages, mask, reference, *, kind, unit, **rows):
    """GRPO as a loss of one's own."""
    log_ratio = losses.log_likelihood_ratio(logprobs, old, mask, kind=kind, **rows)
    surrogate = losses.clipped_surrogate(log_ratio, advantages, clip_ratio=0.1, clip_ratio_high=0.2)
    values = surrogate.values + losses.k3(logprobs, reference, mask, coefficient=0.3)
    metrics = {"ratio": surrogate.ratio, "clip_fraction": surrogate.clipped, "negative_logprob": -logprobs}
    metrics["kl"] = losses.k3(logprobs, reference, mask)
    return losses.aggregate(values, mask, unit=unit, metrics=metrics, **rows)


def both(loss, *arrays, **options):
    """The loss, and the gradient of its total."""

    def total(x):
        found = loss(x, *arrays[1:], **options)
        return found.total, found

    grad, found = jax.jit(jax.grad(total, has_aux=True))(jnp.asarray(arrays[0]))
    return found, grad


@ROWS
@pytest.mark.parametrize("kind", ["token", "sequence"])
@pytest.mark.parametrize("unit", ["token", "sequence"])
@pytest.mark.parametrize("garbage", [None, np.nan, np.inf, -np.inf])
def test_the_pieces_put_together_are_grpo_whatever_stands_at_masked_positions(rows, kind, unit, garbage):
    arrays = [LOGP, OLD, np.broadcast_to(ADVANTAGES[:, None], MASK.shape), REF]
    if garbage is not None:
        arrays = [np.where(MASK, array, garbage).astype(np.float32) for array in arrays]
    logp, old, gain, ref = arrays
    options = {"reference_logprobs": ref, "kl_coefficient": 0.3, "clip_ratio": 0.1, "clip_ratio_high": 0.2}
    whole = both(losses.grpo_loss, logp, old, gain, MASK, ratio=kind, unit=unit, **options, **rows)
    own = both(from_pieces, logp, old, gain, MASK, ref, kind=kind, unit=unit, **rows)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), whole, own)
    assert np.isfinite(whole[1]).all()


@pytest.mark.parametrize("kind", ["token", "sequence"])
def test_no_combination_of_log_probabilities_gives_nan(kind):
    """Every triple of policy, sampler and reference, minus infinity included, as rows of one batch."""
    logp, old, ref = (
        jnp.asarray(x, jnp.float32)[:, None] for x in zip(*itertools.product(HARSH, repeat=3), strict=True)
    )
    for gain in (1.0, -1.0, 0.0, -1e-20):
        loss, grad = both(
            from_pieces, logp, old, jnp.full(len(logp), gain), jnp.ones_like(logp), ref, kind=kind, unit="token"
        )
        assert np.isfinite(grad).all()
        assert not any(np.isnan(x) for name, x in loss.metrics.items() if name != "negative_logprob")
        assert not np.isnan(loss.total)


# ---- bad input ------------------------------------------------------------------------------------------------------

ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: losses.log_likelihood_ratio(ONES, ONES, ONES, kind="row"),
            "log_likelihood_ratio: kind must be 'token' or 'sequence', got 'row'",
        ),
        (lambda: losses.log_likelihood_ratio(ONES, ONES[:1], ONES), r"old_logprobs must be .*got \[1, 3\]"),
        (lambda: losses.clipped_surrogate(ONES, ONES[0], clip_ratio=0.1), r"clipped_surrogate: advantages must be"),
        (lambda: losses.clipped_surrogate(ONES, ONES, clip_ratio=1.0), r"clipped_surrogate: clip_ratio must be in"),
        (
            lambda: losses.clipped_surrogate(ONES, ONES, clip_ratio=0.1, clip_ratio_high=-1.0),
            "clipped_surrogate: clip_ratio_high must be 0 or more",
        ),
        (lambda: losses.clipped_surrogate(ONES[0], ONES, clip_ratio=0.1), r"log_ratio must be \[batch, time\]"),
        (
            lambda: losses.clipped_surrogate(ONES, ONES, clip_ratio=0.1, log_weight=ONES[:1]),
            r"log_weight must be .*got \[1, 3\]",
        ),
        (lambda: losses.k3(ONES, ONES, ONES, coefficient=0.0), "k3: coefficient must be above 0, got 0.0"),
        (lambda: losses.k3(ONES, ONES[:1], ONES), r"k3: reference_logprobs must be .*got \[1, 3\]"),
        (lambda: losses.aggregate(ONES, ONES, unit="row"), "aggregate: unit must be 'token' or"),
        (lambda: losses.aggregate(ONES, ONES, unit="fixed_length"), "aggregate: unit is 'fixed_length' but max_length"),
        (lambda: losses.aggregate(MASK, MASK), "aggregate: values must have a floating dtype"),
        (lambda: losses.aggregate(ONES, ONES[:1]), r"aggregate: mask must be .*got \[1, 3\]"),
        (lambda: losses.aggregate(ONES, ONES, metrics={"kl": ONES[:1]}), r"aggregate: kl must be .*got \[1, 3\]"),
        (lambda: losses.aggregate(ONES, ONES, segments=MASK[:2, :3]), "aggregate: segments and num_segments"),
    ],
)
def test_bad_input_is_refused_with_its_name_and_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()
