"""The study's baseline with one run over all games, with as many games to learn from as study_dfc.py.

Paper: Divide-Fuse-Conquer (arXiv 2505.16401), section 4.3, Figure 2; its Naive-MSRL, with the sampling, the random
  actions and the acceptance of study_dfc.py, so that the stages alone differ.
Command: python -m dfc.launch --config=configs/study_naive_multi.py --config.seed=10
Hardware: a CPU core and 2 GB of free memory.
Time: 8 to 10 minutes beside two other runs on four cores.
Score: two-player games pooled against the initial policy 0.828 (three seeds: 0.794 to 0.859).
  All figures: docs/results/divide_fuse_conquer.md.
Variant: --config.mixed_priority.enabled=false gives every game as many groups.
"""

import dataclasses

from dfc.config import Grpo, MatchesConfig
from dfc.configs import study_dfc


def get_config() -> Grpo:
    """Returns the configuration."""
    base = study_dfc.get_config()
    shared = {field.name: getattr(base, field.name) for field in dataclasses.fields(Grpo) if hasattr(base, field.name)}
    shared |= {"name": "study_naive_multi", "evaluation": MatchesConfig(games=base.evaluation.games)}
    return Grpo(**shared | {"iterations": study_dfc.ITERATIONS_OF_BASELINES})
