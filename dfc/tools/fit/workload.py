"""What decides memory and time of one stage of a run on one set of devices, and how many parameters that is."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType

from dfc.config import AdapterConfig, BatchConfig, MeshConfig, RolloutConfig, SamplingConfig, TrainingConfig
from dfc.inference import decoding_mesh
from dfc.inference.buckets import cache_positions, default_prefill_buckets
from dfc.inference.decoding_mesh import DecodingMesh
from dfc.models import quantization
from dfc.models.config import DecoderConfig
from dfc.models.execution import Platform
from dfc.models.lora import LoraConfig
from dfc.models.sharding import AXES, param_shardings
from dfc.models.transformer import abstract_params
from dfc.rollout.trained_weights import lora_config

_NF4_BYTES = 0.5 + 4 / quantization.BLOCK  # a code, and a float32 scale per block


@dataclasses.dataclass(frozen=True)
class OtherModel:
    """Weights in memory beside those that a stage trains or plays with.

    Attributes:
      name: whose.
      model: its shape.
      bytes: of one of its weights.
      engines: whether it plays in engines of its own, as large as the stage's.
      plays: whether it plays at all, and is split for that.
    """

    name: str
    model: DecoderConfig
    bytes: float
    engines: bool = False
    plays: bool = True


@dataclasses.dataclass(frozen=True)
class Workload:
    """One stage of a run on one set of devices: sections of its configuration, and what its recipe derives from them.

    Attributes:
      model: the decoder; its dtype is that of activations, cache, and weights while they compute.
      mesh: the split over devices, every size above 0.
      batch: the micro-batches, over all devices.
      training: how an update is computed; its `attention` is a program, not ``auto``.
      adapter: what is trained beside frozen weights, if not all of them.
      rollout: how games are played; slots and rows are over all devices, per worker.
      sampling: how tokens are sampled. other_sampling: how those of others are, in the same programs.
      trains: whether the stage trains; off, `batch`, `training` and `adapter` are not read.
      plays: whether it plays; off, `rollout` and `sampling` are not read. What does both learns from its own games.
      micro_batches: of one update; gradients of several are summed in float32.
      parts: losses of one update, each with sums of gradients of its own until the step.
      updates: of one iteration; from the second on, what the first started from is kept beside their gradients.
      reference: whether the loss compares with the model before training. A stage that plays, too, holds that model,
        and runs it in every update; one that trains on rows ran it over all of them before its first update.
      scores: whether log-probabilities of what is trained are taken apart from updates: on rows those of the reference.
      checks: whether the loss on rows held out is taken between updates.
      begins: whether a stage that plays keeps what its training began with, in the form in which it is trained.
      keeps: whether an update leaves what it starts from, until it is accepted or dropped.
      soft: whether it imitates distributions over the vocabulary, of all tokens at once.
      group_policies: finished policies of other groups that wait to be fused.
      past_policies: opponents from the past.
      judges: whether the model before training replies, too.
      role_adapters: whether a second role has an adapter of its own, trained after the first's; both play.
      compares: whether old weights and optimizer are kept until the new ones are accepted.
      conversations: of a game, in the cache: two where a model may play either seat, one for each simulator it plays.
      apart: whether hosts play games of their own: several hosts, and tensor devices share one.
      others: further weights in memory.
      of_a_host: devices of a host. platform: of the devices. memory: bytes of one; None: not known. They decide how
        playing is split.
      decoding: the split while it plays; None: `mesh`. Of what only plays, `mesh` is that split.
    """

    model: DecoderConfig
    mesh: MeshConfig
    batch: BatchConfig = BatchConfig()  # noqa: RUF009 - frozen
    training: TrainingConfig = TrainingConfig()  # noqa: RUF009 - frozen
    adapter: AdapterConfig = AdapterConfig()  # noqa: RUF009 - frozen
    rollout: RolloutConfig = RolloutConfig()  # noqa: RUF009 - frozen
    sampling: SamplingConfig = SamplingConfig()  # noqa: RUF009 - frozen
    other_sampling: tuple[SamplingConfig, ...] = ()
    trains: bool = True
    plays: bool = True
    micro_batches: int = 1
    parts: int = 1
    updates: int = 1
    reference: bool = True
    scores: bool = False
    checks: bool = False
    begins: bool = True
    keeps: bool = True
    soft: bool = False
    group_policies: int = 0
    past_policies: int = 0
    judges: bool = False
    role_adapters: bool = False
    compares: bool = False
    conversations: int = 1
    apart: bool = False
    others: tuple[OtherModel, ...] = ()
    of_a_host: int = 8
    platform: Platform = "cpu"
    memory: float | None = None
    decoding: DecodingMesh | None = None

    @functools.cached_property
    def played(self) -> "Workload":
        """The same split as it is while it plays."""
        sizes = self.mesh if self.decoding is None else self.decoding.sizes
        return self if sizes == self.mesh else dataclasses.replace(self, mesh=sizes, decoding=None)

    @property
    def policies(self) -> int:
        """Policies whose weights are split for playing at once.

        In evaluation the trained policy plays the initial one, which also judges; adapters of one share the other's
        weights.
        """
        return 2 if (self.conversations > 1 or self.judges) and self.lora is None else 1

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
        return lora_config(self.adapter) if self.trains else None

    @property
    def held_here(self) -> int:
        """Conversations in one device's share of an engine's cache; rounded up, so that all have as many."""
        return math.ceil(self.rollout.slots * self.conversations / self.played.shards)

    @property
    def rows_here(self) -> int:
        """Conversations of one device that an engine's largest call computes."""
        return min(self.held_here, math.ceil((self.rollout.rows or self.rollout.slots) / self.played.shards))

    @property
    def call_rows(self) -> int:
        """Conversations of all devices that an engine's largest call computes."""
        return self.rows_here * self.played.shards

    @property
    def positions(self) -> int:
        """Positions of a slot of an engine's cache: those of a conversation, rounded up on some platforms."""
        return cache_positions(self.rollout.max_length, self.platform)

    @property
    def prefill(self) -> int:
        """Tokens prefilled in a row by the engine's widest prefill call."""
        return (self.rollout.prefill_buckets or default_prefill_buckets(self.rollout.max_length))[-1]

    @property
    def steps(self) -> int:
        """Tokens sampled per row in one call at most."""
        return min(self.rollout.decode_steps, self.rollout.max_reply_length)

    @property
    def kept_sets(self) -> bool:
        """Whether the tokens that filters leave are kept with every sampled one, as training reads them."""
        return self.plays and self.trains and self.sampling.filtered

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
    def frozen(self) -> float:
        """Bytes on one device of the model's weights as they are stored where they are not trained."""
        count = self.parameters
        kernels = count.products * count.local / count.total if self.trains and self.adapter.base == "nf4" else 0.0
        return self.weight_bytes * (count.local - kernels) + _NF4_BYTES * kernels

    @property
    def one_layout(self) -> bool:
        """Whether the trained weights play as they are."""
        return (
            self.lora is None
            and self.trains
            and not self.training.scan_layers
            and self.master_bytes == self.weight_bytes
        )

    @functools.cached_property
    def parameters(self) -> "ParameterCount":
        """Numbers of the model's parameters on this mesh."""
        return parameters(self.model, self.mesh)


