import dataclasses
import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from dfc.errors import RunFolderError
from dfc.evaluation.statistics import (
    Comparison,
    Record,
    difference_interval,
    interval_of_difference,
    pooled,
    pooled_score,
    score_interval,
    wilson_interval,
)


# Newcombe, Statistics in Medicine 17 (1998), 857-872, table I, method 3.
@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_gives_the_published_values(successes, trials, low, high):
    interval = wilson_interval(successes, trials)
    assert interval.estimate == successes / trials
    np.testing.assert_allclose(interval[1:], (low, high), atol=6e-5)


@pytest.mark.parametrize(("successes", "trials"), [(0, 7), (1, 7), (13, 40), (40, 40), (2.5, 10)])
def test_wilson_interval_holds_the_proportions_the_score_test_accepts(successes, trials):
    p = np.linspace(0, 1, 200_001)
    accepted = p[np.abs(successes / trials - p) <= 1.96 * np.sqrt(p * (1 - p) / trials) + 1e-12]
    np.testing.assert_allclose(wilson_interval(successes, trials)[1:], (accepted.min(), accepted.max()), atol=1e-5)


@pytest.mark.parametrize(("successes", "trials"), [(0, 7), (1, 7), (13, 40), (40, 40), (999, 1000)])
def test_wilson_interval_is_scipys(successes, trials):
    level = 2 * stats.norm.cdf(1.96) - 1
    theirs = stats.binomtest(successes, trials).proportion_ci(level, method="wilson")
    np.testing.assert_allclose(wilson_interval(successes, trials)[1:], theirs, rtol=1e-12)


# Newcombe, Statistics in Medicine 17 (1998), 873-890, table II, method 10.
@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [((56, 70, 48, 80), 0.0524, 0.3339), ((9, 10, 3, 10), 0.1705, 0.8090), ((10, 10, 0, 20), 0.6791, 1.0)],
)
def test_difference_interval_gives_the_published_values(counts, low, high):
    np.testing.assert_allclose(difference_interval(*counts)[1:], (low, high), atol=6e-5)


# Fagerland, Lydersen, Laake, Statistical Analysis of Contingency Tables (2017), chapter 8: airway hyper-responsiveness
# (Bentur et al. 2009), 21 pairs of which 1 and 7 are discordant; Tango's interval of the difference: -0.517 to -0.026.
def test_score_interval_gives_the_published_values():
    interval = score_interval(1, 13, 7)
    difference = [2 * value - 1 for value in interval]
    np.testing.assert_allclose(difference, (-6 / 21, -0.517, -0.026), atol=6e-4)


@pytest.mark.parametrize(("wins", "losses"), [(0, 9), (1, 9), (5, 5), (30, 12), (9, 0)])
def test_score_interval_without_draws_is_wilson(wins, losses):
    np.testing.assert_allclose(score_interval(wins, 0, losses), wilson_interval(wins, wins + losses), atol=1e-9)


@pytest.mark.parametrize("counts", [(3, 5, 2), (0, 10, 0), (0, 4, 6), (6, 4, 0), (12, 1, 7), (1, 0, 0), (0, 1, 0)])
def test_score_interval_agrees_with_a_search_over_all_trinomials(counts):
    wins, _draws, losses = counts
    n = sum(counts)
    delta = np.linspace(-1, 1, 801)[:, None]
    p_loss = np.linspace(0, 1, 2001)[None, :]
    p_win = p_loss + delta
    p_draw = 1 - p_win - p_loss
    allowed = (p_win >= -1e-12) & (p_draw >= -1e-12)
    likelihood = np.zeros(np.broadcast_shapes(delta.shape, p_loss.shape))
    for count, p in zip(counts, (p_win, p_draw, p_loss), strict=True):
        if count:
            likelihood = likelihood + count * np.log(np.clip(p, 1e-300, None))
    best = np.argmax(np.where(allowed, likelihood, -np.inf), axis=1)
    q, d = p_loss[0, best], delta[:, 0]
    variance = n * np.clip(2 * q + d * (1 - d), 0, None)
    accepted = (d[np.abs(wins - losses - n * d) <= 1.96 * np.sqrt(variance) + 1e-9] + 1) / 2
    np.testing.assert_allclose(score_interval(*counts)[1:], (accepted.min(), accepted.max()), atol=2e-3)


