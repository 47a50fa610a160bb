"""The losses of Language Self-Play against products of probabilities and against expectations by enumeration."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from dfc import losses

# Five rows: gaps, padding in front, a full row, an empty row, a single id.
MASK = np.asarray([[int(c) for c in row] for row in ("0110110", "0001110", "1111111", "0000000", "0000010")])
ADVANTAGES = np.asarray([1.5, -0.7, 0.4, 2.0, -1.1], np.float32)


def random_logprobs(seed, low=-4.0, high=-0.05):
    return np.random.default_rng(seed).uniform(low, high, MASK.shape).astype(np.float32)


LOGP, REF = random_logprobs(1), random_logprobs(3)


def total_and_grad(loss, beta, **options):
    """The total of a loss and its gradient."""
    return jax.jit(jax.value_and_grad(lambda lp: loss(lp, MASK, ADVANTAGES, REF, beta=beta, **options).total))(LOGP)


def torch_lsp(lp, ref, beta):
    """Eq. 4 and 5 with probabilities of whole sequences, as products."""
    total, sequences = 0, 0
    for i, on in enumerate(MASK):
        if positions := np.flatnonzero(on).tolist():
            p = math.prod(torch.exp(lp[i, t]) for t in positions)
            p_ref = math.prod(torch.exp(ref[i, t]) for t in positions)
            total = total - (p / p.detach() * float(ADVANTAGES[i]) - beta * torch.log(p / p_ref))
            sequences += 1
    return total, sequences


@pytest.mark.parametrize("loss", [losses.lsp_solver_loss, losses.lsp_challenger_loss])
def test_lsp_losses_agree_with_products_of_probabilities(loss):
    lp, ref = (torch.tensor(a, dtype=torch.float64) for a in (LOGP, REF))
    expected, weight = torch_lsp(lp.requires_grad_(), ref, 0.2)
    expected.backward()
    total, grad = total_and_grad(loss, 0.2)
    np.testing.assert_allclose(total, expected.item(), rtol=2e-5)
    np.testing.assert_allclose(grad, lp.grad.numpy(), rtol=2e-5, atol=1e-6)
    assert float(loss(LOGP, MASK, ADVANTAGES, REF, beta=0.2).weight) == weight


# ---- expectations by enumeration ----------------------------------------------------------------

POLICY_LOGITS, REFERENCE_LOGITS = jnp.asarray([0.3, -1.0, 0.8]), jnp.asarray([-0.5, 0.2, 0.9])


def expected_lsp_gradient(kl_gradient, rewards, beta):
    """Expectation over all outcomes of the gradient with respect to the logits of a three-way choice."""
    reference = jax.nn.log_softmax(REFERENCE_LOGITS)[:, None]

    def one(logits, i):
        lp = jax.nn.log_softmax(logits)[i][None, None]
        return losses.lsp_solver_loss(
            lp, jnp.ones((1, 1)), rewards[i][None], reference[i][None], beta=beta, kl_gradient=kl_gradient
        ).total

    per_outcome = jax.jit(jax.vmap(jax.grad(one), in_axes=(None, 0)))(POLICY_LOGITS, jnp.arange(3))
    return jax.nn.softmax(POLICY_LOGITS) @ per_outcome


def kl_to_reference(logits):
    lp = jax.nn.log_softmax(logits)
    return (jnp.exp(lp) * (lp - jax.nn.log_softmax(REFERENCE_LOGITS))).sum()


REWARDS = jnp.asarray([1.0, -0.5, 0.2])


def negative_expected_reward(logits):
    return -(jax.nn.softmax(logits) * REWARDS).sum()


def test_the_score_function_form_has_the_gradient_of_reward_and_divergence():
    expected = jax.grad(lambda z: negative_expected_reward(z) + 0.7 * kl_to_reference(z))(POLICY_LOGITS)
    np.testing.assert_allclose(expected_lsp_gradient("score_function", REWARDS, 0.7), expected, atol=1e-6)


def test_the_published_kl_term_has_no_gradient_in_expectation():
    expected = jax.grad(negative_expected_reward)(POLICY_LOGITS)
    np.testing.assert_allclose(expected_lsp_gradient("published", REWARDS, 0.7), expected, atol=1e-6)
    assert np.abs(jax.grad(kl_to_reference)(POLICY_LOGITS)).max() > 0.05  # so the two forms do differ


def test_the_score_function_form_weighs_each_id_by_its_advantage_less_the_penalty():
    grad = total_and_grad(losses.lsp_solver_loss, 0.1, kl_gradient="score_function")[1]
    penalty = 0.1 * ((LOGP - REF) * MASK).sum(axis=1)
    np.testing.assert_allclose(grad, -(ADVANTAGES - penalty)[:, None] * MASK, rtol=1e-5)


def test_both_forms_of_the_lsp_loss_have_the_same_value():
    published, score = (
        losses.lsp_solver_loss(LOGP, MASK, ADVANTAGES, REF, beta=0.1, kl_gradient=kind)
        for kind in ("published", "score_function")
    )
    np.testing.assert_allclose(published.total, score.total, rtol=2e-5)
    assert published.metrics == score.metrics


def test_lsp_metrics_are_sums_over_sequences():
    loss = losses.lsp_solver_loss(LOGP, MASK, ADVANTAGES, REF, beta=0.1)
    per_row = {"logprob": (LOGP * MASK).sum(), "log_ratio": ((LOGP - REF) * MASK).sum()}
    per_row["advantage"] = ADVANTAGES[MASK.any(axis=1)].sum()
    for name, value in per_row.items():
        np.testing.assert_allclose(loss.metrics[name], value, rtol=1e-5, atol=1e-6)


ONES = np.ones((2, 3), np.float32)


def test_bad_coefficients_are_refused_with_their_name():
    with pytest.raises(ValueError, match="lsp_solver_loss: beta must be 0 or more"):
        losses.lsp_solver_loss(ONES, ONES, ONES, ONES, beta=math.nan)
    with pytest.raises(ValueError, match="lsp_challenger_loss: kl_gradient"):
        losses.lsp_challenger_loss(ONES, ONES, ONES, ONES, beta=0.1, kl_gradient="k3")
