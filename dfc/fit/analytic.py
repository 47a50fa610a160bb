"""Memory and arithmetic of a run by summing, without a compiler; milliseconds.

State (weights, optimizer, reference, cache) is exact. What a training step holds in between is a formula with a few
constants: within about 15 % of the compiler for the programs it was compared with (docs/fit.md), usually below it.
`MARGIN` is therefore added before anything is said to fit. What no formula sees (an array left unsplit, a buffer
copied because it could not be donated) a compile does.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType

from dfc.config import AdapterConfig, BatchConfig, MeshConfig, RolloutConfig, SamplingConfig, TrainingConfig
from dfc.inference.buckets import default_prefill_buckets
from dfc.logprobs import VOCAB_CHUNK
from dfc.models import quantization
from dfc.models.attention import xla_queries_at_once
from dfc.models.config import DecoderConfig
from dfc.models.lora import LoraConfig
from dfc.models.sharding import AXES, param_shardings
from dfc.models.transformer import abstract_params
from dfc.rollout.trained_weights import lora_config
from dfc.training.trainer import HEAD_TOKENS_PER_DEVICE

MARGIN = 0.2
_RANK = 64  # of adapters, where they are suggested
_NF4_BYTES = 0.5 + 4 / quantization.BLOCK  # a code, and a float32 scale per block

Sizes = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Workload:
    """What decides memory and time of one run on one set of devices: sections of its configuration, and its recipe.

    Attributes:
      model: the decoder; its dtype is that of activations, cache, and weights while they compute.
      mesh: the split over devices, every size above 0.
      batch: the micro-batches, over all devices.
      training: how an update is computed; its `attention` is a program, not ``auto``.
      adapter: what is trained beside frozen weights, if not all of them.
      rollout: how games are played; slots and rows are over all devices, per worker.
      sampling: how tokens are sampled.
      micro_batches: of one update; gradients of several are summed in float32.
      updates: of one iteration; from the second on, what the first started from is kept beside their gradients.
      reference: whether the initial policy gives log-probabilities in the update; if not, and without adapters, no
        second copy of it is held.
      group_policies: finished policies of other groups that wait to be fused.
      compares: whether old weights and optimizer are kept until the new ones have proved better in play.
      conversations: of a game, in the cache: two where a model may play either seat.
      apart: whether hosts play games of their own: several hosts, and tensor devices share one.
    """

    model: DecoderConfig
    mesh: MeshConfig
    batch: BatchConfig
    training: TrainingConfig
    adapter: AdapterConfig
    rollout: RolloutConfig
    sampling: SamplingConfig = SamplingConfig()  # noqa: RUF009 - frozen
    micro_batches: int = 1
    updates: int = 1
    reference: bool = True
    group_policies: int = 0
    compares: bool = False
    conversations: int = 1
    apart: bool = False

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.shards * self.mesh.tensor

    @property
    def shards(self) -> int:
        """Parts that rows, and conversations, are split into."""
        return self.mesh.data * self.mesh.fsdp

    @functools.cached_property
    def lora(self) -> LoraConfig | None:
        """Adapters that are trained; None: all weights are."""
        return lora_config(self.adapter)

    @property
    def held_here(self) -> int:
        """Conversations in one device's share of an engine's cache; rounded up, so that all have as many."""
        return math.ceil(self.rollout.slots * self.conversations / self.shards)

    @property
    def rows_here(self) -> int:
        """Conversations of one device that an engine's largest call computes."""
        return min(self.held_here, math.ceil((self.rollout.rows or self.rollout.slots) / self.shards))

    @property
    def call_rows(self) -> int:
        """Conversations of all devices that an engine's largest call computes."""
        return self.rows_here * self.shards

    @property
    def prefill(self) -> int:
        """Tokens prefilled in a row by the engine's widest prefill call."""
        return (self.rollout.prefill_buckets or default_prefill_buckets(self.rollout.max_length))[-1]

    @property
    def steps(self) -> int:
        """Tokens sampled per row in one call at most."""
        return min(self.rollout.decode_steps, self.rollout.max_reply_length)

    @property
    def spare(self) -> int:
        """Positions after a conversation's last: what a call adds is written whole."""
        return max(self.prefill, self.steps)

    @property
    def whole(self) -> bool:
        """Whether the largest call computes all conversations, where they lie; else it takes its rows out."""
        return self.rows_here == self.held_here and not self.apart

    @property
    def read(self) -> int:
        """Positions of a row that the costliest call reads, beside those it adds."""
        return self.rollout.max_length + (self.spare if self.whole else 0)

    @property
    def local_rows(self) -> int:
        """Rows of a micro-batch on one device."""
        return math.ceil(self.batch.micro_batch_rows / self.shards)

    @property
    def weight_bytes(self) -> int:
        """Bytes of one weight while it computes."""
        return int(jnp.dtype(self.model.dtype).itemsize)

    @property
    def master_bytes(self) -> int:
        """Bytes of one trained weight as it is kept; moments and adapters are float32."""
        return int(jnp.dtype(self.training.master_dtype).itemsize)

    @property
    def one_layout(self) -> bool:
        """Whether the trained weights play as they are."""
        return self.lora is None and not self.training.scan_layers and self.master_bytes == self.weight_bytes

    @functools.cached_property
    def parameters(self) -> "ParameterCount":
        """Numbers of the model's parameters on this mesh."""
        return parameters(self.model, self.mesh)


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on one device, by part, in the three phases of an iteration.

    Attributes:
      resident: what stays throughout.
      gradient: what a forward and backward pass adds.
      apply: what the optimizer's step adds.
      play: what playing adds.
    """

    resident: Sizes
    gradient: Sizes
    apply: Sizes
    play: Sizes

    @property
    def phases(self) -> dict[str, Sizes]:
        """What each phase holds, what stays throughout included."""
        parts = {"gradient": self.gradient, "optimizer step": self.apply, "playing": self.play}
        return {name: self.resident | part for name, part in parts.items()}

    @property
    def peaks(self) -> dict[str, float]:
        """Bytes of each phase."""
        return {name: sum(parts.values()) for name, parts in self.phases.items()}

    @property
    def peak(self) -> float:
        """The largest of them."""
        return max(self.peaks.values())

    def fits(self, available: float, margin: float = MARGIN) -> bool:
        """Whether the peak, a margin added, is within the available bytes."""
        return self.peak * (1 + margin) <= available

    def culprits(self, number: int = 3) -> list[tuple[str, float]]:
        """Returns the largest parts of the phase that needs most."""
        worst = max(self.phases.values(), key=lambda parts: sum(parts.values()))
        return sorted(worst.items(), key=lambda part: -part[1])[:number]


@dataclasses.dataclass(frozen=True)
class ParameterCount:
    """Numbers of parameters.

    Attributes:
      total: of the model.
      local: on one device; arrays that the mesh does not split evenly are replicated.
      products: that take part in matrix products, of the layers.
      largest_layer_local: of one layer on one device, gathered over fsdp.
    """

    total: int
    local: float
    products: int
    largest_layer_local: float


@functools.lru_cache(maxsize=256)
def parameters(model: DecoderConfig, mesh: MeshConfig = MeshConfig(1, 1, 1)) -> ParameterCount:  # noqa: B008 - frozen
    """Counts the parameters of a model and of one device's share, from shapes and sharding rules."""
    # All layers are alike; one is enough, and quick.
    one = dataclasses.replace(model, layers=1, windowed_layers=())
    shapes = abstract_params(one)

    def local(sizes: tuple[int, int, int]) -> Any:  # noqa: ANN401 - a tree of numbers
        devices: Any = AbstractMesh(sizes, AXES, axis_types=(AxisType.Auto,) * len(AXES))
        return jax.tree.map(lambda a, s: math.prod(s.shard_shape(a.shape)), shapes, param_shardings(one, devices))

    def total(tree: Any) -> int:  # noqa: ANN401 - a tree of numbers or shapes
        sizes = (x if isinstance(x, int) else math.prod(x.shape) for x in jax.tree.leaves(tree))
        return sum(sizes)

    share, repeats = local(dataclasses.astuple(mesh)), model.layers - 1
    kernels = [a for a in jax.tree.leaves(shapes["layers"]) if len(a.shape) == 2]
    return ParameterCount(
        total=total(shapes) + repeats * total(shapes["layers"]),
        local=total(share) + repeats * total(share["layers"]),
        products=model.layers * sum(math.prod(a.shape) for a in kernels),
        largest_layer_local=total(local((1, 1, mesh.tensor))["layers"]),
    )


