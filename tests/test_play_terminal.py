"""``python -m dfc.launch.play`` as a process of its own: Ctrl-C at every moment, and the arrow keys of a terminal."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chat_server import hangs, serving

ROOT = Path(__file__).resolve().parents[1]


def started(*words, on=subprocess.PIPE):
    command = [sys.executable, "-u", "-m", "dfc.launch.play", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=on, stdout=on, stderr=on)  # noqa: S603 - our own command


def read_until(process, text):
    seen = b""
    while text.encode() not in seen:
        piece = process.stdout.read(1)
        assert piece, (seen, process.stderr.read())
        seen += piece


def interrupted(process):
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    return process.returncode, out.decode(), err.decode()


def test_ctrl_c_at_the_prompt_says_one_line():
    process = started("--game=TicTacToe-v0", "--seed=1")
    read_until(process, "player 0> ")
    assert interrupted(process) == (130, "\nLeft.\n", "")


def test_ctrl_c_while_a_model_is_loaded_or_compiled_says_one_line():
    process = started("--game=TicTacToe-v0", "--seed=1", "--seat=1", "--opponent=tiny_player")
    read_until(process, "loading tiny_player ...\n")
    time.sleep(0.2)
    assert interrupted(process) == (130, "\nLeft.\n", "")
    process = started("--game=TicTacToe-v0", "--seed=1", "--seat=1", "--opponent=tiny_player")
    read_until(process, "seed 1\n")
    time.sleep(0.2)
    assert interrupted(process) == (130, "\nLeft.\n", "")


def test_ctrl_c_while_an_endpoint_is_waited_for_says_one_line():
    with serving(usual=hangs) as server:
        process = started("--game=TicTacToe-v0", "--seed=1", "--seat=1", f"--opponent={server.url}#m")
        read_until(process, "waiting for m ...\n")
        assert interrupted(process) == (130, "\nLeft.\n", "")


def test_an_arrow_key_recalls_the_last_line_where_python_has_readline():
    pytest.importorskip("readline")
    controller, terminal = pty.openpty()
    with started("--game=TicTacToe-v0", "--seed=1", on=terminal) as process:
        os.close(terminal)
        seen = b""
        for expected, typed in [
            (b"player 0> ", b"9\r"),
            (b"There is no such cell.", b"\x1b[A\r"),
            (b"There is no such cell.", b"quit\r"),
            (b"Left.", b""),
        ]:
            while expected not in seen:
                assert select.select([controller], [], [], 120)[0], seen
                seen += os.read(controller, 1)
            seen = b""
            os.write(controller, typed)
        assert process.wait(120) == 0
    os.close(controller)
