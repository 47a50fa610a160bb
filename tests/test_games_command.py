"""`python -m dfc.games`, and the game of docs/add_a_game.md, which it checks."""

import json
import random
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

import dfc
from dfc import validation
from dfc.games import __main__ as command
from dfc.games import registry, scripted
from dfc.games.conformance import processes
from dfc.games.rng import GameRng


def test_the_table_lists_every_id_with_its_facts(capsys):
    assert command.main([]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "family", "seats", "start", "max_game_length", "action", "tasks", "simulators"]
    assert [line.split()[0] for line in lines] == list(registry.game_ids())
    (large,) = (line for line in lines if line.startswith("ConnectFour-v0-large"))
    assert large.split()[1:5] == ["Divide-Fuse-Conquer", "2", "fixed", "180"]


def test_the_list_as_json_holds_the_same_facts(capsys):
    assert command.main(["--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in rows] == list(registry.game_ids())
    for row in rows:
        info = registry.make(row["id"]).info
        assert row["simulators"] == list(info.simulators)
        assert row["splits"] == dict(info.splits)
        assert row["family"] == registry.family(row["id"])
        assert row["lists_actions"] is info.lists_actions is True
        assert row["evaluation_only"] is info.evaluation_only
        assert (row["seats"], row["start"], row["max_game_length"], row["grammar"], row["open_actions"]) == (
            *(info.seats, info.start, info.max_game_length, info.grammar),
            info.open_actions,
        )


def test_the_check_of_ids_exits_with_0_and_tells_their_costs(capsys):
    assert command.main(["--check", "Nim-v0", "GuessTheNumber-v0", "--seeds", "1"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"Nim-v0: every property holds; [\d,]+ steps/s, [\d.]+ KiB per game in progress; the longest random game took "
        r"\d+ actions of `max_game_length` = 12",
        first,
    )
    assert second.startswith("GuessTheNumber-v0: ")


@pytest.mark.parametrize("words", [["\x1b[2Jfoo"], ["--seeds", "\x1b[2J"], ["--check", "\x1b[2J"]])
def test_a_wrong_word_is_repeated_in_a_form_that_moves_no_cursor(words, capsys):
    with pytest.raises(SystemExit):
        command.main(words)
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert "x1b[2J" in captured.err


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "random.py"  # called like a module that is in use
    body = textwrap.dedent("""
        from dfc.games.textarena.nim import Nim
        class Good(Nim): pass
        class Bad(Nim):
            grammar = ""
    """)
    path.write_text(body)
    return path


def test_the_check_of_a_file_exits_with_1_if_it_finds_a_fault(file, capsys):
    assert command.main(["--check", f"{file}:Good"]) == 0
    assert command.main(["--check", f"{file}:Good", f"{file}:Bad"]) == 1
    assert f"{file}:Bad: 1 fault\n  it declares what it is: `grammar` is empty" in capsys.readouterr().out
    assert command.main(["--json", "--check", f"{file}:Bad"]) == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert report["game"] == f"{file}:Bad"
    assert len(report["findings"]) == 1
    assert sys.modules["random"] is random


def test_what_a_game_prints_stays_out_of_the_answer(tmp_path, capsys):
    path = tmp_path / "loud.py"
    path.write_text(
        "from dfc.games.textarena.nim import Nim\nprint('imported')\nclass Loud(Nim):\n"
        "    def _begin(self):\n        print('begun')\n        return super()._begin()\n"
    )
    assert command.main(["--json", "--check", f"{path}:Loud", "--seeds", "1"]) == 0
    told = capsys.readouterr()
    (report,) = json.loads(told.out)
    assert report["longest_seen"] <= report["max_game_length"] == 12
    assert "imported" in told.err
    assert "begun" in told.err


UNORDERED = """
    from dfc.games.textarena.nim import Nim
    class Shuffled(Nim):
        def legal_actions(self): return list(set(super().legal_actions()))
    class Told(Nim):
        def _begin(self):
            self._tell_all(" ".join({"red", "green", "blue"}))
            return super()._begin()
    class Kept(Nim):
        def __init__(self, **common):
            super().__init__(**common)
            self.colours = {"red", "green", "blue"}
        def _state(self): return super()._state() | {"colours": list(self.colours)}
    class Sorted(Nim):
        def legal_actions(self): return sorted(set(super().legal_actions()))
"""


def test_the_order_of_a_set_is_found_by_other_processes(tmp_path, capsys):
    path = tmp_path / "unordered.py"
    path.write_text(textwrap.dedent(UNORDERED))
    names = [f"{path}:{name}" for name in ("Shuffled", "Told", "Kept", "Sorted")]
    assert command.main(["--json", "--check", *names, "--seeds", "1"]) == 1
    found = [report["findings"] for report in json.loads(capsys.readouterr().out)]
    for (finding,), what in zip(found[:3], ("legal_actions", "observation", "_state"), strict=True):
        assert finding.startswith(f"processes play alike: seed 0, reply 1: `{what}` differs between processes")
        assert finding.endswith("; use no order of a set and no `hash` of text: sort, or keep a list")
    assert "['[" in found[0][0]
    assert found[3] == []


def test_the_games_of_this_package_are_the_same_in_every_process():
    assert processes.differences(registry.own_game_ids(), range(2)) == {}


def test_a_process_that_fails_is_a_finding():
    (told,) = processes.differences(["no_such.py:Game"], range(1)).values()
    assert told.startswith("a process of its own with PYTHONHASHSEED=0 failed: ValueError: no_such.py cannot be read: ")


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("class Bad(:\n    pass\n", 1, "importing this file raised SyntaxError: invalid syntax"),
        ("x = 1\nimport no_such_module\n", 2, "raised ModuleNotFoundError: No module named 'no_such_module'"),
        ("\n\nraise ValueError('a\\nb')\n", 3, "importing this file raised ValueError: a b"),
        ("import sys\nsys.exit(3)\n", 2, "importing this file raised SystemExit: 3"),
        ("import json\njson.loads('{')\n", 2, "importing this file raised JSONDecodeError: "),
    ],
)
def test_a_file_that_cannot_be_imported_gets_one_sentence_with_the_line(tmp_path, capsys, text, line, sentence):
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(SystemExit) as caught:
        command.main(["--check", f"{path}:Bad"])
    assert caught.value.code == 2
    told = capsys.readouterr()
    (last,) = told.err.splitlines()[-1:]
    assert f"error: {path}:{line}: importing this file" in last
    assert sentence in last
    assert "Traceback" not in told.err
    assert not told.out
    assert not any(name.startswith("game_file_bad") for name in sys.modules)


def test_what_comes_after_a_first_property_is_said_to_be_untried(tmp_path, capsys):
    path = tmp_path / "mute.py"
    path.write_text(
        "from dfc.games.textarena.nim import Nim\n"
        "class Mute(Nim):\n    def _play(self, action): return ('win', 'loss')\n"
    )
    assert command.main(["--check", f"{path}:Mute"]) == 1
    assert capsys.readouterr().out.endswith("  What comes after this was not tried; fix it and check again.\n")


def test_the_ids_of_the_textarena_package_are_listed(capsys):
    from dfc.games.adapters import textarena

    assert command.main(["--textarena"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed == [f"textarena:{name}" for name in textarena.names()]
    assert "textarena:Othello-v0" in listed
    assert command.main(["--textarena", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == listed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--check", "Nimm-v0"], "there is no game id 'Nimm-v0'; did you mean 'Nim-v0'?"),
        (["--check", "{file}:Ugly"], "holds no game 'Ugly'; its subclasses of Game are Nim, Good, Bad"),
        (["--check", "{file}x.py:Good"], "No such file"),
        (["--check", "Nim-v0", "--seeds", "0"], "--seeds must be 1 or more, got 0"),
    ],
)
def test_a_wrong_argument_gets_a_sentence_and_status_2(file, capsys, arguments, sentence):
    with pytest.raises(SystemExit) as caught:
        command.main([argument.replace("{file}", str(file)) for argument in arguments])
    assert caught.value.code == 2
    told = capsys.readouterr()
    assert sentence in told.err
    assert not told.out


def test_the_command_loads_neither_jax_nor_the_games_it_does_not_check():
    code = (
        "import sys; from dfc.games.__main__ import main; main(['--check', 'Nim-v0', '--seeds', '1']); "
        "print([m for m in sys.modules if m.split('.')[0] in {'jax', 'numpy', 'flax', 'textarena'}])"
    )
    # The command is this interpreter with a constant program.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 (ours)
    assert done.stdout.splitlines()[-1] == "[]"


# ---- the guide ------------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[1] / "docs" / "add_a_game.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


GAME, TRAINING, TEAM, PLAYERS = blocks("python")
(PROJECT,) = blocks("toml")


def test_the_game_of_the_guide_has_fewer_than_sixty_lines_of_code_and_keeps_the_protocol(tmp_path, capsys):
    assert sum(bool(line.strip()) for line in GAME.splitlines()) < 60
    (tmp_path / "race.py").write_text(GAME, encoding="utf-8")
    (named,) = re.findall(r"^python -m dfc\.games --check race\.py:(\w+)$", PAGE, re.MULTILINE)
    assert command.main(["--check", f"{tmp_path / 'race.py'}:{named}", "--seeds", "5"]) == 0
    assert "every property holds" in capsys.readouterr().out


def test_the_guides_game_for_a_team_has_fewer_than_sixty_lines_of_code_and_keeps_the_protocol(tmp_path, capsys):
    assert sum(bool(line.strip()) for line in TEAM.splitlines()) < 60
    (tmp_path / "signal_game.py").write_text(TEAM, encoding="utf-8")
    place = f"{tmp_path / 'signal_game.py'}:Signal"
    assert command.main(["--check", place, "--seeds", "5"]) == 0
    assert "every property holds" in capsys.readouterr().out
    assert registry.make(place).seat_of("receiver") == 1


def test_the_training_of_the_guide_is_a_run_of_that_game(tmp_path, monkeypatch):
    (tmp_path / "race.py").write_text(GAME, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runs = []
    monkeypatch.setattr(dfc, "run", lambda config, workdir: runs.append((config, workdir)))
    exec(compile(TRAINING, "guide", "exec"), {})  # noqa: S102 - our own page
    ((config, workdir),) = runs
    assert (list(config.games), workdir) == (["race.py:Race"], "runs/race")
    assert validation.problems(config) == []
    assert sum(bool(line.strip()) for line in TRAINING.splitlines()) <= 10


@pytest.fixture
def race(tmp_path, monkeypatch):
    """The guide's package, installed."""
    (tmp_path / "race.py").write_text(f"{GAME}\n\n{PLAYERS}", encoding="utf-8")
    (group, points), *others = tomllib.loads(PROJECT)["project"]["entry-points"].items()
    assert not others
    info = tmp_path / "my_games-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-games\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    for cache in (registry._installed, registry._load):
        cache.cache_clear()
    yield
    for cache in (registry._installed, registry._load):
        cache.cache_clear()
    sys.modules.pop("race", None)


@pytest.mark.usefixtures("race")
def test_the_game_of_the_guide_is_an_id_once_its_package_is_installed(capsys):
    assert registry.game_ids() == (*registry.own_game_ids(), "Race21-v0")
    assert registry.family("Race21-v0") == "my-games"
    game = registry.make("Race21-v0", target=31)
    game.reset(0)
    assert (game.id, game.target, game.legal_actions()) == ("Race21-v0", 31, ["[1]", "[2]", "[3]"])
    assert registry.problems("Race21-v0", {"target": 2}) == [
        "Race21-v0: largest must be from 1 to target - 1, got 3 with target=2"
    ]
    assert command.main(["--check", "Race21-v0"]) == 0
    assert command.main([]) == 0
    assert re.search(r"^Race21-v0 +my-games ", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.usefixtures("race")
def test_the_players_of_the_guide_are_those_of_the_id():
    strong, simple = (scripted.player("Race21-v0", strength) for strength in ("strong", "simple"))
    game = registry.make("Race21-v0")
    # Counting from 0, 20 is a multiple of 4: the second seat wins by force, from every count that the first one leaves.
    for seed in range(20):
        game.reset(seed)
        rng = GameRng(seed)
        while not game.over:
            game.step((simple, strong)[game.to_move].act(game, rng))
        assert game.outcomes == ("loss", "win")
