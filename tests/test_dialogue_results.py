"""What an evaluation of dialogue games says: scores, intervals, why games were broken off, and its tables."""

import json
import math

import pytest

from dfc.config import EvaluateTasks
from dfc.evaluation import dialogue_results, tasks
from dfc.evaluation.clemscore import GameScore
from dfc.evaluation.dialogue_results import ending
from dfc.evaluation.tasks import EvalSetting
from dfc.games import registry
from dfc.games.dialogue.dialogue_game import NOT_THERE
from dfc.games.game import UNREADABLE
from dfc.report import dialogue_tables, task_page
from dfc.report.page import publish

FIRST, SECOND = EvalSetting("first", 0.0), EvalSetting("second", None)
WIN, INVALID, TRUNCATED = (["win"] * 2, ["invalid"] * 2, ["truncated"] * 2)


def record(task, quality=None, *, setting=FIRST, game="g", outcomes=None, forfeited_by=None, trajectory=0, **more):
    return {
        "policy": setting.policy,
        "temperature": setting.temperature,
        "game": game,
        "task": task,
        "trajectory": trajectory,
        "seat": 0,
        "turns": 1,
        "outcomes": outcomes or (WIN if quality is not None else INVALID),
        "forfeited_by": forfeited_by,
        "measures": {} if quality is None else {"quality": quality},
        **more,
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"quality": 0.0}, None),
        ({"quality": 30.0, "outcomes": ["loss"] * 2}, None),
        ({"failure": "down"}, "failed"),
        ({"failure": "down", "outcomes": TRUNCATED, "overrun_by": 0}, "failed"),
        ({"outcomes": TRUNCATED, "overrun_by": 1}, "context"),
        ({"outcomes": TRUNCATED}, "turn limit"),
        ({"abort_reason": "no more turns"}, "turn limit"),
        ({"forfeited_by": 1, "abort_reason": f"{UNREADABLE} Reply in the form [1]."}, "answer format"),
        ({"forfeited_by": 0, "abort_reason": f"the room 'attic' {NOT_THERE}"}, "hallucination"),
        ({"forfeited_by": 0, "abort_reason": "the question asks for letters"}, "game mechanics"),
    ],
)
def test_why_a_game_was_not_played_to_its_end(given, expected):
    assert ending(record(0, **given)) == expected


def test_a_forfeit_of_every_game_that_has_a_quality_says_why():
    for game in registry.game_ids():
        made = registry.make(game)
        if not made.has_quality:
            continue
        made.reset(0)
        while not made.over:
            made.step("\n")
        given = record(0, outcomes=[*made.outcomes], forfeited_by=made.forfeited_by, abort_reason=made.abort_reason)
        assert ending(given) == "answer format", game


def test_scores_of_records_leave_unplayed_instances_out_of_the_quality():
    records = [
        record(0, 100.0),
        record(1, 40.0),
        record(1, 50.0),  # of two of one instance the last counts
        record(2, forfeited_by=0, abort_reason="?"),
        record(3, outcomes=TRUNCATED, overrun_by=0),
        record(0, 20.0, game="h"),
        record(0, 10.0, game="unfinished"),
        *(record(task, 60.0, setting=SECOND) for task in range(4)),
        record(0, setting=SECOND, game="h", failure="down"),
    ]
    found = dialogue_results.of_records([FIRST, SECOND], ["g", "h", "unfinished"], records)
    assert found.games == ("g", "h")
    assert found.by_game[FIRST, "g"] == GameScore(50.0, 75.0, 4)
    assert found.by_game[SECOND, "h"] == GameScore(0.0, None, 1)
    overall = found.overall[FIRST]
    assert (overall.played.estimate, overall.quality.estimate, overall.clemscore.estimate) == (75.0, 47.5, 35.62)
    other = found.overall[SECOND]
    assert (other.played.estimate, other.quality.estimate, other.clemscore.estimate) == (50.0, 60.0, 30.0)
    assert found.endings[FIRST, "g"] == {"game mechanics": 1, "context": 1}
    assert found.endings[SECOND, "h"] == {"failed": 1}
    assert found.reasons[FIRST] == [("g: ?", 1), ("g: context", 1)]
    assert dialogue_results.of_records([FIRST], ["other"], records) is None
    assert dialogue_results.of_records([FIRST], ["h"], []) is None


