"""SmolLM2-135M-Instruct learns with replies of its own wording, after the warm start of smollm2_warm_start.py.

Paper: none; GRPO (arXiv 2402.03300) with mixed priority sampling and half-negative, as in smollm2.py.
Command: python -m dfc.launch --config=configs/smollm2_free.py
  after python -m dfc.launch --config=configs/smollm2_warm_start.py, which makes the policy it starts from.
Hardware: a CPU with two cores and 8 GB of free memory.
Time: 6 minutes an iteration beside other work.
Score: none: legal replies rose for three iterations and fell apart after them; docs/results/smollm2.md.
Variant: --config.optimizer.learning_rate=2e-4 --config.grpo.kl_coefficient=0.02 moves more slowly (not measured).
"""

import dataclasses

from dfc.config import Grpo, RewardConfig
from dfc.configs import smollm2


def get_config() -> Grpo:
    """Returns the configuration."""
    base = smollm2.get_config()
    return dataclasses.replace(
        base,
        name="smollm2_free",
        model=dataclasses.replace(base.model, path="runs/smollm2_warm_start/sft/policy"),
        rollout=dataclasses.replace(base.rollout, legal_only=False, max_reply_length=8, decode_steps=8),
        reward=RewardConfig(),
        iterations=18,
    )
