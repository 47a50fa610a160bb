"""Recorded games are played again by the rules, and what contradicts them is refused."""

import pytest
from run_files import play

from dfc.configs.tiny_player import GAME_IDS
from dfc.games import registry
from dfc.games.replay import ReplayError, replay


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_a_recorded_game_plays_again_to_the_same_end(game_id):
    for seed in (3, 2**62 + 5):
        record = play(game_id, seed)
        turns = list(replay(record))
        assert [[t.seat, t.reply, t.status] for t in turns] == record["replies"]
        game = registry.make(game_id)
        game.reset(seed)
        for turn in turns:
            assert turn.observation == game.observation(turn.seat)
            assert turn.verdict == game.step(turn.reply)
        assert game.over


def test_a_replayed_forfeit_and_a_replaced_action_are_marked():
    record = play("TicTacToe-v0", 1, replies=["[4]", "[4]", "I resign"])
    record["replies"][0][2] = "replaced"
    turns = list(replay(record))
    assert [str(t.verdict) for t in turns] == ["played", "illegal", "forfeit_malformed"]
    assert [t.status for t in turns] == ["replaced", "opponent", "opponent"]
    assert record["outcomes"] == ["win", "invalid"]


def test_a_truncated_game_plays_again():
    record = play("TicTacToe-v0", 1, longest=3)
    assert record["outcomes"] == ["truncated", "truncated"]
    assert len(list(replay(record))) == 3


def test_options_of_a_record_are_used():
    record = play("GuessTheNumber-v0", 5, options={"max_number": 7})
    list(replay(record))
    with pytest.raises(ReplayError):
        list(replay(record | {"options": {"max_turns": 1}}))


def tampered(record):
    replies, outcomes = record["replies"], record["outcomes"]
    moves = sorted(f"[{cell}]" for cell in range(9) if f"[{cell}]" != replies[0][1])
    yield {"replies": [[0, moves[0], "policy"], *replies[1:]]}, "TicTacToe-v0"
    yield {"outcomes": outcomes[::-1]}, r"ended with outcomes .* is recorded"
    yield {"replies": replies[:-1]}, "not over after all"
    yield {"replies": [*replies, [0, "[1]", "policy"]]}, "over after"
    yield {"replies": [[1, *replies[0][1:]], *replies[1:]]}, "recorded from seat 1, but seat 0 moves"
    yield {"forfeited_by": 1}, "forfeited by seat None, but 1 is recorded"
    yield {"replies": [[0, "[1]", "me"]]}, "reply 0: expected"
    yield {"game": "TicTacToe-v9"}, "cannot make 'TicTacToe-v9'"
    yield {"options": {"size": 4}}, "cannot make 'TicTacToe-v0'"
    yield {"options": 3}, "options to be an object"


def test_a_tampered_record_is_refused():
    record = next(r for r in (play("TicTacToe-v0", s) for s in range(50)) if r["outcomes"] == ["win", "loss"])
    list(replay(record))
    for change, message in tampered(record):
        with pytest.raises(ReplayError, match=message):
            list(replay(record | change))
    with pytest.raises(ReplayError, match="lacks seed"):
        list(replay({key: value for key, value in record.items() if key != "seed"}))
