"""``--version`` and ``--print-config``: what a command line shows instead of running."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dfc
from dfc.config import Grpo, ModelConfig
from dfc.launch import command_line
from dfc.launch.__main__ import main

CHECKOUT = Path(__file__).resolve().parents[1]
CONFIGS = CHECKOUT / "configs"


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.py")))
def test_a_printed_configuration_given_back_is_the_same_run(name, tmp_path, capsys):
    words = [f"--config={CONFIGS / name}.py", "--config.seed=7"]
    assert main([*words, "--print-config", f"--workdir={tmp_path / 'run'}"]) == 0
    printed = tmp_path / "printed.py"
    printed.write_text(capsys.readouterr().out, encoding="utf-8")
    config = command_line.load(str(printed))
    assert config.seed == 7
    assert config == command_line.override(command_line.load(words[0].removeprefix("--config=")), words[1:])[0]
    assert type(config) is type(command_line.load(words[0].removeprefix("--config=")))
    assert not (tmp_path / "run").exists()


def test_a_printed_configuration_names_every_value_so_that_other_defaults_do_not_change_it():
    text = command_line.as_file(Grpo(name="x", games={"Nim-v0": {}}, model=ModelConfig(path='it\'s "here"')))
    for part in ("temperature=1.0", "mixed_priority=MixedPriorityConfig(enabled=False", "endpoints={}", "simulators="):
        assert part in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_what_is_wrong_is_said_instead_of_printed_and_weights_need_not_be_there(capsys):
    assert main(["--config=configs/smoke.py", "--config.groups_per_game=0", "--print-config"]) == 2
    assert "groups_per_game=0" in capsys.readouterr().err
    assert main(["--print-config"]) == 2
    assert "--config is missing" in capsys.readouterr().err
    assert main(["--config=configs/smoke.py", "--config.model.path=/nowhere", "--print-config"]) == 0


def test_the_versions_come_without_jax():
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    words = [sys.executable, "-X", "importtime", "-m", "dfc.launch", "--version"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)  # noqa: S603 - ours
    lines = dict(line.split() for line in done.stdout.splitlines())
    assert lines["dfc"] == dfc.__version__
    assert lines["Python"] == sys.version.split()[0]
    assert {"jax", "jaxlib", "flax"} <= lines.keys()
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert not imported & {"jax", "numpy"}
