"""How often each program runs in one iteration, at stated lengths.

The compiler knows a program, not a game: how long replies are, how many turns an episode has and how uneven the tail
of a batch is decide the rest. `Lengths` is an assumption and is printed with every time derived from it.
"""

import dataclasses
import math

from dfc.config import RunConfig


@dataclasses.dataclass(frozen=True)
class Lengths:
    """What an episode is assumed to be.

    Attributes:
      episode: ids of one seat's context at the end.
      drawn: share of them the policy draws; the rest it reads.
    """

    episode: int
    drawn: float

    def describe(self) -> str:
        """Returns the assumption in words."""
        return f"{self.episode} ids per episode, {self.drawn:.0%} of them drawn"


@dataclasses.dataclass(frozen=True)
class Runs:
    """Runs of each program in one iteration, all slots busy until the last episode ends.

    Attributes:
      episodes: of the iteration.
      decode: calls that draw an id in every slot.
      prefill: calls that only read.
      micro_batches: forward and backward passes.
      updates: optimizer steps; the weights for decoding are renewed after the last one.
    """

    episodes: int
    decode: int
    prefill: int
    micro_batches: int
    updates: int


def default_lengths(config: RunConfig) -> Lengths:
    """Returns half of the longest context, half of it drawn."""
    return Lengths(max(1, config.rollout.max_length // 2), 0.5)


def runs(config: RunConfig, lengths: Lengths, prefill: int) -> Runs:
    """Counts one iteration of divide_fuse_conquer; one seat per episode, no episode dropped.

    Args:
      config: of the run.
      lengths: of an episode.
      prefill: ids a slot reads per call.
    """
    method = config.divide_fuse_conquer
    episodes = max(1, len(config.games)) * method.seeds_per_game * method.trajectories_per_seed
    waves = episodes / config.rollout.slots
    drawn = lengths.episode * lengths.drawn
    rows = math.ceil(episodes * lengths.episode / config.batch.row_length)
    return Runs(
        episodes=episodes,
        decode=math.ceil(waves * drawn),
        prefill=math.ceil(waves * (lengths.episode - drawn) / prefill),
        micro_batches=math.ceil(rows / config.batch.micro_batch_rows),
        updates=method.grpo.updates_per_iteration,
    )
