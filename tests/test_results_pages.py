"""The results pages: every verdict is the rule's, from the differences printed beside it; the README says no more."""

import importlib
import math
import re
import sys
from pathlib import Path

import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
PAGES = ("divide_fuse_conquer", "paprika", "playpen", "language_self_play")


@pytest.fixture
def verdicts(monkeypatch):
    """The script that judges the pages."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    yield importlib.import_module("study_verdicts")
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "benchmarks")):
            del sys.modules[name]


def text(name):
    return (RESULTS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_every_verdict_on_a_page_is_that_of_the_rule(verdicts, name):
    found = verdicts.verdicts(text(name), verdicts.STUDIES[name])
    assert [(row.text, row.verdict) for row, _ in found] == [(row.text, here) for row, here in found]


@pytest.mark.parametrize("name", PAGES)
def test_every_interval_on_a_page_is_students_of_the_differences_behind_it(verdicts, name):
    """Oracle: scipy, within what rounding of the printed differences can move."""
    checked = 0
    for row, _ in verdicts.verdicts(text(name), verdicts.STUDIES[name]):
        if len(row.differences) < 2:
            assert row.figures == (), row.text
            continue
        n = len(row.differences)
        mean, error = math.fsum(row.differences) / n, stats.sem(row.differences)
        half = stats.t.ppf(0.975, n - 1) * error
        line = text(name).splitlines()[row.line]
        digits = len(re.search(r"[+-]\d+\.(\d+) \[", line)[1])
        assert row.figures == pytest.approx((mean, mean - half, mean + half), abs=2.5 * 10**-digits), row.text
        checked += 1
    assert checked >= 8


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_claim_that_the_scripts_have_not(verdicts, name):
    page, study = text(name), verdicts.STUDIES[name]
    first = next(iter(study.values()))[0].claim.text
    assert f"| {first} |" in page
    with pytest.raises(ValueError, match=r"expected the script's claims in their order; .*another claim"):
        verdicts.verdicts(page.replace(f"| {first} |", "| another claim |"), study)


@pytest.mark.parametrize("name", PAGES)
def test_every_page_links_to_the_rule_and_has_no_other(name):
    assert "](verdicts.md)" in text(name)
    assert "claimed side" not in text(name)


def test_a_verdict_written_by_hand_is_seen(verdicts):
    page = text("playpen")
    row, _ = verdicts.verdicts(page, verdicts.STUDIES["playpen"])[3]
    assert row.text == "GRPO raises out of domain"
    lines = page.splitlines()
    lines[row.line] = lines[row.line].replace(row.verdict, "held")
    changed, here = verdicts.verdicts("\n".join(lines), verdicts.STUDIES["playpen"])[3]
    assert (changed.verdict, here) == ("held", row.verdict)
    assert here.startswith("undecided (floor or ceiling: ")


def test_a_claim_that_was_judged_otherwise_before_says_so(verdicts):
    earlier = {
        (name, row.text): row.verdict.partition("; earlier: ")[2]
        for name in PAGES
        for row in verdicts.printed(text(name))
        if "earlier" in row.verdict
    }
    assert earlier["playpen", "GRPO raises out of domain"] == "held"
    assert earlier["paprika", "transfer to groups left out, mean of 4"] == "not held"
    assert earlier["language_self_play", "the KL term that holds is better than the published one"] == "held"
    assert len(earlier) == 10
