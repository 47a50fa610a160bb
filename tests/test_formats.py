"""Format checks: examples of both verdicts for every kind, hostile answers, JSON in and out."""

import json
import time

import numpy as np
import pytest

from dfc.scoring import formats
from dfc.scoring.formats import KINDS, Formats, NoCommas, Words, described, fulfils, read, written
from dfc.scoring.scorer import LONGEST_ANSWER

# (check in JSON, answers that fulfil it, answers that do not)
CASES = [
    ({"kind": "words", "at_least": 2, "at_most": 3}, ["a b", " a\nb  c "], ["", "a", "a b c d"]),
    ({"kind": "sentences", "at_least": 2, "at_most": 2}, ["Go. Stop!", 'He said "no." I left'], ["Go", "v1.2 is out."]),
    ({"kind": "sentences", "at_least": 1, "at_most": 1}, ["v1.2 is out."], ["One. Two."]),
    ({"kind": "paragraphs", "at_least": 2, "at_most": 2}, ["a\n\nb", "a\nc\n \t\nb\n", "a\n***\nb"], ["a\nb", "\n\n"]),
    (
        {"kind": "bullets", "at_least": 2, "at_most": 2},
        ["* a\n* b", "so:\n- a\n  - b"],
        ["* a", "** a\n** b", "* \n* b"],
    ),
    ({"kind": "placeholders", "at_least": 2}, ["[name] of [place]"], ["[name] [name]", "[] []", "[a\nb] [c]"]),
    ({"kind": "highlights", "at_least": 2}, ["*a* and **b c**"], ["*a*", "* a\n* b", "****"]),
    ({"kind": "capitals", "at_least": 1, "at_most": 2}, ["so BIG", "a B-2B b"], ["I am", "AB CD EF"]),
    ({"kind": "keyword", "text": "rain", "at_least": 2}, ["Rain, rain!"], ["rainy rain", "train rain"]),
    ({"kind": "keyword", "text": "so far", "at_least": 1}, ["not so\n far"], ["so farther"]),
    ({"kind": "keyword", "text": "(a+)+", "at_least": 1}, ["x (a+)+ y"], ["aaa"]),
    ({"kind": "keyword", "text": "bad", "at_most": 0}, ["good"], ["Bad"]),
    ({"kind": "letter", "text": "q", "at_least": 2, "at_most": 2}, ["Qq"], ["q", "qqq"]),
    ({"kind": "json"}, ['{"a": [1, null]}', "```json\n[1]\n```", "3"], ["", "{'a': 1}", "Sure: {}", "[NaN]"]),
    ({"kind": "no_commas"}, ["a; b"], ["a, b", "  "]),
    ({"kind": "lower_case"}, ["all small, 3"], ["All", "123"]),
    ({"kind": "upper_case"}, ["ALL, 3"], ["ALl", "123"]),
    ({"kind": "begins_with", "text": "Dear"}, ["  Dear me", "Dear"], ["dear me", "Oh Dear"]),
    ({"kind": "ends_with", "text": "Yours."}, ["So, Yours. \n"], ["Yours.!", "yours."]),
    ({"kind": "quoted"}, ['"a"', ' "a b" '], ['"a', 'a"', '""', '"']),
    ({"kind": "title"}, ["<<Spring>>\nIt", "x\n <<a b>>"], ["<<>>", "a <<b>> c", "<Spring>"]),
    ({"kind": "postscript"}, ["Hi\nP.S. bye"], ["Hi", "P.S. bye", "Hi\nP.S."]),
    ({"kind": "postscript", "marker": "P.P.S"}, ["Hi\nP.P.S bye"], ["Hi\nP.S. bye"]),
    ({"kind": "two_answers"}, ["a ****** b"], ["a", "a ****** a", "a ****** b ****** c", "****** b"]),
]


@pytest.mark.parametrize(("data", "right", "wrong"), CASES)
def test_a_check_tells_right_from_wrong(data, right, wrong):
    check = read(data)
    assert [fulfils(answer, check) for answer in right] == [True] * len(right)
    assert [fulfils(answer, check) for answer in wrong] == [False] * len(wrong)


