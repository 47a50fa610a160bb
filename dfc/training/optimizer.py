"""The optimizer of every recipe, from its configuration."""

import optax

from dfc.config import OptimizerConfig


def make_optimizer(config: OptimizerConfig, total_steps: int) -> optax.GradientTransformation:
    """Returns AdamW behind a global-norm clip, with linear warm-up and the configured schedule.

    Args:
      config: the settings.
      total_steps: updates of the whole run; a cosine schedule reaches zero there.
    """
    if config.schedule == "cosine":
        rate: optax.Schedule = optax.warmup_cosine_decay_schedule(
            0.0 if config.warmup_steps else config.learning_rate,
            config.learning_rate,
            config.warmup_steps,
            max(total_steps, config.warmup_steps + 1),
        )
    elif config.warmup_steps:
        rate = optax.linear_schedule(0.0, config.learning_rate, config.warmup_steps)
    else:
        rate = optax.constant_schedule(config.learning_rate)
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.adamw(rate, b1=config.b1, b2=config.b2, weight_decay=config.weight_decay),
    )
