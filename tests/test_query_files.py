"""Queries of a file: two forms, and one clear error for each line that is none."""

import pytest

from dfc.errors import ConfigError
from dfc.methods.language_self_play import query_files


def written(tmp_path, text, name="queries.txt"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_both_forms_are_read_in_their_order(tmp_path):
    assert query_files.read(written(tmp_path, "b \na\nb\n")) == ["b", "a", "b"]
    lines = '{"query": "two\\nlines", "wrong": null}\n{"query": "b"}'
    assert query_files.read(written(tmp_path, lines, "queries.jsonl")) == ["two\nlines", "b"]


@pytest.mark.parametrize(
    ("text", "name", "error"),
    [
        ("a\n\nb\n", "q.txt", r"q\.txt', line 2: is empty; remove the line"),
        ("a\n \t\nb", "q.txt", "line 2: is empty"),
        ("", "q.txt", "line 1: is empty"),
        ('{"query": "a"}\n{"query": " "}\n', "q.jsonl", "line 2: is empty"),
        ('{"query": "a"}\n\n', "q.jsonl", "line 2: is empty"),
        ("[" * 100_000, "q.jsonl", r"line 1: is no JSON: '\[\[\[.*write \{\"query\""),
        ('{"text": "a"}', "q.jsonl", 'line 1: has no text under "query"'),
        ('{"query": 3}', "q.jsonl", 'line 1: has no text under "query"'),
        ("[]", "q.jsonl", 'line 1: has no text under "query"'),
        (
            '{"query": "a"}\n{"query": "\\ud800 hello"}',
            "q.jsonl",
            r"line 2: '\\ud800 hello' holds half a .*; correct it",
        ),
        ("x" * 100_001, "q.txt", "line 1: has 100001 characters, more than 100000; cut it"),
    ],
)
def test_a_line_that_is_no_query_is_named(tmp_path, text, name, error):
    with pytest.raises(ConfigError, match=error):
        query_files.read(written(tmp_path, text, name))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.txt.*cannot be read as UTF-8 text: .*No such file"):
        query_files.read(tmp_path / "none.txt")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"bytes\.txt.*cannot be read as UTF-8 text"):
        query_files.read(tmp_path / "bytes.txt")


def test_only_a_few_of_many_problems_are_listed(tmp_path):
    with pytest.raises(ConfigError) as error:
        query_files.read(written(tmp_path, "\n" * 100))
    assert len(error.value.problems) == 5


def test_iterations_go_through_the_file_again_and_again():
    found = [query_files.of_iteration(["a", "b", "c"], 2, iteration) for iteration in range(3)]
    assert found == [["a", "b"], ["c", "a"], ["b", "c"]]
