"""Benchmarks that are run: all have their place in `make benchmarks-quick`, whose failures are failures."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
STUDIES = ("dfc_study", "lsp_study", "paprika_study", "playpen_study")


@pytest.fixture
def script(monkeypatch):
    """Imports a benchmark by name, as its siblings do, for this test only."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for path in BENCHMARKS.glob("*.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    yield importlib.import_module
    for path in BENCHMARKS.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_every_benchmark_is_run_in_miniature_or_says_what_it_needs(script):
    quick = script("quick")
    places = [*quick.COMMANDS, *quick.LEFT_OUT, *quick.LIBRARIES]
    assert sorted(places) == sorted(path.name for path in BENCHMARKS.glob("*.py"))
    assert quick.EXTRAS.keys() <= quick.COMMANDS.keys()


def test_a_benchmark_in_miniature_knows_the_flag(script):
    for name, arguments in script("quick").COMMANDS.items():
        text = (BENCHMARKS / name).read_text()
        text += (BENCHMARKS / "study_command.py").read_text() if "from study_command" in text else ""
        assert all(f'"{argument.split("=")[0]}"' in text for argument in arguments), name


def test_a_library_is_imported_by_a_benchmark_and_is_none(script):
    imported = "\n".join(path.read_text() for path in BENCHMARKS.glob("*.py"))
    for name in {*script("quick").LIBRARIES} - {"quick.py"}:
        assert re.search(rf"^ *(from|import) {name.removesuffix('.py')}\b", imported, re.MULTILINE), name
        assert "__main__" not in (BENCHMARKS / name).read_text(), name


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_lists_its_runs_and_does_nothing(script, name, tmp_path, monkeypatch, capsys):
    module = script(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, "--list", "--out=runs"])
    monkeypatch.setattr(subprocess, "Popen", None)  # what would start a run
    if name == "dfc_study":
        module.main()
    else:
        code = re.search(r'^if __name__ == "__main__":\n +(.+)$', (BENCHMARKS / f"{name}.py").read_text(), re.MULTILINE)
        exec(code[1], vars(module))  # noqa: S102 - the script's own last line
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 10
    assert all(re.search(r" min\b", line) for line in lines)
    assert list(tmp_path.iterdir()) == []


def test_the_target_fails_where_a_benchmark_does_and_runs_the_others(script, tmp_path, monkeypatch, capsys):
    quick = script("quick")
    (tmp_path / "good.py").write_text("import sys; open('left', 'w'); print(sys.argv)")
    (tmp_path / "bad.py").write_text("raise SystemExit('it broke')")
    monkeypatch.setattr(quick, "HERE", tmp_path)
    monkeypatch.setattr(quick, "COMMANDS", {"bad.py": ("--quick",), "good.py": ("--quick",), "rare.py": ("--quick",)})
    monkeypatch.setattr(quick, "EXTRAS", {"rare.py": ("no_such_module", "the extra rare")})
    monkeypatch.setattr(quick, "LEFT_OUT", {"gpu.py": "a GPU"})
    monkeypatch.setattr(sys, "argv", ["quick.py"])
    with pytest.raises(SystemExit, match=r"failed: bad\.py"):
        quick.main()
    said = capsys.readouterr().out
    assert "bad.py --quick: FAILED with 1:\nit broke" in said
    assert re.search(r"good\.py --quick: \d+ s\n", said)
    assert "rare.py: left out, it needs the extra rare\n" in said
    assert "gpu.py: left out, it needs a GPU\n" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.py", "good.py"]
