"""The study's baseline that imitates the base model's won games, with as many games as study_dfc.py.

Paper: Divide-Fuse-Conquer (arXiv 2505.16401), appendix D, Figures 10 and 11; its SFT.
Command: python -m dfc.launch --config=configs/study_imitation.py --config.seed=10
Hardware: a CPU core and 2 GB of free memory.
Time: 9 to 11 minutes beside two other runs on four cores.
Score: two-player games pooled against the initial policy 0.578 (three seeds: 0.564 to 0.586).
  All figures: docs/results/divide_fuse_conquer.md.
Variant: --config.optimizer.learning_rate=3e-4 learns more slowly.
"""

import dataclasses

from dfc.config import DivideFuseConquer
from dfc.configs import study_dfc


def get_config() -> DivideFuseConquer:
    """Returns the configuration."""
    base = study_dfc.get_config()
    return dataclasses.replace(
        base, name="study_imitation", method="imitate_wins", conquer_iterations=study_dfc.ITERATIONS_OF_BASELINES
    )
