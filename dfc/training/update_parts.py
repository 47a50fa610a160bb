"""Several losses in one update: what each is averaged over, and its coefficient."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dfc.losses import Loss
from dfc.samples import TokenBatch

# (log-probabilities, the batch, log-probabilities of the reference or None) -> loss. A fourth argument comes only where
# `Trainer.update` is given `proximal`, so that a loss that has no use for it need not take it.
LossFunction = Callable[..., Loss]


@dataclasses.dataclass(frozen=True)
class Part:
    """One of several losses that an update adds up: its mean times a coefficient.

    Attributes:
      name: of the loss, among those of the trainer.
      micro_batches: what it is the mean over, of few shapes.
      coefficient: the weight of the mean.
      reference_logprobs: of every micro-batch, those of the reference (see `Trainer.reference_logprobs`), handed to the
        loss as its third argument; None: `Trainer.update` computes them if it is given weights of a reference.
    """

    name: str
    micro_batches: Sequence[TokenBatch]
    coefficient: float = 1.0
    reference_logprobs: Sequence[jax.Array] | None = None


def parts_of(given: Sequence[TokenBatch] | Sequence[Part]) -> list[Part]:
    """Returns the parts of an update; one without a name where micro-batches of a single loss were given."""
    found = [one for one in given if isinstance(one, Part)]
    return found if len(found) == len(given) > 0 else [Part("", given)]  # type: ignore[arg-type]  # no part is among them


def check_parts(parts: Sequence[Part], programs: Mapping[str, object]) -> None:
    """Raises unless an update can be made of these parts by the trainer's programs.

    Raises:
      ValueError: a part names an unknown loss or is repeated, has no micro-batch, or not one array of the
        reference for each.
    """
    names = [part.name for part in parts]
    if names != [name for name in dict.fromkeys(names) if program_of(name) in programs]:
        losses = [name.removeprefix("gradient_") for name in programs if name.startswith("gradient")]
        raise ValueError(f"parts: expected some of the trainer's losses {losses}, each once, got {names}")
    for part in parts:
        references = part.reference_logprobs
        if not part.micro_batches or (references is not None and len(references) != len(part.micro_batches)):
            given = "none" if references is None else len(references)
            raise ValueError(
                f"part {part.name!r}: expected one or more micro-batches, and one array of the reference for each if "
                f"any, got {len(part.micro_batches)} and {given}"
            )


def gradient_programs(loss: LossFunction | Mapping[str, LossFunction]) -> dict[str, LossFunction]:
    """Returns losses by the name of the program that differentiates them."""
    losses = loss if isinstance(loss, Mapping) else {"": loss}
    return {program_of(name): one for name, one in losses.items()}


def program_of(part: str) -> str:
    """Returns the name of the program that differentiates a part's loss."""
    return f"gradient_{part}" if part else "gradient"


def mean_gradients(total: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a pytree of arrays
    """Returns sums of gradients over the weight of their loss, in float32; zeros where nothing counted.

    Of all micro-batches, `total` holds ``gradients``, a tree, and ``loss``.
    """
    weight = total["loss"].weight
    scale = jnp.where(weight > 0, 1 / jnp.maximum(weight, 1), jnp.float32(0))
    return jax.tree.map(lambda g: g.astype(jnp.float32) * scale, total["gradients"])
