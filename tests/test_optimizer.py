"""The optimizer against AdamW written out in float64: clip, weight decay, warm-up and schedules."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_models import torch_and_transformers

from dfc.config import OptimizerConfig, ScheduledOptimizerConfig
from dfc.training.optimizer import learning_rate, make_optimizer


def adamw(config, rates, values, gradients):
    """Loshchilov and Hutter (arXiv 1711.05101), Algorithm 2, behind a clip by global norm, in float64."""
    values, m, v = values.astype(np.float64), 0.0, 0.0
    for number, (rate, gradient) in enumerate(zip(rates, gradients, strict=True), start=1):
        norm = np.linalg.norm(gradient)
        g = gradient * min(1.0, config.clip_norm / norm)
        m, v = config.b1 * m + (1 - config.b1) * g, config.b2 * v + (1 - config.b2) * g * g
        corrected = (m / (1 - config.b1**number)) / (np.sqrt(v / (1 - config.b2**number)) + 1e-8)
        values = values - rate * (corrected + config.weight_decay * values)
    return values


@pytest.mark.usefixtures("optax_promotion")
def test_no_update_of_a_short_run_is_at_the_rate_zero():
    for total in (1, 2, 3):
        rate = learning_rate(ScheduledOptimizerConfig(learning_rate=0.1, schedule="cosine", warmup_ratio=0.04), total)
        assert all(float(rate(n)) > 0.01 for n in range(total))


@pytest.mark.usefixtures("optax_promotion")
@pytest.mark.parametrize("warmup", [0, 1, 3, 9])
def test_a_linear_schedule_is_that_of_transformers_without_its_update_at_zero(warmup):
    both = torch_and_transformers()
    total = 9
    config = ScheduledOptimizerConfig(learning_rate=0.1, schedule="linear", warmup_steps=warmup)
    shift = bool(warmup)
    its = both.torch.optim.SGD([both.torch.nn.Parameter(both.torch.zeros(1))], lr=0.1)
    theirs = both.transformers.get_linear_schedule_with_warmup(its, warmup, total + shift)
    expected = [0.1 * theirs.lr_lambdas[0](n + shift) for n in range(total + 1)]
    rate = learning_rate(config, total)
    np.testing.assert_allclose([float(rate(n)) for n in range(total)], expected[:total], rtol=1e-5)
    assert all(float(rate(n)) > 0.01 for n in range(total))  # no update at zero, the last one either
    if warmup < total:
        assert float(rate(total)) == expected[total] == 0


@pytest.mark.usefixtures("optax_promotion")
@pytest.mark.parametrize(
    ("config", "rates"),
    [
        (OptimizerConfig(learning_rate=0.1), [0.1] * 6),
        (OptimizerConfig(learning_rate=0.1, weight_decay=0.3, clip_norm=0.5, b1=0.8, b2=0.9), [0.1] * 6),
        (OptimizerConfig(learning_rate=0.1, warmup_steps=4), [0.025, 0.05, 0.075, 0.1, 0.1, 0.1]),
        (
            ScheduledOptimizerConfig(learning_rate=0.1, schedule="cosine"),
            [0.1 * (1 + np.cos(np.pi * n / 6)) / 2 for n in range(6)],
        ),
        (
            ScheduledOptimizerConfig(learning_rate=0.1, schedule="cosine", warmup_steps=2),
            [0.05, *(0.1 * (1 + np.cos(np.pi * n / 5)) / 2 for n in range(5))],
        ),
        (
            ScheduledOptimizerConfig(learning_rate=0.1, schedule="linear", weight_decay=0.01),
            [0.1 * (6 - n) / 6 for n in range(6)],
        ),
    ],
    ids=["plain", "all numbers", "warm-up", "cosine", "both", "linear"],
)
def test_the_optimizer_is_adamw_with_clip_and_schedule(config, rates):
    rng = np.random.default_rng(0)
    values = rng.normal(size=5).astype(np.float32)
    gradients = [(rng.normal(size=5) * scale).astype(np.float32) for scale in (0.1, 3, 1, 0.01, 10, 1)]
    optimizer = make_optimizer(config, total_steps=6)
    found, state = jnp.asarray(values), optimizer.init(jnp.asarray(values))
    for gradient in gradients:
        updates, state = optimizer.update(jnp.asarray(gradient), state, found)
        found = optax.apply_updates(found, updates)
    np.testing.assert_allclose(found, adamw(config, rates, values, gradients), atol=1e-5)
