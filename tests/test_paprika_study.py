"""The study's arithmetic: what counts as held, and which runs read what."""

import importlib.util
import sys
from pathlib import Path

import pytest

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
        ([-0.05, -0.01, -0.4], 1, "not held"),  # every seed says the opposite
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
