"""Published shapes of well-known models, as the ``config.json`` they were released with; no weights.

Sources: Llama: arXiv 2307.09288 and 2407.21783; Mistral: 2310.06825; Qwen: 2407.10671, 2412.15115, 2505.09388;
Gemma 3: 2503.19786, its text models. What these do not say: the released files.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dfc.config import ModelConfig, fields
from dfc.errors import ConfigError, WeightsError
from dfc.models import families, huggingface, model_folders
from dfc.models.config import DecoderConfig
from dfc.tools.fit.hardware import DATA

CONFIGS: Mapping[str, Mapping[str, Any]] = DATA["models"]


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
