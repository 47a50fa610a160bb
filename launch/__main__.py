"""``python -m dfc.launch --config=FILE``: checks the configuration, opens the run folder, runs the recipe."""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from dfc import own_code, validation
from dfc.commands import shell_line
from dfc.config import RunConfig
from dfc.errors import ConfigError, DfcError, ExitError, Interrupted, cut
from dfc.games.replay import ReplayError
from dfc.launch import command_line, devices, distributed, start
from dfc.launch.command_line import Request
from dfc.launch.memory import keep_freed_memory
from dfc.players import key_search
from dfc.runs import stop_signals
from dfc.runs.printing import guarded
from dfc.runs.run_folder import config_json, differences

_MESSAGE = 20_000  # characters of an error: a few hundred lines


def main(arguments: Sequence[str]) -> int:
    """Runs what the words after ``python -m dfc.launch`` ask for.

    With several processes only the first one prints its progress, all of them their errors. After an error that the
    others may not know of, this process ends immediately instead of returning (`dfc.launch.distributed.leave`).

    The reader of the output may close it: the run continues (`dfc.runs.printing`).

    Returns:
      The exit code: 0 finished, 1 failed for a cause outside the code, 2 wrong command line or configuration, 128 plus
      the number of the signal that stopped it.
    """
    with guarded():
        try:
            with own_code.no_exit("code that the configuration names"):
                return _main(arguments)
        except ExitError as error:  # before the run, which reports its own
            return _failed(error)


def _main(arguments: Sequence[str]) -> int:
    try:
        request = command_line.parse(arguments)
        if isinstance(request, str):
            sys.stdout.write(request)
            return 0
        if request.processes.mode == "off":
            return _run_alone(request)
        distributed.connect(request.processes)
    except ConfigError as error:
        return _refused(error)
    keep_freed_memory()
    try:
        _check_devices(request)
        code = _run_on_all_hosts(request)
    except ConfigError as error:
        return _refused(error)
    except Exception as error:  # noqa: BLE001 - an orderly end would wait for processes that wait for this one
        lost = distributed.lost_contact(error)
        _write_trace(request.config)
        if lost is not None:  # last, where it is read first
            sys.stderr.write(f"error: {lost}:\n{request.command}\n")
        code = 1
    if code == 1:
        distributed.leave(code)
    return code


def _run_alone(request: Request) -> int:
    """Runs the recipe as the only process."""
    start.announce(request.config, request.workdir)
    try:
        with stop_signals.held():  # JAX is loaded here
            _check_devices(request)
    except Interrupted as interrupted:
        sys.stderr.write(f"{interrupted}; nothing had begun. The command was:\n{request.command}\n")
        return 128 + interrupted.signal_number
    keep_freed_memory()
    return _attempt(request)


def _refused(error: ConfigError) -> int:
    sys.stderr.write(
        f"{error}\nNothing was started. "
        f"{shell_line('dfc.launch')} --help lists every flag, with --config=FILE every key of its recipe.\n"
    )
    return 2


def _check_devices(request: Request) -> None:
    """Raises a ConfigError, on every process if on one, unless the devices and the processes fit the configuration."""
    import jax  # noqa: PLC0415 - takes a second; a mistake in the configuration is reported without it

    from dfc import multihost  # noqa: PLC0415 - imports jax

    try:
        said = devices.lines()
    except ConfigError as error:
        if request.processes.mode != "off":
            distributed.leave(_refused(error))  # the others know nothing of it, and wait for this one
        raise
    if jax.process_index() == 0:
        start.say(said)
    found = validation.device_problems(request.config, jax.device_count())
    found += distributed.problems(request.config, jax.process_count())
    first = multihost.broadcast({"config": config_json(request.config), "workdir": str(request.workdir)})
    mine = {"config": config_json(request.config), "workdir": str(request.workdir)}
    found += [
        f"process {jax.process_index()} was started differently from the first one: {line}"
        for line in differences(first, mine)
    ]
    problems_of_all = multihost.all_problems("\n".join(found) or None)
    if problems_of_all:
        raise ConfigError(found or problems_of_all)


def _run_on_all_hosts(request: Request) -> int:
    """Runs the recipe as one of several processes; only the first one's standard output is shown."""
    import jax  # noqa: PLC0415 - takes a second; a mistake in the configuration is reported without it

    with contextlib.ExitStack() as stack:
        if jax.process_index() > 0:
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123 - not a file of dfc
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        code = _attempt(request)
    if code != 1:  # finished, or stopped by a signal that all have agreed on
        shutdown: Any = jax.distributed.shutdown  # jax leaves it untyped
        shutdown()  # waits for the others
    return code


def _attempt(request: Request) -> int:
    try:
        return _run(request)
    except (DfcError, ReplayError) as error:
        return _failed(error, request.config)
    except OSError as error:
        place = error.filename or request.workdir
        sys.stderr.write(f"error: {place}: {error.strerror or error}\n")
    except Exception:
        if request.processes.mode != "off":  # it ends otherwise
            raise
        _write_trace(request.config)
    return 1


def _failed(error: Exception, config: RunConfig | None = None) -> int:
    sys.stderr.write(f"error: {cut(_without_keys(str(error), config), _MESSAGE)}\n")
    return 1


def _write_trace(config: RunConfig) -> None:
    """Writes the trace of the error that is handled, as Python would: its text may come from custom code."""
    sys.stderr.write(_without_keys(traceback.format_exc(), config))


def _without_keys(text: str, config: RunConfig | None) -> str:
    shown = key_search.redacted_by_environment(text)
    return shown if config is None else key_search.redacted(shown, config)


_LOOKS = 8  # of several processes inside an iteration, between two questions whether one of them was asked to stop


def _run(request: Request) -> int:
    import jax  # noqa: PLC0415 - takes a second; a mistake in the configuration is reported without it

    try:
        every = _LOOKS if jax.process_count() > 1 else 1
        start.run_in(request.workdir, request.config, command=request.command, programs=request.programs, every=every)
    except Interrupted as interrupted:
        if jax.process_index() == 0:
            where = "" if request.processes.mode == "off" else " in every process"
            sys.stderr.write(
                f"{interrupted}; everything finished is saved, what was under way begins again. To resume, run the"
                f" same command{where}:\n{request.command}\n"
            )
        return 128 + interrupted.signal_number
    except KeyboardInterrupt:
        sys.stderr.write(
            "stopped at once; what followed the last checkpoint is lost. To resume from it, run the same command:\n"
            f"{request.command}\n"
        )
        if request.processes.mode != "off":
            distributed.leave(128 + signal.SIGINT)  # the others have agreed on nothing
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
