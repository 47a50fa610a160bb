"""What comes in: checked for shape and type, widened to float32, with gradients only where they belong."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dfc.losses.sequences import Packing

_LOWEST = -1e30  # of a log-probability: differences and sums of such stay finite, those of minus infinity are NaN


def not_negative(where: str, **coefficients: float) -> None:
    """Refuses coefficients that are below 0 or not a number."""
    for name, value in coefficients.items():
        if not value >= 0:
            raise ValueError(f"{where}: {name} must be 0 or more, got {value}")


def one_of(where: str, allowed: tuple[str, ...], **choices: str) -> None:
    """Refuses choices that are not among those allowed."""
    for name, value in choices.items():
        if value not in allowed:
            raise ValueError(f"{where}: {name} must be {' or '.join(map(repr, allowed))}, got {value!r}")


def policy_inputs(
    where: str, logprobs: ArrayLike, mask: ArrayLike, segments: ArrayLike | None, num_segments: int | None
) -> tuple[jax.Array, jax.Array, Packing]:
    """The policy's log-probabilities, which of them count, and how rows are packed."""
    logp = logprobs_input(where, "logprobs", logprobs)
    return logp, *rows_inputs(where, mask, segments, num_segments, logp.shape)


def rows_inputs(
    where: str, mask: ArrayLike, segments: ArrayLike | None, num_segments: int | None, shape: tuple[int, ...]
) -> tuple[jax.Array, Packing]:
    """Which tokens count, and how rows are packed."""
    counted = counted_input(where, "mask", mask, shape)
    if (segments is None) != (num_segments is None):
        raise ValueError(f"{where}: segments and num_segments are given together or not at all")
    if segments is None or num_segments is None:
        return counted, Packing(None, 1)
    array = jnp.asarray(segments)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(f"{where}: segments must have an integer dtype, got {array.dtype}")
    same_shape(where, "segments", array.shape, shape)
    if num_segments < 1:
        raise ValueError(f"{where}: num_segments must be 1 or more, got {num_segments}")
    return counted & (array > 0), Packing(array, num_segments)


def logprobs_input(where: str, name: str, value: ArrayLike) -> jax.Array:
    """The policy's log-probabilities, [batch, time] in float32 or wider, none below `_LOWEST`."""
    return jnp.maximum(token_values_input(where, name, value), _LOWEST)


def token_values_input(where: str, name: str, value: ArrayLike) -> jax.Array:
    """Values per token, [batch, time] in float32 or wider."""
    array = _floating(where, name, value)
    if array.ndim != 2:
        raise ValueError(f"{where}: {name} must be [batch, time], got shape {list(array.shape)}")
    return array if array.dtype.itemsize > 4 else array.astype(jnp.float32)


def counted_input(where: str, name: str, mask: ArrayLike, shape: tuple[int, ...]) -> jax.Array:
    """The mask as booleans; where its values are known, outside of a trace, others than 0 and 1 are refused."""
    array = jnp.asarray(mask)
    same_shape(where, name, array.shape, shape)
    # Log-probabilities have the same shape and type: arguments in another library's order would pass silently.
    if not isinstance(array, jax.core.Tracer) and array.dtype != bool and array.is_fully_addressable:
        values = np.asarray(array.astype(jnp.float32))
        wrong = values[(values != 0) & (values != 1)]
        if wrong.size:
            raise ValueError(f"{where}: {name} must be 1 at action tokens and 0 elsewhere, got {wrong[0]:.6g}")
    return array.astype(bool)


def constant_input(where: str, name: str, value: ArrayLike, like: jax.Array) -> jax.Array:
    """Log-probabilities that carry no gradient, in the shape and dtype of the policy's, none below `_LOWEST`."""
    array = _floating(where, name, value)
    same_shape(where, name, array.shape, like.shape)
    return jax.lax.stop_gradient(jnp.maximum(array.astype(like.dtype), _LOWEST))


def advantages_input(where: str, value: ArrayLike, like: jax.Array) -> jax.Array:
    """Advantages, [batch] or [batch, time], as [batch, time] without gradient."""
    array = _floating(where, "advantages", value)
    if array.shape not in (like.shape[:1], like.shape):
        raise ValueError(
            f"{where}: advantages must be [batch] = {list(like.shape[:1])} or [batch, time] = {list(like.shape)},"
            f" got {list(array.shape)}"
        )
    if array.ndim == 1:
        array = jnp.broadcast_to(array[:, None], like.shape)
    return jax.lax.stop_gradient(array.astype(like.dtype))


def _floating(where: str, name: str, value: ArrayLike) -> jax.Array:
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{where}: {name} must have a floating dtype, got {array.dtype}")
    return array


def same_shape(where: str, name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Refuses another shape than that of the policy's log-probabilities."""
    if shape != expected:
        raise ValueError(f"{where}: {name} must be [batch, time] = {list(expected)}, got {list(shape)}")
