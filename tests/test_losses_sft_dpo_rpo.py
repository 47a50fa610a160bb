"""SFT, DPO and RPO against loops in PyTorch at float64, what links them, and what losses of pairs refuse."""

import math

import jax
import numpy as np
import pytest
import torch

from dfc import losses

# Five rows: gaps, padding in front, a full row, an empty row, a single id.
MASK = np.asarray([[int(c) for c in row] for row in ("0110110", "0001110", "1111111", "0000000", "0000010")])
BATCH, TIME = MASK.shape


def sides(chosen, chosen_mask, rejected, rejected_mask, *references):
    """The arrays of two sides by their names."""
    named = {"chosen_logprobs": chosen, "chosen_mask": chosen_mask}
    named |= {"rejected_logprobs": rejected, "rejected_mask": rejected_mask}
    return named | dict(zip(("chosen_reference_logprobs", "rejected_reference_logprobs"), references, strict=False))


def random_logprobs(seed, *shape, low=-4.0, high=-0.05):
    return np.random.default_rng(seed).uniform(low, high, shape or (BATCH, TIME)).astype(np.float32)


LOGP, OLD, REF = random_logprobs(1), random_logprobs(2), random_logprobs(3)


# ---- oracles: loops over trajectories in float64, differentiated by PyTorch ---------------------------------------


def rows_of(mask):
    return [[t for t in range(mask.shape[1]) if mask[i, t]] for i in range(mask.shape[0])]


def torch_sft(lp, mask):
    per_row = [
        -sum(lp[i, t] for t in positions) / len(positions) for i, positions in enumerate(rows_of(mask)) if positions
    ]
    return sum(per_row), len(per_row)


def torch_dpo(chosen, rejected, beta, alpha):
    (lp_w, mask_w, ref_w), (lp_l, mask_l, ref_l) = chosen, rejected
    total, pairs = 0, 0
    for i, (positions_w, positions_l) in enumerate(zip(rows_of(mask_w), rows_of(mask_l), strict=True)):
        if positions_w and positions_l:
            margin = sum(lp_w[i, t] - ref_w[i, t] for t in positions_w) - sum(
                lp_l[i, t] - ref_l[i, t] for t in positions_l
            )
            likelihood = sum(lp_w[i, t] for t in positions_w) / len(positions_w)
            total = total - torch.nn.functional.logsigmoid(beta * margin) - alpha * likelihood
            pairs += 1
    return total, pairs


def as_torch(*arrays):
    return [torch.tensor(np.asarray(a, np.float64)) for a in arrays]


def assert_agrees(loss_of, oracle_of, *policy, rtol=2e-5):
    """Same total, weight and gradient, with respect to each of the policy's arrays."""
    leaves = [t.requires_grad_() for t in as_torch(*policy)]
    total, weight = oracle_of(*leaves)
    total.backward()

    def with_total(*arrays):
        result = loss_of(*arrays)
        return result.total, result

    grads, loss = jax.jit(jax.grad(with_total, argnums=tuple(range(len(policy))), has_aux=True))(*policy)
    np.testing.assert_allclose(loss.total, total.item(), rtol=rtol)
    assert float(loss.weight) == weight
    np.testing.assert_allclose(loss.mean, total.item() / weight, rtol=rtol)
    for ours, leaf in zip(grads, leaves, strict=True):
        np.testing.assert_allclose(ours, leaf.grad.numpy(), rtol=rtol, atol=1e-6)


def test_sft_agrees_with_a_loop_over_trajectories():
    assert_agrees(lambda lp: losses.sft_loss(lp, MASK), lambda lp: torch_sft(lp, MASK), LOGP)


OTHER_MASK = np.asarray([[int(c) for c in row] for row in ("0110", "1111", "0000", "1100", "0001")])
OTHER, OTHER_REF = random_logprobs(6, BATCH, 4), random_logprobs(7, BATCH, 4)


def test_dpo_agrees_with_a_loop_over_pairs_of_unequal_length():
    ref, other_ref = as_torch(REF, OTHER_REF)
    assert_agrees(
        lambda w, other: losses.dpo_loss(**sides(w, MASK, other, OTHER_MASK, REF, OTHER_REF), beta=0.3),
        lambda w, other: torch_dpo((w, MASK, ref), (other, OTHER_MASK, other_ref), 0.3, 0.0),
        LOGP,
        OTHER,
    )


def test_rpo_agrees_with_a_loop_over_pairs():
    ref, other_ref = as_torch(REF, OTHER_REF)
    assert_agrees(
        lambda w, other: losses.rpo_loss(**sides(w, MASK, other, OTHER_MASK, REF, OTHER_REF), beta=0.3, alpha=0.7),
        lambda w, other: torch_dpo((w, MASK, ref), (other, OTHER_MASK, other_ref), 0.3, 0.7),
        LOGP,
        OTHER,
    )


# ---- identities ---------------------------------------------------------------------------------------------------


