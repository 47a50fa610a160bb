"""Games that players of one process play in turn (`dfc.players.sequential`): verdicts, bounds, what is refused."""

import re

import pytest

from dfc.games import registry
from dfc.games.game import Verdict
from dfc.games.rng import GameRng
from dfc.games.scripted import RandomLegal
from dfc.players import player_specs, sequential
from dfc.players.remote import FunctionPlayer, PlayerError
from dfc.rollout import model_player


def test_a_game_has_to_begin_and_a_function_has_to_be_wrapped_before_it_is_played():
    game = registry.make("TicTacToe-v0")
    with pytest.raises(ValueError, match=r"TicTacToe-v0 has not begun: call reset\(seed\)"):
        sequential.play_sequentially(game, [RandomLegal(), RandomLegal()], GameRng(0))
    game.reset(0)
    with pytest.raises(TypeError, match=r"players\[1\] must be a Remote .* got function; .*FunctionPlayer\(f\)"):
        sequential.play_sequentially(game, [RandomLegal(), lambda _: "[4]"], GameRng(0))


@pytest.mark.parametrize("history", [False, True])
def test_why_a_reply_is_refused_is_known_before_and_after_it(history):
    game = registry.make("TicTacToe-v0", illegal_allowance=0, history=history)
    game.reset(0)
    before = game.to_json()
    assert sequential.refusal(game, 0, "[4]") is None
    assert sequential.refusal(game, 0, "[9]") == "There is no such cell. Try again."
    assert game.to_json() == before
    assert game.step("[9]") is Verdict.FORFEIT_ILLEGAL
    assert sequential.refusal(game, 0, "[9]") == "There is no such cell. Try again."
    assert game.over


def test_players_of_a_game_have_to_be_as_many_as_its_seats():
    game = registry.make("TicTacToe-v0")
    game.reset(0)
    with pytest.raises(ValueError, match="has 2 seats, simulators included; got 1"):
        sequential.play_sequentially(game, [RandomLegal()], GameRng(0))


def test_remote_players_see_their_own_conversation():
    seen = []

    def first_legal(messages):
        seen.append([message["content"] for message in messages])
        taken = {message["content"] for message in messages if message["role"] == "assistant"}
        for message in messages:
            taken.update(re.findall(r"Opponent plays (\[\d\])", message["content"]))
        return next(f"[{cell}]" for cell in range(9) if f"[{cell}]" not in taken)

    game = registry.make("TicTacToe-v0")
    game.reset(0)
    said = sequential.play_sequentially(game, [FunctionPlayer(first_legal), FunctionPlayer(first_legal)], GameRng(0))
    assert game.over
    assert {reply.verdict for reply in said} == {Verdict.PLAYED}
    assert "You are Player 0" in seen[0][0]
    assert "You are Player 1" in seen[1][0]
    assert len(seen[2]) == 3  # rules, own move, news


def test_a_game_without_an_end_is_truncated():
    game = registry.make("TowerOfHanoi-v0")
    game.reset(0)

    class Shuttling:
        def act(self, game, _):
            return game.legal_actions()[0]

    assert len(sequential.play_sequentially(game, [Shuttling()], GameRng(0), most_replies=10)) == 10
    assert game.outcomes == ("truncated",)


def test_illegal_and_unreadable_replies_are_bounded_however_they_take_turns():
    """Up to `malformed_allowance` unreadable replies stand before each illegal one, and before the legal one, too."""

    class Wasteful:
        """Wastes all it may before each of its actions; from action `last` on even the last try."""

        def __init__(self, last):
            self.turns, self.last = 0, last

        def act(self, game, _):
            action, place = divmod(self.turns, 22)  # 10 unreadable, 1 illegal, 10 unreadable, 1 legal
            self.turns += 1
            return "hm" if place not in (10, 21) else "[9]" if place == 10 or action >= self.last else first_free(game)

    def first_free(game):
        return game.legal_actions()[0]

    for last, actions, verdict in ((99, 7, Verdict.PLAYED), (3, 3, Verdict.FORFEIT_ILLEGAL)):
        game = registry.make("TicTacToe-v0", illegal_allowance=1, malformed_allowance=10)
        game.reset(0)
        said = sequential.play_sequentially(game, [Wasteful(last)] * 2, GameRng(0))
        assert (game.actions_played, said[-1].verdict) == (actions, verdict)
        bound = (1 + game.illegal_allowance) * (1 + game.malformed_allowance)
        assert len(said) == bound * (actions + (verdict is not Verdict.PLAYED))  # the bound is reached


def test_a_remote_player_that_fails_is_named():
    def dead(_):
        raise ConnectionError("nobody there")

    game = registry.make("TicTacToe-v0")
    game.reset(0)
    with pytest.raises(PlayerError, match="nobody there"):
        sequential.play_sequentially(game, [FunctionPlayer(dead, retries=0), RandomLegal()], GameRng(0))


def test_a_runs_policy_says_legal_actions_only_if_its_run_did(monkeypatch):
    game = registry.make("Nim-v0")
    for legal_only in (True, False):
        stored = {"recipe": "grpo", "rollout": {"legal_only": legal_only}}
        monkeypatch.setattr(player_specs, "run_config", lambda _, stored=stored: stored)
        player = model_player.load_player("tiny_player", stop=("]",), max_reply_length=8)
        assert player.legal_only == legal_only
        monkeypatch.setattr(game, "legal_actions", lambda: ["[0 2]"])  # the only way to know what it chose among
        replies = set()
        for seed in range(6):
            game.reset(seed)
            replies.add(player.act(game, GameRng(seed)))
        assert (replies == {"[0 2]"}) == legal_only
        player.close()