def test_intervals_are_those_of_resampled_instances():
    """Of n instances, k of which were played: % played is binomial; the quality's spread is that of a mean."""
    records = [record(task, 100.0 * (task % 2)) for task in range(60)]
    records += [record(task, forfeited_by=0, abort_reason="?") for task in range(60, 100)]
    (score,) = dialogue_results.of_records([FIRST], ["g"], records).scores.values()
    error = 100 * math.sqrt(0.6 * 0.4 / 100)
    assert score.played.low == pytest.approx(60 - 1.96 * error, abs=1.5)
    assert score.played.high == pytest.approx(60 + 1.96 * error, abs=1.5)
    error = 50 / math.sqrt(60)
    assert score.quality.low == pytest.approx(50 - 1.96 * error, abs=2)
    assert score.quality.high == pytest.approx(50 + 1.96 * error, abs=2)
    assert score.played.low / 100 * score.quality.low < score.clemscore.low < 30 < score.clemscore.high
    certain = dialogue_results.of_records([FIRST], ["g"], [record(task, 70.0) for task in range(9)])
    assert certain.overall[FIRST].clemscore == (70.0, 70.0, 70.0)


def test_tables_have_the_papers_shapes(tmp_path):
    records = [
        *(record(task, 50.0 if task else None, forfeited_by=0, abort_reason="bad <b>") for task in range(4)),
        *(record(task, 80.0, setting=SECOND) for task in range(4)),
        *(record(task, setting=FIRST, game="h", forfeited_by=1, abort_reason="never") for task in range(2)),
        *(record(task, 30.0, setting=SECOND, game="h") for task in range(2)),
    ]
    found = dialogue_results.of_records([FIRST, SECOND], ["g", "h"], records)
    overall, by_game, less, endings, shares, reasons, of_games = dialogue_tables.tables(found)
    assert [row[0] for row in overall.rows] == ["first, temperature 0", "second"]
    assert overall.rows[0][1].startswith("18.75 [")
    assert by_game.rows == (("g", "75.00 / 50.00", "100.00 / 80.00"), ("h", "0.00 / –", "100.00 / 30.00"))  # noqa: RUF001 - a dash
    assert less.rows[0] == ("g", "75.00 / 50.00", "+25.00 / +30.00")
    assert less.rows[1][2] == "+100.00 / +30.00"
    assert endings.rows == (("first, temperature 0", "6", "0", "0", "3", "0", "0", "0"),)
    assert shares.rows == (("first, temperature 0", "0.0 %", "0.0 %", "100.0 %", "0.0 %", "0.0 %", "0.0 %"),)
    assert ("first, temperature 0", "2", "h: never") in reasons.rows
    assert of_games.rows == (("g", "bad <b>", "1", "0"), ("h", "never", "2", "0"))
    successes = tasks.of_records([FIRST, SECOND], {"g": 6, "h": 6}, 1, records)
    config = EvaluateTasks(policies=("first=a", "second=strong"))
    publish(tmp_path, task_page.results(config, successes, found))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "g: bad &lt;b&gt;" in page
    assert "1 game of every task" in page
    assert page.index(">clemscore<") < page.index("Tasks solved, from 0 to 100 %") < page.index(">By game<")
    assert "bad <b>" not in page
    data = json.loads((tmp_path / "results.json").read_text())["dialogues"]
    assert data["arms"][0]["games"]["h"]["quality"] == [None, None, None]
    assert data["arms"][0]["games"]["g"]["not_played"] == {"game mechanics": 1}
    assert any(line.startswith("second") for line in task_page.console(successes, found)[:5])


