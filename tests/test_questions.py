"""Questions in the public layouts, of rows of our own: what is asked, what is right, what is refused."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dfc.records.trajectory_files import DatasetError
from dfc.rows.questions import Question, boxed, read_questions
from dfc.scoring.programs import ProgramTests

GSM8K = {
    "question": "Ann has 1,000 pens and buys 234. How many?",
    "answer": "1000+234 = <<1000+234=1234>>1234\n#### 1,234",
}
MATH = {
    "problem": "What is half of $\\frac{1}{3}$?",
    "level": "Level 1",
    "type": "Algebra",
    "solution": "Not \\boxed{1}. It is $\\boxed{\\frac{1}{6}}$.",
}
HUMANEVAL = {
    "task_id": "Own/0",
    "prompt": 'def twice(x):\n    """Returns 2 x."""\n',
    "canonical_solution": "    return 2 * x\n",
    "test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate(2) == 4\n",
    "entry_point": "twice",
}
MBPP = {
    "task_id": 1,
    "text": "Write a function that halves.",
    "code": "def half(x): return x / 2",
    "test_list": ["assert half(4) == 2", "assert math.isclose(half(1), 0.5)"],
    "test_setup_code": "import math",
    "challenge_test_list": [],
}
SANITIZED = {name: value for name, value in MBPP.items() if name not in ("text", "test_setup_code")} | {
    "prompt": "Halve.",
    "test_imports": ["import math"],
}


def file_of(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_the_four_layouts_are_read(tmp_path):
    gsm8k, math, humaneval, mbpp, sanitized = read_questions(file_of(tmp_path, GSM8K, MATH, HUMANEVAL, MBPP, SANITIZED))
    assert gsm8k.reference == "1234"
    assert gsm8k.query.startswith(GSM8K["question"])
    assert "\\boxed{}" in gsm8k.query
    assert math.reference == "\\frac{1}{6}"
    assert (gsm8k.kind, humaneval.kind) == ("mathematics", "programs")
    assert humaneval.reference == ProgramTests(HUMANEVAL["test"], "twice", HUMANEVAL["prompt"])
    assert "return 2 * x" not in humaneval.query
    assert mbpp.reference == ProgramTests("\n".join(MBPP["test_list"]), setup="import math")
    assert "assert half(4) == 2" in mbpp.query
    assert "return x / 2" not in mbpp.query
    assert sanitized.reference.setup == "import math"


def test_other_files_of_the_same_rows_hold_the_same_questions(tmp_path):
    expected = read_questions(file_of(tmp_path, GSM8K, {**GSM8K, "question": "Other?"}))
    array = tmp_path / "rows.json"
    array.write_text(json.dumps([GSM8K, {**GSM8K, "question": "Other?"}]))
    table = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([GSM8K, {**GSM8K, "question": "Other?"}]), table)
    assert read_questions(array) == read_questions(table) == expected
    assert read_questions(table, most=1) == expected[:1]
    assert read_questions(file_of(tmp_path, GSM8K, GSM8K)) == expected[:1]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("\\boxed{a}", "a"),
        ("\\boxed{1} \\boxed{\\sqrt{2}}x}", "\\sqrt{2}"),
        ("\\boxed 7$ so", "7"),
        ("\\boxed{a", None),
        ("none", None),
        ("\\boxed", None),
        ("\\boxed{" * 10_000, None),
    ],
)
def test_the_last_box_is_the_result(text, result):
    assert boxed(text) == result


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["question"], "row 1 (line 2): expected an object"),
        ({"q": "x"}, "expected those of one layout"),
        ({"question": "x", "answer": "72"}, "no result behind ####"),
        ({"question": "x", "answer": "#### "}, "no result behind ####"),
        ({"question": "x", "answer": "#### " + "1" * 20_000}, "at most 10000"),
        ({"question": "", "answer": "#### 1"}, "question must be a text"),
        ({"question": 3, "answer": "#### 1"}, "question must be a text"),
        ({"problem": "x", "solution": "it is 3"}, "no result in \\boxed"),
        ({"question": "\ud800 x", "answer": "#### 1"}, "question '\\ud800 x' holds half a surrogate pair"),
        (
            {"problem": "x", "solution": "\\boxed{\ud800}"},
            "holds half a surrogate pair, which UTF-8 cannot encode; correct it",
        ),
        ({**HUMANEVAL, "test": "x = 1"}, "define no function check"),
        ({**HUMANEVAL, "test": "def check(candidate:"}, "cannot be parsed"),
        ({**HUMANEVAL, "entry_point": "a b"}, "is no name of a function"),
        ({**MBPP, "test_list": []}, "there are no tests"),
        ({**MBPP, "test_list": "assert"}, "must be a list of texts"),
        ({**MBPP, "test_list": ["assert ("]}, "cannot be parsed"),
        ({**GSM8K, "answer": "#### 5"}, "asks what an earlier row asks and has another result"),
    ],
)
def test_a_bad_row_is_named_with_the_fix(tmp_path, row, message):
    with pytest.raises(DatasetError) as found:
        read_questions(file_of(tmp_path, GSM8K, row))
    assert message in str(found.value)
    assert "row 1 (line 2)" in str(found.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DatasetError, match="no such file"):
        read_questions(tmp_path / "gone.jsonl")
    with pytest.raises(DatasetError, match="takes more than 1000 bytes"):
        read_questions(file_of(tmp_path, {**GSM8K, "question": "x" * 2000}), max_row_bytes=1000)
    assert Question("q", "1").kind == "mathematics"
