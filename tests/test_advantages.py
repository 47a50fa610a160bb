"""Advantages against loops with Python's statistics module, and the properties a baseline must have."""

import statistics

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc import advantages

KINDS = pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
REWARDS = np.asarray([[1.0, 0.0, -1.0, 1.0], [0.3, 0.3, 0.3, 0.3], [-2.0, 0.25, 0.25, 0.25]], np.float32)


def loop_group_relative(rewards, mask, epsilon, normalize):
    result = np.zeros(rewards.shape)
    for g, row in enumerate(rewards):
        members = [i for i in range(len(row)) if mask[g, i]]
        values = [float(row[i]) for i in members]
        if len(set(values)) < 2:
            continue
        scale = statistics.stdev(values) + epsilon if normalize else 1.0
        for i in members:
            result[g, i] = (float(row[i]) - statistics.fmean(values)) / scale
    return result


@KINDS
@pytest.mark.parametrize("normalize", [True, False])
def test_group_relative_agrees_with_a_loop(kind, normalize):
    mask = np.asarray([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 1]])
    for counted in (None, mask):
        ours = advantages.group_relative(
            kind(REWARDS), normalize_std=normalize, mask=None if counted is None else kind(counted)
        )
        assert type(ours) is type(kind(REWARDS))
        theirs = loop_group_relative(REWARDS, np.ones_like(mask) if counted is None else counted, 1e-4, normalize)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@KINDS
@pytest.mark.parametrize("normalize", [True, False])
def test_a_group_without_spread_gets_exactly_zero(kind, normalize):
    # The mean of three times 0.1 is not 0.1 in floating point.
    rewards = kind(np.full((1, 3), 0.1))
    assert (np.asarray(advantages.group_relative(rewards, normalize_std=normalize, epsilon=0.0)) == 0).all()


@KINDS
def test_a_group_of_one_or_none_gets_zero(kind):
    mask = kind(np.asarray([[0, 1, 0], [0, 0, 0]]))
    result = advantages.group_relative(kind(np.asarray([[1.0, 5.0, 2.0], [1.0, 2.0, 3.0]])), mask=mask)
    assert (np.asarray(result) == 0).all()
    assert advantages.group_relative(kind(np.asarray([[3.0]]))).tolist() == [[0.0]]


@KINDS
def test_rewards_outside_the_mask_are_ignored(kind):
    rewards, mask = REWARDS[:1].copy(), np.asarray([[1, 1, 1, 0]], bool)
    clean = np.asarray(advantages.group_relative(kind(rewards[:, :3])))
    for garbage in (np.nan, np.inf, -np.inf, 1e30):
        rewards[0, 3] = garbage
        result = np.asarray(advantages.group_relative(kind(rewards), mask=kind(mask)))
        np.testing.assert_array_equal(result, np.append(clean, [[0.0]], axis=1))


def test_numpy_and_jit_agree():
    ours = jax.jit(advantages.group_relative)(REWARDS)
    np.testing.assert_allclose(ours, advantages.group_relative(REWARDS), rtol=1e-5)
    for name in ("solver", "challenger"):
        function = getattr(advantages, name)
        np.testing.assert_allclose(jax.jit(function)(REWARDS), function(REWARDS), rtol=1e-5, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.integers(-8, 8), min_size=4, max_size=4), min_size=1, max_size=5),
    st.floats(0.5, 4.0),
    st.integers(-5, 5),
)
def test_normalised_advantages_are_centred_and_do_not_see_shift_or_scale(rewards, scale, shift):
    rewards = np.asarray(rewards, np.float64)
    result = advantages.group_relative(rewards, epsilon=0.0)
    np.testing.assert_allclose(result.sum(axis=1), 0, atol=1e-9)
    np.testing.assert_allclose(advantages.group_relative(rewards * scale + shift, epsilon=0.0), result, atol=1e-7)
    spread = result[rewards.max(axis=1) > rewards.min(axis=1)]
    np.testing.assert_allclose(spread.std(axis=1, ddof=1), 1, rtol=1e-9)


@KINDS
def test_solver_and_challenger_agree_with_loops(kind):
    values = [statistics.fmean(map(float, row)) for row in REWARDS]
    mean = statistics.fmean(values)
    np.testing.assert_allclose(
        advantages.solver(kind(REWARDS)),
        [[r - v for r in row] for row, v in zip(REWARDS, values, strict=True)],
        atol=1e-6,
    )
    np.testing.assert_allclose(advantages.challenger(kind(REWARDS)), [mean - v for v in values], atol=1e-6)


def test_the_query_answered_worst_is_the_challengers_best():
    assert int(np.argmax(advantages.challenger(REWARDS))) == int(np.argmin(REWARDS.mean(axis=1)))


@pytest.mark.parametrize("function", [advantages.group_relative, advantages.solver, advantages.challenger])
@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((2, 2), np.int64), jnp.zeros((1, 2, 3))])
def test_rewards_of_another_kind_are_refused(function, bad):
    with pytest.raises(ValueError, match=f"{function.__name__}: rewards must be floating with two axes, got"):
        function(bad)


def test_a_mask_or_epsilon_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"mask must be \[groups, size\] = \[3, 4\], got \[4\]"):
        advantages.group_relative(REWARDS, mask=np.ones(4))
    with pytest.raises(ValueError, match="epsilon must be 0 or more, got -1"):
        advantages.group_relative(REWARDS, epsilon=-1)
