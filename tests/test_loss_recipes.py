"""Five methods of docs/losses.md, from rewards to the gradient, beside their papers' formulas in PyTorch and Python.

The losses of one's own that the page shows are run as it shows them.
"""

import ast
import math
import statistics

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from doc_pages import ROOT, blocks

from dfc import advantages, losses

# Two groups of four sequences, unlike in length, of one to seven action tokens.
PICTURES = ("01111110", "00110000", "11101110", "00000100", "00111100", "10101010", "01110111", "00011000")
MASK = np.asarray([[int(c) for c in row] for row in PICTURES])
GROUPS, SIZE = 2, 4
RNG = np.random.default_rng(3)
LOGP = RNG.uniform(-3, -0.1, MASK.shape)
SAMPLED, REFERENCE = (LOGP + RNG.uniform(-0.4, 0.4, MASK.shape) for _ in range(2))
REWARDS = np.asarray([[1.0, -0.5, 0.25, 0.75], [-1.0, 1.0, 1.0, 0.0]])
ONE_A_ROW = {"segments": np.ones_like(MASK), "num_segments": 1}


@pytest.fixture(scope="module")
def shown():
    """What the page's Python defines, run from top to bottom."""
    names = {}
    for language, code in blocks((ROOT / "docs" / "losses.md").read_text()):
        if language == "python":
            exec(code, names)  # noqa: S102 - our own page
    return names


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):  # noqa: FBT003 - jax's own signature
        yield


# ---- the papers, sequence by sequence -------------------------------------------------------------------------------


def positions(i):
    return np.flatnonzero(MASK[i]).tolist()


