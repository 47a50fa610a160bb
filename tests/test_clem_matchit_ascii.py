"""MatchIt: the order of its phases, what wins, who hears what, its pairs of grids, and its players."""

import pytest

from dfc.games import registry, scripted
from dfc.games.dialogue.grids import BLANK, agreeing, split_of, text_of, with_cells
from dfc.games.dialogue.match_it import DIFFERENT, SAME, MatchIt, pairs
from dfc.games.game import UNREADABLE, Outcome, Verdict
from dfc.games.rng import GameRng

SPLITS = {"train": 40, "validation": 40, "test": 40}
WON, LOST, BROKEN_OFF = ((outcome,) * 2 for outcome in (Outcome.WIN, Outcome.LOSS, Outcome.INVALID))
ROUND = [(1, "QUESTION:"), (0, "ANSWER:"), (0, "QUESTION:"), (1, "ANSWER:")]
TALK = [(0, "DESCRIPTION:"), (1, "DESCRIPTION:"), *ROUND * 3]


def started(first=BLANK, second=BLANK, **options):
    game = MatchIt(**options)
    game.reset(0)
    game.grids = (first, second)
    return game


def talked(game):
    for number, (seat, tag) in enumerate(TALK):
        assert (game.to_move, game.tag(seat)) == (seat, tag)
        assert game.step(f"{tag} words {number}") is Verdict.PLAYED
    return game


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("second", [SAME, DIFFERENT])
@pytest.mark.parametrize("first", [SAME, DIFFERENT])
def test_both_must_decide_right(same, second, first):
    game = talked(started(BLANK, BLANK if same else with_cells(BLANK, [(0, 0)], "X")))
    assert "quality" not in game.measures()
    assert game.to_move == 1
    game.step(f"DECISION: {second.upper()}.")
    assert (game.to_move, game.observation(0).count("DECISION:")) == (0, 2)  # both from the question
    game.step(f"DECISION: {first}")
    right = first == second == (SAME if same else DIFFERENT)
    assert (game.outcomes, game.actions_played) == (WON if right else LOST, 16)
    assert game.measures() == {"rounds": 3.0, "quality": 100.0 if right else 0.0}


@pytest.mark.parametrize("turn", range(16))
@pytest.mark.parametrize(
    "reply",
    [
        "words",
        "description: a",
        "{tag}glued",
        "X {tag} a",
        "DECISION: perhaps",
        "DECISION: same grid !",
        "{other} a",
        ":",
    ],
)
def test_a_reply_without_the_form_of_its_phase_loses_and_is_played(turn, reply):
    """clembench's master calls it aborted, its scorer does not: Aborted 0, Lose 1, Main Score 0."""
    game = started()
    for number in range(turn):
        tag = TALK[number][1] if number < 14 else "DECISION:"
        game.step(f"{tag} {SAME}")
    seat, tag = game.to_move, game.tag(0)
    reply = reply.format(tag=tag, other="ANSWER:" if tag == "QUESTION:" else "QUESTION:")
    assert not game.is_action(reply)
    assert all(game.is_action(action) for action in game.legal_actions())
    assert game.step(reply) is Verdict.PLAYED
    assert (game.outcomes, game.lost_by, game.forfeited_by, game.abort_reason) == (LOST, seat, None, None)
    assert game.loss_reason.startswith(UNREADABLE)
    assert tag in game.loss_reason
    assert game.measures()["quality"] == 0.0


@pytest.mark.parametrize("tag", ["DESCRIPTION:", "QUESTION:", "ANSWER:"])
def test_a_tag_alone_is_a_reply(tag):
    game = started()
    while game.tag(0) != tag:
        game.step(f"{game.tag(0)} words")
    seat = game.to_move
    for reply in (tag, f"{tag}\nwords"):
        twin = game.clone()
        assert twin.step(reply) is Verdict.PLAYED
        assert (twin.over, twin.heard(seat, tag)) == (False, [reply.removeprefix(tag).strip()])
    for strength in ("simple", "strong"):
        twin, player = game.clone(), scripted.player(game, strength)
        twin.step(tag)
        while not twin.over:
            assert twin.step(player.act(twin, GameRng(0))) is Verdict.PLAYED
        assert twin.lost_by is None


