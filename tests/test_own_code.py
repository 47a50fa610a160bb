"""Code of one's own that calls sys.exit ends a command as an error that names it, never as if all were done."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dfc
from dfc import own_code
from dfc.config import RolloutConfig
from dfc.errors import ExitError
from dfc.games import registry
from dfc.games.conformance import check
from dfc.games.scripted import RandomLegal
from dfc.launch import __main__ as command
from dfc.launch import play, start
from dfc.report import live_report
from dfc.rollout.match import EpisodeSpec
from dfc.rollout.sequential_match import play_episode

GAME = Path(__file__).parent / "sound_games.py"

METHOD = '''"""A method that leaves."""
import dataclasses, sys
from dfc.config import Grpo, RolloutConfig

@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaves(Grpo, recipe="leaves", module=__file__):
    """Leaves."""

def loss():
    sys.exit(0)

def run(config, folder, stop):
    """Runs the recipe."""
    loss()

def get_config():
    """Returns the configuration."""
    return Leaves(name="leaves", games={"Nim-v0": {}}, rollout=RolloutConfig(max_reply_length=6, legal_only=True))
'''


def leaves(*_, **__):
    sys.exit(0)


@pytest.fixture
def leaving(tmp_path):
    """A file with a game whose methods leave."""
    path = tmp_path / "leaving.py"
    path.write_text(
        f"import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('sound_for_leaving', {str(GAME)!r})\n"
        "sound = importlib.util.module_from_spec(spec)\n"
        "sys.modules[spec.name] = sound\n"
        "spec.loader.exec_module(sound)\n"
        "class Plays(sound.Countdown):\n    def _play(self, action):\n        sys.exit(0)\n"
        "class Made(sound.Countdown):\n    def __init__(self, **options):\n        sys.exit(0)\n"
    )
    return path


@pytest.mark.parametrize(
    ("code", "called"), [(0, "sys.exit(0)"), (None, "sys.exit()"), ("no data", "sys.exit('no data')")]
)
def test_an_exit_is_an_error_with_its_code_and_place(code, called):
    with pytest.raises(ExitError) as caught, own_code.no_exit("reward.function='r.py:f'"):
        sys.exit(code)
    said = str(caught.value)
    assert said.startswith(f"reward.function='r.py:f' called {called} ({__file__}:")
    assert "in test_an_exit_is_an_error_with_its_code_and_place); a run ends when its work is done" in said


def test_the_innermost_name_counts_and_other_errors_pass():
    with pytest.raises(ExitError, match=r"^inner called"), own_code.no_exit("outer"), own_code.no_exit("inner"):
        sys.exit(0)
    for error in (KeyboardInterrupt, KeyError):
        with pytest.raises(error), own_code.no_exit("it"):
            raise error


def test_a_method_that_exits_ends_the_process_with_1(tmp_path):
    (tmp_path / "method.py").write_text(METHOD)
    words = [sys.executable, "-m", "dfc.launch", "--config=method.py", f"--workdir={tmp_path / 'run'}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603 - our own text
    assert done.returncode == 1, done.stderr
    said = f"error: the method method.py:run called sys.exit(0) ({tmp_path / 'method.py'}:10 in loss);"
    assert said in done.stderr
    assert not (tmp_path / "run" / "finished.json").exists()


def test_what_a_method_raises_is_shown_with_its_place_and_without_keys(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WEATHER_API_KEY", "sunny-4711-days")

    def asks(*_, **__):
        raise LookupError(f"401 for {os.environ['WEATHER_API_KEY']}")

    monkeypatch.setattr(command.start, "run_in", asks)
    assert command.main(["--config=configs/smoke.py", f"--workdir={tmp_path / 'run'}"]) == 1
    said = capsys.readouterr().err
    assert "LookupError: 401 for <key>\n" in said
    assert f'File "{__file__}", line' in said
    assert "4711" not in said


def test_an_exit_before_the_run_is_no_success(capsys, monkeypatch):
    monkeypatch.setattr(command.command_line, "parse", leaves)
    assert command.main([]) == 1
    assert "error: code that the configuration names called sys.exit(0)" in capsys.readouterr().err


def test_an_exit_in_a_run_from_python_is_an_error(monkeypatch):
    monkeypatch.setattr(start.validation, "problems", leaves)
    with pytest.raises(ExitError, match=r"called sys.exit\(0\)"):
        dfc.run(start.load_config("configs/smoke.py", {}), workdir="unused")


def test_a_game_that_exits_is_named_wherever_it_is_played(leaving, capsys):
    game = f"{leaving}:Plays"
    with pytest.raises(ExitError, match=rf"^games '{leaving}:Plays' called sys\.exit\(0\) \({leaving}:8 in _play\);"):
        play_episode(EpisodeSpec(game, {}, 1, 0, 0, 0), [RandomLegal(), RandomLegal()], RolloutConfig())
    assert play.main([f"--game={game}", "--player=random_legal", "--opponent=random_legal", "--seed=1"]) == 1
    assert f"--game={game} called sys.exit(0) ({leaving}:8 in _play);" in capsys.readouterr().err


def test_a_game_that_exits_when_it_is_made_is_a_wrong_setting(leaving, capsys):
    (problem,) = registry.problems(f"{leaving}:Made", {})
    assert "making it raised SystemExit: 0" in problem
    assert play.main([f"--game={leaving}:Made"]) == 2
    assert "making it raised SystemExit: 0" in capsys.readouterr().err


def test_a_game_that_exits_does_not_end_its_check(leaving):
    found = check.check(lambda: registry.make(f"{leaving}:Plays"), range(1))
    assert any("it raised SystemExit: 0" in fault and f"{leaving}:8 in _play" in fault for fault in found)


def test_a_page_that_exits_does_not_end_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(live_report.run_page, "write", leaves)
    live_report.LiveReport(tmp_path, share=1e9).refresh()
    assert "report.html was not refreshed (SystemExit: 0); the run continues without it" in capsys.readouterr().out
