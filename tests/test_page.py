"""One table written three ways, and the frame that every page has."""

import dataclasses
import json
import re

import pytest
from markupsafe import Markup
from rich.cells import cell_len
from run_files import NASTY, Page

from dfc.report import page
from dfc.report.page import Results, Section
from dfc.report.tables import Table, signed

TABLE = Table(
    "Games",
    ("game", "kind", "won", Markup('<abbr title="of all">share</abbr>')),
    (("日本語", "a|b", "3", "12.5 ± 1.0"), ("Nim\nv0", "<b>", "1,200", Markup("<b>7.0 ± 0.1</b>"))),
    notes=("Won: by <rules>.",),
    foot=(("all", "", "1,203", "-"),),
)


def test_a_table_of_a_terminal_is_aligned_whatever_its_letters_and_figures_stand_to_the_right():
    title, header, *rows = TABLE.lines()
    assert (title, header.split()) == ("Games", ["game", "kind", "won", "share"])
    assert [row.split() for row in rows] == [
        ["日本語", "a|b", "3", "12.5", "±", "1.0"],
        ["Nim", "v0", "<b>", "1,200", "7.0", "±", "0.1"],
        ["all", "1,203", "-"],
    ]
    for line, kind in zip((header, *rows[:2]), ("kind", "a|b", "<b>"), strict=True):
        assert cell_len(line[: line.index(kind)]) == cell_len("日本語") + 2
    assert len({cell_len(line) for line in (header, *rows)}) == 1  # each ends with a figure


def test_what_others_wrote_drives_no_terminal_and_stays_on_its_line():
    lines = Table("t", ("a", "b"), (("\x1b[2J\u202e", "[red]x[/red]\n\ny"),)).lines()
    assert lines[2] == "\\x1b[2J\\u202e  [red]x[/red] y"


def test_a_wide_table_is_not_wrapped():
    row = tuple(f"{'word ' * 30}{n}" for n in range(20))
    assert Table("t", row, (row,)).lines()[2].split("  ") == list(row)


def test_markdown_keeps_cells_apart_and_has_title_foot_and_notes():
    assert TABLE.markdown().splitlines() == [
        "### Games",
        "",
        "| game | kind | won | share |",
        "| --- | --- | --- | --- |",
        "| 日本語 | a\\|b | 3 | 12.5 ± 1.0 |",
        "| Nim v0 | <b> | 1,200 | 7.0 ± 0.1 |",
        "| all |  | 1,203 | - |",
        "",
        "Won: by <rules>.",
    ]


def test_html_escapes_all_but_markup_and_sets_figures_to_the_right():
    text = TABLE.html()
    assert '<td>&lt;b&gt;</td><td class="n">1,200</td><td class="n"><b>7.0 ± 0.1</b></td>' in text
    assert '<th scope="row">日本語</th><td>a|b</td>' in text
    assert '<th scope="col" class="n"><abbr title="of all">share</abbr></th>' in text
    assert '<tfoot><tr><th scope="row">all</th>' in text
    assert "rule" not in text
    names = Table("t", (), (("a", "1"), ("a", "2"), ("b", "3"))).html()
    assert re.findall(r'<tr( class="rule")?>', names) == ["", "", ' class="rule"']


def test_a_row_of_another_length_is_refused():
    for rows, foot in (((("1",),), ()), ((), (("1", "2", "3"),))):
        with pytest.raises(ValueError, match="t: expected 2 texts in a row"):
            Table("t", ("a", "b"), rows, foot=foot)


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.104, "+0.10"), (-0.104, "\u22120.10"), (-0.001, "0.00"), (float("nan"), "–")],  # noqa: RUF001 - the dash the page shows
)
def test_a_difference_that_rounds_to_nothing_has_no_sign(value, written):
    assert signed(value) == written


def test_a_page_needs_no_other_file_and_no_text_becomes_markup():
    named = Section(
        "Results", ["A <b>paragraph</b>.", TABLE, page.note(NASTY), page.embedded("data", {"x": NASTY})], "Here"
    )
    found = Page(page.html(f"run {NASTY}", "<kind>", [NASTY], [named, Section(NASTY, [])], state={"x": '">'}))
    assert found.links == ["#main", "#here"]
    assert {"main", "here"} <= {a.get("id") for _, a in found.tags}
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert [a.get("type") for tag, a in found.tags if tag == "script"] == ["application/json", None]
    assert json.loads(found.scripts[0]) == {"x": NASTY}
    assert found.text.count("<img src=x onerror=alert(1)>") == 5  # title, heading, lead, note, second section
    assert "A <b>paragraph</b>. Games" in found.text
    assert "Won: by <rules>." in found.text


def test_results_come_as_page_markdown_json_and_lines(tmp_path, capsys):
    given = Results("Study", "<x>", ["How."], [TABLE], {"a": 1}, ["in", "short"], [Section("Drawn", ["A dot."])])
    page.publish(tmp_path, given)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "results.json", "tables.md"]
    assert json.loads((tmp_path / "results.json").read_text()) == {"a": 1}
    assert (tmp_path / "tables.md").read_text() == f"# Study <x>\n\nHow.\n\n{TABLE.markdown()}"
    found = Page((tmp_path / "report.html").read_text())
    assert "Study <x> How. Drawn A dot. Games" in found.text
    assert [row[0].strip() for row in found.tables[0]] == ["game", "日本語", "Nim v0", "all"]
    places = f"in\nshort\ntables: {tmp_path / 'tables.md'}\nreport: {tmp_path / 'report.html'}\n"
    assert capsys.readouterr().out == places
    page.publish(tmp_path, dataclasses.replace(given, data={"a": 2}), write=False)
    assert json.loads((tmp_path / "results.json").read_text()) == {"a": 1}
    assert capsys.readouterr().out == places
    (tmp_path / "more").mkdir()
    page.publish(tmp_path / "more", dataclasses.replace(given, first=1))
    assert "Study <x> How. Games" in Page((tmp_path / "more" / "report.html").read_text()).text
