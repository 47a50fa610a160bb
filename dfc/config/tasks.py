"""Configuration of learning from trajectories at tasks (Paprika): its stages as recipes, and the recipes made of them.

What decides how long a run takes has defaults that suit a small model on a CPU. The published values of Paprika (arXiv
2502.17543: sections 3.2 to 3.4 and 4, appendices C and E) stand in configs/paprika_llama3_1_8b.py; where they differ
from a default, its field says them. All others are the published ones where the paper states them.

The settings of a stage are a section (`CollectConfig`), which the stage's own recipe (`Collect`) has at the top and a
recipe of several stages (`Paprika`) under the stage's name.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, get_args

from dfc.config.ranges import Count, CountOrZero, NotNegative, Positive, Range, SeveralCount, ShareBetween
from dfc.config.run import PlayingRunConfig, RunConfig, TrainingRunConfig
from dfc.config.sections import (
    HeldOutConfig,
    RowsAdapterConfig,
    SamplingConfig,
    ScheduledOptimizerConfig,
)

# ---- collecting ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TaskCollectionConfig:
    """Which tasks trajectories are collected from, and how.

    Attributes:
      split: whose tasks, for games that have splits.
      tasks: per game, the first ones; 0: all of the split (the paper). Games without splits take the first deals and
        need a number.
      sampling: how tokens are sampled; hot, so that samples of a task differ, and min-p keeps hot samples sensible.
      episodes_per_chunk: games between two writes to the disk; 0: four times as many as are in flight.
    """

    split: str = "train"
    tasks: CountOrZero = 40
    sampling: SamplingConfig = SamplingConfig(temperature=1.5, min_p=0.3)
    episodes_per_chunk: CountOrZero = 0


@dataclasses.dataclass(frozen=True)
class CollectConfig(TaskCollectionConfig):
    """Several samples of every task.

    Attributes:
      samples: trajectories of each task (the paper: 20).
      samples_of: other numbers for single games (the paper: 100 of mastermind).
      learner_roles: game id -> the role that the policy always takes there; in other games for two its seats alternate.
      demonstrator: who plays instead of the run's model, which is to imitate it and whose tokens encode the games:
        a scripted player (``strong``, ``simple``, ``random_legal``) or a chat endpoint; empty: the model plays itself.
      opponent: who plays the other seat of games for two: ``initial``, ``itself``, or a player: ``random_legal``,
        ``simple``, ``strong``, a folder with weights or a run, ``tiny_player``, ``http://HOST/v1#MODEL``. A model has
        the shape and tokenizer of the run's; a demonstrator meets no model.
    """

    samples: Count = 8
    samples_of: Mapping[str, Count] = dataclasses.field(default_factory=dict)
    learner_roles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    demonstrator: str = ""
    opponent: str = "itself"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectingRunConfig(TaskCollectionConfig, PlayingRunConfig):
    """A run that collects trajectories at tasks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collect(CollectConfig, CollectingRunConfig, recipe="collect", module="stages.collect"):
    """Trajectories to learn from: several samples of every task, played by one policy."""

    shorter: ClassVar[tuple[str, ...]] = ("tasks", "samples", "rollout.max_reply_length")


# ---- building --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Branch(CollectingRunConfig, recipe="branch", module="stages.collect"):
    """Trajectories that play on from turns of recorded ones: siblings with the same instance, seat and history.

    Attributes:
      trajectories: the folder of the recorded ones, or the run that collected them, of this run's games.
      tasks: per game, those of the first ones; 0: of all.
      turns: of the recorded seat that it is played on from: its ``first`` reply, or ``all`` of them.
      turns_per_dialogue: with ``all``, how many turns of one dialogue at most, chosen by the seed; 0: all of them.
      siblings: games played on from each turn.
      opponent: who plays the other seat of games for two from there on: ``initial``, ``itself``, or a player, as in
        collect.
    """

    shorter: ClassVar[tuple[str, ...]] = ("tasks", "turns_per_dialogue", "siblings", "rollout.max_reply_length")

    trajectories: str = ""
    tasks: CountOrZero = 0
    turns: Literal["first", "all"] = "first"
    turns_per_dialogue: CountOrZero = 0
    siblings: Count = 4
    opponent: str = "itself"


