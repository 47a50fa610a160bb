"""What runs on the device: `prefill` takes tokens and samples one, `decode` samples many, `score` scores given ones.

Each works on R rows, which read and write their slots of the one cache in place. Which slots they are, how many tokens
they hold, how many each processes, how it is sampled and how many tokens it may still have are data; R and the prefill
buckets are shapes. An idle row names a slot past the last: it reads anything and writes nothing.

On several devices rows are split over the mesh's data and fsdp axes and key/value heads over its tensor axis. A row
then names a slot of its own shard: reading and writing moves nothing between devices.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dfc.inference import constraints, kept_sets
from dfc.inference.kept_sets import KeptSets
from dfc.inference.sampling import Filters, RowSampling, Sampled, filtered_logprobs, sample_tokens
from dfc.models.cache import Cache, copy_rows, empty_cache, layout_of, partition, put_rows, take_rows
from dfc.models.config import DecoderConfig
from dfc.models.execution import ROWS as ROW_AXES
from dfc.models.execution import Execution, Platform
from dfc.models.transformer import Adapters, Decoder, Params, bind
from dfc.samples import MOST_CHOICES

Array = jax.Array | np.ndarray


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("slot", "held", "count", "answers", "budget", "adapter", "sampling", "node"),
    meta_fields=(),
)
@dataclasses.dataclass(frozen=True)
class CallRows:
    """The inputs of a call for each of its R rows.

    Attributes:
      slot: int32, of its shard; the number of slots of a shard, or more, for an idle row.
      held: int32, tokens the cache holds.
      count: int32, tokens it processes.
      answers: bool, whether it samples after them.
      budget: int32, tokens it may sample.
      adapter: int32, its place in a pool of adapters.
      sampling: how it samples.
      node: int32, the node of its reply in the trie of constraints; -1: nowhere, all tokens are allowed.
    """

    slot: Array
    held: Array
    count: Array
    answers: Array
    budget: Array
    adapter: Array
    sampling: RowSampling
    node: Array


@functools.partial(jax.tree_util.register_dataclass, data_fields=("token_ids", "nodes"), meta_fields=())
@dataclasses.dataclass(frozen=True)
class TokenTrie:
    """Constraints of a call, int32 [nodes, branches] each: the tokens allowed at a node and the nodes they lead to."""

    token_ids: Array
    nodes: Array


@functools.partial(jax.tree_util.register_dataclass, data_fields=("params", "adapters"), meta_fields=())
@dataclasses.dataclass(frozen=True)
class EngineWeights:
    """Unrolled weights and the adapters on them."""

    params: Params
    adapters: Adapters | None


@dataclasses.dataclass
class EnginePolicy:
    """Weights that an engine holds under a name.

    Attributes:
      number: which of the names. weights: in the engine's layout. version: of them. pool: how many adapters they come
        with, None without. serial: a number that no other weights of this engine had.
    """

    number: int
    weights: EngineWeights
    version: int
    pool: int | None
    serial: int


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a program is compiled for, beside the shapes of its arguments.

    Attributes:
      config: of the model.
      filters: of the sampling.
      pooled: the adapters are a pool.
      plain: whether plain log-probabilities are computed beside those of sampling: K is 2 in what follows, else 1.
      kept: whether the sets that tokens are sampled among come back, which hold `MOST_CHOICES` tokens at most.
    """

    config: DecoderConfig
    filters: Filters
    pooled: bool
    plain: bool = False
    kept: bool = False

    @property
    def most_kept(self) -> int:
        """Tokens that a set has room for; 0 where none come back."""
        return min(MOST_CHOICES, self.config.vocabulary) if self.kept else 0

    def kinds(self, sampled_logprobs: jax.Array, plain_logprobs: jax.Array) -> jax.Array:
        """Returns the kinds of log-probabilities that are asked for, [K, ...]."""
        return jnp.stack([sampled_logprobs, plain_logprobs] if self.plain else [sampled_logprobs])


