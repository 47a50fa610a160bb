"""Configuration of Language Self-Play (arXiv 2509.07414): one model writes queries and answers them.

Defaults that decide how long a run takes suit a small model on two CPU cores. What the paper states (section 5,
appendix C) stands in configs/lsp_published.py; a field whose value the paper does not state says "ours".
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from dfc.config.evaluate import CheckingConfig
from dfc.config.ranges import Count, CountOrZero, Length, NotNegative, Positive, Range, SeveralCount
from dfc.config.run import TrainingRunConfig
from dfc.config.sections import AdapterConfig, BatchConfig, OptimizerConfig, SamplingConfig


@dataclasses.dataclass(frozen=True)
class QueryTask:
    """What queries are to be about, and their form.

    Attributes:
      task: what the task is called in the Challenger's prompt; empty: left to the Challenger.
      template: the form of a query, with something in braces where the Challenger's own text goes, such as ``Sort the
        digits {digits}.``; empty: any form.
      weight: queries of several tasks come in these proportions.
    """

    task: str = ""
    template: str = ""
    weight: Positive = 1.0


@dataclasses.dataclass(frozen=True)
class ChallengerConfig:
    """How the Challenger learns and how its queries are used.

    Attributes:
      coefficient: alpha_Ch, the weight of its loss relative to the Solver's (ours).
      prompt: a custom prompt, with ``{task}`` and ``{template}`` where they go, an empty text for what a task
        has not; empty: ours, the paper's Box 1 in other words. Tags in brackets directly around ``{template}`` are what
        a query must not hold.
      bad_queries: the reward of the Challenger for a query that is empty, cut, not of its template, an echo of the
        prompt, a duplicate, or has the prompt's tags in it (`dfc.methods.language_self_play.hygiene`): ``worst``, less
        than every usable query of the iteration, by their spread and by a quarter of the range of rewards at least
        (`dfc.methods.language_self_play.penalty`), and it is not answered; ``as_is``, what it earns (the paper).
      unsolved_queries: its reward for a query of which no answer has a reward above 0: ``as_is``, what it earns,
        the most there is (the paper); ``worst``, as little as a bad one, or its own reward if that is less still. For
        rewards of two values, 0 and above: the source ``families`` or ``references``, or one format check, by itself;
        or a custom function that returns 0 and 1 only, which is checked.
    """

    coefficient: NotNegative = 1.0
    prompt: str = ""
    bad_queries: Literal["worst", "as_is"] = "worst"
    unsolved_queries: Literal["as_is", "worst"] = "as_is"


@dataclasses.dataclass(frozen=True)
class SelfRewardConfig:
    """The marks from 0 to 7 that the model before training gives queries and answers (method ``lsp`` only).

    Attributes:
      weight: w of both rewards, R + w R_Q and -V + w V_Q; 0 asks no judge. Beside rewards in {0, 1} begin with 1/7
        (ours: 1, as the paper seems to have it).
      prompt: a custom prompt, with ``{instruction}`` and ``{response}`` where they go; empty: ours, the paper's
        Box 3 in other words.
      sampling: how its tokens are sampled, at a temperature above 0, as it is asked again where it gave no mark (ours).
    """

    weight: NotNegative = 1.0
    prompt: str = ""
    sampling: SamplingConfig = SamplingConfig()


@dataclasses.dataclass(frozen=True)
class PreferenceRewardConfig:
    """A model of preferences that scores answers (`dfc.scoring.preference_model`).

    Attributes:
      path: its folder, or ORG/NAME of the Hub (the paper: Skywork/Skywork-Reward-V2-Llama-3.2-3B).
      dtype: of its weights and of what it computes.
      row_length: tokens of a row; a longer conversation cannot be scored.
      rows: computed in one call; a multiple of the mesh's data times fsdp devices.
    """

    path: str = ""
    dtype: Literal["float32", "bfloat16"] = "float32"
    row_length: Length = 2048
    rows: Count = 8


@dataclasses.dataclass(frozen=True)
class AnswerRewardConfig:
    """R(q, a), the reward of an answer: a sum over sources.

    Attributes:
      sources: source -> its weight in the sum; empty: ``function`` if one is named, else ``families``, of weight 1. An
        answer that one of them cannot score is excluded from all means and losses. ``families``: 1 for the right answer
        to a query of a family whose truth follows from the query (`dfc.methods.language_self_play.families`), else 0.
        ``function``: a custom one. ``preference``: the score of a model of preferences (the paper). ``formats``: the
          share of format checks
        that the answer fulfils. ``references``, with method ``data`` only: 1 for the result, or for a program that
        passes the tests, of the question in the file `data`.
      function: a custom function, ``FILE.py:NAME`` or ``module:NAME``: it takes a list of queries and a list of
        their answers and returns a number for each, NaN where it has none.
      families: those that count, by name; empty: all.
      preference: the model of preferences.
      formats: format checks, objects such as ``{'kind': 'words', 'at_most': 50}`` (`dfc.scoring.formats`).
      checking: what comparing one answer with its reference may take.
    """

    sources: Mapping[str, Positive] = dataclasses.field(default_factory=dict)
    function: str = ""
    families: tuple[str, ...] = ()
    preference: PreferenceRewardConfig = PreferenceRewardConfig()
    formats: tuple[Mapping[str, Any], ...] = ()
    checking: CheckingConfig = CheckingConfig()

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of every source that is part of the sum."""
        return self.sources or {"function" if self.function else "families": 1.0}


