"""Adapters in and out of the layout of the PEFT package: ``adapter_config.json`` and ``adapter_model.safetensors``.

PEFT holds lora_A [r, in] and lora_B [out, r] per projection, we hold a [in, r] and b [r, out]: each is the other's
transpose, and both multiply the correction by alpha / r. What the tensors of a file adapt is the truth; the patterns
by which PEFT chose them (``target_modules`` and the like) are not interpreted.

Source: Hu et al., arXiv 2106.09685, and the fields of ``LoraConfig`` of PEFT 0.21.
"""

import math
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dfc.config import hub_names
from dfc.errors import WeightsError, shown
from dfc.models import families, model_folders, safetensors_format, shard_reading, weight_gathering
from dfc.models.config import DecoderConfig
from dfc.models.hf_config import ConfigReader
from dfc.models.lora import ALL_LINEAR, AdapterTree, LoraConfig, abstract_adapters, adapter_shardings
from dfc.models.safetensors_format import Location
from dfc.models.sharding import on_one_device
from dfc.models.transformer import Path, by_path

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_WRITTEN_BESIDE = ("README.md", *model_folders.TOKENIZER_FILES)  # by PEFT and trainers; lost without harm
_PREFIX, _KERNEL = "base_model.model.", ".weight"
_MATRICES = {"a": ".lora_A.weight", "b": ".lora_B.weight"}
_DTYPES = ("float32", "bfloat16")
_READ = frozenset({"peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "bias", "init_lora_weights"})
# Names, versions, modes; patterns whose outcome is the tensors in the file; settings of what is switched off.
_WITHOUT_EFFECT = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "eva_config",
        "exclude_modules",
        "inference_mode",
        "layers_pattern",
        "layers_to_transform",
        "megatron_core",
        "parent_library",
        "peft_version",
        "qalora_group_size",
        "revision",
        "runtime_config",
        "target_modules",
        "task_type",
    }
)
_REFUSED = {
    "use_dora": "DoRA's magnitudes are not computed",
    "modules_to_save": "modules trained whole belong into a model folder; merge them there with PEFT",
    "rank_pattern": "one rank for all projections is computed",
    "alpha_pattern": "one alpha for all projections is computed",
    "fan_in_fan_out": "the projections here are stored [out, in]",
    "lora_bias": "adapters have no bias here",
    "layer_replication": "layers are not repeated",
    "trainable_token_indices": "embeddings are not adapted",
    "target_parameters": "only projections are adapted",
}
# The others begin by changing the base model's weights, which the adapter's file does not hold.
_STARTS = (True, False, "gaussian", "eva", "orthogonal")


def load_adapter(
    folder: str | os.PathLike[str],
    config: DecoderConfig,
    *,
    dtype: str = "float32",
    mesh: jax.sharding.Mesh | None = None,
) -> tuple[LoraConfig, AdapterTree]:
    """Reads an adapter that PEFT, or `save_adapter`, has saved.

    The folder is here or in a bucket. Weights are rounded to `dtype`, ``float32`` or ``bfloat16``, and split over
    `mesh` as `dfc.models.lora.adapter_shardings` says; None puts all on the first local device.

    Returns:
      Its configuration, and its weights in the unrolled layout. An adapter with ``use_rslora`` has scale
      alpha / sqrt(r); its alpha comes back as alpha * sqrt(r), which is the same scale.

    Raises:
      WeightsError: if there is no adapter, it asks for something that is not computed here (listed by field), or its
        tensors are missing, misshapen, adapt something else (all listed), or hold NaN or infinite numbers.
    """
    if dtype not in _DTYPES:
        raise WeightsError(f"dtype: expected one of {', '.join(_DTYPES)}, got {dtype!r}")
    folder = model_folders.location(folder)
    settings = _settings(folder)
    try:
        stored = safetensors_format.read_header(folder / WEIGHTS)
    except FileNotFoundError as error:
        pickled = "; adapter_model.bin is there, and pickled files are never loaded"
        came = pickled if (folder / "adapter_model.bin").exists() else ""
        raise WeightsError(f"{folder}: expected {WEIGHTS}{came}. Save the adapter as safetensors.") from error
    except (safetensors_format.BrokenFileError, OSError) as error:
        raise WeightsError(f"{folder / WEIGHTS}: not a whole safetensors file ({error}); save it again") from error
    names = _tensor_names(config)
    targets = tuple(t for t in ALL_LINEAR if any(p[-2] == t and name in stored for p, name in names.items()))
    if not targets:
        raise WeightsError(f"{folder / WEIGHTS}: adapts none of {', '.join(ALL_LINEAR)} of this decoder")
    lora = LoraConfig(targets=targets, **settings)
    if found := lora.problems():
        raise WeightsError(f"{folder / CONFIG}: this adapter cannot be used:{model_folders.listed(found)}")
    tree = abstract_adapters(config, lora)
    shapes = by_path(tree)
    problems = model_folders.misfits(
        stored,
        {names[path]: shape.shape[::-1] for path, shape in shapes.items()},
        missing="missing; every layer has to be adapted alike",
        extra="extra; only the projections of this decoder's layers are adapted",
    )
    if problems:
        raise WeightsError(f"{folder / WEIGHTS}: the adapter cannot be loaded:{model_folders.listed(problems)}")
    places = by_path(on_one_device(tree) if mesh is None else adapter_shardings(config, lora, mesh))
    wanted = [
        shard_reading.WantedArray(stored[names[path]], shape.shape, np.dtype(dtype), places[path], transpose=True)
        for path, shape in shapes.items()
    ]
    arrays = shard_reading.load_arrays(wanted, mesh, folder / WEIGHTS, "the adapter")
    return lora, jax.tree.unflatten(jax.tree.structure(tree), arrays)


