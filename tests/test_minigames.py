"""Minigames: every reply is worked out again from the text of its question, by other code than what made it."""

import collections
import json
import re
import string

import pytest
import recipe_runs

from dfc.config import Minigames
from dfc.errors import ConfigError
from dfc.rows import conversations, minigames

ROWS = minigames.minigames(1600, 5)


def numbers(text):
    return [int(found) for found in re.findall(r"\d+", text)]


def quoted(text):
    return re.findall(r"'([a-z ]+)'", text)


def between(text, start, stop):
    return text.split(start, 1)[1].split(stop, 1)[0]


def tag(text):
    """The tag that a question asks for."""
    return re.findall(r"\b[A-Z]+:", text)[-1]


def by_columns(text):
    grid = [line.split(" ") for line in text.split("\n")[:3]]
    row, column = (int(found) for found in re.search(r"row (\d), column (\d)", text).groups())
    return grid[row - 1][column - 1]


def odd_one(text):
    words = between(text, "kind: ", ". Reply").split(", ")
    kind_of = {word: kind for kind, some in minigames.KINDS.items() for word in some}
    (odd,) = [word for word in words if [kind_of[other] for other in words].count(kind_of[word]) == 1]
    return odd


def kind_letter(text):
    (word,) = quoted(text)
    (letter,) = [line[0] for line in text.split("\n") if word in minigames.KINDS.get(line[3:], ())]
    return letter


def counted_letter(text):
    letter, words = quoted(text)
    return len(re.findall(letter, words))


def letters_at(text):
    one, other = quoted(text)
    place, also = numbers(text)
    return f"{list(one)[place - 1]}-{list(other)[also - 1]}"


def shared_words(text):
    one, two = between(text, "one: ", ". List").split(", "), between(text, "two: ", ". Write").split(", ")
    return ", ".join(sorted(set(one) & set(two), key=one.index)) or "none"


def bubble_sorted(items):
    items = list(items)
    for _ in items:
        for place in range(len(items) - 1):
            if items[place] > items[place + 1]:
                items[place : place + 2] = items[place + 1], items[place]
    return items


def longest(text):
    lengths = collections.defaultdict(list)
    for word in between(text, "word of ", ". Begin").split(", "):
        lengths[len(word)].append(word)
    (word,) = lengths[bubble_sorted(lengths)[-1]]
    return word


def guess(text):
    letter = re.search(r"begins with ([a-z])\.", text)[1]
    (word,) = [word for word in between(text, "one of ", ", and").split(", ") if word.startswith(letter)]
    return f"explanation: it begins with {letter}\nguess: {word}"


def person(text):
    name, age, town = re.match(r"(\w+) is (\d+) years old and lives in (\w+)\.", text).groups()
    return f'{{"name": "{name}", "age": {age}, "town": "{town}"}}'


def stock(text):
    return "{" + ", ".join(f'"{word}": {number}' for number, word in re.findall(r"(\d+) of ([a-z]+)", text)) + "}"


def compared(text):
    one, other = numbers(text)
    return f"{one} {'>' if one - other > 0 else '<'} {other}"


def listed(text, start, stop):
    return between(text, start, stop).split(", ")


def even_ones(text):
    return ", ".join(number for number in listed(text, "numbers of ", ", in this") if number[-1] in "02468") or "none"


def above(text):
    *some, limit = numbers(text)
    return len([number for number in some if number - limit > 0])


def next_number(text):
    row = numbers(text)
    return row[-1] + row[1] - row[0]


def without_vowels(text):
    (words,) = re.findall(r"'([a-z ]+)'", text)
    return words.translate(str.maketrans("", "", "aeiou")).strip()


# What stands after the tag, by template; the oracles of `WHOLE` give the reply as a whole.
AFTER_TAG = {
    "sum": lambda text: len("".join("x" * number for number in numbers(text))),
    "difference": lambda text: abs(numbers(text)[0] - numbers(text)[1]),
    "product": lambda text: sum(numbers(text)[0] for _ in range(numbers(text)[1])),
    "largest": lambda text: bubble_sorted(numbers(text))[-1],
    "smallest": lambda text: bubble_sorted(numbers(text))[0],
    "ascending": lambda text: ", ".join(map(str, bubble_sorted(numbers(text)))),
    "even_ones": even_ones,
    "above": above,
    "next_of_row": next_number,
    "is_odd": lambda text: "yes" if str(numbers(text)[0])[-1] in "13579" else "no",
    "digits": lambda text: sum(int(d) * str(numbers(text)[0]).count(d) for d in string.digits),
    "backwards": lambda text: " ".join("".join(reversed(word)) for word in quoted(text)),
    "count_letter": counted_letter,
    "initials": lambda text: "".join(word[:1] for word in listed(text, "letters of ", " together")).swapcase(),
    "letter_at": letters_at,
    "no_vowels": without_vowels,
    "alphabetical": lambda text: ", ".join(bubble_sorted(listed(text, "alphabet: ", ". Write"))),
    "longest": longest,
    "spelled": lambda text: " ".join(re.sub(r"(?<=.)(?=.)", "-", word) for word in quoted(text)),
    "in_both": shared_words,
    "field": lambda text: json.loads(text.split("\n")[0])[quoted(text)[0]],
    "cell": by_columns,
    "odd_one_out": odd_one,
    "which_kind": kind_letter,
    "in_list": lambda text: "yes" if quoted(text)[0] in listed(text, "list: ", "? Reply") else "no",
}
WHOLE = {
    "compare": compared,
    "capitals": lambda text: f"[{text.split(': ')[1].swapcase()}]",
    "guess": guess,
    "person": person,
    "array": lambda text: "[" + ", ".join(f'"{word}"' for word in text.split(": ")[1].split(", ")) + "]",
    "counts": stock,
}


