"""Scripts of tests that run in processes of their own."""

import os
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


def outcome(process):
    """What a process printed once it has ended as it should."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out
