"""The optimizer of every recipe, from its configuration."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from dfc.config import OptimizerConfig, ScheduledOptimizerConfig


def learning_rate(config: OptimizerConfig, total_steps: int = 1) -> optax.Schedule:
    """Returns the learning rate by number of updates done.

    With W updates of warm-up, update n (from 0) has the share (n + 1) / W of the rate; then it stays, or falls as a
    cosine or in a line that reaches zero after the last update. Transformers' schedules with warm-up begin with an
    update at zero: update n here has the rate of update n + 1 there, of a run that is one update longer. Without a
    schedule of its own the rate is constant after warm-up; `warmup_ratio` is a share of `total_steps`.
    """
    # A ratio such as 0.07 of 100 updates is 7.000000000000001 as floating-point numbers multiply.
    schedule = config if isinstance(config, ScheduledOptimizerConfig) else ScheduledOptimizerConfig()
    warmup = max(config.warmup_steps, math.ceil(schedule.warmup_ratio * total_steps - 1e-9))
    end = max(total_steps, warmup + 1) + bool(warmup)
    if schedule.schedule == "cosine":
        first = 0.0 if warmup else config.learning_rate
        rate: optax.Schedule = optax.warmup_cosine_decay_schedule(first, config.learning_rate, warmup, end)
    elif schedule.schedule == "linear":
        falling = optax.linear_schedule(config.learning_rate, 0.0, end - warmup)
        rising = optax.linear_schedule(0.0, config.learning_rate, warmup) if warmup else falling
        rate = optax.join_schedules([rising, falling], [warmup])
    elif warmup:
        rate = optax.linear_schedule(0.0, config.learning_rate, warmup)
    else:
        return optax.constant_schedule(config.learning_rate)
    # An update at the rate 0, with which warm-up would begin, is none; of a run of two updates it would be half.
    return lambda updates: rate(updates + bool(warmup))


def make_optimizer(config: OptimizerConfig, total_steps: int = 1) -> optax.GradientTransformation:
    """Returns AdamW after a global-norm clip, with linear warm-up and the schedule (see `learning_rate`)."""
    rate = learning_rate(config, total_steps)
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.adamw(rate, b1=config.b1, b2=config.b2, weight_decay=config.weight_decay),
    )


def in_float32(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Returns the optimizer with its state and arithmetic in float32, whatever the weights and gradients are.

    Moments of bfloat16 weights would otherwise be bfloat16 too: a second moment with 8 bits stands still once an
    update changes it by less than 1/256.
    """

    def wide(tree: Any) -> Any:  # noqa: ANN401 - any tree of arrays
        return jax.tree.map(lambda x: x.astype(jnp.float32), tree)

    def init(params: optax.Params) -> optax.OptState:
        return optimizer.init(wide(params))

    def update(
        gradients: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        updates, new = optimizer.update(wide(gradients), state, None if params is None else wide(params))
        return updates, new

    return optax.GradientTransformation(init, update)
