"""The curriculum over task groups: which tasks are chosen, from what, and what a round is made of."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from dfc import curriculum, validation
from dfc.config import ModelConfig, RunConfig
from dfc.curriculum import UpperConfidenceBound
from dfc.recipes import task_curriculum
from dfc.recipes.collection import Attempt, Summary, task_arms
from dfc.recipes.task_curriculum import Chooser
from dfc.task_config import CollectConfig, TaskCurriculumConfig

ARMS = {"easy": [("g", 0), ("g", 1)], "medium": [("g", 2), ("g", 3), ("g", 4)], "hard": [("g", 5)]}


def config(**settings):
    return RunConfig(
        recipe="task_curriculum",
        games={"twenty_questions": {}},
        collect=CollectConfig(samples_of=()),
        task_curriculum=TaskCurriculumConfig(**{"samples": 4, **settings}),
    )


def summary(attempt, turns, *, success=True, failure=None):
    return Summary(attempt, turns, 20, success, failure, 5)


# ---- upper confidence bounds ----------------------------------------------------------------------------------------


def test_one_at_a_time_is_algorithm_1():
    rng = np.random.default_rng(3)
    bound, sums, counts = UpperConfidenceBound(3), [0.0] * 3, [0] * 3
    for _ in range(60):
        scores = [
            math.inf if n == 0 else s / n + math.sqrt(2 * math.log(sum(counts)) / n)
            for s, n in zip(sums, counts, strict=True)
        ]
        expected = scores.index(max(scores))
        assert bound.choose(1) == [expected]
        result = rng.uniform()
        bound.observe(expected, result)
        sums[expected], counts[expected] = sums[expected] + result, counts[expected] + 1
    np.testing.assert_array_equal(bound.counts, counts)


def test_choices_made_together_see_every_group_before_one_twice():
    assert UpperConfidenceBound(4).choose(4) == [0, 1, 2, 3]


def test_a_pending_choice_makes_its_group_less_attractive():
    bound = UpperConfidenceBound(2)
    bound.observe(0, 0.5)
    bound.observe(1, 0.5)
    assert sorted(bound.choose(4)) == [0, 0, 1, 1]
    assert bound.counts.tolist() == [1, 1]  # choosing alone changes nothing


def test_wrong_groups_are_refused():
    with pytest.raises(ValueError, match="needs a group"):
        UpperConfidenceBound(0)


# ---- which tasks ----------------------------------------------------------------------------------------------------


def test_the_same_seed_chooses_the_same_tasks():
    one, other = (Chooser(config(), ARMS) for _ in range(2))
    assert one.choose(6) == other.choose(6)


def test_the_seed_changes_which_tasks_come():
    seeds = [Chooser(dataclasses.replace(config(), seed=seed), ARMS) for seed in range(4)]
    assert len({tuple(map(tuple, chooser.choose(6))) for chooser in seeds}) > 1


def test_a_task_that_comes_again_is_tried_again():
    chooser = Chooser(config(strategy="uniform"), {"hard": [("g", 5)]})
    first, second = chooser.choose(2)
    assert [attempt.sample for attempt in first] == [0, 1, 2, 3]
    assert [attempt.sample for attempt in second] == [4, 5, 6, 7]
    assert {attempt.task for attempt in first + second} == {5}


def test_uniform_takes_groups_by_their_size():
    chooser = Chooser(config(strategy="uniform"), ARMS)
    chooser.choose(6000)
    shares = [chooser.chosen[name] / 6000 for name in ARMS]
    np.testing.assert_allclose(shares, [2 / 6, 3 / 6, 1 / 6], atol=0.03)


def test_the_score_is_the_spread_of_turns_with_failures_at_the_limit():
    chooser = Chooser(config(), {"hard": [("g", 5)]})
    (attempts,) = chooser.choose(1)
    chooser.observe(
        [
            summary(attempts[0], 4),
            summary(attempts[1], 7, success=False),  # broke off early: counts 20
            summary(attempts[2], 10),
            summary(attempts[3], 2, success=False, failure="failed"),  # says nothing
        ]
    )
    turns = np.asarray([4, 20, 10])
    expected = (1 + 1 / 12) * turns.std(ddof=1) / turns.mean()
    assert chooser.means == {"hard": pytest.approx(expected)}


def test_a_task_about_which_nothing_is_known_scores_nothing():
    chooser = Chooser(config(), {"hard": [("g", 5)]})
    (attempts,) = chooser.choose(1)
    chooser.observe([summary(attempt, 3, success=False, failure="discarded") for attempt in attempts])
    assert chooser.means == {"hard": 0.0}
    assert chooser.choose(1)  # and the next choice is possible


def test_the_group_with_more_spread_is_chosen_more_often():
    chooser = Chooser(config(c=0.3), ARMS)
    for _ in range(120):
        (attempts,) = chooser.choose(1)
        spread = 8 if attempts[0].task == 5 else 1  # tasks of the hard group differ
        chooser.observe([summary(attempt, 10 + spread * (n % 2)) for n, attempt in enumerate(attempts)])
    assert chooser.chosen["hard"] > 80
    assert min(chooser.chosen[name] for name in ARMS) >= 1


def test_the_arms_of_twenty_questions_are_its_difficulties():
    arms = task_arms(config())
    assert list(arms) == [f"twenty_questions {label}" for label in ("easy", "medium", "hard")]
    tasks = [task for members in arms.values() for task in members]
    assert len(tasks) == len(set(tasks)) == 1055


# ---- rounds ---------------------------------------------------------------------------------------------------------


def test_each_round_starts_from_the_last_one_and_is_its_own_reference():
    run = dataclasses.replace(config(rounds=2), model=ModelConfig(path="start"), seed=7)
    stages = {stage.name: stage.config for stage in task_curriculum.stages(run, Path("runs/x"))}
    assert list(stages) == [
        *(f"round_{n}/{name}" for n in (1, 2) for name in ("collect", "build_data", "sft", "rpo")),
        "evaluate_tasks",
    ]
    assert stages["round_1/collect"].model.path == "start"
    assert stages["round_1/sft"].model.path == "start"
    assert stages["round_1/rpo"].model.path == "runs/x/round_1/sft/policy"
    assert stages["round_2/collect"].model.path == "runs/x/round_1/rpo/policy"
    assert stages["round_2/sft"].model.path == "runs/x/round_1/rpo/policy"
    assert stages["round_2/rpo"].offline.data == "runs/x/round_2/build_data"
    assert stages["round_2/build_data"].build_data.trajectories == "runs/x/round_2/collect"
    assert stages["evaluate_tasks"].policies == (
        "base=start",
        "round_1=runs/x/round_1/rpo",
        "round_2=runs/x/round_2/rpo",
    )
    assert stages["round_1/collect"].seed != stages["round_2/collect"].seed
    assert stages["evaluate_tasks"].seed == 7


def test_pairs_alone_leave_supervised_training_out():
    run = config(rounds=1, objective="rpo")
    names = [stage.name for stage in task_curriculum.stages(run, Path("x"))]
    assert names == ["round_1/collect", "round_1/build_data", "round_1/rpo", "evaluate_tasks"]


def test_one_trajectory_of_a_task_is_refused():
    assert any("task_curriculum.samples=1" in problem for problem in validation.problems(config(samples=1)))


def test_attempts_name_the_game_and_task():
    (attempts,) = Chooser(config(), {"hard": [("g", 5)]}).choose(1)
    assert attempts[0] == Attempt("g", 5, 0)
    assert curriculum.coefficient_of_variation([3, 3]) == 0.0
