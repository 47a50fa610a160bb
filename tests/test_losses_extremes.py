"""Losses far from where training should ever be: right where float32 holds the result, bounded and never NaN beyond."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dfc import losses
from dfc.losses.exponentials import k3_divergence, scaled_exp

LARGEST = float(np.finfo(np.float32).max) / 2  # of a single term
ONES = jnp.ones((1, 2))


def grpo(logp, old, advantage, **options):
    """The loss of two ids, and the gradient of its total."""

    def total(x):
        loss = losses.grpo_loss(x, jnp.asarray([old]), jnp.asarray([advantage]), ONES, **options)
        return loss.total, loss

    grad, loss = jax.grad(total, has_aux=True)(jnp.asarray([logp]))
    return loss, np.asarray(grad)[0]


def test_an_overflowing_ratio_that_is_clipped_passes_no_gradient():
    loss, grad = grpo([-1.0, -1.0], [-90.0, -1.0], 1.0, clip_ratio=0.1)
    np.testing.assert_allclose(float(loss.total), -(1.1 + 1.0), rtol=1e-6)
    np.testing.assert_array_equal(grad, [0.0, -1.0])


@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_an_overflowing_ratio_with_a_negative_advantage_is_bounded(ratio):
    loss, grad = grpo([-1.0, -1.0], [-300.0, -300.0], -1.0, ratio=ratio, unit="sequence")
    assert np.isfinite(grad).all()
    np.testing.assert_allclose(grad, LARGEST / 2, rtol=1e-3)
    assert not math.isnan(float(loss.total))


def test_a_ratio_that_overflows_alone_is_right_where_its_product_with_the_advantage_fits():
    """exp(95) is no float32; times 1e-10 it is."""
    loss, grad = grpo([-1.0, -1.0], [-96.0, -1.0], -1e-10, clip_ratio=0.1)
    np.testing.assert_allclose(float(loss.total), math.exp(95) * 1e-10, rtol=2e-5)
    np.testing.assert_allclose(grad, [math.exp(95) * 1e-10, 1e-10], rtol=2e-5)


@pytest.mark.parametrize(("gap", "coefficient"), [(30.0, 0.1), (60.0, 0.5), (88.0, 1.0), (90.0, 0.1), (-500.0, 0.1)])
def test_the_kl_penalty_is_right_wherever_it_fits(gap, coefficient):
    reference = jnp.asarray([[-1.0, -1.0]])
    options = {"reference_logprobs": reference, "kl_coefficient": coefficient}
    logp = [-1.0 - gap, -1.0]
    loss, grad = grpo(logp, logp, 0.0, **options)
    np.testing.assert_allclose(float(loss.total), coefficient * (math.exp(gap) - gap - 1), rtol=4e-5)
    np.testing.assert_allclose(grad[0], coefficient * (1 - math.exp(gap)), rtol=4e-5)


def test_beyond_what_fits_the_kl_penalty_is_bounded_with_the_bounds_gradient():
    loss, grad = grpo([-400.0, -1.0], [-400.0, -1.0], 0.0, reference_logprobs=-ONES, kl_coefficient=0.1)
    np.testing.assert_allclose(float(loss.total), LARGEST, rtol=1e-3)
    np.testing.assert_allclose(grad, [-LARGEST, 0.0], rtol=1e-3)


@pytest.mark.parametrize(("advantage", "ratio"), [(1.0, 0.9), (1.0, 1.1), (-1.0, 0.9), (-1.0, 1.1), (-2.0, 1.0)])
def test_at_the_clip_boundary_the_gradient_is_the_unclipped_one(advantage, ratio):
    # The ratio as the loss computes it, so that the boundary is met to the bit.
    log_ratio = jnp.log(jnp.float32(ratio))
    r = float(jnp.exp(log_ratio))
    low, high = (max(0.0, 1 - r), 0.1) if ratio < 1 else (0.1, r - 1)
    assert 1 - low == r if ratio < 1 else 1 + high == r
    _, grad = grpo([float(log_ratio), 0.0], [0.0, 0.0], advantage, clip_ratio=low, clip_ratio_high=high)
    np.testing.assert_allclose(grad[0], -r * advantage, rtol=1e-6)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_without_room_for_the_ratio_the_first_update_is_reinforce(advantage):
    _, grad = grpo([-1.0, -2.0], [-1.0, -2.0], advantage, clip_ratio=0.0)
    np.testing.assert_array_equal(grad, [-advantage, -advantage])


# ---- nothing is NaN -------------------------------------------------------------------------------------------------

HARSH = (0.0, -1.0, -88.0, -89.0, -1e4, -1e30, -3e38, -np.inf)


@pytest.mark.parametrize("cap", [0.0, 2.0, math.inf])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_no_combination_of_log_probabilities_gives_nan(ratio, cap):
    """Every triple of policy, sampler and reference, minus infinity included, as rows of one batch."""
    logp, old, reference = (
        jnp.asarray(x, jnp.float32)[:, None] for x in zip(*itertools.product(HARSH, repeat=3), strict=True)
    )
    for advantage in (1.0, -1.0, 0.0, -1e-20):

        def total(x, advantage=advantage):
            loss = losses.grpo_loss(
                x,
                old,
                jnp.full(len(x), advantage),
                jnp.ones_like(x),
                ratio=ratio,
                reference_logprobs=reference,
                kl_coefficient=0.1,
                proximal_logprobs=reference if cap else None,
                importance_cap=cap,
            )
            return loss.total, loss

        grad, loss = jax.jit(jax.grad(total, has_aux=True))(logp)
        assert np.isfinite(grad).all()
        assert not any(np.isnan(x) for x in jax.tree.leaves(loss))


def pair(x, y):
    ones = jnp.ones_like(x)
    chosen = {"chosen_logprobs": x, "chosen_mask": ones, "chosen_reference_logprobs": y}
    rejected = {"rejected_logprobs": y, "rejected_mask": ones, "rejected_reference_logprobs": x}
    return losses.rpo_loss(**chosen, **rejected, beta=0.1, alpha=1.0)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, _: losses.sft_loss(x, jnp.ones_like(x)),
        pair,
        lambda x, y: losses.lsp_solver_loss(x, jnp.ones_like(x), -jnp.ones(len(x)), y, beta=0.1),
        lambda x, y: losses.lsp_solver_loss(
            x, jnp.ones_like(x), -jnp.ones(len(x)), y, beta=0.1, kl_gradient="score_function"
        ),
    ],
    ids=["sft", "rpo", "lsp", "lsp, score function"],
)
def test_no_pair_of_log_probabilities_gives_nan_in_the_other_losses(loss):
    pairs = jnp.asarray(list(itertools.product(HARSH, repeat=2)), jnp.float32)
    x, y = pairs[:, :1], pairs[:, 1:]
    value, grad = jax.jit(jax.value_and_grad(lambda x: loss(x, y).total))(x)
    assert np.isfinite(grad).all()
    assert not np.isnan(value)


def test_scaled_exponentials_agree_with_float64_wherever_float32_can_hold_them():
    exponent = np.linspace(-130, 130, 521, dtype=np.float32)[:, None]
    scale = np.asarray([1.0, -1.0, 3e-20, -7e25, 1e37, 0.0], np.float32)[None]
    with np.errstate(over="ignore"):
        true = scale.astype(np.float64) * np.exp(exponent.astype(np.float64))
    value = jax.jit(scaled_exp)(exponent, scale)
    slope = jax.vmap(jax.vmap(jax.grad(scaled_exp), (None, 0)), (0, None))(exponent[:, 0], scale[0])
    fits = np.abs(true) < LARGEST * 0.999
    normal = np.abs(true) > np.finfo(np.float32).tiny * 2  # XLA's programs may flush what lies below to 0
    for found in (value, slope):
        np.testing.assert_allclose(np.asarray(found)[fits & normal], true[fits & normal], rtol=3e-5)
        np.testing.assert_allclose(np.asarray(found)[~fits], np.sign(true[~fits]) * LARGEST, rtol=1e-3)
        np.testing.assert_allclose(np.asarray(found)[fits & ~normal], 0, atol=1e-37)


def test_the_k3_divergence_agrees_with_float64():
    gap = np.linspace(-100, 88, 377, dtype=np.float32)
    true = np.expm1(gap.astype(np.float64)) - gap.astype(np.float64)
    np.testing.assert_allclose(jax.jit(k3_divergence)(gap), true, rtol=3e-5)
    np.testing.assert_allclose(
        jax.jit(jax.vmap(jax.grad(k3_divergence)))(gap), np.expm1(gap.astype(np.float64)), rtol=3e-5
    )
