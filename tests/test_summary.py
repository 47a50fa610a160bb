"""The printed result of a run against numbers worked out by hand."""

import json
import math

import pytest
from run_files import match

from dfc.evaluation.statistics import Record
from dfc.report import summary
from dfc.report.reader import read


def wilson(successes, trials):
    """Wilson's interval from its quadratic equation: (p - q)^2 = z^2 q (1 - q) / n, solved for q."""
    z2, p = 1.96**2 / trials, successes / trials
    a, b, c = 1 + z2, -(2 * p + z2), p * p
    root = math.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def shown(wins, games):
    low, high = wilson(wins, games)
    return f"{wins / games:.3f} [{low:.3f}, {high:.3f}]"


def row(game, opponent, policy, stage="final", seat=0, **counts):
    results = [counts.pop(name, 0) for name in ("win", "draw", "loss", "truncated")]
    return match(policy, opponent, game, seat, results, stage=stage, **{"steps": 0, **counts})


ROWS = [
    row("Nim-v0", "initial", "initial", win=9, loss=1, replies=40, illegal_replies=2, lost_by_forfeit=1),
    row("Nim-v0", "initial", "initial", seat=1, win=1, loss=9, replies=40, malformed_replies=2),
    row("Nim-v0", "initial", "final", win=10, replies=50, won_by_forfeit=4),
    row("Nim-v0", "initial", "final", seat=1, win=5, loss=5, replies=50, illegal_replies=1, lost_by_forfeit=1),
    row("TicTacToe-v0", "initial", "initial", win=4, loss=6, replies=30),
    row("TicTacToe-v0", "initial", "final", win=8, loss=2, replies=30),
    row("Nim-v0", "random_legal", "initial", win=3, loss=7, replies=20),
    row("Nim-v0", "random_legal", "final", win=6, loss=4, replies=20),
    row("GuessTheNumber-v0", "none", "initial", win=2, draw=8, replies=80),
    row("GuessTheNumber-v0", "none", "final", win=7, draw=2, truncated=1, replies=60),
    row("Nim-v0", "initial", "stage", stage="fuse g1+g2", win=99, replies=99),
    row("Nim-v0", "initial", "initial", stage="base", win=99, replies=99),
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "evaluations.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ROWS), encoding="utf-8")
    return tmp_path


def test_only_final_matches_count_and_seats_add_up(folder):
    records = summary.final_records(read(folder).evaluations)
    assert len(records) == 8
    assert records["Nim-v0", "initial", "initial"] == Record(
        win=10, loss=10, replies=80, illegal_replies=2, malformed_replies=2, lost_by_forfeit=1
    )
    assert records["Nim-v0", "initial", "final"].win == 15


def test_the_table_shows_every_pairing_with_the_initial_policy_first(folder):
    table = [line.split() for line in summary.lines(folder)[2:10]]
    assert [tuple(line[:3]) for line in table] == [
        ("GuessTheNumber-v0", "none", "initial"),
        ("GuessTheNumber-v0", "none", "final"),
        ("Nim-v0", "initial", "initial"),
        ("Nim-v0", "initial", "final"),
        ("Nim-v0", "random_legal", "initial"),
        ("Nim-v0", "random_legal", "final"),
        ("TicTacToe-v0", "initial", "initial"),
        ("TicTacToe-v0", "initial", "final"),
    ]
    assert table[1][3:7] == ["7", "2", "0", "1"]
    assert table[1][7:] == [*shown(7, 9).split(), "0.0%", "0+0"]  # solved, of those that were decided
    assert table[2][3:] == ["10", "0", "10", "0", *shown(10, 20).split(), "5.0%", "0+1"]  # 4 of 80 replies
    assert table[3][3:] == ["15", "0", "5", "0", *shown(15, 20).split(), "1.0%", "4+1"]
    assert table[7][3:] == ["8", "0", "2", "0", *shown(8, 10).split(), "0.0%", "0+0"]


def test_pooled_lines_throw_all_games_of_an_opponent_together(folder):
    pooled = [line for line in summary.lines(folder) if line.startswith("two-player games pooled")]
    # Nim 10 of 20 and TicTacToe 4 of 10, then 15 of 20 and 8 of 10; without forfeits 14 of 29, then 19 of 25.
    lines = "two-player games pooled against {}: from {} to {}; without games decided by an invalid reply from {} to {}"
    assert pooled == [
        lines.format("initial", shown(14, 30), shown(23, 30), shown(14, 29), shown(19, 25)),
        lines.format("random_legal", *[shown(3, 10), shown(6, 10)] * 2),
    ]


def test_single_player_ids_show_the_difference_of_solved_rates(folder):
    (low1, high1), (low0, high0) = wilson(7, 9), wilson(2, 10)
    new, change = 7 / 9, 7 / 9 - 0.2  # of ten one was truncated
    low, high = change - math.hypot(new - low1, high0 - 0.2), change + math.hypot(high1 - new, 0.2 - low0)
    assert (
        summary.lines(folder)[-1]
        == f"GuessTheNumber-v0 solved: from 2/10 to 7/9, difference {change:.3f} [{low:.3f}, {high:.3f}]"
    )


def test_an_unfinished_run_has_lines_too(tmp_path):
    kept = [r for r in ROWS if r["policy"] == "initial"]
    (tmp_path / "evaluations.jsonl").write_text("".join(json.dumps(r) + "\n" for r in kept), encoding="utf-8")
    found = summary.lines(tmp_path)
    assert not any("pooled" in line for line in found)
    assert found[-1] == "GuessTheNumber-v0 solved: initial 2/10"
    assert not any("nan" in line for line in found)
    (tmp_path / "evaluations.jsonl").write_text("", encoding="utf-8")
    assert len(summary.lines(tmp_path)) == 3


def test_failed_games_are_named_with_their_first_cause(folder):
    with (folder / "evaluations.jsonl").open("a") as rows:
        for seat, failed in ((0, 3), (1, 2)):
            row = {"stage": "final", "game": "Othello-v0", "opponent": "random_legal", "policy": "final", "seat": seat}
            row |= {"games": 0, **vars(Record()), "failed": failed, "first_failure": f"seat {seat} broke"}
            rows.write(json.dumps(row) + "\n")
    assert "Othello-v0: 5 games failed (in no figure), the first: seat 0 broke" in summary.lines(folder)
