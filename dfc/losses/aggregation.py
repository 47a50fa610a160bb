"""From values per token to a loss: what is summed, and what it is divided by."""

from collections.abc import Mapping
from typing import get_args

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dfc.losses.inputs import not_negative, one_of, rows_inputs, same_shape, token_values_input
from dfc.losses.loss import Loss, summed
from dfc.losses.sequences import Packing, Unit, sum_over_units


def aggregate(
    values: ArrayLike,
    mask: ArrayLike,
    *,
    unit: Unit = "token",
    max_length: float = 0.0,
    metrics: Mapping[str, ArrayLike] | None = None,
    segments: ArrayLike | None = None,
    num_segments: int | None = None,
) -> Loss:
    r"""Makes a loss of values per token.

    With S_i the action tokens of sequence i, of n sequences that have one::

        token:         total = sum_i sum_{t in S_i} values(t)               weight = sum_i |S_i|
        sequence:      total = sum_i (1 / |S_i|) sum_{t in S_i} values(t)   weight = n
        fixed_length:  total = sum_i sum_{t in S_i} values(t) / max_length  weight = n

    Args:
      values: floating [batch, time], to be minimized.
      mask: [batch, time], 1 at action tokens.
      unit: what is averaged over.
      max_length: the constant of ``fixed_length``, above 0. 0 with the other units.
      metrics: named [batch, time] arrays, summed as the values are, with ``fixed_length`` as with ``sequence``.
      segments: int [batch, time], for packed rows.
      num_segments: the largest number of sequences in a row; given together with `segments`.

    Returns:
      Unit: an action token, or a sequence with at least one. All-masked input gives total 0 and weight 0. Finite values
      whose sum is not give infinity, never NaN.

    Raises:
      ValueError: shapes, types or the unit do not fit.

    Source: ``token``: DAPO (arXiv 2503.14476), eq. 8; ``sequence``: DeepSeekMath (arXiv 2402.03300), eq. 3;
    ``fixed_length``: Dr. GRPO (arXiv 2503.20783), section 3.2.

    >>> values, mask = jnp.asarray([[1.0, 2.0, 3.0], [6.0, 0.0, 0.0]]), jnp.asarray([[1, 1, 1], [1, 0, 0]])
    >>> float(aggregate(values, mask).mean), float(aggregate(values, mask, unit="sequence").mean)
    (3.0, 4.0)
    """
    where = "aggregate"
    check_unit(where, unit, max_length)
    array = token_values_input(where, "values", values)
    counted, packing = rows_inputs(where, mask, segments, num_segments, array.shape)
    found = {}
    for name, metric in (metrics or {}).items():
        found[name] = jnp.asarray(metric)
        same_shape(where, name, found[name].shape, array.shape)
    return sums_of(jnp.where(counted, array, 0), found, counted, packing, unit, max_length)


def sums_of(
    values: jax.Array,
    metrics: Mapping[str, jax.Array],
    counted: jax.Array,
    packing: Packing,
    unit: Unit,
    max_length: float,
) -> Loss:
    """The same of arrays that are checked; values are finite where nothing counts."""
    total = sum_over_units(values, counted, unit, packing) / (max_length or 1)
    # Bounded values of both signs may overflow in the sum: infinity less infinity.
    total = jnp.where(jnp.isnan(total) & jnp.isfinite(values).all(), jnp.inf, total)
    averaged: Unit = "token" if unit == "token" else "sequence"
    sums = {
        name: sum_over_units(metric.astype(values.dtype), counted, averaged, packing)
        for name, metric in metrics.items()
    }
    weight = counted.sum() if unit == "token" else (packing.sums(counted.astype(values.dtype)) > 0).sum()
    return summed(packing.checked(total), weight, sums)


def check_unit(where: str, unit: str, max_length: float) -> None:
    """Refuses an unknown unit, and a length that does not go with it."""
    not_negative(where, max_length=max_length)
    one_of(where, get_args(Unit), unit=unit)
    if (unit == "fixed_length") != (max_length > 0):
        raise ValueError(f"{where}: unit is {unit!r} but max_length is {max_length}; 'fixed_length' needs one above 0")