def adapter_parameters(
    model: DecoderConfig,
    lora: LoraConfig,
    mesh: MeshConfig = MeshConfig(1, 1, 1),  # noqa: B008 - frozen
) -> float:
    """Returns the number of parameters of adapters on one device.

    Of the two factors of each only the side of the model is split: the width over fsdp, heads and feed-forward columns
    over tensor devices. The rank is whole.
    """
    width = _split(model.width, mesh.fsdp)
    columns = _split(model.feed_forward, mesh.tensor)
    queries, keys = (_split(heads, mesh.tensor) * model.head_dim for heads in (model.heads, model.kv_heads))
    others = {"query": queries, "output": queries, "key": keys, "value": keys}  # gate, up and down: the columns
    return model.layers * lora.rank * sum(width + others.get(name, columns) for name in lora.targets)


def _split(size: int, devices: int) -> float:
    """A device's share of an axis, which is split evenly or not at all."""
    return size / (devices if size % devices == 0 else 1)


def memory(workload: Workload) -> MemoryEstimate:
    """Sums what one device holds."""
    s, count = workload, workload.parameters
    whole = s.weight_bytes * count.local
    trained = float(count.local)
    if s.lora is not None:
        trained = adapter_parameters(s.model, s.lora, s.mesh)
    master = 4 * trained if s.lora is not None else s.master_bytes * trained
    resident = {"initial policy": _frozen(s), "trained weights": master, "optimizer": 8 * trained}
    if s.lora is not None and s.training.scan_layers:
        resident["frozen weights, stacked"] = _frozen(s)
    if s.lora is None and s.training.scan_layers and s.reference:
        resident["reference policy, stacked"] = whole
    if not s.one_layout:
        resident["trained weights at the start"] = master
        resident["weights for decoding"] = 4 * trained if s.lora is not None else whole
    if s.group_policies:
        resident["policies of other groups"] = s.group_policies * master
    changed = {"weights after the update": master, "optimizer after the update": 8 * trained}
    gradients = 4.0 if s.lora is not None else float(s.master_bytes)
    gradient = _gradient(s, trained, gradients)
    if s.updates > 1:
        gradient |= {"weights before the first update": master, "optimizer before the first update": 8 * trained}
    # An iteration's first update may be dropped, or starts from what other groups start from, and is made beside
    # what it starts from; those after it are made in place, beside the same.
    apply = {"gradients": (4.0 if s.micro_batches > 1 else gradients) * trained, **changed}
    others = (s.rollout.workers - 1) * cache_bytes(s)
    play = {"cache": cache_bytes(s), "other engines' caches": others, **_play(s)}
    if s.compares:
        play |= changed
    parts = resident, gradient, apply, play
    return MemoryEstimate(*({name: size for name, size in part.items() if size} for part in parts))


