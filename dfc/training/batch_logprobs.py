"""Log-probabilities of the action tokens of packed rows, projected to the vocabulary where there is one to predict."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from dfc.logprobs import constrained_logprobs, token_logprobs
from dfc.models.config import DecoderConfig
from dfc.models.execution import Execution
from dfc.models.sharding import vocabulary_shards
from dfc.models.transformer import Adapters, Params, bind
from dfc.samples import PackedChoices, TokenBatch

HEAD_TOKENS_PER_DEVICE = 8192  # as in dfc.logprobs; fewer would send the output projection and its gradient more often


def batch_logprobs(
    config: DecoderConfig,
    params: Params,
    batch: TokenBatch,
    capacity: int | None = None,
    temperature: float = 1.0,
    *,
    adapters: Adapters | None = None,
    execution: Execution = Execution(),  # noqa: B008 - frozen
) -> jax.Array:
    """Returns log-probabilities float32 [B, T] of the action tokens of a packed batch, 0 elsewhere.

    They are under the distribution that is sampled from: at its temperature, and among a token's choices where filters
    or a constraint left some. `params` may be in either layout. `capacity` is static, at least the number of action
    tokens in the batch (see `action_capacity`): only the positions that predict one are projected to the vocabulary.
    None projects all: picking positions would bring the hidden states of all devices to every one of them.
    """
    model = bind(config, params, adapters, execution)
    tokens, mask = jnp.asarray(batch.tokens), jnp.asarray(batch.mask)
    hidden = model(tokens, jnp.asarray(batch.positions), jnp.asarray(batch.segments))
    flat = hidden.reshape(-1, hidden.shape[-1])
    size = flat.shape[0]

    def projected(hidden: jax.Array, targets: jax.Array, actions: jax.Array, choices: jax.Array | None) -> jax.Array:
        head, soft_cap = model.output_embedding, config.logit_soft_cap

        def among_all() -> jax.Array:
            return token_logprobs(
                hidden,
                head,
                targets,
                token_chunk=_token_chunk(execution.mesh),
                temperature=temperature,
                soft_cap=soft_cap,
                vocab_shards=vocabulary_shards(config, execution.mesh),
            )

        if choices is None:
            return among_all()
        few = constrained_logprobs(
            hidden,
            head,
            targets,
            choices,
            token_shards=_token_shards(execution.mesh),
            vocab_shards=vocabulary_shards(config, execution.mesh),
            temperature=temperature,
            soft_cap=soft_cap,
        )
        free = choices[:, 0] < 0
        # Where every action was one of a few, as a run with legal replies has it, the vocabulary is not projected.
        everything = jax.lax.cond(jnp.any(free & actions), among_all, lambda: jnp.zeros_like(few))
        return jnp.where(free, everything, few)

    given = np.asarray(batch.choices) if isinstance(batch.choices, PackedChoices) else batch.choices
    choices = None if given is None else jnp.asarray(given)
    if capacity is None:
        # Position i predicts token i + 1; a row's last position predicts nothing, and no first token is an action.
        targets, actions = (jnp.roll(x, -1, axis=1).reshape(-1) for x in (tokens, mask != 0))
        among = None if choices is None else jnp.roll(choices, -1, axis=1).reshape(size, -1)
        values = projected(flat, targets, actions, among)
        return jnp.where(mask != 0, jnp.roll(values.reshape(tokens.shape), 1, axis=1), 0)
    # Unfilled places point past the end: their gather is clipped, their scatter dropped.
    (index,) = jnp.nonzero(mask.reshape(-1), size=capacity, fill_value=size)
    targets = tokens.reshape(-1).at[index].get(mode="clip")
    predicting = flat.at[jnp.maximum(index - 1, 0)].get(mode="clip")
    among = None if choices is None else choices.reshape(size, -1).at[index].get(mode="clip")
    values = projected(predicting, targets, index < size, among)
    return jnp.zeros((size,), jnp.float32).at[index].set(values, mode="drop").reshape(tokens.shape)


def _token_chunk(mesh: Mesh | None) -> int | None:
    """Tokens whose logits are computed at a time: the default for each of the devices that rows are split over."""
    return None if mesh is None or mesh.size == 1 else HEAD_TOKENS_PER_DEVICE * _token_shards(mesh)


def _token_shards(mesh: Mesh | None) -> int:
    """Over how many devices the rows of a batch are split."""
    count: int = 1 if mesh is None else mesh.shape["data"] * mesh.shape["fsdp"]
    return count


def action_capacity(batch: TokenBatch) -> int:
    """Returns the smallest of 1/4, 1/2 and all of the batch's places that holds its action tokens."""
    size, needed = batch.mask.size, int((batch.mask != 0).sum())
    return next(size // part for part in (4, 2, 1) if size // part >= needed)
