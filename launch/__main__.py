"""``python -m dfc.launch --config=FILE``: checks the configuration, opens the run folder, runs the recipe."""

import importlib
import signal
import sys
from collections.abc import Sequence

from dfc import validation
from dfc.errors import ConfigError, DfcError
from dfc.interruption import Interrupted, Stop
from dfc.launch import command_line
from dfc.launch.command_line import Request
from dfc.launch.memory import keep_freed_memory
from dfc.run_folder import RunFolder


def main(arguments: Sequence[str]) -> int:
    """Runs what the words after ``python -m dfc.launch`` ask for.

    Returns:
      The exit code: 0 finished, 1 failed for a cause outside the code, 2 wrong command line or configuration, 128 plus
      the number of the signal that stopped it.
    """
    try:
        request = command_line.parse(arguments)
        if request is None:
            sys.stdout.write(command_line.help_text())
            return 0
        _check_devices(request)
    except ConfigError as error:
        sys.stderr.write(f"{error}\nNothing was started. python -m dfc.launch --help lists every flag and key.\n")
        return 2
    keep_freed_memory()
    try:
        return _run(request)
    except DfcError as error:
        sys.stderr.write(f"error: {error}\n")
    except OSError as error:
        place = error.filename or request.workdir
        sys.stderr.write(f"error: {place}: {error.strerror or error}\n")
    return 1


def _check_devices(request: Request) -> None:
    import jax  # noqa: PLC0415 - takes a second; a mistake in the configuration is answered without it

    found = validation.device_problems(request.config, jax.device_count())
    if found:
        raise ConfigError(found)


def _run(request: Request) -> int:
    with (
        RunFolder.open(request.workdir, request.config, command=request.command) as folder,
        Stop() as stop,
    ):
        try:
            importlib.import_module(f"dfc.recipes.{request.config.recipe}").run(request.config, folder, stop)
        except Interrupted as interrupted:
            sys.stderr.write(
                f"{interrupted}; everything is saved. To go on, run the same command:\n{request.command}\n"
            )
            return 128 + interrupted.signal_number
        except KeyboardInterrupt:
            sys.stderr.write(
                "stopped at once; what followed the last checkpoint is lost. To go on from it, run the same command:\n"
                f"{request.command}\n"
            )
            return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