def _frozen(s: Workload) -> float:
    """Bytes on one device of the model's weights as they are stored where they are not trained."""
    count = s.parameters
    if s.adapter.base != "nf4":
        return s.weight_bytes * count.local
    kernels = count.products * count.local / count.total
    return s.weight_bytes * (count.local - kernels) + _NF4_BYTES * kernels


def _bytes_per_position(s: Workload) -> float:
    """Bytes on one device of one conversation's keys and values at one position."""
    return s.model.cache_bytes_per_position / (s.mesh.tensor if s.model.kv_heads % s.mesh.tensor == 0 else 1)


def cache_bytes(workload: Workload) -> float:
    """Returns the bytes of an engine's resident keys and values on one device."""
    return workload.held_here * (workload.rollout.max_length + workload.spare) * _bytes_per_position(workload)


def past_bytes(workload: Workload) -> float:
    """Returns the bytes on one device of the keys and values that an engine's costliest call reads."""
    return workload.rows_here * workload.read * _bytes_per_position(workload)


def _gradient(s: Workload, trained: float, gradient_bytes: float) -> Sizes:
    model, count, size, tensor = s.model, s.parameters, s.weight_bytes, s.mesh.tensor
    row = s.batch.row_length
    tokens = s.local_rows * row  # before they are split over tensor devices
    heads, kv_heads = model.heads * model.head_dim / tensor, model.kv_heads * model.head_dim / tensor
    columns = model.feed_forward / tensor
    narrow = model.width / (tensor if row % tensor == 0 else 1)
    per_layer = {
        "layer": narrow,
        "offload": 0.0,
        "dots": narrow + 2 * heads + 2 * kv_heads + 2 * columns + narrow,
        "none": 8 * narrow + 4 * heads + 8 * kv_heads + 4 * columns,
    }[s.training.remat]
    casts = s.lora is None and s.master_bytes != size
    # One layer's activations and their gradients, and what is gathered of its weights.
    at_work = size * tokens * (4 * columns + 4 * model.width + 4 * heads + 8 * kv_heads)
    at_work += 2 * size * count.largest_layer_local
    if s.adapter.base == "nf4":
        at_work += size * count.products / model.layers / tensor
    parts = {
        "gradients": gradient_bytes * trained,
        "summed gradients": 4 * trained if s.micro_batches > 1 else 0.0,
        "weights cast": size * trained if casts else 0.0,
        "residuals": size * model.layers * tokens * per_layer,
        "layer at work": at_work,
    }
    if s.training.attention == "xla":
        parts["attention weights"] = 10.0 * s.local_rows * model.heads / tensor * xla_queries_at_once(row) * row
    elif s.training.attention == "cudnn":
        parts["attention mask"] = 3.0 * s.local_rows * row**2  # a flag, and what is added to the logits
    tile = min(HEAD_TOKENS_PER_DEVICE, tokens) * min(VOCAB_CHUNK, int(_split(model.vocabulary, tensor)))
    # Logits, probabilities and gradient of a tile; the projection's gradient, summed in float32.
    head = 4.0 * model.vocabulary * model.width / (s.mesh.fsdp * tensor) if s.lora is None else 0.0
    parts["logits"] = 12.0 * tile + head
    return parts


