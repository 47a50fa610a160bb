"""A run killed with SIGKILL and resumed ends like one that was never stopped; a polite stop says how to go on."""

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from offline_rows import save_model
from recipe_runs import untimed

CONFIG = '''
"""Two groups, a fuse and a conquer in seconds; the model has one layer, most of the time goes into compiling."""

from dfc import config as c


def get_config():
    return c.DivideFuseConquer(
        games={"TicTacToe-v0": {}, "GuessTheNumber-v0": {"max_turns": 3}},
        model=c.ModelConfig(path="model"),
        rollout=c.RolloutConfig(
            slots=8, max_length=64, max_reply_length=4, stop=("]",), prefill_buckets=(32,), legal_only=True
        ),
        optimizer=c.OptimizerConfig(learning_rate=1e-3),
        batch=c.BatchConfig(row_length=64, micro_batch_rows=4),
        divide_iterations=2, conquer_iterations=2, groups_per_game=2, group_size=4, opponent="initial",
        grouping=c.GroupingConfig(trials=4), acceptance=c.AcceptanceConfig(games=2, tolerance=0.3),
        evaluation=c.EvaluationConfig(games=2, stage_games=2), grpo=c.GrpoConfig(updates_per_iteration=1),
        checkpoint=c.CheckpointConfig(every=2, keep=2),
    )
'''


# The launcher in a process that sends itself a signal when a record is in its file, named by the file and a part of it:
# at once or when it plays the next games.
SIGNALLED = """
import os, signal, sys
from dfc.launch.__main__ import main
from dfc.rollout.workers import RolloutWorkers
from dfc.runs.run_folder import RunFolder, json_line

name, when, awaited, part, *arguments = sys.argv[1:]
append, play = RunFolder.append, RolloutWorkers.play


def send():
    os.kill(os.getpid(), getattr(signal, name))


def signalling_play(self, *given, **more):
    RolloutWorkers.play = play
    send()
    return play(self, *given, **more)


def signalling_append(self, stream, records):
    records = list(records)
    append(self, stream, records)
    if stream == awaited and part.encode() in b"".join(map(json_line, records)):
        self.flush()
        RunFolder.append = append
        if when == "at once":
            send()
        else:
            RolloutWorkers.play = signalling_play


RunFolder.append = signalling_append
sys.exit(main(arguments))
"""

KILLS = [
    ("evaluations", '"initial"'),  # in the first matches
    ("episodes", '"train"'),  # in the first stage, between the games of an iteration and its update
    ("metrics", '"step":3'),  # in the second, behind an iteration without a checkpoint
    ("metrics", '"step":5'),  # after the fuse
    ("evaluations", '"final"'),  # in the last matches
]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    (folder / "config.py").write_text(textwrap.dedent(CONFIG))
    (folder / "signalled.py").write_text(SIGNALLED)
    save_model(folder / "model")
    return folder


def start(workplace: Path, name: str, *signalled: str) -> subprocess.Popen:
    """Starts the run, or the one of `SIGNALLED`."""
    environment = dict(os.environ, JAX_PLATFORMS="cpu", JAX_COMPILATION_CACHE_DIR=str(workplace / "xla"))
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    environment["PYTHONPATH"] = str(Path(__file__).parent.parent)
    launcher = ["signalled.py", *signalled] if signalled else ["-m", "dfc.launch"]
    command = [sys.executable, *launcher, "--config=config.py", f"--workdir={name}"]
    return subprocess.Popen(  # noqa: S603 - our own command
        command, cwd=workplace, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def result(folder: Path) -> dict[str, object]:
    files = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in ("episodes.jsonl", "evaluations.jsonl", "groups.json", "policy/model.safetensors")
    }
    return {"metrics": untimed(folder), **files}


@pytest.fixture(scope="module")
def uninterrupted(workplace):
    process = start(workplace, "whole")
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert "report:" in output
    return workplace / "whole"


def test_killed_at_several_points_and_resumed_ends_bit_identical(workplace, uninterrupted):
    folder = workplace / "killed"
    for point in KILLS:
        process = start(workplace, "killed", "SIGKILL", "at once", *point)
        output, _ = process.communicate(timeout=400)
        assert process.returncode == -signal.SIGKILL, output
    process = start(workplace, "killed")
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert result(folder) == result(uninterrupted)


def test_sigterm_saves_says_how_to_go_on_and_loses_nothing(workplace, uninterrupted):
    folder = workplace / "stopped"
    process = start(workplace, "stopped", "SIGTERM", "with the next games", "metrics", '"step":1')
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, output
    assert "run the same command" in output
    assert "SIGTERM: stopping; waiting for " in output
    done = lines(folder / "metrics.jsonl")
    process = start(workplace, "stopped")
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert f"resuming after step {done};" in output  # the iteration under way, and no other, was made again
    assert result(folder) == result(uninterrupted)


def test_a_finished_run_started_again_changes_nothing(workplace, uninterrupted):
    before = result(uninterrupted)
    process = start(workplace, "whole")
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert result(uninterrupted) == before
