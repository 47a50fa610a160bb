"""Weights in and out of the Hugging Face folder layout: ``config.json``, safetensors, tokenizer files.

Reading goes slice by slice from the memory-mapped file into each device's shard, so that no host ever holds more
than one tensor beside its own shards. Only safetensors are read: the older pickled files can run any code when opened.
"""

import contextlib
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy
from jax.experimental import multihost_utils

from dfc.errors import WeightsError
from dfc.models import families
from dfc.models.sharding import param_shardings
from dfc.models.decoder_config import DecoderConfig
from dfc.models.transformer import Params, abstract_params

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)
_CONFIG, _SINGLE, _INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_READABLE = ("F32", "F16", "BF16")
_DTYPES = ("float32", "bfloat16")
_TINY_PLAYER = "tiny_player"


def resolve(path: str) -> Path:
    """Returns the folder of a model: the model in the box for ``tiny_player``, else `path` itself.

    A folder of that name in the working directory is reached as ``./tiny_player``.

    Raises:
      WeightsError: if the folder has no ``config.json``.
    """
    folder = Path(__file__).parent / _TINY_PLAYER if path == _TINY_PLAYER else Path(path).expanduser()
    if not (folder / _CONFIG).is_file():
        state = f"that folder has no {_CONFIG}" if folder.is_dir() else "there is no such folder"
        raise WeightsError(
            f"model {path!r}: looked for {folder / _CONFIG}, but {state}; expected a folder in the Hugging Face "
            f"layout, or {_TINY_PLAYER!r} for the model in the box"
        )
    return folder


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path}: expected a JSON file, cannot read it ({error})") from error
    if not isinstance(value, dict):
        raise WeightsError(f"{path}: expected a JSON object, got a {type(value).__name__}")
    return value


