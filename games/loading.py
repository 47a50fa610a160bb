"""Imports games by the place of their class, ``FILE.py:CLASS`` or ``module:CLASS``, for `dfc.games.registry`."""

import importlib
import importlib.util
import os
import pathlib
import shlex
import sys
import sysconfig
import threading
import traceback
from types import ModuleType

_ERROR_CHARACTERS = 500  # characters of an error's text
PIP_INSTALL = shlex.join([sys.executable or "python", "-m", "pip", "install"])
"""The beginning of a command that installs a package where dfc runs."""
LISTING = shlex.join([sys.executable or "python", "-m", "dfc.games"])
"""The command that lists the games, to be pasted: it names the Python that runs now."""
_HINT = f"name an existing file or module, or an id that `{LISTING}` lists"
# What is not custom code; unresolved, as tracebacks name it: in a checkout this folder is a link.
_NOT_OWN = tuple(
    f"{folder}{os.sep}" for folder in (pathlib.Path(__file__).parents[1], sysconfig.get_path("stdlib"), sys.prefix)
)
_LOCK = threading.RLock()  # episodes are begun by several threads; a file may name another one
_FILES: dict[pathlib.Path, tuple[tuple[int, int], ModuleType]] = {}  # by resolved path: time and size, and what it held


def place_of(name: str) -> tuple[str, str] | None:
    """Returns the file or module and the class that a name consists of, or None if it has another form.

    >>> place_of("games/race.py:Race"), place_of("race.games:Race"), place_of("textarena:Chess-v0")
    (('games/race.py', 'Race'), ('race.games', 'Race'), None)
    """
    place, _, member = (f"{name}:" if name.endswith(".py") else name).rpartition(":")
    is_module = member.isidentifier() and all(part.isidentifier() for part in place.split("."))
    return (place, member) if place.endswith(".py") or is_module else None


def module_at(place: str, hint: str = _HINT) -> ModuleType:
    """Returns the module of a file or of a module's name.

    A file is imported once per process, and again after it changed. Its module is named after the file, with a number
    where files in several folders are called alike.

    Raises:
      ValueError: it cannot be read, or the import raises; one sentence.
    """
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except KeyboardInterrupt:  # Ctrl-C while an import takes long
            raise
        except BaseException as error:
            raise ValueError(f"importing the module {place!r} raised {error_text(error)}; {hint}") from error
    try:
        path = pathlib.Path(place).resolve()
        path.read_bytes()  # says better than the import what is wrong with a path
        stat = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a name no system takes, with a null character
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"{place} cannot be read: {reason}; {hint}") from error
    with _LOCK:
        changed, module = _FILES.get(path, (None, None))
        if module is None or changed != (stat.st_mtime_ns, stat.st_size):
            module = _imported(path, place, _module_name(path) if module is None else module.__name__)
            _FILES[path] = (stat.st_mtime_ns, stat.st_size), module
        return module


def is_loaded(place: str) -> bool:
    """Returns whether a file or module is imported already; imports nothing."""
    if not place.endswith(".py"):
        return place in sys.modules
    try:
        return pathlib.Path(place).resolve() in _FILES
    except (OSError, ValueError):
        return False


def _module_name(path: pathlib.Path) -> str:
    taken = {module.__name__ for _, module in _FILES.values()}
    name, number = f"game_file_{path.stem}", 1  # with a prefix: a file may be called like a module that is in use
    while name in taken:
        number += 1
        name = f"game_file_{path.stem}_{number}"
    return name


def _imported(path: pathlib.Path, shown: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{shown} cannot be imported as a module; {_HINT}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:  # as above
        del sys.modules[name]
        raise
    except BaseException as error:
        del sys.modules[name]
        raise ValueError(f"{_line(path, shown, error)}: importing this file raised {error_text(error)}") from error
    return module


def _line(path: pathlib.Path, shown: str, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{shown if pathlib.Path(error.filename) == path else error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if pathlib.Path(frame.filename).resolve() == path]
    return f"{shown}:{lines[-1]}" if lines else shown


def error_place(error: BaseException) -> str:
    """Returns where custom code raised, as `` (FILE:LINE in NAME)``; empty if none of it took part."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((*_NOT_OWN, "<"))]
    return f" ({own[-1].filename}:{own[-1].lineno} in {own[-1].name})" if own else ""


def error_text(error: BaseException) -> str:
    """Returns the kind and text of an error that foreign code raised, on one line and of bounded length."""
    try:
        text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    except Exception:  # noqa: BLE001 (of a class in the file)
        text = ""
    if len(text) > _ERROR_CHARACTERS:
        text = f"{text[:_ERROR_CHARACTERS]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
