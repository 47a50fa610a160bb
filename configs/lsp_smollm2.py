"""Language Self-Play on a real chat model: ten iterations of SmolLM2-135M-Instruct, paid for the form of its answers.

Paper: Language Self-Play (arXiv 2509.07414), Algorithm 1 without self-reward; its reward is a preference model. Here
  the form of an answer is checked (10 to 40 words, a full stop at its end), which needs no second model.
Command: python -m dfc.launch --config=configs/lsp_smollm2.py
  after python -m dfc.models.fetch smollm2-135m, which writes the model to the folder smollm2-135m.
Hardware: a CPU core and 7 GB of free memory.
Time: 45 minutes on a core shared with other work, 62 % of them updates.
Score: none; it shows what such a model writes, and what breaks (docs/results/language_self_play.md). It keeps no
  template, so its queries have none.
Variant: --config.method=lsp asks the model before training for marks: it gave none, and the run ended in iteration 8.
"""

from dfc.config import (
    AdapterConfig,
    AnswerRewardConfig,
    BatchConfig,
    CheckpointConfig,
    LanguageSelfPlay,
    ModelConfig,
    OptimizerConfig,
    QueryTask,
    SamplingConfig,
    SelfPlayRolloutConfig,
    TrainingConfig,
)


def get_config() -> LanguageSelfPlay:
    """Returns the configuration."""
    return LanguageSelfPlay(
        name="lsp_smollm2",
        method="lsp_zero",
        model=ModelConfig(path="smollm2-135m", dtype="float32"),
        adapter=AdapterConfig(rank=16),
        iterations=10,
        groups_per_iteration=8,
        group_size=4,
        tasks={"question": QueryTask("general knowledge questions", "")},
        sampling=SamplingConfig(temperature=0.7),
        reward=AnswerRewardConfig(
            sources={"formats": 1.0},
            formats=({"kind": "words", "at_least": 10, "at_most": 40}, {"kind": "ends_with", "text": "."}),
        ),
        rollout=SelfPlayRolloutConfig(
            slots=32,
            max_length=768,
            max_query_length=64,
            max_answer_length=64,
            max_judgement_length=160,
            decode_steps=16,
        ),
        optimizer=OptimizerConfig(learning_rate=1e-4, b2=0.98),
        batch=BatchConfig(row_length=768, micro_batch_rows=2, workers=1),
        training=TrainingConfig(scan_layers=True),
        checkpoint=CheckpointConfig(every=5, keep=2),
    )
