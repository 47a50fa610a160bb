"""Leave-one-out and per-role baselines against loops and closed forms, and the identities between the estimators."""

import statistics

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc import advantages

KINDS = pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
GARBAGE = (np.nan, np.inf, -np.inf, 1e30)
REWARDS = np.asarray([[1.0, 0.0, -1.0, 1.0], [0.3, 0.3, 0.3, 0.3], [-2.0, 0.25, 0.25, 0.25]], np.float32)
MASK = np.asarray([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 1]])
small_integers = st.lists(st.integers(-8, 8), min_size=12, max_size=12)


def same_kind(result, like):
    return isinstance(result, jax.Array if isinstance(like, jax.Array) else np.ndarray) and result.dtype == like.dtype


# ---- the standard deviation ----------------------------------------------------------------------------------------


def test_with_and_without_the_standard_deviation_differ_by_it():
    scaled = advantages.group_relative(REWARDS, epsilon=0.0)
    plain = advantages.group_relative(REWARDS, normalize_std=False)
    np.testing.assert_allclose(scaled * REWARDS.std(axis=1, ddof=1, keepdims=True), plain, rtol=1e-5, atol=1e-6)
    assert np.abs(scaled - plain).max() > 0.1


@KINDS
@pytest.mark.parametrize("function", [advantages.group_relative, advantages.leave_one_out])
def test_a_reward_that_is_nan_shows_in_its_group_only(kind, function):
    result = np.asarray(function(kind(np.asarray([[1.0, np.nan, 0.0], [1.0, 0.0, 2.0]]))))
    assert np.isnan(result).all(axis=1).tolist() == [True, False]
    assert np.isfinite(result[1]).all()


# ---- leave one out -------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("masked", [False, True])
def test_leave_one_out_is_the_difference_to_the_mean_of_the_others(kind, masked):
    counted = MASK if masked else np.ones_like(MASK)
    ours = advantages.leave_one_out(kind(REWARDS), mask=kind(MASK) if masked else None)
    assert same_kind(ours, kind(REWARDS))
    expected = np.zeros(REWARDS.shape)
    for g, row in enumerate(REWARDS.tolist()):
        members = [i for i in range(len(row)) if counted[g, i]]
        for i in members:
            expected[g, i] = row[i] - statistics.fmean(row[j] for j in members if j != i)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


@KINDS
def test_leave_one_out_is_the_group_relative_advantage_times_n_over_n_minus_one(kind):
    count = MASK.sum(axis=1, keepdims=True)
    relative = advantages.group_relative(kind(REWARDS), normalize_std=False, mask=kind(MASK))
    ours = advantages.leave_one_out(kind(REWARDS), mask=kind(MASK))
    np.testing.assert_allclose(ours, np.asarray(relative) * count / (count - 1), rtol=1e-6)


def test_the_baseline_left_out_does_not_see_the_own_reward():
    higher = REWARDS.astype(np.float64)
    higher[0, 1] += 7.0
    before, after = advantages.leave_one_out(REWARDS.astype(np.float64)), advantages.leave_one_out(higher)
    np.testing.assert_allclose(after[0, 1] - before[0, 1], 7.0)
    np.testing.assert_allclose(after[0, 0] - before[0, 0], -7.0 / 3)


@KINDS
def test_leave_one_out_gives_zero_where_there_are_no_others_or_no_spread(kind):
    assert (np.asarray(advantages.leave_one_out(kind(np.full((1, 3), 0.1)))) == 0).all()
    assert advantages.leave_one_out(kind(np.asarray([[3.0]]))).tolist() == [[0.0]]
    rewards, mask = kind(np.asarray([[1.0, 5.0], [1.0, 2.0]])), kind(np.asarray([[0, 1], [0, 0]]))
    assert (np.asarray(advantages.leave_one_out(rewards, mask=mask)) == 0).all()


