"""Who plays what: seats, seeds, counts."""

import collections
import dataclasses

import pytest

from dfc.episodes import Episode, PlayedReply
from dfc.evaluation import matches
from dfc.evaluation.statistics import Record
from dfc.samples import Sample

GAMES = {"TicTacToe-v0": {"show_board": True}, "GuessTheNumber-v0": {"max_turns": 4}, "Nim-v0": {}}


def episode(seat=0, outcomes=("win", "loss"), speakers="po", game="TicTacToe-v0", **values):
    """A finished game; `speakers` lists who gave each reply: p(olicy), o(pponent), r(eplaced)."""
    names = {"p": "policy", "o": "opponent", "r": "replaced"}
    replies = [PlayedReply(1 - seat if c == "o" else seat, "[1]", names[c]) for c in speakers]
    base = {"options": {}, "game_seed": 0, "opponent": "initial", "group": 0, "forfeited_by": None}
    base |= {
        "illegal_tries": 0,
        "malformed": False,
        "policy_version": 0,
        "sample": Sample.empty(),
        "replies": replies,
    }
    return Episode(**(base | {"game": game, "seat": seat, "outcomes": outcomes} | values))


def test_seats_alternate_and_single_player_games_keep_theirs():
    specs = matches.match_specs(GAMES, 5, seed=3, purpose="final")
    seats = collections.defaultdict(list)
    for spec in specs:
        seats[spec.game].append(spec.seat)
        assert spec.options == GAMES[spec.game]
        assert spec.random_action_rate == 0
    assert dict(seats) == {
        "TicTacToe-v0": [0, 1, 0, 1, 0],
        "GuessTheNumber-v0": [0, 0, 0, 0, 0],
        "Nim-v0": [0, 1, 0, 1, 0],
    }


def test_no_two_games_share_a_seed_whatever_the_purpose_or_the_run():
    found = [
        seed
        for run in (0, 1)
        for purpose in ("grouping", "accept divide g1 0", "accept divide g1 1", "final initial")
        for spec in matches.match_specs(GAMES, 40, seed=run, purpose=purpose)
        for seed in (spec.game_seed, spec.seed)
    ]
    assert len(found) == 2 * 4 * 3 * 40 * 2
    assert len(set(found)) == len(found)


def test_a_match_can_be_repeated_and_a_longer_one_begins_with_the_shorter():
    short, long = (matches.match_specs({"Nim-v0": {}}, n, seed=1, purpose="x") for n in (4, 9))
    assert long[:4] == short
    alone = [spec for spec in matches.match_specs(GAMES, 4, seed=1, purpose="x") if spec.game == "Nim-v0"]
    assert alone == short  # which other games are played does not matter


CASES = {
    "win": (episode(), Record(win=1, replies=1, steps=1)),
    "draw": (episode(1, ("draw", "draw"), "opop"), Record(draw=1, replies=2, steps=2)),
    "loss": (episode(1, ("win", "loss"), "opo"), Record(loss=1, replies=1, steps=1)),
    "truncated": (episode(0, ("truncated",) * 2, "ppp"), Record(truncated=1, replies=3, steps=3)),
    "overrun": (
        episode(1, ("truncated",) * 2, "opp", overrun_by=1),
        Record(loss=1, lost_by_overrun=1, replies=2, steps=2),
    ),
    "stopped by the other's overrun": (
        episode(0, ("truncated",) * 2, "po", overrun_by=1),
        Record(truncated=1, replies=1, steps=1),
    ),
    "malformed": (
        episode(0, ("invalid", "win"), "pop", forfeited_by=0, malformed=True),
        Record(loss=1, lost_by_forfeit=1, replies=2, malformed_replies=1, steps=2),
    ),
    "illegal": (
        episode(1, ("win", "invalid"), "opp", forfeited_by=1, illegal_tries=2),
        Record(loss=1, lost_by_forfeit=1, replies=2, illegal_replies=2, steps=2),
    ),
    "won by forfeit": (
        episode(0, ("win", "invalid"), "poo", forfeited_by=1),
        Record(win=1, won_by_forfeit=1, replies=1, steps=1),
    ),
    "won before the first turn": (
        episode(1, ("invalid", "win"), "o", forfeited_by=0),
        Record(win=1, won_by_forfeit=1),
    ),
    "forgiven": (
        episode(0, ("win", "loss"), "ppo", illegal_tries=1),
        Record(win=1, replies=2, illegal_replies=1, steps=2),
    ),
    "replaced": (episode(0, ("loss", "win"), "rop", illegal_tries=0), Record(loss=1, replies=1, steps=2)),
    "alone": (episode(0, ("win",), "pp", game="GuessTheNumber-v0"), Record(win=1, replies=2, steps=2)),
}


@pytest.mark.parametrize(("played", "record"), CASES.values(), ids=CASES.keys())
def test_every_end_is_counted_for_the_policys_seat(played, record):
    assert matches.record_of(played) == record


def test_counts_add_up_by_game_and_seat():
    played = [played for played, _ in CASES.values()]
    counts = matches.tally(played)
    assert set(counts) == {("TicTacToe-v0", 0), ("TicTacToe-v0", 1), ("GuessTheNumber-v0", 0)}
    assert counts["TicTacToe-v0", 1] == Record(
        win=1,
        draw=1,
        loss=3,
        won_by_forfeit=1,
        lost_by_forfeit=1,
        replies=7,
        illegal_replies=2,
        steps=7,
        lost_by_overrun=1,
    )
    games = matches.by_game(counts)
    assert list(games) == ["TicTacToe-v0", "GuessTheNumber-v0"]
    assert games["TicTacToe-v0"].games == len(played) - 1
    assert games["TicTacToe-v0"] == counts["TicTacToe-v0", 0] + counts["TicTacToe-v0", 1]
    assert matches.tally([]) == matches.by_game({}) == {}


def test_rows_can_be_read_back():
    games = [played for played, _ in CASES.values()]
    broken = [dataclasses.replace(games[0], failure=f"cause {n}", seat=1) for n in range(2)]
    counts = matches.tally(games)
    rows = matches.evaluation_rows([*games, *broken], stage="final", policy="initial", opponent="random_legal")
    assert [(row["game"], row["seat"]) for row in rows] == sorted({*counts, (broken[0].game, 1)})
    assert [(row["failed"], row["first_failure"]) for row in rows if row["failed"]] == [(2, "cause 0")]
    for row in rows:
        if (row["game"], row["seat"]) not in counts:
            assert row["games"] == 0
            continue
        assert Record.from_json(row) == counts[row["game"], row["seat"]]
        assert row["games"] == row["win"] + row["draw"] + row["loss"] + row["truncated"]
        assert (row["stage"], row["policy"], row["opponent"]) == ("final", "initial", "random_legal")
