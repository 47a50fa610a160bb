"""Whether transformers computes what we compute: the check behind `dfc.models.huggingface.save(verify=True)`."""

import dataclasses
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dfc.commands import shell_line
from dfc.errors import WeightsError
from dfc.models import weight_gathering
from dfc.models.config import DecoderConfig
from dfc.models.transformer import Params, bind

_ROWS, _LENGTH, _SEED = 2, 64, 0


def verify_saved(
    folder: str | os.PathLike[str] | None, config: DecoderConfig, params: Params, *, bound: float = 1e-3
) -> float:
    """Loads a folder with transformers and PyTorch, on the CPU, and compares logits (or scores) with dfc's.

    Both sides compute in float32 from the weights as stored, on two rows of 64 random tokens: what is compared
    is the model, not the rounding of its activations. That takes host memory for the weights in float32.

    `folder` is on a disk; None on hosts that only take part in computing ours. `params`, in either layout, are rounded
    here too to the dtype of `config`, which the weights are stored in. `bound` is the largest difference allowed,
    relative to the largest logit, or to 1 if that is smaller.

    Returns:
      The largest difference of two logits; 0 where `folder` is None.

    Raises:
      WeightsError: if PyTorch is missing, transformers cannot load the folder, or the difference is above the bound.
    """
    tokens = np.random.default_rng(_SEED).integers(0, config.vocabulary, (_ROWS, _LENGTH)).astype(np.int32)
    # Accelerators multiply float32 in fewer bits unless asked otherwise.
    with jax.default_matmul_precision("highest"):
        ours = _local(_compute(dataclasses.replace(config, dtype="float32"), params, tokens, config.dtype))
    if folder is None:
        return 0.0
    theirs = _their_logits(folder, config, tokens)
    if theirs.shape != ours.shape:
        raise WeightsError(f"{folder}: transformers computes logits {list(theirs.shape)}, expected {list(ours.shape)}")
    difference = float(np.abs(ours - theirs).max())
    allowed = bound * max(1.0, float(np.abs(theirs).max()))
    if not difference <= allowed:  # a NaN is no agreement
        raise WeightsError(
            f"{folder}: transformers computes other logits from what was saved: they differ by up to {difference:.3g}, "
            f"expected at most {allowed:.3g}"
        )
    return difference


def _compute(config: DecoderConfig, params: Params, tokens: np.ndarray, stored: str) -> jax.Array:
    whole = weight_gathering.replicated(params)

    @jax.jit
    def compute(params: Params, tokens: jax.Array) -> jax.Array:
        rounded = jax.tree.map(lambda x: x.astype(stored).astype(jnp.float32), params)
        model = bind(config, rounded)
        rows, length = tokens.shape
        positions = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), (rows, length))
        hidden = model(tokens, positions, jnp.ones_like(tokens))
        last = jnp.full((rows,), length - 1, jnp.int32)
        out = model.logits(hidden) if config.labels is None else model.scores(hidden, last)
        return weight_gathering.constrained(out, whole)

    result: jax.Array = compute(params, tokens)
    return result


def _local(array: jax.Array) -> np.ndarray:
    return np.asarray(array if array.is_fully_addressable else array.addressable_data(0))


def _their_logits(folder: str | os.PathLike[str], config: DecoderConfig, tokens: np.ndarray) -> np.ndarray:
    try:
        import torch  # noqa: PLC0415 - only here, and not a dependency
        import transformers  # noqa: PLC0415 - takes seconds
    except ImportError as error:
        install = shell_line("pip", "install", "torch")
        raise WeightsError(f"comparing logits with transformers needs PyTorch: {install} ({error})") from error
    kind: Any = transformers.AutoModelForCausalLM
    if config.labels is not None:
        kind = transformers.AutoModelForSequenceClassification
    try:
        model = kind.from_pretrained(
            os.fspath(folder), dtype=torch.float32, local_files_only=True, trust_remote_code=False
        ).eval()
    except (OSError, ValueError, RuntimeError) as error:
        raise WeightsError(f"{folder}: transformers cannot load what was saved: {error}") from error
    model.config.pad_token_id = None  # rows are whole; a random token may happen to be the padding token
    with torch.no_grad():
        rows = [model(torch.from_numpy(row[None]).long()).logits.float().numpy() for row in tokens]
    return np.concatenate(rows)
