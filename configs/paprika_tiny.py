"""Paprika in miniature: all stages on a CPU, with the small model of paprika_player.py on the ten task groups.

Paper: Paprika (arXiv 2502.17543), sections 3.2, 3.3 and 4.
Command: python -m dfc.launch --config=configs/paprika_tiny.py
  after python -m dfc.launch --config=configs/paprika_player.py, which makes the model.
Hardware: a CPU core and 2 GB of free memory.
Time: 12 minutes on one of four busy cores, of which collecting 5.
Score: mean success over the ten groups at temperature 0.7, three seeds: on the training tasks base 40.7 %, SFT 44.9 %,
  SFT then RPO 47.1 %; on test tasks 36.5, 34.6, 33.6 %. All figures: docs/results/paprika.md.
Variant: --config.build_data.leave_out=minesweeper --config.stages=build_data,sft,rpo,evaluate_tasks
  --config.collected=runs/paprika_tiny/collect leaves a group out and shares the collection, in another
  workdir; the name in build_data.game_groups instead trains on a single one.
"""

from dfc.config import (
    BatchConfig,
    BuildDataConfig,
    CheckpointConfig,
    CollectConfig,
    EvaluateTasksConfig,
    GameOptions,
    ModelConfig,
    Paprika,
    PreferenceConfig,
    RolloutConfig,
    ScheduledOptimizerConfig,
    SftConfig,
    TrainingConfig,
)

GROUPS: dict[str, GameOptions] = {
    "twenty_questions": {},
    "guess_my_city": {},
    "wordle": {},
    "cellular_automata": {},
    "customer_service": {},
    "murder_mystery": {},
    "mastermind": {},
    "battleship": {"show_board": False},  # the words of each shot tell the same, in fewer tokens
    "minesweeper": {},
    "bandit": {},
}
TASKS = 40  # of each group that are collected from, the first of the training split


def get_config() -> Paprika:
    """Returns the configuration."""
    return Paprika(
        name="paprika_tiny",
        games=GROUPS,
        model=ModelConfig(path="runs/paprika_player/policy"),
        rollout=RolloutConfig(slots=64, max_length=640, max_reply_length=40, decode_steps=16),
        collect=CollectConfig(tasks=TASKS, samples=16, samples_of={}),
        build_data=BuildDataConfig(sft_tokens=640, pair_tokens=640),
        sft=SftConfig(epochs=3, batch_size=32, optimizer=_optimizer(1e-4)),
        rpo=PreferenceConfig(epochs=3, batch_size=32, optimizer=_optimizer(5e-5)),
        batch=BatchConfig(row_length=1280, micro_batch_rows=4),
        training=TrainingConfig(scan_layers=False, remat="none"),
        evaluate_tasks=EvaluateTasksConfig(tasks=40, tasks_of={"bandit": 40}),
        checkpoint=CheckpointConfig(every=20, keep=2),
    )


def _optimizer(learning_rate: float) -> ScheduledOptimizerConfig:
    return ScheduledOptimizerConfig(learning_rate=learning_rate, schedule="cosine", warmup_ratio=0.04, b2=0.999)
