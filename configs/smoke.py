"""Smoke test: every part of Divide-Fuse-Conquer once, in miniature; it shows that an installation works.

Paper: Divide-Fuse-Conquer (arXiv 2505.16401), Algorithms 1 and 2, on two games.
Command: python -m dfc.launch --config=configs/smoke.py
Hardware: a CPU with two cores.
Time: 36 s on two cores beside other work, most of it compilation.
Score: none; so few games measure nothing.
Variant: --config.conquer_iterations=5 runs longer.
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
    RolloutConfig,
    TrainingConfig,
)


def get_config() -> DivideFuseConquer:
    """Returns the configuration."""
    return DivideFuseConquer(
        name="smoke",
        games={"TicTacToe-v0": {}, "GuessTheNumber-v0": {}},
        model=ModelConfig(path="tiny_player", dtype="float32"),
        rollout=RolloutConfig(slots=16, max_length=256, max_reply_length=4, stop=("]",), prompt="bare_action"),
        optimizer=OptimizerConfig(learning_rate=1e-3, b2=0.98),
        batch=BatchConfig(row_length=256, micro_batch_rows=8),
        training=TrainingConfig(scan_layers=False, remat="none"),
        divide_iterations=2,
        conquer_iterations=1,
        groups_per_game=2,
        group_size=4,
        opponent="initial",
        half_negative=True,
        random_action_rate=0.05,
        grouping=GroupingConfig(trials=8),
        mixed_priority=MixedPriorityConfig(),
        acceptance=AcceptanceConfig(rule="previous", games=4, tolerance=0.0),
        grpo=GrpoConfig(clip_ratio=0.1, kl_coefficient=0.1, updates_per_iteration=1),
        evaluation=EvaluationConfig(games=8, stage_games=4),
        checkpoint=CheckpointConfig(every=1, keep=2),
    )
