"""A method that learns from games, as plain functions, and what they see of an iteration.

`dfc.training.rl.grpo` is one; another replaces some of its functions: ``dataclasses.replace(rl.grpo(config), ...)``.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dfc import multihost, packing
from dfc.config import RlRunConfig
from dfc.episodes import Episode
from dfc.errors import ConfigError, TrainingError
from dfc.games.rng import derive_seed
from dfc.packing import Segment, segment
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.samples import Sample
from dfc.training.games_run import GamesRun, Memory, State
from dfc.training.run import Updated
from dfc.training.trainer import LossFunction

Shares = list[list[Segment]]
"""What every optimizer update of an iteration trains on."""


@dataclasses.dataclass(frozen=True)
class Iteration:
    """An iteration that is under way, as the functions of a method see it.

    Attributes:
      run: what is open: configuration, players, trainer.
      state: the policy to begin with, its win rates; changed at the iteration's end only.
      stage: a name, in records and seeds.
      games: those that are played.
      memory: what the method keeps; a copy, which becomes the run's at the end, whether updates are kept or not.
      surely_kept: whether what updates make is kept in any case, so that they may take the memory of what they begin
        with.
    """

    run: GamesRun
    state: State
    stage: str
    games: Sequence[str]
    memory: Memory
    surely_kept: bool = False

    @property
    def config(self) -> RlRunConfig:
        """The configuration of the run."""
        return self.run.config

    def seed(self, purpose: str) -> int:
        """Returns the seed of a purpose, of this iteration alone."""
        return derive_seed(purpose, self.config.seed, self.stage, self.state.iteration)

    def logprobs(self, samples: Sequence[Sample], name: str = "") -> list[np.ndarray]:
        """Returns the trainer's log-probabilities under a policy, float32 [tokens], 0 where not sampled.

        The name says under which one, where several are trained; the first by default.
        """
        base_params = None if self.run.lora is None else self.run.reference_params
        trainer, policy = self.run.trainer, self.run.one(self.state.best, name)
        return self._scored(
            samples, lambda some, stop: trainer.logprobs(policy, some, base_params=base_params, check_stop=stop)
        )

    def reference_logprobs(self, samples: Sequence[Sample]) -> list[np.ndarray]:
        """Returns the same under the initial policy; the method has `asks_reference`."""
        trainer, reference_params = self.run.trainer, self.run.reference_params
        if reference_params is None:
            raise TrainingError(
                "this method reads log-probabilities of the reference: make it with asks_reference=True"
            )
        return self._scored(
            samples, lambda some, stop: trainer.reference_logprobs(reference_params, some, check_stop=stop)
        )

    def _scored(self, samples: Sequence[Sample], score: Callable[..., list[jax.Array]]) -> list[np.ndarray]:
        shape, halves = self.config.batch, self.run.trainer.halves
        found = packing.scored(
            [segment(sample, 0.0) for sample in samples],
            lambda some: [multihost.to_host(x) for x in score(some, self.run.stop.check_stop)],
            shape.row_length,
            shape.micro_batch_rows,
            halves,
        )
        return [np.pad(one, (0, len(sample.mask) - len(one))) for one, sample in zip(found, samples, strict=True)]


@dataclasses.dataclass(frozen=True)
class Played:
    """The games of an iteration.

    Attributes:
      episodes: all that were played, each once.
      trained: those that are learned from, one for each that was planned.
      sources: of each of these its number in `episodes`.
      notes: of each of `episodes`, what its record says beside.
      groups: how many groups each game had.
      opponent: its name in records.
      metrics: of the iteration.
    """

    episodes: list[Episode]
    trained: list[Episode]
    sources: list[int]
    notes: list[dict[str, Any]]
    groups: dict[str, int]
    opponent: str
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether an iteration's updates are kept.

    Attributes:
      kept: whether they are.
      win_rates: of the policy that was judged, by game.
      episodes: the games that it was judged by, of which none is one of `Played.episodes`.
    """

    kept: bool
    win_rates: dict[str, float]
    episodes: Sequence[Episode] = ()

    @property
    def win_rate(self) -> float:
        """The mean over games."""
        return sum(self.win_rates.values()) / len(self.win_rates)


@dataclasses.dataclass(frozen=True)
class Method:
    """A method that learns from games, as plain functions; each takes the iteration and what came before it.

    Attributes:
      loss: as the trainer takes it.
      play: returns the games of an iteration.
      reward: returns a reward of each game: a number, or, if `reads_turns`, one for every turn.
      advantages: returns what each update trains on, of episodes and their rewards; an update without anything is left
        out.
      update: makes the updates.
      accept: decides whether they are kept.
      policies: names of the policies that are trained, where they are several: `State.best` then has a tree of each,
        the first one plays the matches, and `play`, `advantages` and `update` are the method's own; no update may
        take the memory of the policies.
      refill: plays so many further groups of each game in a round, from 1 (`RlRunConfig.refill`), by the policy and
        against the opponent of `play`, so that one with a `play` of its own has its own here too; None: the method has
        no use for groups with spread, and refuses the setting.
      reads_reference: whether the loss compares with the initial policy.
      asks_reference: whether a function asks for `Iteration.reference_logprobs`.
      reads_turns: whether `advantages` knows what to do with rewards of turns.
    """

    loss: LossFunction
    play: Callable[[Iteration], Played]
    reward: Callable[[Iteration, Sequence[Episode]], Sequence[Any]]
    advantages: Callable[[Iteration, Sequence[Episode], Sequence[Any]], Any]
    update: Callable[[Iteration, Any], Updated]
    accept: Callable[[Iteration, Played, Updated], Verdict]
    policies: tuple[str, ...] = ()
    refill: Callable[[Iteration, Mapping[str, int], int], Played] | None = None
    reads_reference: bool = False
    asks_reference: bool = False
    reads_turns: bool = False

    def open(self, config: RlRunConfig, folder: RunFolder, stop: Stop) -> GamesRun:
        """Returns what is open while a run of the method trains (`GamesRun.open`).

        Raises:
          ConfigError: the configuration asks for `refill`, which the method does not have.
        """
        if config.refill and self.refill is None:
            raise ConfigError([f"refill={config.refill}: must be 0, as this method plays no further groups"])
        return GamesRun.open(
            config,
            folder,
            stop,
            self.loss,
            reads_reference=self.reads_reference,
            asks_reference=self.asks_reference,
            policies=self.policies,
        )
