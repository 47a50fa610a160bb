"""What docs/losses.md says of TRL's names: TRL's published formulas in PyTorch beside ours, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from dfc import advantages, losses

# Two groups of two, unlike in length; on some tokens the ratio is clipped, on some the weight is cut.
MASK = np.asarray([[int(c) for c in row] for row in ("01111110", "00110000", "11101110", "00000100")])
GROUPS, SIZE = 2, 2
RNG = np.random.default_rng(0)
LOGP = RNG.uniform(-3, -0.1, MASK.shape)
SAMPLED, OLD, REF = (LOGP + RNG.uniform(-0.4, 0.4, MASK.shape) for _ in range(3))
REWARDS = np.asarray([[1.0, -0.5], [0.25, 0.75]])
MAX_COMPLETION_LENGTH = 11


def trl_advantages(scale_rewards):
    """Of each completion, [groups * size]."""
    rewards = torch.tensor(REWARDS)
    centered = rewards - rewards.mean(dim=1, keepdim=True)
    return (centered / (rewards.std(dim=1, keepdim=True) + 1e-4) if scale_rewards == "group" else centered).flatten()


def trl_weights(difference, mode, cap, floor):
    """TRL's importance weights, [rows, time] or [rows, 1], of masked differences of log-probabilities."""
    if mode in ("sequence_mask", "sequence_truncate"):
        difference = difference.sum(dim=-1, keepdim=True)
    weights = torch.exp(difference)
    if mode in ("sequence_truncate", "token_truncate"):
        return torch.clamp(weights, min=floor, max=cap)
    low = -torch.inf if floor is None else floor
    return weights.masked_fill((weights < low) | (weights > cap), value=0.0)


def trl_grpo(
    logp,
    loss_type,
    *,
    epsilon=0.2,
    epsilon_high=0.2,
    beta=0.0,
    level="token",
    cap=None,
    floor=None,
    mode="token_truncate",
    scale="group",
):
    """TRL's loss of one batch as its documentation and papers state it."""
    mask, gain = torch.tensor(MASK, dtype=torch.float64), trl_advantages(scale)[:, None]
    old, ref, sampled = (torch.tensor(array) for array in (OLD if cap else SAMPLED, REF, SAMPLED))
    log_ratio = logp - old
    if level == "sequence":
        log_ratio = ((log_ratio * mask).sum(1) / mask.sum(1))[:, None]
    ratio = log_ratio.exp()
    per_token = -torch.minimum(ratio * gain, ratio.clamp(1 - epsilon, 1 + epsilon_high) * gain)
    if cap:
        per_token = per_token * trl_weights((old - sampled) * mask, mode, cap, floor)
    per_token = per_token + beta * ((ref - logp).exp() - (ref - logp) - 1)
    per_row = (per_token * mask).sum(1)
    return {
        "grpo": (per_row / mask.sum(1)).mean(),
        "dapo": per_row.sum() / mask.sum(),
        "bnpo": per_row.sum() / mask.sum(),
        "dr_grpo": per_row.sum() / (len(mask) * MAX_COMPLETION_LENGTH),
        "luspo": per_row.mean(),
    }[loss_type]


UNITS = {
    "grpo": {"unit": "sequence"},
    "dapo": {"unit": "token"},
    "bnpo": {"unit": "token"},
    "dr_grpo": {"unit": "fixed_length", "max_length": MAX_COMPLETION_LENGTH},
    "luspo": {"unit": "fixed_length", "max_length": 1},
}