def _play(s: Workload) -> Sizes:
    model, tensor = s.model, s.mesh.tensor
    heads = model.heads / tensor if model.kv_heads % tensor == 0 else model.heads
    prefill_tokens = s.rows_here * s.prefill
    return {
        "rows taken out": 0.0 if s.whole else past_bytes(s),
        "what a call adds": s.rows_here * s.spare * _bytes_per_position(s),
        "attention weights": 10.0 * prefill_tokens * heads * (s.read + s.prefill),
        "layer at work": s.weight_bytes * prefill_tokens * (4 * model.feed_forward / tensor + 8 * model.width),
        "logits": 16.0 * s.rows_here * _split(model.vocabulary, tensor),
    }


# ---- arithmetic -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class WorkEstimate:
    """Floating-point operations, and bytes of device memory, of one run of a program on one device."""

    flops: float
    bytes: float


def forward_flops(model: DecoderConfig, tokens: float, context: float) -> float:
    """Returns the operations of the layers for `tokens` tokens that each see `context` tokens on average."""
    count = parameters(model)
    attention = 4.0 * model.layers * model.heads * model.head_dim * tokens * context
    return 2.0 * count.products * tokens + attention


def update_work(workload: Workload) -> WorkEstimate:
    """Work of one micro-batch: reference pass, forward, backward, and what is computed again, on one device."""
    s, model = workload, workload.model
    tokens = s.batch.micro_batch_rows * s.batch.row_length
    forward = forward_flops(model, tokens, s.batch.row_length / 2)
    head = 2.0 * model.width * model.vocabulary * tokens
    again = {"none": 0.0, "dots": 0.0, "layer": 1.0, "offload": 1.0}[s.training.remat]
    backward = 2.0 if s.lora is None else 1.0  # frozen weights get no gradient of their own
    passes = 1.0 + again + backward + (1.0 if s.reference else 0.0)
    # The projection to the vocabulary: forward, again, and two products backward (one if it is frozen).
    heads = 2.0 + backward + (1.0 if s.reference else 0.0)
    moved = _frozen(s) * passes + 2 * memory(s).gradient.get("residuals", 0.0)
    return WorkEstimate((passes * forward + heads * head) / s.devices, moved)