def test_games_for_evaluation_only_have_a_score_and_tables_of_their_own():
    games = {"clem_taboo": 40.0, "clem_codenames": 100.0, "clem_matchit_ascii": 50.0, "other.py:Game": 0.0}
    records = [record(task, quality, game=game) for game, quality in games.items() for task in range(2)]
    records.append(record(2, game="clem_codenames", forfeited_by=0, abort_reason="?"))
    found = dialogue_results.of_records([FIRST], games, records)
    assert found.domains == {
        "in domain": ("clem_taboo", "other.py:Game"),
        "out of domain": ("clem_codenames", "clem_matchit_ascii"),
    }
    inside, outside = (found.by_domain[FIRST, domain] for domain in found.domains)
    assert (inside.clemscore.estimate, inside.played.estimate, inside.quality.estimate) == (20.0, 100.0, 20.0)
    assert (outside.played.estimate, outside.quality.estimate) == (83.34, 75.0)  # 66.67 and 100
    overall, first, second, *_ = dialogue_tables.tables(found)
    assert [row[:2] for row in overall.rows] == [
        ("first, temperature 0", games) for games in ("all", "in domain", "out of domain")
    ]
    assert first.rows[-1] == ("mean", "100.00 / 20.00")
    assert [row[0] for row in second.rows] == ["clem_codenames", "clem_matchit_ascii", "mean"]
    assert second.rows[-1] == ("mean", "83.34 / 75.00")
    data = dialogue_tables.to_json(found)
    assert data["arms"][0]["domains"]["in domain"]["quality"][0] == 20.0
    one_kind = dialogue_results.of_records([FIRST], ["clem_codenames"], records)
    assert (one_kind.domains, one_kind.by_domain) == ({}, {})


def test_why_instances_were_not_played_is_told_in_shares_by_domain_and_in_words_by_game():
    """The shapes of the paper's Figures 5, 6 and 7."""
    aborted = [
        *[("clem_taboo", FIRST, "a", 1), ("clem_taboo", SECOND, "a", 2), ("clem_taboo", SECOND, "b", 1)],
        *[("clem_codenames", FIRST, f"the word {NOT_THERE}", 2), ("clem_codenames", FIRST, "no more turns", 1)],
        *[("clem_codenames", SECOND, f"{n}", 1) for n in range(20)],
    ]
    every = [(game, setting, why) for game, setting, why, number in aborted for _ in range(number)]
    records = [
        record(task, game=game, setting=setting, forfeited_by=None if why == "no more turns" else 0, abort_reason=why)
        for task, (game, setting, why) in enumerate(every)
    ]
    found = dialogue_results.of_records([FIRST, SECOND], ["clem_taboo", "clem_codenames"], records)
    by_title = {table.title: table for table in dialogue_tables.tables(found)}
    shares = by_title["Not played to the end, shares"]
    assert shares.header == ("policy", "games", *dialogue_results.ENDINGS)
    cells = {row[:2]: dict(zip(shares.header[2:], row[2:], strict=True)) for row in shares.rows}
    out = cells["first, temperature 0", "out of domain"]
    assert (out["hallucination"], out["turn limit"], out["answer format"]) == ("66.7 %", "33.3 %", "0.0 %")
    assert cells["second", "in domain"]["game mechanics"] == "100.0 %"
    for row in cells.values():
        assert sum(float(cell.removesuffix(" %")) for cell in row.values()) == pytest.approx(100, abs=0.3)
    words = by_title["Reasons by game"]
    assert words.header == ("game", "reason", "first, temperature 0", "second")
    assert words.rows[:2] == (("clem_taboo", "a", "1", "2"), ("clem_taboo", "b", "0", "1"))
    assert words.rows[2] == ("clem_codenames", f"the word {NOT_THERE}", "2", "0")
    assert len(words.rows) == 2 + 12
    played = dialogue_results.of_records([FIRST], ["clem_taboo"], [record(0, 40.0, game="clem_taboo")])
    assert not {"Not played to the end, shares", "Reasons by game"} & {t.title for t in dialogue_tables.tables(played)}


def test_words_that_are_not_on_the_board_are_a_hallucination():
    game = registry.make("clem_codenames")
    game.reset(0)
    game.step("CLUE: thing\nTARGETS: zzzz")
    given = record(0, outcomes=[*game.outcomes], forfeited_by=game.forfeited_by, abort_reason=game.abort_reason)
    assert ending(given) == "hallucination"
