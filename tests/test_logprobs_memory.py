"""Memory of the compiled log-probabilities and their gradient, at the size of a 0.6B model with 152k ids."""

import re

import jax
import jax.numpy as jnp
import pytest

from dfc import logprobs

TOKENS, WIDTH, VOCABULARY = 4 * 2048, 1024, 151_936
FULL_LOGITS = 4 * TOKENS * VOCABULARY  # bytes in float32


def lowered(dtype, compute, **options):
    """Value and gradients with respect to hidden states and output embedding, from shapes alone."""

    def objective(hidden, embedding, targets):
        return sum(x.sum() for x in jax.tree.leaves(compute(hidden, embedding, targets, **options)))

    return jax.jit(jax.value_and_grad(objective, argnums=(0, 1))).lower(
        jax.ShapeDtypeStruct((TOKENS, WIDTH), dtype),
        jax.ShapeDtypeStruct((VOCABULARY, WIDTH), dtype),
        jax.ShapeDtypeStruct((TOKENS,), jnp.int32),
    )


@pytest.mark.parametrize("compute", [logprobs.token_logprobs, logprobs.token_logprobs_and_entropy])
@pytest.mark.parametrize("token_chunk", [None, 2048])
def test_temporary_memory_is_below_a_twentieth_of_the_logits(compute, token_chunk):
    memory = lowered(jnp.float32, compute, token_chunk=token_chunk).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 0.05 * FULL_LOGITS
    # So that the gradients are known to be counted as outputs, and nothing else.
    gradients = 4 * WIDTH * (TOKENS + VOCABULARY)
    assert gradients <= memory.output_size_in_bytes < gradients + 1024


def test_plain_log_softmax_takes_more_than_the_logits():
    def plain(hidden, embedding, targets):
        return jnp.take_along_axis(jax.nn.log_softmax(hidden @ embedding.T), targets[:, None], axis=1)

    assert lowered(jnp.float32, plain).compile().memory_analysis().temp_size_in_bytes > FULL_LOGITS


def test_no_float32_copy_of_a_bfloat16_embedding_or_its_gradient_is_asked_for():
    # In the program as written: XLA's CPU compiler widens bfloat16 arrays on its own account.
    shapes = re.findall(r"tensor<([\dx]+)xf32>", lowered(jnp.bfloat16, logprobs.token_logprobs).as_text())
    assert not [shape for shape in shapes if str(VOCABULARY) in shape]
    shapes = re.findall(r"tensor<([\dx]+)xf32>", lowered(jnp.float32, logprobs.token_logprobs).as_text())
    assert [shape for shape in shapes if str(VOCABULARY) in shape]  # the search does find them
