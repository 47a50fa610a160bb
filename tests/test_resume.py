"""A run killed with SIGKILL and resumed ends like one that was never stopped; a polite stop says how to go on."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

CONFIG = '''
"""Two groups, a fuse and a conquer in a minute."""

from dfc import config as c


def get_config():
    return c.DivideFuseConquer(
        games={"TicTacToe-v0": {}, "GuessTheNumber-v0": {"max_turns": 3}},
        rollout=c.RolloutConfig(
            slots=8, max_length=64, max_reply_length=4, stop=("]",), prefill_buckets=(32,)
        ),
        optimizer=c.OptimizerConfig(learning_rate=1e-3),
        batch=c.BatchConfig(row_length=64, micro_batch_rows=4),
        divide_iterations=2, conquer_iterations=2, seeds_per_game=2, trajectories_per_seed=4, opponent="initial",
        grouping=c.GroupingConfig(trials=4), acceptance=c.AcceptanceConfig(games=2, tolerance=0.3),
        evaluation=c.EvaluationConfig(games=2, stage_games=2), grpo=c.GrpoConfig(updates_per_iteration=1),
        checkpoint=c.CheckpointConfig(every=2, keep=2),
    )
'''


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    (folder / "config.py").write_text(textwrap.dedent(CONFIG))
    return folder


def start(workplace: Path, name: str) -> subprocess.Popen:
    environment = dict(os.environ, JAX_PLATFORMS="cpu", JAX_COMPILATION_CACHE_DIR=str(workplace / "xla"))
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    environment["PYTHONPATH"] = str(Path(__file__).parent.parent)
    command = [sys.executable, "-m", "dfc.launch", "--config=config.py", f"--workdir={name}"]
    return subprocess.Popen(  # noqa: S603 - our own command
        command, cwd=workplace, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def result(folder: Path) -> dict[str, object]:
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for record in metrics:
        del record["clock"]
    files = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in ("episodes.jsonl", "evaluations.jsonl", "groups.json", "policy/model.safetensors")
    }
    return {"metrics": metrics, **files}


@pytest.fixture(scope="module")
def uninterrupted(workplace):
    process = start(workplace, "whole")
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert "report:" in output
    return workplace / "whole"


def test_killed_at_several_points_and_resumed_ends_bit_identical(workplace, uninterrupted):
    folder = workplace / "killed"
    # In the first matches, within the first stage, within the second, after the fuse, in the last matches.
    points = [
        lambda: folder.joinpath("config.json").exists(),
        lambda: lines(folder / "metrics.jsonl") >= 1,
        lambda: lines(folder / "metrics.jsonl") >= 3,
        lambda: lines(folder / "metrics.jsonl") >= 5,
        lambda: b'"final"' in (folder / "evaluations.jsonl").read_bytes(),
    ]
    kills = 0
    for reached in points:
        process = start(workplace, "killed")
        while process.poll() is None and not reached():
            time.sleep(0.02)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate(timeout=60)
    assert kills >= 4, "the run ended before it could be killed; the points no longer fit its length"
    process = start(workplace, "killed")
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert result(folder) == result(uninterrupted)


def test_sigterm_saves_says_how_to_go_on_and_loses_nothing(workplace, uninterrupted):
    folder = workplace / "stopped"
    process = start(workplace, "stopped")
    while process.poll() is None and lines(folder / "metrics.jsonl") < 1:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
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