def decided(s: Workload, trained: MeshConfig) -> Workload:
    """Returns a workload that plays with the split it plays on, chosen as the run chooses it for the trained mesh."""
    chosen = decoding_mesh.choose(
        s.rollout.sharding,
        s.model,
        trained,
        of_a_host=s.of_a_host,
        platform=s.platform,
        memory=s.memory,
        rows=s.rollout.rows or s.rollout.slots,
        conversations=s.rollout.slots * s.conversations * s.rollout.workers,
        positions=s.rollout.max_length,
        nf4=s.trains and s.adapter.base == "nf4",
        policies=s.policies * s.rollout.workers if s.trains else 1,
    )
    # Of what only plays, weights are placed for playing from the beginning.
    found = dataclasses.replace(s, mesh=trained if s.trains else chosen.sizes, decoding=chosen)
    return dataclasses.replace(found, apart=s.devices > s.of_a_host and s.of_a_host % chosen.sizes.tensor == 0)


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
    width = split(model.width, mesh.fsdp)
    columns = split(model.feed_forward, mesh.tensor)
    queries, keys = (split(heads, mesh.tensor) * model.head_dim for heads in (model.heads, model.kv_heads))
    others = {"query": queries, "output": queries, "key": keys, "value": keys}  # gate, up and down: the columns
    return model.layers * lora.rank * sum(width + others.get(name, columns) for name in lora.targets)


def split(size: int, devices: int) -> float:
    """Returns a device's share of an axis, which is split evenly or not at all."""
    return size / (devices if size % devices == 0 else 1)
