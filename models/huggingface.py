"""Weights in and out of the Hugging Face folder layout: ``config.json``, safetensors, tokenizer files.

Reading goes piece by piece from the files into each device's shard, so that a host holds little beside its own
shards (dfc.models.shard_reading); writing takes one tensor at a time. Only safetensors are read: the older pickled
files can run any code when opened. Folders may be in a bucket (``gs://bucket/model``).
"""

import dataclasses
import functools
import os
import pathlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dfc import multihost
from dfc.config import hub_names
from dfc.errors import WeightsError, cut
from dfc.models import (
    families,
    hf_config,
    hf_config_fields,
    hub,
    model_folders,
    safetensors_format,
    shard_reading,
    verification,
    weight_gathering,
)
from dfc.models.config import DecoderConfig
from dfc.models.quantization import Nf4Kernel, is_quantized, quantize, quantize_params, quantized_shardings
from dfc.models.safetensors_format import Location
from dfc.models.sharding import on_one_device, param_shardings
from dfc.models.transformer import Params, abstract_params, by_path

TOKENIZER_FILES = model_folders.TOKENIZER_FILES
_QUANTIZED_AT_ONCE = 8  # tensors at full precision on the devices while the others are in four bits
_DTYPES = ("float32", "bfloat16")
_NAMES_SHOWN = 10
_TINY_PLAYER = "tiny_player"
_EMBEDDING, _HEAD = ("embed", "embedding"), "lm_head.weight"


def resolve(path: str, *, weights: bool = True) -> Location:
    """Returns the folder of a model: the bundled model for ``tiny_player``, else `path` itself.

    A folder of that name in the working directory is reached as ``./tiny_player``; ``gs://...`` is an address.
    ``ORG/NAME`` is a model of the Hub if there is no folder ``ORG`` here; it is downloaded (`dfc.models.hub`).
    `weights` False: of the Hub's model everything but the weights.

    Raises:
      WeightsError: if the folder has no ``config.json``, or the Hub no such model.
    """
    if hub_names.is_hub_name(path):
        return hub.folder(path, weights=weights)
    folder = pathlib.Path(__file__).parent / _TINY_PLAYER if path == _TINY_PLAYER else model_folders.location(path)
    if not (folder / model_folders.CONFIG).exists():
        state = f"that folder has no {model_folders.CONFIG}" if folder.is_dir() else "there is no such folder"
        raise WeightsError(
            f"model {path!r}: looked for {folder / model_folders.CONFIG}, but {state}; expected a folder in the "
            f"Hugging Face layout, {_TINY_PLAYER!r} for the bundled model, or ORG/NAME of the Hub"
        )
    return folder


def _check(tensors: model_folders.FolderTensors, config: DecoderConfig) -> list[str]:
    """Returns everything that keeps these tensors from being the decoder's weights."""
    problems = list(tensors.problems)
    if not tensors.stored:  # nothing could be opened; "missing" for every tensor would bury the reason
        return problems or ["the files hold no tensors"]
    shapes = by_path(abstract_params(config))
    return problems + model_folders.misfits(
        tensors.stored,
        {
            name.tensor: shapes[path].shape[::-1] if name.transpose else shapes[path].shape
            for path, name in families.tensor_names(config).items()
        },
        missing="missing",
        extra=f"extra, not a tensor of a {families.family_of(config).architecture} with this config.json",
        source=" from config.json",
        reported=tensors.reported,
        ignorable=lambda name: families.is_ignorable(name, config),
    )


