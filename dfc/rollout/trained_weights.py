"""Weights that play: of a folder, or those that a run left in its newest checkpoint; what identifies them."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from dfc.config import AdapterConfig, RowsAdapterConfig
from dfc.errors import CheckpointError
from dfc.models import families, huggingface, model_folders, sharding
from dfc.models.config import DecoderConfig
from dfc.models.lora import ALL_LINEAR, QKVO, LoraConfig, merge
from dfc.models.model_folders import TOKENIZER_FILES
from dfc.models.transformer import Params, is_stacked, unstack_layers
from dfc.players.player_specs import PlayerSpec, WeightsSource, weights_in
from dfc.runs.checkpoint import Checkpointer

_SEEN = 1 << 20  # bytes at both ends of a file of weights that its fingerprint reads


def lora_config(adapter: AdapterConfig) -> LoraConfig | None:
    """Returns the adapters a configuration asks for; None if all weights are trained."""
    if adapter.rank == 0:
        return None
    targets = QKVO if adapter.targets == "qkvo" else ALL_LINEAR
    dropout = adapter.dropout if isinstance(adapter, RowsAdapterConfig) else 0.0
    return LoraConfig(rank=adapter.rank, alpha=adapter.alpha, dropout=dropout, targets=targets)


def load(weights: WeightsSource, model: DecoderConfig, mesh: jax.sharding.Mesh | None) -> Params:
    """Returns what `load_with_step` does, without the step."""
    return load_with_step(weights, model, mesh)[0]


def load_with_step(
    weights: WeightsSource, model: DecoderConfig, mesh: jax.sharding.Mesh | None
) -> tuple[Params, int | None]:
    """Returns weights in the unrolled layout, spread over a mesh, adapters merged; and the step of their checkpoint.

    A folder's own weights have no step (None). Of a run without a policy it is the last that the run has accepted.

    A checkpoint is read whole, the optimizer's state too, into the host's memory. `mesh` None: one of the devices.

    Raises:
      WeightsError: the folder is no model. CheckpointError: there is no whole checkpoint, or one of another recipe.
    """
    if weights.run is None:
        return huggingface.load(weights.folder, mesh=mesh, dtype=model.dtype)[1], None
    restored = Checkpointer(weights.run / "checkpoints", keep=1).restore()
    if restored is None or "best" not in restored.arrays:
        raise CheckpointError(f"{weights.run / 'checkpoints'}: no checkpoint of divide_fuse_conquer that can be read")
    best: Any = restored.arrays["best"]
    if "layers" not in best:
        names = ", ".join(map(str, best))
        raise CheckpointError(
            f"{weights.run / 'checkpoints'}: holds several policies ({names}); name the policy of one"
        )
    best = unstack_layers(best) if is_stacked(best) else best
    lora = lora_config(AdapterConfig(**(weights.config or {}).get("adapter", {})))
    if lora is not None:
        _, base_params = huggingface.load(weights.folder, mesh=mesh, dtype=model.dtype)
        return merge(base_params, jax.tree.map(jnp.asarray, best), lora.scale), restored.step
    if mesh is None:
        return jax.tree.map(lambda x: jnp.asarray(x, model.dtype), best), restored.step
    places = sharding.param_shardings(model, mesh)
    placed = jax.tree.map(lambda x, place: jax.device_put(jnp.asarray(x, model.dtype), place), best, places)
    return placed, restored.step


def kind_of(folder: str) -> tuple[DecoderConfig, str]:
    """Returns the shape of a model and a digest of its tokenizer, without reading weights.

    Raises:
      WeightsError: the folder holds no supported model.
    """
    source = huggingface.resolve(folder)
    digest = hashlib.sha256()
    for name in TOKENIZER_FILES:
        if (source / name).exists():
            digest.update(name.encode() + (source / name).read_bytes())
    return families.from_config_json(model_folders.read_json(source / model_folders.CONFIG)), digest.hexdigest()


def difference(folder: str, other: str) -> str | None:
    """Returns what keeps two models from playing in one engine, ``architecture`` or ``tokenizer``; None: nothing."""
    (model, tokenizer), (other_model, other_tokenizer) = kind_of(folder), kind_of(other)
    return "architecture" if other_model != model else "tokenizer" if other_tokenizer != tokenizer else None


def fingerprint(weights: WeightsSource, step: int | None = None) -> str:
    """Returns a digest that identifies the weights in a place: of both ends of their files, or of a manifest.

    `step` is of a run's checkpoint; None: its newest one.

    Raises:
      CheckpointError: there is no such checkpoint.
    """
    digest = hashlib.sha256()
    if weights.run is not None:
        manifests = sorted((weights.run / "checkpoints").glob("step_*/manifest.json"))
        if step is not None:
            manifests = [file for file in manifests if file.parent.name == f"step_{step:09d}"]
        if not manifests:
            raise CheckpointError(f"{weights.run / 'checkpoints'}: no checkpoint yet; let the run continue for a while")
        digest.update(manifests[-1].read_bytes())
        return digest.hexdigest()
    for file in sorted(Path(huggingface.resolve(weights.folder)).glob("*.safetensors")):
        with file.open("rb") as data:
            size = file.stat().st_size
            digest.update(f"{file.name} {size}\n".encode())
            digest.update(data.read(_SEEN))
            data.seek(max(0, size - _SEEN))
            digest.update(data.read(_SEEN))
    return digest.hexdigest()


def identities(players: Iterable[PlayerSpec]) -> dict[str, str]:
    """Returns by name what identifies each player: its specification, of models a `fingerprint`."""
    return {spec.name: fingerprint(weights_in(spec.who)) if spec.kind == "model" else spec.who for spec in players}
