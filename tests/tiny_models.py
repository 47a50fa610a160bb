"""Decoders small enough for a test, weights for them, and checkpoints of the other side, transformers on torch."""

import contextlib
import functools
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dfc.models.config import DecoderConfig
from dfc.models.transformer import abstract_params, bind

# Two queries to a key head, so that no axis can be taken for another; heads * head_dim is the width, as in most models.
_TINY = {
    "vocabulary": 50,
    "width": 32,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "feed_forward": 48,
    "rope_theta": 1e4,
    "norm_epsilon": 1e-5,
    "qkv_bias": True,
    "tied_embedding": False,
}


def tiny(**changes):
    """A Qwen2-like decoder of two layers, with these fields changed."""
    return DecoderConfig(**(_TINY | changes))


# A Llama, for what is written to files.
NARROW = tiny(vocabulary=48, width=16, head_dim=4, feed_forward=24, qkv_bias=False)


def filled(config, value):
    """Weights, on the host, that are all one number."""
    return jax.tree.map(lambda leaf: np.full(leaf.shape, value, leaf.dtype), abstract_params(config))


def assert_same(first, second):
    """Two trees of arrays are alike, with their dtypes and bit for bit."""
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def random_params(config, seed=0, deviation=0.25):
    """Normal weights around 0, norms and biases around 1.

    Not `initialize`: there biases are 0 and norms 1, where a wrong use of them would not show.
    """
    rng = np.random.default_rng(seed)

    def random_leaf(leaf):
        return jnp.asarray((rng.normal(size=leaf.shape) * deviation + (leaf.ndim == 1)).astype(np.float32))

    return jax.tree.map(random_leaf, abstract_params(config))


@functools.partial(jax.jit, static_argnums=0)
def _logits(config, params, tokens, positions, segments):
    model = bind(config, params)
    return jnp.matmul(model(tokens, positions, segments), model.output_embedding.T)


def uncached_logits(config, params, token_ids, length):
    """Logits float64 [n, V] behind each of n tokens of one sequence, in a row of `length` and without a cache."""
    tokens, segments = np.zeros((1, length), np.int32), np.zeros((1, length), np.int32)
    tokens[0, : len(token_ids)], segments[0, : len(token_ids)] = token_ids, 1
    positions = np.arange(length, dtype=np.int32)[None] * segments
    return np.asarray(_logits(config, params, tokens, positions, segments), np.float64)[0, : len(token_ids)]


def log_softmax(logits):
    """Log-probabilities along the last axis, in numpy."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


@contextlib.contextmanager
def quiet():
    """The other side's own warnings are not ours to fix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@functools.cache
def torch_and_transformers():
    """Both packages, on one thread and without their advice."""
    with quiet():
        import torch
        import transformers

        transformers.logging.disable_progress_bar()
        transformers.logging.set_verbosity_error()
        torch.set_num_threads(1)
    return types.SimpleNamespace(torch=torch, transformers=transformers)


@pytest.fixture(scope="module")
def oracle():
    return torch_and_transformers()


def save_checkpoint(folder, architecture, config, deviation, *, embedding=None):
    """Saves a model of transformers whose every weight is away from its initial value: norms, biases and all.

    Args:
      folder: where to.
      architecture: the name of its class.
      config: fields of its config.json.
      deviation: of what is added to its weights.
      embedding: the same for embeddings; None is `deviation`.
    """
    oracle = torch_and_transformers()
    with quiet(), oracle.torch.no_grad():
        oracle.torch.manual_seed(0)
        model_class = getattr(oracle.transformers, architecture)
        model = model_class(model_class.config_class(**config))
        for name, parameter in model.named_parameters():
            own = embedding if embedding is not None and "embed" in name else deviation
            parameter.add_(own * oracle.torch.randn_like(parameter))
        model.save_pretrained(folder)