def load(
    folder: str | os.PathLike[str], *, mesh: jax.sharding.Mesh | None = None, dtype: str, nf4: bool = False
) -> tuple[DecoderConfig, Params]:
    """Reads a model folder.

    Host memory beside the arrays stays below twice the largest tensor; several tensors are read at once.

    Args:
      folder: a folder in the Hugging Face layout, here or in a bucket; as text also what `resolve` takes.
      mesh: the devices, split as `dfc.models.sharding.param_shardings` says; None puts all on the first local device.
      dtype: ``float32`` or ``bfloat16``; the weights are rounded to it, whatever the files hold.
      nf4: store the kernels of the layers in four bits (`dfc.models.quantization`), a few tensors at a time: the whole
        model is never on the devices at full precision.

    Returns:
      The decoder, with this dtype, and its weights, in the unrolled layout.

    Raises:
      WeightsError: if there is no such folder, ``config.json`` cannot be computed, or the tensors do not fit it; lists
        every missing, extra or misshapen tensor and every truncated file (the first 40 of very many). Nothing is
        placed on a device before. Also if an output embedding that is said to be tied differs from the embedding, or a
        weight is NaN or infinite in `dtype`: names the tensor.

    Warns:
      UserWarning: a tensor is in two files: the one that the index names is read.
    """
    if dtype not in _DTYPES:
        raise WeightsError(f"dtype: expected one of {', '.join(_DTYPES)}, got {dtype!r}")
    folder = resolve(folder) if isinstance(folder, str) else model_folders.location(folder)
    try:
        said = model_folders.read_json(folder / model_folders.CONFIG)
        config = families.from_config_json(said)
    except WeightsError as error:
        raise WeightsError(f"{folder}: {error}") from error
    _tell_passed_over(said)
    config = dataclasses.replace(config, dtype=dtype)
    tensors = model_folders.FolderTensors(folder)
    _check_layers(tensors, config)
    abstract = abstract_params(config)
    places = by_path(on_one_device(abstract) if mesh is None else param_shardings(config, mesh))
    if families.reads_images(said):
        _take_prefixes(tensors)
    problems = _check(tensors, config)
    if problems:
        raise WeightsError(f"{folder}: the weights cannot be loaded:{model_folders.listed(problems)}")
    for note in tensors.notes:
        warnings.warn(f"{folder}: {cut(note, 1000)}", stacklevel=2)
    names = families.tensor_names(config)
    wanted = [
        shard_reading.WantedArray(
            tensors.stored[names[path].tensor], shape.shape, np.dtype(dtype), places[path], names[path].transpose
        )
        for path, shape in by_path(abstract).items()
    ]
    quantized = None if not nf4 else jax.tree.leaves(_nf4_places(config, mesh), is_leaf=is_quantized)
    step = len(wanted) if quantized is None else _QUANTIZED_AT_ONCE
    tied = config.tied_embedding and config.labels is None
    check = functools.partial(_refuse_untied, tensors, names[_EMBEDDING].tensor) if tied else None
    arrays: list[Any] = []
    for start in range(0, len(wanted), step):
        arrays += shard_reading.load_arrays(wanted[start : start + step], mesh, folder, "the weights", check=check)
        check = None  # once is enough
        if quantized is not None:
            arrays[start:] = [
                _quantizer(place)(array) if is_quantized(place) else array
                for array, place in zip(arrays[start:], quantized[start : start + step], strict=True)
            ]
    return config, jax.tree.unflatten(jax.tree.structure(abstract), arrays)


def _check_layers(tensors: model_folders.FolderTensors, config: DecoderConfig) -> None:
    """Refuses another number of layers than the files have; where a file is missing, that is what must be fixed."""
    try:
        families.check_layers(config, tensors.folder, [*tensors.stored, *tensors.reported])
    except WeightsError as error:
        if not tensors.problems:
            raise
        problems = model_folders.listed(tensors.problems)
        raise WeightsError(f"{tensors.folder}: the weights cannot be loaded:{problems}") from error


def _tell_passed_over(config: Mapping[str, Any]) -> None:
    """Prints the unknown fields of a ``config.json``, the first time a process sees them."""
    names = [hf_config.shown_name(name) for name in families.passed_over(config)]
    if names and multihost.is_primary():
        more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
        _tell(
            f"config.json: passed over, as nothing in transformers {hf_config_fields.transformers_version()} reads it: "
            f"{', '.join(names[:_NAMES_SHOWN])}{more}"
        )


