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
