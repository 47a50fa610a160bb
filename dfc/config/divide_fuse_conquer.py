"""Configuration of Divide-Fuse-Conquer (arXiv 2505.16401) and of what it is compared with.

Its iteration is that of `dfc.config.grpo` with the paper's own techniques turned on. The published values (sections 3.2
and 4.2) stand in configs/dfc_textarena_qwen2_5_32b.py; where they differ from a default, its field says them.
"""

import dataclasses
from typing import Annotated, ClassVar, Literal

from dfc.config.grpo import (
    SHORTER,
    AcceptanceConfig,
    MatchesConfig,
    MixedPriorityConfig,
    RlRunConfig,
)
from dfc.config.ranges import Count, CountOrZero, EvenCount, Positive, Range, Share, ShareAboveZero, ShareBelowOne


@dataclasses.dataclass(frozen=True)
class GroupingConfig:
    """The divide step: groups by (start kind) x (can the base model win at all).

    Attributes:
      trials: games of the base model per game id; against itself where there are two seats.
      winnable_above: a game counts as winnable if the measured win rate is above this (the paper: 0).
      order: the kinds of groups, first to last; groups are fused in this order.
      groups: the groups, set manually, in their order, such as (("TicTacToe-v0", "Nim-v0"), ("LiarsDice-v0",)); empty:
        measured. The base model's games are played and printed in any case.
    """

    trials: Count = 100
    winnable_above: ShareBelowOne = 0.0
    order: tuple[str, ...] = ("fixed_unwinnable", "fixed_winnable", "random_unwinnable", "random_winnable")
    groups: tuple[tuple[str, ...], ...] = ()


@dataclasses.dataclass(frozen=True)
class FusionConfig:
    """How policies become one (section 3.2.2); see `dfc.fusion` for the formulas.

    Attributes:
      method: ``average`` of the parameters (the paper's), or of what training changed: ``task_arithmetic``, ``ties``.
      weight: of the policy that is added; the policy so far has 1 - weight (the paper: 1/2). All weigh alike `at_once`.
      at_once: fuse all group policies at once and conquer all games in one stage, instead of group by group.
      scale: task_arithmetic and ties: the fused change counts this much.
      density: ties: the share of each change that is kept, largest first.
    """

    method: Literal["average", "task_arithmetic", "ties"] = "average"
    weight: Annotated[float, Range(0, 1, above=True, below=True)] = 0.5
    at_once: bool = False
    scale: Positive = 1.0
    density: ShareAboveZero = 0.2


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(MatchesConfig):
    """The matches at the end of a run, and those between its stages.

    Attributes:
      stage_games: per game id after each stage, against the initial policy, for the table of stages.
    """

    stage_games: EvenCount = 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class DivideFuseConquer(RlRunConfig, recipe="divide_fuse_conquer", module="methods.divide_fuse_conquer"):
    """Algorithms 1 and 2, and what the paper compares them with.

    Four settings that `RlRunConfig` has turned off are on: the method's own.

    Attributes:
      method: ``divide_fuse_conquer``; ``naive_single``: every game a policy of its own (the paper's Naive-SSRL);
        ``imitate_wins``: supervised training on the initial policy's won games (SFT). Naive-MSRL is the recipe grpo.
      divide_iterations: iterations of each group's own policy (the paper: 100).
      conquer_iterations: iterations after each fuse; of each game's, or of the one stage, in the other methods (the
        paper: 100).
      half_negative: drop half of the episodes with a negative advantage at random.
      random_action_rate: probability that an action of the policy is replaced by a random legal one (the paper's
        epsilon, whose value it does not state).
      mixed_priority: how seeds are shared out.
      acceptance: which updates are kept.
      grouping: the divide step.
      fusion: the fuse step.
      evaluation: the matches after stages and at the end.
    """

    shorter: ClassVar[tuple[str, ...]] = ("divide_iterations", "conquer_iterations", *SHORTER)

    method: Literal["divide_fuse_conquer", "naive_single", "imitate_wins"] = "divide_fuse_conquer"
    divide_iterations: CountOrZero = 10
    conquer_iterations: CountOrZero = 10
    half_negative: bool = True
    random_action_rate: Share = 0.05
    mixed_priority: MixedPriorityConfig = MixedPriorityConfig()
    acceptance: AcceptanceConfig = AcceptanceConfig()
    grouping: GroupingConfig = GroupingConfig()
    fusion: FusionConfig = FusionConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
