"""Language Self-Play's advantages with answers that could not be scored: loops in Python, and the identity of w."""

import math
import statistics

import jax.numpy as jnp
import numpy as np
import pytest

from dfc import advantages

KINDS = pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
SCORED = [[1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]


def played(seed=0, shape=(4, 4)):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape), rng.integers(0, 8, shape).astype(float)


def two_roles(rewards, quality, scored, weight):
    """Both advantages from the rewards of the two roles, each role's own; R alone is in V (the paper's section 3)."""
    solver, values = np.zeros(rewards.shape), {}
    for i, row in enumerate(scored):
        counted = [j for j, on in enumerate(row) if on]
        if not counted:
            continue
        worth = {j: rewards[i, j] + weight * quality[i, j] for j in counted}
        for j in counted:
            solver[i, j] = worth[j] - statistics.fmean(worth.values())
        v = statistics.fmean(rewards[i, j] for j in counted)
        v_q = statistics.fmean(quality[i, j] for j in counted)
        values[i] = -v + weight * v_q
    baseline = statistics.fmean(values.values())
    challenger = [values[i] - baseline if i in values else 0.0 for i in range(len(rewards))]
    return solver, np.asarray(challenger)


@KINDS
@pytest.mark.parametrize("weight", [0.0, 1 / 7, 1.0])
@pytest.mark.parametrize("scored", [SCORED, np.ones((4, 4), int)], ids=["some", "all"])
def test_both_advantages_are_those_of_the_two_roles_rewards(kind, weight, scored):
    rewards, quality = played()
    # What could not be scored may hold anything.
    rewards, quality = (np.where(scored, x, math.nan) for x in (rewards, quality))
    solver, challenger = two_roles(rewards, quality, scored, weight)
    mask = kind(np.asarray(scored))
    found = advantages.solver(kind(rewards + weight * quality), mask=mask)
    np.testing.assert_allclose(found, solver, atol=2e-6 if kind is jnp.asarray else 1e-12)
    found = advantages.challenger(kind(rewards - weight * quality), mask=mask)
    np.testing.assert_allclose(found, challenger, atol=2e-6 if kind is jnp.asarray else 1e-12)


def test_advantages_sum_to_zero_over_each_query_and_over_the_queries():
    rewards, quality = played(seed=1)
    solver = advantages.solver(rewards + quality, mask=np.asarray(SCORED))
    np.testing.assert_allclose(solver.sum(axis=1), 0, atol=1e-12)
    assert np.abs(solver).max() > 0.5
    challenger = advantages.challenger(rewards - quality, mask=np.asarray(SCORED))
    assert abs(challenger.sum()) < 1e-12
    assert np.abs(challenger).max() > 0.5


def test_an_answer_that_was_not_scored_counts_nowhere():
    rewards, _ = played(seed=2)
    mask = np.ones((4, 4), bool)
    mask[0, 1] = False
    changed = rewards.copy()
    changed[0, 1] = 1e6
    for function in (advantages.solver, advantages.challenger):
        np.testing.assert_array_equal(function(changed, mask=mask), function(rewards, mask=mask))
    # As if it had never been written.
    without = advantages.solver(np.delete(rewards[:1], 1, axis=1))
    np.testing.assert_allclose(np.delete(advantages.solver(rewards, mask=mask)[:1], 1, axis=1), without, atol=1e-12)
    assert advantages.solver(rewards, mask=mask)[0, 1] == 0


def test_a_query_without_a_scored_answer_is_in_no_baseline():
    rewards, _ = played(seed=3)
    mask = np.ones((4, 4), bool)
    mask[2] = False
    found = advantages.challenger(rewards, mask=mask)
    assert found[2] == 0
    np.testing.assert_allclose(np.delete(found, 2), advantages.challenger(np.delete(rewards, 2, axis=0)), atol=1e-12)
    assert (advantages.challenger(rewards, mask=np.zeros((4, 4))) == 0).all()


@pytest.mark.parametrize("function", [advantages.solver, advantages.challenger])
def test_a_mask_of_another_shape_is_refused(function):
    with pytest.raises(ValueError, match=r"mask must be .* = \[4, 4\], got \[4\]"):
        function(np.zeros((4, 4)), mask=np.ones(4))
