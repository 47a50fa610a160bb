"""Finds games by the names that the command line takes: an id, or ``FILE.py:CLASS``."""

import importlib.util
import pathlib
import sys
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType

from dfc.games import registry, scripted
from dfc.games.game import Game

_ERROR_CHARACTERS = 500  # characters of an error's text


def found(name: str) -> tuple[Callable[[], Game], Mapping[str, scripted.Player] | None]:
    """Returns what makes a game, and its simulators: {} without, None for those of `dfc.games.scripted`.

    Raises:
      ValueError: there is no such id, the file holds no such game, or it cannot be imported.
      OSError: the file cannot be read.
    """
    file, colon, kind_name = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        registry.kind(name)
        return lambda: registry.make(name), None
    module = _imported(pathlib.Path(file))
    kind = getattr(module, kind_name, None)
    if not (isinstance(kind, type) and issubclass(kind, Game)):
        games = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Game) and v is not Game]
        raise ValueError(  # noqa: TRY004 (the argument has the right type; what it names is missing)
            f"{file} holds no game {kind_name!r}; its subclasses of Game are {', '.join(games) or 'none'}"
        )
    return kind, None if kind.simulators else {}


def _imported(path: pathlib.Path) -> ModuleType:
    path.read_bytes()  # says better than the import what is wrong with a path
    module_name = f"checked_{path.stem}"  # a file may be called like a module that is in use
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} cannot be imported as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:  # Ctrl-C while a file takes long
        raise
    except BaseException as error:
        del sys.modules[module_name]
        raise ValueError(f"{_place(path, error)}: importing this file raised {_error_text(error)}") from error
    return module


def _place(path: pathlib.Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if pathlib.Path(frame.filename).resolve() == path.resolve()]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _error_text(error: BaseException) -> str:
    try:
        text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    except Exception:  # noqa: BLE001 (of a class in the file)
        text = ""
    if len(text) > _ERROR_CHARACTERS:
        text = f"{text[:_ERROR_CHARACTERS]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
