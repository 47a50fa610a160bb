"""Sections that several recipes have; each says its values, their ranges and their defaults.

Defaults suit the bundled model on two CPU cores.

Where a recipe reads less of a section than others, the section is two classes, one the base of the other, so that no
setting can be named that is not read.
"""

import dataclasses
import math
import struct
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from dfc.config.ranges import (
    Count,
    CountOrZero,
    Length,
    NotNegative,
    Positive,
    Range,
    SeveralCount,
    ShareAboveZero,
    ShareBelowOne,
    Threads,
)
from dfc.errors import ConfigError

GameOptions = Mapping[str, int | bool | str | tuple[int, ...]]
Games = Mapping[str, GameOptions]


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Which weights to start from.

    Attributes:
      path: a folder in the Hugging Face layout, ``tiny_player`` for the bundled model, or ``ORG/NAME`` or
        ``ORG/NAME@REVISION`` of the Hub.
      dtype: the type weights are computed with and kept in, ``float32`` or ``bfloat16``.
      enable_thinking: passed to the chat template, in training and in play; Qwen 3 thinks unless it is false. None: the
        template's own default. A template that does not read it cannot be given it.
    """

    path: str = "tiny_player"
    dtype: Literal["float32", "bfloat16"] = "float32"
    enable_thinking: bool | None = None


@dataclasses.dataclass(frozen=True)
class DivergenceConfig:
    """When an update is refused.

    Attributes:
      max_growth: an update that leaves the largest absolute value of a trained array above this times what it was
        before training, or above this where that was below 1, is refused and ends the run: training has diverged.
      max_update: the same for an update that changes the weights by more than this times their own norm, Euclidean over
        all trained arrays together; weights of a root mean square below 0.01 count as of 0.01. Adam's updates have
        about the norm of the learning rate times the root of the number of weights: ordinary training stays below 0.1.
    """

    max_growth: Annotated[float, Range(1, 1e30, above=True)] = 10.0
    max_update: Annotated[float, Range(0, 1e30, above=True)] = 0.5


@dataclasses.dataclass(frozen=True)
class TrainingConfig(DivergenceConfig):
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
    """

    scan_layers: bool = True
    remat: Literal["none", "dots", "layer", "offload"] = "layer"
    attention: Literal["auto", "xla", "cudnn", "splash"] = "auto"
    master_dtype: Literal["float32", "bfloat16"] = "float32"


@dataclasses.dataclass(frozen=True)
class AdapterConfig:
    """Low-rank adapters (LoRA) instead of all weights; the model's own weights stay as they are.

    Attributes:
      rank: columns of the first factor; 0 trains all weights.
      alpha: an adapter's output counts alpha / rank.
      targets: the projections that get one: those of attention (``qkvo``) or those of the feed-forward too.
      base: how the weights beside adapters are stored: ``full``, or 4 bits and a scale per 64 of them (``nf4``, QLoRA).
    """

    rank: Annotated[int, Range(0, 2**16)] = 0
    alpha: Positive = 32.0
    targets: Literal["qkvo", "all_linear"] = "all_linear"
    base: Literal["full", "nf4"] = "full"


