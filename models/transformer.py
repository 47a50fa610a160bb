"""One decoder for all families: the differences between them are fields of `DecoderConfig`.

Axis letters, here and in every comment: B rows (sequences or slots), T tokens processed at once, S cached positions,
D model width, N query heads, K key/value heads, G = N / K queries per key head, H head dimension, F feed-forward
width, V vocabulary, L layers, R adapter rank, P adapters of a pool.

Modules are Flax NNX; their weights are a plain nested dict of arrays, which is all that losses, optimizer, fusion and
checkpoints ever see. It comes in two layouts:

    unrolled  {"embed", "layers": {0: {...}, 1: {...}, ...}, "norm", "head"?}   decoding and files
    stacked   {"embed", "layers": {...}, "norm", "head"?}                       training

Stacked, "layers" is the tree of one layer with a leading axis L on every array, and the layers are one `lax.scan`:
compiled once, whatever L is, and each can be computed again in the backward pass. Decoding wants arrays of their own:
slicing stacked weights inside a decode loop costs about half of its speed.
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dfc.models.attention import AttentionSpec, causal_attention
from dfc.models.cache import Cache
from dfc.models.cached_attention import attend_cache
from dfc.models.config import DecoderConfig, rope_frequencies
from dfc.models.execution import Execution, name_residual

Params = Any  # a nested dict of arrays, in one of the two layouts
Path = tuple[str, ...]  # keys from the root of a tree to one leaf: ("layers", "0", "mlp", "up", "kernel")
Rotary = tuple[jax.Array, jax.Array]  # sines and cosines, float32 [B, 1, T, H / 2]
# From queries [B, N, T, H], keys and values [B, K, T, H] to mixed values [B, N, T, H].
Mix = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("weights", "rows", "key"), meta_fields=("scale", "dropout")
)
@dataclasses.dataclass(frozen=True)
class Adapters:
    """Low-rank corrections of projections (LoRA, arXiv 2106.09685): y = x W + scale * dropout(x) a b.

    Attributes:
      weights: the tree of the decoder's weights, cut down to the corrected projections, each {"a": [D, R],
        "b": [R, out]}; in the layout of the weights they go with. With `rows`, arrays have an axis of P adapters
        before these two.
      scale: alpha / R.
      rows: int32 [B], the adapter of each row of the batch; None: there is one adapter, for all rows.
      key: random key of the dropout; None turns it off.
      dropout: probability that an input of `a` is dropped; the others are scaled up to keep their expectation.
    """

    weights: Params
    scale: float
    rows: jax.Array | np.ndarray | None = None
    key: jax.Array | None = None
    dropout: float = 0.0


def rotate(x: jax.Array, rotary: Rotary) -> jax.Array:
    """Applies rotary position embedding to x [B, heads, T, H]."""
    sin, cos = rotary
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def _param(
    rngs: nnx.Rngs, shape: tuple[int, ...], axes: tuple[str | None, ...], scale: float, dtype: str
) -> nnx.Param[jax.Array]:
    """A weight from a normal of standard deviation `scale`; `axes` are its logical names (dfc.models.sharding)."""
    return nnx.Param(scale * jax.random.normal(rngs.params(), shape, jnp.dtype(dtype)), axes=axes)


class Norm(nnx.Module):
    """Root-mean-square normalisation, computed in float32."""

    def __init__(self, width: int, config: DecoderConfig) -> None:
        self.epsilon = config.norm_epsilon
        self.unit_offset = config.unit_offset_norm
        start = jnp.zeros if self.unit_offset else jnp.ones
        self.scale = nnx.Param(start((width,), jnp.dtype(config.dtype)), axes=(None,))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns x / rms(x) * scale over the last axis; (1 + scale) with a unit offset."""
        x32 = x.astype(jnp.float32)
        normed = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + self.epsilon)
        scale = jnp.expand_dims(self.scale[...], tuple(range(x.ndim - 1)))
        if self.unit_offset:
            return _rescaled(normed, 1.0 + scale.astype(jnp.float32)).astype(x.dtype)
        return _rescaled(normed.astype(x.dtype), scale)