@dataclasses.dataclass(frozen=True)
class SelectionLimits:
    """Which trajectories rows are made of; see `dfc.rows.selection`.

    Attributes:
      leave_out: without these games (one name: leave-one-out).
      sft_tokens: a longer trajectory is not imitated (the paper: 12,000).
      pair_tokens: a pair has no longer side (the paper: 8,192).
      turn_ratio: a success with at least this many times the turns of the best one counts as worse; 0: failures only.
      rejected_failures: labels of trajectories no rule decided that may be the worse side of a pair.
    """

    leave_out: tuple[str, ...] = ()
    sft_tokens: Count = 512
    pair_tokens: Count = 256
    turn_ratio: NotNegative = 2.0
    rejected_failures: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class BuildDataConfig(SelectionLimits):
    """Rows to train on, chosen from trajectories.

    Attributes:
      game_groups: only these games; empty: all (one name: trained on a single group).
    """

    game_groups: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildData(BuildDataConfig, RunConfig, recipe="build_data", module="stages.build_rows"):
    """Rows to train on from a folder of trajectories.

    Attributes:
      trajectories: their folder, or the run that collected them.
      needed: whether it is an error if there is nothing to imitate (``sft``), no pair (``pairs``), either (``both``),
        nothing at all (``one``), or never (``none``).
    """

    trajectories: str = ""
    needed: Literal["one", "sft", "pairs", "both", "none"] = "one"


# ---- training on rows ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class SftConfig:
    """Supervised training on trajectories.

    Attributes:
      epochs: passes over all rows.
      max_updates: the run ends after so many; 0: after all epochs (Playpen's warm start: 100, of 4 rows).
      batch_size: rows of one update.
      optimizer: how weights follow gradients.
    """

    epochs: Count = 1
    max_updates: CountOrZero = 0
    batch_size: Count = 32
    optimizer: ScheduledOptimizerConfig = ScheduledOptimizerConfig(learning_rate=1e-4)


@dataclasses.dataclass(frozen=True)
class PreferenceConfig:
    """Training on pairs of a better and a worse side; see `dfc.losses` for the formulas.

    The losses of pairs are one family. RPO, the paper's: alpha=1. DPO: alpha=0. Supervised training on the chosen
    sides: preference_weight=0. Length-normalized DPO: normalize_length. SimPO: normalize_length, reference off, margin
    above 0, alpha=0.

    Attributes:
      epochs: passes over all pairs.
      max_updates: the run ends after so many; 0: after all epochs.
      batch_size: pairs of one update.
      optimizer: how weights follow gradients.
      beta: how strongly preferences pull.
      alpha: weight of the likelihood of the chosen side, per token of it.
      preference_weight: weight of the preference itself; at 0 the model before training is not computed, so the drift
        from it is not measured, and `accuracy` and `margin` are of plain log-probabilities.
      normalize_length: rewards are means over the tokens of a side instead of sums.
      reference: whether rewards are relative to the model before training.
      margin: by how much the better side's reward is to be larger.
    """

    epochs: Count = 1
    max_updates: CountOrZero = 0
    batch_size: Count = 32
    optimizer: ScheduledOptimizerConfig = ScheduledOptimizerConfig(learning_rate=5e-5)
    beta: Positive = 0.1
    alpha: NotNegative = 1.0
    preference_weight: NotNegative = 1.0
    normalize_length: bool = False
    reference: bool = True
    margin: NotNegative = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsRunConfig(TrainingRunConfig):
    """A run that trains on rows.

    Attributes:
      data: a folder made by build_data, the run that made it, or a file of conversations (``.jsonl``, ``.json``,
        ``.parquet``) in one of the layouts of `dfc.rows.conversations`.
      data_shares: further places like it -> the share of every update's rows that comes from there; they are gone
        through again and again, while an epoch is one pass over `data` (`dfc.training.row_shares`).
      held_out: rows that are not trained on, and which checkpoint becomes the policy.
      max_row_bytes: a row of a file of conversations that takes more is refused, before it is read whole.
      adapter: low-rank adapters instead of all weights.
    """

    data: str = ""
    data_shares: Mapping[str, ShareBetween] = dataclasses.field(default_factory=dict)
    held_out: HeldOutConfig = HeldOutConfig()
    max_row_bytes: Annotated[int, Range(1000, 2**31 - 1)] = 16 * 2**20
    adapter: RowsAdapterConfig = RowsAdapterConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sft(SftConfig, RowsRunConfig, recipe="sft", module="stages.offline"):
    """Supervised training on stored rows."""

    shorter: ClassVar[tuple[str, ...]] = ("epochs", "max_updates")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preference(PreferenceConfig, RowsRunConfig, recipe="preference", module="stages.offline"):
    """Training on stored pairs."""

    shorter: ClassVar[tuple[str, ...]] = ("epochs", "max_updates")


