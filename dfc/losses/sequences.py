"""Sequences within rows, and sums over tokens or over sequences."""

import dataclasses
import functools
from typing import Literal

import jax
import jax.numpy as jnp

Unit = Literal["token", "sequence", "fixed_length"]


@dataclasses.dataclass(frozen=True)
class Packing:
    """Which sequence of its row a position belongs to; `segments` None: a row is one sequence."""

    segments: jax.Array | None
    num_segments: int

    def sums(self, values: jax.Array) -> jax.Array:
        """Sums [batch, time] within each sequence: [batch, num_segments]."""
        if self.segments is None:
            return values.sum(axis=1, keepdims=True)
        # Row by row, so that a batch split over devices is summed in place.
        row_sums = functools.partial(jax.ops.segment_sum, num_segments=self.num_segments + 1)
        return jax.vmap(row_sums)(values, self.segments)[:, 1:]

    def means(self, values: jax.Array, counted: jax.Array) -> jax.Array:
        """At every position the mean of its sequence's counted values, [batch, time]; in padding any finite number."""
        lengths = self.sums(counted.astype(values.dtype))
        means = self.sums(jnp.where(counted, values, 0)) / jnp.maximum(lengths, 1)
        return self.at_positions(means, values)

    def at_positions(self, found: jax.Array, like: jax.Array) -> jax.Array:
        """At every position of [batch, time] what was found of its sequence; in padding that of any other."""
        if self.segments is None:
            return jnp.broadcast_to(found, like.shape)
        return jnp.take_along_axis(found, jnp.clip(self.segments - 1, 0, self.num_segments - 1), axis=1)

    def checked(self, total: jax.Array) -> jax.Array:
        """The total, or NaN if a segment id is out of range."""
        if self.segments is None:
            return total
        in_range = jnp.all((self.segments >= 0) & (self.segments <= self.num_segments))
        return jnp.where(in_range, total, jnp.nan)


def sum_over_units(values: jax.Array, counted: jax.Array, unit: Unit, packing: Packing) -> jax.Array:
    """Sums values over action tokens, or with the unit ``sequence`` their within-sequence means over sequences."""
    values = jnp.where(counted, values, 0)
    if unit != "sequence":
        return values.sum()
    lengths = packing.sums(counted.astype(values.dtype))
    return (packing.sums(values) / jnp.maximum(lengths, 1)).sum()
