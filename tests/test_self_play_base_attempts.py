"""Attempts at the model that self-play starts from: which are made, how each differs, what is said of it."""

import json

import pytest

from dfc.config import SelfPlayBase
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.tools.small_models import self_play_base as recipe

SORT, ADD = FAMILIES = ("sort_digits", "add_digits")
CONFIG = SelfPlayBase(
    families=FAMILIES, steps=1000, seed=7, attempts=4, skill=(0.8, 0.65), accuracy_aim=(0.3, 0.6), live_aim=0.5
)


def figures(sort, add, live=0.5):
    """What an evaluation returns; each figure is another one."""
    found = {name: {"accuracy": accuracy, "live": live} for name, accuracy in ((SORT, sort), (ADD, add))}
    judge = {"readable": 0.9, "same_sum": 0.8, "correlation": 0.7}
    return {"families": found, "template": 0.95, "difficulty": {"1": 3, "8": 2}, **judge}


class Killed(Exception):  # noqa: N818 - no error of ours
    """The process is gone."""


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Runs the recipe with figures in place of models; returns (updates, seed, skills) of what would be trained."""

    def made(config, *found):
        trained, left = [], list(found)

        def evaluate(*_):
            if not left:
                raise Killed
            return left.pop(0)

        def train(attempt, skills, *_):
            trained.append((attempt.steps, attempt.seed, skills[SORT], skills[ADD]))

        monkeypatch.setattr(recipe, "_train", train)
        monkeypatch.setattr(recipe, "evaluate", evaluate)
        with RunFolder.open(tmp_path / "run", config, command="") as folder:
            try:
                recipe.run(config, folder, Stop())
            except Killed:
                trained.append("killed")
        return trained

    return made


HIGH_AND_LOW, HIGH, MET = figures(0.65, 0.2), figures(0.65, 0.45), figures(0.6, 0.3)


def test_each_attempt_has_the_next_seed_and_what_the_attempts_before_say(make, tmp_path, capsys):
    found = make(CONFIG, HIGH_AND_LOW, HIGH, MET)
    # A skill does not fall below that at the highest difficulty.
    assert found == [
        (1000, 7, 0.8, 0.8),
        (1500, 8, pytest.approx(0.7), 0.8),
        (1500, 9, 0.65, 0.8),
    ]
    rows = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert [(row["attempt"], row["steps"], row["skills"][SORT]) for row in rows] == [
        (1, 1000, 0.8),
        (2, 1500, pytest.approx(0.7)),
        (3, 1500, 0.65),
    ]
    said = capsys.readouterr().out
    assert said.count("the aim is missed\n") == 2
    assert said.count("the aim is met\n") == 1
    assert "warning" not in said


def test_a_start_after_a_kill_makes_the_attempt_that_was_at_work(make):
    third = (1500, 9, 0.65, 0.8)
    assert make(CONFIG, HIGH_AND_LOW, HIGH)[2:] == [third, "killed"]
    assert make(CONFIG, MET) == [third]


def test_the_last_attempt_is_kept_and_what_it_misses_is_said(make, capsys):
    low = figures(0.2, 0.45, live=0.4)
    found = make(CONFIG, *[low] * 5)
    assert [steps for steps, *_ in found] == [1000, 1500, 2250, 3375]
    (warning,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("warning"))
    assert warning == (
        "warning: the aim is missed: sort_digits: greedy accuracy 20% is not within 30% to 60%; "
        "sort_digits: 40% of queries are live, below 50%; add_digits: 40% of queries are live, below 50%"
    )


def test_a_family_within_the_aim_keeps_its_skill_to_the_bound():
    row = {"steps": 1000, "skills": {SORT: 0.8, ADD: 0.8}, **figures(0.6, 0.2)}
    assert recipe.next_attempt(CONFIG, row) == ({SORT: 0.8, ADD: 0.8}, 1500)
    few_live = {"steps": 1001, "skills": {SORT: 0.8, ADD: 0.8}, **figures(0.6, 0.3, live=0.49)}
    assert recipe.next_attempt(CONFIG, few_live) == ({SORT: 0.8, ADD: 0.8}, 1501)


def test_a_model_is_described_by_each_of_its_figures():
    row = {"steps": 1000, "skills": {}, **figures(0.6, 0.3, live=0.55)}
    assert recipe.lines(CONFIG, row) == [
        "sort_digits      greedy accuracy 60.0%, live queries 55.0%",
        "add_digits       greedy accuracy 30.0%, live queries 55.0%",
        "challenger: 95.0% keep the template; by difficulty 1: 3, 8: 2",
        "judge: 90.0% of replies can be read, 80.0% of these have the programs' sum, correlation 0.70",
        "the aim is met",
    ]
