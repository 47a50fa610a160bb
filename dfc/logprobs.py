"""Log-probabilities of chosen ids, without ever holding the logits of all tokens at once.

Logits of [tokens, vocabulary] are usually the largest array of a training step: 65,536 tokens and 150,000 ids in
float32 take 39 GB. Here a chunk of tokens is projected, reduced to a few numbers per token and forgotten; the backward
pass projects it again. At most [token_chunk, vocabulary] logits exist at a time (a few copies of them in the
backward pass).
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp


def token_logprobs(
    hidden: jax.Array,
    output_embedding: jax.Array,
    targets: jax.Array,
    *,
    token_chunk: int = 1024,
    temperature: float = 1.0,
    soft_cap: float | None = None,
) -> jax.Array:
    """Log-probability of one target id per token.

    With z = hidden @ output_embedding^T, capped to soft_cap * tanh(z / soft_cap) if a cap is given, and
    l = z / temperature::

        logprob[n] = l[n, targets[n]] - log sum_v exp(l[n, v])

    Logits, sums and results are float32, whatever the inputs are. Gradients (reverse mode) flow into `hidden` and
    `output_embedding`; the embedding's is accumulated over chunks in float32 and cast at the end.

    Args:
      hidden: floating [tokens, width], the final hidden states; a batch is flattened first.
      output_embedding: floating [vocabulary, width].
      targets: int [tokens]. An id outside the vocabulary gives NaN, which a loss ignores where its mask is 0.
      token_chunk: tokens projected at a time; up to this many tokens there is a single projection and no loop.
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
    return _in_chunks(hidden, output_embedding, targets, token_chunk, _Head(temperature, soft_cap))[0]


