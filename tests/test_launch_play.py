"""``python -m dfc.launch.play``: a person at the prompt, programs, a model in the engine."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import fails, says, serving

from dfc.games import registry
from dfc.games.game import Verdict
from dfc.games.rng import GameRng
from dfc.launch import play
from dfc.players.human import Person, Quit, framed

ROOT = Path(__file__).resolve().parents[1]


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


def test_a_person_describes_or_guesses_by_the_name_of_the_role_and_the_team_wins_or_loses_together():
    words = ("--game=clem_taboo", "--split=test", "--seed=3", "--opponent=strong")
    code, text = run(*words, "--seat=guesser", typed="beach\nGUESS: beach\n")
    assert code == 0
    assert "  | You are the guesser in a word game" in text
    assert "guesser>   | No action could be read. Reply in the form GUESS: .... Try\n" in text.replace(
        ". Try again", ". Try\n"
    )
    assert text.endswith(
        "Over after 2 replies: win for both.\n  rounds: 1\n  quality: 100\nYou and your partner won.\n"
    )
    code, text = run(*words, "--seat=describer", typed="CLUE: a beach\n")
    assert "  | The word: beach" in text
    assert text.endswith("Over after 1 reply: loss for both.\n  rounds: 1\n  quality: 0\nYou and your partner lost.\n")


def test_a_question_mark_lists_what_can_be_played_and_costs_nothing():
    code, text = run("--game=TicTacToe-v0", "--seed=1", "--opponent=strong", typed="?\n\nquit\n")
    assert code == 0
    assert "    [0]  [1]  [2]  [3]  [4]  [5]  [6]  [7]  [8]\n" in text
    assert "examples" not in text
    assert text.count("player 0>") == 3
    assert text.endswith("Left.\n")


def test_a_person_sees_the_board_and_who_won():
    # Free cells from the first on; whoever sits opposite takes one, too, so some lines are refused and cost nothing.
    typed = "".join(f"[{n}]\n" for n in range(9))
    code, text = run("--game=TicTacToe-v0", "--seed=1", "--opponent=strong", typed=typed)
    assert code == 0
    assert "  | . . .\n  | . . .\n  | . . .\n" in text  # before the first reply
    end = text.rpartition("  | Opponent plays")[2] if "Opponent plays" in text else text
    assert re.search(r"(  \| [XO.] [XO.] [XO.]\n){3}", end)
    assert text.splitlines()[-1] in {"You won.", "You lost.", "It is a draw."}
    outcome = re.search(r"seat 0 (\w+)", text)[1]
    assert text.endswith({"win": "You won.\n", "loss": "You lost.\n", "draw": "It is a draw.\n"}[outcome])


def test_a_model_is_not_told_the_board_that_a_person_sees():
    game = registry.make("ConnectFour-v0")
    game.reset(1)
    assert "." not in game.observation(0).splitlines()[-1].split()
    assert game.board_text().count("\n") == 6
    out = io.StringIO()
    with pytest.raises(Quit):
        Person(io.StringIO(""), out).act(game, GameRng(0))
    assert framed(game.board_text()) in out.getvalue()


def test_nobody_sees_a_hidden_board():
    code, text = run("--game=ConnectFour-v0-blind", "--seed=1", typed="[col 3]\nquit\n")
    assert code == 0
    assert ". . ." not in text


def test_without_a_person_the_winner_has_a_name():
    code, text = run("--game=TicTacToe-v0", "--seed=1", "--player=strong", "--opponent=random_legal")
    assert code == 0
    assert text.splitlines()[-1] in {"player 0 won.", "player 1 won.", "It is a draw."}
    assert ("player 0 won." in text) == ("seat 0 win" in text)


def test_the_end_of_the_input_leaves_the_game():
    code, text = run("--game=TicTacToe-v0", "--seed=1", typed="[4]\n")
    assert (code, text.endswith("Left.\n")) == (0, True)


def test_an_interrupt_leaves_the_game():
    class Interrupted(io.StringIO):
        def readline(self, *_):
            raise KeyboardInterrupt

    out = io.StringIO()
    assert play.main(["--game=TicTacToe-v0", "--seed=1"], Interrupted(), out) == 130
    assert out.getvalue().endswith("Left.\n")


@pytest.mark.parametrize("opponent", ["random_legal", "simple", "strong"])
def test_programs_play_each_other_and_what_they_say_is_shown(opponent):
    code, text = run("--game=TicTacToe-v0", "--seed=1", "--player=strong", f"--opponent={opponent}")
    assert code == 0
    assert len(re.findall(r"^player [01]: \[\d\]$", text, re.MULTILINE)) >= 5
    assert "Over after" in text


def test_the_bundled_model_sits_opposite():
    code, text = run("--game=TicTacToe-v0", "--seed=1", "--seat=1", "--player=strong", "--opponent=tiny_player")
    assert code == 0
    assert re.search(r"^player 0: .*\[\d\]$", text, re.MULTILINE)
    assert "Over after" in text


def test_a_model_that_answers_for_the_world_says_the_same_to_the_same_question():
    game = registry.make("twenty_questions", split="test")
    game.reset(3)
    game.step("Is it alive?")
    model = play._player("tiny_player", game, Person(io.StringIO(), io.StringIO()), simulator=True)
    replies = set()
    for seed in range(3):
        replies.add(model.act(game, GameRng(seed)))
        model.close()
    assert len(replies) == 1


def test_a_model_begins_anew_where_the_same_object_plays_another_game():
    game = registry.make("TicTacToe-v0")
    model = play._player("tiny_player", game, Person(io.StringIO(), io.StringIO()))
    conversations = []
    for _ in range(2):
        game.reset(0)
        assert model.act(game, GameRng(1)).endswith("]")
        conversations.append(list(model._transcripts(game)[0].token_ids))
    assert conversations[0] == conversations[1]


# ---- a person's typing errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("game", "typed", "told"),
    [
        ("TicTacToe-v0", "hello\n", "No action could be read. Reply in the form [4]. Try again."),
        ("TicTacToe-v0", "[9]\n", "There is no such cell. Try again."),
        ("TicTacToe-v0", "\x1b[A\n", "A key sent no text (an arrow key?). Type the line again."),
        ("wordle", "[crane]\n", "No action could be read. Reply in the form <Answer>crane</Answer>. Try again."),
        ("twenty_questions", "\x1b[A\n", "A key sent no text"),
    ],
)
def test_a_line_that_cannot_be_played_is_asked_for_again_with_the_reason(game, typed, told):
    code, text = run(f"--game={game}", "--seed=1", typed=5 * typed)
    assert (code, text.endswith("Left.\n")) == (0, True)
    assert " ".join(text.replace("  | ", "").split()).count(told) == 5


def test_a_typing_error_costs_what_the_options_say_if_they_say_anything():
    code, text = run("--game=TicTacToe-v0", "--seed=1", '--options={"malformed_allowance": 1}', typed="no\nnever\n")
    assert code == 0
    assert "player 0 forfeits by a reply that is malformed: 'never'\n  No action could be read." in text
    assert "Over after 2 replies: seat 0 invalid, seat 1 win." in text


@pytest.mark.parametrize(
    ("game", "typed", "played"),
    [
        ("TicTacToe-v0", "4", "[4]"),
        ("ConnectFour-v0", "col 3", "[col 3]"),
        ("wordle", "crane", "<Answer>crane</Answer>"),
        ("battleship", "B3", "<Answer>B3</Answer>"),
        ("LiarsDice-v0", "Bid: 2, 4", "[Bid: 2, 4]"),
        ("SimpleNegotiation-v0", "Hello there", "Hello there"),
        ("TicTacToe-v0", "I take [4]", "I take [4]"),
    ],
)
def test_a_bare_action_gets_what_the_grammar_wants_around_it(game, typed, played):
    game = registry.make(game)
    game.reset(1)
    out = io.StringIO()
    reply = Person(io.StringIO(f"{typed}\n"), out).act(game, GameRng(0))
    assert reply == played
    assert game.step(reply) is Verdict.PLAYED


@pytest.mark.parametrize("said", ["I resign.", "[9]"])
def test_who_forfeits_is_told_with_the_reply_and_the_reason(said):
    with serving(usual=says(said + " " * 300 + "x")) as server:
        words = ("--game=TicTacToe-v0", "--seed=1", "--seat=1", f"--opponent={server.url}#m")
        code, text = run(*words, "--player=random_legal", '--options={"illegal_allowance": 0}')
    assert code == 0
    kind, why = {
        "I resign.": ("malformed", "No action could be read. Reply in the form [4]."),
        "[9]": ("illegal", "There is no such cell."),
    }[said]
    shown = (said + " " * 300)[:200]
    assert f"player 0 forfeits by a reply that is {kind}: {shown!r}...\n  {why}\n" in text


# ---- who plays ---------------------------------------------------------------------------------------------------


@pytest.fixture
def race(tmp_path):
    guide = (ROOT / "docs" / "add_a_game.md").read_text()
    path = tmp_path / "race.py"
    path.write_text(re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1])
    return path


def test_a_game_in_a_file_is_played_against_the_best_program_there_is(race):
    code, text = run(f"--game={race}:Race", "--seed=1", '--options={"target": 4}', typed="3\n")
    assert code == 0
    assert "No scripted player plays Race better than random_legal, so that is the opposite player.\n" in text
    assert "Over after 2 replies: seat 0 win, seat 1 loss.\n" in text


def test_a_game_without_a_list_of_actions_is_refused_with_what_works(race, capsys):
    race.write_text(race.read_text().replace("    grammar: ", "    lists_actions = False\n    grammar: "))
    assert run(f"--game={race}:Race")[0] == 2
    assert "no legal actions, so no scripted player can play it; choose person, tiny_player" in capsys.readouterr().err
    code, text = run(f"--game={race}:Race", "--opponent=person", "--seed=1", typed="3\n3\n")
    assert (code, text.count("player 1>")) == (0, 1)


def test_a_task_is_named_by_its_number():
    assert (
        "wordle, seed 805 (task 5 of the 800 in test, counted from 0)\n"
        in run("--game=wordle", "--split=test", "--seed=805")[1]
    )


# ---- endpoints ---------------------------------------------------------------------------------------------------


def test_a_person_is_told_who_is_waited_for_and_may_try_again(monkeypatch):
    monkeypatch.setattr(play, "_FIRST_WAIT", 0.05)
    monkeypatch.setattr(play, "_NEXT_WAIT", 0.1)
    with serving(fails(400), says("[0]", after=0.4), fails(400)) as server:
        words = ("--game=TicTacToe-v0", "--seed=1", "--seat=1", f"--opponent={server.url}#slow")
        code, text = run(*words, typed="what\ny\n4\nno\n")
    assert code == 1
    assert text.count("Try again? (yes or no)") == 3
    assert text.count("waiting for slow ...\n") >= 2
    assert "Opponent plays [0]." in text


def test_nobody_is_asked_where_nobody_watches(capsys):
    with serving(usual=fails(400)) as server:
        code, text = run("--game=TicTacToe-v0", "--player=strong", f"--opponent={server.url}#m", typed="yes\nyes\n")
    assert (code, "again" in text) == (1, False)
    assert "the server does not take the request" in capsys.readouterr().err


def test_settings_of_an_endpoint_are_its_configuration(capsys):
    with serving(usual=says("[0]")) as server:
        words = ("--game=TicTacToe-v0", "--seed=1", "--seat=1", f"--opponent={server.url}#m")
        run(*words, '--endpoint={"max_tokens": 7, "temperature": 0.5}')
        assert (server.bodies[0]["max_tokens"], server.bodies[0]["temperature"]) == (7, 0.5)
        assert run(*words, '--endpoint={"timeout": -1}')[0] == 2
        assert "endpoint.timeout=-1: must be above 0" in capsys.readouterr().err
        assert run(*words, '--endpoint={"time_out": 1}')[0] == 2
        assert "endpoint.time_out: there is no such setting; did you mean 'timeout'?" in capsys.readouterr().err


def test_a_discarded_game_is_no_success_and_shows_what_was_of_no_use():
    with serving(usual=says("perhaps " * 60)) as server:
        words = ("--game=twenty_questions", "--seed=3", f"--judge={server.url}#m")
        code, text = run(*words, typed="Is it alive?\n")
    assert code == 1
    assert re.search(r"The game was discarded: the judge gave 5 replies in a row.*[^.]\.\n", text)
    assert f"  The judge's last reply: {('perhaps ' * 60)[:200]!r}...\n" in text
    assert "Over after 1 reply: seat 0 truncated.\n" in text


# ---- what is shown -----------------------------------------------------------------------------------------------


def test_simulators_have_no_number_and_a_person_can_be_one():
    words = ("--game=twenty_questions", "--seed=3", "--world=person", "--judge=person")
    text = run(*words, typed="Is it alive?\nI will not say.\nYes.\n<NOTVALID>\n")[1]
    assert "player 0> " in text
    assert text.count("\nworld> ") + text.count(" world> ") >= 1
    assert "judge> " in text


def test_long_lines_are_broken_between_words_and_boards_are_not(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    rules = "word " * 40
    shown = framed(f"{rules}\n\n 0 | 1 | 2 ").split("\n")
    assert max(map(len, shown)) <= 50
    assert shown[-2:] == ["  |", "  |  0 | 1 | 2 "]
    assert " ".join(line[4:] for line in shown[:-2]).split() == rules.split()


def test_examples_are_called_so_where_more_can_be_said():
    text = run("--game=mastermind", "--seed=1", typed="?\n")[1]
    assert "... and 9" in text
    assert "These are examples, more can be said." in text


def test_a_model_brings_no_advice_of_other_packages():
    hide = (
        "import importlib.util as u, sys; real = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'torch' else real(name, *more)\n"
    )
    use = (
        "from dfc.models.chat import ChatTokenizer; from dfc.models.huggingface import resolve\n"
        "ChatTokenizer.load(resolve('tiny_player'))"
    )
    told = {}
    for what in ("import transformers", use):
        command = [sys.executable, "-c", hide + what]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own
        told[what] = done.stderr
    assert "PyTorch was not found" in told["import transformers"]
    assert told[use] == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--game=TicTacTo-v0"], "did you mean 'TicTacToe-v0'"),
        (["--game=TicTacToe-v0", "--seat=2"], "has seats 0 to 1"),
        (["--game=TicTacToe-v0", "--seat=guesser"], "there is no role 'guesser' of a player; its players have no"),
        (["--game=clem_taboo", "--seat=critic"], "its roles are describer, guesser"),
        (["--game=TicTacToe-v0", "--options=3"], "expected an object"),
        (["--game=TicTacToe-v0", "--options={"], "no JSON"),
        (["--game=TicTacToe-v0", "--split=test"], "has no option 'split'"),
        (["--game=TicTacToe-v0", "--seed=-1"], "expected a number from 0"),
        (["--game=TicTacToe-v0", "--opponent=http://127.0.0.1:1/v1"], "name the model after a #"),
        (["--game=TicTacToe-v0", "--opponent=stong"], "did you mean 'strong'? It must be random_legal, simple, strong"),
        (["--game=TicTacToe-v0", "--opponent=127.0.0.1:9/v1#m"], "did you mean 'http://127.0.0.1:9/v1#m'?"),
        (["--game=wordle", "--opponent=simple"], "wordle has one player and no opposite seat"),
        (["--game=wordle", "--world=script"], "wordle has no world; no simulator answers for its world"),
        (
            ["--game=twenty_questions", "--judge=strong"],
            "must be script, person, tiny_player, a folder with w",
        ),
        (["--game=TicTacToe-v0", "--key_variable=K"], "--key_variable: no endpoint plays"),
        (["--game=TicTacToe-v0", '--endpoint={"timeout": 3}'], "--endpoint: no endpoint plays"),
        (["--game=nowhere.py:Race"], "nowhere.py"),
        (
            [
                "--game=TicTacToe-v0",
                "--key_variable=K",
                "--player=http://127.0.0.1:1/v1#a",
                "--opponent=https://example.org/v1#b",
            ],
            "--key_variable=K: a key is for one server, but there are ['127.0.0.1:1', 'example.org']",
        ),
    ],
)
def test_a_wrong_word_is_answered_with_its_cure(words, said, capsys):
    assert run(*words)[0] == 2
    assert said in capsys.readouterr().err


def test_a_person_is_greeted_once():
    out = io.StringIO()
    person = Person(io.StringIO("[0]\n[1]\n"), out)
    game = registry.make("TicTacToe-v0")
    game.reset(0)
    for _ in range(2):
        game.step(person.act(game, GameRng(0)))
        game.step(game.legal_actions()[-1])
    assert out.getvalue().count("quit ends the game") == 1