def _files(folder: Path) -> dict[str, set[str] | None]:
    """Returns the safetensors files of a folder and what an index expects in each (None: there is no index)."""
    if (folder / _SINGLE).is_file():
        return {_SINGLE: None}
    if not (folder / _INDEX).is_file():
        pickled = sorted(file.name for kind in ("*.bin", "*.pt", "*.pth") for file in folder.glob(kind))
        came = f"; it holds {', '.join(pickled)}, and pickled files are never loaded" if pickled else ""
        raise WeightsError(
            f"{folder}: expected {_SINGLE} or {_INDEX}{came}. Save the model as safetensors, for example with "
            "transformers' save_pretrained."
        )
    weight_map = _read_json(folder / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise WeightsError(f"{folder / _INDEX}: expected an object 'weight_map' from tensor names to file names")
    outside = sorted({file for file in weight_map.values() if Path(file).name != file})
    if outside:
        raise WeightsError(f"{folder / _INDEX}: file names must not lead out of the folder, got {', '.join(outside)}")
    expected: dict[str, set[str] | None] = {}
    for file in sorted(set(weight_map.values())):
        expected[file] = {tensor for tensor, place in weight_map.items() if place == file}
    return expected


class _Tensors:
    """The tensors of a folder's files.

    Attributes:
      slices: what can be read, by name.
      problems: one sentence per file or tensor that an index names and that is not where it should be.
      reported: tensors that `problems` already speaks for.
    """

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.slices: dict[str, Any] = {}
        self.problems: list[str] = []
        self.reported: set[str] = set()
        for file, indexed in _files(folder).items():
            try:
                opened = stack.enter_context(safetensors.safe_open(folder / file, framework="numpy"))
            except (safetensors.SafetensorError, OSError) as error:
                there = (folder / file).is_file()
                self.problems.append(
                    f"{file}: not a whole safetensors file ({error}); download or save it again"
                    if there
                    else f"{file}: {_INDEX} names this file, but it is not there"
                )
                self.reported |= indexed or set()
                continue
            held = set(opened.keys())
            self.slices |= {tensor: opened.get_slice(tensor) for tensor in held}
            if indexed is not None:
                self.problems += [
                    f"{tensor}: {_INDEX} expects it in {file}, which does not hold it"
                    for tensor in sorted(indexed - held)
                ]
                self.reported |= indexed - held


def _check(tensors: _Tensors, config: DecoderConfig) -> list[str]:
    """Returns everything that keeps these tensors from being the decoder's weights."""
    problems = list(tensors.problems)
    if not tensors.slices:  # nothing could be opened; "missing" for every tensor would bury the reason
        return problems or ["the files hold no tensors"]
    names = families.tensor_names(config)
    shapes = _flatten(abstract_params(config))
    for path, name in names.items():
        found = tensors.slices.get(name.tensor)
        if found is None:
            if name.tensor not in tensors.reported:
                problems.append(f"{name.tensor}: missing")
            continue
        shape = tuple(found.get_shape())
        expected = shapes[path].shape[::-1] if name.transpose else shapes[path].shape
        if shape != expected:
            problems.append(f"{name.tensor}: expected shape {list(expected)} from config.json, got {list(shape)}")
        if found.get_dtype() not in _READABLE:
            problems.append(f"{name.tensor}: expected one of {', '.join(_READABLE)}, got {found.get_dtype()}")
    known = {name.tensor for name in names.values()}
    extra = [name for name in sorted(tensors.slices) if name not in known and not families.is_ignorable(name, config)]
    what = f"a {families.family_of(config).architecture} with this config.json"
    return problems + [f"{name}: extra, not a tensor of {what}" for name in extra]


def _flatten(tree: Params) -> dict[families.Path, Any]:
    return {tuple(str(key.key) for key in keys): leaf for keys, leaf in jax.tree.leaves_with_path(tree)}


def _reader(tensor: Any, *, transpose: bool, dtype: str) -> Callable[[Any], np.ndarray]:  # noqa: ANN401 - safetensors has no public type for a slice
    """Returns a function from an index in our layout to that part of the tensor."""
    parts: dict[tuple[tuple[int | None, int | None], ...], np.ndarray] = {}

    def read(index: tuple[slice, ...]) -> np.ndarray:
        key = tuple((part.start, part.stop) for part in index)
        if key not in parts:  # devices that hold copies of a shard share one read
            part = tensor[index[::-1] if transpose else index]
            parts[key] = np.asarray(part.T if transpose else part, dtype=np.dtype(dtype), order="C")
        return parts[key]

    return read


def load(folder: str | Path, *, mesh: jax.sharding.Mesh | None = None, dtype: str) -> tuple[DecoderConfig, Params]:
    """Reads a model folder.

    Args:
      folder: a folder in the Hugging Face layout; as text also ``tiny_player``.
      mesh: the devices, split as `dfc.models.sharding.param_shardings` says; None puts all on the first local device.
      dtype: ``float32`` or ``bfloat16``; the weights are rounded to it, whatever the files hold.

    Returns:
      The decoder, with this dtype, and its weights.

    Raises:
      WeightsError: if there is no such folder, ``config.json`` cannot be computed, or the tensors do not fit it; lists
        every missing, extra or misshapen tensor and every truncated file. Nothing is placed on a device before.
    """
    if dtype not in _DTYPES:
        raise WeightsError(f"dtype: expected one of {', '.join(_DTYPES)}, got {dtype!r}")
    folder = resolve(folder) if isinstance(folder, str) else folder
    try:
        config = families.from_config_json(_read_json(folder / _CONFIG))
    except WeightsError as error:
        raise WeightsError(f"{folder}: {error}") from error
    config = dataclasses.replace(config, dtype=dtype)
    names = families.tensor_names(config)
    if mesh is None:
        place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        shardings = jax.tree.map(lambda _: place, abstract_params(config))
    else:
        shardings = param_shardings(config, mesh)
    with contextlib.ExitStack() as stack:
        tensors = _Tensors(folder, stack)
        problems = _check(tensors, config)
        if problems:
            listed = "\n".join(f"  - {problem}" for problem in problems)
            raise WeightsError(f"{folder}: the weights cannot be loaded:\n{listed}")

        def read(keys: tuple[Any, ...], shape: jax.ShapeDtypeStruct, sharding: jax.sharding.Sharding) -> jax.Array:
            name = names[tuple(str(key.key) for key in keys)]
            part = _reader(tensors.slices[name.tensor], transpose=name.transpose, dtype=dtype)
            return jax.make_array_from_callback(shape.shape, sharding, part)

        return config, jax.tree.map_with_path(read, abstract_params(config), shardings)


def _host_array(array: jax.Array | np.ndarray, *, transpose: bool) -> np.ndarray:
    """Returns the whole array on every host, in the file's layout."""
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        array = multihost_utils.process_allgather(array, tiled=True)
    host = np.asarray(array)
    return np.ascontiguousarray(host.T if transpose else host)  # safetensors writes memory as it lies


def _shards(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Returns the tensors file by file: in order, a new file whenever the next tensor would exceed `limit` bytes."""
    shards: list[list[str]] = []
    filled = 0
    for name, size in sizes.items():
        if not shards or filled + size > limit:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += size
    return shards


def _check_params(config: DecoderConfig, params: Params) -> dict[families.Path, Any]:
    """Returns the weights by path, or raises WeightsError listing what does not fit the configuration."""
    expected, given = _flatten(abstract_params(config)), _flatten(params)
    problems = [f"{'/'.join(path)}: missing" for path in expected if path not in given]
    problems += [f"{'/'.join(path)}: not a weight of this decoder" for path in given if path not in expected]
    for path, weight in expected.items():
        came = given.get(path, weight)
        if (came.shape, came.dtype) != (weight.shape, weight.dtype):
            problems.append(
                f"{'/'.join(path)}: expected {weight.dtype} {list(weight.shape)}, got {came.dtype} {list(came.shape)}"
            )
    if problems:
        raise WeightsError("weights do not fit the configuration:\n" + "\n".join(f"  - {p}" for p in problems))
    return given


def _check_target(folder: Path) -> None:
    """Raises WeightsError if replacing this folder would lose something that `save` does not write."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise WeightsError(f"{folder}: expected a folder to write the model to, found a file")
    ours = {_CONFIG, _INDEX, *TOKENIZER_FILES}
    foreign = [
        entry.name
        for entry in sorted(folder.iterdir())
        if entry.name not in ours and not (entry.name.startswith("model") and entry.suffix == ".safetensors")
    ]
    if foreign:
        raise WeightsError(
            f"{folder}: is replaced as a whole, but holds {', '.join(foreign)}, which is no part of a saved model; "
            "move it away or choose another folder"
        )


@contextlib.contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Yields an empty sibling folder that takes the place of `folder` if the block succeeds, else vanishes."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        new.mkdir()
        yield new
        try:
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
        finally:
            if old.exists() and not folder.exists():  # interrupted between the two: the earlier model comes back
                old.rename(folder)


def save(
    folder: str | Path,
    config: DecoderConfig,
    params: Params,
    *,
    copy_from: Path | None,
    shard_bytes: int = 5 * 2**30,
) -> None:
    """Writes a model folder that transformers, and servers that read its layout, can load.

    The folder appears whole or not at all: it is written beside its place and renamed at the end; an older model of
    that name is moved aside first and deleted last. With several hosts, every host calls this, the weights of one
    file at a time are gathered, and the first host writes.

    Args:
      folder: where to; if it exists, it may hold nothing but an earlier model.
      config: the decoder.
      params: its weights, of the configured dtype.
      copy_from: the folder whose tokenizer files are copied and whose ``config.json`` fields without effect on the
        logits (token ids, longest context, ...) are kept, if it has one; None copies nothing.
      shard_bytes: a file holds at most this many bytes of tensors, or one tensor.

    Raises:
      WeightsError: if the weights do not fit the configuration, or the folder holds something else.
    """
    folder = Path(folder).expanduser().absolute()
    weights = _check_params(config, params)
    _check_target(folder)
    base = _read_json(copy_from / _CONFIG) if copy_from is not None and (copy_from / _CONFIG).exists() else None
    names = families.tensor_names(config)
    by_tensor = {name.tensor: (weights[path], name.transpose) for path, name in names.items()}
    sizes = {tensor: weight.nbytes for tensor, (weight, _) in by_tensor.items()}
    shards = _shards(sizes, shard_bytes)
    count = len(shards)
    files = [_SINGLE] if count == 1 else [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]
    writes = jax.process_index() == 0
    with _replacing(folder) if writes else contextlib.nullcontext() as target:
        for file, tensors in zip(files, shards, strict=True):
            held = {tensor: _host_array(by_tensor[tensor][0], transpose=by_tensor[tensor][1]) for tensor in tensors}
            if target is not None:
                safetensors.numpy.save_file(held, target / file, metadata={"format": "pt"})
        if target is not None:
            if count > 1:
                weight_map = {tensor: file for file, tensors in zip(files, shards, strict=True) for tensor in tensors}
                _write_json(
                    target / _INDEX, {"metadata": {"total_size": sum(sizes.values())}, "weight_map": weight_map}
                )
            _copy_tokenizer(copy_from, target)
            # Last: without it a folder that a killed process left behind does not pass for a model.
            _write_json(target / _CONFIG, families.to_config_json(config, base=base))
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(f"saved {folder}")


def _copy_tokenizer(source: Path | None, target: Path) -> None:
    for name in TOKENIZER_FILES:
        if source is not None and (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
