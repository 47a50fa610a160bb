"""The two gates: what the lists name exists, and a file or function of a list is where the list says."""

import ast
from pathlib import Path

import gates
import pytest

HERE = Path(__file__).parent


def functions(file):
    tree = ast.parse((HERE / f"{file}.py").read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_files_of_the_second_gate_exist():
    assert sorted(file for file in gates.SECOND if not (HERE / f"{file}.py").exists()) == []


@pytest.mark.parametrize("name", sorted(gates.FIRST))
def test_what_stays_in_the_first_gate_exists_and_would_be_left_out(name):
    file, _, function = name.partition("::")
    assert function.partition("[")[0] in functions(file)
    assert file not in gates.SECOND, "a file of the second gate is not collected by the first"


def test_functions_that_take_long_exist():
    """Of a function that is gone or renamed the seconds say nothing: make seconds.json again (tests/gates.py)."""
    longest = [name.split("::") for name, seconds in gates.measured().items() if seconds > gates.LONGEST]
    files = {file: functions(file) for file, _ in longest if (HERE / f"{file}.py").exists()}
    assert [f"{file}::{name}" for file, name in longest if name not in files.get(file, ())] == []


def test_a_long_function_is_of_the_second_gate_unless_it_is_named():
    seconds = {"test_a::test_long": gates.LONGEST + 0.1, "test_a::test_short": gates.LONGEST}
    assert gates.is_second("test_a", "test_long[a]", seconds)
    assert not gates.is_second("test_a", "test_short", seconds)
    assert not gates.is_second("test_a", "test_new", seconds)
    assert gates.is_second("test_every_field", "test_new", seconds)
    kept = "test_baselines", "test_a_stop_changes_nothing[divide_fuse_conquer]"
    assert not gates.is_second(*kept, {"test_baselines::test_a_stop_changes_nothing": 30})
    assert gates.is_second(
        kept[0], "test_a_stop_changes_nothing[grpo]", {"test_baselines::test_a_stop_changes_nothing": 30}
    )


def test_a_report_of_a_run_becomes_seconds(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gates, "SECONDS", tmp_path / "seconds.json")
    cases = [
        ("tests.test_a", "test_b[1]", "2.04"),
        ("tests.test_a", "test_b[2]", "1.5"),
        ("tests.test_a", "test_c", "1"),
    ]
    lines = "".join(f'<testcase classname="{c}" name="{n}" time="{t}"/>' for c, n, t in cases)
    report = tmp_path / "suite.xml"
    report.write_text(f"<testsuites><testsuite>{lines}</testsuite></testsuites>")
    gates.write(report)
    assert gates.measured() == {"test_a::test_b": 3.5}
    assert "first gate 1 s, both 5 s" in capsys.readouterr().out
