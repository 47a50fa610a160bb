"""Configuration of Playpen (arXiv 2504.08590): dialogues, supervised training, preferences and GRPO with a teacher.

Defaults suit a small model on a CPU where they decide how long a run takes; the published values (sections 4.2 and
4.3, appendices D and E) stand in configs/playpen_llama3_1_8b.py. All others are the published ones where the paper
states them, and a field says where it does not.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Literal, get_args

from dfc.config.dialogues import DialogueChoiceConfig
from dfc.config.grpo import GrpoConfig, MatchesConfig, RewardConfig
from dfc.config.ranges import Count, CountOrZero, NotNegative, SeveralCount, ShareBelowOne
from dfc.config.run import PlayingRunConfig, TrainingRunConfig
from dfc.config.sections import (
    AdapterConfig,
    Games,
    HeldOutChecks,
    OpponentReplyConfig,
    OptimizerConfig,
    RowsAdapterConfig,
    SamplingConfig,
)
from dfc.config.tasks import EvaluateTasksConfig, PreferenceConfig, SftConfig, TaskCollectionConfig

Stage = Literal[
    "collect",
    "build_dialogues",
    "minigames",
    "warm_start",
    "sft",
    "branch",
    "dpo_dialogue",
    "dpo_turn",
    "grpo",
    "sft_grpo",
    "evaluate_tasks",
    "evaluate_with_teacher",
]
STAGES: tuple[Stage, ...] = get_args(Stage)
"""Every stage, in the order in which they run."""

LEARNER_ROLES: Mapping[str, str] = {
    "clem_imagegame": "follower",
    "clem_referencegame": "follower",
    "clem_taboo": "guesser",
    "clem_wordle_withcritic": "guesser",
}
"""The learner's role in GRPO, in games for two (Table 9)."""


@dataclasses.dataclass(frozen=True)
class DialogueCollectionConfig(TaskCollectionConfig):
    """Dialogues of several players with themselves, of every training instance.

    Attributes:
      players: who plays, each in both seats: ``random_legal``, ``simple``, ``strong``, a chat endpoint
        (``http://HOST/v1#MODEL``), or ``initial``, the model of the run.
      samples: dialogues of each player and instance.
      sources: other dialogues beside them: runs that collected, folders of trajectories, files of published
        interactions (the paper's are those of clembench's leaderboard).
    """

    tasks: CountOrZero = 0
    players: tuple[str, ...] = ("strong", "simple")
    samples: Count = 2
    sources: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class AdaptedSftConfig(SftConfig):
    """Supervised training with adapters of its own.

    Attributes:
      held_out: when the loss on held-out rows is taken, and which checkpoint is kept (the paper: ``before_lowest``).
      adapter: low-rank adapters instead of all weights.
    """

    held_out: HeldOutChecks = HeldOutChecks(keep="before_lowest")
    adapter: RowsAdapterConfig = RowsAdapterConfig()


@dataclasses.dataclass(frozen=True)
class AdaptedPreferenceConfig(PreferenceConfig):
    """Training on pairs with adapters of its own.

    Attributes:
      alpha: weight of the likelihood of the chosen side (the paper's DPO: 0).
      held_out: when the loss on held-out pairs is taken, and which checkpoint is kept (the paper: the ``best``).
      adapter: low-rank adapters instead of all weights.
    """

    alpha: NotNegative = 0.0
    held_out: HeldOutChecks = HeldOutChecks(keep="best")
    adapter: RowsAdapterConfig = RowsAdapterConfig()


@dataclasses.dataclass(frozen=True)
class BranchConfig(TaskCollectionConfig):
    """Pairs of one reply from games of the model after ``sft`` that are played on from their turns with other seeds.

    The paper's pairs are of stored dialogues only.

    Attributes:
      turns: that are played on from: the ``first`` reply of a game, or ``all``.
      turns_per_dialogue: with ``all``, how many of one game at most; 0: all of them.
      siblings: games played on from each turn.
    """

    tasks: CountOrZero = 0
    turns: Literal["first", "all"] = "all"
    turns_per_dialogue: CountOrZero = 2
    siblings: SeveralCount = 4


