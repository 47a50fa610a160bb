"""Finds and loads the games of a clembench folder, and keeps what they and clemcore share with a process apart.

Source: clemcore 3.7.2, `clemgame.registry`, `clemgame.benchmark`, `clemgame.instances`.

Departures: only the folder that the environment variable names is searched, within bounds; of the modules that a game
brings along those of its own folder are removed while it is not played, so that two games may use the same names, and
those of libraries stay (clemcore forgets both after a run, and none before).
"""

import contextlib
import dataclasses
import functools
import importlib
import json
import logging.config
import os
import random
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from dfc.games import loading
from dfc.games.dialogue.original import MAX_BYTES, MAX_INSTANCES

HOME = "CLEMBENCH_HOME"
"""The environment variable with the folder of the game folders."""
VERSION = "3.7.2"
"""Of clemcore."""
_SPEC, _MASTER = "clemgame.json", "master.py"
_DEEPEST, _MOST_FOLDERS, _LARGEST_SPEC = 3, 5_000, 2**20
_PASSED_OVER = {"venv", "__pycache__", "docs", "in", "resources", "utils", "evaluation", "files"}  # as clemcore does
_LOCK = threading.RLock()


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedGame:
    """A game whose code has been imported.

    Attributes:
      name: its id there.
      folder: of it.
      benchmark: clemcore's object that makes its game masters and scorers.
      modules: those of its own folder, by name.
      default_instances: the file of instances that is played by default.
    """

    name: str
    folder: Path
    benchmark: Any
    modules: dict[str, ModuleType]
    default_instances: str

    @functools.cache  # noqa: B019 (there are few, and they last as long as the process)
    def instances(self, file: str) -> tuple[dict[str, Any], ...]:
        """Returns the instances of a file of the game's folder ``in``, each with its experiment.

        `file` is its name without ``.json``; empty for the game's own.

        Raises:
          ValueError: there is no such file, it is too large, or none of clembench's layout.
        """
        file = file or self.default_instances
        path = self.folder / "in" / f"{file}.json"
        if Path(file).name != file or not path.is_file():
            known = ", ".join(sorted(found.stem for found in (self.folder / "in").glob("*.json"))[:20])
            raise ValueError(
                f"clembench:{self.name}: there is no file of instances {file!r}; there are {known or 'none'}"
            )
        experiments = _json(path, MAX_BYTES).get("experiments")
        rows = [row for experiment in _listed(experiments, path) for row in _rows(experiment, path)]
        if not 0 < len(rows) <= MAX_INSTANCES:
            raise ValueError(f"{path}: expected 1 to {MAX_INSTANCES} instances, got {len(rows)}")
        return tuple(rows)


def _rows(experiment: Any, path: Path) -> Iterator[dict[str, Any]]:  # noqa: ANN401 (of JSON)
    match experiment:
        case {"name": str()}:
            pass
        case _:
            raise ValueError(f"{path}: an experiment must be an object with a name, got {str(experiment)[:80]!r}")
    shared = {name: value for name, value in experiment.items() if name != "game_instances"}
    for instance in _listed(experiment.get("game_instances"), path):
        if not (isinstance(instance, dict) and "game_id" in instance):
            raise ValueError(f"{path}: an instance must be an object with a game_id, got {str(instance)[:80]!r}")
        yield {"experiment": shared, "game_instance": instance}


def _listed(found: object, path: Path) -> list[Any]:
    if isinstance(found, list):
        return found
    raise ValueError(f"{path}: experiments and game_instances must be lists, got {str(found)[:80]!r}")


def _json(path: Path, largest: int) -> dict[str, Any]:
    if path.stat().st_size > largest:
        raise ValueError(f"{path}: larger than {largest} bytes; this is no file of clembench")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no JSON: {error}; correct it, or take the folder out of {HOME}") from error
    return found if isinstance(found, dict) else {"": found}


