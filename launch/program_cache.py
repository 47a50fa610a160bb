"""Keeps compiled programs between runs: JAX's persistent compilation cache, in a folder of the user's.

The folder is one per version of jaxlib and kind of CPU, as programs for another one do not run. On some CPUs XLA
rejects what it has stored itself and says so in long error lines; that is tested once per folder, and the cache stays
off.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dfc.files import replacing

OFF = "off"
_LARGEST = 4 * 2**30  # bytes; the programs used longest ago make room
_VERDICT = "usable.json"
_SECONDS = 60  # for the trial, which takes two
# Compiles one small program, discards it, and takes it from the cache.
_TRIAL = """
import sys, jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
for _ in range(2):
    jax.jit(lambda x: x @ x + 1)(jax.numpy.ones((64, 64))).block_until_ready()
    jax.clear_caches()
"""


def enable(folder: str | None) -> str | None:
    """Lets JAX keep compiled programs; call it before anything is compiled.

    Args:
      folder: where; None: in the user's folder of caches; ``off``: nowhere. JAX's own setting
        (``JAX_COMPILATION_CACHE_DIR``) goes before None.

    Returns:
      Why nothing is kept although it was asked for, as text; None otherwise.
    """
    import jax  # noqa: PLC0415 - takes a second; a mistake in the configuration is reported without it

    settings: Any = jax.config  # jax leaves it untyped
    if folder == OFF:
        settings.update("jax_compilation_cache_dir", None)
    if folder == OFF or (folder is None and settings.jax_compilation_cache_dir):
        return None
    place: Path | None = None
    try:
        place = Path(folder).absolute() if folder else default_folder()
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        usable = True if jax.default_backend() != "cpu" else _usable(place)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        return f"compiled programs are not kept: {place or 'no folder'}: {getattr(error, 'strerror', None) or error}"
    if usable is None:
        return "compiled programs are not kept this time: the trial whether that works here did not end"
    if not usable:
        return f"compiled programs are not kept: XLA rejects on this CPU what it has stored (found out in {place})"
    settings.update("jax_compilation_cache_dir", str(place))
    settings.update("jax_compilation_cache_max_size", _LARGEST)
    settings.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return None


def default_folder() -> Path:
    """Returns the folder of programs for this jaxlib and this CPU, in the user's folder of caches."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "dfc" / "programs" / f"jaxlib-{importlib.metadata.version('jaxlib')}-{_cpu()}"


def _cpu() -> str:
    """Returns a short name for the features of this CPU."""
    text = platform.machine() + platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        text += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:  # another system than Linux
        pass
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _usable(place: Path) -> bool | None:
    """Returns whether programs come back from a folder; tried once, and noted there. None: the trial failed."""
    verdict = place / _VERDICT
    try:
        return bool(json.loads(verdict.read_bytes())["usable"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        with tempfile.TemporaryDirectory() as trial:  # apart: what is kept has marks of when it was used
            words = [sys.executable, "-c", _TRIAL, trial]
            done = subprocess.run(words, capture_output=True, check=False, timeout=_SECONDS)  # noqa: S603 - our own
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        return None
    usable = b"cpu_aot_loader" not in done.stderr
    with replacing(verdict, many_writers=True) as file:  # of all processes that begin at once on a new machine
        file.write(json.dumps({"usable": usable}))
    return usable
