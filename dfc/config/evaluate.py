"""Configuration of evaluations: tournaments, questions with checkable answers, and comparisons by a judge."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from dfc.config.ranges import Count, CountOrZero, Length, Positive, Range, Threads
from dfc.config.run import ModelRunConfig, PlayersRunConfig
from dfc.config.sections import EndpointConfig, MeshConfig, RolloutConfig, SamplingConfig

INSTRUCTIONS = "instructions"
"""What records call the instructions of `PairwiseConfig`, in the place of a name of `EvaluateAnswers.questions`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate(PlayersRunConfig, recipe="evaluate", module="stages.evaluate"):
    """A tournament: every policy alone and against every other one, on the same deals.

    Attributes:
      policies: who plays, each ``NAME=PLAYER`` or ``PLAYER``: ``random_legal``, ``simple``, ``strong``, a folder with
        weights or a run, ``tiny_player``, or ``http://HOST/v1#MODEL``; also as A,B,C.
      mesh: how devices are laid out.
      dtype: the type weights are computed with and kept in.
      sampling: how tokens of models are sampled.
      enable_thinking: passed to the chat templates of models, by name of the policy (or ``simulators``); a policy not
        named has what its run was trained with (`ModelConfig.enable_thinking`), or its template's own default.
      seeds: deals per game; each is played alone, or twice by every pair of policies with seats swapped (paper: 20).
      anchor: the policy rated 0; empty: the mean of all is 0.
      trained: the policy in the place of the paper's Qwen2.5 (DFC-MSRL) in its tables; empty: the first one.
      base: in the place of Qwen2.5; empty: the second one.
      reference: in the place of Claude3.5; empty: the third one.
    """

    shorter: ClassVar[tuple[str, ...]] = ("seeds", "games", "policies", "rollout.max_reply_length")

    policies: tuple[str, ...] = ()
    mesh: MeshConfig = MeshConfig()
    dtype: Literal["float32", "bfloat16"] = "float32"
    sampling: SamplingConfig = SamplingConfig()
    enable_thinking: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    seeds: Count = 20
    anchor: str = ""
    trained: str = ""
    base: str = ""
    reference: str = ""


@dataclasses.dataclass(frozen=True)
class AnswersRolloutConfig:
    """How answers are sampled; each is a conversation of one reply.

    Attributes:
      slots: answers in flight at once.
      rows: of them computed in one call of the device; 0: all.
      max_length: tokens of a question with its answer.
      max_reply_length: tokens of an answer; one that reaches it is cut there.
      decode_steps: tokens sampled per row between two checks by the host, at most.
      sharding: how weights and conversations are split over several devices, as in `PlayerRolloutConfig`.
      prefill_buckets: tokens prefilled per row and call, ascending. Empty: chosen by `max_length`.
    """

    slots: Annotated[int, Range(1, 100_000)] = 64
    rows: CountOrZero = 0
    max_length: Length = 2048
    max_reply_length: Count = 1024
    decode_steps: Count = 32
    sharding: Literal["auto", "training", "tensor", "replicated"] = "auto"
    prefill_buckets: tuple[Annotated[int, Range(1)], ...] = ()


@dataclasses.dataclass(frozen=True)
class CheckingConfig:
    """What the check of one answer may take; beyond it, the answer is wrong.

    Attributes:
      workers: answers checked at once.
      math_seconds: of processor time for comparing a result.
      program_seconds: that a program or its tests may sleep or wait, in wall-clock time; ten times as long is the last
        limit, from their start to their end.
      program_cpu_seconds: of processor time, of all its processes together.
      program_memory: MiB, of all its processes together.
    """

    workers: Threads = 2
    math_seconds: Positive = 5.0
    program_seconds: Positive = 100.0
    program_cpu_seconds: Annotated[int, Range(1, 3600)] = 10
    program_memory: Annotated[int, Range(64, 2**20)] = 512


@dataclasses.dataclass(frozen=True)
class PairwiseConfig:
    """Answers to instructions without a right answer, compared in pairs by a judge; all of it is optional.

    Attributes:
      instructions: a file in AlpacaEval's layout, rows ``{"instruction": ..., "dataset": ...}``; empty: nothing is
        compared.
      outputs: answers that others gave, compared as they are: name -> a file of rows ``{"instruction": ..., "output":
        ...}`` with an answer to every instruction.
      baseline: the name, among `EvaluateAnswers.policies` and `outputs`, that all others are compared with.
      baseline_again: compare the baseline, if it is a policy, with a second answer of its own, too, as the paper does:
        what a win rate is where nothing differs but the seed.
      judge: a chat endpoint, ``http://HOST/v1#MODEL`` (the paper: Llama-4-Maverick).
      endpoint: how it is asked.
    """

    instructions: str = ""
    outputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    baseline: str = ""
    baseline_again: bool = True
    judge: str = ""
    endpoint: EndpointConfig = EndpointConfig()

    @property
    def second_answers(self) -> str:
        """The name of the baseline's second answers, by which it is compared with itself."""
        return f"{self.baseline} again"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateAnswers(ModelRunConfig, recipe="evaluate_answers", module="stages.evaluate_answers"):
    """How often questions are answered correctly (accuracy and pass@k), and whose answers a judge prefers (win rates).

    Attributes:
      policies: who answers, each ``NAME=PLAYER`` or ``PLAYER``: ``initial`` (the model of the run), a folder with
        weights or a run, or ``tiny_player``; also as A,B,C. All have the shape and tokenizer of `model`.
      questions: files by the names that the tables call them, in the layouts of `dfc.rows.questions`.
      questions_each: the first ones of every file, of instructions, too; 0: all.
      samples: answers to every question, for pass@k.
      sampling: how tokens are sampled (Language Self-Play, section 5.1: temperature 0.01).
      rollout: how answers are sampled.
      checking: what the check of an answer may take.
      pairwise: answers to instructions, compared by a judge.
      max_row_bytes: a row of a file that takes more is refused.
    """

    shorter: ClassVar[tuple[str, ...]] = ("questions_each", "samples", "rollout.max_reply_length")

    policies: tuple[str, ...] = ("initial",)
    questions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    questions_each: CountOrZero = 0
    samples: Count = 1
    sampling: SamplingConfig = SamplingConfig(temperature=0.01)
    rollout: AnswersRolloutConfig = AnswersRolloutConfig()
    checking: CheckingConfig = CheckingConfig()
    pairwise: PairwiseConfig = PairwiseConfig()
    max_row_bytes: Annotated[int, Range(1000, 2**31 - 1)] = 16 * 2**20

    @property
    def engine_rollout(self) -> RolloutConfig:
        """What an engine is made from."""
        return RolloutConfig(**vars(self.rollout))