@dataclasses.dataclass(frozen=True)
class SelfPlayRolloutConfig:
    """How queries, answers and marks are sampled.

    Attributes:
      slots: conversations at once.
      rows: conversations computed in one call of the device; 0: as many as slots.
      max_length: tokens of a conversation, its prompt and its reply.
      max_query_length: tokens of a query (ours).
      max_answer_length: tokens of an answer (ours).
      max_judgement_length: tokens of a judge's reply (ours).
      decode_steps: tokens sampled per row between two checks by the host, at most.
      prefill_buckets: tokens prefilled per row and call, ascending; empty: chosen by `max_length`.
    """

    slots: Annotated[int, Range(1, 100_000)] = 64
    rows: CountOrZero = 0
    max_length: Length = 1024
    max_query_length: Count = 64
    max_answer_length: Count = 64
    max_judgement_length: Count = 256
    decode_steps: Count = 32
    prefill_buckets: tuple[Annotated[int, Range(1)], ...] = ()


@dataclasses.dataclass(frozen=True)
class WatchConfig:
    """What is monitored while the model plays with itself; see `dfc.methods.language_self_play.watch`.

    Attributes:
      probes: fixed queries whose mean reward is measured, at most; 0: none.
      probe_data: a file of them, in the form of `LanguageSelfPlay.data`, whose first ones count; empty: queries of
        families, in equal numbers of every difficulty, where these are a source of the reward, else none.
      every: iterations between two measurements.
      stop: end the run, saved, at the first alarm.
    """

    probes: CountOrZero = 64
    probe_data: str = ""
    every: Count = 10
    stop: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageSelfPlay(TrainingRunConfig, recipe="language_self_play", module="methods.language_self_play.recipe"):
    """Algorithm 1, and what the paper compares it with.

    Attributes:
      method: ``lsp``; ``lsp_zero``, without self-reward; ``data``, the Solver's loss alone (equation 4) on queries of a
        file, with as many answers: group-relative, but with no standard deviation, clip or mean over tokens, so not
        TRL's GRPO, which the paper compares with; ``untrained_challenger``, whose weights move with the Solver's but
        not by its own loss (not in the paper).
      iterations: of Algorithm 1, T (ours).
      groups_per_iteration: queries of an iteration, N (the paper: 8, if its "queries" are these).
      group_size: answers to each query, G (ours): a group for the advantages.
      kl_coefficient: beta of both losses (the paper: 0.05).
      kl_gradient: how the KL term is differentiated: ``score_function``, which holds the policy near its start, or as
        ``published``, whose expected gradient is zero (`dfc.losses.lsp_solver_loss`).
      sampling: how queries and answers are sampled (ours): at what temperature, above 0, at which log-probabilities are
        taken too, and by which filters: losses compare probabilities among the tokens that these left.
      tasks: name -> what queries are about; empty: the Challenger's choice.
      data: a file of queries for the method ``data``: one a line, or, of JSON lines, under the key ``query``; with the
        source ``references`` a file of questions with their results or tests, in a layout of `dfc.rows.questions`.
      reference: the model that the KL terms compare with and that judges, of the run's shape and tokenizer: a folder,
        or ORG/NAME of the Hub; empty: the run's own model before training. To continue training after self-play
        (method ``data`` with an earlier run's ``policy`` as `model.path`), leave this empty for a new reference, or
        name the earlier run's model to keep the old one (the paper does not say which, and suspects that its KL term
        binds).
      challenger: how it learns.
      self_reward: the marks of method ``lsp``.
      reward: of an answer.
      rollout: how all is sampled.
      batch: static shapes of an update; a row has room for the longest conversation.
      optimizer: how weights follow gradients (the paper: a rate of 3e-6, of 1e-6 for ``data``).
      adapter: low-rank adapters instead of all weights; the reference is then the model without them, not a copy.
      adapter_per_role: Challenger and Solver have an adapter each, beside the same weights; each loss moves its role's
        alone. Off, both roles are one policy (the paper).
      watch: what is monitored.
    """

    page: ClassVar[str] = "methods.language_self_play.page"
    shorter: ClassVar[tuple[str, ...]] = (
        "iterations",
        "groups_per_iteration",
        "group_size",
        "rollout.max_answer_length",
    )

    method: Literal["lsp", "lsp_zero", "data", "untrained_challenger"] = "lsp"
    iterations: CountOrZero = 20
    groups_per_iteration: SeveralCount = 8
    group_size: SeveralCount = 8
    kl_coefficient: NotNegative = 0.05
    kl_gradient: Literal["score_function", "published"] = "score_function"
    sampling: SamplingConfig = SamplingConfig()
    tasks: Mapping[str, QueryTask] = dataclasses.field(default_factory=dict)
    data: str = ""
    reference: str = ""
    challenger: ChallengerConfig = ChallengerConfig()
    self_reward: SelfRewardConfig = SelfRewardConfig()
    reward: AnswerRewardConfig = AnswerRewardConfig()
    rollout: SelfPlayRolloutConfig = SelfPlayRolloutConfig()
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=3e-4)
    batch: BatchConfig = BatchConfig(row_length=1024)
    adapter: AdapterConfig = AdapterConfig()
    adapter_per_role: bool = False
    watch: WatchConfig = WatchConfig()

    @property
    def judges(self) -> bool:
        """Whether a judge is asked."""
        return self.method == "lsp" and self.self_reward.weight > 0

    @property
    def samples(self) -> int:
        """The policy's samples of an iteration: queries, where it writes them, and answers."""
        return self.groups_per_iteration * (self.group_size + (self.method != "data"))

    @property
    def trains_challenger(self) -> bool:
        """Whether the Challenger's loss is part of an update."""
        return self.method in ("lsp", "lsp_zero") and self.challenger.coefficient > 0
