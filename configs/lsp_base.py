"""Makes a small model for Language Self-Play: it writes queries of five families, answers them, and rates answers.

Paper: none; the model stands in for a chat model where there is no accelerator. Its Solver knows the right rule and
  follows it with a probability that falls with the difficulty of a query; else it mostly copies. One that answers as
  well as it can has groups of answers that are all right or all wrong, and reinforcement finds nothing to learn.
Command: python -m dfc.launch --config=configs/lsp_base.py
Hardware: a CPU core.
Time: 8 minutes on a CPU core for the first attempt, 12 for the second one, which meets the aim.
Score: second attempt: greedy accuracy 46 % of sorting digits, 44 % of reversing letters, 36 % of adding digits, 46 % of
  shifting letters, 51 % of encoding them; 80, 50, 68, 59 and 52 % of queries are live.
Variant: --config.steps=200 for a quick and worse one; --config.seed=1 for another one.
"""

from dfc.config import BatchShape, CheckpointConfig, ScheduledOptimizerConfig, SelfPlayBase


def get_config() -> SelfPlayBase:
    """Returns the configuration."""
    return SelfPlayBase(
        name="lsp_base",
        families=("sort_digits", "reverse_letters", "add_digits", "shift_letters", "encode_letters"),
        shares=(0.06, 0.72, 0.22),
        rules_first=0.5,
        steps=4500,
        transcripts_per_step=128,
        width=64,
        layers=3,
        feed_forward=192,
        vocabulary=512,
        optimizer=ScheduledOptimizerConfig(learning_rate=4e-3, warmup_steps=60, schedule="cosine", b2=0.98),
        batch=BatchShape(row_length=64, micro_batch_rows=8),
        checkpoint=CheckpointConfig(every=500, keep=2),
    )
