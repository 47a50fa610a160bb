"""Who meets whom in a tournament, and what its records say: counts, ratings, paired tests."""

import collections

import pytest

from dfc.evaluation import pairing, tournament
from dfc.evaluation.statistics import Record
from dfc.report import tournament_page

GAMES = {"TicTacToe-v0": {}, "GuessTheNumber-v0": {"max_turns": 4}}


# ---- who meets whom ------------------------------------------------------------------------------------------------


def test_every_pair_plays_every_deal_in_both_seats_and_every_policy_gets_the_same_deals():
    deals = collections.defaultdict(set)
    for meeting in pairing.meetings(["a", "b", "c"], GAMES):
        for episode_spec in pairing.episode_specs(meeting, 5, seed=7):
            deals[episode_spec.game, episode_spec.group].add(episode_spec.game_seed)
            seats = collections.Counter(pairing.players(meeting, j) for j in pairing.episode_specs(meeting, 5, seed=7))
            if meeting.second is not None:
                assert seats == {(meeting.first, meeting.second): 5, (meeting.second, meeting.first): 5}
    assert {game for game, _ in deals} == set(GAMES)
    assert all(len(seeds) == 1 for seeds in deals.values())
    titles = [m.title for m in pairing.meetings(["a", "b", "c"], GAMES)]
    assert titles == ["a alone", "b alone", "c alone", "a v.s. b", "a v.s. c", "b v.s. c"]


# ---- counts --------------------------------------------------------------------------------------------------------


def record(players, outcomes, deal=0, game="TicTacToe-v0", forfeited_by=None, **more):
    counts = [{"replies": 3, "illegal": 1, "malformed": 0} for _ in players]
    base = {"players": list(players), "outcomes": list(outcomes), "deal": deal, "game": game}
    return base | {"forfeited_by": forfeited_by, "counts": counts, **more}


def test_invalid_truncated_and_failed_games_are_never_among_the_losses():
    found = tournament.of_records(
        ["a", "b"],
        [
            record("ab", ("loss", "win")),
            record("ab", ("invalid", "win"), 1, forfeited_by=0),
            record("ab", ("truncated", "truncated"), 2),
            record("ab", ("truncated", "truncated"), 3, failure="the endpoint is gone"),
            record("ab", ("draw", "draw"), 4),
        ],
    )
    a, b = found.cell("a", "b"), found.cell("b", "a", "TicTacToe-v0", 1)
    assert a.text == "0/1/1, 1 invalid, 1 truncated, 1 failed"
    assert b.text == "2/1/0, 1 truncated, 1 failed"
    assert (b.record.won_by_forfeit, a.record.replies, a.record.illegal_replies) == (1, 12, 4)
    assert (found.ratings["a"].games, found.ratings["a"].points) == (3, 0.5)
    assert (found.ratings_by_rule["a"].games, found.ratings_by_rule["a"].points) == (2, 0.5)
    assert not found.cell("a", "b", seat=1).record.games


def test_an_overrun_is_a_loss_of_its_policy_and_no_result_of_the_other():
    games = [
        record("ab", ("truncated",) * 2, overrun_by=0),
        record("ba", ("win", "loss")),
        record("a", ("win",), game="GuessTheNumber-v0"),
        record("b", ("truncated",), game="GuessTheNumber-v0", overrun_by=0),
    ]
    found = tournament.of_records(["a", "b"], games)
    a, b = found.cell("a", "b", seat=0), found.cell("b", "a", seat=1)
    assert (a.text, a.record.loss, a.record.score.estimate) == ("0/0/0, 1 overrun", 1, 0.0)
    assert (b.text, b.record.decided) == ("0/0/0, 1 truncated", 0)
    assert found.ratings["a"].games == 1
    # Head to head needs both games; alone the one who overran did worse.
    assert [(t.pairing, t.better, t.worse) for t in found.tests] == [("alone", 1, 0)]


def test_a_game_that_failed_and_was_played_again_counts_once():
    found = tournament.of_records(
        "ab",
        [record("ab", ("truncated",) * 2, failure="x"), record("ab", ("win", "loss")), record("ba", ("win", "loss"))],
    )
    assert found.cell("a", "b").text == "1/0/1"


