"""The study's arithmetic: what counts as held, and which runs read what."""

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
    for name in ("paprika_study", "paprika_study_results"):
        specification = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(specification)
        monkeypatch.setitem(sys.modules, name, module)
        specification.loader.exec_module(module)
        found.append(module)
    return found


@pytest.mark.parametrize(
    ("values", "sign", "expected"),
    [
        ([0.05, 0.06, 0.055], 1, "held"),
        ([0.05, 0.06, 0.055], -1, "not held"),
        ([0.05, 0.06, 0.4], 1, "undecided"),  # the interval of three such values holds 0
        ([0.05, -0.01, 0.02], 1, "undecided"),
        (
            [-0.05, -0.01, -0.4],
            1,
            "undecided",
        ),  # that every seed says the opposite happens once in eight times by chance
        ([-0.05, 0.0, -0.01], 0, "undecided"),  # as for something that does not help: it may by 4 points
        ([-0.01, 0.0, -0.01], 0, "held"),
        ([0.05, 0.06, 0.055], 0, "not held"),
        ([0.5], 1, "undecided"),
    ],
)
def test_a_claim_is_held_by_its_interval_only(scripts, values, sign, expected):
    assert scripts[1].verdict(values, sign) == expected


def test_three_seeds_have_the_interval_of_student(scripts):
    mean, low, high = scripts[1].over_seeds([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert high - mean == mean - low == pytest.approx(4.303 * 1.0 / 3**0.5)


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
    assert grpo.iterations * grpo.seeds_per_game * grpo.trajectories_per_seed * len(collected.games) == games
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
    page = results.claims(tmp_path, found) + results.passes(found) + results.left_out(found) + results.single(found)
    assert "RPO beats SFT alone" in page
    assert "murder_mystery" in page
