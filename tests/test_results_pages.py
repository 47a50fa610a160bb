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
JUDGED = (*PAGES, "kept_sets")


@pytest.fixture(scope="module")
def verdicts():
    """The script that judges the pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        before = set(sys.modules)
        yield importlib.import_module("study_verdicts")
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "benchmarks")):
                del sys.modules[name]  # other tests make modules of their own from these files


def text(name):
    return (RESULTS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", JUDGED)
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


@pytest.mark.parametrize("name", JUDGED)
def test_a_page_has_no_claim_that_the_scripts_have_not(verdicts, name):
    page, study = text(name), verdicts.STUDIES[name]
    first = next(iter(study.values()))[0].claim.text
    assert f"| {first} |" in page
    with pytest.raises(ValueError, match=r"expected the script's claims in their order; .*another claim"):
        verdicts.verdicts(page.replace(f"| {first} |", "| another claim |"), study)


@pytest.mark.parametrize("name", JUDGED)
def test_every_page_links_to_the_rule_and_has_no_other(name):
    assert "](verdicts.md)" in text(name)
    assert "claimed side" not in text(name)


@pytest.mark.parametrize("page", sorted(RESULTS.glob("*.md")), ids=lambda page: page.name)
def test_links_of_results_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    for link in (link for link in links if not link.startswith("http")):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.is_file(), link
        titles = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, (
            link
        )


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


# ---- the README -----------------------------------------------------------------------------------------------------


def results_of_the_readme():
    """Rows of the README's table of results: (model, method, difference with interval and verdict)."""
    _, _, behind = (ROOT / "README.md").read_text(encoding="utf-8").partition("| model, games | method |")
    rows = [line.strip("|").split("|") for line in behind.partition("\n\n")[0].splitlines()[2:]]
    return [(row[0].strip(), row[1].strip(), row[-1].strip()) for row in rows]


def seeds_of(name, heading, row, column):
    """The figures by seed in a cell of the first table below a heading that has the row."""
    _, _, behind = text(name).partition(f"# {heading}\n")
    line = next(line for line in behind.splitlines() if line.startswith(f"| {row} |"))
    cell = line.strip("|").split("|")[column]
    return [float(number) for number in re.findall(r"[\d.]+", cell.partition("(")[2] or cell)]


def test_every_result_of_the_readme_has_an_interval():
    assert len(results_of_the_readme()) == 13
    for _, method, difference in results_of_the_readme():
        assert re.match(r"[+-][\d.]+ \[[+-][\d.]+, [+-][\d.]+\]", difference), method
        assert "plain" not in method


@pytest.mark.parametrize(
    ("place", "name", "heading", "claim"),
    [
        (0, "divide_fuse_conquer", "What holds", "Divide-Fuse-Conquer beats the base model, final score"),
        (3, "paprika", "Claims", "SFT then RPO beats the base model on the tasks trained on"),
        (4, "paprika", "Claims", "SFT then RPO beats the base model, mean over groups"),
        (5, "language_self_play", "Results of the second round", "self-play (lsp) beats the base"),
        (8, "language_self_play", "Results of the second round", "data-backed RL beats the base"),
    ],
)
def test_the_readme_says_of_a_claim_what_its_page_says(verdicts, place, name, heading, claim):
    (row,) = [row for row in verdicts.printed(text(name)) if (row.heading, row.text) == (heading, claim)]
    interval = re.match(r"[^|]*?([+-][\d.]+ \[.*?\])", text(name).splitlines()[row.line].partition(claim)[2][2:])[1]
    word = re.match("held|not held|undecided", row.verdict)[0]
    assert results_of_the_readme()[place][2].startswith(f"{interval}, {word}")


FINAL = ("divide_fuse_conquer", "Final scores")
ACCURACY = ("language_self_play", "Second round: greedy accuracy, percent")


@pytest.mark.parametrize(
    ("place", "table", "row", "before", "column"),
    [
        (1, FINAL, "Naive-MSRL", "base model", 2),
        (2, FINAL, "SFT on wins", "base model", 2),
        (6, ACCURACY, "lsp_worst", "base", 1),
        (7, ACCURACY, "untrained_challenger", "base", 1),
    ],
)
def test_the_readmes_other_intervals_are_students_of_the_figures_by_seed(place, table, row, before, column):
    after, start = (seeds_of(*table, name, column) for name in (row, before))
    differences = [one - other for one, other in zip(after, start, strict=False)]
    mean, low, high = (float(number) for number in re.findall(r"[+-][\d.]+", results_of_the_readme()[place][2]))
    expected = stats.t.interval(0.95, len(after) - 1, loc=sum(differences) / len(after), scale=stats.sem(differences))
    assert (mean, low, high) == pytest.approx((sum(differences) / len(after), *expected), rel=0.005, abs=0.002)


@pytest.mark.parametrize(
    ("place", "row"),
    [
        (9, "Nim | its initial self"),
        (10, "Nim | random legal play"),
        (11, "TicTacToe | its initial self"),
    ],
)
def test_the_readmes_intervals_over_games_are_newcombes(place, row):
    line = next(line for line in text("smollm2").splitlines() if line.startswith(f"| {row} |"))
    before, b_low, b_high, after, a_low, a_high = (float(number) for number in re.findall(r"\d\.\d{3}", line)[:6])
    d = after - before
    expected = (d, d - math.hypot(after - a_low, b_high - before), d + math.hypot(a_high - after, before - b_low))
    difference = results_of_the_readme()[place][2]
    assert [float(number) for number in re.findall(r"[+-][\d.]+", difference)] == pytest.approx(expected, abs=0.0051)
    assert "undecided" in difference


def test_the_readme_says_how_far_playpens_arms_are_from_the_base():
    lines = text("playpen").partition("### Table 1's shape")[2].splitlines()[4:10]
    scores = [[float(line.strip("|").split("|")[column].split()[0]) for column in (3, 7)] for line in lines]
    most = max(abs(value - base) for arm in scores[1:] for value, base in zip(arm, scores[0], strict=True))
    said = re.search(r"clemscore over three seeds is more than ([\d.]+) points", (ROOT / "README.md").read_text())
    assert float(said[1]) - 0.1 < most <= float(said[1])
