"""SmolLM2-135M-Instruct learns to reply with an action: supervised training on winning games of random legal play.

Paper: none; the warm start before free replies, with the stages of Paprika (arXiv 2502.17543).
Command: python -m dfc.launch --config=configs/smollm2_warm_start.py
  after python -m dfc.models.fetch smollm2-135m, which writes the model to the folder smollm2-135m.
Hardware: a CPU with two cores and 8 GB of free memory.
Time: 18 minutes beside other work.
Score: none; docs/results/smollm2.md has what configs/smollm2_free.py makes of it.
Variant: --config.collect.demonstrator=strong imitates good play and not only the format.
"""

from dfc.config import (
    BuildDataConfig,
    CheckpointConfig,
    CollectConfig,
    Paprika,
    RowsAdapterConfig,
    ScheduledOptimizerConfig,
    SftConfig,
)
from dfc.configs import smollm2


def get_config() -> Paprika:
    """Returns the configuration."""
    base = smollm2.get_config()
    return Paprika(
        name="smollm2_warm_start",
        games=base.games,
        model=base.model,
        stages=("collect", "build_data", "sft"),
        collect=CollectConfig(tasks=300, samples=1, demonstrator="random_legal", opponent="random_legal"),
        build_data=BuildDataConfig(sft_tokens=384),
        sft=SftConfig(optimizer=ScheduledOptimizerConfig(learning_rate=5e-4, schedule="cosine", warmup_ratio=0.1)),
        adapter=RowsAdapterConfig(rank=16),
        rollout=base.rollout,
        batch=base.batch,
        training=base.training,
        checkpoint=CheckpointConfig(every=5, keep=2),
    )