def test_every_kind_has_an_example_and_a_sentence():
    assert {data["kind"] for data, *_ in CASES} == set(KINDS)
    assert len(KINDS) >= 12
    sentences = {described(read(data)) for data, *_ in CASES}
    assert len(sentences) == len(CASES)
    assert described(read({"kind": "words", "at_least": 2, "at_most": 2})) == "Answer with exactly 2 words."


@pytest.mark.parametrize("data", [data for data, *_ in CASES])
def test_json_survives_a_round(data):
    assert read(json.loads(json.dumps(written(read(data))))) == read(data)


HOSTILE = [
    "." * (LONGEST_ANSWER - 1) + "x",
    ". " * (LONGEST_ANSWER // 2),
    "\n" + " " * (LONGEST_ANSWER - 2) + "x",
    "\n***" * (LONGEST_ANSWER // 4),
    "*" * LONGEST_ANSWER,
    "*a" * (LONGEST_ANSWER // 2),
    "[" * LONGEST_ANSWER,
    "[a" * (LONGEST_ANSWER // 2),
    '{"a":' * (LONGEST_ANSWER // 5),
    "a " * (LONGEST_ANSWER // 2) + "b",
    "a" + " " * (LONGEST_ANSWER - 2) + "c",
    "so " * (LONGEST_ANSWER // 3),
    "so" + " \t" * (LONGEST_ANSWER // 2 - 1),
    "<<" * (LONGEST_ANSWER // 2),
    "1" * LONGEST_ANSWER,
    "\x00\ud800\u202e" * 1000,
    "- \u2028" * 50_000,
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_hostile_answer_costs_little(number):
    answer = HOSTILE[number][:LONGEST_ANSWER]
    begun = time.process_time()
    for data, *_ in CASES:
        fulfils(answer, read(data))
    assert time.process_time() - begun < 3


def test_an_answer_beyond_the_limit_fulfils_nothing():
    assert fulfils("a" * LONGEST_ANSWER, NoCommas())
    assert not fulfils("a" * (LONGEST_ANSWER + 1), NoCommas())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["words"], "must be an object"),
        ({"kind": "word"}, "expected one of words, sentences"),
        ({"at_least": 3}, "kind None"),
        ({"kind": ["words"]}, "kind"),
        ({"kind": "words", "number": 3}, "no parameter 'number'"),
        ({"kind": "words"}, "asks for nothing"),
        ({"kind": "words", "at_least": "3"}, "whole number"),
        ({"kind": "words", "at_least": -1}, "at least 0"),
        ({"kind": "words", "at_least": 10**9}, "at most 10,000"),
        ({"kind": "words", "at_least": 3, "at_most": 2}, "is below"),
        ({"kind": "keyword", "at_least": 1, "text": " "}, "text is empty"),
        ({"kind": "letter", "at_least": 1, "text": "ab"}, "one sign"),
        ({"kind": "postscript", "marker": "PS"}, "one of"),
    ],
)
def test_a_bad_check_is_refused_with_the_reason(data, message):
    with pytest.raises(ValueError, match=message):
        read(data)


def test_the_scorer_gives_shares_and_masks_queries_without_a_check():
    scorer = Formats({"q": [NoCommas(), Words(1, 2)]})
    scores = scorer(["q", "q", "q", "other"], ["a b", "a, b", "a, b c", "x"])
    np.testing.assert_allclose(scores.values, [1, 0.5, 0, 0])
    assert scores.values.dtype == np.float32
    assert scores.mask.tolist() == [True, True, True, False]
    assert dict(scores.counts) == {"passed": 1, "failed": 2, "no_check": 1}
    assert Formats({}, [formats.Json()])(["other"], ["{}"]).values.tolist() == [1.0]
    with pytest.raises(ValueError, match="as many answers as queries"):
        scorer(["q"], [])
