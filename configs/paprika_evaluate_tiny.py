"""Success rates of any policies of the bundled kind on the tasks that configs/paprika_tiny.py evaluates at its end.

Paper: Paprika (arXiv 2502.17543), section 4.1, in miniature.
Command: python -m dfc.launch --config=configs/paprika_evaluate_tiny.py
  --config.policies=base=runs/paprika_player/policy,grpo=runs/paprika_grpo_tiny
Hardware: a CPU core and 2 GB of free memory.
Time: not measured.
Score: docs/results/paprika.md.
Variant: --config.split=train --config.tasks=40 for the tasks that were trained on.
"""

import dataclasses

from dfc.config import EvaluateTasks
from dfc.configs import paprika_tiny


def get_config() -> EvaluateTasks:
    """Returns the configuration."""
    base = paprika_tiny.get_config()
    tasks = {field.name: getattr(base.evaluate_tasks, field.name) for field in dataclasses.fields(base.evaluate_tasks)}
    return EvaluateTasks(
        name="paprika_evaluate_tiny",
        games=base.games,
        model=base.model,
        rollout=base.rollout,
        policies=("base=runs/paprika_player/policy",),
        **tasks,
    )
