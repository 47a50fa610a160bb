"""The study's baseline with a policy for every game, with as many games to learn from as study_dfc.py.

Paper: Divide-Fuse-Conquer (arXiv 2505.16401), section 4.3, Figure 2; its Naive-SSRL.
Command: python -m dfc.launch --config=configs/study_naive_single.py --config.seed=10
Hardware: a CPU core and 2 GB of free memory.
Time: 10 to 12 minutes beside two other runs on four cores.
Score: two-player games pooled against the initial policy 0.813 (three seeds: 0.791 to 0.824).
  All figures: docs/results/divide_fuse_conquer.md.
Variant: --config.conquer_iterations=20 is shorter.
"""

import dataclasses

from dfc.config import DivideFuseConquer
from dfc.configs import study_dfc


def get_config() -> DivideFuseConquer:
    """Returns the configuration."""
    base = study_dfc.get_config()
    return dataclasses.replace(
        base, name="study_naive_single", method="naive_single", conquer_iterations=study_dfc.ITERATIONS_OF_BASELINES
    )
