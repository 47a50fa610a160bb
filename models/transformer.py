"""One decoder for all families: the differences between them are fields of `DecoderConfig`.

Axis letters, here and in every comment: B rows (sequences or slots), T ids fed at once, S cached positions,
D model width, N query heads, K key/value heads, G = N / K queries per key head, H head dimension, F feed-forward
width, V vocabulary, L layers.

Modules are Flax NNX; `split` turns one into a plain nested dict of arrays, which is all that losses, optimizer,
fusion and checkpoints ever see. Layers are unrolled: each keeps arrays of its own, because slicing stacked weights
inside a decode loop costs about half of its speed.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

Params = Any  # a nested dict of arrays: {"embed": {"embedding"}, "layers": {0: {...}}, "norm": {"scale"}, "head"?}
Cache = tuple[tuple[jax.Array, jax.Array], ...]  # per layer: keys and values, each [B, K, S, H]


@dataclasses.dataclass(frozen=True)
class Llama3Rope:
    """Frequency scaling of Llama 3.1: long wavelengths are slowed by `factor`, short ones kept, the rest blended.

    Attributes:
      factor: by how much long wavelengths are slowed.
      low_freq_factor: wavelengths above original_context / this are slowed fully.
      high_freq_factor: wavelengths below original_context / this are kept.
      original_context: context length of pre-training.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Shape and kind of a decoder; every field is read by the computation.

    Attributes:
      vocabulary: V. width: D. layers: L. heads: N. kv_heads: K. head_dim: H. feed_forward: F.
      rope_theta: base of the rotary frequencies.
      rope_scaling: None or Llama 3.1's scaling.
      norm_epsilon: added to the mean square.
      qkv_bias: whether query, key and value projections have a bias (Qwen2).
      tied_embedding: whether the output projection is the embedding.
      dtype: of weights and activations; norms, attention weights and logits are computed in float32.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    rope_theta: float
    norm_epsilon: float
    qkv_bias: bool
    tied_embedding: bool
    rope_scaling: Llama3Rope | None = None
    dtype: str = "float32"

    @property
    def cache_bytes_per_position(self) -> int:
        """Bytes one cached position of one row takes, all layers together."""
        return 2 * self.layers * self.kv_heads * self.head_dim * jnp.dtype(self.dtype).itemsize


def rope_frequencies(config: DecoderConfig) -> jax.Array:
    """Returns the rotary angular frequencies, float32 [H / 2], scaled as the config says."""
    half = config.head_dim // 2
    frequencies = 1.0 / (config.rope_theta ** (jnp.arange(half, dtype=jnp.float32) / half))
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    wavelength = 2 * math.pi / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = jnp.clip((scaling.original_context / wavelength - low) / (high - low), 0.0, 1.0)
    return frequencies * (smooth + (1.0 - smooth) / scaling.factor)


def rotate(x: jax.Array, sin: jax.Array, cos: jax.Array) -> jax.Array:
    """Applies rotary position embedding to x [B, heads, T, H] with sin, cos float32 [B, 1, T, H / 2]."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def _param(
    rngs: nnx.Rngs, shape: tuple[int, ...], axes: tuple[str | None, ...], scale: float, dtype: str
) -> nnx.Param[jax.Array]:
    """A weight from a normal of standard deviation `scale`; `axes` are its logical names (dfc.models.sharding)."""
    return nnx.Param(scale * jax.random.normal(rngs.params(), shape, jnp.dtype(dtype)), axes=axes)


class Norm(nnx.Module):
    """Root-mean-square normalisation, computed in float32."""

    def __init__(self, width: int, epsilon: float, dtype: str) -> None:
        self.epsilon = epsilon
        self.scale = nnx.Param(jnp.ones((width,), jnp.dtype(dtype)), axes=(None,))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns x / rms(x) * scale over the last axis."""
        x32 = x.astype(jnp.float32)
        normed = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + self.epsilon)
        scale = jnp.expand_dims(self.scale[...], tuple(range(x.ndim - 1)))
        return normed.astype(x.dtype) * scale


