"""What all log-probabilities have in common: checks of the arguments, and logits from projections."""

import jax
import jax.numpy as jnp


def logits_of(projections: jax.Array, temperature: float, soft_cap: float | None) -> jax.Array:
    """Returns projections to the vocabulary, float32, capped and divided by the temperature."""
    if soft_cap is not None:
        projections = soft_cap * jnp.tanh(projections / soft_cap)
    return projections / temperature


def checked(
    where: str,
    hidden: jax.Array,
    embedding: jax.Array,
    targets: jax.Array,
    counts: dict[str, int | None],
    temperature: float,
    soft_cap: float | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns hidden states and embedding in one type and targets as int32.

    `where` is the name of the function that was called, `counts` has its arguments that must be 1 or more, by name.

    Raises:
      ValueError: shapes, types or numbers do not fit.
    """
    for name, array in (("hidden", hidden), ("output_embedding", embedding)):
        if array.ndim != 2 or not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(
                f"{where}: {name} must be floating with two axes, got {array.dtype} {list(array.shape)};"
                " flatten [batch, time, width] to [tokens, width]"
            )
    if hidden.shape[1] != embedding.shape[1]:
        raise ValueError(
            f"{where}: hidden has width {hidden.shape[1]} but output_embedding, [vocabulary, width], has"
            f" {embedding.shape[1]}; transpose a [width, vocabulary] matrix"
        )
    if targets.shape != hidden.shape[:1] or not jnp.issubdtype(targets.dtype, jnp.integer):
        raise ValueError(
            f"{where}: targets must be int [tokens] = {list(hidden.shape[:1])}, got {targets.dtype}"
            f" {list(targets.shape)}"
        )
    for name, number in counts.items():
        if number is not None and number < 1:
            raise ValueError(f"{where}: {name} must be 1 or more, got {number}")
    shards = counts["vocab_shards"]
    if shards is not None and embedding.shape[0] % shards:
        raise ValueError(
            f"{where}: vocab_shards must divide the vocabulary of {embedding.shape[0]} tokens, got"
            f" {shards}; use 1 if the vocabulary axis is not split over devices"
        )
    if not temperature > 0:
        raise ValueError(f"{where}: temperature must be above 0, got {temperature}; use 1 if greedy")
    if soft_cap is not None and not soft_cap > 0:
        raise ValueError(f"{where}: soft_cap must be above 0 or None, got {soft_cap}")
    dtype = hidden.dtype if hidden.dtype == embedding.dtype else jnp.float32
    return hidden.astype(dtype), embedding.astype(dtype), targets.astype(jnp.int32)