@KINDS
@pytest.mark.parametrize("garbage", GARBAGE)
def test_leave_one_out_ignores_what_the_mask_leaves_out(kind, garbage):
    rewards = np.where(MASK, REWARDS, garbage).astype(np.float32)
    np.testing.assert_array_equal(
        advantages.leave_one_out(kind(rewards), mask=kind(MASK)),
        advantages.leave_one_out(kind(REWARDS), mask=kind(MASK)),
    )


# ---- roles within a batch --------------------------------------------------------------------------------------------

SCORES = np.asarray([1.0, -1.0, 0.5, -0.5, 1.0, 0.0, 0.25], np.float32)
ROLES = np.asarray([0, 1, 0, 1, 3, 0, 1])
KEPT = np.asarray([1, 1, 0, 1, 1, 1, 0])


@KINDS
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_role_relative_agrees_with_a_loop(kind, normalize, masked):
    mask = KEPT if masked else np.ones_like(KEPT)
    ours = advantages.role_relative(
        kind(SCORES), kind(ROLES), num_roles=4, normalize_std=normalize, mask=kind(KEPT) if masked else None
    )
    assert same_kind(ours, kind(SCORES))
    expected = np.zeros(SCORES.shape)
    for i in np.flatnonzero(mask):
        peers = [float(SCORES[j]) for j in np.flatnonzero(mask) if ROLES[j] == ROLES[i]]
        if len(set(peers)) > 1:
            scale = statistics.stdev(peers) + 1e-4 if normalize else 1.0
            expected[i] = (float(SCORES[i]) - statistics.fmean(peers)) / scale
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("normalize", [False, True])
def test_one_role_is_one_group(normalize):
    alone = advantages.role_relative(SCORES, np.zeros_like(ROLES), num_roles=1, normalize_std=normalize)
    group = advantages.group_relative(SCORES[None], normalize_std=normalize)
    np.testing.assert_array_equal(alone, group[0])