class Projection(nnx.Module):
    """A plain two-dimensional dense layer, [..., in] -> [..., out]."""

    def __init__(
        self, rngs: nnx.Rngs, shape: tuple[int, int], axes: tuple[str, str], dtype: str, *, bias: bool = False
    ) -> None:
        self.kernel = _param(rngs, shape, axes, shape[0] ** -0.5, dtype)
        self.bias = nnx.Param(jnp.zeros((shape[1],), jnp.dtype(dtype)), axes=(axes[1],)) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns x @ kernel (+ bias)."""
        y = x @ self.kernel[...]
        if self.bias is not None:
            y = y + jnp.expand_dims(self.bias[...], tuple(range(x.ndim - 1)))
        return y


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

    def project(self, x: jax.Array, sin: jax.Array, cos: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns rotated queries [B, N, T, H], rotated keys and values [B, K, T, H]."""
        rows, length, _ = x.shape

        def heads(y: jax.Array) -> jax.Array:
            return y.reshape(rows, length, -1, self.config.head_dim).swapaxes(1, 2)

        return rotate(heads(self.query(x)), sin, cos), rotate(heads(self.key(x)), sin, cos), heads(self.value(x))

    def attend(self, query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array) -> jax.Array:
        """Returns [B, T, D] from queries [B, N, T, H], keys and values [B, K, S, H], mask bool [B, T, S]."""
        rows, heads, length, dim = query.shape
        grouped = query.reshape(rows, key.shape[1], -1, dim)  # the G queries of a key head, one after another
        weights = jnp.einsum("bkqh,bksh->bkqs", grouped, key, preferred_element_type=jnp.float32)
        weights = weights.reshape(rows, heads, length, -1) * dim**-0.5
        weights = jnp.where(mask[:, None], weights, jnp.float32(-1e30))
        probabilities = jax.nn.softmax(weights, axis=-1).astype(value.dtype)
        probabilities = probabilities.reshape(rows, key.shape[1], -1, value.shape[2])
        mixed = jnp.einsum("bkqs,bksh->bkqh", probabilities, value).reshape(rows, heads, length, dim)
        return self.output(mixed.swapaxes(1, 2).reshape(rows, length, heads * dim))


