"""Quickstart: all of Divide-Fuse-Conquer on one machine without an accelerator, with the bundled model.

Paper: Divide-Fuse-Conquer (arXiv 2505.16401), Algorithms 1 and 2, on six games.
Command: python -m dfc.launch --config=configs/quickstart.py
Hardware: a CPU with two cores and 2 GB of free memory.
Time: 5 minutes on an idle machine, at most 10 (299 s, 1.9 GB; see docs/log/2026-11-21.md).
Score: two-player games pooled against the initial policy from 0.49 to 0.79-0.82 (seeds 3 to 5), TowerOfHanoi (14 moves)
  solved from 2 % to 95-99 %, GuessTheNumber unchanged.
Variant: --config.opponent=itself plays against the policy in training, as in the paper.
"""

from dfc.config import (
    AcceptanceConfig,
    BatchConfig,
    CheckpointConfig,
    DivideFuseConquer,
    EvaluationConfig,
    GroupingConfig,
    GrpoConfig,
    MixedPriorityConfig,
    ModelConfig,
    OptimizerConfig,
    RewardConfig,
    RolloutConfig,
    TrainingConfig,
)


def get_config() -> DivideFuseConquer:
    """Returns the configuration."""
    return DivideFuseConquer(
        name="quickstart",
        games={
            "TicTacToe-v0": {},
            "ConnectFour-v0": {},
            "Nim-v0": {},
            "LiarsDice-v0": {"num_dice": 2},
            "GuessTheNumber-v0": {},
            "TowerOfHanoi-v0": {"max_turns": 14},
        },
        model=ModelConfig(path="tiny_player", dtype="float32"),
        rollout=RolloutConfig(slots=64, workers=2, mix_games=False, max_length=160, max_reply_length=4, stop=("]",)),
        optimizer=OptimizerConfig(learning_rate=1e-3, b2=0.98),
        batch=BatchConfig(row_length=160, micro_batch_rows=4, workers=2),
        training=TrainingConfig(scan_layers=False, remat="none"),
        divide_iterations=24,
        conquer_iterations=32,
        groups_per_game=16,
        group_size=8,
        opponent="initial",
        half_negative=True,
        random_action_rate=0.02,
        grouping=GroupingConfig(trials=100),
        mixed_priority=MixedPriorityConfig(),
        acceptance=AcceptanceConfig(rule="previous", games=16, tolerance=0.05),
        grpo=GrpoConfig(clip_ratio=0.2, kl_coefficient=0.02, updates_per_iteration=4),
        reward=RewardConfig(illegal_try=0.5),
        evaluation=EvaluationConfig(games=200, stage_games=40),
        checkpoint=CheckpointConfig(every=5, keep=2),
    )
