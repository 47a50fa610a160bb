"""Paprika's study: which runs read what, and how its claims are read off them."""

import dataclasses
import importlib.util
import itertools
import json
import sys
from pathlib import Path

import pytest

from dfc import validation
from dfc.configs import paprika_grpo_tiny, paprika_tiny
from dfc.evaluation.tasks import EvalSetting, of_records
from dfc.launch import command_line, overrides
from dfc.report import task_page

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    """The two scripts of the study as modules."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = []
    for name in ("study_tables", "paprika_study", "paprika_study_results"):
        specification = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(specification)
        monkeypatch.setitem(sys.modules, name, module)
        specification.loader.exec_module(module)
        found.append(module)
    return found[1:]


def test_every_policy_that_is_evaluated_is_trained_before(scripts):
    study = scripts[0]
    runs = [run.name for run in study.plan(Path("out/20"), "player")]
    before = runs[: runs.index("evaluated")]
    for name in study.evaluated():
        place = study.where(Path("out/20"), name, "player")
        assert place == "player" or Path(place).parts[2] in before


def test_every_run_is_a_valid_configuration_and_all_play_alike(scripts):
    tiny = paprika_tiny.get_config()
    for run in scripts[0].plan(Path("out/20"), "player"):
        config, found = overrides.override(command_line.load(f"configs/{run.config}.py"), run.changes)
        assert found + validation.problems(config) == [], run.name
        assert config.rollout == tiny.rollout
        if run.name == "evaluated":
            assert config.games == tiny.games
            assert {f.name: getattr(config, f.name) for f in dataclasses.fields(tiny.evaluate_tasks)} == vars(
                tiny.evaluate_tasks
            )


def test_reinforcement_learning_has_as_many_games_as_the_collection():
    collected = paprika_tiny.get_config()
    grpo = paprika_grpo_tiny.get_config()
    games = len(collected.games) * collected.collect.tasks * collected.collect.samples
    assert grpo.iterations * grpo.groups_per_game * grpo.group_size * len(collected.games) == games
    assert grpo.tasks == collected.collect.tasks


def test_results_become_tables(scripts, tmp_path):
    names = [*scripts[0].evaluated()]
    groups = list(paprika_tiny.get_config().games)
    for seed in ("20", "21"):
        records = [
            {
                "game": game,
                "task": task,
                "policy": name,
                "temperature": 0.7,
                "trajectory": trajectory,
                "seat": 0,
                "turns": 3,
                "outcomes": ["win" if (task + trajectory + len(name) + int(seed)) % 3 else "loss"],
            }
            for name, game, task, trajectory in itertools.product(names, groups, range(3), range(4))
        ]
        settings = [EvalSetting(name, 0.7) for name in names]
        place = tmp_path / seed / "evaluated"
        place.mkdir(parents=True)
        found = task_page.to_json(of_records(settings, dict.fromkeys(groups, 20), 4, records))
        (place / "results.json").write_text(json.dumps(found))
    results = scripts[1]
    found = results.seeds(tmp_path, "evaluated")
    assert len(results.CLAIMS) == 13
    claims = results.claims_table(results.CLAIMS, tmp_path).splitlines()[2:]
    assert len(claims) == 7  # without those of runs that were not made
    page = "\n".join(claims) + results.passes(found) + results.left_out(found) + results.single(found)
    assert "RPO beats SFT alone" in page
    assert "murder_mystery" in page


def test_a_claim_of_success_is_in_points_and_its_margin_too(scripts, monkeypatch):
    results = scripts[1]
    gains = {"20": 0.005, "21": 0.010, "22": 0.015}
    policies = {"base": 0.0, "chat": 1.0}
    found = {
        seed: {
            "arms": [
                {"policy": name, "temperature": 0.7, "mean_over_groups": {"success": [0.3 + share * gain, 0, 1]}}
                for name, share in policies.items()
            ]
        }
        for seed, gain in gains.items()
    }
    monkeypatch.setattr(results, "seeds", lambda *_: found)
    (row,) = [row for row in results.CLAIMS if row.claim.text == "SFT on ordinary chat does not help"]
    assert row.read(Path("out")) == pytest.approx([0.5, 1.0, 1.5])
    assert (row.claim.sign, row.claim.margin) == (-1, -2.0)
