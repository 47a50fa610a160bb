"""What every loss returns: a sum with its weight."""

import dataclasses
import functools

import jax
import jax.numpy as jnp


@functools.partial(jax.tree_util.register_dataclass, data_fields=["total", "weight", "metrics"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss as a sum with its weight; a pytree.

    The losses of two micro-batches are joined by `jax.tree.map(jnp.add, first, second)`.

    Attributes:
      total: scalar, the sum of the loss over its units.
      weight: scalar, the number of units; each function states what its unit is. It carries no gradient.
      metrics: named scalars, each a sum over the same units. They carry no gradient.
    """

    total: jax.Array
    weight: jax.Array
    metrics: dict[str, jax.Array]

    @property
    def mean(self) -> jax.Array:
        """`total / weight`; 0, with a zero gradient, where the weight is 0."""
        return _divide(self.total, self.weight)

    @property
    def metric_means(self) -> dict[str, jax.Array]:
        """Every metric divided by the weight; 0 where the weight is 0."""
        return {name: _divide(value, self.weight) for name, value in self.metrics.items()}


def summed(total: jax.Array, weight: jax.Array, metrics: dict[str, jax.Array]) -> Loss:
    """A loss of which only the total carries a gradient."""
    return Loss(total, weight.astype(total.dtype), jax.lax.stop_gradient(metrics))


def _divide(total: jax.Array, weight: jax.Array) -> jax.Array:
    return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1), 0)
