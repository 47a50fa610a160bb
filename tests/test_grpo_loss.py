"""GRPO and its correction for the sampler's gap, against loops in PyTorch at float64 and against numpy."""

import itertools

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


def near(array, seed, spread=0.3):
    """Log-probabilities near others, so that some ratios are clipped and some are not."""
    return (array + np.random.default_rng(seed).uniform(-spread, spread, array.shape)).astype(np.float32)


LOGP = random_logprobs(1)
OLD, REF, PROXIMAL = near(LOGP, 4), near(LOGP, 5), near(LOGP, 6)


def value_and_grad(loss, lp, *rest, **options):
    """The loss, and the gradient of its total."""

    def with_total(x):
        result = loss(x, *rest, **options)
        return result.total, result

    grad, result = jax.jit(jax.grad(with_total, has_aux=True))(lp)
    return result, np.asarray(grad)


# ---- against a loop over ids, differentiated by PyTorch -----------------------------------------------------------


def torch_grpo(lp, old, *, unit="token", low=0.1, high=0.1, kl=0.0, before=None, cap=0.0):
    """Total and weight; `before` is what the ratio is against, with weights up to `cap`."""
    ref, rows = torch.tensor(REF, dtype=torch.float64), []
    for i, on in enumerate(MASK):
        row = []
        for t in np.flatnonzero(on):
            advantage = float(ADVANTAGES[i])
            ratio = torch.exp(lp[i, t] - (old if before is None else before)[i, t])
            gain = torch.minimum(ratio * advantage, torch.clamp(ratio, 1 - low, 1 + high) * advantage)
            weight = 1.0 if before is None else min(torch.exp(before[i, t] - old[i, t]).item(), cap)
            k3 = torch.exp(ref[i, t] - lp[i, t]) - (ref[i, t] - lp[i, t]) - 1
            row.append(-weight * gain + kl * k3)
        if row:
            rows.append(row)
    if unit == "token":
        return sum(itertools.chain(*rows)), sum(map(len, rows))
    return sum(sum(row) / len(row) for row in rows), len(rows)


def assert_agrees(oracle, **options):
    """Same total, weight and gradient as `oracle(policy, old)` in float64."""
    lp, old = (torch.tensor(a, dtype=torch.float64) for a in (LOGP, OLD))
    total, weight = oracle(lp.requires_grad_(), old)
    total.backward()
    loss, grad = value_and_grad(losses.grpo_loss, LOGP, OLD, ADVANTAGES, MASK, **options)
    np.testing.assert_allclose(loss.total, total.item(), rtol=2e-5)
    assert float(loss.weight) == weight
    np.testing.assert_allclose(grad, lp.grad.numpy(), rtol=2e-5, atol=1e-6)
    return loss


@pytest.mark.parametrize("unit", ["token", "sequence"])
@pytest.mark.parametrize(("low", "high", "kl"), [(0.1, None, 0.0), (0.1, 0.3, 0.2), (0.0, None, 1.0)])
def test_grpo_agrees_with_a_loop_over_ids(unit, low, high, kl):
    assert_agrees(
        lambda lp, old: torch_grpo(lp, old, unit=unit, low=low, high=low if high is None else high, kl=kl),
        clip_ratio=low,
        clip_ratio_high=high,
        reference_logprobs=REF,
        kl_coefficient=kl,
        unit=unit,
    )


@pytest.mark.parametrize("unit", ["token", "sequence"])
@pytest.mark.parametrize("kl", [0.0, 0.2])
@pytest.mark.parametrize("cap", [1.1, 50.0], ids=["some cut", "none cut"])
def test_corrected_grpo_agrees_with_a_loop_over_ids(unit, kl, cap):
    loss = assert_agrees(
        lambda lp, old: torch_grpo(
            lp, old, unit=unit, kl=kl, before=torch.tensor(PROXIMAL, dtype=torch.float64), cap=cap
        ),
        reference_logprobs=REF,
        kl_coefficient=kl,
        proximal_logprobs=PROXIMAL,
        importance_cap=cap,
        unit=unit,
    )
    assert (float(loss.metrics["importance_capped"]) > 0) == (cap == 1.1)


def test_in_the_first_update_the_policy_itself_is_what_the_ratio_is_against():
    loss = assert_agrees(lambda lp, old: torch_grpo(lp, old, before=lp.detach(), cap=1.1), importance_cap=1.1)
    assert float(loss.metric_means["ratio"]) == 1
    assert float(loss.metrics["clip_fraction"]) == 0


