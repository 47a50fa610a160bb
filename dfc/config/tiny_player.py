"""Configuration of the recipe that makes the bundled model."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from dfc.config.ranges import Count, CountOrZero, EvenCount, Range, Share
from dfc.config.run import GamesRun
from dfc.config.sections import (
    BatchShape,
    CheckpointConfig,
    DivergenceConfig,
    SamplingConfig,
    ScheduledOptimizerConfig,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TinyPlayer(GamesRun, recipe="tiny_player"):
    """How the bundled model is made: tokenizer and weights from transcripts of scripted players.

    Attributes:
      tokens_per_game: tokens of transcripts made per game id, at seven a turn; a quarter as many for each variant.
      transcripts_per_game: transcripts made per game id instead, a quarter as many for a variant or a novice's game; 0:
        `tokens_per_game` holds.
      transcripts_of: other numbers for single games.
      skill: bounds of the skill of a transcript's player: the probability of a turn that the strong scripted player
        acts, and not random legal play; (0, 0) is random legal play only.
      novice: games whose player has a skill between 0 and the lower bound instead.
      tasks: how many tasks of each split, those of the test too, from the first on, the transcripts show of games of
        numbered tasks, all equally often; 0: all of the split that a game's options name.
      pieces: what the tokenizer's pieces are: ``phrases``, the frequent parts of messages around numbers and cells, or
        ``words``, sentences that are always the same, and words, for games of many words.
      illegal_share: share of replies preceded by an illegal try, so that the second answer is learned too.
      steps: optimizer updates.
      transcripts_per_step: transcripts of one update.
      long_every: every n-th update takes transcripts longer than a row, in rows of their own.
      width: model width; heads have 32 dimensions.
      layers: decoder layers.
      feed_forward: hidden size of the feed-forward part.
      vocabulary: largest number of pieces.
      optimizer: how weights follow gradients.
      batch: static shapes of an update.
      training: when an update is refused.
      evaluation_games: per game id against a random legal player, at the end.
      sampling: how tokens are sampled in these.
      checkpoint: how the run survives a stop.
    """

    shorter: ClassVar[tuple[str, ...]] = ("steps", "transcripts_per_step")

    tokens_per_game: Count = 250_000
    transcripts_per_game: CountOrZero = 0
    transcripts_of: Mapping[str, Count] = dataclasses.field(default_factory=dict)
    skill: tuple[Share, ...] = (0.0, 0.0)
    novice: tuple[str, ...] = ()
    tasks: CountOrZero = 0
    pieces: Literal["phrases", "words"] = "phrases"
    illegal_share: Share = 0.05
    steps: Count = 5000
    transcripts_per_step: Count = 48
    long_every: Count = 10
    width: Annotated[int, Range(32, 2**16)] = 96
    layers: Annotated[int, Range(1, 1000)] = 3
    feed_forward: Annotated[int, Range(1, 2**20)] = 256
    # The 256 bytes and an end mark, so that every text can be written.
    vocabulary: Annotated[int, Range(257, 2**20)] = 1024
    optimizer: ScheduledOptimizerConfig = ScheduledOptimizerConfig()
    batch: BatchShape = BatchShape()
    training: DivergenceConfig = DivergenceConfig()
    evaluation_games: EvenCount = 200
    sampling: SamplingConfig = SamplingConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
