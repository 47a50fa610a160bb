"""Packs transcripts with the distributions of their replies, and trains a small decoder on them: one update."""

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dfc.config import SmallModel
from dfc.models.chat import ChatTokenizer
from dfc.models.config import DecoderConfig
from dfc.models.transformer import Params, bind
from dfc.packing import Segment
from dfc.tools.small_models import transcripts
from dfc.training import divergence


def shape(config: SmallModel, vocabulary: int) -> DecoderConfig:
    """Returns the decoder that a configuration describes."""
    return DecoderConfig(
        vocabulary=vocabulary,
        width=config.width,
        layers=config.layers,
        heads=config.width // 32,
        kv_heads=config.width // 32,
        head_dim=32,
        feed_forward=config.feed_forward,
        rope_theta=10_000.0,
        norm_epsilon=1e-5,
        qkv_bias=False,
        tied_embedding=True,
    )


class SoftBatch(NamedTuple):
    """Packed transcripts [B, T], and the distributions of the tokens to imitate.

    Attributes:
      tokens: int32 [B, T]; positions, segments: as the decoder takes them.
      places: int32 [N], flat indices into [B, T] of what each of these tokens is predicted from; far fewer than
        B * T, since most of a transcript is what the player reads.
      targets: float32 [N, V], with which probability each token comes next there; 0 where nothing is imitated.
    """

    tokens: np.ndarray
    positions: np.ndarray
    segments: np.ndarray
    places: np.ndarray
    targets: np.ndarray


AT_ONCE = 3  # micro-batches
_PLACES = 256  # N is a multiple of it, so that few shapes are compiled


class Packer:
    """Packs transcripts into the micro-batches of an update."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._choices = functools.lru_cache(100_000)(lambda exchange: transcripts.choices(exchange, tokenizer))

    def pack(self, chosen: Sequence[transcripts.Transcript], length: int, rows: int) -> list[SoftBatch]:
        """Returns micro-batches of transcripts, the longest first, each in the first row that has room for it.

        No transcript is longer than a row, of `length` tokens; a micro-batch has `rows`.
        """
        encoded = [(transcripts.encode(t, self._tokenizer), t) for t in chosen]
        packed: list[list[tuple[Segment, transcripts.Transcript]]] = []
        room: list[int] = []
        for sequence, transcript in sorted(encoded, key=lambda pair: -len(pair[0].token_ids)):
            size = len(sequence.token_ids)
            row = next((row for row, left in enumerate(room) if left >= size), len(room))
            if row == len(room):
                packed.append([])
                room.append(length)
            packed[row].append((sequence, transcript))
            room[row] -= size
        return [self._batch(packed[first : first + rows], length, rows) for first in range(0, len(packed), rows)]

    def _batch(self, packed: list[list[tuple[Segment, transcripts.Transcript]]], length: int, rows: int) -> SoftBatch:
        tokens, positions, segments = (np.zeros((rows, length), np.int32) for _ in range(3))
        places: list[int] = []
        shares: list[dict[int, float]] = []
        for row, sequences in enumerate(packed):
            start = 0
            for segment, (sequence, transcript) in enumerate(sequences, start=1):
                size = len(sequence.token_ids)
                tokens[row, start : start + size] = sequence.token_ids
                positions[row, start : start + size] = np.arange(size)
                segments[row, start : start + size] = segment
                places += (row * length + start - 1 + np.flatnonzero(sequence.mask)).tolist()
                shares += [d for e in transcript.exchanges if e.imitate for d in self._choices(e)]
                start += size
        count = -(-len(places) // _PLACES) * _PLACES
        targets = np.zeros((count, self._tokenizer.vocabulary), np.float32)
        for number, distribution in enumerate(shares):
            targets[number, list(distribution)] = list(distribution.values())
        padded = np.zeros(count, np.int32)
        padded[: len(places)] = places
        return SoftBatch(tokens, positions, segments, padded, targets)


def make_programs(
    model: DecoderConfig, optimizer: optax.GradientTransformation
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns the programs of an update: the gradient of a batch, and the optimizer's step on the sum."""

    def objective(params: Params, batch: SoftBatch) -> jax.Array:
        module = bind(model, params)
        tokens, positions, segments, places, targets = map(jnp.asarray, batch)
        hidden = module(tokens, positions, segments)
        # Only the positions that predict an imitated token need the vocabulary: about a third of all.
        hidden = hidden.reshape(-1, hidden.shape[-1])[places]
        logits = jnp.matmul(hidden, module.output_embedding.T, preferred_element_type=jnp.float32)
        return -jnp.sum(targets * jax.nn.log_softmax(logits, axis=-1))

    @jax.jit
    def gradient(params: Params, batch: SoftBatch) -> tuple[jax.Array, Params]:
        return jax.value_and_grad(objective)(params, batch)

    @jax.jit
    def apply(
        params: Params, state: optax.OptState, total: Params, weight: jax.Array
    ) -> tuple[Params, optax.OptState, jax.Array, jax.Array, jax.Array]:
        mean = jax.tree.map(lambda g: g / weight, total)
        updates, state = optimizer.update(mean, state, params)
        moved = divergence.share(params, updates)
        params = optax.apply_updates(params, updates)
        return (
            params,
            state,
            jnp.sqrt(sum(jnp.square(g).sum() for g in jax.tree.leaves(mean))),
            divergence.largest(params),
            moved,
        )

    return gradient, apply


def make_update(model: DecoderConfig, optimizer: optax.GradientTransformation, most: float) -> Callable[..., Any]:
    """Returns update(params, state, batches, bounds) -> params, state, mean cross-entropy per imitated token.

    It raises DivergenceError where the result must not be kept; `bounds` are those of `dfc.training.divergence`, `most`
    is `TrainingConfig.max_update`.
    """
    gradient, apply = make_programs(model, optimizer)
    threads = ThreadPoolExecutor(AT_ONCE)

    def update(
        params: Params, state: optax.OptState, batches: list[SoftBatch], bounds: np.ndarray
    ) -> tuple[Params, optax.OptState, float]:
        loss, total = 0.0, None
        weight = np.float32(sum(float(batch.targets.sum()) for batch in batches))
        # One small batch does not keep a CPU's cores busy; several at once do. They are added in their order.
        for value, found in threads.map(functools.partial(gradient, params), batches):
            loss += float(value)
            total = found if total is None else jax.tree.map(jnp.add, total, found)
        params, state, norm, largest, moved = apply(params, state, total, weight)
        loss /= float(weight)
        divergence.refuse(
            params,
            np.asarray(largest),
            bounds,
            loss=loss,
            gradient_norm=float(norm),
            moved=float(moved),
            most=most,
        )
        return params, state, loss

    return update
