"""A decoder of one layer with random weights, and what it says without a cache, for the tests of training."""

import functools

import jax
import jax.numpy as jnp
import pytest
from tiny_models import random_params, tiny

from dfc.models.transformer import bind

CONFIG = tiny(layers=1)
weights = functools.cache(functools.partial(random_params, CONFIG, deviation=0.2))


@pytest.fixture(scope="module")
def params():
    return weights(0)


@pytest.fixture(scope="module")
def reference_params():
    return jax.tree.map(lambda a, b: a + 0.05 * b, weights(0), weights(1))


@jax.jit
def all_logprobs(params, tokens):
    """Log-probabilities [T, V] of every token behind every place of one sequence, in float32."""
    model = bind(CONFIG, params)
    hidden = model(tokens[None], jnp.arange(len(tokens))[None], jnp.ones((1, len(tokens)), jnp.int32))[0]
    return jax.nn.log_softmax(hidden @ model.output_embedding.T, axis=-1)