def optimizer_work(workload: Workload) -> WorkEstimate:
    """Work of the optimizer's step: everything it owns is read, and all but the gradients is written."""
    found = memory(workload)
    state = found.resident["optimizer"] + found.resident["trained weights"]
    return WorkEstimate(0.0, 2 * state + found.apply["gradients"])


def decode_work(workload: Workload) -> WorkEstimate:
    """Work of one call that samples `steps` tokens in each of its rows, at the longest cache.

    Weights and the rows' past are read in every step. Rows that are not the whole cache are copied out of it before.
    """
    s, model = workload, workload.model
    tokens = float(s.call_rows * s.steps)
    flops = forward_flops(model, tokens, s.read + s.steps) + 2.0 * model.width * model.vocabulary * tokens
    return WorkEstimate(flops / s.devices, s.steps * (_weights_read(s) + past_bytes(s)) + _copied(s))


def prefill_work(workload: Workload) -> WorkEstimate:
    """Work of the engine's widest prefill call, at the longest cache; each row then samples one token."""
    s, model = workload, workload.model
    rows = float(s.call_rows)
    flops = forward_flops(model, rows * s.prefill, s.read + s.prefill) + 2.0 * model.width * model.vocabulary * rows
    return WorkEstimate(flops / s.devices, _weights_read(s) + past_bytes(s) + _copied(s))


def _weights_read(s: Workload) -> float:
    """Bytes of weights that one step of playing reads, as they are stored, four bits included."""
    embedding = s.weight_bytes * s.model.vocabulary * s.model.width / (s.mesh.fsdp * s.mesh.tensor)
    unread = 0.0 if s.model.tied_embedding else embedding  # a few rows of the input embedding are looked up
    adapters = 0.0 if s.lora is None else 4 * adapter_parameters(s.model, s.lora, s.mesh)
    return _frozen(s) + adapters - unread


def _copied(s: Workload) -> float:
    """Bytes read and written where a call takes its rows out of the cache."""
    return 0.0 if s.whole else 2 * past_bytes(s)


# ---- search -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """A setting that fits, and how it differs: words of the command line with their new values."""

    workload: Workload
    changes: dict[str, int | str]


