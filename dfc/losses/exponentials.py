"""Exponentials of log-ratios times a factor: right up to half of the largest number, bounded beyond, never NaN."""

import math

import jax
import jax.numpy as jnp
import numpy as np

# Within these bounds of exponent and scale a plain product neither overflows nor vanishes in float32.
_SAFE_EXPONENT, _SAFE_SCALE = 40.0, 1e15


def scaled_exp(exponent: jax.Array, scale: jax.Array | float) -> jax.Array:
    """Returns scale * exp(exponent), with its derivative by the exponent.

    Right up to half of the largest number of the dtype, even if exp(exponent) alone is larger. Beyond, the value stays
    at that half (1.7e38 in float32) with the sign of `scale`, and the derivative is that number, too: the direction
    stays, the size is bounded, and two such terms can be added.

    Args:
      exponent: floating, finite.
      scale: a constant; no gradient passes through it. Broadcast against the exponent.

    >>> [f"{x:.3g}" for x in scaled_exp(jnp.asarray([0.0, 95.0, 1000.0]), jnp.asarray([-2.0, 1e-10, 1.0]))]
    ['-2', '1.81e+31', '1.7e+38']
    """
    scale = jax.lax.stop_gradient(jnp.asarray(scale, exponent.dtype))
    bound = math.log(float(np.finfo(exponent.dtype).max) / 2) - 1e-4
    safe = (jnp.abs(exponent) < _SAFE_EXPONENT) & (jnp.abs(scale) < _SAFE_SCALE)
    product = jnp.exp(jnp.where(safe, exponent, 0)) * scale
    log_product = jnp.where(safe, 0, exponent) + jnp.log(jnp.abs(scale))
    # The difference is 0 and has the derivative 1, however large the exponent is.
    log_product = jnp.where(log_product > bound, bound + (exponent - jax.lax.stop_gradient(exponent)), log_product)
    return jnp.where(safe, product, jnp.sign(scale) * jnp.exp(log_product))


def k3_divergence(gap: jax.Array, scale: float = 1.0) -> jax.Array:
    """Returns scale * (exp(gap) - gap - 1), the k3 estimate of a KL divergence, bounded as `scaled_exp` is.

    Args:
      gap: log pi_ref - log pi, floating, finite.
      scale: above 0, a constant.
    """
    safe = gap < _SAFE_EXPONENT
    near = jnp.where(safe, gap, 0)
    far = scaled_exp(jnp.where(safe, 0, gap), scale) - scale * (gap + 1)
    return jnp.where(safe, scale * (jnp.expm1(near) - near), far)
