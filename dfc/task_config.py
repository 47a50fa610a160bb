"""Sections of a run's configuration for learning from trajectories at tasks (Paprika); `dfc.config` puts them together.

Defaults are the published values of Paprika (arXiv 2502.17543: sections 3.2 to 3.4 and 4, appendices C and E) where it
states them.
"""

import dataclasses
import math
from typing import Literal


@dataclasses.dataclass(frozen=True)
class CollectConfig:
    """Trajectories to learn from: several samples of every task.

    Attributes:
      split: whose tasks, for games that have splits.
      tasks: per game, the first ones; 0: all of the split. Games without splits take the first deals and need a number.
      samples: trajectories of each task.
      samples_of: other numbers for single games, ``GAME=SAMPLES`` each.
      temperature: of sampling; high, so that samples of a task differ.
      min_p: as in `dfc.config.SamplingConfig`; it keeps hot samples sensible.
      opponent: who sits in the other seat of games for two: ``initial``, ``itself``, a scripted player, a chat
        endpoint.
      episodes_per_chunk: games between two writes to the disk; 0: four times as many as are in flight.
    """

    split: str = "train"
    tasks: int = 0
    samples: int = 20
    samples_of: tuple[str, ...] = ("mastermind=100",)
    temperature: float = 1.5
    min_p: float = 0.3
    opponent: str = "itself"
    episodes_per_chunk: int = 0


@dataclasses.dataclass(frozen=True)
class BuildDataConfig:
    """Rows to train on, chosen from trajectories; see `dfc.data.selection`.

    Attributes:
      trajectories: their folder, or the run that collected them.
      groups: only these games; empty: all (one name: trained on a single group).
      leave_out: without these games (one name: leave-one-out).
      sft_tokens: a longer trajectory is not imitated.
      pair_tokens: a pair has no longer side.
      turn_ratio: a success with at least this many times the turns of the best one counts as worse; 0: failures only.
      rejected_failures: labels of trajectories no rule decided that may be the worse side of a pair.
    """

    trajectories: str = ""
    groups: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    sft_tokens: int = 12_000
    pair_tokens: int = 8_192
    turn_ratio: float = 2.0
    rejected_failures: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class OfflineConfig:
    """Training on rows that lie there; see `dfc.losses` for the formulas.

    The losses of pairs are one family. RPO, the paper's: alpha=1. DPO: alpha=0. Supervised training on the chosen
    sides: preference_weight=0. Length-normalized DPO: normalize_length. SimPO: normalize_length, reference off, margin
    above 0, alpha=0.

    Attributes:
      data: a folder made by build_data, the run that made it, or a file of conversations (``.jsonl``, ``.json``,
        ``.parquet``) in one of the layouts of `dfc.data.conversations`.
      objective: ``supervised`` imitates trajectories, ``preference`` learns from pairs.
      epochs: passes over all rows.
      batch_size: trajectories, or pairs, of one update.
      beta: how strongly preferences pull.
      alpha: weight of the likelihood of the chosen side, per token of it.
      preference_weight: weight of the preference itself; at 0 the model before training is not computed, so the drift
        from it is not measured, and `accuracy` and `margin` are of plain log-probabilities.
      normalize_length: rewards are means over the tokens of a side instead of sums.
      reference: whether rewards are relative to the model before training.
      margin: by how much the better side's reward is to be larger.
      max_row_bytes: a row of a file of conversations that takes more is refused, before it is read whole.
    """

    data: str = ""
    objective: Literal["supervised", "preference"] = "supervised"
    epochs: int = 1
    batch_size: int = 32
    beta: float = 0.1
    alpha: float = 1.0
    preference_weight: float = 1.0
    normalize_length: bool = False
    reference: bool = True
    margin: float = 0.0
    max_row_bytes: int = 16 * 2**20


@dataclasses.dataclass(frozen=True)
class EvaluateTasksConfig:
    """How often tasks are solved, by the policies of the run's `policies`.

    Attributes:
      split: whose tasks, for games that have splits.
      first: number of the first task; with the split that was collected from, tasks after those of the collection.
      tasks: per game, from the first one on; 0: all that the split has.
      tasks_of: ends of single games, ``GAME=TASKS`` each: tasks up to that number, also beyond the split, as further
        trials.
      trajectories: of each task.
      temperatures: of sampling; everything is played at each of them.
      min_p: as in `dfc.config.SamplingConfig`.
    """

    split: str = "test"
    first: int = 0
    tasks: int = 0
    tasks_of: tuple[str, ...] = ("bandit=100",)
    trajectories: int = 4
    temperatures: tuple[float, ...] = (0.7,)
    min_p: float = 0.3


@dataclasses.dataclass(frozen=True)
class TaskCurriculumConfig:
    """Rounds of collecting from chosen groups of tasks, building and training; each starts from the one before.

    Attributes:
      rounds: of collecting and training.
      steps: tasks of a round, each of a group that is chosen for it, sampled from the group with replacement.
      tasks_at_once: tasks chosen before the results of the first are known: 1 is the paper's; more are played together.
      strategy: ``ucb``, by the spread of turns, or ``uniform``: every task of every group is as likely.
      arms: what a group is: a ``game``, the ``difficulty`` or the ``category`` of a scenario within a game.
      join_groups: groups that are one, ``NAME=GROUP+GROUP`` each, such as ``codes=wordle+mastermind``.
      c: width of the confidence bound.
      samples: trajectories of each task.
      objective: what each round trains with: ``rpo``, or supervised training before it: ``sft_rpo``.
    """

    rounds: int = 3
    steps: int = 250
    tasks_at_once: int = 1
    strategy: Literal["ucb", "uniform"] = "ucb"
    arms: Literal["game", "difficulty", "category"] = "difficulty"
    join_groups: tuple[str, ...] = ()
    c: float = math.sqrt(2)
    samples: int = 20
    objective: Literal["rpo", "sft_rpo"] = "sft_rpo"


@dataclasses.dataclass(frozen=True)
class PaprikaConfig:
    """All stages of Paprika in one run, each in a run folder of its own inside.

    Attributes:
      stages: which of ``collect``, ``build_data``, ``sft``, ``rpo`` and ``evaluate_tasks``, in this order.
      collected: the run whose trajectories are used where ``collect`` is not among the stages.
      sft_learning_rate: of supervised training; the rest is in `optimizer`.
      rpo_learning_rate: of training on pairs.
      sft_epochs: passes of supervised training.
      rpo_epochs: passes of training on pairs.
    """

    stages: tuple[str, ...] = ("collect", "build_data", "sft", "rpo", "evaluate_tasks")
    collected: str = ""
    sft_learning_rate: float = 1e-6
    rpo_learning_rate: float = 2e-7
    sft_epochs: int = 1
    rpo_epochs: int = 1
