"""Which tasks a curriculum chooses: upper confidence bounds over groups, their scores, the same choice from a seed."""

import math

import numpy as np
import pytest

from dfc import curriculum
from dfc.config import CollectRound
from dfc.curriculum import UpperConfidenceBound
from dfc.records.attempts import TaskSample, TrajectorySummary
from dfc.stages.collect_round import Chooser

ARMS = {"easy": [("g", 0), ("g", 1)], "medium": [("g", 2), ("g", 3), ("g", 4)], "hard": [("g", 5)]}


def choosing(seed=0, **settings):
    return CollectRound(games={"twenty_questions": {}}, seed=seed, **{"samples": 4, **settings})


def summary(task_sample, turns, *, success=True, failure=None):
    return TrajectorySummary(task_sample, turns, 20, success, failure, 5)


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
    one, other = (Chooser(choosing(), ARMS) for _ in range(2))
    assert one.choose(6) == other.choose(6)


def test_the_seed_changes_which_tasks_come():
    seeds = [Chooser(choosing(seed), ARMS) for seed in range(4)]
    assert len({tuple(map(tuple, chooser.choose(6))) for chooser in seeds}) > 1


def test_a_task_that_comes_again_is_tried_again():
    chooser = Chooser(choosing(strategy="uniform"), {"hard": [("g", 5)]})
    first, second = chooser.choose(2)
    assert [task_sample.sample for task_sample in first] == [0, 1, 2, 3]
    assert [task_sample.sample for task_sample in second] == [4, 5, 6, 7]
    assert {task_sample.task for task_sample in first + second} == {5}


def test_uniform_takes_groups_by_their_size():
    chooser = Chooser(choosing(strategy="uniform"), ARMS)
    chooser.choose(6000)
    shares = [chooser.chosen[name] / 6000 for name in ARMS]
    np.testing.assert_allclose(shares, [2 / 6, 3 / 6, 1 / 6], atol=0.03)


def test_the_score_is_the_spread_of_turns_with_failures_at_the_limit():
    chooser = Chooser(choosing(), {"hard": [("g", 5)]})
    (task_samples,) = chooser.choose(1)
    chooser.observe(
        [
            summary(task_samples[0], 4),
            summary(task_samples[1], 7, success=False),  # broke off early: counts 20
            summary(task_samples[2], 10),
            summary(task_samples[3], 2, success=False, failure="failed"),  # says nothing
        ]
    )
    turns = np.asarray([4, 20, 10])
    expected = (1 + 1 / 12) * turns.std(ddof=1) / turns.mean()
    assert chooser.means == {"hard": pytest.approx(expected)}


def test_a_task_about_which_nothing_is_known_scores_nothing():
    chooser = Chooser(choosing(), {"hard": [("g", 5)]})
    (task_samples,) = chooser.choose(1)
    chooser.observe([summary(task_sample, 3, success=False, failure="discarded") for task_sample in task_samples])
    assert chooser.means == {"hard": 0.0}
    assert chooser.choose(1)  # and the next choice is possible


def test_a_group_whose_simulators_break_down_does_not_take_the_whole_budget():
    chooser = Chooser(choosing(), {"broken": [("g", 0)], "sound": [("g", 5)]})
    for _ in range(60):
        (task_samples,) = chooser.choose(1)
        if task_samples[0].task == 0:
            chooser.observe(
                [summary(task_sample, 3, success=False, failure="discarded") for task_sample in task_samples]
            )
        else:
            chooser.observe([summary(task_sample, 4 + 12 * (n % 2)) for n, task_sample in enumerate(task_samples)])
    assert chooser.chosen["broken"] + chooser.chosen["sound"] == 60
    assert 1 <= chooser.chosen["broken"] < 30
    assert chooser.means["broken"] == 0.0


def test_the_group_with_more_spread_is_chosen_more_often():
    chooser = Chooser(choosing(c=0.3), ARMS)
    for _ in range(120):
        (task_samples,) = chooser.choose(1)
        spread = 8 if task_samples[0].task == 5 else 1  # tasks of the hard group differ
        chooser.observe([summary(task_sample, 10 + spread * (n % 2)) for n, task_sample in enumerate(task_samples)])
    assert chooser.chosen["hard"] > 80
    assert min(chooser.chosen[name] for name in ARMS) >= 1


def test_attempts_name_the_game_and_task():
    (task_samples,) = Chooser(choosing(), {"hard": [("g", 5)]}).choose(1)
    assert task_samples[0] == TaskSample("g", 5, 0)
    assert curriculum.coefficient_of_variation([3, 3]) == 0.0
