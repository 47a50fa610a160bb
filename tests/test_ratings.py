"""Bradley-Terry ratings against closed forms and a brute-force search; the sign test against enumeration."""

import itertools
import math

import numpy as np
import pytest

from dfc.evaluation.ratings import ELO, PRIOR, bradley_terry
from dfc.evaluation.statistics import sign_test

THREE = {("a", "b"): 7.5, ("b", "a"): 2.5, ("a", "c"): 6, ("c", "a"): 6, ("b", "c"): 9, ("c", "b"): 1}


def log_likelihood(points, strength):
    return sum(count * -math.log1p(math.exp(strength[j] - strength[i])) for (i, j), count in points.items())


@pytest.mark.parametrize(
    ("won", "lost", "prior"), [(7, 3, 0.0), (12.5, 4.5, 0.0), (1, 1, 0.0), (9, 0, 0.5), (0, 4, 1.0)]
)
def test_two_players_have_the_closed_form(won, lost, prior):
    found = bradley_terry(["x", "y"], {("x", "y"): won, ("y", "x"): lost}, anchor="y", prior=prior)
    more, less = won + prior, lost + prior
    elo = found["x"].elo
    assert elo.estimate == pytest.approx(400 * math.log10(more / less), abs=1e-6)
    # The variance of a logit: 1 / (n p (1 - p)).
    half = 1.96 * 400 / math.log(10) * math.sqrt((more + less) / (more * less))
    assert (elo.low, elo.high) == pytest.approx((elo.estimate - half, elo.estimate + half))
    assert found["y"].elo == (0, 0, 0)
    assert (found["x"].games, found["x"].points) == (won + lost, won)


@pytest.mark.parametrize("prior", [0.0, PRIOR])
def test_the_maximum_is_that_of_a_search_over_a_grid(prior):
    found = bradley_terry("abc", THREE, anchor="c", prior=prior)
    points = {pair: count + prior for pair, count in THREE.items()}
    low, high, best = np.array([-4.0, -4.0]), np.array([4.0, 4.0]), None
    for _ in range(12):  # ever finer grids around the best point
        axes = [np.linspace(low[k], high[k], 21) for k in range(2)]
        best = max(itertools.product(*axes), key=lambda t: log_likelihood(points, {"a": t[0], "b": t[1], "c": 0.0}))
        width = (high - low) / 10
        low, high = np.array(best) - width, np.array(best) + width
    for player, strength in zip("ab", best, strict=True):
        assert found[player].elo.estimate == pytest.approx(ELO * strength, abs=1e-3)


def test_intervals_are_those_of_the_numerical_hessian():
    found = bradley_terry("abc", THREE, anchor="c", prior=0.0)
    at = np.array([found[player].elo.estimate / ELO for player in "ab"])

    def value(t):
        return log_likelihood(THREE, {"a": t[0], "b": t[1], "c": 0.0})

    step = 1e-4
    eye = np.eye(2) * step
    hessian = np.array(
        [
            [
                (value(at + u + v) - value(at + u - v) - value(at - u + v) + value(at - u - v)) / (4 * step**2)
                for v in eye
            ]
            for u in eye
        ]
    )
    spread = np.sqrt(np.diag(np.linalg.inv(-hessian)))
    for player, half in zip("ab", 1.96 * ELO * spread, strict=True):
        assert found[player].elo.high - found[player].elo.estimate == pytest.approx(half, rel=1e-4)


def test_the_anchor_moves_every_rating_by_the_same_and_the_mean_is_zero_without_one():
    free, anchored = bradley_terry("abc", THREE), bradley_terry("abc", THREE, anchor="b")
    assert sum(r.elo.estimate for r in free.values()) == pytest.approx(0, abs=1e-9)
    shifts = [free[p].elo.estimate - anchored[p].elo.estimate for p in "abc"]
    assert shifts == pytest.approx([shifts[0]] * 3)


def test_the_undefeated_are_finite_with_the_prior_and_refused_without():
    points = {("a", "b"): 40, ("b", "a"): 0, ("a", "c"): 40, ("c", "a"): 0, ("b", "c"): 0, ("c", "b"): 40}
    elo = [bradley_terry("abc", points)[p].elo.estimate for p in "abc"]
    assert elo[0] > elo[2] > elo[1]
    assert all(map(math.isfinite, elo))
    with pytest.raises(ValueError, match="no maximum"):
        bradley_terry("abc", points, prior=0.0)


def test_whom_no_chain_of_games_joins_has_no_rating():
    found = bradley_terry("abc", {("b", "c"): 3, ("c", "b"): 1})
    assert math.isnan(found["a"].elo.estimate)
    assert found["b"].elo.estimate == -found["c"].elo.estimate > 0
    assert math.isnan(bradley_terry("abc", {("b", "c"): 3, ("c", "b"): 1}, anchor="a")["b"].elo.estimate)
    assert math.isnan(bradley_terry("ab", {})["b"].elo.estimate)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="one of a, b, got 'z'"):
        bradley_terry("ab", {}, anchor="z")
    with pytest.raises(ValueError, match="got -1"):
        bradley_terry("ab", {("a", "b"): -1})
    with pytest.raises(ValueError, match="between two players"):
        bradley_terry("ab", {("a", "a"): 1})


@pytest.mark.parametrize(("better", "worse"), [(0, 0), (1, 0), (5, 1), (3, 3), (4, 3), (0, 6), (9, 4)])
def test_the_sign_test_is_the_share_of_equally_likely_signs_at_least_as_far_from_even(better, worse):
    signs = list(itertools.product((-1, 1), repeat=better + worse))
    far = sum(abs(sum(s)) >= abs(better - worse) for s in signs) / len(signs)
    assert sign_test(better, worse) == pytest.approx(far)
    assert sign_test(worse, better) == sign_test(better, worse)


def test_the_sign_test_does_not_overflow_and_refuses_negative_counts():
    assert 0 <= sign_test(3000, 1000) < 1e-200
    assert sign_test(5000, 5000) == 1
    with pytest.raises(ValueError, match="0 or more"):
        sign_test(-1, 2)
