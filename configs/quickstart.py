"""Quickstart: all of Divide-Fuse-Conquer on one machine without an accelerator, with the model in the box.

Paper: Divide-Fuse-Conquer (arXiv 2505.16401), Algorithms 1 and 2, on six games.
Command: python -m dfc.launch --config=configs/quickstart.py
Hardware: a CPU with two cores and 4 GB of memory.
Time: to be measured.
Score: to be measured.
Variant: --config.divide_fuse_conquer.opponent=itself plays against the policy in training, as in the paper.
"""

from dfc.config import (
    AcceptanceConfig,
    BatchConfig,
    DivideFuseConquerConfig,
    GroupingConfig,
    ModelConfig,
    OptimizerConfig,
    RolloutConfig,
    RunConfig,
)


def get_config() -> RunConfig:
    """Returns the configuration."""
    return RunConfig(
        name="quickstart",
        recipe="divide_fuse_conquer",
        games={
            "TicTacToe-v0": {},
            "ConnectFour-v0": {},
            "Nim-v0": {},
            "LiarsDice-v0": {"num_dice": 2},
            "GuessTheNumber-v0": {},
            "TowerOfHanoi-v0": {"max_turns": 14},
        },
        model=ModelConfig(path="tiny_player", dtype="float32"),
        rollout=RolloutConfig(
            slots=64, max_length=256, max_reply_length=4, max_replies=120, stop=("]",), prompt="bare_action"
        ),
        optimizer=OptimizerConfig(learning_rate=1e-3, b2=0.98),
        batch=BatchConfig(row_length=256, micro_batch_rows=8),
        divide_fuse_conquer=DivideFuseConquerConfig(
            divide_iterations=30,
            conquer_iterations=20,
            seeds_per_game=8,
            trajectories_per_seed=8,
            opponent="initial",
            grouping=GroupingConfig(trials=64),
            acceptance=AcceptanceConfig(rule="previous", games=40),
        ),
    )