@dataclasses.dataclass(frozen=True)
class RowsAdapterConfig(AdapterConfig):
    """Adapters trained on rows; where games are played with what is trained, dropout would look like a change of it.

    Attributes:
      dropout: share of an adapter's inputs dropped in training.
    """

    dropout: ShareBelowOne = 0.0


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

    def problems(self) -> list[str]:
        """Returns what is wrong with the sizes, whatever the devices."""
        sizes = dataclasses.asdict(self)
        found = [
            f"mesh.{axis}={size}: must be at least 1, or -1 for the devices that remain"
            for axis, size in sizes.items()
            if size < 1 and size != -1
        ]
        open_axes = [axis for axis, size in sizes.items() if size == -1]
        if len(open_axes) > 1:
            found.append(f"mesh.{' and mesh.'.join(open_axes)} are all -1: only one axis can take what remains")
        return found

    def shape(self, devices: int) -> tuple[int, int, int]:
        """Returns how many devices lie along data, fsdp and tensor.

        Raises:
          ConfigError: the sizes are wrong, or do not fit the number of devices.
        """
        if found := self.problems():
            raise ConfigError(found)
        sizes = dataclasses.asdict(self)
        known = math.prod(size for size in sizes.values() if size != -1)
        whole = -1 not in sizes.values()
        if devices % known or (whole and known != devices):
            text = ", ".join(f"mesh.{axis}={size}" for axis, size in sizes.items())
            what = f"the fixed sizes multiply to {known}, which must divide the {devices} devices"
            if whole:
                what = f"the product is {known}, but must be the number of devices, {devices}"
            example = "for example --config.mesh.data=1 --config.mesh.fsdp=-1 --config.mesh.tensor=1"
            raise ConfigError([f"{text}: {what}; {example} (-1 takes what remains)"])
        data, fsdp, tensor = (devices // known if size == -1 else size for size in sizes.values())
        return data, fsdp, tensor


@dataclasses.dataclass(frozen=True)
class SamplingConfig:
    """How one token is sampled: the temperature first, then the filters top-k, top-p and min-p, in this order.

    Attributes:
      top_k: keep the k most probable tokens; 0 keeps all.
      top_p: keep the smallest set of most probable tokens whose probabilities sum to at least this; 1 keeps all.
      min_p: keep tokens at least this fraction as probable as the most probable one; 0 keeps all.
      temperature: logits are divided by it; 0 takes the most probable token.
    """

    top_k: CountOrZero = 0
    top_p: ShareAboveZero = 1.0
    min_p: ShareBelowOne = 0.0
    temperature: NotNegative = 1.0

    @property
    def filtered(self) -> bool:
        """Whether a filter is on, so that a token may have no chance; numbers are those of float32, as sampled with."""
        top_p, min_p = struct.unpack("<2f", struct.pack("<2f", self.top_p, self.min_p))
        return self.top_k > 0 or top_p < 1 or min_p > 0


@dataclasses.dataclass(frozen=True)
class PlayerRolloutConfig:
    """How games are played whose simulators follow their scripts.

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
      max_actions: legal actions of all players together (the paper: 120 steps); 0: the game's own longest play. A game
        that is longer is stopped there: the player ahead wins where the game has a measure of it (`Game.standing`,
        chips in poker), and otherwise it is no result. Illegal and unreadable replies are bounded by the allowances.
      decode_steps: tokens sampled per row between two checks by the host, at most.
      sharding: how weights and conversations are split over several devices while games are played: ``training``, as
        `MeshConfig` says; ``tensor``, a copy of the weights per host, split over its devices by heads;
        ``replicated``, a copy on every device; ``auto`` chooses by what fits (dfc.inference.decoding_mesh).
      prefill_buckets: tokens prefilled per row and call, ascending; each is a compiled program for every number of
        rows. Empty: chosen by `max_length`.
      legal_only: restrict replies to the game's legal actions, where it can list them (512 at most). Every one must
        fit into `max_reply_length`.
      stop: a reply ends with the first token whose text contains one of these strings, or with an end-of-turn token.
      prompt: ``bare_action`` shows the game's text as it is; ``think`` adds our wording of the paper's think-then-act
        instructions (its Table 4) before it, and counts a model's reply as malformed unless it is one block of
        thought, ``<think>...</think>``, and one action after it with nothing else.
      think_language: with ``think``, the language of thought, such as ``Chinese`` (the paper's); empty: not said.
    """

    slots: Annotated[int, Range(1, 100_000)] = 64
    rows: CountOrZero = 0
    workers: Threads = 1
    mix_games: bool = True
    max_length: Length = 512
    max_prompt_length: Annotated[int, Range(0)] = 0
    max_reply_length: Count = 32
    max_actions: Annotated[int, Range(0)] = 0
    decode_steps: Count = 32
    sharding: Literal["auto", "training", "tensor", "replicated"] = "auto"
    prefill_buckets: tuple[Annotated[int, Range(1)], ...] = ()
    legal_only: bool = False
    stop: tuple[str, ...] = ()
    prompt: Literal["bare_action", "think"] = "bare_action"
    think_language: str = ""


@dataclasses.dataclass(frozen=True)
class RolloutConfig(PlayerRolloutConfig):
    """How games are played.

    Attributes:
      simulator_reply_length: tokens of one reply of a policy that is a simulator (Paprika, appendix E).
    """

    simulator_reply_length: Count = 1024


@dataclasses.dataclass(frozen=True)
class OpponentReplyConfig:
    """How a policy replies that plays the other seat; a chat endpoint has settings of its own.

    Attributes:
      max_length: tokens of one reply at most; 0: `rollout.max_reply_length`.
      sampling: how its tokens are sampled, filters too; None: as those of the policy that learns.
    """

    max_length: CountOrZero = 0
    sampling: SamplingConfig | None = None


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Adam with decoupled weight decay, linear warm-up, global-norm clipping.

    Attributes:
      learning_rate: after warm-up.
      warmup_steps: updates until the learning rate is reached; counted again in every stage of divide_fuse_conquer.
      b1: decay of the first moment.
      b2: decay of the second moment.
      weight_decay: decoupled.
      clip_norm: gradients of a larger global norm are scaled down to it.
    """

    learning_rate: Positive = 1e-3
    warmup_steps: CountOrZero = 0
    b1: ShareBelowOne = 0.9
    b2: ShareBelowOne = 0.95
    weight_decay: NotNegative = 0.0
    clip_norm: Positive = 1.0


@dataclasses.dataclass(frozen=True)
class ScheduledOptimizerConfig(OptimizerConfig):
    """The same where the number of updates is known in advance: the learning rate follows it.

    Attributes:
      warmup_ratio: `warmup_steps` as a share of the updates, rounded up; of the two, the larger number holds.
      schedule: after warm-up: ``constant``, or to zero over the updates, as a ``cosine`` or ``linear``.
    """

    warmup_ratio: ShareBelowOne = 0.0
    schedule: Literal["constant", "cosine", "linear"] = "constant"


@dataclasses.dataclass(frozen=True)
class HeldOutChecks:
    """How often the loss on rows that are not trained on is taken, and which checkpoint becomes the policy.

    Attributes:
      every: updates between two checks, or below 1 a share of the run's, rounded up (transformers' `eval_steps`); after
        the last update there is one always.
      keep: which checked policy is the run's: the ``last`` one, the ``best`` (of the lowest loss), or the first one
        ``before_lowest`` whose loss is within `tolerance` of the lowest (`dfc.training.held_out.kept`).
      tolerance: of ``before_lowest`` (Playpen's, arXiv 2504.08590, appendix E.1).
    """

    every: Annotated[float, Range(0, 1e9, above=True)] = 0.2
    keep: Literal["last", "best", "before_lowest"] = "last"
    tolerance: NotNegative = 0.015


@dataclasses.dataclass(frozen=True)
class HeldOutConfig(HeldOutChecks):
    """Checks, and the rows that they take the loss on.

    Attributes:
      data: their file, as that of what is trained on; empty: there are no checks.
    """

    data: str = ""


@dataclasses.dataclass(frozen=True)
class BatchShape:
    """Static shapes of an update: rows of `row_length` tokens, episodes packed into them.

    Attributes:
      row_length: tokens of one row; the longest episode must fit.
      micro_batch_rows: rows of one forward and backward pass at most; gradients of several are added up. The remainder
        of an update goes into halves of it, down to an eighth, and a CPU takes no more at once than 384 tokens, as far
        as halves reach; rows that are half or a quarter as long are twice or four times as many.
    """

    row_length: Length = 512
    micro_batch_rows: Count = 8


@dataclasses.dataclass(frozen=True)
class BatchConfig(BatchShape):
    """Shapes of an update, and how many of its parts are computed at once.

    Attributes:
      workers: micro-batches computed side by side; on a CPU one per core, otherwise 1.
    """

    workers: Threads = 1


@dataclasses.dataclass(frozen=True)
class EndpointConfig:
    """How a chat endpoint is asked, and what it may cost.

    Where it is and which model, its name says: ``URL#MODEL``. Values that are None are not sent: the server's default
    holds. `dfc.players.endpoint_config` says which values exclude each other.

    Attributes:
      key_variable: the environment variable with the key; empty for servers without keys.
      temperature: 0, the default, for simulators.
      max_tokens: tokens of one reply.
      top_p: the smallest set of most probable tokens with this sum is sampled from.
      seed: of the server's sampler; trial n of a request is sent seed + n.
      timeout: seconds one attempt may take.
      concurrency: requests at once.
      retries: attempts after the first one.
      backoff: seconds before the first retry, doubled for each further one up to 60, times a random number in [0.5, 1].
      longest_pause: seconds; a server that asks to wait longer ends the call.
      max_answer_bytes: an answer's body of more bytes is not read to its end, and is no reply. Requests
        ask for no compression; of a body that is compressed with gzip or deflate nevertheless, both sizes are limited.
      cache: folder of replies; empty: no cache.
      input_price: money per million tokens of chats.
      output_price: money per million tokens of replies.
      budget_money: no request is made once this much is spent; 0: no limit.
      budget_tokens: no request is made once this many tokens went in and out; 0: no limit.
      extra_body: further fields of the request, such as ``{"top_k": 20}``.
      allow_plain_http: send the key unencrypted to another machine.
    """

    key_variable: str = ""
    temperature: Annotated[float, Range(0, 2)] | None = 0.0
    max_tokens: Count | None = 1024
    top_p: ShareAboveZero | None = None
    seed: Annotated[int, Range(0, 2**62)] | None = None
    timeout: Annotated[float, Range(0, 1e6, above=True)] = 120.0
    concurrency: Annotated[int, Range(1, 1000)] = 16
    retries: Annotated[int, Range(0, 100)] = 4
    backoff: Annotated[float, Range(0, 60)] = 1.0
    longest_pause: Annotated[float, Range(0, 1e6)] = 120.0
    max_answer_bytes: Annotated[int, Range(1000, 10**9)] = 4 * 2**20
    cache: str = ""
    input_price: Annotated[float, Range(0, 1e9)] = 0.0
    output_price: Annotated[float, Range(0, 1e9)] = 0.0
    budget_money: Annotated[float, Range(0, 1e12)] = 0.0
    budget_tokens: Annotated[int, Range(0, 10**15)] = 0
    extra_body: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    allow_plain_http: bool = False


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """How a run survives a stop.

    Attributes:
      every: iterations between checkpoints; the end of a stage is always saved.
      keep: how many to keep, 2 at least: the newest is known to be of use only once the next one is saved.
    """

    every: Count = 10
    keep: SeveralCount = 3
