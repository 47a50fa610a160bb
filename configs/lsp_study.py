"""One run of the study of Language Self-Play: which arm it is, the study's script says by a few settings.

Paper: Language Self-Play (arXiv 2509.07414), Algorithm 1, with rewards that programs check; section 5's arms.
Command: python -m dfc.launch --config=configs/lsp_study.py --config.method=lsp --config.seed=20
  after python -m dfc.launch --config=configs/lsp_base.py; python benchmarks/lsp_study.py runs all arms of all seeds.
Hardware: a CPU core.
Time: two minutes on a CPU core, three with a judge; twice that on a core shared with other work.
Score: docs/results/language_self_play.md.
Variant: --config.challenger.unsolved_queries=worst pays the Challenger less for what no answer solves than for any
  other query; on the results page it paid as much as the worst of the others (the rule of commit 3fbeac7 and before).
"""

from dfc.config import (
    AnswerRewardConfig,
    BatchConfig,
    ChallengerConfig,
    CheckpointConfig,
    LanguageSelfPlay,
    ModelConfig,
    OptimizerConfig,
    QueryTask,
    SelfPlayRolloutConfig,
    SelfRewardConfig,
    TrainingConfig,
    WatchConfig,
)
from dfc.configs import lsp_base
from dfc.methods.language_self_play.families import FAMILIES


def get_config() -> LanguageSelfPlay:
    """Returns the configuration."""
    base = lsp_base.get_config()
    return LanguageSelfPlay(
        name="lsp_study",
        model=ModelConfig(path="runs/lsp_base/policy"),
        method="lsp_zero",
        iterations=200,
        groups_per_iteration=32,
        group_size=8,
        kl_coefficient=0.02,
        tasks={name: QueryTask(FAMILIES[name].task, FAMILIES[name].template) for name in base.families},
        challenger=ChallengerConfig(prompt=base.challenger_prompt, bad_queries="as_is", unsolved_queries="as_is"),
        reward=AnswerRewardConfig(families=base.families),
        self_reward=SelfRewardConfig(weight=1 / 7, prompt=base.judge_prompt),
        rollout=SelfPlayRolloutConfig(
            slots=256,
            max_length=64,
            max_query_length=base.max_query_length,
            max_answer_length=base.max_answer_length,
            max_judgement_length=base.max_judgement_length,
            decode_steps=6,
        ),
        optimizer=OptimizerConfig(learning_rate=3e-4),
        batch=BatchConfig(row_length=128, micro_batch_rows=8),
        training=TrainingConfig(scan_layers=False, remat="none"),
        watch=WatchConfig(probes=200, every=5),
        checkpoint=CheckpointConfig(every=50, keep=2),
    )
