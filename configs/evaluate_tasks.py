"""How often tasks are solved: success rates, pass@k and turns of models and scripted players on the same tasks.

Paper: Paprika (arXiv 2502.17543), section 4: 4 games of each test task of ten groups at temperature 0.7 and min-p 0.3,
  bandit over 100 trials. Appendix I plays Wordle with other lengths, appendix J a bandit that counts regret.
Command: python -m dfc.launch --config=configs/evaluate_tasks.py --config.policies=random_legal,simple,strong
  A policy is a folder with weights or a run, tiny_player, or random_legal, simple, strong; with NAME= in front it has
  another name. Models share the architecture and the tokenizer of model.path:
  --config.model.path=FOLDER --config.policies=base=FOLDER,trained=runs/NAME
  All others are compared with the first policy, task by task. A game stands once in a run, so these are runs of their
  own: --config.games="{'wordle': {'length': 6}}" (4 and 6 to 10), --config.games="{'bandit_regret': {'arms': 5}}".
Hardware: a CPU core for scripted players; for models what playing them needs.
Time: 1.6 minutes for the command above (32 124 games) on one core beside other work.
Score: mean over ten groups, in percent: random_legal 15.0, simple 73.6, strong 97.1 (standard errors 0.7, 0.8, 0.3).
Variant: --config.temperatures=0.3,0.7,1.0 --config.tasks=50 for the paper's three
  temperatures, over fewer tasks.
"""

from dfc.config import EvaluateTasks, RolloutConfig, SamplingConfig

GROUPS = (
    "twenty_questions",
    "guess_my_city",
    "wordle",
    "cellular_automata",
    "customer_service",
    "murder_mystery",
    "mastermind",
    "battleship",
    "minesweeper",
    "bandit",
)


def get_config() -> EvaluateTasks:
    """Returns the configuration."""
    return EvaluateTasks(
        name="evaluate_tasks",
        policies=("random_legal", "simple", "strong"),
        games={group: {} for group in GROUPS},
        rollout=RolloutConfig(slots=128, max_length=16384, max_reply_length=1024),
        split="test",
        tasks=0,
        tasks_of={"bandit": 100},
        trajectories=4,
        sampling=SamplingConfig(temperature=0.7, min_p=0.3),
    )
