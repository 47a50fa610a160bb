"""The study of Language Self-Play: which runs there are, what they are given, and how a claim is read off them."""

import collections
import importlib.util
import json
import math
import sys
from pathlib import Path

import pytest

from dfc import validation
from dfc.launch import command_line, overrides
from dfc.methods.language_self_play import families

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    """Both scripts of the study as modules."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = []
    for name in ("study_command", "study_tables", "lsp_study", "lsp_study_results"):
        specification = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(specification)
        monkeypatch.setitem(sys.modules, name, module)
        specification.loader.exec_module(module)
        found.append(module)
    return found[2:]


def test_every_arm_is_a_valid_configuration_with_as_many_answers(scripts):
    study, answers = scripts[0], set()
    runs = {run.name: run for run in study.plan(Path("out/20"), "base")}
    assert [run.name for run in study.plan(Path("out/24"), "base")] == ["untrained_challenger", "lsp_zero_worst"]
    for arm in study.ARMS:
        changes = list(runs[arm.name].changes)
        config, found = overrides.override(command_line.load("configs/lsp_study.py"), changes)
        assert found + validation.problems(config) == [], arm.name
        assert config.model.path == ("out/20/lsp/policy" if arm.name == "lsp_then_data" else "base")
        guarded = config.challenger.unsolved_queries == config.challenger.bad_queries == "worst"
        assert guarded == (
            arm.name in {"lsp_zero_worst", "lsp_worst"}
        )  # so that self-reward is the only guard of the others
        answers.add(config.iterations * config.groups_per_iteration * config.group_size)
    assert answers == {200 * 32 * 8}
    order = list(runs)
    assert order.index("lsp") < order.index("lsp_then_data")


def test_given_queries_are_of_all_cells_alike_and_none_is_a_test_query(scripts, tmp_path):
    study = scripts[0]
    study.write_queries(tmp_path / "queries.txt", 10, 320)
    given = (tmp_path / "queries.txt").read_text().splitlines()
    cells = collections.Counter((p.family, p.difficulty) for p in map(families.read, given))
    assert set(cells.values()) == {8}
    assert len(cells) == 8 * len(study.names())
    assert not set(given) & set(study.test_queries())
    tested = collections.Counter((p.family, p.difficulty) for p in map(families.read, study.test_queries()))
    assert set(tested.values()) == {25}


def test_claims_are_read_off_accuracies_and_the_end_of_runs(scripts, tmp_path):
    study, results = scripts
    found = {}
    for number, seed in enumerate(("10", "11", "12")):
        found[seed] = {"base": figures(0.3)}
        for arm in study.ARMS:
            found[seed][arm.name] = figures(0.6 + 0.01 * number if arm.name != "lsp_zero" else 0.2)
            place = tmp_path / seed / arm.name
            place.mkdir(parents=True)
            live = 0.02 if arm.name == "lsp_zero" else 0.5 + 0.01 * number
            rows = [{"metrics": {"live": 0.6}}] * 30 + [{"metrics": {"live": live, "difficulty": 4.0}}] * 10
            (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = results.claims_table(results.CLAIMS, results.Measured(tmp_path, found)).splitlines()
    said = {line.split(" | ")[0].removeprefix("| "): line.rpartition(" | ")[2].removesuffix(" |") for line in lines[2:]}
    marks = "undecided (chosen on result seeds: the mark of answers that leave the judge no room"
    assert said["data-backed RL beats the base"] == "held"
    assert said["self-play (lsp) beats the base"] == f"{marks}); earlier: held"
    assert said["self-play without self-reward (lsp_zero) beats the base"] == "not held"
    assert said["it degenerates: less than 10 % of queries live at the end"] == "held"
    assert said["`worst` prevents it: the same"] == "held"
    assert said["self-reward prevents it: more live queries than without"] == f"{marks}); earlier: held"
    foreseen = "smaller than the half-width foreseen"
    assert said["the same with `worst`: lsp_zero_worst above untrained_challenger"] == f"undecided ({foreseen}, 3.9)"
    assert said["training the Challenger adds: lsp above untrained_challenger"] == f"{marks}; {foreseen}, 7.7)"
    assert said["w = 1 makes easier queries than w = 1/7"] == f"{marks})"
    first = {row.claim.text: row.claim for row in results.FIRST_CLAIMS}
    assert len(first) == 15
    assert {claim.foreseen for claim in first.values()} == {6.3, 9.0, None}
    assert all(claim.clauses == () for claim in first.values())
    assert "+8.0 [+8.0, +8.0]" in next(line for line in lines if "less than 10 %" in line)
    assert "| lsp_zero | 60 | 60 |" in results.courses(tmp_path, found, "live", 100, 0)


def test_a_figure_that_no_iteration_has_decides_nothing(scripts, tmp_path):
    results = scripts[1]
    place = tmp_path / "20" / "lsp"
    place.mkdir(parents=True)
    place.joinpath("metrics.jsonl").write_text(json.dumps({"metrics": {"live": 0.5}}) + "\n")
    assert results.at_the_end(tmp_path, "20", "lsp", "live") == 0.5
    assert math.isnan(results.at_the_end(tmp_path, "20", "lsp", "difficulty"))
    found = {"20": {arm: figures(0.5) for arm in ("base", "lsp", "lsp_w1")}}
    place.with_name("lsp_w1").mkdir()
    place.with_name("lsp_w1").joinpath("metrics.jsonl").write_text(json.dumps({"metrics": {"difficulty": 4.0}}) + "\n")
    table = results.claims_table(results.CLAIMS, results.Measured(tmp_path, found))
    assert "makes easier queries" not in table


def test_accuracies_of_another_model_are_refused(scripts, tmp_path):
    results = scripts[1]
    base, seed = tmp_path / "policy", tmp_path / "20"
    base.mkdir()
    seed.mkdir()
    (base / "model.safetensors").write_bytes(b"first")
    kept = {"of": results.digest(base), "policies": {"base": figures(0.3)}}
    seed.joinpath("accuracy.json").write_text(json.dumps(kept))
    assert results.measure(tmp_path, base, ("20", "21")) == {"20": {"base": figures(0.3)}}
    (base / "model.safetensors").write_bytes(b"second")
    with pytest.raises(SystemExit, match=r"20/accuracy\.json: measured on other test queries or beside another model"):
        results.measure(tmp_path, base, ("20",))


def figures(accuracy):
    names = ("sort_digits", "reverse_letters", "add_digits", "shift_letters", "encode_letters")
    return {"accuracy": accuracy, "families": dict.fromkeys(names, accuracy), "difficulties": {"1": accuracy}}
