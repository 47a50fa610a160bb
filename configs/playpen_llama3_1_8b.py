"""The paper's run: Playpen with Llama-3.1-8B-Instruct on seven dialogue games, measured on seven others.

Paper: Playpen (arXiv 2504.08590), sections 4.2 and 4.3, appendices D and E for every value below. Its dialogues are
  those of clembench's leaderboard, which --config.collect.sources=FILE reads; here scripted players talk with
  themselves. Its teacher is gpt-4o-mini; an endpoint takes its place. Instances are dfc's own; a game's option
  instances=FILE plays clembench's. Adam has 32 bits here, 8 in the paper's supervised training and DPO; docs/playpen.md
  lists all that departs, and which values are readings ("batch size of 16": 16 instances of 8 games each).
Command: python -m dfc.launch --config=configs/playpen_llama3_1_8b.py --config.model.path=FOLDER
  --config.grpo.opponent=https://HOST/v1#MODEL --config.endpoints.opponent.key_variable=OPENAI_API_KEY
Hardware: one device of 80 GB for supervised training and DPO, four for GRPO (the paper: the same, H100). By sums, with
  a margin of 20 %, the first need 37 GB on one H100 and every stage at most 37 GB a device on four:
  python -m dfc.launch.fit --config=configs/playpen_llama3_1_8b.py --model=llama-3.1-8b --topology=h100:4
  Compiled (--compile, jax 0.10.2) they fit as well: stage sft in 27 GB and dpo_dialogue in 25 GB of one H100, grpo in
  31 GB a device on four.
  TPU VM: a v5p-8 slice, the command above on its one host; with --topology=v5p:2x2x1 fit says 37 of 103 GB a chip.
Time: never run.
Score: the paper's Table 1, clemscore in and out of domain: base 19.39 and 24.58, SFT 40.11 and 22.53, DPO of turns
  39.65 and 23.81, GRPO 24.89 and 33.92 (docs/playpen.md says which of these rows follow from its other tables).
Variant: --config.stages=collect,build_dialogues,minigames,warm_start,sft,evaluate_tasks is SFT (WS), and with
  --config.rehearsal=0.2 beside it SFT (R); --config.build_dialogues.leave_out=clem_taboo is D6,
  the same name in game_groups instead D5.
"""

import dataclasses

from dfc.config import (
    AdapterConfig,
    BatchConfig,
    GameOptions,
    GrpoConfig,
    MatchesConfig,
    MeshConfig,
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
from dfc.config.playpen import AdaptedPreferenceConfig, AdaptedSftConfig, DialogueCollectionConfig, TeacherGrpoConfig
from dfc.config.sections import HeldOutChecks

TRAINED: dict[str, GameOptions] = {
    "clem_taboo": {},
    "clem_privateshared": {},
    "clem_imagegame": {},
    "clem_referencegame": {},
    "clem_wordle": {},
    "clem_wordle_withclue": {},
    "clem_wordle_withcritic": {},
}
MEASURED: dict[str, GameOptions] = {
    "clem_codenames": {},
    "clem_adventuregame": {},
    "clem_guesswhat": {},
    "clem_matchit_ascii": {},
    "clem_textmapworld": {},
    "clem_textmapworld_specificroom": {},
    "clem_textmapworld_graphreasoning": {},
}


def get_config() -> Playpen:
    """Returns the configuration."""
    sft = AdaptedSftConfig(
        batch_size=4,
        optimizer=_optimizer(2e-4, weight_decay=0.01),
        adapter=RowsAdapterConfig(rank=64, alpha=32, dropout=0.05, base="nf4"),
        held_out=HeldOutChecks(every=100, keep="before_lowest", tolerance=0.015),
    )
    dpo = AdaptedPreferenceConfig(
        batch_size=6,
        optimizer=_optimizer(5e-6),
        beta=0.1,
        alpha=0.0,
        adapter=RowsAdapterConfig(rank=64, alpha=64, base="nf4"),
        held_out=HeldOutChecks(every=0.2, keep="best"),
    )
    return Playpen(
        name="playpen_llama3_1_8b",
        games=TRAINED,
        measured_games=MEASURED,
        model=ModelConfig(path="Llama-3.1-8B-Instruct", dtype="bfloat16"),
        mesh=MeshConfig(fsdp=-1),
        rollout=RolloutConfig(slots=64, max_length=4096, max_reply_length=300),
        collect=DialogueCollectionConfig(players=("strong", "simple"), samples=4),
        build_dialogues=DialogueChoiceConfig(players=10),
        warm_start=dataclasses.replace(sft, max_updates=100, held_out=HeldOutChecks(keep="last")),
        sft=sft,
        dpo_dialogue=dpo,
        dpo_turn=dpo,
        grpo=TeacherGrpoConfig(
            iterations=215,
            groups_per_iteration=16,
            group_size=8,
            sampling=SamplingConfig(temperature=0.75),
            grpo=GrpoConfig(kl_coefficient=0.04, unit="sequence", updates_per_iteration=1),
            optimizer=OptimizerConfig(learning_rate=1e-6, b2=0.999),
            adapter=AdapterConfig(rank=64, alpha=128, targets="qkvo"),
            evaluation=MatchesConfig(games=60),
        ),
        batch=BatchConfig(row_length=8192, micro_batch_rows=4),
        training=TrainingConfig(remat="layer"),
    )


def _optimizer(learning_rate: float, weight_decay: float = 0.0) -> ScheduledOptimizerConfig:
    return ScheduledOptimizerConfig(learning_rate=learning_rate, schedule="linear", b2=0.999, weight_decay=weight_decay)
