"""A whole run with adapters over four bits: what is trained, fused and written."""

import dataclasses
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import numpy as np
import pytest
from recipe_runs import lines

from dfc.models import huggingface, peft
from dfc.models.lora import ALL_LINEAR
from dfc.models.transformer import initialize

CONFIG = """
from dfc import config as c


def get_config():
    return c.DivideFuseConquer(
        games={"TicTacToe-v0": {}, "GuessTheNumber-v0": {"max_turns": 3}},
        model=c.ModelConfig(path="model"),
        adapter=c.AdapterConfig(rank=4, base="nf4"),
        rollout=c.RolloutConfig(
            slots=8, max_length=64, max_reply_length=4, stop=("]",), prefill_buckets=(32,)
        ),
        optimizer=c.OptimizerConfig(learning_rate=1e-2),
        batch=c.BatchConfig(row_length=64, micro_batch_rows=4),
        divide_iterations=1, conquer_iterations=1, groups_per_game=2, group_size=4, opponent="initial",
        grouping=c.GroupingConfig(trials=4), acceptance=c.AcceptanceConfig(rule="always"),
        evaluation=c.EvaluationConfig(games=2, stage_games=2), grpo=c.GrpoConfig(updates_per_iteration=1),
    )
"""


# The launcher in a process that signals itself after its first iteration.
STOPPED = """
import os, signal, sys
from dfc.launch.__main__ import main
from dfc.runs.run_folder import RunFolder

append = RunFolder.append

def stopping_append(self, stream, records):
    append(self, stream, records)
    if stream == "metrics":
        RunFolder.append = append
        os.kill(os.getpid(), signal.SIGTERM)

RunFolder.append = stopping_append
sys.exit(main(sys.argv[1:]))
"""


def start(folder, name, *launcher):
    launcher = launcher or ("-m", "dfc.launch")
    command = [sys.executable, *launcher, "--config=config.py", f"--workdir={name}"]
    root = str(Path(__file__).parent.parent)
    environment = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": root, "PATH": "/usr/bin:/bin"}
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(folder / "xla"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    environment |= {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    return subprocess.Popen(  # noqa: S603 - our own command
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run that nobody stopped, and what it printed."""
    folder = tmp_path_factory.mktemp("adapters")
    player = huggingface.resolve("tiny_player")
    config, _ = huggingface.load(player, dtype="float32")
    config = dataclasses.replace(config, width=64, heads=2, kv_heads=2, head_dim=32, feed_forward=128, layers=2)
    huggingface.save(folder / "model", config, initialize(config, 0), copy_from=Path(player))
    (folder / "config.py").write_text(textwrap.dedent(CONFIG))
    process = start(folder, "run")
    text, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    return folder, text


def test_the_policy_is_the_full_model_with_the_adapter_added(run):
    folder, _ = run
    config, before = huggingface.load(folder / "model", dtype="float32")
    _, after = huggingface.load(folder / "run" / "policy", dtype="float32")
    lora, adapters = peft.load_adapter(folder / "run" / "adapter", config)
    assert (lora.rank, set(lora.targets)) == (4, set(ALL_LINEAR))
    for number in range(config.layers):
        for part, names in (("attention", ("query", "key", "value", "output")), ("mlp", ("gate", "up", "down"))):
            for name in names:
                old, new = (tree["layers"][number][part][name]["kernel"] for tree in (before, after))
                pair = adapters["layers"][number][part][name]
                change = lora.scale * np.asarray(pair["a"]) @ np.asarray(pair["b"])
                np.testing.assert_allclose(np.asarray(new) - np.asarray(old), change, atol=1e-5)
                assert np.abs(change).max() > 0
    for name in ("embed", "norm"):
        jax.tree.map(np.testing.assert_array_equal, before[name], after[name])


def test_fusing_notes_what_it_misses(run):
    records = lines(run[0] / "run")
    noted = {record["stage"]: record["metrics"].get("fusion/missed") for record in records}
    assert [value is None for value in noted.values()] == [True, True, False]
    assert 0 <= noted["conquer g1+g2"] < 1


def test_the_update_pulls_on_the_adapters(run):
    records = lines(run[0] / "run")
    norms = [record["metrics"]["gradient_norm"] for record in records if "gradient_norm" in record["metrics"]]
    assert norms
    assert all(norm > 0 for norm in norms)


def test_a_stopped_run_goes_on_to_the_very_same_adapters(run):
    folder, _ = run
    process = start(folder, "stopped", "-c", STOPPED)
    _, errors = process.communicate(timeout=500)
    assert process.returncode == 143, errors
    process = start(folder, "stopped")
    text, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    assert "resuming after step" in text
    for name in ("adapter/adapter_model.safetensors", "policy/model.safetensors"):
        assert (folder / "stopped" / name).read_bytes() == (folder / "run" / name).read_bytes()