def token_logprobs_and_entropy(
    hidden: jax.Array,
    output_embedding: jax.Array,
    targets: jax.Array,
    *,
    token_chunk: int = 1024,
    temperature: float = 1.0,
    soft_cap: float | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Log-probability of one target id per token, and the entropy of the distribution it comes from.

    With p = softmax(l), entropy[n] = -sum_v p[n, v] log p[n, v] in nats. Everything else, arguments included, is as
    for `token_logprobs`; gradients flow through both results.

    Args:
      hidden: floating [tokens, width].
      output_embedding: floating [vocabulary, width].
      targets: int [tokens].
      token_chunk: tokens projected at a time.
      temperature: above 0.
      soft_cap: above 0, or None.

    Returns:
      Two float32 arrays, [tokens] each.

    Raises:
      ValueError: shapes, types or numbers do not fit.

    >>> _, entropy = token_logprobs_and_entropy(jnp.ones((1, 1)), jnp.ones((4, 1)), jnp.asarray([0]))
    >>> round(float(entropy[0]), 4)  # log 4
    1.3863
    """
    return _in_chunks(hidden, output_embedding, targets, token_chunk, _Head(temperature, soft_cap))


@dataclasses.dataclass(frozen=True)
class _Head:
    """What turns projections into logits."""

    temperature: float
    soft_cap: float | None

    def logits(self, hidden: jax.Array, embedding: jax.Array) -> jax.Array:
        """float32 [tokens, vocabulary]."""
        logits = jnp.einsum("nd,vd->nv", hidden, embedding, preferred_element_type=jnp.float32)
        if self.soft_cap is not None:
            logits = self.soft_cap * jnp.tanh(logits / self.soft_cap)
        return logits / self.temperature

    def projection_gradient(self, logits: jax.Array, gradient: jax.Array) -> jax.Array:
        """Gradient with respect to the projections, given the one with respect to the logits."""
        gradient = gradient / self.temperature
        if self.soft_cap is not None:
            gradient = gradient * (1 - jnp.square(logits * self.temperature / self.soft_cap))
        return gradient


def _in_chunks(
    hidden: jax.Array, embedding: jax.Array, targets: jax.Array, token_chunk: int, head: _Head
) -> tuple[jax.Array, jax.Array]:
    _check(hidden, embedding, targets, token_chunk, head)
    dtype = hidden.dtype if hidden.dtype == embedding.dtype else jnp.float32
    tokens = hidden.shape[0]
    chunks = max(1, -(-tokens // token_chunk))
    size = -(-tokens // chunks)
    hidden = jnp.pad(hidden.astype(dtype), ((0, chunks * size - tokens), (0, 0)))
    targets = jnp.pad(targets, (0, chunks * size - tokens))
    # Chunk k takes tokens k, k + chunks, k + 2 chunks, ... If the batch, and with it the token axis, is split over
    # devices, every chunk then has its share on every device; contiguous chunks would each lie on a single one.
    logprobs, entropy = _all_chunks(
        hidden.reshape(size, chunks, -1).swapaxes(0, 1), embedding.astype(dtype), targets.reshape(size, chunks).T, head
    )
    return logprobs.T.reshape(-1)[:tokens], entropy.T.reshape(-1)[:tokens]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _all_chunks(
    hidden: jax.Array, embedding: jax.Array, targets: jax.Array, head: _Head
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities and entropies, [chunks, size] each, of hidden [chunks, size, width]."""
    logprobs, entropy, _ = _forward(hidden, embedding, targets, head)
    return logprobs, entropy


def _forward(
    hidden: jax.Array, embedding: jax.Array, targets: jax.Array, head: _Head
) -> tuple[jax.Array, jax.Array, jax.Array]:
    def one_chunk(chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        rows, ids = chunk
        logits = head.logits(rows, embedding)
        normalizer = jax.nn.logsumexp(logits, axis=1)
        # A sum over a one-hot choice, not a gather: it stays local where the vocabulary is split over devices.
        chosen = jnp.where(_one_hot(ids, logits) > 0, logits, 0).sum(axis=1)
        chosen = jnp.where((ids >= 0) & (ids < embedding.shape[0]), chosen, jnp.nan)
        log_p = logits - normalizer[:, None]
        return chosen - normalizer, -_sum_p(log_p, log_p), normalizer

    if hidden.shape[0] == 1:
        logprobs, entropy, normalizer = one_chunk((hidden[0], targets[0]))
        return logprobs[None], entropy[None], normalizer[None]
    logprobs, entropy, normalizer = jax.lax.map(one_chunk, (hidden, targets))
    return logprobs, entropy, normalizer


_Residuals = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]


def _forward_saving(
    hidden: jax.Array, embedding: jax.Array, targets: jax.Array, head: _Head
) -> tuple[tuple[jax.Array, jax.Array], _Residuals]:
    logprobs, entropy, normalizer = _forward(hidden, embedding, targets, head)
    return (logprobs, entropy), (hidden, embedding, targets, normalizer, entropy)


def _backward(
    head: _Head, residuals: _Residuals, gradients: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, None]:
    hidden, embedding, targets, normalizer, entropy = residuals

    def one_chunk(
        embedding_gradient: jax.Array,
        chunk: tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array]:
        rows, ids, normalizers, entropies, logprob_gradient, entropy_gradient = chunk
        logits = head.logits(rows, embedding)
        log_p = logits - normalizers[:, None]
        p = jnp.exp(log_p)
        # d logprob / d logits = one_hot - p;  d entropy / d logits = -p (log p + entropy), 0 where p is 0.
        surprise = jnp.where(p > 0, log_p, 0) + entropies[:, None]
        gradient = logprob_gradient[:, None] * (_one_hot(ids, logits) - p) - entropy_gradient[:, None] * p * surprise
        # The matrix products run in the type of the operands, as in the forward pass, and sum in float32.
        gradient = head.projection_gradient(logits, gradient).astype(rows.dtype)
        rows_gradient = jnp.einsum("nv,vd->nd", gradient, embedding, preferred_element_type=jnp.float32)
        embedding_gradient = embedding_gradient + jnp.einsum(
            "nv,nd->vd", gradient, rows, preferred_element_type=jnp.float32
        )
        return embedding_gradient, rows_gradient.astype(rows.dtype)

    chunks = (hidden, targets, normalizer, entropy, *gradients)
    start = jnp.zeros(embedding.shape, jnp.float32)
    if hidden.shape[0] == 1:
        embedding_gradient, only = one_chunk(start, jax.tree.map(lambda x: x[0], chunks))
        hidden_gradient = only[None]
    else:
        embedding_gradient, hidden_gradient = jax.lax.scan(one_chunk, start, chunks)
    return hidden_gradient, embedding_gradient.astype(embedding.dtype), None


_all_chunks.defvjp(_forward_saving, _backward)


def _one_hot(ids: jax.Array, logits: jax.Array) -> jax.Array:
    """[tokens, vocabulary], 1 at each token's id."""
    return jax.nn.one_hot(ids, logits.shape[1], dtype=logits.dtype)


def _sum_p(log_p: jax.Array, values: jax.Array) -> jax.Array:
    """Expectation of values under p; an id of probability 0 adds 0, even if its log-probability is -inf."""
    p = jnp.exp(log_p)
    return jnp.where(p > 0, p * jnp.where(p > 0, values, 0), 0).sum(axis=1)


def _check(hidden: jax.Array, embedding: jax.Array, targets: jax.Array, token_chunk: int, head: _Head) -> None:
    for name, array in (("hidden", hidden), ("output_embedding", embedding)):
        if array.ndim != 2 or not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(
                f"token_logprobs: {name} must be floating with two axes, got {array.dtype} {list(array.shape)};"
                " flatten [batch, time, width] to [tokens, width]"
            )
    if hidden.shape[1] != embedding.shape[1]:
        raise ValueError(
            f"token_logprobs: hidden has width {hidden.shape[1]} but output_embedding, [vocabulary, width], has"
            f" {embedding.shape[1]}; transpose a [width, vocabulary] matrix"
        )
    if targets.shape != hidden.shape[:1] or not jnp.issubdtype(targets.dtype, jnp.integer):
        raise ValueError(
            f"token_logprobs: targets must be int [tokens] = {list(hidden.shape[:1])}, got {targets.dtype}"
            f" {list(targets.shape)}"
        )
    if token_chunk < 1:
        raise ValueError(f"token_logprobs: token_chunk must be 1 or more, got {token_chunk}")
    if not head.temperature > 0:
        raise ValueError(
            f"token_logprobs: temperature must be above 0, got {head.temperature}; for greedy sampling use 1"
        )
    if head.soft_cap is not None and not head.soft_cap > 0:
        raise ValueError(f"token_logprobs: soft_cap must be above 0 or None, got {head.soft_cap}")
