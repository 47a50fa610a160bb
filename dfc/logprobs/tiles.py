"""Log-probabilities of chosen tokens, without ever holding many logits at a time.

Logits of [tokens, vocabulary] are usually the largest array of a training step: 65,536 tokens and a vocabulary of
150,000 in float32 take 39 GB. Here one tile of them, [token_chunk, vocab_chunk], is projected, reduced to a few
numbers per token and discarded; the backward pass projects it again. Sums of exponentials over tiles are kept relative
to the largest logit so far, and rescaled when that grows (Milakov and Gimelshein 2018, arXiv:1805.02867, algorithm 3).

Where all logits take less than `WHOLE_BYTES` they are held at once, for the backward pass too: tiles save little there,
and their sums take time.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp

from dfc.logprobs.inputs import checked, logits_of

# Rows of each vocabulary shard whose logits are formed at a time: a multiple of 128, as matrix units like, and no power
# of two. Rows of 1,024 logits are 4,096 bytes, and all entries of a column fall into the same sets of a CPU's cache.
VOCAB_CHUNK = 896
WHOLE_BYTES = 128 * 2**20  # fewer than these, float32 logits of all tokens and the whole vocabulary are held at once
_Carry = TypeVar("_Carry")
_Chunks = TypeVar("_Chunks")
_Results = TypeVar("_Results")


def token_logprobs(
    hidden: jax.Array,
    output_embedding: jax.Array,
    targets: jax.Array,
    *,
    token_chunk: int | None = None,
    vocab_chunk: int | None = None,
    vocab_shards: int = 1,
    temperature: float = 1.0,
    soft_cap: float | None = None,
) -> jax.Array:
    """Log-probability of one target token id per token.

    With z = hidden @ output_embedding^T, capped to soft_cap * tanh(z / soft_cap) if a cap is given, and
    l = z / temperature::

        logprob[n] = l[n, targets[n]] - log sum_v exp(l[n, v])

    Logits, sums and results are float32, whatever the inputs are. Gradients (reverse mode) flow into `hidden` and
    `output_embedding`; both are accumulated over tiles in float32 and cast at the end.

    Args:
      hidden: floating [tokens, width], the final hidden states; a batch is flattened first.
      output_embedding: floating [vocabulary, width].
      targets: int [tokens]. An id outside the vocabulary gives NaN, which a loss ignores where its mask is 0.
      token_chunk: tokens projected at a time. By default all of them where that makes `vocab_chunk` the whole
        vocabulary, otherwise 1024 if the vocabulary fits one tile, else 8192.
      vocab_chunk: rows of each vocabulary shard projected at a time. By default the whole vocabulary where it has one
        shard, no `token_chunk` cuts the tokens, and the logits of all of them take less than `WHOLE_BYTES`; otherwise
        `VOCAB_CHUNK`. With all tokens and the whole vocabulary in one tile there is no loop.
      vocab_shards: number of devices the vocabulary axis of `output_embedding` is split over; divides the vocabulary.
        Each device then works on its own rows of it. Another number gives the same result, but devices send each other
        rows.
      temperature: above 0; that of sampling, if log-probabilities are to match the sampler's.
      soft_cap: above 0, or None.

    Returns:
      float32 [tokens].

    Raises:
      ValueError: shapes, types or numbers do not fit.

    >>> embedding = jnp.asarray([[0.0], [jnp.log(3.0)]])
    >>> [round(float(x), 4) for x in jnp.exp(token_logprobs(jnp.ones((2, 1)), embedding, jnp.asarray([0, 1])))]
    [0.25, 0.75]
    """
    head = _Head(temperature, soft_cap, VOCAB_CHUNK, vocab_shards, entropy=False)
    return _computed(hidden, output_embedding, targets, token_chunk, vocab_chunk, head)[0]


def token_logprobs_and_entropy(
    hidden: jax.Array,
    output_embedding: jax.Array,
    targets: jax.Array,
    *,
    token_chunk: int | None = None,
    vocab_chunk: int | None = None,
    vocab_shards: int = 1,
    temperature: float = 1.0,
    soft_cap: float | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Log-probability of one target token id per token, and the entropy of the distribution it comes from.

    With p = softmax(l), entropy[n] = -sum_v p[n, v] log p[n, v] in nats. Gradients flow through both results.
    Arguments, their shapes and defaults, and errors are those of `token_logprobs`.

    Returns:
      Two float32 arrays, [tokens] each.

    >>> _, entropy = token_logprobs_and_entropy(jnp.ones((1, 1)), jnp.ones((4, 1)), jnp.asarray([0]))
    >>> round(float(entropy[0]), 4)  # log 4
    1.3863
    """
    head = _Head(temperature, soft_cap, VOCAB_CHUNK, vocab_shards, entropy=True)
    return _computed(hidden, output_embedding, targets, token_chunk, vocab_chunk, head)