def nearest_fitting(workload: Workload, available: float, margin: float = MARGIN) -> Suggestion | None:
    """Returns the setting closest to the given one that fits, or None.

    Distance counts halvings of the rows of a micro-batch and of the slots, steps of `remat`, and factors of two by
    which the split over tensor devices changes. What changes the result is tried after what changes only the speed:
    trained weights kept in bfloat16, then a shorter context, then adapters instead of all weights.
    """
    best: tuple[float, Suggestion] | None = None
    for distance, candidate in _candidates(workload):
        if (best is None or distance < best[0]) and memory(candidate).fits(available, margin):
            best = distance, Suggestion(candidate, _changes(workload, candidate))
    return None if best is None else best[1]


def _halvings(value: int, least: int) -> list[int]:
    found = [value]
    while found[-1] % 2 == 0 and found[-1] // 2 >= least and (found[-1] // 2) % least == 0:
        found.append(found[-1] // 2)
    return found


def _kinds(s: Workload) -> list[tuple[float, Workload]]:
    """What is trained, in which type: as asked, in bfloat16, adapters only."""
    found = [(0.0, s)]
    if s.lora is None:
        if s.weight_bytes == 2 and s.master_bytes == 4:
            bfloat16 = dataclasses.replace(s.training, master_dtype="bfloat16")
            found.append((3.0, dataclasses.replace(s, training=bfloat16)))
        found.append((12.0, dataclasses.replace(s, adapter=dataclasses.replace(s.adapter, rank=_RANK))))
    return found


def _shorter(rollout: RolloutConfig, length: int) -> RolloutConfig:
    """Returns contexts of at most `length`: a reply must fit its context, and so must what comes before it."""
    if length >= rollout.max_length:
        return rollout
    prompt = rollout.max_prompt_length if rollout.max_prompt_length <= length else length // 2
    reply = min(rollout.max_reply_length, length // 2)
    return dataclasses.replace(rollout, max_length=length, max_reply_length=reply, max_prompt_length=prompt)


def _candidates(asked: Workload) -> Iterator[tuple[float, Workload]]:
    """Yields settings with their distance."""
    order: list[Any] = ["none", "dots", "layer"]
    remat = asked.training.remat
    remats = order[order.index(remat) :] if remat in order else [remat]
    splits = [t for t in range(1, asked.devices + 1) if asked.devices % t == 0 and asked.model.heads % t == 0]
    for (kind, s), tensor in itertools.product(_kinds(asked), splits):
        shards = s.devices // tensor
        data = s.mesh.data if tensor == s.mesh.tensor else 1
        mesh = MeshConfig(data, shards // data, tensor)
        rows, slots, row = s.batch.micro_batch_rows, s.rollout.slots, s.batch.row_length
        shapes = itertools.product(
            _halvings(rows, shards) if rows % shards == 0 else [shards],
            _halvings(slots, shards) if slots % shards == 0 else [shards],
            _halvings(row, 1024),
            enumerate(remats),
        )
        for fewer_rows, fewer_slots, length, (stricter, remat) in shapes:
            candidate = dataclasses.replace(
                s,
                mesh=mesh,
                batch=dataclasses.replace(s.batch, micro_batch_rows=fewer_rows, row_length=length),
                training=dataclasses.replace(s.training, remat=remat),
                rollout=_shorter(dataclasses.replace(s.rollout, slots=fewer_slots), length),
            )
            distance = kind + 0.5 * stricter + 1.6 * abs(math.log2(tensor / s.mesh.tensor))
            for old, new in ((rows, fewer_rows), (slots, fewer_slots)):
                halved = math.log2(old / new)
                distance += halved if halved >= 0 else -4 * halved  # more than was asked for is no remedy
            yield distance + 5 * math.log2(row / length), candidate


def _changes(old: Workload, new: Workload) -> dict[str, int | str]:
    """Returns the words of the command line that lead from one setting to another."""
    changed = {}
    for section in ("mesh", "batch", "rollout", "training", "adapter"):
        before, after = getattr(old, section), getattr(new, section)
        for name, value in vars(after).items():
            if value != getattr(before, name):
                changed[f"--config.{section}.{name}"] = value
    return changed
