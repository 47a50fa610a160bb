"""The end of every registered game: forfeits by malformed replies, truncation, wrong use."""

import json
import random

import pytest
from game_turns import started
from random_games import GAME_IDS, TWO_SEATS, play_random, reply_of

from dfc.games import registry
from dfc.games.conformance.replies import malformed_replies
from dfc.games.game import Verdict

# ---- invalid replies ----------------------------------------------------------------------------------------------


READS_NUMBERS = {"TicTacToe-v0", "ConnectFour-v0", "GuessTheNumber-v0", "Nim-v0", "LiarsDice-v0", "TowerOfHanoi-v0"}


def forfeited(game, seat):
    """The outcomes of a game that a seat forfeited: a team shares them."""
    return tuple("invalid" if game.team or s == seat else "win" for s in range(game.seats))


@pytest.mark.parametrize("game_id", GAME_IDS)
@pytest.mark.parametrize("allowance", [0, 1])
def test_a_reply_without_one_readable_action_forfeits_at_once(game_id, allowance):
    start = started(game_id, illegal_allowance=allowance)
    numbers = ["[x y z]", "[-1]", "[1.5]", "[\u0663]", "[\u00b2]"]  # the last two are digits, but none of ours
    for reply in malformed_replies(start) + (numbers if game_id in READS_NUMBERS else []):
        game = start.clone()
        seat = game.to_move
        for _ in range(game.allowances(seat)[1]):  # none, but in a phase of a game that has them
            game.step(reply)
        assert game.step(reply) is Verdict.FORFEIT_MALFORMED, reply
        assert game.forfeited_by == seat
        assert game.outcomes == forfeited(game, seat)
        assert game.illegal_tries == [0] * game.seats
        assert game.actions_played == 0


@pytest.mark.parametrize("game_id", TWO_SEATS)
def test_either_seat_forfeits_by_a_malformed_reply(game_id):
    game = started(game_id)
    rng = random.Random(0)
    forfeits = set()
    while not game.over and len(forfeits) < 2:
        twin, seat = game.clone(), game.to_move
        if seat < game.seats:
            for _ in range(twin.allowances(seat)[1]):
                twin.step("")
            assert twin.step("") is Verdict.FORFEIT_MALFORMED
            assert twin.outcomes == forfeited(twin, seat)
            forfeits.add(seat)
        game.step(reply_of(game, rng))
    assert forfeits == {0, 1}


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_malformed_replies_are_asked_again_as_often_as_allowed(game_id):
    game = started(game_id, malformed_allowance=2)
    seat, legal = game.to_move, game.legal_actions()
    assert game.allowances(seat)[1] >= 2
    for _ in range(game.allowances(seat)[1]):
        assert game.step("") is Verdict.MALFORMED
        assert (game.to_move, game.legal_actions(), game.actions_played) == (seat, legal, 0)
        assert game.observation(seat).endswith(" Try again.")
        assert game._form() in game.observation(seat)
        if game.free_layout:
            continue
        rules = "player" in game.stateless_roles  # that begin every conversation of its own
        assert game.observation(seat).count("\n") == rules
    twin = game.clone()
    assert twin.step("") is Verdict.FORFEIT_MALFORMED
    assert twin.outcomes[seat] == "invalid"
    assert game.step(legal[0]) is Verdict.PLAYED
    if not game.over and game.to_move < game.seats:
        assert game.step("") is Verdict.MALFORMED  # the row begins anew


# ---- the end from outside, and wrong use --------------------------------------------------------------------------


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_truncation_ends_a_running_game_without_a_winner(game_id):
    game = started(game_id)
    game.step(game.legal_actions()[-1])
    if not game.over:
        game.truncate()
        assert game.outcomes == ("truncated",) * game.seats
    assert game.over
    assert game.to_move is None
    assert game.legal_actions() == []
    assert game.forfeited_by is None
    with pytest.raises(ValueError, match="check `over` first"):
        game.step("[0]")


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_truncation_changes_nothing_after_the_end(game_id):
    game = started(game_id)
    for _ in play_random(game, random.Random(0)):
        pass
    outcomes = game.outcomes
    game.truncate()
    assert game.outcomes == outcomes


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_a_step_before_the_start_or_after_the_end_raises(game_id):
    game = registry.make(game_id)
    assert not game.over
    assert game.to_move is None
    assert game.legal_actions() == []
    with pytest.raises(ValueError, match=rf"{game_id}: step\(\) after the end or before reset\(\)"):
        game.step("[0]")
    game.reset(0)
    while not game.over:  # some phases allow several tries
        game.step("")
    before = json.dumps(game.to_json())
    with pytest.raises(ValueError, match=rf"{game_id}: step\(\) after the end"):
        game.step("[0]")
    assert json.dumps(game.to_json()) == before


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_a_negative_allowance_is_refused(game_id):
    for name in ("illegal_allowance", "malformed_allowance"):
        with pytest.raises(ValueError, match=f"{name} must be 0 or more, got -1"):
            type(registry.make(game_id))(**{name: -1})
