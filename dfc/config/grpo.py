"""Configuration of GRPO on games, and of every method that learns from the games its policy plays.

By default it is GRPO (arXiv 2402.03300) and nothing else. What Divide-Fuse-Conquer (arXiv 2505.16401) adds to it is
here too, since any method may have it, and turned off: random actions in the policy's place, half of the negative
episodes dropped, mixed priority sampling, updates that are kept only if they win as often. `DivideFuseConquer` has all
four on.

What decides how long a run takes and how fast it learns has defaults that suit the bundled model on two CPU cores:
games alone make a run of a few minutes. Where a value that Divide-Fuse-Conquer published differs from a default, the
field says it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from dfc.config.ranges import (
    Count,
    CountOrZero,
    EvenCount,
    NotNegative,
    Range,
    SeveralCount,
    Share,
)
from dfc.config.run import PlayingRunConfig, TrainingRunConfig
from dfc.config.sections import AdapterConfig, OpponentReplyConfig, OptimizerConfig, SamplingConfig

SHORTER = ("groups_per_game", "group_size", "rollout.max_reply_length", "evaluation.games")
"""What makes an iteration and the matches at the end shorter, in every method."""


@dataclasses.dataclass(frozen=True)
class RewardConfig:
    """Rewards of Divide-Fuse-Conquer's Table 1, with what a reply costs that is answered with another try.

    A team's game that was broken off by a partner, or by nobody's reply, is a loss and costs no `invalid`.

    Attributes:
      measure: the reward of a game that came to its end: its ``outcome`` (Table 1), or its ``quality``, from 0 to 1,
        where the game says how good it was (`dfc.games.game.Game.has_quality`); one that did not has then the reward 0;
        or Playpen's ``table_5`` (`dfc.scoring.episode_rewards.table_5`), which reads none of the prices below.
      format: whether an invalid end costs `invalid`; off, it counts as a loss.
      invalid: reward of a game this seat ended by an invalid reply.
      hasty_action_penalty: whether a win is worth 1 / steps instead of 1.
      illegal_try: taken off for every illegal and for every malformed reply that was answered with another try (not
        in the paper, where such a try is free and therefore exploited).
      overrun: reward of a game this seat ended by filling its own context, in place of an outcome; at most 0. By
        default a loss, so that rambling does not pay in a game that goes badly; above `invalid`, as a loss is.
      function: a custom reward instead, ``FILE.py:NAME`` or ``module:NAME``: a function that takes a
        `dfc.episodes.Episode` and returns a number, or one for each reply of the policy's seat; of this section only
        `text` is read beside it and, with a number for each reply, `overrun`, which the last turn costs.
      text: the reward of a reply's wording, in the same form: a function that takes the text of one of the policy's
        replies and returns a number. The mean over an episode's replies is added.
    """

    measure: Literal["outcome", "quality", "table_5"] = "outcome"
    format: bool = True
    invalid: Annotated[float, Range(-1e6, 0, below=True)] = -2.0
    hasty_action_penalty: bool = True
    illegal_try: NotNegative = 0.25
    overrun: Annotated[float, Range(-1e6, 0)] = -1.0
    function: str = ""
    text: str = ""


@dataclasses.dataclass(frozen=True)
class OpponentPoolConfig:
    """Past policies as opponents: ``opponent="pool"``; the initial policy is always one of them.

    Attributes:
      size: policies kept beside the initial one; the oldest makes room.
      every: iterations after which the policy joins; a stage begins with the initial policy alone.
      choice: how an iteration's opponent is sampled, w the policy's win rate when they last met (1/2 before):
        ``hardest`` in proportion to (1 - w)^2, ``even`` to w (1 - w), ``uniform``.
    """

    size: Count = 4
    every: Count = 10
    choice: Literal["hardest", "even", "uniform"] = "hardest"


@dataclasses.dataclass(frozen=True)
class MixedPriorityConfig:
    """Mixed priority sampling: how many seeds each game gets (Divide-Fuse-Conquer, section 3.2.3).

    Attributes:
      enabled: off, every game gets the same number.
      a: weight of the linear-capped priority.
      b: weight of the variance priority.
      floor: epsilon_1, the least linear priority.
    """

    enabled: bool = True
    a: NotNegative = 0.2
    b: NotNegative = 0.8
    floor: Share = 0.1


@dataclasses.dataclass(frozen=True)
class AcceptanceConfig:
    """Which updates are kept (Divide-Fuse-Conquer, Algorithm 2, lines 19 to 22).

    Attributes:
      rule: ``previous``: the mean win rate is at least that of the iteration before; ``best``: of the best so far;
        ``always``: every update is kept, nothing is measured, and the win rates of the training games stand in, those
        against `opponent` (against itself near 1/2 whatever was learned, so that mixed priority has nothing to go by).
      games: fresh games per game id against the initial policy that measure it, seats alternating.
      tolerance: a win rate lower by at most this still passes (the paper: 0).
    """

    rule: Literal["previous", "best", "always"] = "previous"
    games: EvenCount = 20
    tolerance: Share = 0.05


@dataclasses.dataclass(frozen=True)
class GrpoConfig:
    """Group relative policy optimization.

    Attributes:
      clip_ratio: the likelihood ratio counts within 1 +- this (the paper: 0.1).
      clip_ratio_high: above 1 it counts within this instead; 0: the same as below.
      ratio: of each action token (``token``), or of all of an episode's together (``sequence``, GSPO).
      baseline: what a reward is compared with: ``group``, the mean of its group (the paper's); ``leave_one_out``, the
        mean of the others; ``role``, the mean of all episodes of the iteration in the same game and seat.
      kl_coefficient: weight of the KL divergence to the initial policy (the paper: 0.1).
      normalize_std: divide advantages by the standard deviation of the group, or of the role.
      unit: average over all action tokens (``token``), or first within each episode (``sequence``); or sum within each
        episode and divide by `batch.row_length`, whatever the episode's own length (``fixed_length``, Dr. GRPO).
      updates_per_iteration: optimizer steps on one iteration's episodes, each on its share of the groups.
      importance_cap: correct for the gap between the sampler's probabilities and the trainer's of the same weights:
        each action token's policy gradient is weighted by their ratio, trainer over sampler, up to this. 0 turns it
        off.
      importance_floor: weights count from this on; 0: from 0.
      importance_mode: the ratio of each action token, or the product of those of an episode, the same for all its
        tokens; out of bounds it becomes the bound (``token_truncate``, ``sequence_truncate``) or 0 (``token_mask``,
        ``sequence_mask``). Independent of `ratio`.
    """

    clip_ratio: Annotated[float, Range(0, 1, above=True, below=True)] = 0.2
    clip_ratio_high: NotNegative = 0.0
    ratio: Literal["token", "sequence"] = "token"
    baseline: Literal["group", "leave_one_out", "role"] = "group"
    kl_coefficient: NotNegative = 0.02
    normalize_std: bool = True
    unit: Literal["token", "sequence", "fixed_length"] = "token"
    updates_per_iteration: Count = 4
    importance_cap: NotNegative = 0.0
    importance_floor: NotNegative = 0.0
    importance_mode: Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] = "token_truncate"


@dataclasses.dataclass(frozen=True)
class MatchesConfig:
    """The matches at the end of a run.

    Attributes:
      games: per game id and opponent, seats alternating, on seeds no training game used.
    """

    games: EvenCount = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class RlRunConfig(PlayingRunConfig, TrainingRunConfig):
    """What every method has that learns from the games its policy plays.

    Four settings are techniques of Divide-Fuse-Conquer around the update, and turned off here: `half_negative`,
    `random_action_rate`, `mixed_priority` and `acceptance`. The sections of the last two are on where a configuration
    writes them out, unless it says otherwise.

    Attributes:
      groups_per_game: groups of episodes per game and iteration on average, of a rollout seed each (the paper's S: 50).
      group_size: episodes of a group, which are compared with each other for the advantages (the paper's r).
      refill: how many times an iteration at most plays further groups, on further deals, in the place of those whose
        rewards are all equal, which teach nothing: each time as many of each game as it still has
        (`dfc.training.refill`). An iteration then plays up to 1 + `refill` times its games.
      opponent: who plays the other seat of training games: the ``initial`` policy, the best policy so far
        ``itself`` (the paper's), a ``pool`` of past ones, or a player: ``random_legal``, ``simple``, ``strong``, a
        folder with weights or a run, ``tiny_player``, ``http://HOST/v1#MODEL``. A model has the shape and tokenizer of
        the run's.
      opponent_reply: how it replies in training games, where it is a policy.
      teacher_errors: how games of a team are used that the other seat broke off, and of those that failed:
        ``replace``: they are played again, then other games stand in for them; ``leave_out``: no advantage, in no mean;
        ``count``: as any other loss (`dfc.training.teacher_errors`).
      teacher_replays: with ``replace``, how often one game is played again (Playpen's rho).
      learner_roles: game id -> the role that the policy always takes there, such as ``{"clem_taboo": "guesser"}``;
        in every other game its seats alternate.
      train_both_seats: with ``itself``, learn from what both seats did: twice the episodes from as many games.
      deals: what the games of an iteration begin with: ``random`` deals, or the tasks of the games' splits in
        ``epochs``: each once, in an order that is shuffled again every time (`dfc.training.game_plan`). How many of a
        game come then is left to the order, and not to `mixed_priority`.
      groups_per_iteration: tasks of an iteration in ``epochs``, of all games together (Playpen: 16), each a group of
        `group_size` episodes; 0: groups_per_game x games. The last iteration of an epoch has the remainder.
      randomize_seeds: fresh seeds every iteration; off, the same ones each time.
      tasks: sample training deals from 0 to tasks - 1 only, so that later ones are new to the policy; 0: from all.
      half_negative: drop half of the episodes with a negative advantage at random.
      random_action_rate: probability that an action of the policy is replaced by a random legal one (the epsilon of
        epsilon-greedy play); 0 turns it off.
      sampling: how the policy's tokens are sampled: at what temperature, above 0, as without chance there would be
        nothing to compare, and by which filters. What they leave of the vocabulary is kept with every token, and the
        update compares probabilities among the same tokens.
      pool: opponents from the past.
      mixed_priority: how seeds are shared out; by default every game gets the same number.
      acceptance: which updates are kept; by default all.
      grpo: the update.
      reward: of an episode.
      optimizer: how weights follow gradients. It starts again at every stage and is undone with a dropped update, so
        the learning rate is constant after its warm-up.
      adapter: low-rank adapters instead of all weights.
      evaluation: the matches at the end.
    """

    groups_per_game: Count = 16
    group_size: SeveralCount = 8
    refill: CountOrZero = 0
    opponent: str = "initial"
    opponent_reply: OpponentReplyConfig = OpponentReplyConfig()
    teacher_errors: Literal["replace", "leave_out", "count"] = "count"
    teacher_replays: CountOrZero = 1
    learner_roles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    train_both_seats: bool = False
    deals: Literal["random", "epochs"] = "random"
    groups_per_iteration: CountOrZero = 0
    randomize_seeds: bool = True
    tasks: CountOrZero = 0
    half_negative: bool = False
    random_action_rate: Share = 0.0
    sampling: SamplingConfig = SamplingConfig()
    pool: OpponentPoolConfig = OpponentPoolConfig()
    mixed_priority: MixedPriorityConfig = MixedPriorityConfig(enabled=False)
    acceptance: AcceptanceConfig = AcceptanceConfig(rule="always")
    grpo: GrpoConfig = GrpoConfig()
    reward: RewardConfig = RewardConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    adapter: AdapterConfig = AdapterConfig()
    evaluation: MatchesConfig = MatchesConfig()

    def most_groups(self, games: int) -> int:
        """Returns how many groups of episodes an iteration over a number of games trains on, at most.

        So many are played too, and with `refill` up to so many in every round of it.
        """
        return self.groups_per_iteration or self.groups_per_game * games


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grpo(RlRunConfig, recipe="grpo", module="methods.grpo"):
    """One policy on any mixture of games, from the first iteration to the last.

    Divide-Fuse-Conquer is compared with it as Naive-MSRL; configs/study_naive_multi.py turns that method's own four
    settings on.

    Attributes:
      iterations: of playing and training.
    """

    shorter: ClassVar[tuple[str, ...]] = ("iterations", *SHORTER)

    iterations: CountOrZero = 20
