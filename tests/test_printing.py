"""What is printed: nothing that drives a terminal, and no end of a run when nobody reads."""

import contextlib
import errno
import io
import os
import subprocess
import sys
import types
import unicodedata
from pathlib import Path

import pytest
from chat_server import fails, says, serving
from rich.file_proxy import FileProxy

from dfc.games.__main__ import main as games_main
from dfc.games.printable import printable
from dfc.launch import play
from dfc.launch.__main__ import main
from dfc.runs.printing import Printed, guarded
from dfc.runs.progress import Progress

ROOT = Path(__file__).resolve().parents[1]
HOSTILE = "\x1b]0;PWNED\x07\x1b[2J\x1b[31m\x9b1m\u202eevil\u2066\u200b\ufeff\r\x00"
GAME = """
from dfc.games.textarena.tic_tac_toe import TicTacToe


class Loud(TicTacToe):
    def observation(self, seat):
        return super().observation(seat) + "\\x1b[2J\\u202e"
"""


def harmless(text):
    return all(unicodedata.category(c) not in {"Cc", "Cf", "Cs"} or c in "\n\t" for c in text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\n[4] é 日本 🙂", "a\tb\n[4] é 日本 🙂"),
        ("\x1b[2J\x07\r\x7f\x9b", r"\x1b[2J\x07\r\x7f\x9b"),
        ("a\u202eb\u2066\u200f\u061c", r"a\u202eb\u2066\u200f\u061c"),
        ("a\u200b\u200d\u2060\ufeff\xad\u3164\u034f", r"a\u200b\u200d\u2060\ufeff\xad\u3164\u034f"),
        ("\u2028\u2029\ud800\U000e0041\U000e0101", r"\u2028\u2029\ud800\U000e0041\U000e0101"),
        ("\u2800\ufffc\U00016fe4\U0001d159", r"\u2800\ufffc\U00016fe4\U0001d159"),
        ("\xa0\u3000", "\xa0\u3000"),  # blanks with a width
    ],
)
def test_what_moves_turns_or_hides_is_written_out_and_the_rest_stays(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown


def test_no_character_of_unicode_that_drives_a_terminal_is_left():
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert harmless(printable(everything))


@pytest.mark.parametrize("game", ["TicTacToe-v0", "SimpleNegotiation-v0", "loud.py:Loud"])
@pytest.mark.parametrize("player", ["person", "random_legal"])
def test_an_opponents_escape_sequences_do_not_reach_the_terminal(tmp_path, capsys, monkeypatch, game, player):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loud.py").write_text(GAME)
    with serving(usual=says(f"[4] [Accept] {HOSTILE}")) as server:
        words = [f"--game={game}", f"--player={player}", f"--opponent={server.url}#m", "--seed=1"]
        play.main(words, io.StringIO("0\n[Accept]\n1\n2\n\x1b[A\nquit\n"))
    out, err = capsys.readouterr()
    assert harmless(out + err)
    if (game, player) != ("loud.py:Loud", "person"):
        assert r"\x1b]0;PWNED\x07" in out


def test_the_error_of_a_server_does_not_reach_the_terminal_as_it_is(capsys):
    with serving(usual=fails(400, {"error": {"message": HOSTILE}})) as server:
        words = ["--game=TicTacToe-v0", "--player=random_legal", "--seat=1", f"--opponent={server.url}#m"]
        assert play.main([*words, '--endpoint={"retries": 0}']) == 1
        assert play.main([*words[:1], *words[2:]], io.StringIO("no\n")) == 1
    out, err = capsys.readouterr()
    assert "PWNED" in err
    assert "PWNED" in out  # the question whether to try again
    assert harmless(out + err)


def test_what_a_configuration_says_does_not_reach_the_terminal_as_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for body in (f"raise ValueError({HOSTILE!r})", f"return DivideFuseConquer(name={HOSTILE!r}, games={{}})"):
        (tmp_path / "c.py").write_text(f"from dfc.config import *\ndef get_config():\n    {body}\n")
        assert main(["--config=c.py"]) == 2
    assert main([f"--config={HOSTILE}"]) == 2
    out, err = capsys.readouterr()
    assert err.count("PWNED") >= 3
    assert harmless(out + err)


def test_what_a_recipe_prints_and_raises_does_not_reach_the_terminal_as_it_is(tmp_path, capsys, monkeypatch):
    def run(*_):
        print(HOSTILE)  # noqa: T201 - as recipes do
        raise OSError(5, HOSTILE, HOSTILE)

    module = types.ModuleType("dfc.methods.divide_fuse_conquer")
    module.run = run
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert main(["--config=configs/smoke.py", f"--workdir={tmp_path}/w"]) == 1
    out, err = capsys.readouterr()
    assert "PWNED" in out
    assert err.count("PWNED") == 2
    assert harmless(out + err)


def test_what_a_games_file_says_does_not_reach_the_terminal_as_it_is(tmp_path, capsys):
    for number, body in enumerate((f"raise ValueError({HOSTILE!r})", GAME)):
        (tmp_path / f"g{number}.py").write_text(body)
        with contextlib.suppress(SystemExit):
            games_main(["--check", f"{tmp_path}/g{number}.py:{HOSTILE}"])
    out, err = capsys.readouterr()
    assert "PWNED" in err
    assert harmless(out + err)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_panel_draws_and_what_it_is_given_does_not():
    terminal = Terminal()
    with Progress(2, output=Printed(terminal)) as progress:
        assert isinstance(sys.stdout._stream, FileProxy)
        print(f"beside the panel \u202e{HOSTILE}")  # noqa: T201 - as recipes do
        progress.update(
            stage=HOSTILE,
            iteration=1,
            iterations=2,
            step=1,
            episodes_per_second=1.0,
            tokens_per_second=1.0,
            win_rates={f"g {HOSTILE}": 0.5},
            warning=f"w {HOSTILE}",
            cost=f"c {HOSTILE}",
        )
    text = terminal.getvalue()
    assert "\x1b[" in text  # the panel's own
    assert "PWNED" in text
    assert not any(harm in text for harm in ("\x1b]0", "\x1b[2J", "\u202e", "\u200b", "\x07"))


# ---- nobody reads ------------------------------------------------------------------------------------------------


class Broken(io.StringIO):
    def __init__(self, number, after=1):
        super().__init__()
        self.number, self.left, self.tries = number, after, 0

    def write(self, text):
        self.tries += 1
        self.left -= 1
        if self.left < 0:
            raise OSError(self.number, os.strerror(self.number))
        return super().write(text)


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
def test_a_stream_without_a_reader_is_tried_once_more_and_then_left_alone(number):
    stream = Broken(number)
    printed = Printed(stream)
    for line in ("one", "two", "three"):
        assert printed.write(line) == len(line)
    printed.writelines(["four", "five"])
    printed.flush()
    printed.finish()
    assert (stream.getvalue(), stream.tries) == ("one", 2)


def test_after_a_full_disk_printing_goes_on():
    stream = Broken(errno.ENOSPC, after=0)
    printed = Printed(stream)
    printed.write("one")
    stream.left = 9
    printed.write("two")
    assert stream.getvalue() == "two"


def test_characters_that_a_stream_cannot_encode_are_written_out():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Printed(stream).write("ü 日\n")
    stream.flush()
    assert stream.buffer.getvalue() == rb"\xfc \u65e5" + b"\n"


def test_a_command_started_without_standard_output_prints_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with guarded():
        print("nobody")  # noqa: T201 - as recipes do
        assert not sys.stdout.isatty()
    assert sys.stdout is None


RUN = """
import sys, types
recipe = types.ModuleType("dfc.methods.divide_fuse_conquer")
def run(config, folder, stop):
    from dfc.runs.progress import Progress
    with Progress(2000, seconds_between_lines=0.0) as progress:
        for step in range(1, 2001):
            progress.update(stage="s", iteration=step, iterations=2000, step=step, episodes_per_second=1.0,
                            tokens_per_second=1.0, win_rates={})
            print("a line that fills the buffer", file=sys.stderr)
    folder.append("metrics", [{"step": step}])
recipe.run = run
sys.modules[recipe.__name__] = recipe
from dfc.launch.__main__ import main
sys.exit(main(["--config=configs/smoke.py", "--workdir=" + sys.argv[1]]))
"""


def test_losing_the_readers_of_both_streams_does_not_end_a_run(tmp_path):
    """Each is a pipe whose reader leaves after the first line; the lines written are more than a pipe holds."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    command = [sys.executable, "-c", RUN, str(tmp_path / "w")]
    with subprocess.Popen(  # noqa: S603 - our own words
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        first = process.stdout.readline()
        process.stdout.close()
        told = process.stderr.readline()
        process.stderr.close()
        code = process.wait(timeout=120)
    assert first.startswith(b"dfc ")
    assert told == b"a line that fills the buffer\n"
    assert code == 0
    assert (tmp_path / "w" / "metrics.jsonl").read_text() == '{"step":2000}\n'


def test_the_end_of_the_interpreter_does_not_complain_about_a_lost_reader():
    """The only line is still in the buffer when the reader has gone: it is written after the program's last word."""
    code = "import sys; from dfc.runs.printing import guarded\nwith guarded():\n    print('x'); input()"
    with subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        process.stdin.write(b"go\n")
        process.stdin.flush()
        told = process.stderr.read()
        assert (process.wait(timeout=60), told) == (0, b"")
