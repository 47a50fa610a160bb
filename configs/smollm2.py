"""A real chat model learns on a CPU: SmolLM2-135M-Instruct at three games against its initial self.

Paper: none; GRPO (arXiv 2402.03300) on games of Divide-Fuse-Conquer (arXiv 2505.16401), with two techniques of that
  method: mixed priority sampling and half-negative. Every update is kept, every action is the policy's own.
Command: python -m dfc.launch --config=configs/smollm2.py
  after python -m dfc.models.fetch smollm2-135m, which writes the model to the folder smollm2-135m.
Hardware: a CPU with two cores and 8 GB of free memory.
Time: 56 minutes of iterations, 1 h 16 min with compiling and the final matches.
Score: against its initial self Nim 0.45 to 0.78, TicTacToe 0.51 to 0.64; GuessTheNumber solved 52 to 59 of 100; one
  seed, docs/results/smollm2.md.
Variant: --config.rollout.legal_only=False lets it write what it likes, after a warm start.
"""

from dfc.config import (
    AcceptanceConfig,
    AdapterConfig,
    BatchConfig,
    CheckpointConfig,
    Grpo,
    GrpoConfig,
    MatchesConfig,
    MixedPriorityConfig,
    ModelConfig,
    OptimizerConfig,
    RewardConfig,
    RolloutConfig,
    TrainingConfig,
)


def get_config() -> Grpo:
    """Returns the configuration."""
    return Grpo(
        name="smollm2",
        games={"GuessTheNumber-v0": {}, "TicTacToe-v0": {"show_board": True}, "Nim-v0": {}},
        model=ModelConfig(path="smollm2-135m", dtype="float32"),
        adapter=AdapterConfig(rank=16),
        rollout=RolloutConfig(
            slots=32,
            max_length=384,
            max_reply_length=6,
            decode_steps=6,
            prefill_buckets=(32, 128),
            legal_only=True,
        ),
        optimizer=OptimizerConfig(learning_rate=1e-3, b2=0.98),
        batch=BatchConfig(row_length=384, micro_batch_rows=2, workers=1),
        training=TrainingConfig(scan_layers=True),
        iterations=24,
        groups_per_game=2,
        group_size=8,
        opponent="initial",
        half_negative=True,
        random_action_rate=0.0,
        mixed_priority=MixedPriorityConfig(),
        acceptance=AcceptanceConfig(rule="always", tolerance=0.0),
        grpo=GrpoConfig(clip_ratio=0.2, kl_coefficient=0.0, updates_per_iteration=2),
        reward=RewardConfig(illegal_try=0.0),
        evaluation=MatchesConfig(games=100),
        checkpoint=CheckpointConfig(every=2, keep=2),
    )
