"""Playpen on a real chat model: SmolLM2-135M-Instruct learns taboo and the reference game from scripted players.

Paper: Playpen (arXiv 2504.08590), sections 4.2 and 4.3, at small scale: SFT on won dialogues of two scripted players,
  then GRPO beside the strong one from the model after SFT. Ranks, rates and numbers of updates are ours, for a CPU.
Command: python -m dfc.launch --config=configs/playpen_smollm2.py
  after python -m dfc.models.fetch smollm2-135m, which writes the model to the folder smollm2-135m.
Hardware: a CPU core.
Time: SFT 69 minutes on a third of a core (26 seconds an update on a core of its own), an update of GRPO 94 seconds.
Score: 15 test instances of each game, temperature 0: no game played as published, all of them after SFT, quality 17,
  which is guessing, and the same after 4 updates of GRPO (docs/results/playpen.md).
Variant: --config.stages=grpo trains with GRPO from the model as published.
"""

from dfc.config import (
    AdapterConfig,
    BatchConfig,
    CheckpointConfig,
    EvaluateTasksConfig,
    GameOptions,
    GrpoConfig,
    MatchesConfig,
    ModelConfig,
    OptimizerConfig,
    Playpen,
    RolloutConfig,
    RowsAdapterConfig,
    SamplingConfig,
    ScheduledOptimizerConfig,
    TrainingConfig,
)
from dfc.config.dialogues import DialogueChoiceConfig
from dfc.config.playpen import AdaptedSftConfig, DialogueCollectionConfig, TeacherGrpoConfig
from dfc.config.sections import HeldOutChecks

GAMES: dict[str, GameOptions] = {"clem_taboo": {}, "clem_referencegame": {}}


def get_config() -> Playpen:
    """Returns the configuration."""
    return Playpen(
        name="playpen_smollm2",
        games=GAMES,
        stages=("collect", "build_dialogues", "sft", "sft_grpo", "evaluate_tasks", "evaluate_with_teacher"),
        model=ModelConfig(path="smollm2-135m", dtype="float32"),
        rollout=RolloutConfig(slots=32, max_length=1024, max_reply_length=48, decode_steps=16),
        collect=DialogueCollectionConfig(players=("strong", "simple"), tasks=60, samples=2),
        build_dialogues=DialogueChoiceConfig(held_out=0.1),
        sft=AdaptedSftConfig(
            batch_size=8,
            max_updates=40,
            optimizer=ScheduledOptimizerConfig(learning_rate=5e-4, schedule="linear", b2=0.999, weight_decay=0.01),
            adapter=RowsAdapterConfig(rank=16, alpha=32, dropout=0.05),
            held_out=HeldOutChecks(every=20, keep="before_lowest"),
        ),
        grpo=TeacherGrpoConfig(
            iterations=8,
            groups_per_iteration=4,
            group_size=6,
            sampling=SamplingConfig(temperature=0.75),
            grpo=GrpoConfig(kl_coefficient=0.04, unit="sequence", updates_per_iteration=1),
            optimizer=OptimizerConfig(learning_rate=2e-4, b2=0.98),
            adapter=AdapterConfig(rank=16, alpha=32),
            evaluation=MatchesConfig(games=2),
        ),
        batch=BatchConfig(row_length=1024, micro_batch_rows=1),
        training=TrainingConfig(scan_layers=True),
        evaluate_tasks=EvaluateTasksConfig(
            split="test",
            tasks=20,
            tasks_of={},
            trajectories=1,
            sampling=SamplingConfig(temperature=0.0, min_p=0.3),
        ),
        checkpoint=CheckpointConfig(every=5, keep=2),
    )
