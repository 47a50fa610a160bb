"""Runs a configuration: checks it, opens its folder, calls its recipe; the command line and Python both come here."""

import importlib
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dfc
from dfc import own_code, validation
from dfc.commands import shell_line
from dfc.config import RunConfig, is_recipe
from dfc.errors import ConfigError
from dfc.games import functions
from dfc.launch import command_line, devices, program_cache
from dfc.launch.overrides import canonical, replaced

if TYPE_CHECKING:
    from dfc.runs.run_folder import RunFolder
    from dfc.runs.stop_signals import Stop


def load_config(path: str | Path, values: Mapping[str, Any]) -> RunConfig:
    """Returns the configuration of a file with other values by dotted key; see `dfc.load_config`."""
    config = command_line.load(str(path))
    found: list[str] = []
    for key, value in values.items():
        try:
            config = replaced(config, key, value)
        except ConfigError as error:
            found += error.problems
    if found:
        raise ConfigError(found)
    return config


def run(config: RunConfig, workdir: str | Path | None) -> Path:
    """Runs a configuration in this process; see `dfc.run`."""
    with own_code.no_exit("code that the configuration names"):
        return _run(config, workdir)


def _run(config: RunConfig, workdir: str | Path | None) -> Path:
    if not is_recipe(type(config)):
        raise ConfigError([f"config: must be one of dfc.config.RECIPES, got {type(config).__name__}"])
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError(["dfc.run: must be called in the main thread, which is the one that signals reach"])
    config = canonical(config)
    folder = Path(workdir) if workdir is not None else Path("runs") / str(config.name)
    found = validation.problems(config)
    found = (found or validation.path_problems(config)) + command_line.written_problems("workdir", workdir or folder)
    if found:
        raise ConfigError(found)
    announce(config, folder)
    import jax  # noqa: PLC0415 - takes a second; a mistake in the configuration is reported without it

    say(devices.lines())
    if found := validation.device_problems(config, jax.device_count()):
        raise ConfigError(found)
    if jax.process_count() > 1:
        raise ConfigError(
            [f"dfc.run: runs in one process; start several with {shell_line('dfc.launch')} --distributed=auto"]
        )
    run_in(folder, config, command=f"dfc.run({type(config).__name__}(...), workdir={str(folder)!r})")
    return folder


def recipe_of(config: RunConfig) -> Callable[[RunConfig, "RunFolder", "Stop"], None]:
    """Returns the function that runs a checked configuration: `run` of a module of dfc, or of a custom file."""
    if config.module.endswith(".py"):
        own = functions.named(f"{config.module}:run")
        assert own is not None  # noqa: S101 - None is of the empty name
        return own
    found: Callable[[RunConfig, RunFolder, Stop], None] = importlib.import_module(f"dfc.{config.module}").run
    return found


def announce(config: RunConfig, folder: Path) -> None:
    """Prints immediately what begins: the libraries that compute take seconds to load."""
    say([f"dfc {dfc.__version__}, {config.recipe}: {folder}"])


def say(lines: Iterable[str]) -> None:
    """Prints lines to read while the next step takes long."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def run_in(path: Path, config: RunConfig, *, command: str, programs: str | None = None, every: int = 1) -> None:
    """Opens the run folder, new or existing, and runs the recipe.

    `command` is how it was started, kept in the folder; `programs` is where compiled programs are kept, or ``off``,
    None: the default; `every` is, of several processes, calls between two questions whether one of them was asked to
    stop.

    Raises:
      Interrupted: it was stopped; everything finished is saved.
      ExitError: code that it called tried to end the process.
    """
    from dfc import multihost  # noqa: PLC0415 - imports jax
    from dfc.launch import hub_model  # noqa: PLC0415 - same
    from dfc.runs.activity import reported  # noqa: PLC0415 - same
    from dfc.runs.stages import open_together  # noqa: PLC0415 - same
    from dfc.runs.stop_signals import Stop  # noqa: PLC0415 - same

    for notice in (*validation.notices(config), program_cache.enable(programs)):
        if notice is not None:
            sys.stdout.write(f"{notice}\n")
    own = config.module.endswith(".py")
    with (
        own_code.no_exit(f"the method {config.module}:run" if own else f"code that the recipe {config.recipe} called"),
        reported(),
        open_together(path, config, command=command) as folder,
        Stop(multihost.all_max, every=every) as stop,
    ):
        config = hub_model.pinned(config, folder)
        recipe_of(config)(config, folder, stop)
