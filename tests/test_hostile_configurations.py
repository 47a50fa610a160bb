"""Whatever a command line or a configuration file holds: exit code 2 and one message of bounded length, or a run."""

import dataclasses
import math
import os
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path

import pytest

from dfc import config as schema
from dfc import validation
from dfc.config import RECIPES, DivideFuseConquer, MeshConfig
from dfc.errors import ConfigError, cut
from dfc.launch import play
from dfc.launch.__main__ import main
from dfc.launch.key_names import all_keys
from dfc.launch.overrides import override

ROOT = Path(__file__).resolve().parents[1]
SMOKE = "--config=configs/smoke.py"
GAMES = {"TicTacToe-v0": {}, "GuessTheNumber-v0": {}}
every_recipe = pytest.mark.parametrize("kind", RECIPES.values(), ids=list(RECIPES))
LONG = "x" * 5000
LONGEST = 6000  # characters of a message about one value: the list of all games is among them


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("dfc.methods.divide_fuse_conquer")
    module.run = lambda *_: None
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return tmp_path


def refused(capsys, *words):
    """The message with which a command line is refused."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert " in the configuration:\n  - " in err
    assert len(err) < LONGEST
    return err


def file_with(here, body, *, before=""):
    (here / "c.py").write_text(f"import sys\nfrom dfc.config import *\n{before}\ndef get_config():\n    {body}\n")
    return "--config=c.py"


@pytest.mark.parametrize(
    "value",
    [
        *("", "-1", "nan", "inf", "1e400", str(10**400), "9" * 5000, LONG, "None", "'__class__'"),
        *("[[[[1]]]]", "{'a': {'b': {}}}", "(1, 'a', None)", "\x00", "\ud800", "a\nb/c", "~nobody/x", "[" * 5000),
    ],
    ids=lambda value: repr(cut(value, 20)),
)
@every_recipe
def test_every_field_takes_or_refuses_a_hostile_value_without_a_traceback(kind, value):
    config = kind(**({"games": GAMES} if "games" in all_keys(kind) else {}))
    words = {key: f"--config.{key}={value}" for key in all_keys(kind) if key != "games"}
    together, found = override(config, list(words.values()))
    assert len(keys_of(found)) == len(found)  # one problem each
    left = words.keys() - keys_of(found)
    while refused_too := left & keys_of(validation.problems(together)):
        left -= refused_too
        together, _ = override(config, [words[key] for key in left])
    for key in left:
        changed, none = override(config, [words[key]])
        assert none == []
        problems = validation.problems(changed) or validation.path_problems(changed)
        assert all(len(problem) < LONGEST for problem in ConfigError(problems).problems)
        kept = changed
        for name in key.split("."):
            kept = kept[name] if isinstance(kept, Mapping) else getattr(kept, name)
        if not problems and isinstance(kept, int | float):
            assert abs(kept) <= sys.float_info.max  # and no NaN


def keys_of(found):
    return {problem.split("=")[0].removeprefix("--config.").rstrip(":") for problem in ConfigError(found).problems}


def with_everything(value, section):
    """A section whose every value is this one."""
    inner = {field.name: getattr(section, field.name) for field in dataclasses.fields(section)}
    return dataclasses.replace(
        section,
        **{n: with_everything(value, old) if dataclasses.is_dataclass(old) else value for n, old in inner.items()},
    )


class Rude:
    def __repr__(self):
        raise ZeroDivisionError

    __str__ = __repr__


CIRCLE = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    "value",
    [
        *(10**400, 10**5000, math.nan, math.inf, -1, "", LONG, None, True, object, b"\xff", {"__class__": {}}),
        *(
            [],
            [[1]],
            {1: {}},
            {"a.b": {}},
            {"Nim-v0": {"a.b": 1}},
            {"Nim-v0": {"x": CIRCLE}},
            Rude(),
            CIRCLE,
            (Rude(),),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
@every_recipe
def test_every_field_of_a_file_may_hold_anything(kind, value):
    config, found = override(with_everything(value, kind()), ["--config.seed=1", "--config.sead=1"])
    found += validation.problems(config)
    assert any("there is no 'sead'" in problem for problem in found)
    assert len(found) > 1
    assert all(len(problem) < LONGEST for problem in ConfigError(found).problems)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config.games={'__class__':{}}"], "there is no game id '__class__'"),
        (["--config.games.Nim-v0={'__class__': 1}"], "Nim-v0 has no option '__class__'"),
        (["--config.games={'pig.py:Pig': {}}"], "games.pig.py:Pig: pig.py cannot be read"),
        (["--config.games.pig.py:Pig={}"], "pig.py cannot be read"),
        (["--config.games=" + "{" * 300], "must be a mapping such as"),
        (["--config.games={{}: 1}"], "must be a mapping such as"),
        (["--config.games.TicTacToe-v0.illegal_allowance=" + "(" * 300], "illegal_allowance=((("),
        ([f"--config.games.{LONG}={{}}"], "there is no game 'xxx"),
        ([f"--config.{LONG}=1"], "there is no 'xxx"),
        ([f"--config.name={LONG}"], "must be one folder name of at most 200 bytes"),
        (["--config.name=a\nb"], "without control characters"),
        (["--config.name=a\\b"], "must be one folder name"),
        ([f"--config.model.path={LONG}"], "File name too long"),
        (["--config.model.path=~nobody-here"], "no such folder"),
        ([f"--workdir={LONG}"], "--workdir=xxx"),
        ([f"--{LONG}=1"], "there is no flag --xxx"),
        (["--config.rollout.slots=99999999999"], "rollout.slots=99999999999: must be at least 1 and at most 100,000"),
        ([f"--config.adapter.rank={10**23}"], f"adapter.rank={10**23} (int): must be a whole number"),
        (["--config.adapter.rank=65537"], "adapter.rank=65537: must be at least 0 and at most 65,536"),
        (["--config.seed=4294967296"], "must be at least 0 and below 4,294,967,296"),
        (["--config.rollout.workers=1025"], "must be at least 1 and at most 1,024"),
        ([f"--config.groups_per_game={10**9 + 1}"], "must be at least 1 and at most 1,000,000,000"),
    ],
)
def test_a_hostile_word_is_one_message(capsys, words, said):
    assert said in refused(capsys, SMOKE, *words)


@pytest.mark.parametrize("name", ["smoke", "smoke.py", "configs/smok.py", "Smoke"])
def test_a_configuration_without_its_folder_is_recognised(capsys, name):
    assert "did you mean configs/smoke.py?" in refused(capsys, f"--config={name}")


@pytest.mark.parametrize("name", [LONG, "a/" * 3000, "\x00", "."])
def test_a_name_that_is_no_file_is_one_message(capsys, name):
    assert refused(capsys, f"--config={name}").startswith("1 problem in the configuration:\n  - --config=")


ENDS = "class Rude(Exception):\n    def __str__(self): raise ValueError('no')\nclass Own(BaseException): pass"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.exit(0)", "line 10 raised SystemExit: 0"),
        ("sys.exit(3)", "line 10 raised SystemExit: 3"),
        ("raise SystemExit('bye')", "line 10 raised SystemExit: bye"),
        ("raise KeyboardInterrupt", "line 10 raised KeyboardInterrupt"),
        ("raise GeneratorExit", "line 10 raised GeneratorExit"),
        ("raise Own('mine')", "line 10 raised Own: mine"),
        ("raise Rude", "line 10 raised Rude: (an error without a text)"),
        ("raise ValueError('y' * 100_000)", "raised ValueError: yyy"),
        ("raise ValueError('y ' * 100_000)", "raised ValueError: y y"),
        ("return DivideFuseConquer(optimizer=OptimizerConfig(learning_rate=10**400), games={})", "learning_rate=1000"),
        (
            "return DivideFuseConquer(rollout=OptimizerConfig(), games={})",
            "rollout: expected RolloutConfig(...) for recipe divide_fuse_conquer, got ",
        ),
        ("return DivideFuseConquer(games={'__class__': {}})", "there is no game id '__class__'"),
        ("return DivideFuseConquer(games={'pig.py:Pig': {}})", "pig.py cannot be read"),
        ("return DivideFuseConquer(games={'a b' * 50_000: {}})", "games.a ba ba b"),
        ("return DivideFuseConquer(name='n' * 100_000, games={})", "must be one folder name"),
        (
            "return DivideFuseConquer(seed=10**5000, games={})",
            "seed=<a value of type int> (int): must be a whole number",
        ),
        ("return Evaluate(policies=('p ' * 9,) * 9999, games={'Nim-v0': 3})", "games.Nim-v0=3"),
        ("return More()", "must return one of dfc.config ("),
        ("return eval('[' * 100_000)", "raised "),
    ],
)
def test_a_hostile_file_is_one_message(here, capsys, body, said):
    before = (
        f"{ENDS}\nimport dataclasses\n@dataclasses.dataclass(frozen=True)\nclass More(DivideFuseConquer): more: int = 1"
    )
    told = refused(capsys, file_with(here, body, before=before), "--config.checkpoint.keep=2")
    assert said in told
    assert [path.name for path in here.iterdir()] == ["c.py"]


@every_recipe
def test_every_section_of_a_file_may_hold_anything(kind):
    sections = [
        field.name for field in dataclasses.fields(kind) if dataclasses.is_dataclass(getattr(kind(), field.name))
    ]
    for name in sections:
        for value in (None, 3, Rude(), MeshConfig, object()):
            config, found = override(kind(**{name: value}), ["--config.sead=1", f"--config.{name}.x=1"])
            assert [problem.split(":")[0] for problem in found] == ["--config.sead", f"--config.{name}.x"]
            assert any(problem.startswith(f"{name}: expected ") for problem in validation.problems(config))


def test_a_section_with_a_field_more_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Wider(schema.RolloutConfig):
        more: int = 1

    config, found = override(DivideFuseConquer(rollout=Wider()), [])
    assert found == []
    told = "rollout: expected RolloutConfig(...) for recipe divide_fuse_conquer, got Wider; write rollout="
    assert any(told in problem for problem in validation.problems(config))


def test_a_hostile_word_for_playing_is_one_message(here, capsys):
    (here / "g.py").write_text("class Own(BaseException):\n    def __str__(self): raise ValueError\nraise Own")
    for words in (
        ["--game=TicTacToe-v0", f"--options={'[' * 100_000}"],
        ["--game=TicTacToe-v0", f"--opponent={LONG}"],
        ["--game=g.py:Game"],
    ):
        assert play.main(words) == 2
        assert 0 < len(capsys.readouterr().err) < LONGEST


# ---- paths that are no UTF-8 -------------------------------------------------------------------------------------


def test_a_folder_whose_name_is_no_utf8_is_refused_with_the_cause(here, capsys):
    for words in (["--workdir=r\udcfcns"], ["--config.model.path=m\udcfcdel"]):
        if words[0].startswith("--config"):
            Path("m\udcfcdel").mkdir()
        told = refused(capsys, SMOKE, *words)
        assert "is no UTF-8 for a Python whose file system encoding is utf-8; set PYTHONUTF8=1" in told
    assert [path.name for path in here.iterdir()] == ["m\udcfcdel"]


def test_a_locale_without_umlauts_is_named_as_the_cause(here):
    """Else the first checkpoint would fail in C++, which knows no such text."""
    (here / "läufe").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LC_") and name != "LANG"}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "dfc.launch", f"--config={ROOT}/configs/smoke.py"]
    done = subprocess.run(  # noqa: S603 - our own words
        command, cwd=here / "läufe", env=environment, capture_output=True, check=False, timeout=240
    )
    assert done.returncode == 2
    assert b"file system encoding is " in done.stderr
    assert b"PYTHONUTF8=1" in done.stderr
    assert b"Traceback" not in done.stderr
    assert list((here / "läufe").iterdir()) == []
