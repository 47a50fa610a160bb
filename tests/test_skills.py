"""lm-eval's results read, grouped as Playpen's Table 2, and shown before and after."""

import json
import math

import pytest

from dfc.evaluation.skills import CATEGORIES, MISSING, category, difference, read_skills
from dfc.launch import skills as command
from dfc.report import skills_page


def written(path, **tasks):
    """A file as lm-eval 0.4.13 writes it, of tasks with (value, standard error, questions) by metric."""
    results, counts = {}, {}
    for task, (metric, value, error, count) in tasks.items():
        name, _, filtered = metric.partition(",")
        results[task] = {"alias": task, metric: value, f"{name}_stderr,{filtered}": error}
        counts[task] = {"original": count, "effective": count}
    path.write_text(json.dumps({"results": results, "n-samples": counts, "config": {"model": "hf"}}))
    return path


def before(path):
    return written(
        path,
        ifeval=("prompt_level_strict_acc,none", 0.7, 0.02, 541),
        mmlu_pro=("exact_match,custom-extract", 0.4, 0.03, 100),
        bbh=("exact_match,get-answer", 0.6, 0.04, 100),
        logiqa2=("acc,none", 0.3, "N/A", 50),
        eq_bench=("eqbench,none", 61.5, 2.0, 171),
    )


def test_a_result_is_in_percent_with_its_error_and_questions(tmp_path):
    found = read_skills(before(tmp_path / "a.json"))
    assert set(found) == {"ifeval", "mmlu_pro", "bbh", "logiqa2", "eq_bench"}
    assert (found["ifeval"].percent, found["ifeval"].error) == pytest.approx((70.0, 2.0))
    assert (found["ifeval"].metric, found["ifeval"].questions) == ("prompt_level_strict_acc", 541)
    assert found["logiqa2"].error is None
    assert (found["eq_bench"].percent, found["eq_bench"].error) == (61.5, 2.0)
    low, high = found["ifeval"].bounds(0.0, 100.0)
    assert (low, high) == pytest.approx((70 - 1.96 * 2, 70 + 1.96 * 2), abs=1e-3)


def test_a_category_is_the_mean_of_its_tests_and_a_difference_has_both_errors(tmp_path):
    found = read_skills(before(tmp_path / "a.json"))
    both = category(found, "General QA")
    assert (both.percent, both.error) == pytest.approx((50.0, math.hypot(3, 4) / 2))
    assert category(found, "Executive").error is None
    assert category({}, "IFEval") is None
    less = difference(found["mmlu_pro"], found["bbh"])
    assert (less.percent, less.error) == pytest.approx((-20.0, 5.0))
    assert difference(found["logiqa2"], found["bbh"]).error is None


def test_the_page_has_the_columns_of_the_table_that_were_run_and_names_what_is_missing(tmp_path, capsys):
    first = before(tmp_path / "a.json")
    data = json.loads(first.read_text())
    data["results"]["ifeval"]["prompt_level_strict_acc,none"] = 0.5
    (tmp_path / "b.json").write_text(json.dumps(data))
    assert command.main([f"--out={tmp_path / 'out'}", f"base={first}", f"sft={tmp_path / 'b.json'}"]) == 0
    said = capsys.readouterr().out
    assert "| policy | Executive | Socio-emotional | General QA | IFEval |" in said
    assert "50.00 [46.08, 53.92]" in said
    assert "| sft, less the first |" in said
    assert "-20.00 [-25.54, -14.46]" in said
    text = (tmp_path / "out" / "report.html").read_text()
    assert all(test in text for tests in MISSING.values() for test in tests)
    assert (tmp_path / "out" / "tables.md").exists()
    assert json.loads((tmp_path / "out" / "results.json").read_text())["sft"]["ifeval"]["percent"] == 50.0


def test_tasks_of_ones_own_have_a_table_of_their_own(tmp_path):
    found = read_skills(written(tmp_path / "a.json", mine=("exact_match,none", 0.25, 0.1, 4)))
    assert read_skills(written(tmp_path / "b.json", mine=("exact_match,none", 0.0, 0.0, 4)))["mine"].error is None
    (table,) = skills_page.tables({"base": found})
    assert (table.title, table.header) == ("Skills by task", ("policy", "mine"))
    assert not set(found) & {test for tests in CATEGORIES.values() for test in tests}


def test_policies_with_different_tasks_are_refused(tmp_path):
    one = read_skills(before(tmp_path / "a.json"))
    with pytest.raises(ValueError, match="sft: only it or only the first policy has ifeval; run the same tasks"):
        skills_page.tables({"base": one, "sft": {task: skill for task, skill in one.items() if task != "ifeval"}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[" * 10**5, "no JSON"),
        ("[]", "it has no 'results' of tasks"),
        ('{"results": {}}', "it has no 'results' of tasks"),
        ('{"results": {"a": {"perplexity,none": 3}}}', "no task has one of the metrics"),
        ('{"results": {"a": {"acc,none": "N/A"}}}', "a, acc,none: expected a number, got 'N/A'"),
        ('{"results": {"a": {"acc,none": NaN}}}', "expected a number, got 'nan'"),
    ],
)
def test_a_file_that_is_none_of_lm_eval_is_named(tmp_path, capsys, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=rf"a\.json: .*{message}"):
        read_skills(tmp_path / "a.json")
    assert command.main([f"--out={tmp_path}", f"base={tmp_path / 'a.json'}"]) == 2
    assert command.main([f"--out={tmp_path}", "base"]) == 2
    assert "expected NAME=FILE, every name once" in capsys.readouterr().err


def test_an_address_is_no_folder_to_write(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main(["--out=gs://bucket/skills", "base=a.json"]) == 2
    assert "--out=gs:/bucket/skills: is an address" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
