"""What the two roles earn, by loops over queries and answers written anew."""

import itertools
import statistics

import numpy as np
import pytest

from dfc.self_play.roles import earned


def played(seed, queries=6, answers=4):
    rng = np.random.default_rng(seed)
    rewards = rng.integers(0, 2, (queries, answers)).astype(float)
    rewards[1] = 0  # unsolved
    marks = rng.integers(0, 8, (queries, answers)).astype(float)
    mask = rng.random((queries, answers)) < 0.8
    mask[4] = False  # no answer was scored
    bad = np.zeros(queries, bool)
    bad[[0, 4]] = True
    return rewards, marks, mask, bad


def oracle(rewards, marks, mask, bad, weight, bad_queries, unsolved_queries):
    """Rewards of every query and answer one by one, then differences to their means."""
    count, width = rewards.shape
    own, answers, punished = {}, {}, set()
    for i in range(count):
        if bad_queries == "worst" and bad[i]:
            punished.add(i)
            continue
        on = [j for j in range(width) if mask[i, j]]
        if not on:
            continue
        answers[i] = on
        own[i] = -statistics.fmean(rewards[i, on]) + weight * statistics.fmean(marks[i, on])
        if unsolved_queries == "worst" and max(rewards[i, on]) <= 0:
            punished.add(i)
    worst = min((r for i, r in own.items() if i not in punished), default=0.0)
    own |= {i: min(worst, own.get(i, worst)) for i in punished}
    mean = statistics.fmean(own.values()) if own else 0.0
    challenger = [own[i] - mean if i in own else 0.0 for i in range(count)]
    solver = np.zeros(rewards.shape)
    for i, on in answers.items():
        base = statistics.fmean(rewards[i, on] + weight * marks[i, on])
        solver[i, on] = rewards[i, on] + weight * marks[i, on] - base
    return solver, challenger, sorted(own), answers


RULES = list(itertools.product(("as_is", "worst"), repeat=2))


@pytest.mark.parametrize("weight", [0.0, 1 / 7, 1.0])
@pytest.mark.parametrize(("bad_queries", "unsolved_queries"), RULES)
def test_both_roles_earn_what_the_rules_say(weight, bad_queries, unsolved_queries):
    for seed in range(5):
        given = played(seed)
        found = earned(*given, weight=weight, bad_queries=bad_queries, unsolved_queries=unsolved_queries)
        solver, challenger, queries, answers = oracle(*given, weight, bad_queries, unsolved_queries)
        np.testing.assert_allclose(found.solver, solver, atol=1e-12)
        np.testing.assert_allclose(found.challenger, challenger, atol=1e-12)
        assert np.flatnonzero(found.trained_queries).tolist() == queries
        assert {i: np.flatnonzero(row).tolist() for i, row in enumerate(found.trained_answers) if row.any()} == answers
        assert abs(found.challenger.sum()) < 1e-12


def test_the_value_is_of_the_reward_alone():
    rewards, marks, mask, bad = played(0)
    values = [earned(rewards, marks, mask, bad, weight=weight).values for weight in (0.0, 1.0)]
    np.testing.assert_array_equal(*values)
    np.testing.assert_allclose(values[0][2], rewards[2][mask[2]].mean())


def test_a_bad_query_is_not_worth_writing_and_teaches_the_solver_nothing():
    rewards, marks, mask, bad = played(1)
    found = earned(rewards, marks, mask, bad, weight=0.5, bad_queries="worst")
    assert not found.trained_answers[bad].any()
    assert not found.solver[bad].any()
    # It need not be answered: what stands in place of its answers does not matter.
    unanswered = mask & ~bad[:, None]
    other = earned(rewards, marks, unanswered, bad, weight=0.5, bad_queries="worst")
    np.testing.assert_array_equal(found.challenger, other.challenger)
    assert (found.challenger[bad] == found.challenger[found.trained_queries].min()).all()
    # As in the paper the most unsolvable one pays most.
    as_is = earned(rewards, marks, mask, bad, weight=0.0)
    assert as_is.challenger[1] == as_is.challenger.max()


def test_what_was_not_scored_may_hold_anything():
    rewards, marks, mask, bad = played(3)
    for weight in (0.0, 0.5):
        plain = earned(rewards, marks, mask, bad, weight=weight)
        for odd in (np.nan, np.inf, -np.inf):
            found = earned(np.where(mask, rewards, odd), np.where(mask, marks, odd), mask, bad, weight=weight)
            for name, value in vars(plain).items():
                np.testing.assert_array_equal(getattr(found, name), value)


def test_when_nothing_is_left_nobody_earns_anything():
    rewards, marks, mask, bad = played(2)
    found = earned(rewards, marks, np.zeros_like(mask), np.ones_like(bad), weight=1.0, bad_queries="worst")
    assert not found.challenger.any()
    assert found.trained_queries.all()
    found = earned(rewards, marks, np.zeros_like(mask), np.zeros_like(bad), weight=1.0)
    assert not found.trained_queries.any()
