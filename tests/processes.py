"""Scripts of tests that run in processes of their own."""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python(script, *arguments, **environment):
    """Starts this interpreter with a script, on the CPU, where the repository is."""
    return subprocess.Popen(  # noqa: S603 - this interpreter and a test's script
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def joining(port, process):
    """Words of one of two processes that meet at a port."""
    return ["--distributed=auto", f"--coordinator=127.0.0.1:{port}", "--processes=2", f"--process={process}"]


def started(where, *words, devices, **environment):
    """Starts this interpreter with these words in a folder, on so many CPU devices."""
    known = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    return subprocess.Popen(  # noqa: S603 - this interpreter and a test's words
        [sys.executable, *map(str, words)],
        cwd=where,
        env=os.environ | known | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def programs_in(folder):
    """The environment of processes that keep what they compile in a folder of their own, everything of it."""
    return {"JAX_COMPILATION_CACHE_DIR": str(folder / "xla"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


def ended(processes, timeout=500):
    """Every process with what it has printed to standard output and standard error; all of them run by then."""
    begun = list(processes)
    try:
        return [(process, *process.communicate(timeout=timeout)) for process in begun]
    except subprocess.TimeoutExpired:
        for process in begun:  # they would run beside the tests that follow
            process.kill()
            process.communicate()
        raise


def free_port():
    """A port for processes that are about to start.

    Below those that the system hands out by itself: none that another test opens meanwhile can be this one.
    """
    while True:
        port = 12_000 + secrets.randbelow(16_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def outcome(process):
    """What a process printed once it has ended as it should."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out