class _Tile(NamedTuple):
    """A share of the vocabulary, the same positions of every shard."""

    start: jax.Array  # position in each shard
    embedding: jax.Array  # [shards, vocabulary, width]
    token_ids: jax.Array  # int32 [shards, vocabulary]
    new: jax.Array | None  # bool [1, 1, vocabulary], False for those that an earlier tile has had; None: all are new


@dataclasses.dataclass(frozen=True)
class _Head:
    """What turns hidden states into logits, and how the vocabulary is cut into tiles."""

    temperature: float
    soft_cap: float | None
    vocab_chunk: int
    vocab_shards: int
    entropy: bool

    def logits(self, projections: jax.Array) -> jax.Array:
        """Projections to the vocabulary, float32, capped and divided by the temperature."""
        return logits_of(projections, self.temperature, self.soft_cap)

    def projection_gradient(
        self,
        logits: jax.Array,
        is_target: jax.Array,
        normalizers: jax.Array,
        entropies: jax.Array,
        gradients: tuple[jax.Array, jax.Array],
    ) -> jax.Array:
        """Gradient with respect to the projections, given those with respect to log-probabilities and entropies.

        All arrays have the axes of the logits, those per token with 1 for the vocabulary.
        """
        logprob_gradient, entropy_gradient = gradients
        p = jnp.exp(logits - normalizers)
        # d logprob / d logits = one_hot - p;  d entropy / d logits = -p (log p + entropy), 0 where p is 0.
        gradient = logprob_gradient * (is_target.astype(jnp.float32) - p)
        if self.entropy:
            surprise = jnp.where(p > 0, logits - normalizers, 0) + entropies
            gradient -= entropy_gradient * p * surprise
        gradient = gradient / self.temperature
        if self.soft_cap is not None:
            gradient = gradient * (1 - jnp.square(logits * self.temperature / self.soft_cap))
        return gradient

    def over_tiles(self, embedding: jax.Array, step: Callable[[_Tile, _Carry], _Carry], carry: _Carry) -> _Carry:
        """Folds `step` over the tiles of embedding [shards, vocabulary of a shard, width]."""
        shards, shard, _ = embedding.shape
        tiles = -(-shard // self.vocab_chunk)
        # Equal shares in multiples of 128, which matrix units like; the last tile starts early, to be of full size.
        size = min(self.vocab_chunk, shard, -(-shard // (128 * tiles)) * 128)
        tiles = -(-shard // size)

        def one_tile(index: jax.Array | int, carry: _Carry) -> _Carry:
            start = jnp.minimum(index * size, shard - size)
            # Cut along an axis no device shares with another, so that each cuts its own rows.
            rows = jax.lax.dynamic_slice_in_dim(embedding, start, size, axis=1)
            place = start + jnp.arange(size, dtype=jnp.int32)[None, :]
            token_ids = place + shard * jnp.arange(shards, dtype=jnp.int32)[:, None]
            new = None if shard % size == 0 else (place >= index * size)[None]
            return step(_Tile(start, rows, token_ids, new), carry)

        return one_tile(0, carry) if tiles == 1 else cast("_Carry", jax.lax.fori_loop(0, tiles, one_tile, carry))


def _computed(
    hidden: jax.Array,
    embedding: jax.Array,
    targets: jax.Array,
    token_chunk: int | None,
    vocab_chunk: int | None,
    head: _Head,
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities and entropies (0 if not asked for), [tokens] each."""
    if vocab_chunk is not None:
        head = dataclasses.replace(head, vocab_chunk=vocab_chunk)
    counts = {"token_chunk": token_chunk, "vocab_chunk": head.vocab_chunk, "vocab_shards": head.vocab_shards}
    arrays = checked("token_logprobs", hidden, embedding, targets, counts, head.temperature, head.soft_cap)
    tokens, vocabulary = hidden.shape[0], embedding.shape[0]
    # A shard of the vocabulary is on a device of its own, which `_all_chunks` handles.
    unsplit = vocab_chunk is None and head.vocab_shards == 1 and (token_chunk is None or token_chunk >= tokens)
    if unsplit and 4 * tokens * vocabulary < WHOLE_BYTES:
        return _all_at_once(*arrays, head)
    return _in_chunks(*arrays, token_chunk, head)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _all_at_once(
    hidden: jax.Array, embedding: jax.Array, targets: jax.Array, head: _Head
) -> tuple[jax.Array, jax.Array]:
    """The same from the logits of all tokens and the whole vocabulary, [tokens, vocabulary]."""
    return _all_at_once_saving(hidden, embedding, targets, head)[0]


def _all_at_once_saving(
    hidden: jax.Array, embedding: jax.Array, targets: jax.Array, head: _Head
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, ...]]:
    vocabulary = embedding.shape[0]
    logits = head.logits(jnp.einsum("nd,vd->nv", hidden, embedding, preferred_element_type=jnp.float32))
    zero = _finite_or_0(logits.max(axis=1, initial=-jnp.inf))
    shifted = logits - zero[:, None]
    p = jnp.exp(shifted)
    total = p.sum(axis=1)
    log_total = jnp.log(total)
    chosen = jnp.where(_chosen(targets, vocabulary), logits, 0).sum(axis=1)
    chosen = jnp.where((targets >= 0) & (targets < vocabulary), chosen, jnp.nan)
    entropy = jnp.zeros_like(total)
    if head.entropy:  # A token id of probability 0 adds 0, even if its logit is -inf.
        entropy = log_total - jnp.where(p > 0, p * shifted, 0).sum(axis=1) / total
    # Logits are kept rather than computed again: inside one program XLA would merge both products into one anyway.
    return (chosen - zero - log_total, entropy), (hidden, embedding, targets, logits, zero + log_total, entropy)


def _all_at_once_backward(
    head: _Head, residuals: tuple[jax.Array, ...], gradients: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, None]:
    hidden, embedding, targets, logits = residuals[:4]
    normalizers, entropies, for_logprobs, for_entropies = (x[:, None] for x in (*residuals[4:], *gradients))
    is_target = _chosen(targets, embedding.shape[0])
    gradient = head.projection_gradient(logits, is_target, normalizers, entropies, (for_logprobs, for_entropies))
    # As for tiles: products of the operands' type, summed in float32.
    gradient = gradient.astype(hidden.dtype)
    hidden_gradient = jnp.einsum("nv,vd->nd", gradient, embedding, preferred_element_type=jnp.float32)
    embedding_gradient = jnp.einsum("nv,nd->vd", gradient, hidden, preferred_element_type=jnp.float32)
    return hidden_gradient.astype(hidden.dtype), embedding_gradient.astype(embedding.dtype), None


_all_at_once.defvjp(_all_at_once_saving, _all_at_once_backward)


def _chosen(targets: jax.Array, vocabulary: int) -> jax.Array:
    """Bool [tokens, vocabulary], True at each token's target."""
    return jnp.arange(vocabulary, dtype=jnp.int32)[None] == targets[:, None]


def _in_chunks(
    hidden: jax.Array, embedding: jax.Array, targets: jax.Array, token_chunk: int | None, head: _Head
) -> tuple[jax.Array, jax.Array]:
    """The same, a tile of [token_chunk, vocab_chunk] at a time."""
    if token_chunk is None:
        # Small tiles stay in a CPU's cache. Where the vocabulary takes many tiles, few passes over them cost least.
        token_chunk = 1024 if embedding.shape[0] <= head.vocab_chunk * head.vocab_shards else 8192
    (tokens, width), shards = hidden.shape, head.vocab_shards
    chunks = max(1, -(-tokens // token_chunk))
    size = -(-tokens // chunks)
    hidden = jnp.pad(hidden, ((0, chunks * size - tokens), (0, 0)))
    targets = jnp.pad(targets, (0, chunks * size - tokens))
    # Chunk k takes tokens k, k + chunks, k + 2 chunks, ... If the batch, and with it the token axis, is split over
    # devices, every chunk then has its share on every device; contiguous chunks would each be on a single one.
    logprobs, entropy = _all_chunks(
        hidden.reshape(size, chunks, width).swapaxes(0, 1),
        embedding.reshape(shards, embedding.shape[0] // shards, width),
        targets.reshape(size, chunks).T,
        head,
    )
    return logprobs.T.reshape(-1)[:tokens], entropy.T.reshape(-1)[:tokens]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _all_chunks(
    hidden: jax.Array, embedding: jax.Array, targets: jax.Array, head: _Head
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities and entropies (0 if not asked for), [chunks, size] each, of hidden [chunks, size, width]."""
    logprobs, entropy, _ = _forward(hidden, embedding, targets, head)
    return logprobs, entropy


class _Sums(NamedTuple):
    """Sums over the vocabulary seen so far, float32 [tokens, shards]; shards are summed after the last tile."""

    largest: jax.Array  # m = max l
    total: jax.Array  # sum exp(l - m)
    moment: jax.Array  # sum exp(l - m) (l - m); stays 0 where the entropy is not asked for
    chosen: jax.Array  # l of the target, 0 until it is seen

    def rescaled(self, largest: jax.Array) -> tuple[jax.Array, jax.Array]:
        """`total` and `moment` relative to a larger m."""
        shift = jnp.where(self.total > 0, self.largest - largest, 0)
        return jnp.exp(shift) * self.total, jnp.exp(shift) * (self.moment + shift * self.total)


def _forward(hidden: jax.Array, embedding: jax.Array, targets: jax.Array, head: _Head) -> tuple[jax.Array, ...]:
    """Log-probabilities, entropies and logarithms of the normalizers, [chunks, size] each."""
    shards, shard, _ = embedding.shape

    def one_chunk(carry: None, chunk: tuple[jax.Array, jax.Array]) -> tuple[None, tuple[jax.Array, ...]]:
        rows, token_ids = chunk

        def add_tile(tile: _Tile, sums: _Sums) -> _Sums:
            logits = head.logits(_projections(rows, tile))
            # A sum over a choice, not a gather: it stays local where the vocabulary is split over devices.
            chosen = sums.chosen + jnp.where(_is_target(tile, token_ids), logits, 0).sum(axis=2)
            largest = jnp.maximum(sums.largest, logits.max(axis=2))
            zero = _finite_or_0(largest)
            total, moment = sums.rescaled(zero)
            p = jnp.exp(logits - zero[..., None])
            if tile.new is not None:
                p = jnp.where(tile.new, p, 0)
            if head.entropy:  # A token id of probability 0 adds 0, even if its logit is -inf.
                moment += jnp.where(p > 0, p * (logits - zero[..., None]), 0).sum(axis=2)
            return _Sums(largest, total + p.sum(axis=2), moment, chosen)

        nothing = jnp.zeros((rows.shape[0], shards), jnp.float32)
        sums = head.over_tiles(embedding, add_tile, _Sums(nothing - jnp.inf, nothing, nothing, nothing))
        zero = _finite_or_0(sums.largest.max(axis=1, keepdims=True))
        total, moment = (x.sum(axis=1) for x in sums.rescaled(zero))
        log_total = jnp.log(total)
        # Invalid targets were found nowhere.
        chosen = jnp.where((token_ids >= 0) & (token_ids < shards * shard), sums.chosen.sum(axis=1), jnp.nan)
        entropy = log_total - moment / total if head.entropy else jnp.zeros_like(total)
        return carry, (chosen - zero[:, 0] - log_total, entropy, zero[:, 0] + log_total)

    return _over_chunks(one_chunk, None, (hidden, targets))[1]


def _forward_saving(
    hidden: jax.Array, embedding: jax.Array, targets: jax.Array, head: _Head
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, ...]]:
    logprobs, entropy, normalizer = _forward(hidden, embedding, targets, head)
    return (logprobs, entropy), (hidden, embedding, targets, normalizer, entropy)


def _backward(
    head: _Head, residuals: tuple[jax.Array, ...], gradients: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, None]:
    hidden, embedding, targets, normalizer, entropy = residuals

    def one_chunk(embedding_gradient: jax.Array, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        rows, token_ids = chunk[:2]
        normalizers, entropies, *gradients = (x[:, None, None] for x in chunk[2:])
        chunk_gradients = (gradients[0], gradients[1])

        def add_tile(tile: _Tile, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            embedding_sum, rows_sum = sums
            logits = head.logits(_projections(rows, tile))
            is_target = _is_target(tile, token_ids)
            gradient = head.projection_gradient(logits, is_target, normalizers, entropies, chunk_gradients)
            if tile.new is not None:
                gradient = jnp.where(tile.new, gradient, 0)
            # The matrix products run in the type of the operands, as in the forward pass, and sum in float32.
            gradient = gradient.astype(rows.dtype)
            rows_sum += jnp.einsum("nsv,svd->snd", gradient, tile.embedding, preferred_element_type=jnp.float32)
            part = jnp.einsum("nsv,nd->svd", gradient, rows, preferred_element_type=jnp.float32)
            part += jax.lax.dynamic_slice_in_dim(embedding_sum, tile.start, part.shape[1], axis=1).astype(jnp.float32)
            part = part.astype(embedding_sum.dtype)
            return jax.lax.dynamic_update_slice_in_dim(embedding_sum, part, tile.start, axis=1), rows_sum

        # Each shard sums its own gradient of the rows; devices exchange them once, after the last tile.
        start = jnp.zeros((embedding.shape[0], *rows.shape), jnp.float32)
        embedding_gradient, rows_gradient = head.over_tiles(embedding, add_tile, (embedding_gradient, start))
        return embedding_gradient, rows_gradient.sum(axis=0).astype(rows.dtype)

    chunks = (hidden, targets, normalizer, entropy, *gradients)
    # A single chunk reads each row of the vocabulary once: its gradient is then complete, and no float32 copy of all of
    # them is needed.
    start = jnp.zeros(embedding.shape, embedding.dtype if hidden.shape[0] == 1 else jnp.float32)
    embedding_gradient, hidden_gradient = _over_chunks(one_chunk, start, chunks)
    return hidden_gradient, embedding_gradient.astype(embedding.dtype), None


_all_chunks.defvjp(_forward_saving, _backward)


def _over_chunks(
    step: Callable[[_Carry, _Chunks], tuple[_Carry, _Results]], carry: _Carry, chunks: _Chunks
) -> tuple[_Carry, _Results]:
    """A scan over the first axis of all arrays; without a loop if its length is 1."""
    if jax.tree.leaves(chunks)[0].shape[0] > 1:
        return cast("tuple[_Carry, _Results]", jax.lax.scan(step, carry, chunks))
    carry, results = step(carry, jax.tree.map(lambda x: x[0], chunks))
    return carry, jax.tree.map(lambda x: x[None], results)


def _projections(hidden: jax.Array, tile: _Tile) -> jax.Array:
    """float32 [tokens, shards, vocabulary]."""
    return jnp.einsum("nd,svd->nsv", hidden, tile.embedding, preferred_element_type=jnp.float32)


def _is_target(tile: _Tile, targets: jax.Array) -> jax.Array:
    """Bool [tokens, shards, vocabulary], True at each token's target."""
    match = tile.token_ids[None] == targets[:, None, None]
    return match if tile.new is None else match & tile.new


def _finite_or_0(x: jax.Array) -> jax.Array:
    """A reference to subtract from logits: if all are -inf, or one is inf, they are left as they are."""
    return jnp.where(jnp.isfinite(x), x, 0)
