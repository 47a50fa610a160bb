"""How often each program runs in one iteration, at stated lengths.

The compiler knows a program, not a game: how long replies are, how many turns an episode has and how uneven the tail
of a batch is decide the rest. `Lengths` is an assumption and is printed with every time derived from it.
"""

import dataclasses
import math

from dfc.config import DivideFuseConquer


@dataclasses.dataclass(frozen=True)
class Lengths:
    """What an episode is assumed to be.

    Attributes:
      episode: tokens of one seat's context at the end.
      generated_share: share of them the policy samples; the rest is prefilled.
    """

    episode: int
    generated_share: float

    def describe(self) -> str:
        """Returns the assumption in words."""
        return f"{self.episode} tokens per episode, {self.generated_share:.0%} of them sampled"


@dataclasses.dataclass(frozen=True)
class Runs:
    """Runs of each program in one iteration, all rows busy until the last episode ends.

    Attributes:
      episodes: of the iteration.
      decode: calls that sample in every row, each for all its steps.
      prefill: calls that only prefill, in every row.
      micro_batches: forward and backward passes.
      updates: optimizer steps; the weights for decoding are renewed after the last one.
    """

    episodes: int
    decode: int
    prefill: int
    micro_batches: int
    updates: int


def default_lengths(config: DivideFuseConquer) -> Lengths:
    """Returns half of the longest context, half of it sampled."""
    return Lengths(max(1, config.rollout.max_length // 2), 0.5)


def _episodes(config: DivideFuseConquer) -> int:
    method = config
    return max(1, len(config.games)) * method.seeds_per_game * method.trajectories_per_seed


def micro_batches(config: DivideFuseConquer, lengths: Lengths) -> int:
    """Returns the forward and backward passes of one iteration."""
    rows = math.ceil(_episodes(config) * lengths.episode / config.batch.row_length)
    return math.ceil(rows / config.batch.micro_batch_rows)


def runs(config: DivideFuseConquer, lengths: Lengths, *, rows: int, steps: int, width: int) -> Runs:
    """Counts one iteration of divide_fuse_conquer; one seat per episode, no episode dropped.

    Args:
      config: of the run.
      lengths: of an episode.
      rows: conversations computed in one call, over all devices.
      steps: tokens a row samples in one call.
      width: tokens a row prefills in one call.
    """
    episodes = _episodes(config)
    waves = episodes / rows
    generated = lengths.episode * lengths.generated_share
    return Runs(
        episodes=episodes,
        decode=math.ceil(waves * generated / steps),
        prefill=math.ceil(waves * (lengths.episode - generated) / width),
        micro_batches=micro_batches(config, lengths),
        updates=config.grpo.updates_per_iteration,
    )