@functools.lru_cache(maxsize=64)
def _tell(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a note for the user


def _take_prefixes(tensors: model_folders.FolderTensors) -> None:
    """Calls the tensors what the text model calls them: a model that also reads images puts a prefix before that."""
    stored: dict[str, safetensors_format.StoredTensor] = {}
    for name, tensor in tensors.stored.items():
        canonical = families.canonical_name(name)
        other = stored.setdefault(canonical, tensor)
        if other is not tensor:
            tensors.problems.append(f"{other.name} and {name}: both are {canonical} of the text model; remove one")
    tensors.stored = stored
    tensors.reported = {families.canonical_name(name) for name in tensors.reported}


def _refuse_untied(tensors: model_folders.FolderTensors, embedding: str) -> None:
    """Refuses an output embedding that is no copy of the embedding it is declared tied to; reads a piece at a time.

    Raises:
      WeightsError: they differ.
      BrokenFileError, OSError: they cannot be read.
    """
    head, tied = tensors.stored.get(_HEAD), tensors.stored[embedding]
    if head is None:
        return
    how = None
    if head.shape != tied.shape or head.dtype not in safetensors_format.NUMPY_DTYPES:
        how = f"{head.dtype} {list(head.shape)} and {tied.dtype} {list(tied.shape)}"
    else:
        rows = max(head.piece_rows(), tied.piece_rows())  # one dtype may be wider than the other
        pieces = (stored.pieces(0, tied.shape[0], multiple=rows) for stored in (head, tied))
        for (first, one), (_, other) in zip(*pieces, strict=True):
            if not np.array_equal(one.astype(np.float32), other.astype(np.float32), equal_nan=True):
                how = f"they differ in rows {first} to {first + len(one) - 1}"
                break
    if how is None:
        return
    raise WeightsError(
        f"{tensors.folder}: config.json says tie_word_embeddings: true, but {head.name} is no copy of {tied.name} "
        f"({how}). If the model was trained with an output embedding of its own, set tie_word_embeddings to false in "
        f"config.json; if not, remove {head.name} from the files"
    )


def _nf4_places(config: DecoderConfig, mesh: jax.sharding.Mesh | None) -> Params:
    """Returns the place of every part of the quantized weights; a kernel that cannot be quantized is an error here."""
    if mesh is not None:
        return quantized_shardings(config, mesh)
    return on_one_device(jax.eval_shape(quantize_params, abstract_params(config)))


@functools.lru_cache(maxsize=64)
def _quantizer(place: Nf4Kernel) -> Callable[[jax.Array], Nf4Kernel]:
    return jax.jit(quantize, out_shardings=place)


def reads_images(folder: Location) -> bool:
    """Returns whether a folder holds a model with an image part, of which `load` takes the text model."""
    return families.reads_images(model_folders.read_json(folder / model_folders.CONFIG))


def _split(tensors: Sequence[safetensors_format.TensorToWrite], limit: int) -> list[list[Any]]:
    """Returns the tensors file by file: in order, a new file whenever the next tensor would exceed `limit` bytes."""
    files: list[list[safetensors_format.TensorToWrite]] = []
    filled = 0
    for tensor in tensors:
        if not files or filled + tensor.nbytes > limit:
            files.append([])
            filled = 0
        files[-1].append(tensor)
        filled += tensor.nbytes
    return files


def save(
    folder: str | os.PathLike[str],
    config: DecoderConfig,
    params: Params,
    *,
    copy_from: Location | None,
    shard_bytes: int = 5 * 2**30,
    dtype: str | None = None,
    verify: bool = False,
) -> None:
    """Writes a model folder that transformers, and servers that read its layout, can load.

    The folder appears whole or not at all. On a disk it is written beside its place and renamed at the end; an older
    model of that name is moved aside first and deleted last. In a bucket, which cannot rename, the older model's
    ``config.json`` is removed first and the new one's written last. With several hosts every host calls this; one
    tensor at a time is gathered on devices, and the first host alone fetches and writes it.

    Args:
      folder: where to, here or in a bucket; if it exists, it may hold nothing but an earlier model.
      config: the decoder.
      params: its weights, of the configured dtype, in either layout.
      copy_from: the folder whose tokenizer files are copied and whose ``config.json`` fields without effect on the
        logits (token ids, longest context, ...) are kept, if it has one; None copies nothing.
      shard_bytes: a file holds at most this many bytes of tensors, or one tensor.
      dtype: ``float32`` or ``bfloat16`` to round to; None writes the weights as trained.
      verify: whether to load what was written with transformers and compare logits before it takes its place
        (`dfc.models.verification.verify_saved`); for a folder on a disk.

    Raises:
      WeightsError: if the weights do not fit the configuration, the folder holds something else, or transformers
        computes other logits.
    """
    if dtype not in (None, *_DTYPES):
        raise WeightsError(f"dtype: expected one of {', '.join(_DTYPES)}, or None for as trained; got {dtype!r}")
    target = model_folders.location(folder)
    if isinstance(target, pathlib.Path):
        target = target.absolute()
    elif verify:
        raise WeightsError(f"{target}: only a folder on a disk can be verified, transformers reads no bucket")
    weights = weight_gathering.weights_by_path(params, abstract_params(config), "weights do not fit the configuration")
    stored_config = config if dtype is None else dataclasses.replace(config, dtype=dtype)
    kind = np.dtype(stored_config.dtype)
    tensors = [
        weights[path].to_write(name.tensor, kind, transpose=name.transpose)
        for path, name in families.tensor_names(config).items()
    ]
    files = _named(_split(tensors, shard_bytes))
    carried: dict[str, Any] = {}

    def check_stop() -> None:
        model_folders.check_target(target, _is_ours, "a saved model")
        carried.update(_carried(copy_from))

    def finish(new: Location) -> None:
        base = carried.pop(model_folders.CONFIG, None)
        if len(files) > 1:
            weight_map = {tensor.name: file for file, held in files.items() for tensor in held}
            metadata = {"total_size": sum(tensor.nbytes for tensor in tensors)}
            model_folders.write_json(new / model_folders.INDEX, {"metadata": metadata, "weight_map": weight_map})
        for name, content in carried.items():
            (new / name).write_bytes(content)
        # Last: without it a folder that a killed process left behind does not pass for a model.
        model_folders.write_json(new / model_folders.CONFIG, families.to_config_json(stored_config, base=base))
        compare(new)

    def compare(new: Location | None = None) -> None:
        if verify:
            verification.verify_saved(new, stored_config, params)

    model_folders.write_folder(target, files, finish, check_stop=check_stop, last=model_folders.CONFIG, beside=compare)


def _is_ours(name: str) -> bool:
    ours = {model_folders.CONFIG, model_folders.INDEX, *TOKENIZER_FILES}
    return name in ours or (name.startswith("model") and name.endswith(".safetensors"))


def _named(files: list[list[Any]]) -> Mapping[str, list[safetensors_format.TensorToWrite]]:
    if len(files) == 1:
        return {model_folders.SINGLE: files[0]}
    return {f"model-{i:05}-of-{len(files):05}.safetensors": held for i, held in enumerate(files, 1)}


def _carried(source: Location | None) -> dict[str, Any]:
    """Returns what is taken over from a folder: its tokenizer files' bytes and its parsed ``config.json``."""
    if source is None:
        return {}
    found: dict[str, Any] = {
        name: (source / name).read_bytes() for name in TOKENIZER_FILES if (source / name).is_file()
    }
    if (source / model_folders.CONFIG).exists():
        found[model_folders.CONFIG] = model_folders.read_json(source / model_folders.CONFIG)
    return found
