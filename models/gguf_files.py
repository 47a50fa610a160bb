"""GGUF files, the format of llama.cpp: a file's model and its weights in the layout of Hugging Face.

Read are Llama and Qwen2 models whose every setting is computed here as llama.cpp computes it; anything else is refused
by the name the file gives it. Weights that are stored in few bits become the float32 numbers they stand for. The files
are read by the package ``gguf`` of llama.cpp's authors, within bounds: a file is untrusted until it was read.

Sources: docs/gguf.md in https://github.com/ggml-org/ggml (the format and its keys); ``convert_hf_to_gguf.py`` in
https://github.com/ggml-org/llama.cpp (what is written for a Hugging Face model).
"""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from dfc.errors import WeightsError, shown
from dfc.models import families, hf_config
from dfc.models.config import DecoderConfig
from dfc.models.hf_architectures import LLAMA, QWEN2, Family
from dfc.models.model_folders import listed
from dfc.models.safetensors_format import BrokenFileError, TensorToWrite, refuse_special
from dfc.models.transformer import abstract_params, by_path

FAMILIES: Mapping[str, Family] = {"llama": LLAMA, "qwen2": QWEN2}
"""By ``general.architecture``."""

# Each number stands by itself or with its block; other types are rare, or need tensors beside them.
_TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
_MOST_READS = 1_500_000  # numbers and texts of the metadata, a gigabyte of the package's objects; Llama 3 has 950,000
_DEFAULT_ROPE_THETA = 10000.0  # of llama.cpp, where the file has none

# Behind "<architecture>."; each is read in `config_json`.
_READ = frozenset(
    {
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scaling.type",
        "vocab_size",
    }
)
# The rest of a file's metadata: where it is from, how it was made, and its tokenizer (dfc.models.gguf_tokenizer).
_OTHER = ("GGUF.", "general.", "quantize.", "tokenizer.")
_ORIGINAL = "take the model in the layout of Hugging Face from its publisher instead"


class _BoundedReader(gguf.GGUFReader):
    """Ends at the end of the file, and after so many reads, where the package takes an empty read for a value."""

    _reads = 0

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:  # noqa: ANN401 - theirs
        self._reads += 1
        if self._reads > _MOST_READS:
            raise ValueError(f"its metadata has more than {_MOST_READS:,} entries")
        missing = int(offset) + np.dtype(dtype).itemsize * int(count) - len(self.data)
        if missing > 0:
            raise ValueError(f"it ends {missing:,} bytes early; download it again")
        return super()._get(offset, dtype, count, override_order)


@dataclasses.dataclass(frozen=True)
class GgufFile:
    """A GGUF file whose header was read.

    Attributes:
      path: where it is.
      fields: its metadata by key. float32 numbers are the shortest decimals that stand for them (1e-05). Of
        ``general.`` and ``quantize.`` only numbers and texts.
      tensors: the package's description of each tensor, by name; their data stay in the file.
    """

    path: Path
    fields: Mapping[str, Any]
    tensors: Mapping[str, gguf.ReaderTensor]

    @property
    def architecture(self) -> str:
        """What the file calls its architecture; one of `FAMILIES`."""
        return str(self.fields["general.architecture"])


def read(path: Path) -> GgufFile:
    """Reads the header of a GGUF file.

    Raises:
      WeightsError: it is no GGUF file, is broken or cut off, or holds no Llama or Qwen2 model.
    """
    try:
        refuse_special(path)
        with np.errstate(over="raise"):
            reader = _BoundedReader(path)
        fields = {
            name: _value(field)
            for name, field in reader.fields.items()
            if not name.startswith(("general.", "quantize.")) or field.types[0] != gguf.GGUFValueType.ARRAY
        }
        swapped = reader.byte_order != "I"
    except OSError as error:
        raise WeightsError(f"{path}: expected a GGUF file, cannot read it ({error.strerror or error})") from error
    except (BrokenFileError, ValueError, KeyError, IndexError, TypeError, ArithmeticError, RecursionError) as error:
        raise WeightsError(
            f"{path}: expected a whole GGUF file of version 2 or 3: {hf_config.shown_name(str(error))}"
        ) from error
    if swapped:
        raise WeightsError(f"{path}: its numbers are stored in the other byte order; {_ORIGINAL}")
    stored = sum(tensor.n_bytes for tensor in reader.tensors)
    if stored > len(reader.data):
        raise WeightsError(f"{path}: its tensors overlap: {stored:,} bytes of them in a file of {len(reader.data):,}")
    architecture, kind = fields.get("general.architecture"), fields.get("general.type", "model")
    if architecture not in FAMILIES or kind != "model":
        raise WeightsError(
            f"{path}: general.architecture: expected {' or '.join(map(repr, FAMILIES))} and general.type 'model', got "
            f"{shown(architecture)} and {shown(kind)}; {_ORIGINAL}"
        )
    return GgufFile(path, fields, {tensor.name: tensor for tensor in reader.tensors})


def _value(field: gguf.ReaderField) -> Any:  # noqa: ANN401 - number, text or a list of either
    value = field.contents()
    return float(str(np.float32(value))) if field.types == [gguf.GGUFValueType.FLOAT32] else value