@jax.custom_vjp
def _rescaled(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Returns x * scale; the gradient of `scale` is a product with ones, not a sum.

    XLA's sum over all axes but the last runs on one core of a CPU: for 2,048 x 768 it took half of a norm's gradient.
    """
    return x * scale


def _rescaled_saving(x: jax.Array, scale: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return x * scale, (x, scale)


def _rescaled_backward(saved: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, scale = saved
    product = gradient * x
    leading = tuple(range(x.ndim - 1))
    # Axes are not merged: devices that split two of them would have to gather the whole product.
    ones = jnp.ones(x.shape[:-1], x.dtype)
    total = jax.lax.dot_general(
        ones,
        product,
        ((leading, leading), ((), ())),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return gradient * scale, total.reshape(scale.shape).astype(scale.dtype)


_rescaled.defvjp(_rescaled_saving, _rescaled_backward)


class Projection(nnx.Module):
    """A plain two-dimensional dense layer, [..., in] -> [..., out], with an optional adapter.

    Attributes:
      adapter: attached by `bind`; its weights are this projection's {"a", "b"} alone.
    """

    def __init__(
        self, rngs: nnx.Rngs, shape: tuple[int, int], axes: tuple[str, str], dtype: str, *, bias: bool = False
    ) -> None:
        self.kernel = _param(rngs, shape, axes, shape[0] ** -0.5, dtype)
        self.bias = nnx.Param(jnp.zeros((shape[1],), jnp.dtype(dtype)), axes=(axes[1],)) if bias else None
        self.adapter: Adapters | None = None

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns x @ kernel (+ bias) (+ the adapter's correction)."""
        kernel: Any = self.kernel.get_value()  # an array, or a quantized stand-in
        # A quantized kernel multiplies itself: what it dequantizes is made again in the backward pass, not kept.
        y: jax.Array = x @ kernel if hasattr(kernel, "dequantize") else jnp.matmul(x, kernel)
        if self.bias is not None:
            y = y + jnp.expand_dims(self.bias[...], tuple(range(x.ndim - 1)))
        if self.adapter is not None:
            y = y + _correction(self.adapter, x)
        return y


def _correction(adapter: Adapters, x: jax.Array) -> jax.Array:
    """Returns scale * dropout(x) @ a @ b for x [B, T, in], computed in x's dtype."""
    a, b = adapter.weights["a"].astype(x.dtype), adapter.weights["b"].astype(x.dtype)
    if adapter.key is not None and adapter.dropout > 0:
        kept = jax.random.bernoulli(adapter.key, 1 - adapter.dropout, x.shape)
        x = jnp.where(kept, x / (1 - adapter.dropout), jnp.zeros((), x.dtype)).astype(x.dtype)
    if adapter.rows is None:
        return jnp.matmul(jnp.matmul(x, a), b) * adapter.scale
    rows = jnp.asarray(adapter.rows)
    low = jnp.einsum("btd,bdr->btr", x, a[rows])
    return jnp.einsum("btr,bro->bto", low, b[rows]) * adapter.scale


class Attention(nnx.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, rngs: nnx.Rngs, config: DecoderConfig) -> None:
        self.config = config
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        make = functools.partial(Projection, rngs, dtype=config.dtype)
        self.query = make((config.width, queries), ("embed", "heads"), bias=config.qkv_bias)
        self.key = make((config.width, keys), ("embed", "kv_heads"), bias=config.qkv_bias)
        self.value = make((config.width, keys), ("embed", "kv_heads"), bias=config.qkv_bias)
        self.output = make((queries, config.width), ("heads", "embed"))
        self.query_norm = Norm(config.head_dim, config) if config.qk_norm else None
        self.key_norm = Norm(config.head_dim, config) if config.qk_norm else None

    def __call__(self, x: jax.Array, rotary: Rotary, mix: Mix, execution: Execution) -> jax.Array:
        """Returns [B, T, D]; `mix` is attention proper and sees rotated queries and keys."""
        rows, length, _ = x.shape

        def heads(y: jax.Array) -> jax.Array:
            return execution.shard_heads(y.reshape(rows, length, -1, self.config.head_dim).swapaxes(1, 2))

        query, key, value = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        mixed = mix(rotate(query, rotary), rotate(key, rotary), value)
        return self.output(mixed.swapaxes(1, 2).reshape(rows, length, -1))


class FeedForward(nnx.Module):
    """A gated feed-forward: SwiGLU, or its GELU form."""

    def __init__(self, rngs: nnx.Rngs, config: DecoderConfig) -> None:
        self.activation = config.activation
        make = functools.partial(Projection, rngs, dtype=config.dtype)
        self.gate = make((config.width, config.feed_forward), ("embed", "mlp"))
        self.up = make((config.width, config.feed_forward), ("embed", "mlp"))
        self.down = make((config.feed_forward, config.width), ("mlp", "embed"))

    def __call__(self, x: jax.Array, execution: Execution) -> jax.Array:
        """Returns down(activation(gate(x)) * up(x))."""
        gate, up = execution.shard_columns(self.gate(x)), execution.shard_columns(self.up(x))
        active = jax.nn.silu(gate) if self.activation == "silu" else jax.nn.gelu(gate, approximate=True)
        return self.down(active * up)


class Layer(nnx.Module):
    """Attention and feed-forward, each normalised before (and after, if sandwiched) and added to the residual."""

    def __init__(self, rngs: nnx.Rngs, config: DecoderConfig) -> None:
        self.attention_norm = Norm(config.width, config)
        self.attention = Attention(rngs, config)
        self.mlp_norm = Norm(config.width, config)
        self.mlp = FeedForward(rngs, config)
        self.attention_post_norm = Norm(config.width, config) if config.sandwich_norms else None
        self.mlp_post_norm = Norm(config.width, config) if config.sandwich_norms else None

    def __call__(self, x: jax.Array, rotary: Rotary, mix: Mix, execution: Execution) -> jax.Array:
        """Returns the residual stream [B, T, D] after this layer."""
        read = execution.gather_positions(self.attention_norm(x))
        mixed = execution.shard_residual(self.attention(read, rotary, mix, execution))
        x = x + (mixed if self.attention_post_norm is None else self.attention_post_norm(mixed))
        read = execution.gather_positions(self.mlp_norm(x))
        projected = execution.shard_residual(self.mlp(read, execution))
        return x + (projected if self.mlp_post_norm is None else self.mlp_post_norm(projected))


class Embedding(nnx.Module):
    """One vector per token id."""

    def __init__(self, rngs: nnx.Rngs, config: DecoderConfig) -> None:
        self.embedding = _param(rngs, (config.vocabulary, config.width), ("vocab", "embed"), 0.02, config.dtype)


class Ends(nnx.Module):
    """The parts before and after the layers."""

    def __init__(self, rngs: nnx.Rngs, config: DecoderConfig) -> None:
        self.embed = Embedding(rngs, config)
        self.norm = Norm(config.width, config)
        scored = config.labels is not None
        shape = (config.width, config.labels or 0)
        self.score = Projection(rngs, shape, ("embed", "labels"), config.dtype) if scored else None
        self.head = None if scored or config.tied_embedding else Embedding(rngs, config)


class Decoder:
    """A decoder with its weights, ready to compute; made by `bind`, usually inside jit."""

    def __init__(self, config: DecoderConfig, params: Params, adapters: Adapters | None, execution: Execution) -> None:
        self.config = config
        self._ends: Ends = _merge(_graph(config, Ends), {k: v for k, v in params.items() if k != "layers"})
        self._layers = params["layers"]
        self._stacked = is_stacked(params)
        if adapters is not None and is_stacked(adapters.weights) != self._stacked:
            kinds = ("stacked", "unrolled") if self._stacked else ("unrolled", "stacked")
            raise ValueError(
                f"the weights are {kinds[0]} and their adapters {kinds[1]}; bring both into one layout with "
                "stack_layers or unstack_layers"
            )
        self._adapters = adapters
        self._execution = execution

    @property
    def output_embedding(self) -> jax.Array:
        """[V, D]; logits are hidden @ this transposed, then capped if `config.logit_soft_cap` says so."""
        head = self._ends.embed if self._ends.head is None else self._ends.head
        weights: jax.Array = head.embedding[...]
        return weights

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Returns float32 logits [..., V] of hidden states [..., D]; for few positions, see dfc.logprobs for many."""
        logits = jnp.matmul(hidden, self.output_embedding.T, preferred_element_type=jnp.float32)
        cap = self.config.logit_soft_cap
        return logits if cap is None else cap * jnp.tanh(logits / cap)

    def scores(self, hidden: jax.Array, last: jax.Array) -> jax.Array:
        """Returns the scores float32 [B, labels] of sequences that end at positions `last`, int32 [B].

        Raises:
          ValueError: the decoder is a language model.
        """
        if self._ends.score is None:
            raise ValueError("a language model has no scores; load a checkpoint with a sequence-classification head")
        final = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
        return self._ends.score(final).astype(jnp.float32)

    def __call__(self, tokens: jax.Array, positions: jax.Array, segments: jax.Array) -> jax.Array:
        """Returns the final hidden states [B, T, D] of whole sequences.

        All are int32 [B, T]; positions are counted from 0 within each segment; tokens attend to earlier tokens of the
        same segment; segment 0 is padding.
        """
        config, execution = self.config, self._execution
        rotary = self._rotary(positions)

        def mix(windowed: bool | jax.Array) -> Mix:
            def program(window: int | None) -> Mix:
                spec = self._spec(window)
                return lambda query, key, value: causal_attention(query, key, value, segments, spec, execution)

            if isinstance(windowed, bool):
                return program(config.sliding_window if windowed else None)
            # Only the branch taken is computed; the kernels want the window as a constant.
            branches = program(config.sliding_window), program(None)
            return lambda query, key, value: jax.lax.cond(windowed, *branches, query, key, value)

        def layer(x: jax.Array, weights: Params, adapters: Adapters | None, windowed: bool | jax.Array) -> jax.Array:
            x = name_residual(execution.shard_residual(x))
            if isinstance(windowed, bool):
                turn = rotary[windowed]
            else:
                turn = jax.tree.map(lambda local, whole: jnp.where(windowed, local, whole), rotary[True], rotary[False])
            return _bind_layer(config, weights, adapters)(x, turn, mix(windowed), execution)

        kinds = set(config.windowed)
        # A flag that differs from layer to layer is data to the scan and a constant elsewhere.
        flags = jnp.asarray(config.windowed) if len(kinds) > 1 else None
        same = kinds == {True}
        if execution.remat != "none":
            static = (3,) if flags is None or not self._stacked else ()
            layer = jax.checkpoint(layer, policy=execution.remat_policy(), static_argnums=static)
        x = self._embed(tokens)
        if self._stacked:

            def body(x: jax.Array, one: tuple[Params, Params, Any, Any]) -> tuple[jax.Array, None]:
                weights, corrections, flag, number = one
                adapters = self._layer_adapters(corrections, number)
                return layer(x, weights, adapters, same if flag is None else flag), None

            corrections = None if self._adapters is None else self._adapters.weights["layers"]
            numbers = jnp.arange(config.layers, dtype=jnp.int32)
            x, _ = jax.lax.scan(body, x, (self._layers, corrections, flags, numbers))
        else:
            for number, windowed in enumerate(config.windowed):
                x = layer(x, self._layers[number], self._unrolled_adapters(number), windowed)
        return self._ends.norm(execution.shard_residual(x))

    def extend(
        self, tokens: jax.Array, start: jax.Array, cache: Cache, slots: jax.Array | None = None
    ) -> tuple[jax.Array, Cache]:
        """Processes T more tokens of some rows of a cache and writes their keys and values into it.

        Token t of row r takes position start[r] + t and reads its slot up to there. What a row processed beyond its own
        tokens (padding) is overwritten by the next call, which starts where its tokens end.

        `tokens` are int32 [R, T], `start` int32 [R], positions the row's slot holds already, `slots` int32 [R] (None:
        row r has slot r); one past the last slot is idle. The cache, of all slots, is meant to be donated.

        Returns:
          Hidden states [R, T, D] and the cache.

        Raises:
          ValueError: the weights are stacked.
        """
        if self._stacked:
            raise ValueError("decoding needs unrolled weights; give bind unstack_layers(params)")
        rows, length = tokens.shape
        at = jnp.arange(rows, dtype=start.dtype) if slots is None else slots
        rotary = self._rotary(start[:, None] + jnp.arange(length, dtype=start.dtype)[None])
        x = self._embed(tokens)
        grown = []
        ahead = self._layers[0]
        for number, windowed in enumerate(self.config.windowed):
            spec = self._spec(self.config.sliding_window if windowed else None)
            params = ahead
            if number + 1 < self.config.layers:
                x, ahead = self._execution.one_ahead(x, self._layers[number + 1])

            def mix(
                query: jax.Array,
                key: jax.Array,
                value: jax.Array,
                number: int = number,
                spec: AttentionSpec = spec,
            ) -> jax.Array:
                mixed, layer = attend_cache(query, key, value, cache[number], at, start, spec, self._execution)
                grown.append(layer)
                return mixed

            layer = _bind_layer(self.config, params, self._unrolled_adapters(number))
            x = layer(x, rotary[windowed], mix, self._execution)
        return self._ends.norm(x), tuple(grown)

    def _spec(self, window: int | None) -> AttentionSpec:
        return AttentionSpec(self.config.query_scale, window, self.config.attention_soft_cap)

    def _embed(self, tokens: jax.Array) -> jax.Array:
        x = self._ends.embed.embedding[...][tokens]
        if self.config.scaled_embedding:
            x = x * jnp.asarray(self.config.width**0.5, x.dtype)
        return x

    def _rotary(self, positions: jax.Array) -> dict[bool, Rotary]:
        """Sines and cosines of layers with and without a window."""
        place = positions.astype(jnp.float32)[:, None, :, None]
        found = {}
        for windowed in set(self.config.windowed) or {False}:
            angles = place * rope_frequencies(self.config, windowed=windowed)[None, None, None, :]
            found[windowed] = jnp.sin(angles), jnp.cos(angles)
        return found

    def _unrolled_adapters(self, number: int) -> Adapters | None:
        if self._adapters is None:
            return None
        return self._layer_adapters(self._adapters.weights["layers"].get(number, {}), number)

    def _layer_adapters(self, weights: Params, number: int | jax.Array) -> Adapters | None:
        """The adapters of one layer, with a dropout key of its own."""
        if self._adapters is None:
            return None
        key = self._adapters.key
        return dataclasses.replace(
            self._adapters, weights=weights, key=None if key is None else jax.random.fold_in(key, number)
        )


def _bind_layer(config: DecoderConfig, weights: Params, adapters: Adapters | None) -> Layer:
    layer: Layer = _merge(_graph(config, Layer), weights)
    if adapters is not None:
        _attach(layer, adapters, adapters.weights, "")
    return layer


def _attach(module: nnx.Module, adapters: Adapters, weights: Mapping[str, Any], path: str) -> None:
    """Gives every projection that has adapter weights its own, with a dropout key of its own."""
    for name, part in weights.items():
        target = getattr(module, name)
        if not isinstance(target, Projection):
            _attach(target, adapters, part, f"{path}/{name}")
            continue
        key = adapters.key
        if key is not None:
            key = jax.random.fold_in(key, zlib.crc32(f"{path}/{name}".encode()))
        target.adapter = nnx.data(dataclasses.replace(adapters, weights=part, key=key))


@functools.lru_cache(maxsize=32)
def _graph(config: DecoderConfig, kind: type[Layer] | type[Ends]) -> tuple[Any, Any]:
    """The structure of a module and the shapes of its weights."""
    return nnx.split(nnx.eval_shape(lambda: kind(nnx.Rngs(0), config)), nnx.Param)


def _merge(structure: tuple[Any, Any], params: Params) -> Any:  # noqa: ANN401 - a module of the structure's kind
    graph, abstract = structure
    state = jax.tree.map(lambda p: p, abstract)
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graph, state)


def initialize(config: DecoderConfig, seed: int) -> Params:
    """Returns freshly initialized weights, unrolled."""
    rngs = nnx.Rngs(seed)

    def init_part(kind: type[Layer] | type[Ends]) -> Params:
        return nnx.to_pure_dict(nnx.split(kind(rngs, config), nnx.Param)[1])

    ends = init_part(Ends)
    return {**ends, "layers": {number: init_part(Layer) for number in range(config.layers)}}


def abstract_params(config: DecoderConfig) -> Params:
    """Returns the weights' shapes and dtypes, unrolled, nothing allocated."""
    ends, layer = (nnx.to_pure_dict(_graph(config, kind)[1]) for kind in (Ends, Layer))
    return {**ends, "layers": {number: jax.tree.map(lambda x: x, layer) for number in range(config.layers)}}


