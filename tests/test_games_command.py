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

from dfc.games import __main__ as command
from dfc.games import registry


def test_the_table_lists_every_id_with_its_facts(capsys):
    assert command.main([]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "seats", "start", "longest", "action", "tasks", "staff"]
    assert [line.split()[0] for line in lines] == list(registry.ids())
    (large,) = (line for line in lines if line.startswith("ConnectFour-v0-large"))
    assert large.split()[1:4] == ["2", "fixed", "180"]


def test_the_list_as_json_holds_the_same_facts(capsys):
    assert command.main(["--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in rows] == list(registry.ids())
    for row in rows:
        facts = registry.make(row["id"]).facts
        assert row["staff"] == list(facts.staff)
        assert row["splits"] == dict(facts.splits)
        assert (row["seats"], row["start"], row["longest"], row["grammar"], row["open_actions"]) == (
            *(facts.seats, facts.start, facts.longest, facts.grammar),
            facts.open_actions,
        )


def test_the_check_of_ids_exits_with_0_and_tells_their_costs(capsys):
    assert command.main(["--check", "Nim-v0", "GuessTheNumber-v0", "--seeds", "1"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Nim-v0: every property holds; [\d,]+ steps/s, [\d.]+ KiB per game in progress", first)
    assert second.startswith("GuessTheNumber-v0: ")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "random.py"  # called like a module that is in use
    body = textwrap.dedent("""
        from dfc.games.nim import Nim
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


def block(language):
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return found


def test_the_game_of_the_guide_has_fewer_than_sixty_lines_of_code_and_keeps_the_protocol(tmp_path, capsys):
    code = block("python")
    assert sum(bool(line.strip()) for line in code.splitlines()) < 60
    (tmp_path / "race.py").write_text(code, encoding="utf-8")
    (named,) = re.findall(r"^python -m dfc\.games --check race\.py:(\w+)$", PAGE, re.MULTILINE)
    assert command.main(["--check", f"{tmp_path / 'race.py'}:{named}", "--seeds", "5"]) == 0
    assert "every property holds" in capsys.readouterr().out


def test_the_game_of_the_guide_is_an_id_once_its_package_is_installed(tmp_path, monkeypatch, capsys):
    (tmp_path / "race.py").write_text(block("python"), encoding="utf-8")
    (group, points), *others = tomllib.loads(block("toml"))["project"]["entry-points"].items()
    assert not others
    info = tmp_path / "my_games-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-games\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    for cache in (registry._installed, registry._load):
        cache.cache_clear()
    try:
        assert registry.ids() == (*registry.own_ids(), "Race21-v0")
        game = registry.make("Race21-v0", target=31)
        game.reset(0)
        assert (game.id, game.target, game.legal_actions()) == ("Race21-v0", 31, ["[1]", "[2]", "[3]"])
        assert registry.problems("Race21-v0", {"target": 2}) == [
            "Race21-v0: largest must be from 1 to target - 1, got 3 with target=2"
        ]
        assert command.main(["--check", "Race21-v0"]) == 0
        assert command.main([]) == 0
        assert "Race21-v0" in capsys.readouterr().out
    finally:
        for cache in (registry._installed, registry._load):
            cache.cache_clear()
        sys.modules.pop("race", None)