def test_paired_tests_compare_games_of_one_deal():
    games = [
        *(record("ab", ("win", "loss"), d) for d in range(4)),
        *(record("ba", ("loss", "win"), d) for d in range(3)),  # deals 0 to 2: a wins both games
        record("ba", ("win", "loss"), 3),  # deal 3: one each
        record("ab", ("loss", "win"), 4),
        record("ba", ("draw", "draw"), 4),  # deal 4: b has more
        record("ab", ("win", "loss"), 5),  # deal 5: its other game failed
        record("ba", ("truncated",) * 2, 5, failure="x"),
        *(record("a", ("win",), d, "GuessTheNumber-v0") for d in range(3)),
        *(record("b", (o,), d, "GuessTheNumber-v0") for d, o in enumerate(("loss", "draw", "win"))),
        record("ac", ("win", "loss"), 0),
        record("bc", ("draw", "draw"), 0),
        record("ca", ("win", "loss"), 0),
        record("bc", ("win", "loss"), 1),
        record("ac", ("truncated", "truncated"), 1),
    ]
    (head, alone, same, *_) = tournament.paired_tests("abc", games)
    assert (head.pairing, head.better, head.worse, head.ties) == ("head to head", 3, 1, 1)
    assert head.p == pytest.approx(2 * (1 + 4) / 2**4)
    assert (alone.pairing, alone.better, alone.worse, alone.ties) == ("alone", 2, 0, 1)
    assert (same.pairing, same.better, same.worse, same.ties) == ("same opponents", 1, 0, 0)


def test_records_and_cells_are_of_the_seat_they_say():
    line = record("ab", ("win", "invalid"), forfeited_by=1)
    assert tournament.cell_of(line, 0).record == Record(win=1, won_by_forfeit=1, replies=3, illegal_replies=1, steps=3)
    assert tournament.cell_of(line, 1).record == Record(
        loss=1, lost_by_forfeit=1, replies=3, illegal_replies=1, steps=3
    )


def test_what_chance_alone_brings_is_said_for_few_tests_too():
    found = tournament.of_records("ab", [record(players, ("win", "loss")) for players in ("ab", "ba")])
    assert len(found.tests) == 1
    *_, note = tournament_page._tests(found).notes
    assert note == "Number of tests: 1; 0.05 of them, on average, would have a p below 0.05 between equals."


# ---- games of a team -----------------------------------------------------------------------------------------------


def team(players, outcome, deal=0, **more):
    return record(players, (outcome, outcome), deal, "clem_taboo", team=True, **more)


def test_partners_share_an_outcome_and_are_neither_rated_nor_compared_head_to_head():
    games = [
        *(team("ac", "win", deal) for deal in range(6)),
        *(team("bc", "loss", deal) for deal in range(6)),
        *(team("ab", "win", deal) for deal in range(6)),
        *(team("ba", "loss", deal) for deal in range(6)),
        team("ab", "invalid", 6, forfeited_by=1, abort_reason="why"),
    ]
    found = tournament.of_records(["a", "b", "c"], games)
    assert {rating.games for rating in found.ratings.values()} == {0}
    assert {test.pairing for test in found.tests} == {"same opponents"}
    first = found.tests[0]  # beside c, a wins its six deals and b loses them
    assert (first.first, first.second, first.better, first.worse) == ("a", "b", 6, 0)
    for policy, partner, lost in (("a", "b", 7), ("b", "a", 7)):
        record_ = found.cell(policy, partner).record
        assert (record_.win, record_.loss, record_.won_by_forfeit, record_.lost_by_forfeit) == (6, lost, 0, 1)


def test_a_game_of_opponents_is_rated_beside_one_of_a_team():
    games = [team("ab", "win"), record("ab", ("win", "loss"))]
    found = tournament.of_records(["a", "b"], games)
    assert (found.ratings["a"].games, found.ratings["a"].points, found.ratings["b"].points) == (1, 1.0, 0.0)
