"""clemscore against the paper's own tables, and against a second way to compute it."""

import decimal
import fractions
import math
import random

import pytest

from dfc.evaluation.clemscore import Clemscore, GameScore, clemscore, game_score

# "Playpen", Tables 7, 8 and 10: % played and quality; "-" is a game of which nothing was played.
IN = ("image", "private", "reference", "taboo", "wordle", "clue", "critic")
OUT = ("adventure", "codenames", "map", "graph", "room", "match", "guess")
BASELINE = "67.8/54.62 100/23.48 100/38.89 98.33/31.92 36.67/0 0/- 6.67/50"
BASELINE_OUT = "35.94/33.85 43.08/16.07 36/55.46 20/44.33 56.67/94.12 100/60 90/11.73"
SFT_LESS_BASELINE = "32.20/39.87 0.00/73.65 0.00/7.78 1.67/5.58 20.00/1.18 23.33/71.43 6.66/0.00"
SFT_OUT_LESS_BASELINE = "-17.97/-18.23 -17.70/5.14 32.00/-8.75 -3.33/-7.54 -16.67/-2.45 -2.50/9.23 -1.67/19.09"
SFT_OF_TABLE_8 = "100/94.49 100/97.13 100/46.67 100/37.5 56.67/1.18 23.33/71.43 26.66/27.78"
SFT_OUT_OF_TABLE_10 = "17.97/15.62 25.38/21.21 68/46.71 16.67/36.79 40/91.67 97.5/69.23 88.33/30.82"
GRPO_LESS_SFT_OUT = "28.7/20.82 13.85/-3.56 6.0/13.37 64.28/13.83 10.0/1.66 2.5/-6.73 -8.33/-20.4"


def pairs(cells):
    return [[None if part == "-" else float(part) for part in cell.split("/")] for cell in cells.split()]


def row(cells, less=None):
    """Game scores of a row of cells, or of the differences from it."""
    found = pairs(cells)
    if less is not None:
        # Where the baseline has no quality, the difference is the quality itself.
        found = [
            [played + more, (quality or 0.0) + better]
            for (played, quality), (more, better) in zip(found, pairs(less), strict=True)
        ]
    return [GameScore(round(played, 2), None if q is None else round(q, 2), 1) for played, q in found]


@pytest.mark.parametrize(
    ("scores", "clem", "played", "quality"),
    [
        (row(BASELINE), 19.39, 58.50, 33.15),
        (row(BASELINE_OUT), 24.58, 54.53, 45.08),
        (row(BASELINE, SFT_LESS_BASELINE), 40.11, 70.48, 56.91),
        (row(BASELINE_OUT, SFT_OUT_LESS_BASELINE), 22.54, 50.55, 44.58),  # printed: 22.53
        (row(SFT_OF_TABLE_8), 38.90, 72.38, 53.74),  # Table 1 prints what follows from Table 7
        (row(SFT_OUT_OF_TABLE_10, GRPO_LESS_SFT_OUT), 31.81, 67.26, 47.29),
    ],
    ids=["baseline in", "baseline out", "SFT in", "SFT out", "SFT in by Table 8", "SFT + GRPO out"],
)
def test_rows_of_table_1_follow_from_the_tables_by_game(scores, clem, played, quality):
    assert len(scores) == len(IN) == len(OUT)
    assert clemscore(scores) == Clemscore(clem, played, quality)
    assert clemscore({str(n): score for n, score in enumerate(scores)}) == Clemscore(clem, played, quality)


def test_games_that_were_never_played_count_in_the_first_mean_only():
    never, always = game_score([None, None]), game_score([80.0, 40.0])
    assert (never, always) == (GameScore(0.0, None, 2), GameScore(100.0, 60.0, 2))
    assert clemscore([never, always]) == Clemscore(30.0, 50.0, 60.0)
    assert clemscore([never]) == Clemscore(0.0, 0.0, None)


def test_quality_is_of_played_instances_only():
    assert game_score([None, 100.0, None, 0.0]) == GameScore(50.0, 50.0, 4)
    assert game_score([0.0]) == GameScore(100.0, 0.0, 1)
    assert game_score([100.0, None, None]) == GameScore(33.33, 100.0, 3)


def test_the_means_are_those_of_exact_arithmetic():
    """Half a unit in the last place apart at most, whatever the roundings on the way."""
    rng = random.Random(0)
    for _ in range(1000):
        games = [
            [None if rng.random() < 0.3 else rng.choice([0, 20, 100 / 3, 50, 100]) for _ in range(rng.randint(1, 60))]
            for _ in range(rng.randint(1, 14))
        ]
        scores = [game_score(game) for game in games]
        for score, game in zip(scores, games, strict=True):
            reached = [fractions.Fraction(q) for q in game if q is not None]
            assert abs(score.played - fractions.Fraction(100 * len(reached), len(game))) <= 0.005 + 1e-9
            if reached:
                assert abs(score.quality - sum(reached) / len(reached)) <= 0.005 + 1e-9
            else:
                assert score.quality is None
        found = clemscore(scores)
        cells = [decimal.Decimal(repr(score.played)) for score in scores]
        assert abs(decimal.Decimal(found.played) - sum(cells) / len(cells)) <= decimal.Decimal("0.005000001")
        assert math.isclose(found.clemscore, found.played / 100 * (found.quality or 0), abs_tol=0.0050001)
        assert all(value == round(value, 2) for value in (found.clemscore, found.played))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: game_score([]), "at least one instance"),
        (lambda: game_score([100.5]), r"from 0 to 100, .* got 100\.5"),
        (lambda: game_score([float("nan")]), "from 0 to 100"),
        (lambda: clemscore({}), "at least one game"),
    ],
)
def test_scores_of_nothing_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        bad()