class Programs:
    """The programs of one model on one set of devices, and what they need to know of the devices."""

    def __init__(self, config: DecoderConfig, mesh: Mesh | None, platform: Platform) -> None:
        self._mesh, self._platform, self.layout = mesh, platform, layout_of(platform, config.head_dim)
        self.shards = 1 if mesh is None else mesh.shape["data"] * mesh.shape["fsdp"]
        cache = rows = whole = None
        self._cache_spec: Any = None
        self._row_spec: Any = None
        self._no_spec: Any = None
        if mesh is not None:
            heads = "tensor" if config.kv_heads % mesh.shape["tensor"] == 0 else None  # split whole or not at all
            spec: Any = PartitionSpec  # jax leaves it untyped
            self._cache_spec, self._row_spec = partition(self.layout, heads), spec(ROW_AXES)
            self._no_spec = spec()
            cache, rows = NamedSharding(mesh, self._cache_spec), NamedSharding(mesh, self._row_spec)
            whole = NamedSharding(mesh, spec())
        self.rows, self.cache = rows, cache

        def program(function: Callable[..., Any], results: tuple[Any, ...]) -> Any:  # noqa: ANN401 - jax.jit's own type
            out_shardings: dict[str, Any] = {} if mesh is None else {"out_shardings": (*results, cache)}
            return jax.jit(function, static_argnames=("shape",), donate_argnames=("cache",), **out_shardings)

        self.prefill = program(self._prefill, (whole, whole, whole))
        self.score = program(self._score, (whole,))
        self.decode = program(self._decode, (whole, whole, whole, whole, whole))
        out_shardings: dict[str, Any] = {} if mesh is None else {"out_shardings": cache}
        self.empty = jax.jit(
            functools.partial(empty_cache, layout=self.layout), static_argnums=(0, 1, 2), **out_shardings
        )
        self.put = jax.jit(self._put, donate_argnums=0, **out_shardings)
        self.take = jax.jit(self._take, static_argnums=2, **out_shardings)
        self.copy = jax.jit(self._copy, donate_argnums=0, **out_shardings)

    # ---- rows in and out --------------------------------------------------------------------------------------------

    def _take(self, cache: Cache, slots: Array, positions: int) -> Cache:
        def take(cache: Cache, slots: jax.Array) -> Cache:
            return take_rows(cache, slots, positions)

        specs = self._cache_spec, self._row_spec
        return self._local(take, specs)(cache, jnp.asarray(slots))

    def _put(self, cache: Cache, slots: Array, new: Cache) -> Cache:
        return self._local(put_rows, (self._cache_spec, self._row_spec, self._cache_spec))(
            cache, jnp.asarray(slots), new
        )

    def _copy(self, cache: Cache, sources: Array, targets: Array, positions: Array) -> Cache:
        """Writes the first positions of some slots into others of their shards."""
        specs = self._cache_spec, self._row_spec, self._row_spec, self._no_spec
        return self._local(copy_rows, specs)(cache, jnp.asarray(sources), jnp.asarray(targets), jnp.asarray(positions))

    def _local(self, function: Callable[..., Cache], specs: tuple[Any, ...]) -> Callable[..., Cache]:
        """Returns a function of caches that every device computes on its own slots."""
        if self._mesh is None:
            return function
        return jax.shard_map(function, mesh=self._mesh, in_specs=specs, out_specs=self._cache_spec, check_vma=False)

    def _bound(self, weights: EngineWeights, rows: CallRows, shape: Shape, execution: Execution) -> Decoder:
        """Returns the decoder with every row's adapter."""
        adapters = weights.adapters
        if adapters is not None and shape.pooled:
            adapters = dataclasses.replace(adapters, rows=rows.adapter)
        return bind(shape.config, weights.params, adapters, execution)

    # ---- the programs -----------------------------------------------------------------------------------------------

    def _read(
        self, weights: EngineWeights, cache: Cache, rows: CallRows, tokens: Array, shape: Shape
    ) -> tuple[Decoder, jax.Array, Cache]:
        """Processes tokens [R, W]; returns the decoder, hidden states [R, W, D] and the cache."""
        # Many tokens: rows stay on their devices and weights come to them. Of a few tokens (decoding) the partitioner
        # rather sends the activations around.
        model = self._bound(weights, rows, shape, Execution(mesh=self._mesh, platform=self._platform))
        hidden, cache = model.extend(jnp.asarray(tokens), jnp.asarray(rows.held), cache, jnp.asarray(rows.slot))
        return model, hidden, cache

    def _prefill(
        self,
        weights: EngineWeights,
        cache: Cache,
        rows: CallRows,
        tokens: Array,
        uniform: Array,
        trie: TokenTrie | None,
        *,
        shape: Shape,
    ) -> tuple[jax.Array, jax.Array, KeptSets | None, Cache]:
        """Processes tokens int32 [R, W] and samples one token per row after the last of them.

        `uniform` float32 [R] is in [0, 1); the cache of all slots is donated, `shape` is static. Returns token ids
        int32 [R]; log-probabilities float32 [K, R], of the distribution sampled from and the plain one; the sets that
        tokens were sampled among, [R], or None; the cache.
        """
        model, hidden, cache = self._read(weights, cache, rows, tokens, shape)
        last = jnp.maximum(jnp.asarray(rows.count) - 1, 0)
        final = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
        allowed = _allowed(trie, jnp.asarray(rows.node), shape)
        found = self._sampled(model.logits(final), jnp.asarray(uniform), rows, shape, allowed)
        return found.token_ids, shape.kinds(found.sampled_logprobs, found.plain_logprobs), found.sets, cache

    def _sampled(
        self, logits: jax.Array, uniform: jax.Array, rows: CallRows, shape: Shape, allowed: jax.Array | None
    ) -> Sampled:
        """Samples one token per row from logits [R, V]."""
        return sample_tokens(logits, uniform, rows.sampling, shape.filters, allowed, most_kept=shape.most_kept)

    def _score(
        self, weights: EngineWeights, cache: Cache, rows: CallRows, tokens: Array, targets: Array, *, shape: Shape
    ) -> tuple[jax.Array, Cache]:
        """Processes tokens [R, W]; returns the log-probabilities float32 [K, R, W] of targets [R, W] after each."""
        model, hidden, cache = self._read(weights, cache, rows, tokens, shape)

        def one(column: tuple[jax.Array, jax.Array]) -> jax.Array:  # [R, V] at a time, never [R, W, V]
            logits, target = model.logits(column[0]), column[1][:, None]
            sampled_logprobs = jnp.take_along_axis(
                filtered_logprobs(logits, rows.sampling, shape.filters), target, axis=1
            )
            plain_logprobs = jnp.take_along_axis(jax.nn.log_softmax(logits), target, axis=1)
            return shape.kinds(sampled_logprobs[:, 0], plain_logprobs[:, 0])

        found = jax.lax.map(one, (hidden.swapaxes(0, 1), jnp.asarray(targets).T))
        return found.transpose(1, 2, 0), cache

    def _decode(
        self,
        weights: EngineWeights,
        cache: Cache,
        rows: CallRows,
        token: Array,
        uniform: Array,
        stops: Array,
        trie: TokenTrie | None,
        limit: Array,
        least: Array,
        *,
        shape: Shape,
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, KeptSets | None, Cache]:
        """Processes each row's last token, samples the next, and so on, until too few rows are still writing.

        `token` int32 [R] is the last one of each row, `uniform` float32 [R, n] is of each token sampled, `stops` bool
        [V] are the tokens that end a reply. There are at most `limit` steps (int32, up to n); `least` rows (int32) have
        to be writing for another one. `rows.count` is not read; the cache of all slots is donated, `shape` is static.

        Returns:
          token ids int32 [R, n]; log-probabilities float32 [K, R, n]; how many each row sampled, int32 [R]; steps,
          int32; the sets sampled among, [R, n], or None; the cache. A row samples nothing after a stop token or its
          budget.
        """
        execution = Execution(mesh=self._mesh, platform=self._platform, constrained=False)
        model = self._bound(weights, rows, shape, execution)
        held, slots = jnp.asarray(rows.held), jnp.asarray(rows.slot)
        budget, uniform = jnp.asarray(rows.budget), jnp.asarray(uniform)
        size, steps = uniform.shape
        ends = jnp.asarray(stops)

        def going(state: _Writing) -> jax.Array:
            return (state.step < limit) & (jnp.sum(state.writing, dtype=jnp.int32) >= jnp.maximum(least, 1))

        def one(state: _Writing) -> _Writing:
            step = state.step
            hidden, cache = model.extend(state.token[:, None], held + step, state.cache, slots)
            allowed = _allowed(trie, state.node, shape)
            number = jax.lax.dynamic_index_in_dim(uniform, step, axis=1, keepdims=False)
            sampled = self._sampled(model.logits(hidden[:, 0]), number, rows, shape, allowed)
            token_ids = sampled.token_ids
            num_sampled = state.num_sampled + state.writing.astype(jnp.int32)
            found = shape.kinds(sampled.sampled_logprobs, sampled.plain_logprobs)[:, :, None]
            node = state.node if trie is None else _advanced(trie, state.node, token_ids)
            put = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=step, axis=1)
            return _Writing(
                step=step + 1,
                token=token_ids,
                writing=state.writing & ~ends[token_ids] & (num_sampled < budget),
                num_sampled=num_sampled,
                node=node,
                cache=cache,
                token_ids=jax.lax.dynamic_update_slice_in_dim(state.token_ids, token_ids[:, None], step, axis=1),
                logprobs=jax.lax.dynamic_update_slice_in_dim(state.logprobs, found, step, axis=2),
                sets=jax.tree.map(lambda old, new: put(old, new[:, None]), state.sets, sampled.sets),
            )

        start = _Writing(
            step=jnp.int32(0),
            token=jnp.asarray(token),
            writing=jnp.asarray(rows.answers),
            num_sampled=jnp.zeros((size,), jnp.int32),
            node=jnp.asarray(rows.node),
            cache=cache,
            token_ids=jnp.zeros((size, steps), jnp.int32),
            logprobs=jnp.zeros((1 + shape.plain, size, steps), jnp.float32),
            sets=kept_sets.nothing((size, steps), shape.most_kept) if shape.kept else None,
        )
        end = jax.lax.while_loop(going, one, start)
        return end.token_ids, end.logprobs, end.num_sampled, end.step, end.sets, end.cache


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Writing:
    """The state of a decode loop."""

    step: jax.Array
    token: jax.Array  # [R]
    writing: jax.Array  # bool [R]
    num_sampled: jax.Array  # [R]
    node: jax.Array  # [R]
    cache: Cache
    token_ids: jax.Array  # [R, n]
    logprobs: jax.Array  # [K, R, n]
    sets: KeptSets | None  # [R, n]


def _allowed(trie: TokenTrie | None, node: jax.Array, shape: Shape) -> jax.Array | None:
    """Which tokens each row may sample, bool [R, V]; None: all of them."""
    return None if trie is None else constraints.allowed(jnp.asarray(trie.token_ids), node, shape.config.vocabulary)


def _advanced(trie: TokenTrie, node: jax.Array, token_ids: jax.Array) -> jax.Array:
    return constraints.advance(jnp.asarray(trie.token_ids), jnp.asarray(trie.nodes), node, token_ids)


def pool_size(adapters: Adapters | None) -> int | None:
    """Returns how many adapters there are in a pool; None if it is none: [P, D, R] instead of [D, R]."""
    leaves = [] if adapters is None else jax.tree.leaves(adapters.weights)
    return int(leaves[0].shape[0]) if leaves and leaves[0].ndim > 2 else None


programs = functools.lru_cache(maxsize=8)(Programs)  # engines of one model and mesh share compiled programs