def home() -> Path:
    """Returns the folder of the game folders.

    Raises:
      ValueError: the environment names none, or what it names is no folder.
    """
    named = os.environ.get(HOME, "")
    if not named or not Path(named).is_dir():
        came = f"it is {named!r}" if named else "it is not set"
        raise ValueError(
            f"games with the prefix clembench: are those of the folder that the environment variable {HOME} names, and "
            f"{came}; name a clone of clembench (the code of its games runs)"
        )
    return Path(named).resolve()


@functools.cache
def specs(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """Returns the descriptions of the games of a folder, by name, with `game_path`; the first of a name counts.

    Raises:
      ValueError: the folder is too large, or a game's file is no JSON; imports nothing.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for number, (directory, inner, files) in enumerate(os.walk(folder)):
        if number >= _MOST_FOLDERS:
            raise ValueError(f"{folder}: more than {_MOST_FOLDERS} folders; {HOME} must name a clone of clembench")
        depth = len(Path(directory).relative_to(folder).parts)
        inner[:] = sorted(name for name in inner if name not in _PASSED_OVER and not name.startswith("."))
        if depth == _DEEPEST or _SPEC in files:
            inner.clear()
        if _SPEC not in files or _MASTER not in files:
            continue
        said = _json(Path(directory, _SPEC), _LARGEST_SPEC)
        for spec in said[""] if isinstance(said.get(""), list) else [said]:
            if isinstance(spec, dict) and isinstance(spec.get("game_name"), str):
                found.setdefault(spec["game_name"], {**spec, "game_path": directory})
    return found


@functools.cache
def load(folder: Path, name: str) -> LoadedGame:
    """Returns a game after importing its code.

    Raises:
      ValueError: clemcore is missing, or the import raises.
    """
    package()
    from clemcore.clemgame.benchmark import GameBenchmark  # noqa: PLC0415 (optional, see `package`)
    from clemcore.clemgame.registry import GameSpec  # noqa: PLC0415 (as above)

    spec = specs(folder)[name]
    place = Path(spec["game_path"])
    before = set(sys.modules)
    path = list(sys.path)
    try:
        with _quiet():
            benchmark = GameBenchmark.load_from_spec(GameSpec.from_dict(dict(spec)))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ValueError(
            f"clembench:{name}: importing {place / _MASTER} raised {loading.error_text(error)}; install what the game "
            f"needs ({place / 'requirements.txt'})"
        ) from error
    finally:
        sys.path[:] = path
        own = _taken_away(before, place)
    return LoadedGame(name, place, benchmark, own, str(spec.get("instances") or "instances"))


def _taken_away(before: set[str], place: Path) -> dict[str, ModuleType]:
    """Takes the modules out of the process that were imported since then from a game's folder or beside it."""
    inside = f"{place.parent}{os.sep}"
    names = [
        name
        for name in set(sys.modules) - before
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(inside)
    ]
    return {name: sys.modules.pop(name) for name in names}


@functools.cache
def package() -> ModuleType:
    """Returns clemcore, imported without what it does to a process: it would set logging up and open a file.

    Raises:
      ValueError: it is missing.
    """
    with _quiet():
        configure = logging.config.dictConfig
        logging.config.dictConfig = lambda *_: None
        try:
            return importlib.import_module("clemcore.clemgame")
        except ImportError as error:
            raise ValueError(
                "games with the prefix clembench: need clemcore, and Python 3.12 or older; in an environment of its "
                f"own, pip install 'dfc[clembench]' ({loading.error_text(error)})"
            ) from error
        finally:
            logging.config.dictConfig = configure


@contextlib.contextmanager
def alone(game: LoadedGame) -> Iterator[None]:
    """Lets one thread at a time play, with the game's modules in their places and the global generators its own.

    At the end both are as they were.
    """
    with _quiet():
        shadowed = {name: sys.modules[name] for name in game.modules if name in sys.modules}
        before = set(sys.modules)
        sys.modules.update(game.modules)
        try:
            yield
        finally:
            game.modules.update(_taken_away(before, game.folder))  # what was imported while it played
            for name in game.modules:
                sys.modules.pop(name, None)
            sys.modules.update(shadowed)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Lets one thread at a time use the global generators, and puts them back."""
    with _LOCK:
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (games draw from it)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002 (as above)
