"""The study's Divide-Fuse-Conquer run: six games, one core, a budget of games that its baselines share.

Paper: Divide-Fuse-Conquer (arXiv 2505.16401), Algorithms 1 and 2; its DFC-MSRL.
Command: python -m dfc.launch --config=configs/study_dfc.py --config.seed=10
Hardware: a CPU core and 2 GB of free memory.
Time: 9 to 11 minutes beside two other runs on four cores.
Score: two-player games pooled against the initial policy 0.823 (three seeds: 0.811 to 0.835).
  All figures: docs/results/divide_fuse_conquer.md.
Variant: --config.fusion.at_once=true fuses all groups at once.

What differs from quickstart.py: one thread, so that several runs share a machine; the hasty-action penalty, the format
reward and all else as there. TowerOfHanoi is solved by the base model in 3 % of its games: with the paper's threshold
of 0 it would be in this group with one seed and in that one with another, so a game counts as winnable above 10 %.
"""

import dataclasses

from dfc.config import DivideFuseConquer, GroupingConfig
from dfc.configs import quickstart

# Iterations x games of this run: divide 24 x (1 + 3 + 2), conquer 32 x (4 + 6). The baselines have 77 x 6 = 462.
ITERATIONS_OF_BASELINES = 77


def get_config() -> DivideFuseConquer:
    """Returns the configuration."""
    base = quickstart.get_config()
    return dataclasses.replace(
        base,
        name="study_dfc",
        rollout=dataclasses.replace(base.rollout, workers=1),
        batch=dataclasses.replace(base.batch, workers=1),
        grouping=GroupingConfig(trials=100, winnable_above=0.1),
    )
