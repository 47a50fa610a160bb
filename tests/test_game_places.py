"""Games that are named by the place of their class, ``FILE.py:CLASS`` or ``module:CLASS``, where an id can stand."""

import functools
import json
import os
import pathlib
import sys

import pytest

from dfc.games import __main__ as command
from dfc.games import loading, registry, scripted
from dfc.games.conformance import check
from dfc.games.game import Game
from dfc.games.replay import ReplayError, replay
from dfc.games.rng import GameRng
from dfc.games.textarena.nim import Nim

RACE = """
import pathlib
from dfc.games.bots.bot import GameBots
from dfc.games.registry import Entry
from dfc.games.textarena.nim import Nim

with (pathlib.Path(__file__).parent / "imports").open("a") as log:
    log.write("x")


class Race(Nim):
    def __init__(self, *, laps: int = 3, **common):
        super().__init__(**common)
        if laps < 1:
            raise ValueError(f"laps must be 1 or more, got {laps}")
        self.laps = laps


class Half(Race):
    def __init__(self, *, laps: int = 3):
        super().__init__(laps=laps)


class Broken(Race):
    def __init__(self, **common):
        super().__init__(**common)
        self.laps = {}["lap"]


LONG = Entry(Race, {"laps": 9})
NUMBER = 3
BOTS = (GameBots(Race, lambda game, seat, rng: "[0 1]", lambda game, seat, rng: "[0 3]"),)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "race_of_a_file.py").write_text(RACE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if "race_of_a_file" in name]:
        del sys.modules[name]


@pytest.fixture(params=["race_of_a_file.py", "{folder}/race_of_a_file.py", "race_of_a_file"])
def place(request, folder):
    return request.param.replace("{folder}", str(folder))


def imports(folder):
    log = folder / "imports"
    return len(log.read_text()) if log.exists() else 0


def test_a_place_is_a_game_like_any_id(place, folder):
    name = f"{place}:Race"
    assert registry.problems(name, {"laps": 4}) == registry.problems(name, {}) == []
    assert registry.defaults(name)["laps"] == 3
    game = registry.make(name, laps=4, malformed_allowance=2)
    assert (type(game), game.laps, game.malformed_allowance) == (registry.kind(name), 4, 2)
    assert game.to_move is None
    assert scripted.player(name, "strong").act(_begun(game), GameRng(0)) == "[0 3]"
    assert scripted.simulators(name) == {}
    assert imports(folder) == 1


def test_what_is_recorded_of_a_place_names_no_folder(place):
    game = registry.make(f"{place}:Race")
    assert game.id == game.info.id == "Race"
    assert registry.family(f"{place}:Race") == pathlib.PurePath(place).name


def test_a_place_can_be_an_entry_with_values_of_its_own(place):
    assert registry.make(f"{place}:LONG").laps == 9
    assert registry.make(f"{place}:LONG", laps=2).laps == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lap": 4}, "{name} has no option 'lap'; did you mean 'laps'? Known are laps, illegal_allowance, "),
        ({"laps": "4"}, "{name}: laps must be of type int, got '4' of type str"),
        ({"laps": 0}, "{name}: laps must be 1 or more, got 0"),
    ],
)
def test_a_wrong_option_of_a_place_gets_the_sentence_that_an_id_gets(place, options, sentence):
    (told,) = registry.problems(f"{place}:Race", options)
    assert told.startswith(sentence.format(name=f"{place}:Race"))
    with pytest.raises(ValueError, match="laps") as caught:
        registry.make(f"{place}:Race", **options)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("member", "options", "sentence"),
    [
        ("Broken", {}, ": making it raised KeyError: 'lap'"),
        ("Half", {"history": True}, ": making it raised TypeError: "),
        ("Nothing", {}, " holds no game 'Nothing'; its subclasses of Game are Nim, Race, Half, Broken"),
        ("NUMBER", {}, " holds no game 'NUMBER'; its subclasses of Game are Nim, Race, Half, Broken"),
    ],
)
def test_a_class_that_cannot_be_made_gets_one_sentence(place, member, options, sentence):
    (told,) = registry.problems(f"{place}:{member}", options)
    assert sentence in told
    with pytest.raises(ValueError, match=member) as caught:
        registry.make(f"{place}:{member}", **options)
    assert str(caught.value) == told


def test_the_protocol_s_own_class_is_no_game(folder):
    (folder / "bare.py").write_text("from dfc.games.game import Game")
    assert registry.problems("bare.py:Game", {}) == ["bare.py holds no game 'Game'; its subclasses of Game are none"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_such.py:Race", "no_such.py cannot be read: No such file or directory; name an existing file or module, "),
        ("folder.py:Race", "folder.py cannot be read: Is a directory; name an existing file or module, or an id that "),
        ("nul\0.py:Race", "cannot be read: "),
        ("no_such_module:Race", "importing the module 'no_such_module' raised ModuleNotFoundError: No module named "),
        ("bad_text.py:Race", "bad_text.py:2: importing this file raised NameError: name 'missing' is not defined"),
        ("bad_text:Race", "importing the module 'bad_text' raised NameError: name 'missing' is not defined; name an "),
        ("leaves:Race", "importing the module 'leaves' raised SystemExit: 3; name an existing file or module, or an "),
        ("race_of_a_file.py", "race_of_a_file.py holds no game ''; its subclasses of Game are Nim, Race, Half, Broken"),
        ("race_of_a_file.py:", "race_of_a_file.py holds no game ''; its subclasses of Game are Nim, Race, Half, "),
        ("race_of_a_file:Race-v0", "there is no game id 'race_of_a_file:Race-v0'; did you mean "),
    ],
)
def test_a_place_without_a_game_gets_one_sentence_with_the_cure(folder, name, sentence):
    (folder / "folder.py").mkdir()
    (folder / "bad_text.py").write_text("x = 1\nmissing\n")
    (folder / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    (told,) = registry.problems(name, {})
    assert sentence in told
    assert "\n" not in told
    with pytest.raises(ValueError, match=r"\w"):
        registry.make(name)


def test_ctrl_c_while_a_place_is_imported_is_no_fault_of_it(folder):
    (folder / "endless.py").write_text("raise KeyboardInterrupt")
    for name in ("endless.py:Race", "endless:Race"):
        with pytest.raises(KeyboardInterrupt):
            registry.problems(name, {})


def test_a_file_is_imported_once_by_any_spelling_and_again_after_a_change(folder):
    path = folder / "race_of_a_file.py"
    names = ["race_of_a_file.py:Race", f"{path}:Race", f"./../{folder.name}/race_of_a_file.py:Half"]
    kinds = [registry.kind(name) for name in names for _ in range(3)]
    assert imports(folder) == 1
    assert kinds[0] is kinds[3]
    path.write_text(RACE.replace("laps: int = 3", "laps: int = 5"))
    os.utime(path, ns=(1, 1))
    assert registry.make(names[1]).laps == 5
    assert imports(folder) == 2
    assert registry.kind(names[0]) is registry.kind(names[1]) is not kinds[0]
    assert scripted.player(names[0], "simple").act(_begun(registry.make(names[0])), GameRng(0)) == "[0 1]"


def test_files_that_are_called_alike_are_apart(folder):
    for number in (1, 2):
        (folder / str(number)).mkdir()
        text = RACE.replace("laps: int = 3", f"laps: int = {number}").replace('"[0 1]"', f'"[0 {number}]"')
        (folder / str(number) / "race_of_a_file.py").write_text(text)
    for number in (2, 1, 2):
        name = f"{number}/race_of_a_file.py:Race"
        game = _begun(registry.make(name))
        assert game.laps == number
        assert scripted.player(name, "simple").act(game, GameRng(0)) == f"[0 {number}]"


def test_a_record_makes_no_code_run_that_this_process_has_not_imported(folder):
    for name in ("race_of_a_file.py:Race", "race_of_a_file:Race"):
        record = _record(name)
        with pytest.raises(ReplayError, match="names code, which no record makes this process run; if you trust it"):
            list(replay(record))
        assert imports(folder) == 0
    registry.kind("race_of_a_file.py:Race")
    assert [turn.verdict for turn in replay(_record("race_of_a_file.py:Race"))] == ["played"] * 3
    assert not registry.is_code("Nim-v0")
    assert not registry.is_code("textarena:Chess")
    assert not registry.is_code(["race_of_a_file.py:Race"])


def test_the_command_checks_a_module_and_reports_it_as_it_was_named(place, capsys):
    assert command.main(["--json", "--check", f"{place}:Race", "--seeds", "1"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["game"], report["findings"]) == (f"{place}:Race", [])


def test_the_check_names_the_line_of_a_class_that_cannot_be_made(folder):
    (finding,) = check.check(functools.partial(registry.make, "race_of_a_file.py:Broken"), range(1))
    line = 1 + RACE.split("\n").index('        self.laps = {}["lap"]')
    assert finding.endswith(f"({folder}/race_of_a_file.py:{line} in __init__)")


def test_an_id_goes_before_a_module_of_its_name(monkeypatch):
    monkeypatch.setitem(registry._GAMES, "race:Race", registry.Entry(Nim, {"piles": (7,)}))
    game = registry.make("race:Race")
    assert (game.id, game.initial_piles) == ("race:Race", (7,))
    assert loading.place_of("race:Race") == ("race", "Race")


def _begun(game: Game) -> Game:
    game.reset(0)
    return game


def _record(name):
    replies = [[0, "[0 3]", "policy"], [1, "[1 4]", "opponent"], [0, "[2 5]", "policy"]]
    return {
        "game": name,
        "options": {},
        "seed": 0,
        "replies": replies,
        "outcomes": ["win", "loss"],
        "forfeited_by": None,
    }
