"""Paprika's curriculum in miniature: the difficulties of twenty questions as arms, three rounds.

Paper: Paprika (arXiv 2502.17543), section 3.4, Algorithm 1, and section 4, Figure 4.
Command: python -m dfc.launch --config=configs/paprika_curriculum_tiny.py
  after python -m dfc.launch --config=configs/paprika_player.py, which makes the model.
Hardware: a CPU core and 2 GB of free memory.
Time: 5 minutes on one of four busy cores.
Score: success on test topics after three rounds, three seeds: ucb 11.5 %, uniform 15.4 %, before 22.1 %; see
  docs/results/paprika.md.
Variant: --config.strategy=uniform is what the paper compares with. The paper's sizes are steps=250 and tasks_at_once=1.
  With several games, --config.arms=game makes each of them an arm.
"""

from dfc.config import SelectionLimits, TaskCollectionConfig, TaskCurriculum
from dfc.configs import paprika_tiny


def get_config() -> TaskCurriculum:
    """Returns the configuration."""
    base = paprika_tiny.get_config()
    return TaskCurriculum(
        name="paprika_curriculum_tiny",
        games={"twenty_questions": {}},
        model=base.model,
        rollout=base.rollout,
        rounds=3,
        steps=40,
        tasks_at_once=8,
        samples=16,
        collect=TaskCollectionConfig(tasks=paprika_tiny.TASKS),
        build_data=SelectionLimits(sft_tokens=base.build_data.sft_tokens, pair_tokens=base.build_data.pair_tokens),
        sft=base.sft,
        rpo=base.rpo,
        evaluate_tasks=base.evaluate_tasks,
        batch=base.batch,
        training=base.training,
        checkpoint=base.checkpoint,
    )
