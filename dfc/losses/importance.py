"""Importance weights for the gap between a sampler's and the trainer's probabilities: bounded, and how they spread.

Everything is kept as logarithms: the weight of a sequence is a product over its tokens, and may be larger than any
number of the dtype.
"""

import dataclasses
import functools
import math
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from dfc.losses.exponentials import scaled_exp
from dfc.losses.inputs import not_negative, one_of
from dfc.losses.sequences import Packing

ImportanceMode = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
LARGEST = "importance/max"
"""The one metric of `ImportanceSums.metrics` that is a maximum."""


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["units", "masked", "log_largest", "log_scale", "total", "squares"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class ImportanceSums:
    """How the importance weights w of tokens or of sequences spread; scalars without gradient, a pytree.

    Those of two micro-batches are joined by ``first + second``.

    Attributes:
      units: how many tokens, or sequences with an action token.
      masked: how many of them have the weight 0 because it was out of bounds.
      log_largest: of the weights before the bounds the largest, as a logarithm; minus infinity without a unit.
      log_scale: the same of the weights within the bounds; minus infinity where there is none.
      total: the sum of w / exp(log_scale).
      squares: the sum of the squares of that.
    """

    units: jax.Array
    masked: jax.Array
    log_largest: jax.Array
    log_scale: jax.Array
    total: jax.Array
    squares: jax.Array

    def __add__(self, other: "ImportanceSums") -> "ImportanceSums":
        scale = jnp.maximum(self.log_scale, other.log_scale)
        # Of one without a weight the sums are 0, and its scale is minus infinity: less itself that is NaN.
        first, second = (jnp.where(x > -jnp.inf, jnp.exp(x - scale), 0) for x in (self.log_scale, other.log_scale))
        return ImportanceSums(
            self.units + other.units,
            self.masked + other.masked,
            jnp.maximum(self.log_largest, other.log_largest),
            scale,
            first * self.total + second * other.total,
            first**2 * self.squares + second**2 * other.squares,
        )

    @property
    def metrics(self) -> dict[str, jax.Array]:
        """What is reported, 0 where there is no unit.

        ``importance/max`` is the largest weight before the bounds, or half of the largest number of the dtype,
        ``importance/masked`` the share of masked units, and ``importance/ess`` the effective sample size as a share:
        (sum w)^2 / (n sum w^2) of all n units, from 0, with all masked, to 1, with all weights equal.
        """
        counted = jnp.maximum(self.units, 1)
        some = self.log_largest > -jnp.inf
        return {
            LARGEST: jnp.where(some, scaled_exp(jnp.where(some, self.log_largest, 0), 1.0), 0),
            "importance/masked": self.masked / counted,
            "importance/ess": self.total**2 / (counted * jnp.where(self.squares > 0, self.squares, 1)),
        }


class ImportanceWeights(NamedTuple):
    """Weights of tokens, [batch, time], and how they spread.

    Attributes:
      logs: log w, finite; 0 where a weight is masked.
      kept: bool, where a weight is not masked.
      outside: bool, where it was out of bounds.
      sums: over the mode's units.
    """

    logs: jax.Array
    kept: jax.Array
    outside: jax.Array
    sums: ImportanceSums


def check_importance(where: str, mode: str, cap: float, floor: float) -> None:
    """Refuses an unknown mode and bounds that do not go together."""
    not_negative(where, importance_cap=cap, importance_floor=floor)
    one_of(where, get_args(ImportanceMode), importance_mode=mode)
    if floor and not cap:
        raise ValueError(f"{where}: importance_floor is {floor} but importance_cap is 0; give both")
    if floor > cap or floor == math.inf:
        raise ValueError(f"{where}: importance_floor must be finite and at most importance_cap={cap}, got {floor}")


def importance_weights(
    log_ratio: jax.Array, counted: jax.Array, packing: Packing, mode: str, cap: float, floor: float
) -> ImportanceWeights:
    """The weights of log pi_prox - log pi_old, which are finite, without gradient and 0 where nothing counts."""
    of_sequences = mode.startswith("sequence")
    logs = packing.sums(log_ratio) if of_sequences else log_ratio
    units = packing.sums(counted.astype(logs.dtype)) > 0 if of_sequences else counted
    outside = logs > math.log(cap)
    if floor:
        outside |= logs < math.log(floor)
    if mode.endswith("mask"):
        bounded, kept = jnp.where(outside, 0, logs), ~outside
    else:
        bounded, kept = jnp.minimum(logs, math.log(cap)), jnp.ones_like(outside)
        if floor:
            bounded = jnp.maximum(bounded, math.log(floor))
    sums = _sums(logs, bounded, units, kept)
    if not of_sequences:
        return ImportanceWeights(bounded, kept, outside, sums)
    bounded, kept, outside = (packing.at_positions(x, log_ratio) for x in (bounded, kept, outside))
    return ImportanceWeights(bounded, kept, outside, sums)


def _sums(logs: jax.Array, bounded: jax.Array, units: jax.Array, kept: jax.Array) -> ImportanceSums:
    """The sums over units of weights before and within the bounds."""
    weighed = units & kept
    scale = jnp.max(bounded, initial=-jnp.inf, where=weighed)
    share = jnp.where(weighed, jnp.exp(jnp.where(weighed, bounded - scale, 0)), 0)
    return ImportanceSums(
        units.sum().astype(logs.dtype),
        (units & ~kept).sum().astype(logs.dtype),
        jnp.max(logs, initial=-jnp.inf, where=units),
        scale,
        share.sum(),
        jnp.square(share).sum(),
    )