def _settings(folder: Location) -> dict[str, Any]:
    """Returns rank, alpha and dropout of an ``adapter_config.json``; WeightsError lists what is not computed."""
    if not (folder / CONFIG).exists():
        raise WeightsError(f"{folder}: expected an adapter's {CONFIG}, there is none")
    given = model_folders.read_json(folder / CONFIG)
    reader = ConfigReader(given)
    if given.get("peft_type") != "LORA":
        reader.refuse("peft_type", f"expected 'LORA', got {shown(given.get('peft_type'))}")
    if given.get("bias", "none") != "none":
        reader.refuse("bias", f"only 'none' is computed, got {shown(given['bias'])}")
    for name in sorted(given.keys() - _READ - _WITHOUT_EFFECT):
        if given[name]:  # null, false and empty switch something off
            why = _REFUSED.get(name, "unknown; if it changes nothing, remove it")
            reader.refuse(name, f"got {shown(given[name])}; {why}")
    start = given.get("init_lora_weights", True)
    if start not in _STARTS:
        reader.refuse(
            "init_lora_weights",
            f"{shown(start)} changes the base model's weights; convert the adapter to a plain one with PEFT",
        )
    # What PEFT takes for absent numbers; without dropout is a number too.
    rank, alpha = reader.integer("r", 8), reader.number("lora_alpha", given.get("lora_alpha", 8))
    dropout = given.get("lora_dropout", 0.0)
    dropout = reader.number("lora_dropout", dropout) if dropout != 0 or isinstance(dropout, bool) else 0.0
    if reader.problems:
        raise WeightsError(f"{folder / CONFIG}: this adapter cannot be used:{model_folders.listed(reader.problems)}")
    if given.get("use_rslora"):
        alpha *= math.sqrt(rank)
    return {"rank": rank, "alpha": alpha, "dropout": dropout}


def _tensor_names(config: DecoderConfig) -> dict[Path, str]:
    """Returns PEFT's tensor name of every matrix an adapter of this decoder can have, by its path in our tree."""
    return {
        (*path[:-1], matrix): _PREFIX + name.tensor.removesuffix(_KERNEL) + suffix
        for path, name in families.tensor_names(config).items()
        if path[0] == "layers" and path[-2] in ALL_LINEAR and path[-1] == "kernel"
        for matrix, suffix in _MATRICES.items()
    }


def save_adapter(
    folder: str | os.PathLike[str],
    lora: LoraConfig,
    adapters: AdapterTree,
    config: DecoderConfig,
    base_model: str,
) -> None:
    """Writes an adapter that PEFT's ``PeftModel.from_pretrained`` loads.

    The folder appears whole or not at all, as with `dfc.models.huggingface.save`; with several hosts every host calls
    this.

    The folder is here or in a bucket, and may hold nothing but an earlier adapter. `adapters` are float32 or bfloat16,
    in either layout, and written in their dtype; `base_model` is the base model's folder or its name on the hub, which
    PEFT's automatic classes load.

    Raises:
      WeightsError: if the weights are not those of `lora` on this decoder, or the folder holds something else.
    """
    target = model_folders.location(folder)
    target = target if model_folders.in_bucket(target) else target.absolute()
    kinds = sorted({str(array.dtype) for array in jax.tree.leaves(adapters)})
    if len(kinds) != 1 or kinds[0] not in _DTYPES:
        raise WeightsError(f"adapters: expected one dtype of {', '.join(_DTYPES)}, got {', '.join(kinds) or 'none'}")
    dtype = np.dtype(kinds[0])
    abstract = jax.tree.map(lambda shape: shape.update(dtype=dtype), abstract_adapters(config, lora))
    mine = "the adapters do not fit rank and targets of their configuration"
    given = weight_gathering.weights_by_path(adapters, abstract, mine)
    names = _tensor_names(config)
    model_folders.write_folder(
        target,
        {WEIGHTS: [given[path].to_write(names[path], dtype, transpose=True) for path in by_path(abstract)]},
        lambda new: model_folders.write_json(new / CONFIG, _peft_config(lora, config, names, base_model)),
        check_stop=lambda: model_folders.check_target(target, _is_ours, "a saved adapter"),
        last=CONFIG,
    )


def _is_ours(name: str) -> bool:
    return name in (CONFIG, WEIGHTS, *_WRITTEN_BESIDE)


def _peft_config(lora: LoraConfig, config: DecoderConfig, names: Mapping[Path, str], base_model: str) -> dict[str, Any]:
    adapted = [name for path, name in names.items() if path[-2] in lora.targets and path[-1] == "a"]
    modules = {name.removesuffix(_MATRICES["a"]).rpartition(".")[2] for name in adapted}
    name, revision = hub_names.split(base_model) if hub_names.is_pinned(base_model) else (base_model, None)
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if config.labels is None else "SEQ_CLS",
        "base_model_name_or_path": name,
        "revision": revision,
        "inference_mode": True,
        "r": lora.rank,
        "lora_alpha": int(lora.alpha) if lora.alpha == int(lora.alpha) else lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": sorted(modules),
        "bias": "none",
        "fan_in_fan_out": False,
        "modules_to_save": None,
        "use_rslora": False,
        "use_dora": False,
    }
