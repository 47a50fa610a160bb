"""Configuration of the recipes that make small models by imitation: the bundled one, and that of self-play."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from dfc.config.ranges import Count, CountOrZero, EvenCount, Range, SeveralCount, Share
from dfc.config.run import GamesRunConfig, RunConfig
from dfc.config.sections import (
    BatchShape,
    CheckpointConfig,
    DivergenceConfig,
    SamplingConfig,
    ScheduledOptimizerConfig,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallModel(RunConfig):
    """A run that makes a small model by imitation.

    Attributes:
      steps: optimizer updates.
      transcripts_per_step: transcripts of one update.
      width: model width; heads have 32 dimensions.
      layers: decoder layers.
      feed_forward: hidden size of the feed-forward part.
      vocabulary: largest number of pieces.
      optimizer: how weights follow gradients.
      batch: static shapes of an update.
      training: when an update is refused.
      checkpoint: how the run survives a stop.
    """

    shorter: ClassVar[tuple[str, ...]] = ("steps", "transcripts_per_step")

    steps: Count = 5000
    transcripts_per_step: Count = 48
    width: Annotated[int, Range(32, 2**16)] = 96
    layers: Annotated[int, Range(1, 1000)] = 3
    feed_forward: Annotated[int, Range(1, 2**20)] = 256
    # The 256 bytes and an end mark, so that every text can be written.
    vocabulary: Annotated[int, Range(257, 2**20)] = 1024
    optimizer: ScheduledOptimizerConfig = ScheduledOptimizerConfig()
    batch: BatchShape = BatchShape()
    training: DivergenceConfig = DivergenceConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TinyPlayer(SmallModel, GamesRunConfig, recipe="tiny_player", module="tools.small_models.tiny_player"):
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
      long_every: every n-th update takes transcripts longer than a row, in rows of their own.
      evaluation_games: per game id against a random legal player, at the end.
      sampling: how tokens are sampled in these.
    """

    tokens_per_game: Count = 250_000
    transcripts_per_game: CountOrZero = 0
    transcripts_of: Mapping[str, Count] = dataclasses.field(default_factory=dict)
    skill: tuple[Share, ...] = (0.0, 0.0)
    novice: tuple[str, ...] = ()
    tasks: CountOrZero = 0
    pieces: Literal["phrases", "words"] = "phrases"
    illegal_share: Share = 0.05
    long_every: Count = 10
    evaluation_games: EvenCount = 200
    sampling: SamplingConfig = SamplingConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfPlayBase(SmallModel, recipe="self_play_base", module="tools.small_models.self_play_base"):
    """How a small model is made that Language Self-Play can start from: Challenger, Solver of mixed skill, judge.

    The aim is a greedy accuracy between `accuracy_aim` and a share of live queries of `live_aim` or more in every
    family. Where it is missed, the model is made again, as `dfc.tools.small_models.self_play_base` says.

    Attributes:
      families: what queries are of, by name (`dfc.methods.language_self_play.families`).
      skill: the Solver's probability of the right rule at the lowest and at the highest difficulty; else it follows the
        family's wrong one.
      rules_first: share of the updates, from the first on, that show the Solver alone, always following the right
        rule: it has to be learned before it can be known and seldom used.
      broken: share of queries that do not keep their template, of the Challenger's and the Solver's; the judge is shown
        more of them (`dfc.tools.small_models.self_play_roles`).
      challenger_prompt: what the Challenger is asked, with ``{template}`` and, if wanted, ``{task}``.
      judge_prompt: what the judge is asked, with ``{instruction}`` and ``{response}``.
      shares: of Challenger, Solver and judge among transcripts, in this order; their sum is 1.
      max_query_length: tokens of a query that is sampled in the evaluation.
      max_answer_length: tokens of an answer.
      max_judgement_length: tokens of a judge's reply.
      evaluation_queries: of all families together; the Challenger writes as many and the judge rates as many.
      evaluation_answers: sampled to each query, to see whether it is live.
      accuracy_aim: bounds of the greedy accuracy in every family.
      live_aim: least share of live queries in every family.
      attempts: models made, at most, until the aim is met.
    """

    families: tuple[str, ...] = ("sort_digits", "reverse_letters", "add_digits", "count_letter", "shift_letters")
    skill: tuple[Share, ...] = (0.85, 0.08)
    rules_first: Share = 0.0
    broken: Share = 0.06
    challenger_prompt: str = "Write: {template}"
    judge_prompt: str = "Rate: {instruction} -> {response}"
    shares: tuple[Share, ...] = (0.15, 0.6, 0.25)
    max_query_length: Count = 24
    max_answer_length: Count = 12
    max_judgement_length: Count = 16
    evaluation_queries: Count = 1000
    evaluation_answers: SeveralCount = 8
    accuracy_aim: tuple[Share, ...] = (0.3, 0.6)
    live_aim: Share = 0.5
    attempts: Count = 3
