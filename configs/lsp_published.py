"""Language Self-Play of Llama-3.2-3B-Instruct as published: the paper's value wherever the paper says anything.

Paper: Language Self-Play (arXiv 2509.07414), sections 3 and 5, appendix C, Table 1: 8 queries, beta 0.05, rate 3e-6,
  the KL term as in equations 4 and 5 (its expected gradient is zero), every query answered and paid as it is,
  R + R_Q with weight 1, Skywork-Reward-V2-Llama-3.2-3B, 1,500 iterations (the most that Box 4 shows), no task and no
  template. Its batch of 4 with 2 accumulated are the 8 queries; here all of an iteration is one step, too, in
  micro-batches of a size that changes nothing. Two things are not the paper's: its prompts, which are not shipped
  (ours have their structure; copy Boxes 1 and 3 into files and give --config.challenger.prompt="$(cat box1.txt)"
  --config.self_reward.prompt="$(cat box3.txt)"), and a mark that cannot be read, which it says nothing of. It states
  neither G, alpha_Ch, lengths, temperature nor optimizer: these are ours, as in configs/lsp_llama3_2_3b.py.
Command: python -m dfc.launch --config=configs/lsp_published.py
Hardware: not run with these weights. The programs are those of configs/lsp_llama3_2_3b.py: one GPU of 141 GB with
  --config.batch.micro_batch_rows=4, or eight of 80 GB.
Time: not measured; fit's estimate is 51 s an iteration on the one, 10 s on the eight.
Score: none measured here. The paper's overall win rates on AlpacaEval against a copy of the base: base 26.5, GRPO 38.8,
  LSP-Zero 32.0, LSP 36.4.
Variant: --config.method=lsp_zero is LSP-Zero. For mathematics (section 5.2) name the task, see
  docs/language_self_play.md. --config.method=data --config.data=FILE --config.optimizer.learning_rate=1e-6 trains on
  given queries at the paper's rate for them, by equation 4 and not by TRL's GRPO.
"""

from dfc.config import (
    AnswerRewardConfig,
    BatchConfig,
    ChallengerConfig,
    LanguageSelfPlay,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    PreferenceRewardConfig,
    SelfPlayRolloutConfig,
    SelfRewardConfig,
)


def get_config() -> LanguageSelfPlay:
    """Returns the configuration."""
    return LanguageSelfPlay(
        name="lsp_published",
        method="lsp",
        model=ModelConfig(path="meta-llama/Llama-3.2-3B-Instruct", dtype="bfloat16"),
        mesh=MeshConfig(data=1, fsdp=-1, tensor=1),
        iterations=1500,
        groups_per_iteration=8,
        group_size=8,
        kl_coefficient=0.05,
        kl_gradient="published",
        challenger=ChallengerConfig(bad_queries="as_is", unsolved_queries="as_is"),
        self_reward=SelfRewardConfig(weight=1.0),
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