class FeedForward(nnx.Module):
    """SwiGLU."""

    def __init__(self, rngs: nnx.Rngs, config: DecoderConfig) -> None:
        make = functools.partial(Projection, rngs, dtype=config.dtype)
        self.gate = make((config.width, config.feed_forward), ("embed", "mlp"))
        self.up = make((config.width, config.feed_forward), ("embed", "mlp"))
        self.down = make((config.feed_forward, config.width), ("mlp", "embed"))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns down(silu(gate(x)) * up(x))."""
        return self.down(jax.nn.silu(self.gate(x)) * self.up(x))


class Layer(nnx.Module):
    """Pre-norm attention and feed-forward, each added to the residual stream."""

    def __init__(self, rngs: nnx.Rngs, config: DecoderConfig) -> None:
        self.attention_norm = Norm(config.width, config.norm_epsilon, config.dtype)
        self.attention = Attention(rngs, config)
        self.mlp_norm = Norm(config.width, config.norm_epsilon, config.dtype)
        self.mlp = FeedForward(rngs, config)


class Embedding(nnx.Module):
    """One vector per id."""

    def __init__(self, rngs: nnx.Rngs, config: DecoderConfig) -> None:
        self.embedding = _param(rngs, (config.vocabulary, config.width), ("vocab", "embed"), 0.02, config.dtype)


class Transformer(nnx.Module):
    """The decoder."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        self.config = config
        self.embed = Embedding(rngs, config)
        self.layers = nnx.List([Layer(rngs, config) for _ in range(config.layers)])
        self.norm = Norm(config.width, config.norm_epsilon, config.dtype)
        self.head = None if config.tied_embedding else Embedding(rngs, config)

    @property
    def output_embedding(self) -> jax.Array:
        """[V, D]; logits are hidden @ this transposed."""
        return (self.embed if self.head is None else self.head).embedding[...]

    def _rotary(self, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
        angles = positions.astype(jnp.float32)[:, None, :, None] * rope_frequencies(self.config)[None, None, None, :]
        return jnp.sin(angles), jnp.cos(angles)

    def __call__(self, tokens: jax.Array, positions: jax.Array, segments: jax.Array) -> jax.Array:
        """Returns the final hidden states [B, T, D] of whole sequences.

        Args:
          tokens: int32 [B, T].
          positions: int32 [B, T], counted from 0 within each segment.
          segments: int32 [B, T]; ids attend to earlier ids of the same segment; 0 is padding.
        """
        length = tokens.shape[1]
        causal = jnp.tril(jnp.ones((length, length), bool))
        mask = (segments[:, :, None] == segments[:, None, :]) & causal[None]
        sin, cos = self._rotary(positions)
        x = self.embed.embedding[...][tokens]
        for layer in self.layers:
            query, key, value = layer.attention.project(layer.attention_norm(x), sin, cos)
            x = x + layer.attention.attend(query, key, value, mask)
            x = x + layer.mlp(layer.mlp_norm(x))
        return self.norm(x)

    def extend(self, tokens: jax.Array, start: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
        """Feeds T more ids to each row behind what its cache holds; returns hidden states [B, T, D] and the cache.

        Row b's ids take positions start[b] .. start[b] + T - 1, and their keys and values are written there. What
        a row fed beyond its own ids (padding) is overwritten by the next call, which starts where its ids end.

        Args:
          tokens: int32 [B, T].
          start: int32 [B], positions the row holds already.
          cache: per layer keys and values [B, K, S, H]; start + T <= S. Meant to be donated. All S positions are
            read, so a caller keeps S near what its rows hold: cutting a longer cache to its live part inside the
            program copies it at every call (on a CPU that took longer than the attention itself).
        """
        length = tokens.shape[1]
        positions = start[:, None] + jnp.arange(length, dtype=start.dtype)[None]
        held = cache[0][0].shape[2]
        mask = jnp.arange(held, dtype=start.dtype)[None, None, :] <= positions[:, :, None]
        sin, cos = self._rotary(positions)
        x = self.embed.embedding[...][tokens]
        new_cache = []
        for layer, (old_keys, old_values) in zip(self.layers, cache, strict=True):
            query, key, value = layer.attention.project(layer.attention_norm(x), sin, cos)
            keys, values = _write(old_keys, key, start), _write(old_values, value, start)
            new_cache.append((keys, values))
            x = x + layer.attention.attend(query, keys, values, mask)
            x = x + layer.mlp(layer.mlp_norm(x))
        return self.norm(x), tuple(new_cache)


def _write(cache: jax.Array, new: jax.Array, start: jax.Array) -> jax.Array:
    """Writes new [B, K, T, H] into cache [B, K, S, H] from position start[b] of each row b."""
    zero = jnp.zeros((), start.dtype)
    return jax.vmap(lambda c, n, s: jax.lax.dynamic_update_slice(c, n, (zero, s, zero)))(cache, new, start)


def empty_cache(config: DecoderConfig, rows: int, positions: int) -> Cache:
    """Returns zeroed keys and values for `rows` rows of `positions` positions."""
    shape = (rows, config.kv_heads, positions, config.head_dim)
    return tuple((jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype)) for _ in range(config.layers))


def resized_cache(cache: Cache, positions: int) -> Cache:
    """Returns the cache with `positions` positions per row: cut behind, or padded with zeros."""

    def resize(x: jax.Array) -> jax.Array:
        kept = x[:, :, :positions]
        return jnp.pad(kept, ((0, 0), (0, 0), (0, positions - kept.shape[2]), (0, 0)))

    return tuple((resize(keys), resize(values)) for keys, values in cache)


@functools.lru_cache(maxsize=8)
def _abstract(config: DecoderConfig) -> tuple[Any, Any]:
    model = nnx.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0)))
    return nnx.split(model, nnx.Param)


def initialize(config: DecoderConfig, seed: int) -> Params:
    """Returns freshly drawn weights."""
    return nnx.to_pure_dict(nnx.split(Transformer(config, rngs=nnx.Rngs(seed)), nnx.Param)[1])


def abstract_params(config: DecoderConfig) -> Params:
    """Returns the weights' shapes and dtypes, nothing allocated."""
    return nnx.to_pure_dict(_abstract(config)[1])


def logical_axes(config: DecoderConfig) -> Params:
    """Returns, in the shape of the weights, the tuple of logical axis names of each."""
    state = _abstract(config)[1]
    return nnx.to_pure_dict(jax.tree.map(lambda p: p.axes, state, is_leaf=lambda p: isinstance(p, nnx.Variable)))


def bind(config: DecoderConfig, params: Params) -> Transformer:
    """Returns the module with these weights; free inside jit, where it happens once per trace."""
    graph, abstract = _abstract(config)
    state = jax.tree.map(lambda p: p, abstract)
    nnx.replace_by_pure_dict(state, params)
    model: Transformer = nnx.merge(graph, state)
    return model
