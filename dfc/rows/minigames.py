"""Minigames: short instructions whose replies are exact, to keep a model to the form that an instruction asks for.

Source: "Playpen" (arXiv 2504.08590), appendix D.2: about 20,000 rows of 26 templates on words and letters, numbers,
JSON and choices, replies "short and straight to the point", one template of several turns in which an item counts only
once. The templates and their words here are our own. Departure: every reply is exact and can be worked out from the
question, where the source puts "form rather than content" first.

No two rows of a set are alike, and the same seed gives the same rows.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from dfc.errors import ConfigError
from dfc.games.rng import GameRng, derive_seed
from dfc.records.trajectories import Message
from dfc.rows.conversations import Conversation

Turns = list[tuple[str, str]]
"""Questions and replies, in order."""
_T = TypeVar("_T")
_TRIES = 1000  # at a row that is not there yet

KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        kind: tuple(words.split())
        for kind, words in {
            "animal": "otter badger camel donkey falcon gorilla hamster iguana jackal lizard marten rabbit zebra",
            "fruit": "apple banana cherry grape lemon mango melon orange papaya peach pear plum quince raisin",
            "tool": "hammer chisel drill file ladder pliers rake saw shovel spanner tongs trowel wrench anvil",
            "colour": "amber azure black brown crimson green indigo ivory purple scarlet silver violet white yellow",
            "garment": "apron blouse cloak glove jacket mitten pyjamas sandal scarf shirt skirt sock trousers vest",
            "instrument": "banjo cello clarinet cymbal drum flute guitar harp lute oboe piano trumpet viola zither",
            "vehicle": "barge bicycle bus canoe ferry glider lorry rocket scooter sledge tanker tractor train tram",
            "furniture": "armchair bench bookcase bunk cabinet couch cradle cupboard desk dresser shelf sofa stool",
        }.items()
    }
)
"""Words by what they are."""
_WORDS = tuple(word for words in KINDS.values() for word in words)
_NAMES = (
    *("Ada", "Bruno", "Chen", "Dina", "Emil", "Farah", "Goran", "Hana", "Ines"),
    *("Jonas", "Kofi", "Lena", "Milo", "Nora", "Omar", "Petra", "Ravi", "Sofia"),
)
_TOWNS = (
    *("Bergen", "Cadiz", "Delft", "Essen", "Fribourg", "Genoa", "Haarlem"),
    *("Izmir", "Jaipur", "Kyoto", "Leeds", "Malmo", "Nantes", "Oporto"),
)
_NUMBER_TAGS = ("RESULT:", "ANSWER:", "NUMBER:", "VALUE:")
_WORD_TAGS = ("RESULT:", "ANSWER:", "WORD:", "SAY:")
_LIST_TAGS = ("RESULT:", "ANSWER:", "LIST:", "ITEMS:")
_CHOICE_TAGS = ("CHOICE:", "ANSWER:", "REPLY:", "DECISION:")


def _any(items: Sequence[_T], rng: GameRng) -> _T:
    return items[rng.randrange(len(items))]


def _some(items: Sequence[_T], count: int, rng: GameRng) -> list[_T]:
    """Returns so many different items, in a random order."""
    left = list(items)
    return [left.pop(rng.randrange(len(left))) for _ in range(count)]


def _numbers(rng: GameRng, *, least: int = 3, most: int = 6, below: int = 200) -> list[int]:
    """Returns different numbers from 1 on."""
    return _some(range(1, below), least + rng.randrange(most - least + 1), rng)


def _words(rng: GameRng, *, least: int = 3, most: int = 6) -> list[str]:
    return _some(_WORDS, least + rng.randrange(most - least + 1), rng)


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))


def _yes(true: bool) -> str:
    return "yes" if true else "no"


# ---- numbers --------------------------------------------------------------------------------------------------------


def _sum(rng: GameRng) -> Turns:
    tag, numbers = _any(_NUMBER_TAGS, rng), _numbers(rng, least=2, most=4)
    return [(f"What do {_listed(numbers)} come to together? Reply with {tag} and the sum.", f"{tag} {sum(numbers)}")]


def _difference(rng: GameRng) -> Turns:
    tag, (one, other) = _any(_NUMBER_TAGS, rng), _some(range(1, 1000), 2, rng)
    low, high = sorted((one, other))
    return [(f"Take {low} away from {high}. Reply with {tag} and what is left.", f"{tag} {high - low}")]


def _product(rng: GameRng) -> Turns:
    tag, one, other = _any(_NUMBER_TAGS, rng), 2 + rng.randrange(98), 2 + rng.randrange(98)
    return [(f"Multiply {one} by {other}. Reply with {tag} and the product only.", f"{tag} {one * other}")]


def _largest(rng: GameRng) -> Turns:
    tag, numbers = _any(_NUMBER_TAGS, rng), _numbers(rng)
    return [(f"Which of these is the largest: {_listed(numbers)}? Begin with {tag}", f"{tag} {max(numbers)}")]


def _smallest(rng: GameRng) -> Turns:
    tag, numbers = _any(_NUMBER_TAGS, rng), _numbers(rng)
    return [(f"Which of these is the smallest: {_listed(numbers)}? Begin with {tag}", f"{tag} {min(numbers)}")]


def _ascending(rng: GameRng) -> Turns:
    tag, numbers = _any(_LIST_TAGS, rng), _numbers(rng)
    asked = f"Put these numbers in ascending order: {_listed(numbers)}. Write {tag} and the numbers with commas."
    return [(asked, f"{tag} {_listed(sorted(numbers))}")]


def _even_ones(rng: GameRng) -> Turns:
    tag, numbers = _any(_LIST_TAGS, rng), _numbers(rng, least=4)
    even = [number for number in numbers if number % 2 == 0]
    asked = f"Keep the even numbers of {_listed(numbers)}, in this order. Write {tag} and them, or {tag} none."
    return [(asked, f"{tag} {_listed(even) or 'none'}")]


def _above(rng: GameRng) -> Turns:
    tag, numbers, limit = _any(_NUMBER_TAGS, rng), _numbers(rng, least=4), 20 + rng.randrange(160)
    asked = f"How many of {_listed(numbers)} are above {limit}? Reply with {tag} and the count."
    return [(asked, f"{tag} {sum(number > limit for number in numbers)}")]


def _next_of_row(rng: GameRng) -> Turns:
    tag, first, step = _any(_NUMBER_TAGS, rng), rng.randrange(200), 2 + rng.randrange(40)
    row = [first + step * place for place in range(4)]
    return [(f"Which number comes next: {_listed(row)}? Reply with {tag} and it.", f"{tag} {row[-1] + step}")]


def _is_odd(rng: GameRng) -> Turns:
    tag, number = _any(_CHOICE_TAGS, rng), 10 + rng.randrange(100_000)
    return [(f"Is {number} an odd number? Answer in the form {tag} yes or {tag} no.", f"{tag} {_yes(number % 2 == 1)}")]


def _digits(rng: GameRng) -> Turns:
    tag, number = _any(_NUMBER_TAGS, rng), 100 + rng.randrange(99_900)
    asked = f"Add the digits of {number} and write {tag} followed by the total, nothing else."
    return [(asked, f"{tag} {sum(map(int, str(number)))}")]


def _compare(rng: GameRng) -> Turns:
    one, other = _some(range(1, 1000), 2, rng)
    asked = f"Compare {one} and {other}: reply with the first number, < or >, and the second number."
    return [(asked, f"{one} {'<' if one < other else '>'} {other}")]


# ---- letters and words ----------------------------------------------------------------------------------------------


def _backwards(rng: GameRng) -> Turns:
    tag, words = _any(_WORD_TAGS, rng), _some(_WORDS, 2, rng)
    asked = f"Write the words '{words[0]}' and '{words[1]}' backwards, each by itself, after {tag}"
    return [(asked, f"{tag} {words[0][::-1]} {words[1][::-1]}")]


def _count_letter(rng: GameRng) -> Turns:
    tag, words = _any(_NUMBER_TAGS, rng), _some(_WORDS, 2, rng)
    letter = _any("".join(words), rng)
    asked = f"How often is the letter '{letter}' in '{words[0]} {words[1]}'? Reply with {tag} and a numeral."
    return [(asked, f"{tag} {' '.join(words).count(letter)}")]


def _initials(rng: GameRng) -> Turns:
    tag, words = _any(_WORD_TAGS, rng), _words(rng)
    asked = f"Put the first letters of {_listed(words)} together, in capitals, after {tag}"
    return [(asked, f"{tag} {''.join(word[0] for word in words).upper()}")]


def _letter_at(rng: GameRng) -> Turns:
    tag, word, other = _any(_WORD_TAGS, rng), *_some(_WORDS, 2, rng)
    place, place_of_other = rng.randrange(len(word)), rng.randrange(len(other))
    asked = (
        f"Take letter {place + 1} of '{word}' and letter {place_of_other + 1} of '{other}'. Reply with {tag} and the "
        "two letters with a hyphen between them."
    )
    return [(asked, f"{tag} {word[place]}-{other[place_of_other]}")]


def _no_vowels(rng: GameRng) -> Turns:
    tag, words = _any(_WORD_TAGS, rng), _some(_WORDS, 2, rng)
    text = " ".join(words)
    asked = f"Leave out every a, e, i, o and u in '{text}' and write the rest after {tag}"
    return [(asked, f"{tag} {''.join(letter for letter in text if letter not in 'aeiou').strip()}")]


def _alphabetical(rng: GameRng) -> Turns:
    tag, words = _any(_LIST_TAGS, rng), _words(rng)
    asked = f"Sort by the alphabet: {_listed(words)}. Write {tag} and the words with commas."
    return [(asked, f"{tag} {_listed(sorted(words))}")]


def _longest(rng: GameRng) -> Turns:
    while True:
        words = _words(rng)
        first, second = sorted(words, key=len, reverse=True)[:2]
        if len(first) > len(second):
            tag = _any(_WORD_TAGS, rng)
            return [(f"Name the longest word of {_listed(words)}. Begin with {tag}", f"{tag} {first}")]


def _capitals(rng: GameRng) -> Turns:
    words = _words(rng, least=2, most=4)
    asked = f"Repeat this in capital letters, in square brackets and with no other word: {' '.join(words)}"
    return [(asked, f"[{' '.join(words).upper()}]")]


def _spelled(rng: GameRng) -> Turns:
    tag, words = _any(_WORD_TAGS, rng), _some(_WORDS, 2, rng)
    asked = (
        f"Spell '{words[0]}', then '{words[1]}', with a hyphen between letters and a blank between words, after {tag}"
    )
    return [(asked, f"{tag} {' '.join('-'.join(word) for word in words)}")]


def _in_both(rng: GameRng) -> Turns:
    tag, words = _any(_LIST_TAGS, rng), _some(_WORDS, 7, rng)
    shared = rng.randrange(3)
    first, second = words[:4], [*words[4:], *words[:shared]]
    second = _some(second, len(second), rng)
    asked = (
        f"List one: {_listed(first)}. List two: {_listed(second)}. Write {tag} and the words of list one that are in "
        f"list two as well, or {tag} none."
    )
    return [(asked, f"{tag} {_listed([word for word in first if word in second]) or 'none'}")]


def _guess(rng: GameRng) -> Turns:
    words = _words(rng, least=4)
    letter = words[0][0]
    words = [words[0], *(word for word in words[1:] if word[0] != letter)]
    words = _some(words, len(words), rng)
    word = next(word for word in words if word[0] == letter)
    asked = (
        f"Guess the word I think of. It is one of {_listed(words)}, and it begins with {letter}. Answer in two lines:\n"
        f"explanation: it begins with {letter}\nguess: the word"
    )
    return [(asked, f"explanation: it begins with {letter}\nguess: {word}")]


# ---- JSON and grids -------------------------------------------------------------------------------------------------


def _person(rng: GameRng) -> Turns:
    name, age, town = _any(_NAMES, rng), 18 + rng.randrange(70), _any(_TOWNS, rng)
    asked = f"{name} is {age} years old and lives in {town}. Reply with a JSON object of name, age and town only."
    return [(asked, json.dumps({"name": name, "age": age, "town": town}))]


def _array(rng: GameRng) -> Turns:
    words = _words(rng)
    return [(f"Write these words as one JSON array of strings: {_listed(words)}", json.dumps(words))]


def _counts(rng: GameRng) -> Turns:
    stock = {word: 1 + rng.randrange(50) for word in _words(rng, least=2, most=4)}
    listed = " and ".join(f"{number} of {word}" for word, number in stock.items())
    asked = f"In store are {listed}. Reply with one JSON object from each word to its number."
    return [(asked, json.dumps(stock))]


def _field(rng: GameRng) -> Turns:
    tag, data = _any(_WORD_TAGS, rng), dict(zip(_words(rng, least=3, most=4), _some(_NAMES, 4, rng), strict=False))
    key = _any(list(data), rng)
    return [(f"{json.dumps(data)}\nWhat stands under '{key}'? Reply with {tag} and the value.", f"{tag} {data[key]}")]


def _cell(rng: GameRng) -> Turns:
    tag, grid = _any(_WORD_TAGS, rng), [[_any("ABCDEFX", rng) for _ in range(3)] for _ in range(3)]
    row, column = rng.randrange(3), rng.randrange(3)
    drawn = "\n".join(" ".join(line) for line in grid)
    asked = f"{drawn}\nWhich letter is in row {row + 1}, column {column + 1}? Reply with {tag} and the letter."
    return [(asked, f"{tag} {grid[row][column]}")]


# ---- choices --------------------------------------------------------------------------------------------------------


def _odd_one_out(rng: GameRng) -> Turns:
    tag = _any(_CHOICE_TAGS, rng)
    kind, other = _some(list(KINDS), 2, rng)
    odd = _any(KINDS[other], rng)
    words = [*_some(KINDS[kind], 3, rng), odd]
    asked = f"One word is of another kind: {_listed(_some(words, 4, rng))}. Reply with {tag} and that word."
    return [(asked, f"{tag} {odd}")]


def _which_kind(rng: GameRng) -> Turns:
    kinds = _some(list(KINDS), 3, rng)
    place = rng.randrange(3)
    word = _any(KINDS[kinds[place]], rng)
    options = "\n".join(f"{letter}) {kind}" for letter, kind in zip("abc", kinds, strict=True))
    tag = _any(_CHOICE_TAGS, rng)
    return [(f"What kind of thing is '{word}'?\n{options}\nReply with {tag} and one letter.", f"{tag} {'abc'[place]}")]


def _in_list(rng: GameRng) -> Turns:
    tag, words = _any(_CHOICE_TAGS, rng), _words(rng, least=4)
    word, words = words[0], words[rng.randrange(2) :]
    words = _some(words, len(words), rng)
    asked = f"Is '{word}' in this list: {_listed(words)}? Reply with {tag} yes or {tag} no."
    return [(asked, f"{tag} {_yes(word in words)}")]


def _once_each(rng: GameRng) -> Turns:
    """Several turns; each needs the whole conversation before it."""
    items, others = _some(_WORDS, 5, rng), _some(_WORDS, 2, rng)
    named: list[str] = []
    turns = []
    for turn in range(4 + rng.randrange(3)):
        item = _any([*items, *others, *named, *named], rng)
        verdict = "TAKEN:" if item in named else "PICK:" if item in items else "ABSENT:"
        named += [item] if verdict == "PICK:" else []
        rules = (
            f"These can be picked, each once: {_listed(items)}. I name a word at a time. Reply with PICK: and the word "
            "if it can be picked, TAKEN: and the word if it has been picked already, ABSENT: and the word if it is not "
            "among them.\n"
        )
        turns.append((f"{'' if turn else rules}{'Next' if turn else 'First'} word: {item}", f"{verdict} {item}"))
    return turns


_EACH: tuple[Callable[[GameRng], Turns], ...] = (
    *(_sum, _difference, _product, _largest, _smallest, _ascending, _even_ones, _above, _next_of_row, _is_odd, _digits),
    *(_compare, _backwards, _count_letter, _initials, _letter_at, _no_vowels, _alphabetical, _longest, _capitals),
    *(_spelled, _in_both, _guess, _person, _array, _counts, _field, _cell, _odd_one_out, _which_kind, _in_list),
    _once_each,
)
TEMPLATES: Mapping[str, Callable[[GameRng], Turns]] = MappingProxyType(
    {template.__name__.removeprefix("_"): template for template in _EACH}
)
"""What makes the turns of a row, by name."""


def minigames(rows: int, seed: int) -> list[Conversation]:
    """Returns so many different rows of all templates in turn; the first rows of a larger number are the same ones.

    Raises:
      ConfigError: a template has not so many different rows.
    """
    found: dict[tuple[Message, ...], str] = {}
    streams = {name: GameRng(derive_seed("minigames", seed, name)) for name in TEMPLATES}
    names = list(TEMPLATES)
    for number in range(rows):
        name = names[number % len(names)]
        for _ in range(_TRIES):
            turns = TEMPLATES[name](streams[name])
            said = (
                Message(role, text) for turn in turns for role, text in zip(("user", "assistant"), turn, strict=True)
            )
            if (messages := tuple(said)) not in found:
                found[messages] = name
                break
        else:
            raise ConfigError([f"rows={rows}: {name} has not so many different rows; ask for fewer"])
    return [Conversation(messages, {"minigame": name}) for messages, name in found.items()]


def held_out(rows: Sequence[Conversation], share: float, seed: int) -> tuple[list[Conversation], list[Conversation]]:
    """Returns rows to train on, in their order, and a share of all, rounded, that is held out."""
    order = sorted(range(len(rows)), key=lambda number: derive_seed("minigames held out", seed, number))
    apart = set(order[: int(share * len(rows) + 0.5)])
    return (
        [row for number, row in enumerate(rows) if number not in apart],
        [row for number, row in enumerate(rows) if number in apart],
    )
