"""Language Self-Play on the bundled model, whole and small: it shows the machinery; that model learns nothing by it.

Paper: Language Self-Play (arXiv 2509.07414), Algorithm 1, without self-reward.
Command: python -m dfc.launch --config=configs/lsp_tiny.py
Hardware: a CPU with two cores.
Time: a minute, most of it compiling.
Score: none. The bundled model writes moves of games, no queries: none follows its template, which is why they are
  taken as they are here.
Variant: --config.method=lsp --config.rollout.max_length=2048 --config.batch.row_length=2048 asks the model before
  training for marks, and ends after 64 answers, naming what it said.
"""

from dfc.config import (
    BatchConfig,
    ChallengerConfig,
    CheckpointConfig,
    LanguageSelfPlay,
    QueryTask,
    SelfPlayRolloutConfig,
    TrainingConfig,
)


def get_config() -> LanguageSelfPlay:
    """Returns the configuration."""
    return LanguageSelfPlay(
        name="lsp_tiny",
        method="lsp_zero",
        iterations=4,
        groups_per_iteration=4,
        group_size=4,
        tasks={
            "sort": QueryTask("sorting digits", "Sort the digits {digits} from small to large."),
            "add": QueryTask("adding digits", "Add up the digits {digits}."),
        },
        challenger=ChallengerConfig(prompt="{task}: {template}", bad_queries="as_is"),
        rollout=SelfPlayRolloutConfig(
            slots=16, max_length=256, max_query_length=16, max_answer_length=8, max_judgement_length=64, decode_steps=8
        ),
        batch=BatchConfig(row_length=256, micro_batch_rows=4),
        training=TrainingConfig(scan_layers=False),
        checkpoint=CheckpointConfig(every=2),
    )
