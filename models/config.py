"""What one decoder is: every difference between the model families is a field here."""

import dataclasses
import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np


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
class LinearRope:
    """Position interpolation: every frequency is divided by `factor` (Gemma 3's global layers)."""

    factor: float


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Shape and kind of a decoder; every field is read by the computation.

    Attributes:
      vocabulary: V. width: D. layers: L. heads: N. kv_heads: K. head_dim: H. feed_forward: F.
      rope_theta: base of the rotary frequencies.
      norm_epsilon: added to the mean square.
      qkv_bias: whether query, key and value projections have a bias (Qwen2).
      tied_embedding: whether the output projection is the embedding.
      rope_scaling: None, Llama 3.1's, or linear; of the layers without a window if `local_rope_theta` is given.
      dtype: of weights and activations; norms, attention weights and logits are computed in float32.
      activation: of the gated feed-forward: SiLU, or GELU in its tanh form (Gemma).
      qk_norm: whether each head's queries and keys are normalised before they are rotated (Qwen3, Gemma 3).
      unit_offset_norm: whether norms multiply by 1 + weight, in float32 (Gemma).
      sandwich_norms: whether attention and feed-forward are normalised after as well as before (Gemma 3).
      scaled_embedding: whether embeddings are multiplied by sqrt(D), rounded to `dtype` (Gemma).
      attention_scale: what attention logits are multiplied by; None is 1 / sqrt(H).
      attention_soft_cap: attention logits a become cap * tanh(a / cap).
      logit_soft_cap: the same for output logits.
      sliding_window: a query at position i of a windowed layer sees the `sliding_window` positions that end at i.
      windowed_layers: for each layer whether it has the window; empty: all have, if there is a window.
      local_rope_theta: base of windowed layers, never scaled; None: theirs is as everyone's.
      labels: None for a language model; else how many scores a sequence gets (a reward model has one).
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
    rope_scaling: Llama3Rope | LinearRope | None = None
    dtype: str = "float32"
    activation: Literal["silu", "gelu_tanh"] = "silu"
    qk_norm: bool = False
    unit_offset_norm: bool = False
    sandwich_norms: bool = False
    scaled_embedding: bool = False
    attention_scale: float | None = None
    attention_soft_cap: float | None = None
    logit_soft_cap: float | None = None
    sliding_window: int | None = None
    windowed_layers: tuple[bool, ...] = ()
    local_rope_theta: float | None = None
    labels: int | None = None

    @property
    def cache_bytes_per_position(self) -> int:
        """Bytes one cached position of one row takes, all layers together."""
        return 2 * self.layers * self.kv_heads * self.head_dim * jnp.dtype(self.dtype).itemsize

    @property
    def windowed(self) -> tuple[bool, ...]:
        """For each layer, whether its attention is limited to the sliding window."""
        if self.sliding_window is None:
            return (False,) * self.layers
        return self.windowed_layers or (True,) * self.layers

    @property
    def query_scale(self) -> float:
        """What attention logits are multiplied by."""
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale


def rope_frequencies(config: DecoderConfig, *, windowed: bool = False) -> jax.Array:
    """Returns the rotary angular frequencies, float32 [H / 2], of a layer with or without a window.

    Computed in float64 and rounded once: an error here grows with the position.
    """
    local = config.local_rope_theta if windowed else None
    theta = config.rope_theta if local is None else local
    half = config.head_dim // 2
    frequencies = 1.0 / np.power(float(theta), np.arange(half) / half)
    scaling = None if local is not None else config.rope_scaling
    if isinstance(scaling, LinearRope):
        frequencies = frequencies / scaling.factor
    elif scaling is not None:
        wavelength = 2 * math.pi / frequencies
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        smooth = np.clip((scaling.original_context / wavelength - low) / (high - low), 0.0, 1.0)
        frequencies = frequencies * (smooth + (1.0 - smooth) / scaling.factor)
    return jnp.asarray(frequencies, jnp.float32)