TRAININGS: dict[Literal["sft", "rpo"], type[RowsRunConfig]] = {"sft": Sft, "rpo": Preference}
"""The trainings of recipes of several stages, in their order, by the names of their stages."""


# ---- evaluating ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class EvaluateTasksConfig:
    """How often tasks are solved.

    Attributes:
      split: whose tasks, for games that have splits.
      first: number of the first task; with the split that was collected from, tasks after those of the collection.
      tasks: per game, from the first one on; 0: all that the split has (the paper).
      tasks_of: ends of single games: tasks up to that number, also beyond the split, as further trials (the paper: 100
        of bandit).
      trajectories: of each task.
      sampling: how tokens are sampled.
      temperatures: two or more that everything is played at, each in the place of `sampling.temperature`; empty: at
        that one alone.
    """

    split: str = "test"
    first: CountOrZero = 0
    tasks: CountOrZero = 40
    tasks_of: Mapping[str, Count] = dataclasses.field(default_factory=lambda: {"bandit": 40})
    trajectories: Count = 4
    sampling: SamplingConfig = SamplingConfig(temperature=0.7, min_p=0.3)
    temperatures: tuple[NotNegative, ...] = ()

    @property
    def every_temperature(self) -> tuple[float, ...]:
        """The temperatures that everything is played at, each once."""
        return tuple(dict.fromkeys(self.temperatures)) or (self.sampling.temperature,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateTasks(EvaluateTasksConfig, PlayingRunConfig, recipe="evaluate_tasks", module="stages.evaluate_tasks"):
    """How often tasks are solved by policies.

    Attributes:
      policies: who plays, each ``NAME=PLAYER`` or ``PLAYER``: ``random_legal``, ``simple``, ``strong``, a folder with
        weights or a run, or ``tiny_player``; also as A,B,C. Models have the shape and tokenizer of `model`.
      opponent: who plays the other seat of games for a team: ``itself``, the policy in all seats, ``initial``, or a
        player: ``random_legal``, ``simple``, ``strong``, a folder with weights or a run, ``tiny_player``,
        ``http://HOST/v1#MODEL``. A model sits beside models only.
      learner_roles: game id -> the role that the policy takes beside it; in other games it has the first seat.
    """

    shorter: ClassVar[tuple[str, ...]] = ("tasks", "trajectories", "temperatures", "rollout.max_reply_length")

    policies: tuple[str, ...] = ()
    opponent: str = "itself"
    learner_roles: Mapping[str, str] = dataclasses.field(default_factory=dict)


# ---- all stages ------------------------------------------------------------------------------------------------------

Stage = Literal["collect", "build_data", "sft", "rpo", "evaluate_tasks"]
STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagesRunConfig(PlayingRunConfig, TrainingRunConfig):
    """What recipes of several stages have beside the settings of their stages.

    Attributes:
      sft: the stage of supervised training.
      rpo: the stage of training on pairs.
      evaluate_tasks: the stage at the end.
      adapter: low-rank adapters instead of all weights, in the trainings; games are played with merged weights.
    """

    sft: SftConfig = SftConfig()
    rpo: PreferenceConfig = PreferenceConfig()
    evaluate_tasks: EvaluateTasksConfig = dataclasses.field(default_factory=EvaluateTasksConfig)
    adapter: RowsAdapterConfig = RowsAdapterConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paprika(StagesRunConfig, recipe="paprika", module="methods.paprika"):
    """All stages of Paprika in one run, each in a run folder of its own inside.

    Attributes:
      stages: which of ``collect``, ``build_data``, ``sft``, ``rpo`` and ``evaluate_tasks``, in this order.
      collect: that stage.
      build_data: that stage.
      collected: the run whose trajectories are used where ``collect`` is not among the stages.
      data: what is trained on where ``build_data`` is not among the stages, as in `RowsRunConfig`.
      max_row_bytes: of that, as in `RowsRunConfig`.
    """

    stages: tuple[Stage, ...] = STAGES
    collect: CollectConfig = dataclasses.field(default_factory=CollectConfig)
    build_data: BuildDataConfig = BuildDataConfig()
    collected: str = ""
    data: str = ""
    max_row_bytes: Annotated[int, Range(1000, 2**31 - 1)] = 16 * 2**20


@dataclasses.dataclass(frozen=True)
class ChoiceConfig:
    """How a curriculum chooses the groups of tasks it collects from.

    Attributes:
      steps: tasks of a round, each of a group that is chosen for it, sampled from the group with replacement (the
        paper: 250).
      tasks_at_once: tasks chosen before the results of the first are known: 1 is the paper's; more are played together.
      strategy: ``ucb``, by the spread of turns, or ``uniform``: every task of every group is as likely.
      arms: what a group is: a ``game``, the ``difficulty`` or the ``category`` of a scenario within a game.
      join_groups: groups that are one, by the name of all: ``{"codes": ("wordle", "mastermind")}``.
      c: width of the confidence bound.
      samples: trajectories of each task (the paper: 20).
    """

    steps: Count = 40
    tasks_at_once: Count = 8
    strategy: Literal["ucb", "uniform"] = "ucb"
    arms: Literal["game", "difficulty", "category"] = "difficulty"
    join_groups: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    c: NotNegative = math.sqrt(2)
    samples: SeveralCount = 8  # one trajectory has no spread


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskCurriculum(ChoiceConfig, StagesRunConfig, recipe="task_curriculum", module="methods.task_curriculum"):
    """Rounds of collecting from chosen groups of tasks, building and training; each starts from the one before.

    Attributes:
      rounds: of collecting and training.
      objective: what each round trains with: ``rpo``, or supervised training before it: ``sft_rpo``.
      collect: how each round collects.
      build_data: what rows are made of.
    """

    rounds: Count = 3
    objective: Literal["rpo", "sft_rpo"] = "sft_rpo"
    collect: TaskCollectionConfig = TaskCollectionConfig()
    build_data: SelectionLimits = SelectionLimits()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of a round, and the evaluation."""
        trainings: tuple[Stage, ...] = ("rpo",) if self.objective == "rpo" else ("sft", "rpo")
        return ("collect", "build_data", *trainings, "evaluate_tasks")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectRound(ChoiceConfig, CollectingRunConfig, recipe="collect_round", module="stages.collect_round"):
    """The collecting of one round of a curriculum: a stage, which no configuration file names."""

    shorter: ClassVar[tuple[str, ...]] = ("steps", "samples", "rollout.max_reply_length")