def assert_agrees(ours, theirs, *policy, gradient=True):
    """The same mean, and the same gradient of it by every array of the policy."""
    leaves = [torch.tensor(array, requires_grad=True) for array in policy]
    expected = theirs(*leaves)
    expected.backward()
    with jax.enable_x64(True):  # noqa: FBT003 - jax's own signature
        value, grads = jax.value_and_grad(lambda arrays: ours(*arrays).mean)([jnp.asarray(array) for array in policy])
    np.testing.assert_allclose(value, expected.item(), rtol=1e-10)
    if not gradient:
        return
    for grad, leaf in zip(grads, leaves, strict=True):
        assert leaf.grad.abs().max() > 0
        np.testing.assert_allclose(grad, leaf.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss_type", UNITS)
@pytest.mark.parametrize(
    ("theirs", "names"),
    [
        ({}, {}),
        ({"epsilon": 0.1, "epsilon_high": 0.28}, {"clip_ratio": 0.1, "clip_ratio_high": 0.28}),
        ({"beta": 0.3}, {"kl_coefficient": 0.3}),
        ({"level": "sequence"}, {"ratio": "sequence"}),
        ({"cap": 1.1}, {"importance_cap": 1.1, "proximal_logprobs": OLD}),
        ({"scale": "none"}, {}),
    ],
    ids=["defaults", "epsilons", "beta", "sequence", "cap", "scale_rewards none"],
)
def test_loss_types_are_units(loss_type, theirs, names):
    gain = advantages.group_relative(REWARDS, normalize_std=theirs.get("scale") != "none").ravel()
    options = {"clip_ratio": 0.2, "reference_logprobs": REF} | UNITS[loss_type] | names
    assert_agrees(
        lambda logp: losses.grpo_loss(logp, SAMPLED, gain, MASK, **options),
        lambda logp: trl_grpo(logp, loss_type, **theirs),
        LOGP,
    )


MODES = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("floor", [None, 0.8])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_modes_of_importance_sampling_are_modes(loss_type, mode, floor, level):
    gain = advantages.group_relative(REWARDS).ravel()
    bounds = {"importance_cap": 1.15, "importance_floor": floor or 0.0, "importance_mode": mode}
    options = {"proximal_logprobs": OLD, "reference_logprobs": REF, "kl_coefficient": 0.1, "ratio": level, **bounds}
    by_mean = level == "sequence" and mode.startswith("token")
    assert_agrees(
        lambda logp: losses.grpo_loss(logp, SAMPLED, gain, MASK, clip_ratio=0.2, **options, **UNITS[loss_type]),
        lambda logp: trl_grpo(logp, loss_type, beta=0.1, level=level, cap=1.15, floor=floor, mode=mode),
        LOGP,
        gradient=not by_mean,  # docs/losses.md says how they differ; test_importance.py has ours
    )


@pytest.mark.parametrize("mode", MODES)
def test_of_these_weights_some_are_above_the_bounds_some_below_and_some_within(mode):
    difference = torch.tensor((OLD - SAMPLED) * MASK)
    free = trl_weights(difference, mode.replace("mask", "truncate"), 99, None)
    free = free[torch.tensor(MASK) > 0] if mode.startswith("token") else free
    assert (free > 1.15).any()
    assert (free < 0.8).any()
    assert ((free > 0.8) & (free < 1.15)).any()


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
def test_micro_batches_of_any_cut_give_the_whole_batch(loss_type):
    gain = trl_advantages("group").numpy()
    parts = [
        losses.grpo_loss(LOGP[rows], SAMPLED[rows], gain[rows], MASK[rows], clip_ratio=0.2, **UNITS[loss_type])
        for rows in (slice(0, 1), slice(1, 4))
    ]
    whole = trl_grpo(torch.tensor(LOGP), loss_type)
    np.testing.assert_allclose((parts[0] + parts[1]).mean, whole.item(), rtol=1e-5)


def test_a_fixed_length_divides_by_the_same_in_every_batch():
    gain = trl_advantages("none").numpy()
    loss = losses.grpo_loss(LOGP, SAMPLED, gain, MASK, unit="fixed_length", max_length=16)
    tokens, sequences = (losses.grpo_loss(LOGP, SAMPLED, gain, MASK, unit=unit) for unit in ("token", "sequence"))
    np.testing.assert_allclose(loss.total, tokens.total / 16, rtol=1e-6)
    assert float(loss.weight) == float(sequences.weight) == len(MASK)
    jax.tree.map(np.testing.assert_array_equal, loss.metrics, sequences.metrics)


# ---- pairs ----------------------------------------------------------------------------------------------------------


def trl_dpo(chosen, rejected, loss_type, *, beta, masks=MASK, weight=0.0, gamma=0.0):
    """TRL's losses of pairs, one row per side."""
    masks = torch.as_tensor(masks, dtype=torch.float64)
    sums, ratios = [], []
    for logp, mask, ref in ((chosen, masks[:2], REF[:2]), (rejected, masks[2:], REF[2:])):
        sums.append((logp * mask).sum(1))
        ratios.append(((logp - torch.tensor(ref)) * mask).sum(1))
    lengths = masks[:2].sum(1), masks[2:].sum(1)
    if loss_type == "sigmoid":
        return -torch.nn.functional.logsigmoid(beta * (ratios[0] - ratios[1])).mean()
    if loss_type == "sigmoid_norm":
        return -torch.nn.functional.logsigmoid(beta * (ratios[0] / lengths[0] - ratios[1] / lengths[1])).mean()
    if loss_type == "simpo":
        gap = sums[0] / lengths[0] - sums[1] / lengths[1] - gamma / beta
        return -torch.nn.functional.logsigmoid(beta * gap).mean()
    likelihood = sums[0].sum() / lengths[0].sum()  # of "sft": the mean over all tokens
    return trl_dpo(chosen, rejected, "sigmoid", masks=masks, beta=beta) - weight * likelihood


ROWS = {"chosen_mask": MASK[:2], "rejected_mask": MASK[2:]}
REFERENCES = {"chosen_reference_logprobs": REF[:2], "rejected_reference_logprobs": REF[2:]}


@pytest.mark.parametrize(
    ("theirs", "loss", "names"),
    [
        (("sigmoid", {"beta": 0.3}), losses.dpo_loss, {"beta": 0.3}),
        (("sigmoid_norm", {"beta": 2.0}), losses.dpo_loss, {"beta": 2.0, "normalize_length": True}),
        (("simpo", {"beta": 2.0, "gamma": 0.5}), losses.simpo_loss, {"beta": 2.0, "margin": 0.5}),
    ],
    ids=["sigmoid", "sigmoid_norm", "simpo"],
)
def test_loss_types_of_pairs(theirs, loss, names):
    loss_type, options = theirs
    names = names | ({} if loss is losses.simpo_loss else REFERENCES)
    assert_agrees(
        lambda chosen, rejected: loss(chosen_logprobs=chosen, rejected_logprobs=rejected, **ROWS, **names),
        lambda chosen, rejected: trl_dpo(chosen, rejected, loss_type, **options),
        LOGP[:2],
        LOGP[2:],
    )


def test_a_mix_with_sft_is_rpo_where_all_chosen_sides_are_as_long():
    """TRL's likelihood is a mean over the tokens of the batch, ours over pairs of the mean within each."""
    masks = np.where(np.arange(4)[:, None] < 2, MASK[:1], MASK)
    rows = {"chosen_mask": masks[:2], "rejected_mask": masks[2:]}
    assert_agrees(
        lambda chosen, rejected: losses.rpo_loss(
            chosen_logprobs=chosen, rejected_logprobs=rejected, **rows, **REFERENCES, beta=0.3, alpha=0.7
        ),
        lambda chosen, rejected: trl_dpo(chosen, rejected, "sigmoid, sft", masks=masks, beta=0.3, weight=0.7),
        LOGP[:2],
        LOGP[2:],
    )
