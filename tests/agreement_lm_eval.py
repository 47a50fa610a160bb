"""lm-eval on exported weights and over the server: `make agreement-lm-eval`. Not collected by default.

A task file and rows of our own (tests/lm_eval_tasks), nothing from a network. Greedy replies of transformers, which
lm-eval's `hf` computes with, are the oracle of ours, which the server gives to `local-chat-completions`.
"""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dfc.evaluation.skills import read_skills
from dfc.launch import skills
from dfc.models import huggingface

TASKS = Path(__file__).resolve().parent / "lm_eval_tasks"
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "JAX_PLATFORMS": "cpu", "TOKENIZERS_PARALLELISM": "false"}


def test_the_oracle_is_the_version_that_was_read():
    assert importlib.metadata.version("lm-eval") == "0.4.13"


def evaluated(folder, name, *words):
    """The file of results and the replies by question of a run of lm-eval."""
    result = subprocess.run(  # noqa: S603 - lm-eval's command and our own words
        [
            Path(sys.executable).with_name("lm-eval"),
            *(
                "run",
                "--tasks",
                "dfc_openings",
                "--include_path",
                str(folder),
                "--apply_chat_template",
                "--log_samples",
            ),
            *("--output_path", str(folder / name), *words),
        ],
        cwd=folder,
        env=os.environ | OFFLINE,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    (results,) = (folder / name).rglob("results_*.json")
    (samples,) = (folder / name).rglob("samples_*.jsonl")
    rows = map(json.loads, samples.read_text().splitlines())
    return results, {row["doc"]["question"]: row["resps"][0][0] for row in rows}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("skills")
    shutil.copytree(TASKS, found, dirs_exist_ok=True)
    return found


@pytest.fixture(scope="module")
def by_transformers(folder):
    weights = huggingface.resolve("tiny_player")
    return evaluated(
        folder, "hf", "--model", "hf", "--device", "cpu", "--model_args", f"pretrained={weights},dtype=float32"
    )


def test_over_the_server_the_replies_are_those_of_transformers(folder, by_transformers):
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "dfc.launch.serve",
            "--policy=tiny_player",
            "--port=0",
            "--slots=2",
            "--max_length=1024",
        ],
        env=os.environ | OFFLINE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = next(line for line in server.stdout if line.startswith("serving")).split(" at ")[1].split(";")[0]
        model = f"base_url={address}/chat/completions,model=tiny_player,max_retries=1,num_concurrent=1"
        results, replies = evaluated(folder, "server", "--model", "local-chat-completions", "--model_args", model)
    finally:
        server.terminate()
        server.wait(30)
    assert replies == by_transformers[1]
    assert len(replies) == 6
    assert read_skills(results)["dfc_openings"].percent == read_skills(by_transformers[0])["dfc_openings"].percent


def test_the_page_reads_what_lm_eval_wrote(folder, by_transformers, capsys):
    file = by_transformers[0]
    assert skills.main([f"--out={folder / 'page'}", f"base={file}", f"same={file}"]) == 0
    assert "| same, less the first | +0.00 " in capsys.readouterr().out
    found = read_skills(file)["dfc_openings"]
    assert (found.metric, found.questions) == ("exact_match", 6)
