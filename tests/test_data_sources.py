"""Where everything that the games play with comes from is written in docs/games.md."""

import ast
import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "games.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Where the words, cities and facts come from\n")[2].partition("\n## ")[0]
LISTED = {name for row in re.findall(r"^\| (`.*?`) \|", SECTION, re.MULTILINE) for name in re.findall("`(.*?)`", row)}
RULES = ("dialogue", "paprika", "textarena", "bots")  # the rest of games/ holds no game
WORDS = 10  # of one constant, from which on a module holds data


def holds_data(path):
    """Whether a constant of a module is a list of words, of sentences or of numbers in a text."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            texts = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
            if sum(len(text.split()) for text in texts) >= WORDS:
                return True
    return False


def bearing_data():
    files = {p for p in (ROOT / "games").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    modules = {p for p in files if p.suffix == ".py"}
    ours = {p for p in modules if p.relative_to(ROOT / "games").parts[0] in RULES and holds_data(p)}
    return sorted(str(path.relative_to(ROOT / "games")) for path in (files - modules) | ours)


@pytest.mark.parametrize("name", bearing_data())
def test_every_file_of_games_with_data_has_a_source(name):
    assert name in LISTED


def test_the_list_names_nothing_that_is_gone():
    assert set(bearing_data()) >= LISTED


def test_every_row_says_what_and_whence_and_all_have_the_licence_of_the_project():
    rows = [row.strip("| ").split(" | ") for row in SECTION.splitlines() if row.startswith("| `")]
    assert len(rows) > 10
    assert all(len(row) == 3 and all(cell.strip() for cell in row) for row in rows)
    assert "Apache-2.0" in SECTION
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("paprika/data/topics.json", {"topics": 1264, "categories": 16, "attributes": 212}),
        ("paprika/data/cities.json", {"cities": 432, "countries": 133}),
        ("paprika/data/service_cases.json", {"train": 120, "test": 40, "domains": 20}),
        ("paprika/data/mysteries.json", {"train": 60, "test": 20}),
        ("paprika/data/bandit_scenarios.json", {"train": 81, "test": 1}),
        ("textarena/data/fact_pairs.json", {"train": 303, "eval": 101}),
    ],
)
def test_the_sizes_in_the_list_are_those_of_the_files(name, counts):
    data = json.loads((ROOT / "games" / name).read_text(encoding="utf-8"))
    assert {key: len(value) for key, value in data.items()} == counts
    (row,) = re.findall(rf"^\| `{re.escape(name)}` \| (.*?) \|", SECTION, re.MULTILINE)
    splits = sum(size for key, size in counts.items() if key in ("train", "test", "eval"))
    others = {size for key, size in counts.items() if key not in ("train", "test", "eval")}
    assert {int(number.replace(",", "")) for number in re.findall(r"[0-9,]+[0-9]", row)} == others | {splits} - {0}