def test_rpo_is_dpo_plus_alpha_times_sft():
    chosen_mask = np.ones_like(MASK)
    arguments = sides(LOGP, chosen_mask, OLD, np.maximum(MASK, MASK[:1]), REF, REF)
    dpo_part, sft_part = losses.dpo_loss(**arguments), losses.sft_loss(LOGP, chosen_mask)
    whole = losses.rpo_loss(**arguments, alpha=0.4)
    np.testing.assert_allclose(whole.total, dpo_part.total + 0.4 * sft_part.total, rtol=1e-6)
    np.testing.assert_allclose([whole.metrics["dpo"], whole.metrics["sft"]], [dpo_part.total, sft_part.total])
    assert float(whole.weight) == float(dpo_part.weight) == BATCH
    np.testing.assert_allclose(losses.rpo_loss(**arguments, alpha=0.0).total, dpo_part.total, rtol=2e-5)


def test_an_untrained_pair_costs_log_two_and_has_no_margin():
    loss = losses.dpo_loss(**sides(LOGP, np.ones_like(MASK), OLD, np.ones_like(MASK), LOGP, OLD))
    np.testing.assert_allclose(loss.mean, math.log(2), rtol=1e-6)
    assert float(loss.metrics["margin"]) == float(loss.metrics["accuracy"]) == 0


def test_dpo_metrics_are_implicit_rewards():
    beta = 0.5
    chosen, rejected = np.asarray([[-1.0], [-1.0]], np.float32), np.asarray([[-2.0], [-2.0]], np.float32)
    references = np.asarray([[-3.0], [-1.0]], np.float32), np.asarray([[-2.0], [-4.0]], np.float32)
    loss = losses.dpo_loss(**sides(chosen, np.ones((2, 1)), rejected, np.ones((2, 1)), *references), beta=beta)
    expected = {"chosen_reward": beta * (2 + 0), "rejected_reward": beta * (0 + 2), "margin": 0.0, "accuracy": 1.0}
    assert {name: float(value) for name, value in loss.metrics.items()} == expected


def test_dpo_stays_finite_where_the_margin_is_large():
    lp = np.full((2, 1), -1.0, np.float32)
    ref = np.asarray([[-1e4], [1e4]], np.float32)
    one = np.ones((2, 1))
    total, grad = jax.value_and_grad(lambda w: losses.dpo_loss(**sides(w, one, lp, one, ref, lp), beta=1.0).total)(lp)
    np.testing.assert_allclose(total, 1e4, rtol=1e-3)
    assert np.isfinite(grad).all()


# ---- bad input ------------------------------------------------------------------------------------------------------

ONES = np.ones((2, 4), np.float32)
PAIR = sides(*(ONES,) * 6)
FOUR = sides(*(ONES,) * 4)  # without references


def packed(num_segments=2, segments=None, reference=ONES, **options):
    segments = np.ones((2, 4), int) if segments is None else segments
    return losses.packed_preference_loss(ONES, ONES, reference, segments=segments, num_segments=num_segments, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.dpo_loss(**PAIR, beta=0.0), "dpo_loss: beta must be above 0"),
        (
            lambda: losses.dpo_loss(**sides(ONES, ONES, ONES[:1], ONES[:1], ONES, ONES[:1])),
            "chosen has 2 rows and rejected 1",
        ),
        (lambda: losses.rpo_loss(**PAIR, alpha=-1.0), "rpo_loss: alpha must be 0 or more"),
        (lambda: losses.rpo_loss(**sides(*(ONES,) * 4, ONES[:1], ONES)), "chosen_reference_logprobs must be"),
        (lambda: losses.simpo_loss(**FOUR, beta=-1.0), "simpo_loss: beta must be above 0"),
        (lambda: losses.simpo_loss(**FOUR, margin=-1.0), "simpo_loss: margin must be 0 or more"),
        (
            lambda: losses.simpo_loss(**sides(ONES, ONES, ONES[:1], ONES[:1])),
            "simpo_loss: row i .* chosen has 2 rows and reje",
        ),
        (lambda: packed(3), "packed_preference_loss: num_segments must be even, two trajectories to a pair, got 3"),
        (lambda: packed(0), "num_segments must be 1 or more, got 0"),
        (lambda: packed(beta=0.0), "packed_preference_loss: beta must be above 0, got 0.0"),
        (lambda: packed(alpha=-0.5), "alpha must be 0 or more, got -0.5"),
        (lambda: packed(preference_weight=-1.0), "preference_weight must be 0 or more, got -1.0"),
        (lambda: packed(margin=float("nan")), "margin must be 0 or more, got nan"),
        (lambda: packed(segments=ONES), "segments must have an integer dtype"),
        (
            lambda: packed(reference=ONES[:1]),
            r"reference_logprobs must be \[batch, time\] = \[2, 4\], got \[1, 4\]",
        ),
    ],
)
def test_bad_input_is_refused_with_its_name_and_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_arrays_of_two_sides_have_no_order():
    for loss, count in ((losses.dpo_loss, 6), (losses.rpo_loss, 6), (losses.simpo_loss, 4)):
        with pytest.raises(TypeError, match="positional argument"):
            loss(*(ONES,) * count)