def test_the_correction_weighs_each_id_of_reinforce():
    """On policy the gradient is w A per id: that of the trainer's policy, estimated from the sampler's ids."""
    _, grad = value_and_grad(losses.grpo_loss, LOGP, OLD, ADVANTAGES, MASK, importance_cap=1.2)
    weight = np.minimum(np.exp(LOGP.astype(np.float64) - OLD), 1.2)
    np.testing.assert_allclose(grad, -weight * ADVANTAGES[:, None] * MASK, rtol=1e-5)


def test_the_correction_makes_the_expected_gradient_that_of_the_trainers_policy():
    """Enumerated: ids drawn from q, trained as p; without the correction the expectation is another."""
    logits, q = jnp.asarray([0.3, -1.0, 0.8]), np.asarray([0.5, 0.2, 0.3], np.float32)
    gains = jnp.asarray([1.0, -0.5, 0.2])

    def expected(**options):
        def one(logits, i):
            lp = jax.nn.log_softmax(logits)[i][None, None]
            old = jnp.log(q)[i][None, None]
            loss = losses.grpo_loss(lp, old, gains[i][None], jnp.ones((1, 1)), clip_ratio=0.99, **options)
            return loss.total

        return q @ jax.vmap(jax.grad(one), in_axes=(None, 0))(logits, jnp.arange(3))

    exact = jax.grad(lambda z: -(jax.nn.softmax(z) * gains).sum())(logits)
    np.testing.assert_allclose(expected(importance_cap=100.0), exact, atol=1e-6)
    assert np.abs(expected(importance_cap=1.0) - exact).max() > 0.01  # what a low cap costs


def test_without_a_gap_the_correction_changes_nothing():
    plain = value_and_grad(losses.grpo_loss, LOGP, OLD, ADVANTAGES, MASK)
    corrected = value_and_grad(losses.grpo_loss, LOGP, OLD, ADVANTAGES, MASK, proximal_logprobs=OLD, importance_cap=1.0)
    np.testing.assert_array_equal(plain[1], corrected[1])
    assert float(plain[0].total) == float(corrected[0].total)
    assert float(corrected[0].metric_means["importance_weight"]) == 1
    assert float(corrected[0].metrics["importance_capped"]) == 0


def test_the_correction_reports_its_weights():
    loss = losses.grpo_loss(LOGP, OLD, ADVANTAGES, MASK, proximal_logprobs=PROXIMAL, importance_cap=1.1)
    uncapped = np.exp(PROXIMAL.astype(np.float64) - OLD)[MASK.astype(bool)]
    assert 0 < (uncapped > 1.1).sum() < len(uncapped)
    np.testing.assert_allclose(loss.metrics["importance_weight"], np.minimum(uncapped, 1.1).sum(), rtol=1e-5)
    assert float(loss.metrics["importance_capped"]) == (uncapped > 1.1).sum()


# ---- identities ---------------------------------------------------------------------------------------------------


def test_on_policy_grpo_has_the_gradient_of_reinforce():
    def reinforce(lp):
        return -(jnp.where(MASK != 0, lp, 0) * jnp.broadcast_to(ADVANTAGES[:, None], MASK.shape)).sum()

    ours = jax.jit(jax.grad(lambda lp: losses.grpo_loss(lp, LOGP, ADVANTAGES, MASK).total))(LOGP)
    np.testing.assert_allclose(ours, jax.jit(jax.grad(reinforce))(LOGP), rtol=1e-6)


def test_token_and_sequence_units_agree_when_all_lengths_are_equal():
    mask = np.zeros(MASK.shape, bool)
    mask[:, 2:5] = True
    token, sequence = (
        losses.grpo_loss(LOGP, OLD, ADVANTAGES, mask, reference_logprobs=REF, kl_coefficient=0.3, unit=unit)
        for unit in ("token", "sequence")
    )
    np.testing.assert_allclose(token.mean, sequence.mean, rtol=1e-6)
    for name, mean in token.metric_means.items():
        np.testing.assert_allclose(mean, sequence.metric_means[name], rtol=2e-5, atol=1e-6)
    assert float(token.weight) == 3 * float(sequence.weight)


def test_clipping_stops_the_gradient_on_one_side_only():
    old = jnp.zeros((4, 1))
    new = jnp.log(jnp.asarray([[1.5], [1.5], [0.5], [0.5]]))
    advantages = jnp.asarray([1.0, -1.0, 1.0, -1.0])
    loss, grad = value_and_grad(losses.grpo_loss, new, old, advantages, jnp.ones((4, 1)))
    assert [bool(g) for g in (grad != 0).ravel()] == [False, True, True, False]
    assert float(loss.metrics["clip_fraction"]) == 2


