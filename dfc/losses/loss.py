"""What every loss returns: a sum with its weight."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from dfc.losses.importance import ImportanceSums


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["total", "weight", "metrics", "importance"], meta_fields=[]
)
@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss as a sum with its weight; a pytree.

    The losses of two micro-batches, of one function with the same options, are joined by ``first + second``.

    Attributes:
      total: scalar, the sum of the loss over its units.
      weight: scalar, the number of units; each function states what its unit is. It carries no gradient.
      metrics: named scalars, each a sum over the same units. They carry no gradient.
      importance: how the importance weights spread that the loss was corrected by; None where it was not.
    """

    total: jax.Array
    weight: jax.Array
    metrics: dict[str, jax.Array]
    importance: ImportanceSums | None = None

    def __add__(self, other: "Loss") -> "Loss":
        sums = ((one.total, one.weight, one.metrics) for one in (self, other))
        total, weight, metrics = jax.tree.map(jnp.add, *sums)
        if self.importance is None or other.importance is None:
            if self.importance is not other.importance:
                raise ValueError("Loss: expected two with importance weights or two without, got one of each")
            return Loss(total, weight, metrics)
        return Loss(total, weight, metrics, self.importance + other.importance)

    @property
    def mean(self) -> jax.Array:
        """`total / weight`; 0, with a zero gradient, where the weight is 0."""
        return _divide(self.total, self.weight)

    @property
    def metric_means(self) -> dict[str, jax.Array]:
        """Every metric divided by the weight, 0 where the weight is 0; and those of `ImportanceSums.metrics`."""
        means = {name: _divide(value, self.weight) for name, value in self.metrics.items()}
        return means | ({} if self.importance is None else self.importance.metrics)


def summed(total: jax.Array, weight: jax.Array, metrics: dict[str, jax.Array]) -> Loss:
    """A loss of which only the total carries a gradient."""
    return Loss(total, weight.astype(total.dtype), jax.lax.stop_gradient(metrics))


def _divide(total: jax.Array, weight: jax.Array) -> jax.Array:
    return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1), 0)
