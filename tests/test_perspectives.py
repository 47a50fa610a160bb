"""Perspectives of recorded games against what the games showed while they were played."""

import pytest

from dfc.games import registry, scripted
from dfc.games.game import Game
from dfc.games.replay import ReplayError
from dfc.games.rng import GameRng, derive_seed
from dfc.records.trajectories import Message
from dfc.rows.dialogues import perspective


def played(game_id, seed):
    """A game of random legal players: its record, and by seat what it was shown and said, noted on the way."""
    game: Game = registry.make(game_id)
    game.reset(seed)
    rng = GameRng(derive_seed("perspectives", game_id, seed))
    simulators, replies, seen = scripted.simulators(game), [], []
    while not game.over:
        seat = game.to_move
        shown, aside = game.observation(seat), game.aside
        if seat < game.seats:
            actions = game.legal_actions()
            said, status = actions[rng.randrange(len(actions))], "policy" if seat == 0 else "opponent"
        else:
            said, status = simulators[game.role(seat)].act(game, rng), "simulator"
        seen.append((seat, shown, said, aside))
        replies.append([seat, said, status, *([True, True] if aside else [])])
        game.step(said)
    record = {
        "game": game_id,
        "options": {},
        "seed": seed,
        "replies": replies,
        "outcomes": [str(outcome) for outcome in game.outcomes],
        "forfeited_by": game.forfeited_by,
    }
    return record, seen


@pytest.mark.parametrize("game_id", registry.game_ids())
def test_every_reply_stands_behind_all_that_its_seat_had_seen(game_id):
    record, seen = played(game_id, 3)
    for seat in {seat for seat, *_ in seen}:
        history, expected = [Message("system", "s")], []
        for number, (who, shown, said, aside) in enumerate(seen):
            if who == seat:
                context = (*history, Message("user", shown))
                expected.append((context, said, number))
                history += [] if aside else [Message("user", shown), Message("assistant", said)]
        found = perspective(record, seat, system="s")
        assert [(e.context, e.turn.reply, e.number) for e in found] == expected
        assert found[-1].messages[-1] == Message("assistant", expected[-1][1])
        assert perspective(record, seat)[0].context[0].role == "user"
    assert perspective(record, 99) == []


def test_a_record_that_is_not_true_has_no_perspective():
    record, _ = played("TicTacToe-v0", 0)
    with pytest.raises(ReplayError, match="outcomes"):
        perspective({**record, "outcomes": ["loss", "loss"]}, 0)