def of_group(i):
    """The rewards of a sequence's group."""
    return REWARDS[i // SIZE].tolist()


def reward(i):
    return REWARDS.ravel()[i].item()


def clipped(ratio, gain, low, high):
    return torch.minimum(ratio * gain, torch.clamp(ratio, 1 - low, 1 + high) * gain)


def gspo(logp, *, low, high):
    """2507.18071, eq. 5 to 7."""
    total = 0.0
    for i in range(len(MASK)):
        gain = (reward(i) - statistics.mean(of_group(i))) / statistics.stdev(of_group(i))
        product = torch.stack([torch.exp(logp[i, t] - SAMPLED[i, t]) for t in positions(i)]).prod()
        total = total + clipped(product ** (1 / len(positions(i))), gain, low, high)
    return -total / len(MASK)


def dr_grpo(logp, *, longest, low):
    """2503.20783, section 3.2: neither the length nor the deviation divides."""
    total = 0.0
    for i in range(len(MASK)):
        gain = reward(i) - statistics.mean(of_group(i))
        for t in positions(i):
            total = total + clipped(torch.exp(logp[i, t] - SAMPLED[i, t]), gain, low, low)
    return -total / (len(MASK) * longest)


def penalized(i, beta):
    """The reward of a sequence less beta times the logarithm of its ratio to the reference (2402.14740, eq. 3)."""
    return reward(i) - beta * sum(SAMPLED[i, t] - REFERENCE[i, t] for t in positions(i))


def leave_one_out(i, beta):
    first = i // SIZE * SIZE
    others = [penalized(j, beta) for j in range(first, first + SIZE) if j != i]
    return penalized(i, beta) - statistics.mean(others)


def rloo(logp, *, beta):
    """2402.14740, eq. 9 (its gradient): the reward less the mean of the others, times log pi of all of the sequence."""
    total = 0.0
    for i in range(len(MASK)):
        total = total + leave_one_out(i, beta) * sum(logp[i, t] for t in positions(i))
    return -total / len(MASK)


def clipped_rloo(logp, *, beta, low):
    """The same after the first update: pi(y) / pi_old(y) of all of the sequence, clipped as PPO clips."""
    total = 0.0
    for i in range(len(MASK)):
        ratio = torch.exp(sum(logp[i, t] - SAMPLED[i, t] for t in positions(i)))
        total = total + clipped(ratio, leave_one_out(i, beta), low, low)
    return -total / len(MASK)


def cispo(logp, *, cap):
    """2506.13585, eq. 4 and 5."""
    total, tokens = 0.0, 0
    for i in range(len(MASK)):
        gain = (reward(i) - statistics.mean(of_group(i))) / statistics.stdev(of_group(i))
        for t in positions(i):
            weight = min(math.exp(logp[i, t].item() - SAMPLED[i, t]), cap)
            total, tokens = total + weight * gain * logp[i, t], tokens + 1
    return -total / tokens


def reinforce_pp(logp, *, beta, low):
    """2501.03262, eq. 8 to 10, under PPO's clip."""
    values = {}
    for i in range(len(MASK)):
        for t in positions(i):
            later = sum(SAMPLED[i, u] - REFERENCE[i, u] for u in positions(i) if u >= t)
            values[i, t] = reward(i) - beta * later
    mean, deviation = statistics.mean(values.values()), statistics.pstdev(values.values())
    total = 0.0
    for (i, t), value in values.items():
        total = total + clipped(torch.exp(logp[i, t] - SAMPLED[i, t]), (value - mean) / deviation, low, low)
    return -total / len(values)


# ---- the page -------------------------------------------------------------------------------------------------------


def normalized():
    return advantages.group_relative(REWARDS, epsilon=0.0).ravel()


def per_token(gain):
    return np.broadcast_to(gain[:, None], MASK.shape)


def assert_agrees(ours, theirs, *, at=LOGP, value=True):
    """The same mean and the same gradient of it; of some only the gradient is the method's."""
    leaf = torch.tensor(at, requires_grad=True)
    expected = theirs(leaf)
    expected.backward()
    (found, loss), grad = jax.value_and_grad(lambda x: ((r := ours(x)).mean, r), has_aux=True)(jnp.asarray(at))
    if value:
        np.testing.assert_allclose(found, expected.item(), rtol=1e-10)
    assert leaf.grad.abs().max() > 0
    np.testing.assert_allclose(grad, leaf.grad.numpy(), rtol=1e-9, atol=1e-12)
    return {name: float(mean) for name, mean in loss.metric_means.items()}


def test_gspo():
    options = {"ratio": "sequence", "unit": "sequence", "clip_ratio": 0.02, "clip_ratio_high": 0.03}
    metrics = assert_agrees(
        lambda logp: losses.grpo_loss(logp, SAMPLED, normalized(), MASK, **options),
        lambda logp: gspo(logp, low=0.02, high=0.03),
    )
    assert 0 < metrics["clip_fraction"] < 1


def test_dr_grpo():
    gain = advantages.group_relative(REWARDS, normalize_std=False).ravel()
    metrics = assert_agrees(
        lambda logp: losses.grpo_loss(logp, SAMPLED, gain, MASK, unit="fixed_length", max_length=16, clip_ratio=0.2),
        lambda logp: dr_grpo(logp, longest=16, low=0.2),
    )
    assert 0 < metrics["clip_fraction"] < 1


def rloo_advantages(beta):
    penalties = beta * np.where(MASK, SAMPLED - REFERENCE, 0).sum(axis=1).reshape(GROUPS, SIZE)
    return advantages.leave_one_out(REWARDS - penalties).ravel()


def test_rloo_in_the_update_after_sampling():
    gain = rloo_advantages(0.3)
    assert_agrees(
        lambda logp: losses.grpo_loss(logp, SAMPLED, gain, MASK, unit="fixed_length", max_length=1),
        lambda logp: rloo(logp, beta=0.3),
        at=SAMPLED,
        value=False,
    )


def test_rloo_with_the_ratio_of_the_whole_sequence(shown):
    gain = per_token(rloo_advantages(0.3))
    metrics = assert_agrees(
        lambda logp: shown["whole_sequence_loss"](logp, SAMPLED, gain, MASK, **ONE_A_ROW, clip_ratio=0.2),
        lambda logp: clipped_rloo(logp, beta=0.3, low=0.2),
    )
    assert 0 < metrics["clip_fraction"] < 1


@pytest.mark.parametrize("cap", [1.1, 6.0], ids=["some cut", "none cut"])
def test_cispo(shown, cap):
    metrics = assert_agrees(
        lambda logp: shown["cispo_loss"](logp, SAMPLED, per_token(normalized()), MASK, cap=cap),
        lambda logp: cispo(logp, cap=cap),
    )
    assert metrics["importance_weight"] < 1.1 or cap > 1.1


def test_the_gradient_of_cispo_is_that_of_an_importance_cap_without_proximal_log_probabilities():
    metrics = assert_agrees(
        lambda logp: losses.grpo_loss(logp, SAMPLED, normalized(), MASK, importance_cap=1.1),
        lambda logp: cispo(logp, cap=1.1),
        value=False,
    )
    assert 0 < metrics["importance_capped"] < 1


def test_reinforce_pp(shown):
    gain = shown["reinforce_pp"](REWARDS.ravel(), SAMPLED, REFERENCE, MASK, beta=0.2)
    metrics = assert_agrees(
        lambda logp: losses.grpo_loss(logp, SAMPLED, gain, MASK, clip_ratio=0.2),
        lambda logp: reinforce_pp(logp, beta=0.2, low=0.2),
    )
    assert 0 < metrics["clip_fraction"] < 1


# ---- what a loss of the page has from its pieces --------------------------------------------------------------------


def both(shown, name):
    """The loss and the gradient of its total, of segments or of rows."""

    def found(logp, sampled, gain, mask, segments, num_segments):
        def total(x):
            loss = shown[name](x, sampled, gain, mask, segments=segments, num_segments=num_segments)
            return loss.total, loss

        grad, loss = jax.jit(jax.grad(total, has_aux=True))(jnp.asarray(logp))
        return loss, np.asarray(grad)

    return found


def paired(array):
    """Rows of two sequences each, and behind them padding that only its segment tells from action tokens."""
    behind = 1 if array is MASK else 0
    return np.pad(array.reshape(len(MASK) // 2, -1), ((0, 0), (0, 3)), constant_values=behind)


@pytest.mark.parametrize("name", ["cispo_loss", "whole_sequence_loss"])
def test_packed_rows_equal_unpacked_rows(shown, name):
    loss, arrays = both(shown, name), (LOGP, SAMPLED, per_token(normalized()), MASK)
    rows, rows_grad = loss(*arrays, **ONE_A_ROW)
    numbers = paired(np.ones_like(MASK) + (np.arange(len(MASK)) % 2)[:, None])
    packed, packed_grad = loss(*map(paired, arrays), segments=numbers, num_segments=2)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), packed, rows)
    np.testing.assert_allclose(packed_grad, paired(rows_grad), rtol=1e-12)


@pytest.mark.parametrize("name", ["cispo_loss", "whole_sequence_loss"])
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
def test_what_stands_at_masked_positions_changes_neither_value_nor_gradient(shown, name, garbage):
    loss = both(shown, name)
    clean, clean_grad = loss(LOGP, SAMPLED, per_token(normalized()), MASK, **ONE_A_ROW)
    dirty, dirty_grad = loss(
        *(np.where(MASK, array, garbage) for array in (LOGP, SAMPLED)), per_token(normalized()), MASK, **ONE_A_ROW
    )
    jax.tree.map(np.testing.assert_array_equal, clean, dirty)
    np.testing.assert_array_equal(clean_grad, dirty_grad)


def test_what_the_page_defines_has_ten_lines_at_most():
    page = (ROOT / "docs" / "losses.md").read_text()
    code = [ast.parse(code) for language, code in blocks(page) if language == "python"]
    functions = [node for tree in code for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert {node.name for node in functions} == {"cispo_loss", "whole_sequence_loss", "reinforce_pp"}
    assert max(node.end_lineno - node.lineno + 1 for node in functions) <= 10