def test_the_two_bounds_of_the_clip_are_independent():
    new, old = jnp.log(jnp.asarray([[1.25]])), jnp.zeros((1, 1))
    totals = [
        float(losses.grpo_loss(new, old, jnp.ones(1), jnp.ones((1, 1)), clip_ratio=0.1, clip_ratio_high=high).total)
        for high in (None, 0.2, 0.3)
    ]
    np.testing.assert_allclose(totals, [-1.1, -1.2, -1.25], rtol=1e-6)


def test_the_kl_penalty_is_zero_at_the_reference_and_estimates_the_divergence():
    p, q = np.asarray([0.5, 0.3, 0.2]), np.asarray([0.2, 0.5, 0.3])
    lp, ref = np.log(p)[:, None].astype(np.float32), np.log(q)[:, None].astype(np.float32)
    per_outcome = [
        float(
            losses.grpo_loss(
                lp[i : i + 1],
                lp[i : i + 1],
                np.zeros(1, np.float32),
                np.ones((1, 1)),
                reference_logprobs=ref[i : i + 1],
            ).metrics["kl"]
        )
        for i in range(3)
    ]
    np.testing.assert_allclose(np.dot(p, per_outcome), np.sum(p * np.log(p / q)), rtol=1e-5)
    same = losses.grpo_loss(LOGP, LOGP, ADVANTAGES, MASK, reference_logprobs=LOGP, kl_coefficient=1.0)
    assert float(same.metrics["kl"]) == 0


def test_grpo_metrics_are_sums_that_numpy_finds_too():
    loss = losses.grpo_loss(LOGP, OLD, ADVANTAGES, MASK, reference_logprobs=REF)
    on = MASK.astype(bool)
    ratio, gap = np.exp(LOGP - OLD)[on], (REF - LOGP)[on]
    sign = np.sign(np.broadcast_to(ADVANTAGES[:, None], MASK.shape)[on])
    expected = {
        "ratio": ratio.sum(),
        "negative_logprob": -LOGP[on].sum(),
        "kl": (np.exp(gap) - gap - 1).sum(),
        "clip_fraction": (((ratio > 1.1) & (sign > 0)) | ((ratio < 0.9) & (sign < 0))).sum(),
    }
    assert loss.metrics.keys() == expected.keys()
    assert 0 < expected["clip_fraction"] < on.sum()
    for name, value in expected.items():
        np.testing.assert_allclose(loss.metrics[name], value, rtol=1e-5)


# ---- bad input ------------------------------------------------------------------------------------------------------

ONES = np.ones((2, 3), np.float32)
GRPO = (ONES, ONES, ONES, ONES)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.grpo_loss(ONES, ONES[:1], ONES, ONES), r"sampled_logprobs must be .*got \[1, 3\]"),
        (lambda: losses.grpo_loss(ONES, ONES, ONES[0], ONES), r"advantages must be \[batch\] = \[2\] or .*got \[3\]"),
        (lambda: losses.grpo_loss(*GRPO, clip_ratio=1.0), r"clip_ratio must be in \[0, 1\), got 1.0"),
        (lambda: losses.grpo_loss(*GRPO, clip_ratio_high=-0.1), "clip_ratio_high must be 0 or more"),
        (lambda: losses.grpo_loss(*GRPO, kl_coefficient=-1.0), "kl_coefficient must be 0 or more"),
        (lambda: losses.grpo_loss(*GRPO, kl_coefficient=0.1), "reference_logprobs is None"),
        (lambda: losses.grpo_loss(*GRPO, importance_cap=-1.0), "importance_cap must be 0 or more, got -1.0"),
        (lambda: losses.grpo_loss(*GRPO, proximal_logprobs=ONES), "importance_cap is 0; give both"),
        (
            lambda: losses.grpo_loss(*GRPO, proximal_logprobs=ONES[:1], importance_cap=2.0),
            r"proximal_logprobs must be .*got \[1, 3\]",
        ),
        (
            lambda: losses.grpo_loss(*GRPO, unit="row"),
            "unit must be 'token' or 'sequence' or 'fixed_length', got 'row'",
        ),
        (lambda: losses.grpo_loss(*GRPO, unit="fixed_length"), "unit is 'fixed_length' but max_length is 0.0"),
        (lambda: losses.grpo_loss(*GRPO, max_length=8), "unit is 'token' but max_length is 8"),
        (lambda: losses.grpo_loss(*GRPO, max_length=-1), "max_length must be 0 or more, got -1"),
    ],
)
def test_bad_input_is_refused_with_its_name_and_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()
