"""A tournament: every policy alone and against every other one, on the same fresh deals, with ratings and tests.

Paper: Divide-Fuse-Conquer (arXiv 2505.16401), Tables 2, 3 and 8, whose printed figures stand beside the measured ones.
Command: python -m dfc.launch --config=configs/evaluate.py --config.policies=tiny_player,random_legal,strong
  A policy is random_legal, simple, strong, tiny_player, a folder with weights or a run (runs/quickstart; its Table 3
  comes with it), or http://HOST/v1#MODEL; with NAME= in front it has another name. The first three stand in the places
  of the paper's Qwen2.5 (DFC-MSRL), Qwen2.5 and Claude3.5.
Hardware: a CPU for the bundled model; for models of your own what playing them needs, two at a time.
Time: 54 s on two cores beside other work for the command above (480 games), half of it compilation.
Score: Elo 365 [291, 438] for strong, -164 [-210, -117] for random_legal, -201 [-249, -153] for tiny_player, which
  imitates random play; the mean is 0.
Variant: --config.seeds=50 --config.anchor=random_legal for narrower intervals, rated from there.
"""

from dfc.config import Evaluate, RolloutConfig


def get_config() -> Evaluate:
    """Returns the configuration."""
    return Evaluate(
        name="evaluate",
        policies=("tiny_player", "random_legal", "strong"),
        games={
            "TicTacToe-v0": {},
            "ConnectFour-v0": {},
            "LiarsDice-v0": {"num_dice": 2},
            "GuessTheNumber-v0": {},
            "TowerOfHanoi-v0": {"max_turns": 14},
        },
        rollout=RolloutConfig(slots=64, workers=2, max_length=160, max_reply_length=4, stop=("]",)),
        seeds=20,
    )
