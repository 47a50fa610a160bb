"""Writes what clemcore reads from its working directory: the backend's file and the policy's entry.

Source: clemcore 3.7.2, `clemcore.backends.backend_registry` and `model_registry`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dfc.config import ServingConfig, fields
from dfc.errors import ConfigError, shown
from dfc.files import write_json, write_text

BACKEND = "dfc"
"""The backend's name: clemcore takes it from the name of the file."""
BACKEND_FILE, REGISTRY_FILE = f"{BACKEND}_api.py", "model_registry.json"
SETTINGS = ("slots", "max_length", "decode_steps")
"""Fields of `dfc.config.ServingConfig` that an entry may set in its `model_config`, beside ``seed``."""
MAX_BYTES = 2**20
"""The largest registry that is read; clemcore's own has 10 kB."""

_BACKEND_TEXT = '''"""The backend `dfc` of clemcore. Written by python -m dfc.launch.clembench register."""

from dfc.launch import program_cache

program_cache.enable(None)

from dfc.tools.clembench.backend import DfcBackend  # noqa: E402 - nothing may be compiled before the line above

__all__ = ["DfcBackend"]
'''


def register(folder: Path, name: str, policy: str, settings: Mapping[str, Any]) -> None:
    """Makes ``clem run -m NAME`` find a policy when it is started in a folder.

    Other entries of the folder's registry stay; one of this name is replaced. The folder is that from which clem is
    run. The name is for ``-m`` and in results; ``--`` joins several there. A policy is a folder with weights or a run,
    made absolute here, or the name of a bundled model; settings are for `model_config`, see `settings_of`.

    Raises:
      ConfigError: the name cannot be that of a folder of results, the registry is none, a setting is wrong, or the
        backend's file there is another one.
      OSError: a file cannot be read or written.
    """
    if not name or "--" in name or "/" in name or name.startswith(".") or not name.isprintable():
        raise ConfigError(
            [f"--name={shown(name)}: names a folder of results: no '/', no '--', no '.' at its start; choose another"]
        )
    settings_of(settings)
    entries = [entry for entry in registry(folder / REGISTRY_FILE) if entry.get("model_name") != name]
    backend = folder / BACKEND_FILE
    if backend.exists() and backend.read_bytes()[:MAX_BYTES] != _BACKEND_TEXT.encode():
        raise ConfigError([f"{backend}: is not the file that this command writes; move it away, or use another folder"])
    place = str(Path(policy).resolve()) if Path(policy).exists() else policy
    entry = {"model_name": name, "backend": BACKEND, "model_id": place, "model_config": dict(settings)}
    write_text(backend, _BACKEND_TEXT)
    write_json(folder / REGISTRY_FILE, [entry, *entries])


def registry(path: Path) -> list[dict[str, Any]]:
    """Returns the entries of a model registry, none where there is no file.

    Raises:
      ConfigError: it is too large, or no list of objects.
      OSError: it cannot be read.
    """
    if not path.exists():
        return []
    if path.stat().st_size > MAX_BYTES:
        raise ConfigError([f"{path}: larger than {MAX_BYTES} bytes, so no registry of models; move it away"])
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{path}: no JSON: {error}; correct it, or move it away"]) from error
    found = [found] if isinstance(found, dict) else found
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ConfigError([f"{path}: expected a list of objects, each a model; correct it, or move it away"])
    return found


def settings_of(model_config: Mapping[str, Any]) -> tuple[ServingConfig, int]:
    """Returns what an entry of the model registry sets in its `model_config`: slots and lengths, and the seed.

    Raises:
      ConfigError: it has another field, or a value is none of what it may be.
    """
    known = (*SETTINGS, "seed")
    unknown = [name for name in model_config if name not in known and name != "requires_api_key"]
    seed = model_config.get("seed", 0)
    found = [f"model_config.{name}: there is no such field; known are {', '.join(known)}" for name in unknown]
    if type(seed) is not int or seed < 0:
        found.append(f"model_config.seed: expected a whole number of 0 or more, got {shown(seed)}")
    config = ServingConfig(**{name: model_config[name] for name in SETTINGS if name in model_config})
    found += [f"model_config.{problem}" for problem in fields.type_problems(config) + fields.range_problems(config)]
    if found:
        raise ConfigError(found)
    return config, seed