def logical_axes(config: DecoderConfig) -> Params:
    """Returns, in the shape of the unrolled weights, the tuple of logical axis names of each."""

    def axes(kind: type[Layer] | type[Ends]) -> Params:
        state = _graph(config, kind)[1]
        return nnx.to_pure_dict(jax.tree.map(lambda p: p.axes, state, is_leaf=lambda p: isinstance(p, nnx.Variable)))

    return {**axes(Ends), "layers": {number: axes(Layer) for number in range(config.layers)}}


def is_stacked(params: Params) -> bool:
    """Returns whether the layers' arrays are stacked; adapters have the same two layouts."""
    return not all(isinstance(key, int) for key in params["layers"])


def path_of(keys: Sequence[Any]) -> Path:
    """Returns the path that keys of `jax.tree.leaves_with_path` stand for."""
    return tuple(str(getattr(key, "key", getattr(key, "name", key))) for key in keys)


def by_path(tree: Params, is_leaf: Callable[[Any], bool] | None = None) -> dict[Path, Any]:
    """Returns the leaves of weights, adapters or anything shaped like them by path."""
    return {path_of(keys): leaf for keys, leaf in jax.tree.leaves_with_path(tree, is_leaf=is_leaf)}


def stack_layers(params: Params) -> Params:
    """Returns weights or adapters in the stacked layout; inside jit this is one copy of the layers."""
    layers = [params["layers"][number] for number in range(len(params["layers"]))]
    return {**params, "layers": jax.tree.map(lambda *xs: jnp.stack(xs), *layers)}


def unstack_layers(params: Params) -> Params:
    """Returns weights or adapters in the unrolled layout."""
    count = jax.tree.leaves(params["layers"])[0].shape[0]
    layers = {number: jax.tree.map(lambda x: x[number], params["layers"]) for number in range(count)}  # noqa: B023 - called within the loop
    return {**params, "layers": layers}


def bind(
    config: DecoderConfig,
    params: Params,
    adapters: Adapters | None = None,
    execution: Execution = Execution(),  # noqa: B008 - frozen
) -> Decoder:
    """Returns the decoder with these weights, in either layout; free inside jit, where it happens once per trace.

    A projection's kernel may be quantized (dfc.models.quantization); adapters are in the layout of the weights.

    Raises:
      ValueError: weights and adapters are in different layouts.
    """
    return Decoder(config, params, adapters, execution)
