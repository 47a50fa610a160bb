"""A process whose peer is gone says so in one sentence, with how to go on; other failures are not taken for that."""

import os
import signal
import subprocess
import sys

import pytest
from processes import ROOT, ended, free_port, joining, started

from dfc.launch import distributed

# The launcher with a recipe that does nothing but agree, or sleep; one of both processes is killed in it.
DRIVER = """
import os, signal, sys, time, types

def run(config, folder, stop):
    import jax
    from dfc import multihost
    multihost.all_max(1)
    if jax.process_index() == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(60) if sys.argv[2] == "asleep" else multihost.all_max(1)

sys.modules["dfc.methods.divide_fuse_conquer"] = types.SimpleNamespace(run=run)
from dfc.launch.__main__ import main
sys.exit(main(sys.argv[3:]))
"""


def start(place, killed, how, process, port):
    flags = ["--config=configs/smoke.py", "--config.mesh.data=2", f"--workdir={place / 'run'}"]
    return started(ROOT, place / "driver.py", killed, how, *flags, *joining(port, process), devices=1)


@pytest.mark.parametrize(
    ("killed", "how", "said", "code"),
    [
        (1, "agreeing", "error: process 0 of 2 lost contact with another one (UNKNOWN: Gloo ", 1),
        (0, "asleep", "error: process 1 of 2 was ended by abort(), see above. If the lines", -signal.SIGABRT),
    ],
)
def test_the_survivor_says_what_happened_and_how_to_go_on(tmp_path, killed, how, said, code):
    (tmp_path / "driver.py").write_text(DRIVER)
    port = free_port()
    processes = [start(tmp_path, killed, how, index, port) for index in range(2)]
    errors = [error for _, _, error in ended(processes)]
    assert processes[killed].returncode == -signal.SIGKILL
    survivor = errors[1 - killed]
    assert processes[1 - killed].returncode == code, survivor
    assert said in survivor
    assert "To resume from the newest checkpoint, run the same command in every process" in survivor
    assert survivor.rfind("Traceback") < survivor.index(said)  # the sentence comes last


@pytest.mark.parametrize("how", ["os.abort()", "ctypes.CDLL(None).abort()", "held()"])
def test_an_abort_stays_one_and_never_hangs(tmp_path, how):
    """Also from a thread beside Python that never gets its lock, which is what `held` makes."""
    (tmp_path / "driver.py").write_text(f"""
import ctypes, os, signal, threading
from dfc.launch import distributed

def held():
    libc = ctypes.PyDLL(None)  # keeps Python's lock
    made = ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(made), None, libc.abort, None)
    libc.sleep(60)

distributed._place = lambda: "process 1 of 2"
distributed._speak_when_aborted()
{how}
""")
    ended = subprocess.run(  # noqa: S603 - our own
        [sys.executable, str(tmp_path / "driver.py")],
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == -signal.SIGABRT
    assert "error: process 1 of 2 was ended by abort(), see above." in ended.stderr
    assert "Otherwise this process itself failed" in ended.stderr


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: [pair.cc:547] Connection closed by peer [127.0.0.1]:4286"), True),
        (RuntimeError("UNAVAILABLE: failed to connect to all addresses; last error: Connection refused"), True),
        (RuntimeError("DEADLINE_EXCEEDED: Barrier timed out. Id: checkpoint"), True),
        (RuntimeError("INTERNAL: NCCL operation ncclAllReduce failed: remote process exited or network error"), True),
        (RuntimeError("INTERNAL: NCCL operation ncclAllReduce failed: Connection reset by peer"), True),
        (RuntimeError("INTERNAL: NCCL operation ncclAllReduce failed: Cuda failure 2 'out of memory'"), False),
        (RuntimeError("INTERNAL: NCCL operation ncclCommInitRankConfig failed: unhandled system error"), False),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 100 bytes"), False),
        (ValueError("the mesh has 2 devices"), False),
        (KeyError("gloo"), False),
    ],
)
def test_other_errors_are_not_taken_for_a_lost_process(error, expected, monkeypatch):
    monkeypatch.setattr("jax.process_count", lambda: 2)
    assert (distributed.lost_contact(error) is not None) == expected
    monkeypatch.setattr("jax.process_count", lambda: 1)
    assert distributed.lost_contact(error) is None
