"""The only schema of a run and the only home of its defaults: a tree of frozen dataclasses.

A configuration file (`configs/*.py`) returns a `RunConfig`; the command line overrides single values
(`--config.optimizer.learning_rate=1e-3`). `dfc.launch` checks the whole tree with `problems` before anything runs.
Defaults are the published values of Divide-Fuse-Conquer (arXiv 2505.16401, sections 3.2 and 4.2) where it states
them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal

from dfc.task_config import (
    BuildDataConfig,
    CollectConfig,
    EvaluateTasksConfig,
    OfflineConfig,
    PaprikaConfig,
    TaskCurriculumConfig,
)

GameOptions = Mapping[str, int | bool | str | tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Which weights to start from.

    Attributes:
      path: a folder in the Hugging Face layout, or ``tiny_player`` for the bundled model.
      dtype: the type weights are computed with and kept in, ``float32`` or ``bfloat16``.
    """

    path: str = "tiny_player"
    dtype: Literal["float32", "bfloat16"] = "float32"


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How an update is computed, memory against speed, and when it is refused.

    Results change by rounding only, but for `max_growth` and `max_update`.

    Attributes:
      scan_layers: compute the layers as one loop over stacked weights: compiled once, and a layer's activations can be
        given up. Off, every layer is its own piece of the program: faster for a few small layers.
      remat: what is kept of each layer for the backward pass: ``none`` everything, ``dots`` the results of matrix
        products, ``layer`` its input only, ``offload`` the same in host memory.
      attention: the program for whole sequences; ``auto`` takes cuDNN's on NVIDIA, splash on TPUs, XLA's elsewhere.
      master_dtype: the type the trained weights are kept and updated in; ``float32`` beside a bfloat16 model keeps
        steps that bfloat16 would round away, for 2 more bytes per weight while training.
      max_growth: an update that leaves the largest absolute value of a trained array above this times what it was
        before training, or above this where that was below 1, is refused and ends the run: training has diverged.
      max_update: the same for an update that changes the weights by more than this times their own norm, Euclidean over
        all trained arrays together; weights of a root mean square below 0.01 count as of 0.01. Adam's updates have
        about the norm of the learning rate times the root of the number of weights: ordinary training stays below 0.1.
    """

    scan_layers: bool = True
    remat: Literal["none", "dots", "layer", "offload"] = "layer"
    attention: Literal["auto", "xla", "cudnn", "splash"] = "auto"
    master_dtype: Literal["float32", "bfloat16"] = "float32"
    max_growth: float = 10.0
    max_update: float = 0.5


@dataclasses.dataclass(frozen=True)
class AdapterConfig:
    """Low-rank adapters (LoRA) instead of all weights; the model's own weights stay as they are.

    Attributes:
      rank: columns of the first factor; 0 trains all weights.
      alpha: an adapter's output counts alpha / rank.
      dropout: share of an adapter's inputs dropped in training.
      targets: the projections that get one: those of attention (``qkvo``) or those of the feed-forward too.
      base: how the weights beside adapters are stored: ``full``, or 4 bits and a scale per 64 of them (``nf4``, QLoRA).
    """

    rank: int = 0
    alpha: float = 32.0
    dropout: float = 0.0
    targets: Literal["qkvo", "all_linear"] = "all_linear"
    base: Literal["full", "nf4"] = "full"


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """How devices are laid out; the product of the three must be the number of devices (-1: whatever remains).

    Attributes:
      data: copies of the model that share a batch.
      fsdp: devices over which weights and a batch are split.
      tensor: devices over which heads and feed-forward columns are split.
    """

    data: int = 1
    fsdp: int = -1
    tensor: int = 1


@dataclasses.dataclass(frozen=True)
class SamplingConfig:
    """How one token is sampled; the filters apply in the order temperature, top-k, top-p, min-p.

    Attributes:
      temperature: logits are divided by it; 0 takes the most probable token.
      top_k: keep the k most probable tokens; 0 keeps all.
      top_p: keep the smallest set of most probable tokens whose probabilities sum to at least this; 1 keeps all.
      min_p: keep tokens at least this fraction as probable as the most probable one; 0 keeps all.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """How games are played.

    Attributes:
      slots: games in flight at once, per worker; a game between two models keeps two conversations in the cache.
      rows: conversations computed in one call of the device; 0: as many as games. Fewer than are in flight keep every
        call full while the games of the others move on.
      workers: threads that play side by side, each with its own slots; on a CPU one per core, otherwise 1.
      mix_games: whether different games are in flight together; off, one game id is played after another, so that
        short conversations do not share calls, which read as much for all, with long ones; a list of games that fits
        into the slots is always mixed.
      max_length: tokens of one episode's context, all turns of one seat together. A seat whose context has no room left
        has overrun it: the game ends as a loss of that seat (`RewardConfig.overrun`) and is no result of the other one.
      max_prompt_length: tokens of one input, the conversation of a player's seat so far with the new observation; a
        longer one is an overrun like a full context. 0: only max_length limits it.
      max_reply_length: tokens of one reply; a reply that reaches it is cut there.
      simulator_reply_length: tokens of one reply of a policy that is a simulator (Paprika, appendix E).
      max_actions: legal actions of all players together (the paper: 120 steps); 0: the game's own longest play. A game
        that is longer is stopped there: whoever is ahead wins where the game has a measure of it (`Game.standing`,
        chips in poker), and otherwise it is no result. Illegal and unreadable replies are bounded by the allowances.
      decode_steps: tokens sampled per row between two looks of the host, at most.
      prefill_buckets: tokens prefilled per row and call, ascending; each is a compiled program for every number of rows
        and length. Empty: chosen by `max_length`.
      cache_buckets: cache lengths that calls read, ascending; max_length is always the last; a program each. Empty:
        chosen.
      legal_only: restrict replies to the game's legal actions, where it can list them (512 at most). Every one must
        fit into `max_reply_length`.
      stop: a reply ends with the first token whose text contains one of these strings, or with an end-of-turn token.
      prompt: ``bare_action`` shows the game's text as it is; ``think`` adds our wording of the paper's think-then-act
        instructions (its Table 4) before it, and counts a model's reply as malformed unless it is one block of
        thought, ``<think>...</think>``, and one action after it with nothing else.
      think_language: with ``think``, the language of thought, such as ``Chinese`` (the paper's); empty: not said.
      sampling: how tokens are sampled.
    """

    slots: int = 64
    rows: int = 0
    workers: int = 1
    mix_games: bool = True
    max_length: int = 8192
    max_prompt_length: int = 0
    max_reply_length: int = 4096
    simulator_reply_length: int = 1024
    max_actions: int = 0
    decode_steps: int = 32
    prefill_buckets: tuple[int, ...] = ()
    cache_buckets: tuple[int, ...] = ()
    legal_only: bool = False
    stop: tuple[str, ...] = ()
    prompt: Literal["bare_action", "think"] = "bare_action"
    think_language: str = ""
    sampling: SamplingConfig = SamplingConfig()


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Adam with decoupled weight decay, linear warm-up, global-norm clipping.

    Attributes:
      learning_rate: after warm-up.
      warmup_steps: updates until the learning rate is reached; counted again in every stage of divide_fuse_conquer.
      warmup_ratio: the same as a share of the run's updates, rounded up; of the two, the larger number holds.
      schedule: ``constant``, or ``cosine`` to zero over the run's updates.
      b1: decay of the first moment.
      b2: decay of the second moment.
      weight_decay: decoupled.
      clip_norm: gradients of a larger global norm are scaled down to it.
    """

    learning_rate: float = 2e-6
    warmup_steps: int = 0
    warmup_ratio: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    b1: float = 0.9
    b2: float = 0.95
    weight_decay: float = 0.0
    clip_norm: float = 1.0


@dataclasses.dataclass(frozen=True)
class BatchConfig:
    """Static shapes of an update: rows of `row_length` tokens, episodes packed into them.

    Attributes:
      row_length: tokens of one row; the longest episode must fit.
      micro_batch_rows: rows of one forward and backward pass; gradients of several are added up.
      workers: micro-batches computed side by side; on a CPU one per core, otherwise 1.
    """

    row_length: int = 8192
    micro_batch_rows: int = 8
    workers: int = 1


@dataclasses.dataclass(frozen=True)
class RewardConfig:
    """Rewards of Table 1, with what a reply costs that is answered with another try.

    Attributes:
      format: whether an invalid end costs `invalid`; off, it counts as a loss.
      invalid: reward of a game this seat ended by an invalid reply.
      hasty_action_penalty: whether a win is worth 1 / steps instead of 1.
      illegal_try: taken off for every illegal and for every malformed reply that was answered with another try (not
        in the paper, where such a try is free and therefore exploited).
      overrun: reward of a game this seat ended by filling its own context, in place of an outcome; at most 0. By
        default a loss, so that a game that goes badly is not talked to its end; above `invalid`, as a loss is.
    """

    format: bool = True
    invalid: float = -2.0
    hasty_action_penalty: bool = True
    illegal_try: float = 0.25
    overrun: float = -1.0


@dataclasses.dataclass(frozen=True)
class GroupingConfig:
    """The divide step: groups by (start kind) x (can the base model win at all).

    Attributes:
      trials: games of the base model per game id; against itself where there are two seats.
      winnable_above: a game counts as winnable if the measured win rate is above this (the paper: 0).
      order: the kinds of groups, first to last; groups are fused in this order.
      groups: the groups by hand, in their order, such as (("TicTacToe-v0", "Nim-v0"), ("LiarsDice-v0",)); empty:
        measured. The base model's games are played and printed in any case.
    """

    trials: int = 100
    winnable_above: float = 0.0
    order: tuple[str, ...] = ("fixed_unwinnable", "fixed_winnable", "random_unwinnable", "random_winnable")
    groups: tuple[tuple[str, ...], ...] = ()


@dataclasses.dataclass(frozen=True)
class FusionConfig:
    """How policies become one (section 3.2.2); see `dfc.fusion` for the formulas.

    Attributes:
      method: ``average`` of the parameters (the paper's), or of what training changed: ``task_arithmetic``, ``ties``.
      weight: of the policy that comes in; the policy so far has 1 - weight (the paper: 1/2). All weigh alike `at_once`.
      at_once: fuse all group policies at once and conquer all games in one stage, instead of group by group.
      scale: task_arithmetic and ties: the fused change counts this much.
      density: ties: the share of each change that is kept, largest first.
    """

    method: Literal["average", "task_arithmetic", "ties"] = "average"
    weight: float = 0.5
    at_once: bool = False
    scale: float = 1.0
    density: float = 0.2


@dataclasses.dataclass(frozen=True)
class OpponentPoolConfig:
    """Past policies as opponents: ``opponent="pool"``; the initial policy is always one of them.

    Attributes:
      size: policies kept beside the initial one; the oldest makes room.
      every: iterations after which the policy joins; a stage begins with the initial policy alone.
      choice: how an iteration's opponent is sampled, w the policy's win rate when they last met (1/2 before):
        ``hardest`` in proportion to (1 - w)^2, ``even`` to w (1 - w), ``uniform``.
    """

    size: int = 4
    every: int = 10
    choice: Literal["hardest", "even", "uniform"] = "hardest"


@dataclasses.dataclass(frozen=True)
class MixedPriorityConfig:
    """Mixed priority sampling: how many seeds each game gets (section 3.2.3).

    Attributes:
      enabled: off, every game gets the same number.
      a: weight of the linear-capped priority.
      b: weight of the variance priority.
      floor: epsilon_1, the least linear priority.
    """

    enabled: bool = True
    a: float = 0.2
    b: float = 0.8
    floor: float = 0.1


@dataclasses.dataclass(frozen=True)
class AcceptanceConfig:
    """Which updates are kept (Algorithm 2, lines 19 to 22).

    Attributes:
      rule: ``previous``: the mean win rate is at least that of the iteration before; ``best``: of the best so far;
        ``always``: every update is kept, nothing is measured, and the win rates of the training games stand in, those
        against `opponent` (against itself near 1/2 whatever was learned, so that mixed priority has nothing to go by).
      games: fresh games per game id against the initial policy that measure it, seats alternating.
      tolerance: a win rate lower by at most this still passes (the paper: 0).
    """

    rule: Literal["previous", "best", "always"] = "previous"
    games: int = 20
    tolerance: float = 0.0


@dataclasses.dataclass(frozen=True)
class GrpoConfig:
    """Group relative policy optimization.

    Attributes:
      clip_ratio: the likelihood ratio counts within 1 +- this.
      clip_ratio_high: above 1 it counts within this instead; 0: the same as below.
      ratio: of each action token (``token``), or of all of an episode's together (``sequence``, GSPO).
      baseline: what a reward is compared with: ``group``, the mean of its group (the paper's); ``leave_one_out``, the
        mean of the others; ``role``, the mean of all episodes of the iteration in the same game and seat.
      kl_coefficient: weight of the KL divergence to the initial policy.
      normalize_std: divide advantages by the standard deviation of the group, or of the role.
      unit: average over all action tokens (``token``) or first within each episode (``sequence``).
      updates_per_iteration: optimizer steps on one iteration's episodes, each on its share of the groups.
      importance_cap: correct for the gap between the sampler's probabilities and the trainer's of the same weights:
        each action token's policy gradient is weighted by their ratio, trainer over sampler, and by no more than this.
        0 turns it off.
    """

    clip_ratio: float = 0.1
    clip_ratio_high: float = 0.0
    ratio: Literal["token", "sequence"] = "token"
    baseline: Literal["group", "leave_one_out", "role"] = "group"
    kl_coefficient: float = 0.1
    normalize_std: bool = True
    unit: Literal["token", "sequence"] = "token"
    updates_per_iteration: int = 1
    importance_cap: float = 0.0


@dataclasses.dataclass(frozen=True)
class DivideFuseConquerConfig:
    """Algorithms 1 and 2, and what the paper compares them with.

    Attributes:
      method: ``divide_fuse_conquer``; ``naive_multi``: one stage on all games (the paper's Naive-MSRL);
        ``naive_single``: every game a policy of its own (Naive-SSRL); ``imitate_wins``: supervised training on the
        initial policy's won games (SFT).
      divide_iterations: iterations of each group's own policy.
      conquer_iterations: iterations after each fuse; of the one stage, or of each game's, in the other methods.
      seeds_per_game: rollout seeds per game and iteration on average (the paper's S).
      trajectories_per_seed: episodes of one seed (the paper's r): a group for the advantages.
      opponent: who sits in the other seat of training games: the ``initial`` policy, the best policy so far
        ``itself``, a ``pool`` of past ones, a scripted player (``random_legal``, ``simple``, ``strong``) or a
        chat endpoint (``http://HOST/v1#MODEL``).
      key_variable: the environment variable with the endpoint's key.
      train_both_seats: with ``itself``, learn from what both seats did: twice the episodes from as many games.
      randomize_seeds: fresh seeds every iteration; off, the same ones each time.
      tasks: sample training deals from 0 to tasks - 1 only, so that later ones are new to the policy; 0: from all.
      half_negative: drop half of the negative episodes at random.
      epsilon: probability that an action of the policy is replaced by a random legal one; 0 turns it off.
      grouping: the divide step.
      fusion: the fuse step.
      pool: opponents from the past.
      mixed_priority: how seeds are shared out.
      acceptance: which updates are kept.
      grpo: the update.
      reward: what an episode is worth.
    """

    divide_iterations: int = 100
    conquer_iterations: int = 100
    seeds_per_game: int = 50
    trajectories_per_seed: int = 8
    method: Literal["divide_fuse_conquer", "naive_multi", "naive_single", "imitate_wins"] = "divide_fuse_conquer"
    opponent: str = "itself"
    key_variable: str = ""
    train_both_seats: bool = False
    randomize_seeds: bool = True
    tasks: int = 0
    half_negative: bool = True
    epsilon: float = 0.05
    grouping: GroupingConfig = GroupingConfig()
    fusion: FusionConfig = FusionConfig()
    pool: OpponentPoolConfig = OpponentPoolConfig()
    mixed_priority: MixedPriorityConfig = MixedPriorityConfig()
    acceptance: AcceptanceConfig = AcceptanceConfig()
    grpo: GrpoConfig = GrpoConfig()
    reward: RewardConfig = RewardConfig()


@dataclasses.dataclass(frozen=True)
class TinyPlayerConfig:
    """How the bundled model is made: tokenizer and weights from transcripts of scripted players.

    Attributes:
      tokens_per_game: tokens of transcripts made per game id, at seven a turn; a quarter as many for each variant.
      transcripts_per_game: transcripts made per game id instead, a quarter as many for a variant or a novice's game; 0:
        `tokens_per_game` holds.
      transcripts_of: other numbers for single games, ``GAME=NUMBER`` each.
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
    """

    tokens_per_game: int = 250_000
    transcripts_per_game: int = 0
    transcripts_of: tuple[str, ...] = ()
    skill: tuple[float, ...] = (0.0, 0.0)
    novice: tuple[str, ...] = ()
    tasks: int = 0
    pieces: Literal["phrases", "words"] = "phrases"
    illegal_share: float = 0.05
    steps: int = 5000
    transcripts_per_step: int = 48
    long_every: int = 10
    width: int = 96
    layers: int = 3
    feed_forward: int = 256
    vocabulary: int = 1024


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """The matches at the end of a run.

    Attributes:
      games: per game id and opponent, seats alternating, on seeds no training game used.
      stage_games: per game id after each stage, against the initial policy, for the table of stages.
    """

    games: int = 200
    stage_games: int = 40


@dataclasses.dataclass(frozen=True)
class EndpointSettings:
    """How the chat endpoints of a tournament are asked; see `dfc.players.endpoint_config`.

    Attributes:
      key_variables: environment variables with keys: ``POLICY=VARIABLE`` each.
      prices: money per million tokens: ``POLICY=INPUT/OUTPUT`` each.
      temperature: of their replies.
      max_tokens: tokens of one reply.
      concurrency: requests at once, per endpoint.
      timeout: seconds one attempt may take.
      retries: attempts after the first one.
      cache: folder of replies, for temperature 0; empty: none.
      budget_money: no request is made once this much is spent, per endpoint and start; 0: no limit.
    """

    key_variables: tuple[str, ...] = ()
    prices: tuple[str, ...] = ()
    temperature: float = 1.0
    max_tokens: int = 1024
    concurrency: int = 16
    timeout: float = 120.0
    retries: int = 4
    cache: str = ""
    budget_money: float = 0.0


@dataclasses.dataclass(frozen=True)
class SimulatorConfig:
    """Who plays the simulators of games that have them (Paprika), in every recipe but evaluate.

    Attributes:
      who: ``script``, ``initial`` (the model of the run, greedily), or a chat endpoint (``http://HOST/v1#MODEL``).
      endpoint: how a chat endpoint is asked; its key and price as ``simulators=VARIABLE`` and
        ``simulators=INPUT/OUTPUT``.
    """

    who: str = "script"
    endpoint: EndpointSettings = EndpointSettings(temperature=0.0)


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """Tournaments.

    Attributes:
      seeds: deals per game; each is played alone, or twice by every pair of policies with seats swapped (paper: 20).
      anchor: the policy rated 0; empty: the mean of all is 0.
      trained: the policy in the place of the paper's Qwen2.5 (DFC-MSRL) in its tables; empty: the first one.
      base: in the place of Qwen2.5; empty: the second one.
      reference: in the place of Claude3.5; empty: the third one.
      simulators: who plays them: ``script``, or a policy as in `policies`.
      endpoint: how chat endpoints are asked.
    """

    seeds: int = 20
    anchor: str = ""
    trained: str = ""
    base: str = ""
    reference: str = ""
    simulators: str = "script"
    endpoint: EndpointSettings = EndpointSettings()


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """How a run survives a stop.

    Attributes:
      every: iterations between checkpoints; the end of a stage is always saved.
      keep: how many to keep, 2 at least: the newest is known to be of use only once the next one is saved.
    """

    every: int = 10
    keep: int = 3


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """One run.

    Attributes:
      name: the run folder is ``runs/<name>`` unless ``--workdir`` is given.
      recipe: which file of `dfc.recipes` runs.
      seed: with the rest of the configuration it determines every number of the run, clock readings apart.
      games: game id -> constructor values that differ from the id's defaults.
      divide_fuse_conquer: settings of that recipe.
      tiny_player: settings of that recipe.
      policies: who plays in the recipe evaluate, each ``NAME=WHO`` or ``WHO``: ``random_legal``, ``simple``,
        ``strong``, a folder with weights or a run, ``tiny_player``, or ``http://HOST/v1#MODEL``; A,B,C will do.
      evaluate: settings of that recipe.
      simulators: who plays the games' simulators.
      collect: settings of that recipe.
      build_data: settings of that recipe.
      offline: settings of that recipe.
      evaluate_tasks: settings of that recipe.
      task_curriculum: settings of that recipe.
      paprika: settings of that recipe.
    """

    name: str = "run"
    recipe: Literal[
        "divide_fuse_conquer",
        "tiny_player",
        "evaluate",
        "collect",
        "build_data",
        "offline",
        "evaluate_tasks",
        "task_curriculum",
        "paprika",
    ] = "divide_fuse_conquer"
    seed: int = 0
    games: Mapping[str, GameOptions] = dataclasses.field(default_factory=dict)
    policies: tuple[str, ...] = ()
    model: ModelConfig = ModelConfig()
    mesh: MeshConfig = MeshConfig()
    rollout: RolloutConfig = RolloutConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    batch: BatchConfig = BatchConfig()
    training: TrainingConfig = TrainingConfig()
    adapter: AdapterConfig = AdapterConfig()
    divide_fuse_conquer: DivideFuseConquerConfig = DivideFuseConquerConfig()
    tiny_player: TinyPlayerConfig = TinyPlayerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    simulators: SimulatorConfig = SimulatorConfig()
    collect: CollectConfig = CollectConfig()  # noqa: RUF009 - frozen
    build_data: BuildDataConfig = BuildDataConfig()  # noqa: RUF009 - frozen
    offline: OfflineConfig = OfflineConfig()  # noqa: RUF009 - frozen
    evaluate_tasks: EvaluateTasksConfig = EvaluateTasksConfig()  # noqa: RUF009 - frozen
    task_curriculum: TaskCurriculumConfig = TaskCurriculumConfig()  # noqa: RUF009 - frozen
    paprika: PaprikaConfig = PaprikaConfig()  # noqa: RUF009 - frozen
    checkpoint: CheckpointConfig = CheckpointConfig()
