"""The page and the last lines of a run of self-play: figures, alarms where they belong, hostile text as text."""

import json

import pytest
from run_files import NASTY, Page

from dfc.methods.language_self_play import page as self_play_page
from dfc.report import reader, run_page, warnings

ITERATIONS = 40
PHASES = ("queries", "answers", "reward", "self_reward", "reference", "update")


def metric_line(iteration):
    late = iteration > 20
    figures = {
        "reward": iteration / 100,
        "live": 0.05 if late else 0.5,
        "template": 1.0,
        "code_like": 0.5 if iteration > 30 else 0.0,
        "distinct_2": 0.5,
        "query_length": 20.0,
        "solver/log_ratio": 0.25,
        "bad_queries/echo": float(iteration == 7),
        "bad_queries/cut": 0.0,
        "updates": 1.0,
        **({"probe_reward": 0.125} if iteration % 10 == 1 else {}),
    }
    seconds = {f"{phase}_seconds": 4.0 if iteration == 1 else float(phase == "answers") for phase in PHASES}
    clock = {**seconds, "seconds": 6.0, "episodes_per_second": 1.0, "tokens_per_second": 2.0}
    return {"step": iteration, "stage": "self-play", "iteration": iteration, "metrics": figures, "clock": clock}


def episode(iteration, text, answers, **more):
    said = [[0, one, "policy"] for one in (text, *answers)]
    known = {
        "game": "language_self_play",
        "stage": "self-play",
        "kind": "query",
        "iteration": iteration,
        "outcomes": ["truncated"],
        "query": text,
        "task": "sums",
        "wrong": None,
        "replies": said,
        "rewards": [float(number) for number in range(len(answers))],
        "scored": [True] * len(answers),
        "reward": 0.5,
        "advantage": -0.25,
    }
    return known | more


def lines(iteration):
    yield episode(
        iteration, f"Add {iteration}.", ["no", f"middle {iteration}", "yes"], marks=[0, 0, 7], judge=[["?"]] * 3
    )
    yield episode(iteration, f"Add {iteration}. again", ["no"])  # of the same task, and nothing wrong either
    yield episode(
        iteration, f"{NASTY}\x1b[31m {iteration}", [NASTY], scored=[False], marks=[0], judge=[[NASTY]], task=NASTY
    )
    yield episode(iteration, "", [], wrong="empty")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    (path / "config.json").write_text(json.dumps({"recipe": "language_self_play", "name": "played"}), encoding="utf-8")
    every = range(1, ITERATIONS + 1)
    streams = {"metrics": map(metric_line, every), "episodes": (one for i in every for one in lines(i))}
    for name, records in streams.items():
        (path / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    (path / "finished.json").write_text("{}", encoding="utf-8")
    return path


def test_ends_of_a_short_run_share_no_iteration_and_a_run_without_a_live_query_says_so(tmp_path):
    (tmp_path / "config.json").write_text('{"recipe": "language_self_play", "name": "short"}', encoding="utf-8")
    every = [metric_line(iteration) for iteration in (1, 2, 3)]

    def shown():
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in every), encoding="utf-8")
        return Page(run_page.build(tmp_path).read_text(encoding="utf-8"))

    page = shown()
    assert page.tables[0][0] == ["Figure", "First 1", "Last 1", "All"]
    assert {row[0].strip(): row[1:] for row in page.tables[0][1:]}["Reward R"] == ["0.010", "0.030", "0.020"]
    assert "first 1" in "\n".join(self_play_page.lines(tmp_path))
    assert "nothing was learned" not in page.text
    for line in every:
        line["metrics"]["live"] = 0.0
    assert "No query was live in any iteration: all its answers earned the same" in shown().text


def test_answers_without_a_reward_are_counted_on_page_and_console(tmp_path):
    (tmp_path / "config.json").write_text('{"recipe": "language_self_play", "name": "short"}', encoding="utf-8")

    def shown(*missing):
        every = [metric_line(iteration) for iteration in (1, 2)]
        for line, count in zip(every, missing, strict=True):
            line["metrics"] |= {"unscored_answers": float(count), "live": 0.0}
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in every), encoding="utf-8")
        console = [line.split() for line in self_play_page.lines(tmp_path)]
        return Page(run_page.build(tmp_path).read_text(encoding="utf-8")), console

    page, console = shown(3, 5)
    assert "8 answers had no reward (no finite number in R), left out of means and losses." in page.text
    assert "no two of its answers were scored differently, and nothing was learned" in page.text
    assert ["Answers without a reward", "3.000", "5.000", "4.000"] in page.tables[0]
    assert ["Answers", "without", "a", "reward", "3.000", "5.000"] in console
    page, console = shown(0, 0)
    assert "without a reward" not in page.text
    assert not any("without" in line for line in console)


