"""What is wrong with queries; duplicates by brute force over all of the last 1,000."""

import json
import random

import pytest

from dfc.methods.language_self_play import hygiene
from dfc.methods.language_self_play.hygiene import Memory, Written
from dfc.methods.language_self_play.prompts import BEGIN, challenger_prompt, forbidden_tags

TEMPLATE = "Sort {digits} up."
LONG = "one two three four five six seven eight nine ten"


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        (Written("Sort 312 up.", template=TEMPLATE), None),
        (Written(" \n"), "empty"),
        (Written("Sort 3", template=TEMPLATE, ended=False), "cut"),
        (Written(f"{BEGIN.title()} Sort 312 up."), "tags"),
        (Written("Please sort 312 up.", template=TEMPLATE), "template"),
        (Written("", ended=False), "empty"),  # the first kind that applies
        (Written(LONG, prompt=f"Say {LONG.upper()}"), "echo"),
        (Written(f"{LONG} a b c d e f g h", prompt=LONG), None),  # 3 of 11 8-grams
        (Written(f"{LONG} a b c", prompt=LONG), "echo"),  # 3 of 6
        (Written("one two three", prompt=LONG), None),  # has none
    ],
)
def test_a_query_has_the_first_kind_that_applies(query, kind):
    assert hygiene.inspect([query], Memory()) == [kind]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[Start Generation] Why is it dark? [End Generation]", "tags"),
        ("Why is it dark? [end  generation]", "tags"),
        ("Why is it dark?[END\ngeneration ]", "tags"),
        (f"{BEGIN} Why is it dark?", None),  # of a prompt that is not in use
        ("Sort the list [3, 1] by [start].", None),
    ],
)
def test_tags_are_those_of_the_prompt_in_use(text, kind):
    tags = forbidden_tags(
        "Between [Start Generation] and [End Generation]: [Start Generation] '{template}' [End Generation]"
    )
    assert hygiene.inspect([Written(text, tags=tags)], Memory()) == [kind]


def test_the_wording_of_the_template_is_no_echo():
    template = "Here is a rather long template that a query is bound to repeat: {thing}"
    prompt = challenger_prompt("t", template)
    query = template.replace("{thing}", "tea")
    assert hygiene.inspect([Written(query, prompt, template)], Memory()) == ["echo"]
    assert hygiene.inspect([Written(query, hygiene.without_template(prompt, template), template)], Memory()) == [None]


def test_of_queries_that_repeat_each_other_the_first_is_none():
    queries = [Written(text) for text in ("Why is the sky blue?", "why  is the sky BLUE? ", "Why is the sea blue?")]
    assert hygiene.inspect(queries, Memory()) == [None, "duplicate", None]


def near(text, rng):
    place = rng.randrange(len(text))
    return text[:place] + rng.choice("abcdefgh") + text[place + 1 :]


def test_near_duplicates_are_those_of_brute_force():
    """Random texts and ones changed in a few places; the oracle compares every pair."""
    rng = random.Random(0)
    texts = []
    for _ in range(150):
        text = "".join(rng.choice("abcdefgh ") for _ in range(rng.randrange(2, 160))).strip() or "a"
        texts.append(text)
        for _ in range(rng.randrange(3)):
            text = near(text, rng)
            texts.append(text)
    rng.shuffle(texts)

    def grams(text):
        text = " ".join(text.split()).lower()
        return {text[i : i + 5] for i in range(len(text) - 4)} or {text}

    def brute(number):
        kinds = {None: 0, "near_duplicate": 0, "duplicate": 0}
        own = grams(texts[number])
        for before in texts[:number]:
            other = grams(before)
            same = " ".join(before.split()) == " ".join(texts[number].split())
            close = len(own & other) >= 0.9 * len(own | other)
            kinds["duplicate" if same else "near_duplicate" if close else None] += 1
        return next((kind for kind in ("duplicate", "near_duplicate") if kinds[kind]), None)

    found = hygiene.inspect([Written(text) for text in texts], Memory())
    assert found == [brute(number) for number in range(len(texts))]
    assert found.count("near_duplicate") > 20


@pytest.mark.parametrize("turned", [False, True])
def test_a_similarity_of_exactly_nine_tenths_is_near(turned):
    """Ten 5-grams and nine of them, all but the one that comes first in the order: they share one of the first two."""
    texts = ["abcdefghijklmn", "bcdefghijklmn"]
    texts = texts[::-1] if turned else texts
    assert hygiene.inspect([Written(text) for text in texts], Memory()) == [None, "near_duplicate"]
    further = [Written(text) for text in ("abcdefghijklmn", "cdefghijklmn")]  # eight of ten
    assert hygiene.inspect(further, Memory()) == [None, None]


def test_only_the_last_thousand_are_remembered():
    memory = Memory()
    texts = [f"query number {number * 7919}" for number in range(1001)]
    hygiene.inspect([Written(text) for text in texts], memory)
    assert hygiene.inspect([Written(texts[1])], memory) == ["duplicate"]
    assert hygiene.inspect([Written(texts[0])], memory) == [None]
    assert len(memory.state()) == 1000


def test_a_memory_goes_through_json():
    rng = random.Random(1)
    texts = ["".join(rng.choice("ab ") for _ in range(30)) for _ in range(60)]
    first, rest = [Written(t) for t in texts[:40]], [Written(t) for t in texts[40:]]
    memory = Memory(size=25)
    hygiene.inspect(first, memory)
    again = Memory(json.loads(json.dumps(memory.state())), size=25)
    assert hygiene.inspect(rest, again) == hygiene.inspect(rest, memory)
    assert again.state() == memory.state()


def test_kinds_are_counted():
    queries = [Written(""), Written("a b"), Written("a b"), Written("A b")]
    kinds = hygiene.inspect(queries, Memory())
    assert hygiene.counts(kinds) == dict.fromkeys(hygiene.KINDS, 0) | {"empty": 1, "duplicate": 2}
    assert hygiene.duplicates_by_difficulty(kinds, [None, 1, 1, 3]) == {1: 1, 3: 1}