@dataclasses.dataclass(frozen=True)
class TeacherGrpoConfig:
    """GRPO on training instances beside a frozen teacher; see the recipe ``grpo`` for what each setting does.

    Attributes:
      iterations: updates (the paper: 5 epochs of 686 instances; 16 an update make 215).
      groups_per_iteration: training instances of an update, of all games together. The paper's "batch size of 16" is
        read so, each with its group of games; of 16 games it would be 2 instances, and 1,715 updates.
      group_size: games of each instance (the paper: 8).
      opponent: the teacher, in the other seat (the paper: GPT-4o-mini).
      opponent_reply: how it replies where it is a policy (code of the paper: temperature 0, 100 tokens).
      learner_roles: game id -> the policy's role (Table 9). Of games that are not played the entries that are here by
        default do not count, others are refused.
      teacher_errors: how games are used that the teacher's error ended.
      teacher_replays: how often such a game is played again (rho).
      sampling: how the policy's tokens are sampled: its temperature, above 0, and its filters.
      grpo: the update (the paper states neither its clipping ratio nor its unit).
      reward: of an episode (Table 5).
      optimizer: how weights follow gradients.
      adapter: low-rank adapters instead of all weights.
      evaluation: the matches at the end of the stage.
    """

    iterations: Count = 20
    groups_per_iteration: Count = 16
    group_size: SeveralCount = 8
    opponent: str = "strong"
    opponent_reply: OpponentReplyConfig = OpponentReplyConfig(max_length=100, sampling=SamplingConfig(temperature=0.0))
    learner_roles: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(LEARNER_ROLES))
    teacher_errors: Literal["replace", "leave_out", "count"] = "replace"
    teacher_replays: CountOrZero = 1
    sampling: SamplingConfig = SamplingConfig(temperature=0.75)
    grpo: GrpoConfig = GrpoConfig(kl_coefficient=0.04, unit="sequence", updates_per_iteration=1)
    reward: RewardConfig = RewardConfig(measure="table_5")
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-6)
    adapter: AdapterConfig = AdapterConfig()
    evaluation: MatchesConfig = MatchesConfig(games=20)

    def roles(self, games: Collection[str]) -> dict[str, str]:
        """Returns the learner's roles without default entries for games that are not played.

        Args:
          games: that are played; an entry of another game that is no default stays, so that a misspelled one is
            reported.
        """
        return {
            game: role for game, role in self.learner_roles.items() if game in games or LEARNER_ROLES.get(game) != role
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Playpen(PlayingRunConfig, TrainingRunConfig, recipe="playpen", module="methods.playpen.recipe"):
    """All stages of Playpen in one run, each in a run folder of its own inside.

    Attributes:
      games: those trained on, in which dialogues are collected (the paper's seven in-domain ones).
      measured_games: those that only ``evaluate_tasks`` plays beside them (the paper's seven out-of-domain ones).
      stages: which of them run, in the order of `dfc.config.playpen.STAGES`.
      collect: dialogues of players.
      build_dialogues: which of them rows are made of.
      built: the run whose rows are trained on where ``build_dialogues`` is not among the stages.
      minigames: rows of short instructions with exact answers, which ``warm_start`` and `rehearsal` need.
      warm_start: supervised training on them before ``sft`` (the paper: 100 updates of 4).
      rehearsal: share of ``sft``'s rows that are minigames; 0: none. The paper states no share.
      sft: supervised training on dialogues.
      branch: pairs of one reply made by playing on from turns, for ``dpo_turn`` instead of those of stored dialogues.
      dpo_dialogue: training on pairs of whole dialogues, after ``sft``.
      dpo_turn: training on pairs of one reply, after ``sft``.
      grpo: with a teacher: stage ``grpo`` from the initial model, ``sft_grpo`` from the one after ``sft``.
      evaluate_tasks: the initial model and every trained one, in all seats; ``evaluate_with_teacher`` plays the same
        games for two beside the teacher, in the learner's roles.
    """

    measured_games: Games = dataclasses.field(default_factory=dict)
    stages: tuple[Stage, ...] = (
        "collect",
        "build_dialogues",
        "sft",
        "dpo_dialogue",
        "dpo_turn",
        "grpo",
        "sft_grpo",
        "evaluate_tasks",
    )
    collect: DialogueCollectionConfig = DialogueCollectionConfig()
    build_dialogues: DialogueChoiceConfig = DialogueChoiceConfig()
    built: str = ""
    minigames: Count = 20_000
    warm_start: AdaptedSftConfig = AdaptedSftConfig(batch_size=4, max_updates=100, held_out=HeldOutChecks(keep="last"))
    rehearsal: ShareBelowOne = 0.0
    sft: AdaptedSftConfig = AdaptedSftConfig(batch_size=4)
    branch: BranchConfig = BranchConfig()
    dpo_dialogue: AdaptedPreferenceConfig = AdaptedPreferenceConfig(batch_size=6)
    dpo_turn: AdaptedPreferenceConfig = AdaptedPreferenceConfig(batch_size=6)
    grpo: TeacherGrpoConfig = TeacherGrpoConfig()
    evaluate_tasks: EvaluateTasksConfig = EvaluateTasksConfig(
        split="test", tasks=0, tasks_of={}, trajectories=1, sampling=SamplingConfig(temperature=0.0, min_p=0.3)
    )
