"""``python -m dfc.launch.play``: a person in the terminal, programs, a model in the engine."""

import io
import re

import pytest

from dfc.games import registry
from dfc.games.chance import Chance
from dfc.games.game import Verdict
from dfc.games.scripted import RandomLegal
from dfc.launch import play
from dfc.players import rounds
from dfc.players.person import Person
from dfc.players.remote import PlayerError, Remote


def run(*words, typed=""):
    out = io.StringIO()
    return play.main(words, io.StringIO(typed), out), out.getvalue()


def test_a_person_plays_a_whole_game():
    typed = "".join(f"[{n}]\n" for n in range(1, 21))
    code, text = run("--game=GuessTheNumber-v0", "--seed=3", '--options={"max_turns": 20}', typed=typed)
    assert code == 0
    assert "GuessTheNumber-v0, seed 3" in text
    assert "  | Guess the number between 1 and 20" in text
    assert "  | The target is higher." in text
    assert re.search(r"Over after \d+ replies: seat 0 win\.", text)


def test_a_question_mark_lists_what_can_be_played_and_costs_nothing():
    code, text = run("--game=TicTacToe-v0", "--seed=1", "--opponent=strong", typed="?\n\nquit\n")
    assert code == 0
    assert "    [8]" in text
    assert text.count("player 0>") == 3
    assert text.endswith("Left.\n")


def test_the_end_of_the_input_leaves_the_game():
    code, text = run("--game=TicTacToe-v0", "--seed=1", typed="[4]\n")
    assert (code, text.endswith("Left.\n")) == (0, True)


@pytest.mark.parametrize("opponent", ["random_legal", "simple", "strong"])
def test_programs_play_each_other_and_what_they_say_is_shown(opponent):
    code, text = run("--game=TicTacToe-v0", "--seed=1", "--player=strong", f"--opponent={opponent}")
    assert code == 0
    assert len(re.findall(r"^player [01]: \[\d\]$", text, re.MULTILINE)) >= 5
    assert "Over after" in text


def test_the_model_in_the_box_sits_opposite():
    code, text = run("--game=TicTacToe-v0", "--seed=1", "--seat=1", "--player=strong", "--opponent=tiny_player")
    assert code == 0
    assert re.search(r"^player 0: .*\[\d\]$", text, re.MULTILINE)
    assert "Over after" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--game=TicTacTo-v0"], "did you mean 'TicTacToe-v0'"),
        (["--game=TicTacToe-v0", "--seat=2"], "has seats 0 to 1"),
        (["--game=TicTacToe-v0", "--options=3"], "expected an object"),
        (["--game=TicTacToe-v0", "--options={"], "no JSON"),
        (["--game=TicTacToe-v0", "--split=test"], "has no option 'split'"),
        (["--game=TicTacToe-v0", "--seed=-1"], "expected a number from 0"),
        (["--game=TicTacToe-v0", "--opponent=http://127.0.0.1:1/v1"], "name the model behind a #"),
    ],
)
def test_a_wrong_word_is_answered_with_its_cure(words, said, capsys):
    assert run(*words)[0] == 2
    assert said in capsys.readouterr().err


def test_players_of_a_game_have_to_be_as_many_as_its_seats():
    game = registry.make("TicTacToe-v0")
    game.reset(0)
    with pytest.raises(ValueError, match="has 2 seats, staff included; got 1"):
        rounds.play_out(game, [RandomLegal()], Chance(0))


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
    said = rounds.play_out(game, [Remote(first_legal), Remote(first_legal)], Chance(0))
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

    assert len(rounds.play_out(game, [Shuttling()], Chance(0), most_replies=10)) == 10
    assert game.outcomes == ("truncated",)


def test_a_remote_player_that_fails_is_named():
    def dead(_):
        raise ConnectionError("nobody there")

    game = registry.make("TicTacToe-v0")
    game.reset(0)
    with pytest.raises(PlayerError, match="nobody there"):
        rounds.play_out(game, [Remote(dead, retries=0), RandomLegal()], Chance(0))


def test_a_person_is_greeted_once():
    out = io.StringIO()
    person = Person(io.StringIO("[0]\n[1]\n"), out)
    game = registry.make("TicTacToe-v0")
    game.reset(0)
    for _ in range(2):
        game.step(person.act(game, Chance(0)))
        game.step(game.legal_actions()[-1])
    assert out.getvalue().count("quit ends the game") == 1
