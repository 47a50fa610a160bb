"""One number for one result: the report, the console and the tables say the same of a run, one-player games apart."""

import json
import re

import pytest
from run_files import match

from dfc.config import Evaluate
from dfc.evaluation import tournament
from dfc.evaluation.statistics import Comparison, Record, wilson_interval
from dfc.report import run_page, summary, tournament_page

HANOI, GUESS, TICTACTOE, NIM = "TowerOfHanoi-v0", "GuessTheNumber-v0", "TicTacToe-v0", "Nim-v0"


def row(policy, game, win, draw=0, loss=0, *, stage="final", opponent=None, seat=0, **more):
    opponent = opponent or ("none" if game in (HANOI, GUESS) else "initial")
    return match(policy, opponent, game, seat, (win, draw, loss, 0), stage=stage, **more)


def folder(path, rows=(), metrics=(), episodes=()):
    path.mkdir(exist_ok=True)
    for name, lines in (("evaluations", rows), ("metrics", metrics), ("episodes", episodes)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def page(path):
    text = run_page.build(path).read_text(encoding="utf-8")
    shown = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", shown).split())


def verdict(path):
    return summary.verdict(summary.comparisons(run_page.read(path)))


RUN = [
    row("initial", HANOI, 2, 198),
    row("initial", TICTACTOE, 100, 0, 100),
    row("initial", NIM, 60, 0, 140),
    row("final", HANOI, 194, 6),
    row("final", TICTACTOE, 150, 20, 30),
    row("final", NIM, 170, 0, 30),
]


# ---- one-player games ---------------------------------------------------------------------------------------------


def test_a_one_player_game_that_ran_out_of_turns_is_unsolved_not_half_solved(tmp_path):
    path = folder(tmp_path / "run", RUN)
    (pair,) = [pair for game, pair in verdict(path)["alone"] if game == HANOI]
    assert pair.before.measured(alone=pair.alone) == wilson_interval(2, 200)
    text = page(path)
    assert f"{HANOI} 2 of 200 → 194 of 200" in text
    _, low, high = wilson_interval(2, 200)
    assert f"{HANOI} 0.01 {low:.2f} to {high:.2f} 0.97" in text
    assert next(line.split()[7] for line in summary.lines(path) if line.startswith(HANOI)) == "0.010"


def test_the_headline_of_report_and_console_is_the_same_number(tmp_path):
    path = folder(tmp_path / "run", RUN)
    result = verdict(path)
    before, after = (side.score.estimate for side in (result["paired"].before, result["paired"].after))
    assert (before, after) == ((100 + 60) / 400, (150 + 10 + 170) / 400)
    (line,) = [line for line in summary.lines(path) if line.startswith("two-player games pooled against initial")]
    found = [float(number) for number in re.findall(r"([0-9.]+) \[", line)]
    assert found[:2] == pytest.approx([before, after], abs=5e-4)
    assert f"it scores {after:.2f} per game" in page(path)
    assert f"in its place scores {before:.2f}" in page(path)


def test_games_that_only_one_policy_played_are_in_neither_headline(tmp_path):
    path = folder(tmp_path / "run", [*RUN, row("final", "LiarsDice-v0", 0, 0, 200)])
    result = verdict(path)
    (line,) = [line for line in summary.lines(path) if line.startswith("two-player games pooled against initial")]
    assert result["paired"].after.games == 400
    assert "to 0.825 [" in line


@pytest.mark.parametrize(
    ("hanoi", "tictactoe", "kind", "said"),
    [
        (194, 150, "better", "The policy got better."),
        (2, 150, "better", "The policy got better."),
        (194, 100, "better", "The policy got better."),
        (0, 20, "worse", "The policy got worse."),
        (3, 104, "unclear", "No clear change."),
        (194, 20, "mixed", "Better in one kind of game, worse in the other."),
    ],
)
def test_the_verdict_is_of_both_kinds_of_games(tmp_path, hanoi, tictactoe, kind, said):
    rows = [row("initial", HANOI, 2, 198), row("initial", TICTACTOE, 100, 0, 100)]
    rows += [row("final", HANOI, hanoi, 200 - hanoi), row("final", TICTACTOE, tictactoe, 0, 200 - tictactoe)]
    path = folder(tmp_path / "run", rows)
    assert verdict(path)["kind"] == kind
    assert said in page(path)


def test_more_draws_are_no_progress_of_a_one_player_game(tmp_path):
    path = folder(tmp_path / "run", [row("initial", HANOI, 2, 0, 198), row("final", HANOI, 2, 198)])
    assert verdict(path)["kind"] == "unclear"
    assert Comparison(Record(win=2, loss=198), Record(win=2, draw=198)).verdict == "better"  # what it was taken for


def test_a_run_of_one_player_games_alone_has_a_headline_without_a_score(tmp_path):
    path = folder(tmp_path / "run", [row("initial", HANOI, 2, 198), row("final", HANOI, 194, 6)])
    text = page(path)
    assert f"The policy got better. Solved: {HANOI} 2 of 200 → 194 of 200." in text
    assert "Against the initial policy" not in text
    assert "A win is worth 1" not in text


def test_scores_and_shares_solved_have_means_of_their_own(tmp_path):
    stages = [row("initial", HANOI, 0, 20, stage="base"), row("initial", TICTACTOE, 10, 0, 10, stage="base")]
    found = run_page.stage_scores(run_page.read(folder(tmp_path / "run", [*stages, *RUN])))
    assert found.stages == ["base", "final"]
    assert list(found.means.items()) == [
        (False, pytest.approx([0.5, (0.8 + 0.85) / 2])),
        (True, pytest.approx([0.0, 0.97])),
    ]


def test_without_forfeits_a_one_player_share_leaves_out_its_forfeits():
    pair = Comparison(Record(win=2, loss=8, lost_by_forfeit=5), Record(win=6, draw=2, loss=2), alone=True)
    assert pair.difference.estimate == pytest.approx(6 / 10 - 2 / 10)
    assert pair.difference_without_forfeits.estimate == pytest.approx(6 / 10 - 2 / 5)


# ---- what nothing supports ------------------------------------------------------------------------------------------


def test_a_score_without_forfeits_that_no_game_supports_is_not_printed(tmp_path):
    rows = [
        row("initial", NIM, 50, 0, 50, won_by_forfeit=50, lost_by_forfeit=50),
        row("final", NIM, 50, 0, 50, won_by_forfeit=50, lost_by_forfeit=50),
    ]
    path = folder(tmp_path / "run", rows)
    assert not any("nan" in line or "without games" in line for line in summary.lines(path))
    assert "Without the plays that an invalid reply decided" not in page(path)
    alone = folder(tmp_path / "alone", rows[1:])
    assert not any("nan" in line for line in summary.lines(alone))
    assert "two-player games pooled against initial: 0.500 [" in "\n".join(summary.lines(alone))
    one = [rows[0], row("final", NIM, 80, 0, 20)]
    (line,) = [line for line in summary.lines(folder(tmp_path / "one", one)) if "pooled" in line]
    assert line.endswith("without games decided by an invalid reply 0.800 [0.711, 0.867]")


# ---- tournaments ----------------------------------------------------------------------------------------------------


def test_a_tournament_scores_no_one_player_game_and_tests_what_was_solved():
    def game(policy, deal, outcome):
        counts = [{"replies": 3, "illegal": 0, "malformed": 0}]
        place = {"game": HANOI, "options": {}, "seed": deal, "deal": deal, "players": [policy], "counts": counts}
        forfeit = 0 if outcome == "invalid" else None
        return place | {"outcomes": [outcome], "forfeited_by": forfeit, "replies": []}

    outcomes = {"a": ["draw", "draw", "win", "win"], "b": ["invalid", "loss", "draw", "win"]}
    records = [game(name, deal, outcome) for name, found in outcomes.items() for deal, outcome in enumerate(found)]
    found = tournament.of_records(["a", "b"], records)
    (test,) = found.tests
    assert (test.pairing, test.better, test.worse, test.ties) == ("alone", 1, 0, 3)
    config = Evaluate(policies=("random_legal", "strong"), seeds=4)
    tables = {table.title: table for table in tournament_page.tables(config, found, {})}
    table = tables["By game and seat"]
    place = table.header.index("score")
    assert [line[place] for line in table.rows] == ["-", "-"]
    assert [line[table.header.index("won (Wilson)")][:4] for line in table.rows] == ["0.50", "0.25"]


# ---- the order of stages --------------------------------------------------------------------------------------------


def metric(step, stage, iteration=1):
    return {"step": step, "stage": stage, "iteration": iteration, "metrics": {"win_rate": 0.5}}


def stage_row(stage):
    return row("initial" if stage == "base" else "stage", NIM, 5, 0, 5, stage=stage)


def game_line(stage):
    return {"game": NIM, "stage": stage, "replies": [], "outcomes": ["draw", "draw"], "iteration": 0}


WHOLE = [
    "base",
    "divide g1",
    "divide g2",
    "divide g3",
    "fuse g1+g2",
    "conquer g1+g2",
    "fuse g1+g2+g3",
    "conquer g1+g2+g3",
]
TRAINED = [stage for stage in WHOLE if stage.startswith(("divide", "conquer"))]


@pytest.mark.parametrize("count", range(1, len(WHOLE) + 1))
@pytest.mark.parametrize("kept", ["all", "no games", "no matches after stages", "games only"])
def test_stages_come_in_the_order_in_which_they_ran_at_every_moment_of_a_run(tmp_path, count, kept):
    """The last of them is under way: trained, or with a game on record, but not measured yet."""
    begun = WHOLE[:count]
    rows = [stage_row(stage) for stage in begun[:-1]]
    metrics = [metric(step, stage) for step, stage in enumerate(TRAINED) if stage in begun]
    games = [game_line(stage) for stage in begun]
    if kept == "no matches after stages":
        rows = rows[:1]
        begun = [stage for stage in begun if stage in (*TRAINED, *(r["stage"] for r in rows))]
        games = []
    elif kept == "no games":
        games = []
        begun = [stage for stage in begun if stage in TRAINED or stage in WHOLE[: count - 1]]
    elif kept == "games only":
        rows, metrics = [], []
    assert run_page.read(folder(tmp_path / "run", rows, metrics, games)).stages == begun


def test_a_finished_run_ends_with_its_final_matches(tmp_path):
    rows = [row("initial", NIM, 5, 0, 5), *map(stage_row, WHOLE), row("final", NIM, 5, 0, 5)]
    metrics = [metric(step, stage) for step, stage in enumerate(TRAINED)]
    found = run_page.read(folder(tmp_path / "run", rows, metrics))
    assert found.stages == [*WHOLE, "final"]
    assert run_page.stage_scores(found).stages == [*WHOLE, "final"]


def test_orders_that_contradict_each_other_still_give_every_stage_once(tmp_path):
    rows = [stage_row(stage) for stage in ("b", "a", "c")]
    found = run_page.read(folder(tmp_path / "run", rows, [metric(0, "a"), metric(1, "b")]))
    assert sorted(found.stages) == ["a", "b", "c"]
