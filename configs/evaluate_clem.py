"""clemscore: dialogue games for a team, one policy in all seats; % played, quality and why games were broken off.

Paper: Playpen (arXiv 2504.08590), sections 3.4 and 5: 817 instances of 14 games, temperature 0, 300 tokens a reply,
  each instance once, one model in all seats.
Command: python -m dfc.launch --config=configs/evaluate_clem.py --config.policies=random_legal,simple,strong
  A policy is a folder with weights or a run, tiny_player, or random_legal, simple, strong; with NAME= in front it has
  another name. Models share the architecture and the tokenizer of model.path:
  --config.model.path=FOLDER --config.policies=base=FOLDER,trained=runs/NAME
  As a policy was trained, beside a partner: --config.opponent=strong --config.learner_roles.clem_taboo=guesser
Hardware: a CPU core for scripted players; for models what playing them needs.
Time: 15 seconds for the command above (2,451 games) on one core beside other work.
Score: clemscore random_legal 10.39, simple 65.04, strong 95.38 (docs/results/clem_games.md, game by game).
Variant: --config.opponent=strong --config.policies=simple with games for two only: a policy beside a partner.
"""

from dfc.config import EvaluateTasks, RolloutConfig, SamplingConfig
from dfc.games import registry


def get_config() -> EvaluateTasks:
    """Returns the configuration."""
    return EvaluateTasks(
        name="evaluate_clem",
        policies=("random_legal", "simple", "strong"),
        games={game: {} for game in registry.game_ids() if game.startswith("clem_")},
        rollout=RolloutConfig(slots=128, max_length=8192, max_reply_length=300),
        split="test",
        tasks=0,
        tasks_of={},
        trajectories=1,
        sampling=SamplingConfig(temperature=0.0, min_p=0.3),
    )