def config_json(file: GgufFile) -> tuple[DecoderConfig, dict[str, Any]]:
    """Returns the decoder of a file, and the ``config.json`` that describes it.

    Raises:
      WeightsError: lists every field that is missing, wrong, or asks for something that is not computed here.
    """
    reader = hf_config.ConfigReader(file.fields)
    prefix = f"{file.architecture}."
    for name in sorted(file.fields):
        if not name.startswith(_OTHER) and name.removeprefix(prefix) not in _READ:
            reader.refuse(name, f"is not computed here, got {shown(file.fields[name])}; {_ORIGINAL}")
    scaling = file.fields.get(f"{prefix}rope.scaling.type", "none")
    if scaling != "none":
        reader.refuse(f"{prefix}rope.scaling.type", f"only 'none' is converted, got {shown(scaling)}; {_ORIGINAL}")
    width, heads = reader.integer(f"{prefix}embedding_length"), reader.integer(f"{prefix}attention.head_count")
    head_dim = reader.integer(f"{prefix}attention.key_length", max(width // heads, 1))
    for name in ("attention.value_length", "rope.dimension_count"):
        size = reader.integer(f"{prefix}{name}", head_dim)
        if size != head_dim:
            reader.refuse(f"{prefix}{name}", f"only the head's own size {head_dim} is computed, got {size}")
    tokens = file.fields.get("tokenizer.ggml.tokens")
    theta = f"{prefix}rope.freq_base"
    family = FAMILIES[file.architecture]
    values = {
        "architectures": [family.architecture],
        "vocab_size": reader.integer(f"{prefix}vocab_size", len(tokens) if isinstance(tokens, list) else None),
        "hidden_size": width,
        "num_hidden_layers": reader.integer(f"{prefix}block_count", most=hf_config.MOST_LAYERS),
        "num_attention_heads": heads,
        "num_key_value_heads": reader.integer(f"{prefix}attention.head_count_kv", heads),
        "head_dim": head_dim,
        "intermediate_size": reader.integer(f"{prefix}feed_forward_length"),
        "rms_norm_eps": reader.positive(f"{prefix}attention.layer_norm_rms_epsilon"),
        "rope_theta": reader.number(theta, file.fields.get(theta, _DEFAULT_ROPE_THETA)),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "max_position_embeddings": reader.integer(f"{prefix}context_length"),
    }
    if reader.problems:
        raise WeightsError(f"{file.path}: cannot be converted:{listed(reader.problems)}")
    for name in ("bos", "eos", "padding"):
        token_id = file.fields.get(f"tokenizer.ggml.{name}_token_id")
        values[f"{'pad' if name == 'padding' else name}_token_id"] = token_id
    try:
        config = families.from_config_json(values)
    except WeightsError as error:
        raise WeightsError(f"{file.path}: {error}") from error
    return config, families.to_config_json(config, base=values)


def tensors(file: GgufFile, config: DecoderConfig) -> list[TensorToWrite]:
    """Returns the tensors of a model by their names in the Hugging Face layout, in float32.

    Each is read and turned into float32 when its turn comes. `file` is from `read`, `config`, its decoder, from
    `config_json`.

    Raises:
      WeightsError: lists every tensor that is missing, unknown, misshapen, or of a type that is not read. Fetching one
        raises it too, if it holds NaN or infinite numbers.
    """
    held = max((int(name.split(".")[1]) + 1 for name in file.tensors if _in_layer(name)), default=0)
    if held != config.layers:
        raise WeightsError(
            f"{file.path}: {file.architecture}.block_count is {config.layers}, but the file holds the tensors of "
            f"{held} layers"
        )
    architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == file.architecture)
    names = gguf.get_tensor_name_map(architecture, config.layers)
    shapes = by_path(abstract_params(config))
    problems, found, read_names = [], [], set()
    for path, name in families.tensor_names(config).items():
        shape = shapes[path].shape[::-1] if name.transpose else shapes[path].shape
        theirs = names.get_name(name.tensor, try_suffixes=(".weight", ".bias")) or name.tensor
        read_names.add(theirs)
        tensor = file.tensors.get(theirs)
        if tensor is None:
            problems.append(f"{theirs}: missing")
            continue
        came, kind = tuple(map(int, tensor.shape[::-1])), tensor.tensor_type.name
        if came != shape:
            problems.append(f"{theirs}: expected shape {list(shape)} from the metadata, got {list(came)}")
        if kind not in _TYPES:
            problems.append(f"{theirs}: expected one of {', '.join(_TYPES)}, got {kind}")
        fetch = functools.partial(_numbers, file.path, tensor, _heads(file, config, name.tensor))
        found.append(TensorToWrite(name.tensor, np.dtype(np.float32), shape, fetch))
    for extra in sorted(file.tensors.keys() - read_names):
        why = "scaled rotary frequencies are not converted" if extra.startswith("rope_") else "unknown tensor"
        problems.append(f"{hf_config.shown_name(extra)}: {why}; {_ORIGINAL}")
    if problems:
        raise WeightsError(f"{file.path}: the weights cannot be converted:{listed(problems)}")
    return found


def _in_layer(name: str) -> bool:
    parts = name.split(".", 2)
    return len(parts) == 3 and parts[0] == "blk" and parts[1].isdecimal() and len(parts[1]) < 10


def _heads(file: GgufFile, config: DecoderConfig, name: str) -> int | None:
    """Returns of how many heads a tensor holds the rows in llama.cpp's order; None if they are in that of the model."""
    if file.architecture != "llama":
        return None
    return {"q_proj": config.heads, "k_proj": config.kv_heads}.get(name.split(".")[-2])


def _numbers(path: Path, tensor: gguf.ReaderTensor, heads: int | None) -> np.ndarray:
    """Returns a tensor's numbers in float32, rows of queries and keys in the order of Hugging Face.

    Of a Llama's head of 2n rows, llama.cpp holds row i and row n + i side by side: they are turned together.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        values: np.ndarray = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    if not np.isfinite(values).all():
        raise WeightsError(f"{path}: {tensor.name}: holds NaN or infinite numbers")
    if heads is not None:
        pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
        values = pairs.swapaxes(1, 2).reshape(values.shape)
    return np.ascontiguousarray(values, np.float32)
