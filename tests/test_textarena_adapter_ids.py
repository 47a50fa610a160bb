"""Ids, options and faults of games of the textarena package."""

import re
import sys

import pytest
from textarena_turns import OLD, started

from dfc import validation
from dfc.config import DivideFuseConquer
from dfc.games import loading, registry
from dfc.games.adapters import textarena as adapter
from dfc.games.game import Game, Verdict

# ---- ids and options ------------------------------------------------------------------------------------------------


def test_an_unknown_id_is_told_with_the_nearest_one():
    with pytest.raises(ValueError, match=r"no game 'Checker-v0'; did you mean 'Checkers-v0'\?"):
        registry.make("textarena:Checker-v0")
    assert "did you mean 'TicTacToe-v0'" in registry.problems("textarena:tictactoe", {})[0]


def test_variants_that_differ_in_their_texts_only_have_no_id():
    assert not [name for name in adapter.names() if name.endswith(("-raw", "-train"))]
    if not OLD:
        with pytest.raises(ValueError, match="did you mean 'TicTacToe-v0"):
            registry.make("textarena:TicTacToe-v0-train")


def test_games_for_other_numbers_of_players_are_refused():
    with pytest.raises(ValueError, match="cannot be begun here with two players or one") as caught:
        registry.make("textarena:SecretMafia-v0")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        (
            ["\n****\n  Resource 'words' not found.\n  Please fetch it.\n"],
            "): LookupError: Resource 'words' not found.",
        ),
        (["", ""], "): LookupError"),
        (["Needs 3. You gave 2", "Needs 3. You gave 1"], "): LookupError: Needs 3."),
        (["one", "two"], "): with two players, LookupError: one; with one, LookupError: two"),
    ],
)
def test_why_a_game_cannot_be_begun_is_told_once_and_on_one_line(monkeypatch, errors, told):
    left = [*errors, *errors][:2]

    def fail(_):
        raise LookupError(left.pop(0))

    monkeypatch.setattr(adapter, "_make", fail)
    with pytest.raises(ValueError, match="cannot be begun here") as caught:
        adapter._kind.__wrapped__("Chess-v0")
    assert str(caught.value).endswith(told)


def test_who_a_seat_is_is_said_once():
    for name in ("Othello-v0", "TicTacToe-v0", "KuhnPoker-v0"):
        game = started(name)
        for seat in range(2):
            assert len(re.findall(rf"you are player {seat}", game._rules(seat), re.IGNORECASE)) == 1, game._rules(seat)


def test_an_error_while_a_game_begins_discards_it_and_the_next_one_is_played(monkeypatch):
    game = registry.make("textarena:TicTacToe-v0")

    def fail(_):
        raise KeyError("no board\nat all")

    with monkeypatch.context() as broken:
        broken.setattr(adapter, "_make", fail)
        game.reset(0)
    assert game.over
    assert game.to_move is None
    assert game.outcomes == ("truncated", "truncated")
    assert game.discarded == "TicTacToe-v0 of textarena raised KeyError: 'no board\\nat all'"
    game.reset(0)
    assert (game.discarded, game.outcomes) == (None, None)
    assert game.step("[4]") is Verdict.PLAYED


def test_options_are_checked_as_for_every_game():
    assert registry.problems("textarena:TicTacToe-v0", {"talk": 1}) == [
        "textarena:TicTacToe-v0: talk must be of type bool, got 1 of type int"
    ]
    with pytest.raises(ValueError, match="has no option 'bad_option'"):
        registry.make("textarena:TicTacToe-v0", bad_option=1)
    assert registry.kind("textarena:TicTacToe-v0") is registry.kind("textarena:TicTacToe-v0")
    game = registry.make("textarena:TicTacToe-v0")
    assert isinstance(game, Game)
    assert (game.info.seats, game.info.open_actions, game.to_move) == (2, True, None)
    assert game.info.lists_actions is False
    with pytest.raises(ValueError, match="before reset"):
        game.step("[4]")


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch):
    adapter.names.cache_clear()
    adapter._package.cache_clear()
    monkeypatch.setitem(sys.modules, "textarena", None)
    assert registry.problems("textarena:Checkers-v0", {})[0].startswith(
        f"games with the prefix textarena: need the package textarena: {loading.PIP_INSTALL} 'dfc[textarena]', or in a "
        f"clone of the repository {loading.PIP_INSTALL} -e '.[textarena]' ("
    )
    monkeypatch.undo()
    assert "Checkers-v0" in adapter.names()


@pytest.mark.parametrize("strength", ["random_legal", "strong"])
def test_an_opponent_without_a_bot_for_a_game_is_refused_before_a_run(strength):
    games = {"textarena:TicTacToe-v0": {}, "TicTacToe-v0": {}, "textarena:TowerOfHanoi-v0": {}}
    (problem,) = validation.problems(DivideFuseConquer(games=games, opponent=strength))
    assert problem.startswith(f"opponent='{strength}' cannot play textarena:TicTacToe-v0: no ")
