"""Whether an update can be kept: finite numbers, a change and weights within bounds.

A rate that is much too high does not end in NaN at once. Adam moves every weight by about the learning rate, so the
first update at a rate of 10, or of 1e30, gives weights that are finite and worth nothing, and saving them would leave a
run that cannot continue. Two bounds refuse that:

- Of each array the largest absolute value is compared with what it was before training. Training that works stays far
  below (the largest weight of the bundled model grew by a factor of 1.4 from its random start).
- The norm of one update over all arrays is compared with that of the weights (`share`). A rate of 0.3 or 1 keeps every
  weight below the first bound for some updates, but the first of them changes the model by several times its own size.

Both say that an update is out of all proportion, not that the policy behind it plays well.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dfc.errors import DivergenceError

Tree = Any  # a pytree of arrays
_LEAST = 1.0  # arrays that begin smaller, as adapters do at 0, are allowed the growth of this
_LEAST_RMS = 0.01  # weights smaller than this on average are taken for as large: a model may begin near 0


def largest(tree: Tree) -> jax.Array:
    """Returns the largest absolute value of every array of a tree, float32 [arrays]; NaN where one is."""
    return jnp.stack([jnp.max(jnp.abs(leaf)).astype(jnp.float32) for leaf in jax.tree.leaves(tree)])


def bounds(start: np.ndarray, growth: float) -> np.ndarray:
    """Returns what `start`, the largest values before training, may become, float32 [arrays] (`max_growth`)."""
    # Beyond float32 there is no bound but that the numbers are finite.
    wide = np.maximum(start.astype(np.float64), _LEAST) * growth
    return np.minimum(wide, np.finfo(np.float32).max).astype(np.float32)


def share(params: Tree, changes: Tree) -> jax.Array:
    """Returns the size of an update beside that of the weights, a float32 scalar.

    It is norm(changes) / max(norm(params), 0.01 sqrt(number of weights)), Euclidean norms over all arrays together:
    arrays that begin at 0, as half of the adapters do, are measured beside the others.
    """
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    return _norm(changes) / jnp.maximum(_norm(params), jnp.float32(_LEAST_RMS * count**0.5))


def _norm(tree: Tree) -> jax.Array:
    squares = [jnp.square(leaf.astype(jnp.float32)).sum() for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(jnp.stack(squares).sum())


def refuse(
    tree: Tree,
    found: np.ndarray,
    allowed: np.ndarray | None,
    *,
    loss: float,
    gradient_norm: float,
    moved: float,
    most: float,
) -> None:
    """Raises unless an update can be kept.

    `found` is `largest` of the trained tree after the update, `allowed` its `bounds`; None asks for finite numbers
    only. `moved` is the `share` of the update, `most` `TrainingConfig.max_update`, which has no effect where `allowed`
    is None.

    Raises:
      DivergenceError: names what is out of range.
    """
    numbers = f"loss {loss:.4g}, gradient norm {gradient_norm:.4g}"
    if not np.isfinite([loss, gradient_norm]).all():
        raise DivergenceError(f"the update is refused: {numbers}")
    wrong = ~np.isfinite(found) if allowed is None else ~(found <= allowed)
    if wrong.any():
        place = int(wrong.argmax())
        name = jax.tree_util.keystr(jax.tree.leaves_with_path(tree)[place][0])
        limit = "" if allowed is None else f", above the bound of {allowed[place]:.4g} that training.max_growth sets"
        raise DivergenceError(
            f"the update is refused: the largest weight of {name} would be {found[place]:.4g}{limit} ({numbers})"
        )
    if allowed is not None and not moved <= most:
        raise DivergenceError(
            f"the update is refused: it would change the weights by {moved:.4g} of their norm, above"
            f" training.max_update={most:g} ({numbers})"
        )