@pytest.mark.parametrize("normalize", [False, True])
def test_a_role_per_group_is_group_relative(normalize):
    roles = np.repeat(np.arange(len(REWARDS)), REWARDS.shape[1])
    ours = advantages.role_relative(REWARDS.ravel(), roles, num_roles=len(REWARDS), normalize_std=normalize)
    group = advantages.group_relative(REWARDS, normalize_std=normalize)
    np.testing.assert_allclose(ours.reshape(REWARDS.shape), group, rtol=1e-5, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(small_integers, st.lists(st.integers(0, 2), min_size=12, max_size=12), st.permutations(range(12)))
def test_a_favoured_seat_gains_nothing_and_order_does_not_matter(rewards, roles, order):
    rewards, roles, order = np.asarray(rewards, np.float64), np.asarray(roles), np.asarray(order)
    result = advantages.role_relative(rewards, roles, num_roles=3)
    np.testing.assert_allclose(advantages.role_relative(rewards + 5.0 * roles, roles, num_roles=3), result, atol=1e-9)
    np.testing.assert_allclose(
        advantages.role_relative(rewards[order], roles[order], num_roles=3), result[order], atol=1e-9
    )
    np.testing.assert_allclose([result[roles == k].sum() for k in range(3)], 0, atol=1e-9)


@KINDS
@pytest.mark.parametrize("garbage", GARBAGE)
def test_role_relative_ignores_what_the_mask_leaves_out(kind, garbage):
    scores, roles = np.where(KEPT, SCORES, garbage).astype(np.float32), np.where(KEPT, ROLES, -9)
    np.testing.assert_array_equal(
        advantages.role_relative(kind(scores), kind(roles), num_roles=4, mask=kind(KEPT)),
        advantages.role_relative(kind(SCORES), kind(ROLES), num_roles=4, mask=kind(KEPT)),
    )


# ---- roles over time -------------------------------------------------------------------------------------------------

BASELINE = np.asarray([0.2, -0.4, 9.0, 0.0], np.float32)


def closed_form(baseline, rewards, roles, decay):
    """The average as a weighted sum of all earlier rewards of the role."""
    gains, seen = [], {k: [] for k in range(len(baseline))}

    def average(k):
        past = seen[k]
        powers = [(1 - decay) * decay ** (len(past) - 1 - j) for j in range(len(past))]
        return float(decay ** len(past) * baseline[k] + np.dot(powers, past))

    for reward, k in zip(rewards.tolist(), roles.tolist(), strict=True):
        gains.append(reward - average(k))
        seen[k].append(reward)
    return [average(k) for k in seen], gains


@KINDS
@pytest.mark.parametrize("decay", [0.0, 0.3, 0.95, 1.0])
def test_the_role_baseline_agrees_with_its_closed_form(kind, decay):
    after, gains = advantages.update_role_baseline(kind(BASELINE), kind(SCORES), kind(ROLES), decay=decay)
    assert same_kind(after, kind(BASELINE))
    assert same_kind(gains, kind(SCORES))
    expected = closed_form(BASELINE, SCORES, ROLES, decay)
    np.testing.assert_allclose(after, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gains, expected[1], rtol=1e-5, atol=1e-6)


def test_at_decay_zero_the_baseline_is_the_roles_last_reward():
    after, gains = advantages.update_role_baseline(SCORES[:1], SCORES[1:], np.zeros(6, int), decay=0.0)
    assert after.tolist() == SCORES[-1:].tolist()
    np.testing.assert_array_equal(gains, np.diff(SCORES))


def test_at_decay_one_the_baseline_stays():
    after, gains = advantages.update_role_baseline(BASELINE, SCORES, ROLES, decay=1.0)
    np.testing.assert_array_equal(after, BASELINE)
    np.testing.assert_array_equal(gains, SCORES - BASELINE[ROLES])


@KINDS
@pytest.mark.parametrize("cut", [0, 3, 7])
def test_two_batches_are_one_and_the_old_state_is_left_alone(kind, cut):
    state, roles, parts = kind(BASELINE), kind(ROLES), []
    for piece in (slice(0, cut), slice(cut, None)):
        state, gains = advantages.update_role_baseline(state, kind(SCORES)[piece], roles[piece])
        parts.append(np.asarray(gains))
    start = kind(BASELINE.copy())
    after, gains = advantages.update_role_baseline(start, kind(SCORES), roles)
    np.testing.assert_allclose(state, after, rtol=1e-6)
    np.testing.assert_allclose(np.concatenate(parts), gains, rtol=1e-6)
    np.testing.assert_array_equal(start, BASELINE)
    assert after[2] == 9.0  # nobody played it


def test_roles_do_not_see_each_other():
    after, gains = advantages.update_role_baseline(BASELINE, SCORES, ROLES)
    for k in (0, 1, 3):
        alone = advantages.update_role_baseline(BASELINE, SCORES[k == ROLES], ROLES[k == ROLES])
        assert alone[0][k] == after[k]
        np.testing.assert_array_equal(alone[1], gains[k == ROLES])


@KINDS
@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_masked_trajectory_moves_no_baseline(kind, garbage):
    scores, roles = np.where(KEPT, SCORES, garbage).astype(np.float32), np.where(KEPT, ROLES, 99)
    after, gains = advantages.update_role_baseline(kind(BASELINE), kind(scores), kind(roles), mask=kind(KEPT))
    on = KEPT.astype(bool)
    clean = advantages.update_role_baseline(kind(BASELINE), kind(SCORES[on]), kind(ROLES[on]))
    np.testing.assert_array_equal(after, clean[0])
    np.testing.assert_array_equal(np.asarray(gains)[on], clean[1])
    assert (np.asarray(gains)[~on] == 0).all()


@pytest.mark.parametrize("decay", [0.0, 0.95])
def test_numpy_and_jit_agree(decay):
    update = jax.jit(advantages.update_role_baseline, static_argnames="decay")
    for one, other in zip(
        update(BASELINE, SCORES, ROLES, decay=decay, mask=KEPT),
        advantages.update_role_baseline(BASELINE, SCORES, ROLES, decay=decay, mask=KEPT),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    relative = jax.jit(advantages.role_relative, static_argnames="num_roles")
    np.testing.assert_allclose(
        relative(SCORES, ROLES, num_roles=4), advantages.role_relative(SCORES, ROLES, num_roles=4), rtol=1e-6
    )
    np.testing.assert_allclose(
        jax.jit(advantages.leave_one_out)(REWARDS), advantages.leave_one_out(REWARDS), rtol=1e-5, atol=1e-6
    )


# ---- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1, 4])
def test_a_role_out_of_range_is_refused_or_shows_as_nan(bad):
    roles = np.where(np.arange(7) == 5, bad, ROLES)
    message = rf"roles must be in 0\.\.3, but roles\[5\] is {bad}"
    with pytest.raises(ValueError, match=f"role_relative: {message}"):
        advantages.role_relative(SCORES, roles, num_roles=4)
    with pytest.raises(ValueError, match=f"update_role_baseline: {message}"):
        advantages.update_role_baseline(BASELINE, SCORES, roles)
    others = np.arange(7) != 5
    relative = np.asarray(advantages.role_relative(jnp.asarray(SCORES), jnp.asarray(roles), num_roles=4))
    after, gains = advantages.update_role_baseline(jnp.asarray(BASELINE), jnp.asarray(SCORES), jnp.asarray(roles))
    clean, clean_gains = advantages.update_role_baseline(BASELINE, SCORES[others], ROLES[others])
    np.testing.assert_allclose(relative[others], advantages.role_relative(SCORES[others], ROLES[others], num_roles=4))
    np.testing.assert_allclose(np.asarray(gains)[others], clean_gains, rtol=1e-6)
    np.testing.assert_allclose(after, clean, rtol=1e-6)
    assert np.isnan(relative[5])
    assert np.isnan(gains[5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: advantages.leave_one_out(SCORES), "leave_one_out: rewards must be floating with two axes, got"),
        (lambda: advantages.leave_one_out(REWARDS, mask=KEPT), r"leave_one_out: mask must be .* \[3, 4\], got \[7\]"),
        (
            lambda: advantages.role_relative(REWARDS, ROLES, num_roles=4),
            r"role_relative: rewards must be floating \[trajectories\], got float32 \[3, 4\]",
        ),
        (
            lambda: advantages.role_relative(SCORES, ROLES[:6], num_roles=4),
            r"role_relative: roles must be \[trajectories\] = \[7\], got \[6\]",
        ),
        (
            lambda: advantages.role_relative(SCORES, SCORES, num_roles=4),
            "roles must have an integer dtype, got float32",
        ),
        (lambda: advantages.role_relative(SCORES, ROLES, num_roles=0), "num_roles must be 1 or more, got 0"),
        (lambda: advantages.role_relative(SCORES, ROLES, num_roles=4, mask=KEPT[:2]), r"mask must be .* got \[2\]"),
        (lambda: advantages.role_relative(SCORES, ROLES, num_roles=4, epsilon=-1.0), "epsilon must be 0 or more"),
        (
            lambda: advantages.update_role_baseline(BASELINE[None], SCORES, ROLES),
            r"update_role_baseline: baseline must be floating \[roles\], one or more, got float32 \[1, 4\]",
        ),
        (lambda: advantages.update_role_baseline(ROLES, SCORES, ROLES), r"baseline must be .*, got int64 \[7\]"),
        (lambda: advantages.update_role_baseline(BASELINE[:0], SCORES, ROLES), r"baseline must be .*\[0\]"),
        (lambda: advantages.update_role_baseline(BASELINE, SCORES, ROLES, decay=1.5), r"decay must be in \[0, 1\]"),
        (lambda: advantages.update_role_baseline(BASELINE, ROLES, ROLES), "rewards must be floating"),
    ],
)
def test_bad_input_is_refused_with_its_name_and_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()
