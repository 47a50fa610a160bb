"""Playpen in miniature: all stages on a CPU, with the small model of playpen_player.py.

Paper: Playpen (arXiv 2504.08590), sections 4 and 5. Its values are kept where size does not decide: beta, no
  likelihood in DPO, 0.75 as GRPO's temperature, 0.04 as its KL coefficient, roles, rewards, temperature 0 to measure.
  All weights are trained instead of adapters, at rates that fit a small model; the numbers of rows, updates and games
  are those of minutes. The strong scripted player is GRPO's teacher.
Command: python -m dfc.launch --config=configs/playpen_tiny.py
  after python -m dfc.launch --config=configs/playpen_player.py, which makes the model.
Hardware: a CPU core and 2 GB of free memory.
Time: on one busy core collecting 1.5 minutes, SFT 2.5, DPO 3.5 and 1, GRPO 4.5 and 1.5, the evaluation 4; with loading
  and compiling 24.
Score: docs/results/playpen.md.
Variant: --config.stages=grpo trains with GRPO only; --config.build_dialogues.asides=merged makes the paper's rows of
  what is asked aside, which cost all of privateshared where they were tried.
"""

from dfc.config import (
    BatchConfig,
    CheckpointConfig,
    EvaluateTasksConfig,
    GrpoConfig,
    MatchesConfig,
    ModelConfig,
    OptimizerConfig,
    Playpen,
    RolloutConfig,
    SamplingConfig,
    ScheduledOptimizerConfig,
    TrainingConfig,
)
from dfc.config.dialogues import DialogueChoiceConfig
from dfc.config.playpen import AdaptedPreferenceConfig, AdaptedSftConfig, DialogueCollectionConfig, TeacherGrpoConfig
from dfc.config.sections import HeldOutChecks
from dfc.configs.playpen_llama3_1_8b import MEASURED, TRAINED


def get_config() -> Playpen:
    """Returns the configuration."""
    dpo = AdaptedPreferenceConfig(
        batch_size=12,
        max_updates=40,
        optimizer=_optimizer(3e-5),
        beta=0.1,
        held_out=HeldOutChecks(every=0.2, keep="best"),
    )
    return Playpen(
        name="playpen_tiny",
        games=TRAINED,
        measured_games=MEASURED,
        model=ModelConfig(path="runs/playpen_player/policy"),
        rollout=RolloutConfig(slots=32, max_length=1024, max_reply_length=160, decode_steps=16),
        collect=DialogueCollectionConfig(
            players=("strong", "simple", "initial"),
            tasks=40,
            samples=2,
            sampling=SamplingConfig(temperature=0.75),
        ),
        build_dialogues=DialogueChoiceConfig(asides="single", max_characters=4000, held_out=0.1),
        sft=AdaptedSftConfig(
            batch_size=16,
            max_updates=120,
            optimizer=_optimizer(5e-4),
            held_out=HeldOutChecks(every=30, keep="before_lowest"),
        ),
        dpo_dialogue=dpo,
        dpo_turn=dpo,
        grpo=TeacherGrpoConfig(
            iterations=15,
            groups_per_iteration=7,
            group_size=8,
            sampling=SamplingConfig(temperature=0.75),
            grpo=GrpoConfig(kl_coefficient=0.04, unit="sequence", updates_per_iteration=1),
            optimizer=OptimizerConfig(learning_rate=2e-4, b2=0.98),
            evaluation=MatchesConfig(games=2),
        ),
        batch=BatchConfig(row_length=1024, micro_batch_rows=2),
        training=TrainingConfig(scan_layers=False, remat="none"),
        evaluate_tasks=EvaluateTasksConfig(
            split="test",
            tasks=30,
            tasks_of={},
            trajectories=1,
            sampling=SamplingConfig(temperature=0.0, min_p=0.3),
        ),
        checkpoint=CheckpointConfig(every=10, keep=2),
    )


def _optimizer(learning_rate: float) -> ScheduledOptimizerConfig:
    return ScheduledOptimizerConfig(learning_rate=learning_rate, schedule="linear", b2=0.999)
