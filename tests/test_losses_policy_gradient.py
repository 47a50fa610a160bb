"""Sequence-level ratios (GSPO) against loops in PyTorch, and the identities between the options of `grpo_loss`."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from dfc import losses

# Five rows: gaps, padding in front, a full row, an empty row, a single id.
MASK = np.asarray([[int(c) for c in row] for row in ("0110110", "0001110", "1111111", "0000000", "0000010")])
SAME_LENGTH = np.asarray([[int(c) for c in row] for row in ("1110000", "0111000", "1010100", "0000111", "1100001")])
ONE_TOKEN = np.asarray([[int(c) for c in row] for row in ("1000000", "0001000", "0000001", "0000000", "0100000")])
ADVANTAGES = np.asarray([1.5, -0.7, 0.4, 2.0, -1.1], np.float32)
both_ratios = pytest.mark.parametrize("ratio", ["token", "sequence"])
both_units = pytest.mark.parametrize("unit", ["token", "sequence"])


def near(array, seed, spread=0.3):
    return (array + np.random.default_rng(seed).uniform(-spread, spread, array.shape)).astype(np.float32)


LOGP = np.random.default_rng(1).uniform(-4.0, -0.05, MASK.shape).astype(np.float32)
# Seeds for which some sequences lie above the clip, some below and some within, and so for single ids.
OLD, REF, PROXIMAL = near(LOGP, 29), near(LOGP, 5), near(LOGP, 71)


def grpo(lp=LOGP, old=OLD, adv=ADVANTAGES, mask=MASK, **options):
    """The loss, and the gradient of its total."""

    def with_total(x):
        result = losses.grpo_loss(x, old, adv, mask, **options)
        return result.total, result

    grad, result = jax.jit(jax.grad(with_total, has_aux=True))(lp)
    return result, np.asarray(grad)


def assert_same(one, other, rtol=1e-5):
    """Same loss, metrics included, and same gradient."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6), one, other)


# ---- against a loop over sequences, differentiated by PyTorch -------------------------------------------------------


def float64(array):
    return torch.tensor(np.asarray(array), dtype=torch.float64)


def torch_gspo(lp, *, unit, low, high, kl=0.0, before=OLD, cap=math.inf):
    """Eq. of the paper, one advantage per sequence: the ratio itself is differentiated. Total, weight, clipped rows.

    The weights are of tokens, and a token's is that of its own derivative of the ratio.
    """
    before, old, ref = float64(before), float64(OLD), float64(REF)
    total, weight, clipped = 0, 0, 0
    for i, on in enumerate(MASK):
        if not (positions := np.flatnonzero(on).tolist()):
            continue
        s = torch.stack([torch.exp(lp[i, t] - before[i, t]) for t in positions]).prod() ** (1 / len(positions))
        gain = 0
        for t in positions:
            w = min(math.exp(before[i, t] - old[i, t]), cap)
            of_t = s if cap == math.inf else s.detach() * torch.exp(lp[i, t] - lp[i, t].detach())
            clamped = of_t.clamp(1 - low, 1 + high)
            gain = gain + w * torch.minimum(of_t * float(ADVANTAGES[i]), clamped * float(ADVANTAGES[i])) / len(
                positions
            )
        penalty = sum(torch.exp(d := ref[i, t] - lp[i, t]) - d - 1 for t in positions) / len(positions)
        share = len(positions) if unit == "token" else 1
        total = total + share * (kl * penalty - gain)
        weight += share
        clipped += share * (s > 1 + high if ADVANTAGES[i] > 0 else s < 1 - low).item()
    return total, weight, clipped


