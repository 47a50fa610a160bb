"""Language Self-Play of Llama-3.2-3B-Instruct at the paper's size, with our guards: what we would run ourselves.

Paper: Language Self-Play (arXiv 2509.07414), sections 3 and 5, appendix C: 8 queries, beta 0.05, rate 3e-6, batch 4
  with 2 accumulated, up to 1,500 iterations shown. Its reward is a preference model, computed beside the policy.
  Departs from it: the KL term has a gradient that holds (kl_gradient), bad queries are penalised and not answered
  (challenger.bad_queries), and the words of both prompts are ours; configs/lsp_published.py has the first two as
  published and says how to give the paper's prompts. Not stated there and ours: the answers to a query, alpha_Ch,
  lengths, temperature, optimizer, the treatment of a mark that cannot be read.
Command: python -m dfc.launch --config=configs/lsp_llama3_2_3b.py
Hardware: not run yet; python -m dfc.launch.fit --model=llama-3.2-3b --compile says that every program fits one GPU of
  141 GB (--topology=h200:1 with --config.batch.micro_batch_rows=4: 112 of 144 GB) and eight of 80 GB (h100:8: 15 of
  81 GB). A TPU VM: --topology=v5p:2x2x1, four chips, 30 of 103 GB, an iteration 27 s by fit's estimate.
Time: not measured. Estimate of fit for an iteration: 51 s on the one, 10 s on the eight.
Score: none measured here. The paper's overall win rates on AlpacaEval against a copy of the base: base 26.5, GRPO 38.8,
  LSP-Zero 32.0, LSP 36.4.
Variant: --config.method=lsp_zero without self-reward; --config.method=data --config.data=FILE
  --config.optimizer.learning_rate=1e-6 trains on given queries at the paper's rate for them, by equation 4 and not by
  TRL's GRPO, which the paper compares with.
"""

from dfc.config import (
    AnswerRewardConfig,
    BatchConfig,
    LanguageSelfPlay,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    PreferenceRewardConfig,
    SelfPlayRolloutConfig,
)


def get_config() -> LanguageSelfPlay:
    """Returns the configuration."""
    return LanguageSelfPlay(
        name="lsp_llama3_2_3b",
        method="lsp",
        model=ModelConfig(path="meta-llama/Llama-3.2-3B-Instruct", dtype="bfloat16"),
        mesh=MeshConfig(data=1, fsdp=-1, tensor=1),
        iterations=1500,
        groups_per_iteration=8,
        group_size=8,
        kl_coefficient=0.05,
        rollout=SelfPlayRolloutConfig(
            slots=64, max_length=4096, max_query_length=512, max_answer_length=1024, max_judgement_length=512
        ),
        reward=AnswerRewardConfig(
            sources={"preference": 1.0},
            preference=PreferenceRewardConfig(
                path="Skywork/Skywork-Reward-V2-Llama-3.2-3B", dtype="bfloat16", row_length=4096
            ),
        ),
        optimizer=OptimizerConfig(learning_rate=3e-6),
        batch=BatchConfig(row_length=4096, micro_batch_rows=8),
    )
