"""What the two roles earn, by loops over queries and answers written anew."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given as every
from hypothesis import settings
from hypothesis import strategies as st

from dfc.methods.language_self_play.roles import role_advantages

MARGIN = 0.25


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
    usable = [r for i, r in own.items() if i not in punished]
    if usable:
        penalised = min(usable) - max(max(usable) - min(usable), MARGIN)
        own |= {i: min(penalised, own.get(i, penalised)) for i in punished}
    else:
        own = dict.fromkeys({*own, *punished}, 0.0)
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
        rules = {"bad_queries": bad_queries, "unsolved_queries": unsolved_queries}
        found = role_advantages(*given, weight=weight, **rules, margin=MARGIN)
        solver, challenger, queries, answers = oracle(*given, weight, bad_queries, unsolved_queries)
        np.testing.assert_allclose(found.solver, solver, atol=1e-12)
        np.testing.assert_allclose(found.challenger, challenger, atol=1e-12)
        assert np.flatnonzero(found.trained_queries).tolist() == queries
        assert {i: np.flatnonzero(row).tolist() for i, row in enumerate(found.trained_answers) if row.any()} == answers
        assert abs(found.challenger.sum()) < 1e-12


def test_the_value_is_of_the_reward_alone():
    rewards, marks, mask, bad = played(0)
    values = [role_advantages(rewards, marks, mask, bad, weight=weight).values for weight in (0.0, 1.0)]
    np.testing.assert_array_equal(*values)
    np.testing.assert_allclose(values[0][2], rewards[2][mask[2]].mean())


def test_a_bad_query_is_not_worth_writing_and_teaches_the_solver_nothing():
    rewards, marks, mask, bad = played(1)
    found = role_advantages(rewards, marks, mask, bad, weight=0.5, bad_queries="worst", margin=MARGIN)
    assert not found.trained_answers[bad].any()
    assert not found.solver[bad].any()
    # It need not be answered: what stands in place of its answers does not matter.
    unanswered = mask & ~bad[:, None]
    other = role_advantages(rewards, marks, unanswered, bad, weight=0.5, bad_queries="worst", margin=MARGIN)
    np.testing.assert_array_equal(found.challenger, other.challenger)
    assert (found.challenger[bad] == found.challenger[found.trained_queries].min()).all()
    # As in the paper the most unsolvable one pays most.
    as_is = role_advantages(rewards, marks, mask, bad, weight=0.0)
    assert as_is.challenger[1] == as_is.challenger.max()


def test_what_was_not_scored_may_hold_anything():
    rewards, marks, mask, bad = played(3)
    for weight in (0.0, 0.5):
        plain = role_advantages(rewards, marks, mask, bad, weight=weight)
        for odd in (np.nan, np.inf, -np.inf):
            found = role_advantages(np.where(mask, rewards, odd), np.where(mask, marks, odd), mask, bad, weight=weight)
            for name, value in vars(plain).items():
                np.testing.assert_array_equal(getattr(found, name), value)


@pytest.mark.parametrize("unsolved_queries", ["as_is", "worst"])
def test_when_no_query_is_usable_nobody_earns_anything(unsolved_queries):
    rewards, marks, mask, bad = played(2)
    nothing, every_one = np.zeros_like(mask), np.ones_like(bad)
    rules = {"bad_queries": "worst", "unsolved_queries": unsolved_queries, "margin": MARGIN}
    found = role_advantages(rewards, marks, nothing, every_one, weight=1.0, **rules)
    assert not found.challenger.any()
    assert not found.usable.any()
    assert found.trained_queries.all()  # the term of the reference counts
    found = role_advantages(rewards, marks, nothing, np.zeros_like(bad), weight=1.0)
    assert not found.trained_queries.any()
    assert not found.usable.any()


def test_unsolved_queries_alone_teach_nothing_whatever_their_marks():
    marks = np.array([[7.0], [1.0], [0.0]])
    solved_none = (np.zeros((3, 1)), marks, np.ones((3, 1), bool), np.zeros(3, bool))
    found = role_advantages(*solved_none, weight=1.0, unsolved_queries="worst", margin=MARGIN)
    assert found.challenger.tolist() == [0, 0, 0]
    assert found.unsolved.all()
    assert not found.usable.any()


NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0]), st.integers(-8, 8).map(float), st.floats(-1e6, 1e6, allow_nan=False, width=32)
)


@every(
    st.lists(NUMBERS, min_size=8, max_size=8),
    st.integers(1, 7),
    st.permutations(range(8)),
    st.floats(1e-3, 1e3),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_a_bad_query_lies_below_every_usable_one_by_spread_and_margin(numbers, usable, order, margin, equal):
    """For 1 to 7 usable ones of the paper's eight, in any place, with ties; the oracle compares all pairs."""
    good, bad = sorted(order[:usable]), sorted(order[usable:])
    rewards = np.array([[numbers[0] if equal else number] for number in numbers])
    flags = np.isin(np.arange(8), bad)
    given = (rewards, np.zeros((8, 1)), ~flags[:, None], flags)
    found = role_advantages(*given, weight=0.0, bad_queries="worst", margin=margin).challenger
    wanted = max(margin, *(abs(rewards[i, 0] - rewards[j, 0]) for i in good for j in good))
    size = max(1.0, float(np.abs(rewards).max()), margin)
    for i, j in itertools.product(good, bad):
        assert found[i] - found[j] >= wanted - 1e-12 * size
    # Usable ones keep the differences that they have in the paper, and the baseline stays the mean of all.
    for i, j in itertools.combinations(good, 2):
        assert found[i] - found[j] == pytest.approx(rewards[j, 0] - rewards[i, 0], abs=1e-9 * size)
    assert math.fsum(found) == pytest.approx(0, abs=1e-9 * size)