def assert_agrees(oracle, **options):
    lp = float64(LOGP).requires_grad_()
    total, weight, clipped = oracle(lp)
    total.backward()
    loss, grad = grpo(ratio="sequence", **options)
    np.testing.assert_allclose(loss.total, total.item(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(grad, lp.grad.numpy(), rtol=1e-5, atol=1e-6)
    assert (float(loss.weight), float(loss.metrics["clip_fraction"])) == (weight, clipped)
    return loss


@both_units
@pytest.mark.parametrize(("low", "high", "kl"), [(0.02, None, 0.0), (0.02, 0.01, 0.2), (0.9, 9.0, 1.0)])
def test_gspo_agrees_with_a_loop_over_sequences(unit, low, high, kl):
    loss = assert_agrees(
        lambda lp: torch_gspo(lp, unit=unit, low=low, high=low if high is None else high, kl=kl),
        clip_ratio=low,
        clip_ratio_high=high,
        reference_logprobs=REF,
        kl_coefficient=kl,
        unit=unit,
    )
    assert (0 < float(loss.metrics["clip_fraction"]) < float(loss.weight)) == (low < 0.9)


@both_units
@pytest.mark.parametrize("cap", [1.02, 50.0], ids=["some cut", "none cut"])
def test_corrected_gspo_agrees_with_a_loop_over_sequences(unit, cap):
    loss = assert_agrees(
        lambda lp: torch_gspo(lp, unit=unit, low=0.02, high=0.02, before=PROXIMAL, cap=cap),
        clip_ratio=0.02,
        proximal_logprobs=PROXIMAL,
        importance_cap=cap,
        unit=unit,
    )
    assert (0 < float(loss.metrics["importance_capped"]) < float(loss.weight)) == (cap == 1.02)


@both_units
def test_turns_with_advantages_of_their_own_agree_with_gspo_token(unit):
    """The paper's GSPO-token: the value of the sequence's ratio, the gradient of the id's."""
    adv = np.where(np.arange(7) < 4, 1.5, -0.8).astype(np.float32) * np.ones((5, 1), np.float32)
    lp, old = float64(LOGP).requires_grad_(), float64(OLD)
    total = 0
    for i, on in enumerate(MASK):
        positions = np.flatnonzero(on).tolist()
        for t in positions:
            s = math.exp(sum((lp[i, u] - old[i, u]).item() for u in positions) / len(positions))
            s_t = s * torch.exp(lp[i, t]) / torch.exp(lp[i, t]).detach()
            gain = torch.minimum(s_t * float(adv[i, t]), s_t.clamp(0.98, 1.03) * float(adv[i, t]))
            total = total - gain / (len(positions) if unit == "sequence" else 1)
    total.backward()
    loss, grad = grpo(adv=adv, ratio="sequence", clip_ratio=0.02, clip_ratio_high=0.03, unit=unit)
    np.testing.assert_allclose(loss.total, total.item(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(grad, lp.grad.numpy(), rtol=1e-5, atol=1e-6)
    assert 0 < float(loss.metrics["clip_fraction"]) < float(loss.weight)


# ---- ratio: a token's or a sequence's -------------------------------------------------------------------------------

CORRECTED = {"proximal_logprobs": PROXIMAL, "importance_cap": 1.1}


@both_units
@pytest.mark.parametrize("options", [{}, CORRECTED], ids=["plain", "corrected"])
def test_with_one_id_per_sequence_both_ratios_are_the_same(unit, options):
    token, sequence = (grpo(mask=ONE_TOKEN, ratio=ratio, unit=unit, **options) for ratio in ("token", "sequence"))
    assert_same(token, sequence)
    assert float(token[0].metrics["clip_fraction"]) > 0


def test_with_every_id_a_segment_of_its_own_both_ratios_are_the_same():
    segments = np.broadcast_to(np.arange(1, 8), MASK.shape)
    sequence = grpo(ratio="sequence", segments=segments, num_segments=7)
    assert_same(grpo(ratio="token"), sequence)
    assert_same(sequence, grpo(ratio="sequence", unit="sequence", segments=segments, num_segments=7))
    assert abs(float(sequence[0].total - grpo(ratio="sequence")[0].total)) > 0.1  # so that the segments do matter


@both_units
def test_on_policy_both_ratios_have_the_same_value_and_gradient(unit):
    token, sequence = (grpo(old=LOGP, ratio=ratio, unit=unit) for ratio in ("token", "sequence"))
    assert_same(token, sequence)
    lengths = 1 if unit == "token" else np.maximum(MASK.sum(axis=1, keepdims=True), 1)
    np.testing.assert_allclose(sequence[1], -ADVANTAGES[:, None] * MASK / lengths, rtol=1e-6)


def test_the_ratio_of_a_sequence_is_the_geometric_mean_of_its_ids():
    loss, _ = grpo(ratio="sequence", unit="sequence", clip_ratio=0.02)
    means = [
        np.prod(np.exp(LOGP - OLD, dtype=np.float64)[i, on]) ** (1 / on.sum())
        for i, on in enumerate(MASK > 0)
        if on.any()
    ]
    np.testing.assert_allclose(loss.metrics["ratio"], sum(means), rtol=1e-6)
    arithmetic = grpo(ratio="token", unit="sequence")[0].metrics["ratio"]
    assert float(loss.metrics["ratio"]) < float(arithmetic)
    signs = np.sign(ADVANTAGES[MASK.any(axis=1)])
    stopped = [(m > 1.02 and sign > 0) or (m < 0.98 and sign < 0) for m, sign in zip(means, signs, strict=True)]
    assert float(loss.metrics["clip_fraction"]) == sum(stopped) > 0


def test_a_sequence_is_clipped_as_a_whole_and_stays_whole():
    # Ratios 1.5 and 0.8: their geometric mean is 1.095; those of the second row are 1.5 and 0.6, mean 0.949.
    new, old = jnp.log(jnp.asarray([[1.5, 0.8], [1.5, 0.6]])), jnp.zeros((2, 2))
    options = {"adv": jnp.ones(2), "mask": jnp.ones((2, 2)), "clip_ratio": 0.05}
    _, token = grpo(new, old, ratio="token", **options)
    _, sequence = grpo(new, old, ratio="sequence", **options)
    assert (token != 0).tolist() == [[False, True], [False, True]]
    assert (sequence != 0).tolist() == [[False, False], [True, True]]


# ---- clip, unit, weights --------------------------------------------------------------------------------------------


@both_ratios
def test_an_upper_bound_equal_to_the_lower_is_the_symmetric_clip(ratio):
    symmetric = grpo(ratio=ratio, clip_ratio=0.02)
    assert_same(symmetric, grpo(ratio=ratio, clip_ratio=0.02, clip_ratio_high=0.02), rtol=0)
    higher = grpo(ratio=ratio, clip_ratio=0.02, clip_ratio_high=0.2)[0].metrics["clip_fraction"]
    assert float(higher) < float(symmetric[0].metrics["clip_fraction"])


@both_ratios
def test_no_upper_bound_and_a_bound_out_of_reach_are_the_same(ratio):
    assert_same(grpo(ratio=ratio, clip_ratio_high=math.inf), grpo(ratio=ratio, clip_ratio_high=10.0), rtol=0)


@both_ratios
@pytest.mark.parametrize("options", [{}, CORRECTED], ids=["plain", "corrected"])
def test_with_equal_lengths_the_sequence_unit_is_the_token_unit_over_the_length(ratio, options):
    everything = {"mask": SAME_LENGTH, "reference_logprobs": REF, "kl_coefficient": 0.3, "clip_ratio": 0.02}
    token, sequence = (grpo(ratio=ratio, unit=unit, **everything, **options) for unit in ("token", "sequence"))
    spread = [loss.importance for loss, _ in (token, sequence)]
    assert_same(*spread, rtol=0)  # of tokens, whatever the unit
    token, sequence = ((dataclasses.replace(loss, importance=None), grad) for loss, grad in (token, sequence))
    assert_same(jax.tree.map(lambda x: x / 3, token), sequence)
    np.testing.assert_allclose(token[0].mean, sequence[0].mean, rtol=1e-6)


@both_ratios
@both_units
def test_without_a_gap_and_a_cap_the_correction_changes_nothing(ratio, unit):
    plain, plain_grad = grpo(ratio=ratio, unit=unit)
    loss, grad = grpo(ratio=ratio, unit=unit, proximal_logprobs=OLD, importance_cap=math.inf)
    assert_same((plain.total, plain_grad), (loss.total, grad), rtol=0)
    assert float(loss.metric_means["importance_weight"]) == 1
    assert float(loss.metrics["importance_capped"]) == 0


@both_units
def test_without_clip_and_cap_weight_times_ratio_is_the_ratio_to_the_sampler(unit):
    free = {"unit": unit, "clip_ratio_high": math.inf, "adv": np.abs(ADVANTAGES)}
    plain, plain_grad = grpo(**free)
    loss, grad = grpo(proximal_logprobs=PROXIMAL, importance_cap=math.inf, **free)
    assert_same((plain.total, plain_grad), (loss.total, grad))
    cut = grpo(proximal_logprobs=PROXIMAL, importance_cap=0.9, **free)[0]
    assert abs(float(cut.total - loss.total)) > 0.01


def test_an_unknown_ratio_is_refused():
    with pytest.raises(ValueError, match="grpo_loss: ratio must be 'token' or 'sequence', got 'row'"):
        losses.grpo_loss(LOGP, OLD, ADVANTAGES, MASK, ratio="row")
