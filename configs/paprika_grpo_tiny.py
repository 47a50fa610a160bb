"""Reinforcement learning directly on Paprika's task groups, in miniature; the paper leaves it to future work.

Paper: Paprika (arXiv 2502.17543), section 6, for the idea; GRPO on training tasks only, with two techniques of
Divide-Fuse-Conquer (arXiv 2505.16401): mixed priority sampling and half-negative. Every update is kept.
Command: python -m dfc.launch --config=configs/paprika_grpo_tiny.py
  after python -m dfc.launch --config=configs/paprika_player.py, which makes the model. Then, on test tasks:
  python -m dfc.launch --config=configs/paprika_evaluate_tiny.py
  --config.policies=base=runs/paprika_player/policy,grpo=runs/paprika_grpo_tiny
Hardware: a CPU core and 2 GB of free memory.
Time: 12 minutes on one of four busy cores.
Score: mean success over the ten groups at temperature 0.7, three seeds: on the training tasks 44.4 %, base 40.7 %; on
  test tasks 27.5 %, base 36.5 %. All figures: docs/results/paprika.md.
Variant: --config.mixed_priority.enabled=false gives every task group as many rollout groups.
"""

from dfc.config import (
    AcceptanceConfig,
    Grpo,
    GrpoConfig,
    MatchesConfig,
    MixedPriorityConfig,
    OptimizerConfig,
    RewardConfig,
)
from dfc.configs import paprika_tiny


def get_config() -> Grpo:
    """Returns the configuration."""
    base = paprika_tiny.get_config()
    return Grpo(
        name="paprika_grpo_tiny",
        games=base.games,
        model=base.model,
        rollout=base.rollout,
        batch=base.batch,
        training=base.training,
        checkpoint=base.checkpoint,
        optimizer=OptimizerConfig(learning_rate=5e-4, b2=0.98),
        iterations=20,  # x 10 groups x 4 x 8: as many games as the collection of paprika_tiny.py
        tasks=paprika_tiny.TASKS,
        groups_per_game=4,
        group_size=8,
        opponent="initial",
        half_negative=True,
        random_action_rate=0.0,
        mixed_priority=MixedPriorityConfig(),
        acceptance=AcceptanceConfig(rule="always", tolerance=0.0),
        grpo=GrpoConfig(clip_ratio=0.2, kl_coefficient=0.01, updates_per_iteration=1),
        reward=RewardConfig(hasty_action_penalty=False, invalid=-1.0),
        evaluation=MatchesConfig(games=40),
    )