def test_score_interval_covers_the_true_score_about_as_often_as_it_says():
    n = 25
    outcomes = [(w, d, n - w - d) for w in range(n + 1) for d in range(n + 1 - w)]
    bounds = np.array([score_interval(*outcome)[1:] for outcome in outcomes])
    counts = np.array(outcomes)
    log_factorial = np.array([math.lgamma(k + 1) for k in range(n + 1)])
    coefficients = math.lgamma(n + 1) - log_factorial[counts].sum(1)
    coverage = []
    for p_win, p_draw in itertools.product((0.02, 0.1, 0.3, 0.5, 0.7, 0.9), (0.0, 0.05, 0.2, 0.5, 0.8)):
        if p_win + p_draw < 1:
            logs = np.log(np.maximum([p_win, p_draw, 1 - p_win - p_draw], 1e-300))
            probability = np.exp(coefficients + counts @ logs)
            assert abs(probability.sum() - 1) < 1e-9
            truth = p_win + p_draw / 2
            coverage.append(probability[(bounds[:, 0] <= truth + 1e-9) & (truth - 1e-9 <= bounds[:, 1])].sum())
    assert min(coverage) > 0.91
    assert 0.94 < np.mean(coverage) < 0.97


def test_interval_of_difference_covers_the_true_difference_about_as_often_as_it_says():
    n = 20
    intervals = [wilson_interval(k, n) for k in range(n + 1)]
    table = np.array([[interval_of_difference(a, b)[1:] for b in intervals] for a in intervals])
    choose = np.array([math.comb(n, k) for k in range(n + 1)], float)
    k = np.arange(n + 1)
    coverage = []
    for p, q in itertools.product((0.05, 0.3, 0.5, 0.8, 0.97), repeat=2):
        probability = np.outer(choose * p**k * (1 - p) ** (n - k), choose * q**k * (1 - q) ** (n - k))
        coverage.append(probability[(table[..., 0] <= p - q) & (p - q <= table[..., 1])].sum())
    assert min(coverage) > 0.92
    assert 0.94 < np.mean(coverage) < 0.98


@pytest.mark.parametrize("counts", [(3, 5, 2), (0, 3, 9), (14, 0, 1), (8, 0, 0)])
def test_swapping_wins_and_losses_mirrors_the_score(counts):
    wins, draws, losses = counts
    estimate, low, high = score_interval(losses, draws, wins)
    np.testing.assert_allclose(score_interval(wins, draws, losses), (1 - estimate, 1 - high, 1 - low), atol=1e-9)


def test_a_larger_z_widens_every_interval():
    assert wilson_interval(3, 10, 2.58).low < wilson_interval(3, 10).low
    assert score_interval(3, 3, 4, 2.58).high > score_interval(3, 3, 4).high
    assert difference_interval(3, 10, 1, 10, 2.58).low < difference_interval(3, 10, 1, 10).low


def test_importing_the_configuration_and_the_statistics_imports_no_scipy():
    modules = "dfc.config, dfc.evaluation.statistics, dfc.evaluation.task_statistics, dfc.evaluation.ratings"
    code = f"import sys, {modules}; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603 - our own code


