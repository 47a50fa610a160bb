"""The paper's figures are its figures, and stand beside what was measured in the same row."""

import json

import pytest

from dfc.errors import RunFolderError
from dfc.evaluation.statistics import Record
from dfc.evaluation.tournament import Cell, Tournament
from dfc.games import registry
from dfc.report import paper_tables

# The last row of its Table 3, one figure for each of its first six columns. In the last of them the paper's draws are
# 10 more than its column has: SimpleNegotiation-v0-short is printed as 6/1/3, the only entry of 10 games.
PRINTED_SUMS = [(148, 42, 169), (180, 32, 146), (218, 49, 91), (196, 44, 116), (232, 32, 91), (210, 37 + 10, 100)]


def counts(text):
    return tuple(map(int, text.split("/")))


def test_table_3_adds_up_to_the_papers_own_sums():
    rows = [cells for group in paper_tables.TABLE_3.values() for cells in group.values()]
    assert len(rows) == 18
    sums = [tuple(map(sum, zip(*map(counts, column), strict=True))) for column in zip(*rows, strict=True)]
    assert sums[:5] == PRINTED_SUMS[:5]
    assert (sums[5][0], sums[5][1] + 10, sums[5][2]) == PRINTED_SUMS[5]
    assert paper_tables.TABLE_3["g4"]["SimpleNegotiation-v0-short"][5] == "6/1/3"


def test_every_id_of_the_paper_is_one_of_ours_and_every_table_has_its_columns():
    game_ids = set(registry.game_ids())
    assert len(paper_tables.TABLE_2_ALONE) == 4
    assert len(paper_tables.TABLE_2_PAIRS) == 14
    assert set(paper_tables.TABLE_8) == set(paper_tables.TABLE_2_PAIRS) <= game_ids
    every = set(paper_tables.TABLE_2_ALONE) | set(paper_tables.TABLE_2_PAIRS)
    assert {game for games in paper_tables.TABLE_3.values() for game in games} == every <= game_ids
    for table, columns in ((paper_tables.TABLE_2_ALONE, 3), (paper_tables.TABLE_2_PAIRS, 3), (paper_tables.TABLE_8, 2)):
        assert {len(cells) for cells in table.values()} == {columns}
    assert {registry.make(game).seats for game in paper_tables.TABLE_2_ALONE} == {1}
    assert {registry.make(game).seats for game in paper_tables.TABLE_2_PAIRS} == {2}


def test_only_entries_that_the_paper_itself_prints_so_do_not_make_20_games():
    odd = {
        (game, cell)
        for table in (paper_tables.TABLE_2_ALONE, paper_tables.TABLE_2_PAIRS, paper_tables.TABLE_8)
        for game, cells in table.items()
        for cell in cells
        if sum(counts(cell)) != 20
    }
    assert odd == {
        ("TruthAndDeception-v0-extreme", "3/0/16"),
        ("Poker-v0-long", "8/1/10"),
        ("Poker-v0-long", "8/0/11"),
        ("Poker-v0-extreme", "9/0/7"),
        ("Poker-v0-extreme", "9/1/7"),
    }


def tournament():
    cells = {
        ("us", None, "TowerOfHanoi-v0", 0): Cell(Record(win=3, loss=2, lost_by_forfeit=1, replies=9)),
        ("them", None, "TowerOfHanoi-v0", 0): Cell(Record(draw=5)),
        ("us", "them", "TicTacToe-v0", 0): Cell(Record(win=4, truncated=1), failed=1),
        ("us", "them", "TicTacToe-v0", 1): Cell(Record(win=1, draw=2, loss=3)),
        ("them", "us", "TicTacToe-v0", 0): Cell(Record(win=3, draw=2, loss=1)),
        ("them", "us", "TicTacToe-v0", 1): Cell(Record(loss=4, truncated=1), failed=1),
        ("us", "them", "Nim-v0", 0): Cell(Record(win=6)),
    }
    return Tournament(("us", "them"), cells, {}, {}, [], {})


def test_table_2_has_the_papers_figure_in_the_row_and_column_of_the_measured_one():
    alone, pairs = paper_tables.table_2(tournament(), "us", "them", None)
    assert alone.header[1:] == (
        *("them", "paper: Qwen2.5"),
        *("nobody in this place", "paper: Claude3.5"),
        *("us", "paper: Qwen2.5 (DFC-MSRL)"),
    )
    assert alone.rows == (("TowerOfHanoi-v0", "0/5/0", "0/0/20", "-", "17/0/3", "3/0/1, 1 invalid", "20/0/0"),)
    assert pairs.header[5:] == ("us v.s. them", "paper: Qwen2.5 (DFC-MSRL) v.s. Qwen2.5")
    assert pairs.rows == (
        ("TicTacToe-v0", "-", "0/4/16", "-", "11/0/9", "5/2/3, 1 truncated, 1 failed", "19/1/0"),
        ("Nim-v0", "-", "-", "-", "-", "6/0/0", "-"),
    )


def test_table_8_tells_the_seats_apart():
    table = paper_tables.table_8(tournament(), "us", "them")
    assert table.header[1] == "us v.s. them, us as Player 0"
    assert table.header[3] == "us v.s. them, them as Player 0"
    assert table.rows[0] == ("TicTacToe-v0", "4/0/0, 1 truncated, 1 failed", "16/0/4", "1/2/3", "15/0/5")


def row(stage, game, seat, **more):
    names = ("win", "draw", "loss", "truncated", "won_by_forfeit", "lost_by_forfeit", "replies", "steps")
    names += ("illegal_replies", "malformed_replies")
    return {"stage": stage, "game": game, "seat": seat, **dict.fromkeys(names, 0), **more}


def test_table_3_comes_from_a_runs_stages_by_its_groups(tmp_path):
    rows = [
        row("base", "TicTacToe-v0", 0, win=1, loss=1),
        row("base", "TicTacToe-v0", 1, draw=2),
        row("divide g1", "TicTacToe-v0", 0, win=2),
        row("fuse g1+g2", "TicTacToe-v0", 0, win=2, loss=2, lost_by_forfeit=2),
        row("base", "Nim-v0", 0, win=2),
        row("conquer g1+g2", "Nim-v0", 1, truncated=2),
        row("final", "TicTacToe-v0", 0, win=9),
    ]
    (tmp_path / "evaluations.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    groups = {"groups": [{"name": "g1", "games": ["Nim-v0"]}, {"name": "g2", "games": ["TicTacToe-v0"]}]}
    (tmp_path / "groups.json").write_text(json.dumps(groups))
    table = paper_tables.table_3(tmp_path)
    assert table.header == (
        *("group", "paper's group", "game", "base", "paper: base"),
        *("fuse g1+g2", "paper: fuse g1+g2", "conquer g1+g2", "paper: conquer g1+g2"),
    )
    assert table.rows == (
        ("g1", "-", "Nim-v0", "2/0/0", "-", "-", "-", "0/0/0, 2 truncated", "-"),
        ("g2", "g2", "TicTacToe-v0", "1/2/1", "8/2/10", "2/0/0, 2 invalid", "16/1/3", "-", "20/0/0"),
    )


def test_a_run_that_has_measured_nothing_has_no_table_3_and_a_broken_file_is_named(tmp_path):
    assert paper_tables.table_3(tmp_path) is None
    (tmp_path / "evaluations.jsonl").write_text("{")
    with pytest.raises(RunFolderError, match=r"evaluations.jsonl: cannot be read"):
        paper_tables.table_3(tmp_path)