@pytest.mark.parametrize("usable", range(1, 8))
@pytest.mark.parametrize("rewards", [(1.0, 1.0), (0.0, 0.0), (0.0, 1.0), (0.5, 1.0), (0.5, 0.25)], ids=str)
def test_the_penalty_is_exact_in_numbers_that_are(usable, rewards):
    """Eighths and quarters have no rounding: the first usable queries take turns in two values."""
    values = np.array([[rewards[i % 2]] for i in range(8)])
    flags = np.arange(8) >= usable
    found = role_advantages(
        values, np.zeros((8, 1)), ~flags[:, None], flags, weight=0.0, bad_queries="worst", margin=MARGIN
    )
    spread = np.ptp(values[:usable])
    assert found.challenger[:usable].min() - found.challenger[usable:].max() == max(spread, MARGIN)


def test_an_unsolved_query_whose_marks_earn_less_keeps_what_they_earn():
    """Usable: r = 6 and 7. Penalised: 6 - 1 = 5; the unsolved ones would earn 2 and 7 by their marks alone."""
    rewards, marks = np.array([[1.0], [0.0], [0.0], [1.0]]), np.array([[7.0], [2.0], [7.0], [8.0]])
    given = (rewards, marks, np.ones((4, 1), bool), np.zeros(4, bool))
    found = role_advantages(*given, weight=1.0, unsolved_queries="worst", margin=MARGIN)
    np.testing.assert_allclose(found.challenger, np.array([6, 2, 5, 7]) - 5.0)
    assert found.unsolved.tolist() == [False, True, True, False]


@pytest.mark.parametrize("margin", [0.0, -1.0, np.nan, np.inf])
def test_a_penalty_without_a_margin_is_refused(margin):
    for rule in ("bad_queries", "unsolved_queries"):
        with pytest.raises(ValueError, match="margin must be finite, and above 0 with a rule 'worst'"):
            role_advantages(*played(0), weight=0.0, **{rule: "worst"}, margin=margin)


# ---- a policy that wants the reward without the skill ----------------------------------------------------------------


def expected_change(p, rewards_of_usable, n=8):
    """Expected policy gradient of log-odds of writing a bad query, for a policy that does so with probability p.

    By enumeration of which of n queries are bad: the score of a query is (1 if it is bad) - p. Usable ones take turns
    in the given rewards R of their one answer.
    """
    total = 0.0
    for flags in itertools.product((False, True), repeat=n):
        bad = np.array(flags)
        rewards = np.array([[rewards_of_usable[i % len(rewards_of_usable)]] for i in range(n)])
        found = role_advantages(
            rewards, np.zeros((n, 1)), ~bad[:, None], bad, weight=0.0, bad_queries="worst", margin=MARGIN
        )
        chance = p ** bad.sum() * (1 - p) ** (n - bad.sum())
        total += chance * float((found.challenger * (bad - p)).sum())
    return total


@pytest.mark.parametrize("rewards", [(1.0,), (0.0,), (0.0, 1.0), (1.0, 1.0, 0.5)], ids=str)
@pytest.mark.parametrize("p", [0.02, 0.5, 7 / 8, 0.99])
def test_writing_bad_queries_does_not_pay_however_many_are_bad(p, rewards):
    """Seven bad and one good: the way out of a penalty that is the worst of the others; and even if all are solved."""
    assert expected_change(p, rewards) < -1e-3 * MARGIN * p * (1 - p)


def test_seven_bad_queries_around_a_good_one_cost_more_than_they_bring():
    """The good one's advantage grows with their number, and theirs together falls by as much: nothing is gained."""
    rewards = np.ones((8, 1))
    for usable in range(1, 8):
        bad = np.arange(8) >= usable
        found = role_advantages(
            rewards, rewards, ~bad[:, None], bad, weight=0.0, bad_queries="worst", margin=MARGIN
        ).challenger
        assert found[bad].sum() == pytest.approx(-MARGIN * usable * (8 - usable) / 8)
        assert (found[bad] < 0).all()
        assert (found[~bad] > 0).all()
