"""The study of Divide-Fuse-Conquer: its claims are read off run folders, seed by seed."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from run_files import match

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def results(monkeypatch):
    """The script that prints the tables, as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("study_command", "study_tables", "dfc_study", "dfc_study_runs", "dfc_study_results"):
        specification = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(specification)
        monkeypatch.setitem(sys.modules, name, module)
        specification.loader.exec_module(module)
    return module


def run(out, name, seed, *, won=50, format_rate=0.9):
    """A finished run whose policy wins so many of 100 final games against its initial self, and that wins 30."""
    path = out / f"{name}-{seed}"
    path.mkdir()
    (path / "finished.json").write_text("{}")
    (path / "config.json").write_text(json.dumps({"games": {"Nim-v0": {}}}))
    rows = [
        match(policy, "initial", "Nim-v0", 0, (wins, 0, 100 - wins, 0), stage="final")
        for policy, wins in (("initial", 30), ("final", won))
    ]
    (path / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = {"metrics": {"games/Nim-v0/format_rate": format_rate}, "clock": {}}
    (path / "metrics.jsonl").write_text((json.dumps(line) + "\n") * 3)


def test_claims_are_read_off_final_matches_and_the_ends_of_runs(results, tmp_path):
    for seed, more in ((10, 0), (11, 1), (12, 2)):
        run(tmp_path, "dfc", seed, won=80 + more)
        run(tmp_path, "naive_multi", seed, won=85)
        run(tmp_path, "imitation", seed, won=80 - more)
        run(tmp_path, "six_games", seed, format_rate=0.99 + more / 1000)
        run(tmp_path, "six_games-no_format_reward", seed, format_rate=0.5)
    run(tmp_path, "six_games-clip_ratio=0.05", 10, won=40)
    lines = results.claims_table(results.CLAIMS, tmp_path).splitlines()[2:]
    said = {cells[1].strip(): (cells[2].strip(), cells[3].strip()) for cells in (line.split("|") for line in lines)}
    assert said["Divide-Fuse-Conquer beats the base model, final score"] == (
        "+0.510 [+0.485, +0.535] (+0.500, +0.510, +0.520)",
        "held",
    )
    naive, word = said["it beats Naive-MSRL (GRPO over all games with its sampling and acceptance)"]
    assert (naive[-24:], word) == ("(-0.050, -0.040, -0.030)", "not held")
    assert said["it beats SFT on wins"][1] == "undecided"
    form, word = said["the format reward keeps the format (format rate with, less without)"]
    assert form.startswith("+0.491 [")
    assert word.startswith("undecided (floor or ceiling: ")
    assert said["conquering regains what fusing costs, and more"] == (
        "none by seed",
        "undecided (no differences by seed)",
    )
    clip = said["the clip ratio decides much (appendix F; final win rate with 0.2, less with 0.05)"]
    assert clip == ("+0.100 (one seed)", "undecided (one seed)")
    assert len(said) == 7  # the two without figures among them, those of runs that were not made left out


def test_the_price_of_illegal_tries_is_compared_with_and_without_the_format_reward(results, tmp_path):
    rates = {
        "six_games": 0.99,
        "six_games-no_price": 0.97,
        "six_games-no_format_reward": 0.98,
        "six_games-no_price_no_format_reward": 0.95,
    }
    for seed in (10, 11):
        for name, rate in rates.items():
            run(tmp_path, name, seed, format_rate=rate)
    found = [row.read(tmp_path) for row in results.FORM]
    assert found == [pytest.approx([0.02] * 2), pytest.approx([0.02] * 2), pytest.approx([0.03] * 2)]
