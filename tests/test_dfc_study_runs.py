"""The study of Divide-Fuse-Conquer: its runs are valid, and each ablation changes what it is called by and no more."""

import importlib.util
import sys
from pathlib import Path

import pytest

from dfc import validation
from dfc.launch import command_line, overrides
from dfc.runs.run_folder import config_json, differences

ROOT = Path(__file__).resolve().parents[1]
TECHNIQUES = ("half_negative", "random_action_rate", "mixed_priority", "acceptance")


@pytest.fixture
def configs(monkeypatch):
    """The configuration of every run, by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    specification = importlib.util.spec_from_file_location("dfc_study", ROOT / "benchmarks" / "dfc_study.py")
    study = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "dfc_study", study)
    specification.loader.exec_module(study)
    found = {}
    for run, _ in study.plan([10]):
        config = command_line.load(str(ROOT / "configs" / f"{run.config}.py"))
        found[run.name], problems = overrides.override(config, list(run.changes))
        assert problems + validation.problems(found[run.name]) == []
    return found


def test_every_run_is_valid_and_all_methods_share_sampling_and_acceptance(configs):
    assert {"dfc", "naive_multi", "naive_single", "imitation", "long", "dfc_ties"} <= configs.keys()
    for name in ("naive_multi", "naive_single", "imitation", "six_games", "long"):
        for technique in TECHNIQUES:
            assert getattr(configs[name], technique) == getattr(configs["dfc"], technique)
    assert (configs["long"].iterations, configs["six_games"].iterations) == (700, 40)


@pytest.mark.parametrize(
    ("base", "ablation", "change"),
    [
        ("six_games", "no_mixed_priority", "mixed_priority.enabled: the folder has True, this run has False"),
        ("six_games", "all_negatives", "half_negative: the folder has True, this run has False"),
        ("connect_four", "no_epsilon", "random_action_rate: the folder has 0.02, this run has 0.0"),
        ("liars_dice", "same_seeds", "randomize_seeds: the folder has True, this run has False"),
        ("six_games", "kl_coefficient=0.1", "grpo.kl_coefficient: the folder has 0.02, this run has 0.1"),
    ],
)
def test_an_ablation_changes_one_setting(configs, base, ablation, change):
    whole, without = configs[base], configs[f"{base}-{ablation}"]
    assert differences(config_json(whole), config_json(without)) == [change]