@pytest.mark.parametrize("turn", range(16))
@pytest.mark.parametrize("reply", ["", " \n", "<think>DESCRIPTION: a"])
def test_a_reply_that_says_nothing_breaks_the_game_off(turn, reply):
    game = started()
    for number in range(turn):
        tag = TALK[number][1] if number < 14 else "DECISION:"
        game.step(f"{tag} {SAME}")
    seat = game.to_move
    assert game.step(reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, seat)
    assert "quality" not in game.measures()


def test_the_second_describes_before_it_reads_the_firsts_description():
    game = started()
    game.step("DESCRIPTION: my secret")
    assert "my secret" not in game.observation(1)
    game.step("DESCRIPTION: yours")
    assert game.observation(1).split("\n")[0] == "Your partner's description: my secret"
    game.step("QUESTION: what?")
    assert game.observation(0).split("\n")[:2] == ["Your partner's description: yours", "QUESTION: what?"]


def test_the_first_does_not_hear_the_seconds_decision():
    seen = []
    for decision in (SAME, DIFFERENT):
        game = talked(started())
        game.step(f"DECISION: {decision}")
        seen.append(game.observation(0))
    assert seen[0] == seen[1]


def test_a_seat_reads_the_same_whatever_the_grid_of_the_other_is():
    other = with_cells(BLANK, [(2, 2)], "X")
    first, second = started(BLANK, BLANK), started(BLANK, other)
    assert text_of(other) in second.observation(1)
    for _, tag in [*TALK, (1, "DECISION:"), (0, "DECISION:")]:
        if first.to_move == 0:
            assert first.observation(0) == second.observation(0)
            for strength in ("simple", "strong"):
                player = scripted.player(first, strength)
                assert player.act(first, GameRng(1)) == player.act(second, GameRng(1))
        assert first.legal_actions() == second.legal_actions()
        for game in (first, second):
            game.step(f"{tag} {SAME}")
    assert (first.outcomes, second.outcomes) == (WON, LOST)


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_the_number_of_rounds_is_the_number_of_questions_of_each(rounds):
    game = started(rounds=rounds)
    while not game.over:
        game.step(game.legal_actions()[0])
    assert game.actions_played == game.max_game_length == 4 + 4 * rounds
    assert len(game.heard(0, "QUESTION:")) == len(game.heard(1, "QUESTION:")) == rounds


# ---- tasks ----------------------------------------------------------------------------------------------------------


def test_half_of_the_pairs_are_the_same_grid_and_the_splits_share_none():
    assert dict(MatchIt.splits) == SPLITS
    assert MatchIt.evaluation_only
    apart = {"same_grid": {0}, "similar_grid_1": {1}, "similar_grid_2": {2}, "different_grid": set(range(10, 26))}
    for split, size in SPLITS.items():
        found = pairs()[split]
        assert len({first for first, _ in found}) == size
        assert {split_of(grid) for pair in found for grid in pair} == {split}
        assert sum(first == second for first, second in found) == size // 2
        for task, pair in enumerate(found):
            game = MatchIt(split=split)
            game.reset(task + size)
            assert game.grids == pair
            assert 25 - agreeing(*pair) in apart[game.experiment]
    assert MatchIt().experiment == ""


# ---- players --------------------------------------------------------------------------------------------------------


def quality_of(first, second):
    total = 0.0
    for task in range(SPLITS["test"]):
        game = registry.make("clem_matchit_ascii", split="test")
        game.reset(task)
        players, rng = [scripted.player(game, strength) for strength in (first, second)], GameRng(task)
        while not game.over:
            game.step(players[game.to_move].act(game, rng))
        total += game.measures()["quality"]
    return total / SPLITS["test"]


def test_players_that_talk_alike_are_right_and_those_who_do_not_are_not_always():
    assert quality_of("strong", "strong") == 100.0
    assert quality_of("simple", "simple") >= 60.0
    assert quality_of("random_legal", "random_legal") < 40.0


def test_the_strong_player_decides_by_what_is_said():
    grid = with_cells(BLANK, [(0, c) for c in range(5)], "X")
    for said, decision in (("the top row is filled with X", SAME), ("X in the first column", DIFFERENT)):
        game = started(grid, grid)
        for seat, tag in TALK:
            game.step(f"{tag} {said if (seat, tag) == (0, 'DESCRIPTION:') else 'who knows'}")
        assert scripted.player(game, "strong").act(game, GameRng(0)) == f"DECISION: {decision}"
