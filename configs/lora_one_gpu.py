"""A chat model of your own on one GPU: adapters (LoRA) trained by Divide-Fuse-Conquer on four games.

Paper: Divide-Fuse-Conquer (arXiv 2505.16401) for the method; the sizes are ours, for one 80 GB card and an 8B model.
Command: python -m dfc.launch --config=configs/lora_one_gpu.py --config.model.path=FOLDER
  where FOLDER holds a Llama, Qwen, Mistral or Gemma 3 chat model with its tokenizer, in the Hugging Face layout.
Hardware: one NVIDIA GPU of 80 GB for 8B. Ask first whether it fits yours:
  python -m dfc.launch.fit --config=configs/lora_one_gpu.py --model=llama-3.1-8b --topology=h100:1
Time: never run on a GPU; the command above gives a floor, 2.62 minutes for an iteration on an H100.
Score: none yet.
Variant: --config.adapter.base=nf4 --config.rollout.slots=8 for a smaller card.
"""

from dfc.config import (
    AcceptanceConfig,
    AdapterConfig,
    BatchConfig,
    DivideFuseConquer,
    EvaluationConfig,
    GroupingConfig,
    GrpoConfig,
    MixedPriorityConfig,
    ModelConfig,
    OptimizerConfig,
    RolloutConfig,
)


def get_config() -> DivideFuseConquer:
    """Returns the configuration."""
    return DivideFuseConquer(
        name="lora_one_gpu",
        games={
            "TicTacToe-v0": {"show_board": True},
            "ConnectFour-v0": {"show_board": True},
            "TowerOfHanoi-v0": {},
            "GuessTheNumber-v0": {},
        },
        model=ModelConfig(path="Llama-3.1-8B-Instruct", dtype="bfloat16"),
        adapter=AdapterConfig(rank=16),
        rollout=RolloutConfig(slots=16, max_length=4096, max_reply_length=512, prompt="think"),
        optimizer=OptimizerConfig(learning_rate=2e-5, warmup_steps=5),
        batch=BatchConfig(row_length=4096, micro_batch_rows=4),
        divide_iterations=20,
        conquer_iterations=20,
        groups_per_game=8,
        group_size=8,
        opponent="initial",
        half_negative=True,
        random_action_rate=0.05,
        grouping=GroupingConfig(trials=32),
        mixed_priority=MixedPriorityConfig(),
        acceptance=AcceptanceConfig(rule="previous", games=16, tolerance=0.05),
        grpo=GrpoConfig(clip_ratio=0.1, kl_coefficient=0.1, updates_per_iteration=1),
        evaluation=EvaluationConfig(games=100, stage_games=20),
    )