def test_no_games_support_no_estimate_and_every_value():
    for interval in (wilson_interval(0, 0), score_interval(0, 0, 0), Record().score):
        assert math.isnan(interval.estimate)
        assert interval[1:] == (0, 1)
    assert interval_of_difference(wilson_interval(1, 2), wilson_interval(0, 0))[1:] == (-1, 1)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match=r"within 0 to trials \(3\), got 4"):
        wilson_interval(4, 3)
    with pytest.raises(ValueError, match="z must be above 0"):
        wilson_interval(1, 3, 0)
    with pytest.raises(ValueError, match="-1 draws"):
        score_interval(1, -1, 3)
    with pytest.raises(ValueError, match="z must be above 0"):
        score_interval(1, 1, 3, -1.0)
    with pytest.raises(ValueError, match=r"won_by_forfeit \(3\) cannot exceed win \(2\)"):
        Record(win=2, won_by_forfeit=3)
    with pytest.raises(ValueError, match="loss -1"):
        Record(loss=-1)


ROW = {
    "game": "TicTacToe-v0",
    "games": 20,
    "win": 11,
    "draw": 4,
    "loss": 3,
    "truncated": 2,
    "won_by_forfeit": 5,
    "lost_by_forfeit": 1,
    "replies": 80,
    "illegal_replies": 4,
    "malformed_replies": 1,
    "steps": 70,
}


def test_a_record_keeps_truncated_games_apart_and_out_of_its_score():
    record = Record.from_json(ROW)
    assert record.games == 20
    assert record.score.estimate == (11 + 0.5 * 4) / 18
    assert record.score == score_interval(11, 4, 3)
    assert record.score_without_forfeits.estimate == (6 + 0.5 * 4) / 12
    assert record.win_rate == wilson_interval(11, 18)
    assert (record.illegal_share, record.malformed_share, record.steps_per_game) == (0.05, 1 / 80, 3.5)
    assert math.isnan(Record().illegal_share)


def test_an_overrun_is_a_loss_that_lines_of_earlier_versions_do_not_name():
    assert Record.from_json(ROW).lost_by_overrun == 0
    record = Record.from_json(ROW | {"lost_by_overrun": 2})
    assert (record.loss, record.decided, record.games) == (3, 18, 20)
    with pytest.raises(
        RunFolderError, match=r"lost_by_forfeit \(1\) and lost_by_overrun \(3\) cannot exceed loss \(3\)"
    ):
        Record.from_json(ROW | {"lost_by_overrun": 3})


def test_records_add_up_field_by_field_and_pool_by_games():
    few, many = Record(win=1, draw=1, replies=9, steps=7), Record(win=2, loss=6, lost_by_forfeit=1, truncated=2)
    total = pooled([few, many])
    assert dataclasses.asdict(total) == {k: v + dataclasses.asdict(many)[k] for k, v in dataclasses.asdict(few).items()}
    assert pooled_score([few, many]).estimate == (3 + 0.5) / 10  # not the mean of 0.75 and 0.25
    assert pooled([]) == Record()


def test_a_line_that_is_no_record_is_refused():
    with pytest.raises(RunFolderError, match="draw = 'absent'"):
        Record.from_json({key: value for key, value in ROW.items() if key != "draw"})
    with pytest.raises(RunFolderError, match=r"win = 1\.5"):
        Record.from_json(ROW | {"win": 1.5})
    with pytest.raises(RunFolderError, match="is 20, but games is 21"):
        Record.from_json(ROW | {"games": 21})
    with pytest.raises(RunFolderError, match="cannot exceed loss"):
        Record.from_json(ROW | {"lost_by_forfeit": 4})


def test_a_comparison_is_clear_only_if_its_interval_leaves_zero_out():
    even, strong = Record(win=50, loss=50), Record(win=80, loss=20)
    assert Comparison(even, strong).verdict == "better"
    assert Comparison(strong, even).verdict == "worse"
    assert Comparison(even, Record(win=55, loss=45)).verdict == "unclear"
    np.testing.assert_allclose(Comparison(even, strong).difference, difference_interval(80, 100, 50, 100), atol=1e-9)


def test_wins_by_forfeit_alone_do_not_count_as_skill():
    before = Record(win=50, loss=50, won_by_forfeit=0)
    after = Record(win=75, loss=25, won_by_forfeit=50)
    comparison = Comparison(before, after)
    assert comparison.verdict == "better"
    assert comparison.difference_without_forfeits.estimate == 0