@pytest.mark.parametrize("name", [*AFTER_TAG, *WHOLE])
def test_replies_are_what_their_questions_ask_for(name):
    rows = [row for row in ROWS if row.meta["minigame"] == name]
    assert len(rows) == len(ROWS) / len(minigames.TEMPLATES)
    for row in rows:
        asked, said = row.messages
        assert (asked.role, said.role) == ("user", "assistant")
        text = asked.content
        expected = WHOLE[name](text) if name in WHOLE else f"{tag(text)} {AFTER_TAG[name](text)}"
        assert said.content == expected, text


def test_over_several_turns_an_item_counts_once():
    rows = [row for row in ROWS if row.meta["minigame"] == "once_each"]
    verdicts = collections.Counter()
    for row in rows:
        items = set(listed(row.messages[0].content, "once: ", ". I name"))
        for asked, said in zip(row.messages[::2], row.messages[1::2], strict=True):
            word = asked.content.split(" word: ")[1]
            left = word in items
            verdict = "PICK" if left else "TAKEN" if word in row.messages[0].content.split("\n")[0] else "ABSENT"
            assert said.content == f"{verdict}: {word}"
            items.discard(word)
            verdicts[verdict] += 1
        assert len(row.messages) in (8, 10, 12)
    assert min(verdicts.values()) > 10
    assert set(verdicts) == {"PICK", "TAKEN", "ABSENT"}


def test_every_template_has_an_oracle_and_there_are_at_least_26():
    assert {*AFTER_TAG, *WHOLE, "once_each"} == set(minigames.TEMPLATES)
    assert len(minigames.TEMPLATES) >= 26


def test_replies_vary_and_are_short():
    for name in minigames.TEMPLATES:
        said = [row.messages[-1].content for row in ROWS if row.meta["minigame"] == name]
        assert len(set(said)) > 4, name
        assert max(map(len, said)) < 130, name
    words = [word for some in minigames.KINDS.values() for word in some]
    assert len(words) == len(set(words))


def test_twenty_thousand_rows_are_different_and_begin_like_fewer():
    rows = minigames.minigames(20_000, 5)
    assert len({row.messages for row in rows}) == 20_000
    assert rows[: len(ROWS)] == ROWS
    assert minigames.minigames(64, 6) != ROWS[:64]
    counts = collections.Counter(row.meta["minigame"] for row in rows)
    assert set(counts.values()) == {625}


def test_a_template_that_runs_out_is_named(monkeypatch):
    monkeypatch.setattr(minigames, "TEMPLATES", {"two": lambda rng: [(f"{rng.randrange(2)}?", "no")]})
    assert len(minigames.minigames(2, 0)) == 2
    with pytest.raises(ValueError, match="rows=3: two has not so many different rows; ask for fewer"):
        minigames.minigames(3, 0)


# ---- the recipe -----------------------------------------------------------------------------------------------------


def run(path, **settings):
    return recipe_runs.run(path, Minigames(name="m", **settings)) / "data"


def test_rows_and_held_out_rows_are_written_as_messages(tmp_path):
    data = run(tmp_path / "run", rows=200, held_out=0.1, seed=5)
    train = conversations.read_conversations(data / "minigames.jsonl")
    held_out = conversations.read_conversations(data / "minigames_held_out.jsonl")
    assert (len(train), len(held_out)) == (180, 20)
    assert [row for row in ROWS[:200] if row in train] == train
    assert [row for row in ROWS[:200] if row in held_out] == held_out
    assert {"messages", "meta"} == set(json.loads((data / "minigames.jsonl").read_text().split("\n")[0]))
    before = (data / "minigames.jsonl").read_bytes()
    assert (run(tmp_path / "run", rows=200, held_out=0.1, seed=5) / "minigames.jsonl").read_bytes() == before
    none = run(tmp_path / "none", rows=64, held_out=0.0)
    assert [file.name for file in none.iterdir()] == ["minigames.jsonl"]


@pytest.mark.parametrize(("rows", "share", "left"), [(10, 0.01, "10 of 10 rows to train on and 0"), (3, 0.9, "0 of 3")])
def test_a_held_out_share_that_leaves_no_row_is_refused(tmp_path, rows, share, left):
    with pytest.raises(ConfigError, match=rf"held_out={share}: leaves {left}.*ask for more rows, or set it to 0"):
        run(tmp_path / "run", rows=rows, held_out=share)
    assert not (tmp_path / "run" / "finished.json").exists()
