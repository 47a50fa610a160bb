"""Paprika in miniature: all stages on a CPU, with the small model of paprika_player.py on the ten task groups.

Paper: Paprika (arXiv 2502.17543), sections 3.2, 3.3 and 4.
Command: python -m dfc.launch --config=configs/paprika_tiny.py
  after python -m dfc.launch --config=configs/paprika_player.py, which makes the model.
Hardware: a CPU core and 2 GB of free memory.
Time: see docs/results/paprika.md.
Score: see docs/results/paprika.md.
Variant: --config.build_data.leave_out=wordle --config.paprika.stages=build_data,sft,rpo,evaluate_tasks
  --config.paprika.collected=runs/paprika_tiny/collect leaves a group out and shares the collection;
  the name in build_data.groups instead trains on a single one.
"""

from dfc.config import (
    BatchConfig,
    CheckpointConfig,
    ModelConfig,
    OptimizerConfig,
    RolloutConfig,
    RunConfig,
    TrainingConfig,
)
from dfc.configs.paprika_player import GROUPS
from dfc.task_config import BuildDataConfig, CollectConfig, EvaluateTasksConfig, OfflineConfig, PaprikaConfig


def get_config() -> RunConfig:
    """Returns the configuration."""
    return RunConfig(
        name="paprika_tiny",
        recipe="paprika",
        games=GROUPS,
        model=ModelConfig(path="runs/paprika_player/policy"),
        rollout=RolloutConfig(slots=64, max_length=1024, max_reply_length=40, decode_steps=16),
        collect=CollectConfig(tasks=40, samples=12, samples_of=()),
        build_data=BuildDataConfig(sft_tokens=1024, pair_tokens=1024),
        offline=OfflineConfig(batch_size=32),
        optimizer=OptimizerConfig(learning_rate=1e-3, schedule="cosine", warmup_ratio=0.04, b2=0.999),
        batch=BatchConfig(row_length=2048, micro_batch_rows=4),
        training=TrainingConfig(scan_layers=False, remat="none"),
        paprika=PaprikaConfig(sft_learning_rate=1e-3, rpo_learning_rate=2e-4, sft_epochs=3, rpo_epochs=2),
        evaluate_tasks=EvaluateTasksConfig(tasks=30, tasks_of=("bandit=30",)),
        checkpoint=CheckpointConfig(every=20, keep=2),
    )
