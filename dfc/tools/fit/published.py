"""Published shapes of well-known models, as the ``config.json`` they were released with; no weights."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dfc.config import ModelConfig, fields
from dfc.errors import ConfigError, WeightsError
from dfc.models import families, huggingface, model_folders
from dfc.models.config import DecoderConfig

_COMMON: dict[str, Any] = {"torch_dtype": "bfloat16", "tie_word_embeddings": False}
_LLAMA = _COMMON | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rms_norm_eps": 1e-5}
_LLAMA_2 = _LLAMA | {"vocab_size": 32000}
_LLAMA_3 = _LLAMA | {"vocab_size": 128256, "rope_theta": 500000.0}
_ROPE_3_1 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_LLAMA_3_1 = _LLAMA_3 | {"rope_scaling": _ROPE_3_1}
_LLAMA_3_2 = _LLAMA_3 | {"rope_scaling": _ROPE_3_1 | {"factor": 32.0}, "tie_word_embeddings": True}
_MISTRAL = _COMMON | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "rms_norm_eps": 1e-5}
_MISTRAL_1 = _MISTRAL | {"vocab_size": 32000, "sliding_window": 4096, "rope_theta": 10000.0}
_MISTRAL_3 = _MISTRAL | {"vocab_size": 32768, "sliding_window": None, "rope_theta": 1000000.0}
_QWEN = _COMMON | {"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "vocab_size": 151936}
_QWEN_2 = _QWEN | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
_QWEN_3 = _QWEN | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 128}
_GEMMA_3 = _COMMON | {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "tie_word_embeddings": True}
_GEMMA_SMALL = _GEMMA_3 | {"vocab_size": 262144, "sliding_window": 512}
_GEMMA_LARGE = _GEMMA_3 | {"sliding_window": 1024, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
_TIED = {"tie_word_embeddings": True}
_WIDE = {"vocab_size": 152064}

# Name: hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, intermediate_size, and the rest of
# config.json. Llama: arXiv 2307.09288 and 2407.21783; Mistral: 2310.06825; Qwen: 2407.10671, 2412.15115, 2505.09388;
# Gemma 3: 2503.19786, its text models. What these do not say: the released files.
_SHAPES: Mapping[str, tuple[int, int, int, int, int, dict[str, Any]]] = {
    "llama-2-7b": (4096, 32, 32, 32, 11008, _LLAMA_2),
    "llama-2-13b": (5120, 40, 40, 40, 13824, _LLAMA_2),
    "llama-2-70b": (8192, 80, 64, 8, 28672, _LLAMA_2),
    "llama-3-8b": (4096, 32, 32, 8, 14336, _LLAMA_3),
    "llama-3-70b": (8192, 80, 64, 8, 28672, _LLAMA_3),
    "llama-3.1-8b": (4096, 32, 32, 8, 14336, _LLAMA_3_1),
    "llama-3.1-70b": (8192, 80, 64, 8, 28672, _LLAMA_3_1),
    "llama-3.1-405b": (16384, 126, 128, 8, 53248, _LLAMA_3_1),
    "llama-3.2-1b": (2048, 16, 32, 8, 8192, _LLAMA_3_2),
    "llama-3.2-3b": (3072, 28, 24, 8, 8192, _LLAMA_3_2),
    "llama-3.3-70b": (8192, 80, 64, 8, 28672, _LLAMA_3_1),
    "mistral-7b-v0.1": (4096, 32, 32, 8, 14336, _MISTRAL_1),
    "mistral-7b-v0.3": (4096, 32, 32, 8, 14336, _MISTRAL_3),
    "qwen2-0.5b": (896, 24, 14, 2, 4864, _QWEN_2 | _TIED),
    "qwen2-1.5b": (1536, 28, 12, 2, 8960, _QWEN_2 | _TIED),
    "qwen2-7b": (3584, 28, 28, 4, 18944, _QWEN_2 | _WIDE),
    "qwen2-72b": (8192, 80, 64, 8, 29568, _QWEN_2 | _WIDE),
    "qwen2.5-0.5b": (896, 24, 14, 2, 4864, _QWEN_2 | _TIED),
    "qwen2.5-1.5b": (1536, 28, 12, 2, 8960, _QWEN_2 | _TIED),
    "qwen2.5-3b": (2048, 36, 16, 2, 11008, _QWEN_2 | _TIED),
    "qwen2.5-7b": (3584, 28, 28, 4, 18944, _QWEN_2 | _WIDE),
    "qwen2.5-14b": (5120, 48, 40, 8, 13824, _QWEN_2 | _WIDE),
    "qwen2.5-32b": (5120, 64, 40, 8, 27648, _QWEN_2 | _WIDE),
    "qwen2.5-72b": (8192, 80, 64, 8, 29568, _QWEN_2 | _WIDE),
    "qwen3-0.6b": (1024, 28, 16, 8, 3072, _QWEN_3 | _TIED),
    "qwen3-1.7b": (2048, 28, 16, 8, 6144, _QWEN_3 | _TIED),
    "qwen3-4b": (2560, 36, 32, 8, 9728, _QWEN_3 | _TIED),
    "qwen3-8b": (4096, 36, 32, 8, 12288, _QWEN_3),
    "qwen3-14b": (5120, 40, 40, 8, 17408, _QWEN_3),
    "qwen3-32b": (5120, 64, 64, 8, 25600, _QWEN_3),
    "gemma-3-270m": (640, 18, 4, 1, 2048, _GEMMA_SMALL),
    "gemma-3-1b": (1152, 26, 4, 1, 6912, _GEMMA_SMALL),
    "gemma-3-4b": (2560, 34, 8, 4, 10240, _GEMMA_LARGE),
    "gemma-3-12b": (3840, 48, 16, 8, 15360, _GEMMA_LARGE),
    "gemma-3-27b": (5376, 62, 32, 16, 21504, _GEMMA_LARGE | {"head_dim": 128, "query_pre_attn_scalar": 168}),
}
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    name: rest | dict(zip(_SIZES, sizes, strict=True)) for name, (*sizes, rest) in _SHAPES.items()
}


def name_of(text: str) -> str:
    """Returns the name in `CONFIGS` that stands for a repository of the Hub, such as ``Qwen/Qwen2.5-7B-Instruct``."""
    return re.sub(r"^meta-|-(instruct|chat|it|pt|base|hf)\b", "", text.rpartition("/")[2].lower())


def reward_model_of(path: str, dtype: str, otherwise: DecoderConfig) -> DecoderConfig:
    """Returns the decoder of a model of preferences, from its folder or its repository.

    What cannot be read has the shape of the published model whose name is the longest within its own
    (``skywork-reward-v2-llama-3.2-3b``), or `otherwise` where no name is.
    """
    try:
        values = model_folders.read_json(huggingface.resolve(path, weights=False) / model_folders.CONFIG)
    except (OSError, ValueError, RecursionError):
        names = [name for name in CONFIGS if name in name_of(path)]
        found = families.from_config_json(CONFIGS[max(names, key=len)]) if names else otherwise
    else:
        found = families.from_config_json(values)
    return dataclasses.replace(found, dtype=dtype, labels=1)


def model_of(model: ModelConfig, name: str | None = None, path: str | None = None) -> DecoderConfig:
    """Returns a decoder in the run's dtype.

    `name` is one of `CONFIGS`, or a repository of the Hub that has this shape; `path` a ``config.json``, or a folder
    with one. Without either it is the configuration's path. No weights are read.

    Raises:
      ConfigError: there is no such model.
      WeightsError: no family computes it.
    """
    if name is not None:
        values = CONFIGS.get(name_of(name))
        if values is None:
            raise ConfigError([f"--model={name}: not among the published ones{fields.nearest(name_of(name), CONFIGS)}"])
    elif path is not None:
        file = Path(path)
        try:
            values = model_folders.read_json(file / model_folders.CONFIG if file.is_dir() else file)
        except WeightsError as error:
            raise ConfigError([f"--model_config={path}: {error}"]) from error
    else:
        try:
            values = model_folders.read_json(huggingface.resolve(model.path, weights=False) / model_folders.CONFIG)
        except (OSError, ValueError, RecursionError) as error:
            problem = (
                f"model.path={model.path!r}: no config.json can be read there ({error}); a folder with that file "
                f"alone is enough, or name a published model with --model: {', '.join(CONFIGS)}"
            )
            raise ConfigError([problem]) from error
    return dataclasses.replace(families.from_config_json(values), dtype=model.dtype)