@pytest.fixture(scope="module")
def page(folder):
    return Page(run_page.build(folder).read_text(encoding="utf-8"))


def test_figures_stand_at_both_ends_and_seconds_beside_their_share(page):
    figures, seconds = page.tables[:2]
    assert figures[0] == ["Figure", "First 5", "Last 5", "All"]
    rows = {row[0].strip(): row[1:] for row in figures[1:]}
    assert rows["Reward R"] == ["0.030", "0.380", "0.205"]
    assert rows["Reward of fixed queries"] == ["0.125"] * 3
    assert rows["Live queries ⚠"] == ["50.0 %", "5.0 %", "27.5 %"]
    assert rows["Template kept"] == ["100.0 %"] * 3
    assert {row[0]: row[1:] for row in seconds}["Answers"] == ["4.00", "1.00", "43.0 s", "68.3 %"]
    assert "Options that differ" not in page.text  # of games
    assert "Against" not in page.text
    assert "has no row of stage" not in page.text


def test_alarms_are_warnings_from_where_they_begin(folder):
    found = {warning.metrics[0]: warning for warning in warnings.of_run(reader.read(folder))}
    assert {name: (one.first, one.iteration) for name, one in found.items()} == {
        "live": (30, 40),
        "code_like": (31, 40),
    }
    assert found["live"].sentence == "5% of queries have answers that differ in reward; below 10% for 20 iterations."


def test_curves_stand_in_groups_and_are_marked_where_an_alarm_is(page):
    assert [words for words in ("Queries", "Answers", "Learning", "Machinery") if words not in page.text] == []
    figures = [attrs for tag, attrs in page.tags if tag == "figure"]
    warned = [attrs["data-metric"] for attrs in figures if attrs.get("class") == "warned"]
    assert warned == ["live", "code_like"]
    drawn = [attrs["data-metric"] for attrs in figures]
    assert "bad_queries/echo" in drawn
    assert "bad_queries/cut" not in drawn  # there was none
    assert len(drawn) == len(set(drawn))


def test_queries_of_iterations_all_over_the_run_are_kept_one_of_each_kind(folder):
    found = reader.read(folder).queries
    assert list(found) == [1, 9, 17, 25, 33, 40]
    assert all(len(records) == 3 for records in found.values())
    assert reader.read(folder).episodes == []


def test_hostile_text_is_text(page):
    assert page.scripts
    assert not any("alert" in script for script in page.scripts)
    assert not any(tag == "img" for tag, _ in page.tags)
    assert "<script>alert('x')</script>" in page.text
    assert "\x1b" not in page.text
    assert "\\x1b[31m" in page.text


def test_of_the_answers_the_best_and_the_worst_are_shown_with_their_marks(page):
    assert "Solver, answer 3 of 3" in page.text
    assert "R 2, mark 7" in page.text
    assert "R 0, mark 0" in page.text
    assert "middle 40" not in page.text
    assert "R 0, no mark, excluded from means and losses" in page.text
    assert "not answered" in page.text


def test_the_console_has_the_figures_and_no_table_of_matches(folder):
    found = self_play_page.lines(folder)
    assert any(line.split() == ["Reward", "R", "0.030", "0.380"] for line in found)
    assert not any("against" in line or "truncated" in line for line in found)


@pytest.mark.parametrize("missing", ["metrics", "episodes"])
def test_a_run_that_has_just_begun_has_a_page(folder, tmp_path, missing):
    for file in folder.glob("*.json*"):
        if file.stem != missing:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    found = Page(run_page.build(tmp_path).read_text(encoding="utf-8")).text
    assert ("No iteration has been recorded" in found) == (missing == "metrics")
    assert ("No query has been recorded" in found) == (missing == "episodes")


def test_records_of_another_form_leave_a_gap(folder, tmp_path):
    for file in folder.glob("*.json*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    broken = episode(41, "odd", ["a"], rewards="x", scored=None, marks=7, judge=[1], replies=[["only"]], reward="?")
    with (tmp_path / "episodes.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(broken) + "\n")
    assert "odd" in Page(run_page.build(tmp_path).read_text(encoding="utf-8")).text
