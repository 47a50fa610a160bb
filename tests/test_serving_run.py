"""A server as a process of its own, on a run that has no policy yet: what it serves, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
from processes import ROOT
from serving_clients import now

from dfc.config import DivideFuseConquer, SamplingConfig, ServingConfig
from dfc.models import huggingface
from dfc.models.transformer import initialize
from dfc.runs.checkpoint import Checkpointer
from dfc.runs.run_folder import config_json
from dfc.tools.serving import server

SETTINGS = {"slots": 1, "max_length": 600, "decode_steps": 8}
BODY = {"model": "mine", "messages": [{"role": "user", "content": "Hello"}], "seed": 5, "temperature": 1.5}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run that trains: random weights at step 2, others at step 3."""
    folder = tmp_path_factory.mktemp("runs") / "training"
    config, _ = huggingface.load("tiny_player", dtype="float32")
    checkpoints = Checkpointer(folder / "checkpoints", keep=2)
    for step in (2, 3):
        checkpoints.save(step, {"best": initialize(config, step), "optimizer": {"m": np.zeros(3)}}, {})
    (folder / "config.json").write_text(json.dumps(config_json(DivideFuseConquer(games={"Nim-v0": {}}))))
    return folder


def test_a_run_that_trains_serves_what_it_accepted_last_and_answers_after_sigterm(run):
    words = [f"--policy={run}", "--port=0", "--name=mine", *(f"--{name}={value}" for name, value in SETTINGS.items())]
    process = subprocess.Popen(  # noqa: S603 - this interpreter and our own words
        [sys.executable, "-m", "dfc.launch.serve", *words],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    found = []
    try:
        line = next(line for line in process.stdout if line.startswith("serving"))
        assert "serving mine (the policy that the run training accepted last, as of its checkpoint 3)" in line
        port = int(re.search(r":(\d+)/v1", line)[1])
        (entry,) = now(port, path="/v1/models", key=None).json["data"]
        assert entry["policy"] == "the policy that the run training accepted last, as of its checkpoint 3"
        short = now(port, BODY | {"max_tokens": 12}, key=None).json["choices"][0]["message"]["content"]
        thread = threading.Thread(
            target=lambda: found.append(
                now(port, BODY | {"max_tokens": 500, "stream": True, "logprobs": True}, key=None)
            )
        )
        thread.start()
        while b"dfc_slots_busy 1.0" not in now(port, path="/metrics", key=None).body and not found:
            pass
        process.send_signal(signal.SIGTERM)
        thread.join(30)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGTERM
    assert "Traceback" not in err
    assert "Hello" not in out + err
    assert found[0].events[-1]["choices"][0]["finish_reason"] in {"stop", "length"}
    # The same weights in this process say the same.
    config, _ = huggingface.load("tiny_player", dtype="float32")
    policy = server.load(str(run), ServingConfig(name="mine", **SETTINGS))
    slot = policy.engine.open(5, sampling=SamplingConfig(temperature=1.5))
    policy.engine.append(slot, policy.served.tokenizer.first_turn("Hello"))
    policy.engine.ask(slot, 12)
    while not (replies := policy.engine.step()):
        pass
    assert policy.served.tokenizer.decode(replies[0].token_ids) == short
    jax.tree.map(np.testing.assert_array_equal, policy.engine._policies["policy"].weights.params, initialize(config, 3))
