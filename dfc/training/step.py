"""One update: gradients summed over micro-batches, divided once by the loss's weight, applied by the optimizer."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import optax

from dfc.episodes import TokenBatch
from dfc.logprobs import token_logprobs
from dfc.losses import Loss
from dfc.models.decoder_config import DecoderConfig
from dfc.models.transformer import Params, bind

Tree = Any  # a pytree of arrays
# (log-probabilities, the batch, log-probabilities of the reference or None) -> loss
LossFunction = Callable[[jax.Array, TokenBatch, jax.Array | None], Loss]


def batch_logprobs(
    config: DecoderConfig, params: Params, batch: TokenBatch, capacity: int, temperature: float = 1.0
) -> jax.Array:
    """Returns log-probabilities float32 [B, T] of the action ids of a packed batch, 0 elsewhere.

    Only the positions that predict an action id are projected to the vocabulary.

    Args:
      config: of the model.
      params: its weights.
      batch: packed rows.
      capacity: static, at least the number of action ids in the batch; see `action_capacity`.
      temperature: that of sampling.
    """
    model = bind(config, params)
    tokens, mask = jnp.asarray(batch.tokens), jnp.asarray(batch.mask)
    hidden = model(tokens, jnp.asarray(batch.positions), jnp.asarray(batch.segments))
    flat = hidden.reshape(-1, hidden.shape[-1])
    size = flat.shape[0]
    # Unfilled places point behind the end: their gather is clipped, their scatter dropped.
    (index,) = jnp.nonzero(mask.reshape(-1), size=capacity, fill_value=size)
    targets = tokens.reshape(-1).at[index].get(mode="clip")
    predicting = flat.at[jnp.maximum(index - 1, 0)].get(mode="clip")
    values = token_logprobs(predicting, model.output_embedding, targets, temperature=temperature)
    return jnp.zeros((size,), jnp.float32).at[index].set(values, mode="drop").reshape(tokens.shape)


def action_capacity(batch: TokenBatch) -> int:
    """Returns the smallest of 1/4, 1/2 and all of the batch's places that holds its action ids."""
    size, needed = batch.mask.size, int((batch.mask != 0).sum())
    return next(size // part for part in (4, 2, 1) if size // part >= needed)


@dataclasses.dataclass(frozen=True)
class Update:
    """What one update did.

    Attributes:
      params: the new weights.
      optimizer_state: the new state.
      loss: mean over the loss's unit.
      gradient_norm: global norm before clipping.
      weight: units the loss was averaged over.
      metrics: means over the loss's unit.
    """

    params: Params
    optimizer_state: optax.OptState
    loss: float
    gradient_norm: float
    weight: float
    metrics: dict[str, float]


class Trainer:
    """Computes updates for one model, one loss and one optimizer; holds compiled programs, no weights."""

    def __init__(
        self,
        config: DecoderConfig,
        loss: LossFunction,
        optimizer: optax.GradientTransformation,
        *,
        temperature: float = 1.0,
        rows: jax.sharding.Sharding | None = None,
        workers: int = 1,
    ) -> None:
        """Prepares the programs; nothing is compiled before the first update.

        Args:
          config: of the model.
          loss: of one micro-batch.
          optimizer: turns gradients into updates.
          temperature: that of sampling; log-probabilities are taken at it.
          rows: how the rows of a micro-batch are split over devices; None leaves them on one.
          workers: micro-batches computed side by side; their sum is taken in order, so the result is the same.
        """
        self._rows = rows
        self._workers = workers
        self._optimizer = optimizer
        self.initial_state = jax.jit(optimizer.init)

        @functools.partial(jax.jit, static_argnames=("capacity",))
        def gradient(params: Params, reference: Params | None, batch: TokenBatch, *, capacity: int) -> Tree:
            old = None if reference is None else batch_logprobs(config, reference, batch, capacity, temperature)

            def objective(weights: Params) -> tuple[jax.Array, Loss]:
                result = loss(batch_logprobs(config, weights, batch, capacity, temperature), batch, old)
                return result.total, result

            gradients, result = jax.grad(objective, has_aux=True)(params)
            return {"gradients": gradients, "loss": result}

        # A program of its own: inside the first it would double the number of large programs to compile.
        @functools.partial(jax.jit, donate_argnames=("total",))
        def add(total: Tree, found: Tree) -> Tree:
            return jax.tree.map(jnp.add, total, found)

        @jax.jit
        def apply(params: Params, state: optax.OptState, total: Tree) -> Tree:
            result: Loss = total["loss"]
            scale = jnp.where(result.weight > 0, 1 / jnp.maximum(result.weight, 1), jnp.float32(0))
            gradients = jax.tree.map(lambda g: (g * scale).astype(g.dtype), total["gradients"])
            updates, state = optimizer.update(gradients, state, params)
            squares = (jnp.square(g.astype(jnp.float32)).sum() for g in jax.tree.leaves(gradients))
            numbers = {"loss": result.mean, "gradient_norm": jnp.sqrt(sum(squares)), "weight": result.weight}
            return optax.apply_updates(params, updates), state, numbers, result.metric_means

        self._gradient, self._add, self._apply = gradient, add, apply

    def update(
        self,
        params: Params,
        state: optax.OptState,
        micro_batches: Sequence[TokenBatch],
        reference: Params | None = None,
    ) -> Update:
        """Returns the weights after one update on all micro-batches together.

        Args:
          params: the weights; not donated, a caller may keep them.
          state: the optimizer's.
          micro_batches: of one shape.
          reference: weights whose log-probabilities the loss wants beside the policy's (for a KL term).
        """

        def gradient(batch: TokenBatch) -> Tree:
            capacity = action_capacity(batch)
            placed = batch if self._rows is None else jax.device_put(batch, self._rows)
            return self._gradient(params, reference, placed, capacity=capacity)

        total = None
        with ThreadPoolExecutor(self._workers) as pool:  # a program's run releases Python's lock
            for start in range(0, len(micro_batches), self._workers):
                for found in pool.map(gradient, micro_batches[start : start + self._workers]):
                    total = found if total is None else self._add(total, found)
        params, state, numbers, metrics = self._apply(params, state, total)
        return Update(
            params,
            state,
            loss=float(numbers["loss"]),  # waits for the program, so that a caller's clock is right
            gradient_norm=float(numbers["gradient_norm"]),
            weight=float(numbers["weight"]),
            metrics={name: float(value) for name, value in metrics.items()},
        )
