"""Ordinary conversations made from templates: small talk and questions, answered; no game among them.

    python benchmarks/scripted_chat.py --conversations=2000 --seed=0 --out=chat.jsonl

What supervised training on ordinary chat of several turns does is compared with what training on games does; this is
the chat. A conversation has 2 to 5 turns, one user message and one reply each: an optional greeting, then subjects of
one to three turns (sums, conversions, definitions, lists, facts, words put in order, small talk), of which the later
ones refer back ("add 7 to that"), then an optional goodbye. All answers are right. The same seed gives the same file.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from dfc.records.trajectories import Message
from dfc.records.trajectory_files import DatasetError
from dfc.rows.conversations import Conversation, write_conversations

Turn: TypeAlias = tuple[str, str]
"""What the user says, and the reply."""
_T = TypeVar("_T")

TURNS = (2, 5)

_NAMES = ("Ada", "Ben", "Chloe", "Dmitri", "Elif", "Farid", "Grace", "Hiro", "Ines", "Jonas", "Kofi", "Lena")
_GREETINGS = ("Hello!", "Hi there.", "Good morning.", "Good evening.", "Hey, are you there?")
_GOODBYES = (
    ("Thanks, that is all.", "You are welcome. Have a good day!"),
    ("Great, thank you!", "Glad to help."),
    ("That helps a lot. Bye!", "Goodbye, and come back any time."),
    ("Perfect, thanks.", "Any time."),
)
_DEFINITIONS = {
    "a glacier": ("a slow river of ice that forms where snow piles up for many years", "in high mountains"),
    "photosynthesis": ("how plants make sugar from light, water and carbon dioxide", "in green leaves"),
    "a thesaurus": ("a book that lists words of similar meaning together", "on a writer's desk"),
    "evaporation": ("the change of a liquid into a gas at its surface", "over a puddle on a warm day"),
    "an isthmus": ("a narrow strip of land that joins two larger ones", "at Panama"),
    "compost": ("rotted plant matter that makes soil richer", "in many gardens"),
    "a barometer": ("an instrument that measures the pressure of the air", "at a weather station"),
    "migration": ("a journey that animals make from one region to another with the seasons", "above us in autumn"),
    "a sonnet": ("a poem of fourteen lines", "in the works of Shakespeare"),
    "erosion": ("the slow wearing away of rock and soil by water, wind or ice", "along a river bank"),
    "a budget": ("a plan of what will be earned and spent", "in every household that saves"),
    "an archipelago": ("a group of islands", "in the Aegean Sea"),
}
_LISTS = {
    "vegetables": ("carrots", "leeks", "spinach", "beetroot", "peas", "cabbage"),
    "musical instruments": ("the violin", "the flute", "the drum", "the harp", "the trumpet", "the cello"),
    "farm animals": ("cows", "sheep", "goats", "hens", "pigs", "ducks"),
    "tools for a workshop": ("a hammer", "a saw", "a file", "a drill", "pliers", "a chisel"),
    "things to pack for a hike": ("water", "a map", "a raincoat", "bread", "a torch", "warm socks"),
    "European rivers": ("the Danube", "the Rhine", "the Loire", "the Elbe", "the Tagus", "the Vistula"),
    "trees": ("oak", "birch", "maple", "pine", "willow", "beech"),
    "breakfast foods": ("porridge", "toast", "yoghurt", "fruit", "eggs", "pancakes"),
    "fabrics": ("cotton", "linen", "wool", "silk", "felt", "velvet"),
    "spices": ("cumin", "ginger", "cinnamon", "pepper", "saffron", "cloves"),
}
_CAPITALS = {
    "Austria": ("Vienna", "German"),
    "Brazil": ("Brasilia", "Portuguese"),
    "Egypt": ("Cairo", "Arabic"),
    "France": ("Paris", "French"),
    "Greece": ("Athens", "Greek"),
    "Hungary": ("Budapest", "Hungarian"),
    "Iceland": ("Reykjavik", "Icelandic"),
    "Japan": ("Tokyo", "Japanese"),
    "Mexico": ("Mexico City", "Spanish"),
    "Poland": ("Warsaw", "Polish"),
    "Portugal": ("Lisbon", "Portuguese"),
    "Thailand": ("Bangkok", "Thai"),
}
_UNITS = (
    ("kilometres", "metres", 1000),
    ("hours", "minutes", 60),
    ("minutes", "seconds", 60),
    ("kilograms", "grams", 1000),
    ("weeks", "days", 7),
    ("feet", "inches", 12),
    ("litres", "millilitres", 1000),
    ("dozens", "pieces", 12),
)
_SMALL_TALK = (
    ("It has been raining all day here.", "A good day for tea and a book, then."),
    ("I just came back from a long walk.", "That sounds pleasant. I hope the weather was kind."),
    ("I cannot decide what to cook tonight.", "A soup is quick, and it uses what you have at home."),
    ("My train is late again.", "I am sorry to hear that. I hope it comes soon."),
    ("I planted tomatoes this week.", "Nice. Give them sun, and water them at the root."),
    ("I started to learn the piano.", "Well done. A little practice every day goes a long way."),
    ("I slept badly last night.", "I am sorry. A short walk and an early evening may help."),
    ("My sister visits me at the weekend.", "How nice. I hope you two have a good time."),
    ("I finally cleaned my desk.", "A clear desk feels good. Enjoy it."),
    ("I am a little nervous about my exam.", "That is normal. Read your notes once more, and rest well."),
)


def scripted_conversation(rng: np.random.Generator) -> Conversation:
    """Returns one conversation of 2 to 5 turns, sampled from `rng`."""
    length = int(rng.integers(TURNS[0], TURNS[1] + 1))
    turns: list[Turn] = [_greeting(rng)] if rng.random() < 0.5 else []
    goodbye = [_pick(rng, _GOODBYES)] if rng.random() < 0.3 and len(turns) + 1 < length else []
    subjects = [_SUBJECTS[n] for n in rng.permutation(len(_SUBJECTS))]
    for subject in subjects:
        room = length - len(turns) - len(goodbye)
        if not room:
            break
        turns += subject(rng)[:room]
    turns += goodbye
    messages = (Message(role, text) for turn in turns for role, text in zip(("user", "assistant"), turn, strict=True))
    return Conversation(tuple(messages), {"source": "scripted_chat", "turns": len(turns)})


def _pick(rng: np.random.Generator, items: Sequence[_T]) -> _T:
    return items[int(rng.integers(len(items)))]


def _several(rng: np.random.Generator, items: Sequence[_T], count: int) -> list[_T]:
    """Returns different items in random order."""
    return [items[n] for n in rng.permutation(len(items))[:count]]


def _listed(items: Sequence[str]) -> str:
    return f"{', '.join(items[:-1])} and {items[-1]}"


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]


# ---- subjects: turns of which the first stands alone and the later ones refer back ----------------------------------


def _greeting(rng: np.random.Generator) -> Turn:
    hello, name = _pick(rng, _GREETINGS), _pick(rng, _NAMES)
    return _pick(
        rng,
        (
            (f"{hello} I am {name}.", f"Hello {name}, nice to meet you. What can I do for you?"),
            (f"{hello} My name is {name}. How are you?", f"Hi {name}! I am well, thank you. How can I help?"),
            (hello, "Hello! What would you like to know?"),
        ),
    )


def _sum(rng: np.random.Generator) -> list[Turn]:
    a, b, c, d = (int(n) for n in rng.integers(2, 100, 4))
    word, first = _pick(rng, (("plus", a + b), ("minus", a - b), ("times", a * b)))
    question = _pick(rng, (f"What is {a} {word} {b}?", f"Can you tell me what {a} {word} {b} is?", f"{a} {word} {b}?"))
    return [
        (question, f"{a} {word} {b} is {first}."),
        (_pick(rng, (f"Now add {c} to that.", f"And {c} more?")), f"{first} plus {c} is {first + c}."),
        (f"Take {d} away from the result.", f"{first + c} minus {d} is {first + c - d}."),
    ]


def _conversion(rng: np.random.Generator) -> list[Turn]:
    large, small, factor = _pick(rng, _UNITS)
    n, m = (int(x) for x in rng.integers(2, 40, 2))
    return [
        (f"How many {small} are {n} {large}?", f"{n} {large} are {n * factor} {small}."),
        (f"And {m} {large}?", f"{m} {large} are {m * factor} {small}."),
    ]


def _definition(rng: np.random.Generator) -> list[Turn]:
    term = _pick(rng, tuple(_DEFINITIONS))
    meaning, place = _DEFINITIONS[term]
    question = _pick(rng, (f"What is {term}?", f"Could you explain to me what {term} is?", f"Please define {term}."))
    return [
        (question, f"{_capitalized(term)} is {meaning}."),
        ("Where would I see that?", f"For example {place}."),
        ("Say the first part again, please.", f"Of course: {term} is {meaning}."),
    ]


def _list(rng: np.random.Generator) -> list[Turn]:
    kind = _pick(rng, tuple(_LISTS))
    count = int(rng.integers(2, 5))
    items = _several(rng, _LISTS[kind], count + 1)
    question = _pick(rng, (f"Name {count} {kind}.", f"Give me a list of {count} {kind}, please."))
    return [
        (question, f"{_capitalized(_listed(items[:count]))}."),
        ("One more?", f"{_capitalized(items[count])}."),
        ("Which one did you name first?", f"I began with {items[0]}."),
    ]


def _fact(rng: np.random.Generator) -> list[Turn]:
    one, other = _several(rng, tuple(_CAPITALS), 2)
    (capital, language), (other_capital, _) = _CAPITALS[one], _CAPITALS[other]
    question = _pick(rng, (f"What is the capital of {one}?", f"Which city is the capital of {one}?"))
    return [
        (question, f"The capital of {one} is {capital}."),
        (f"And of {other}?", f"The capital of {other} is {other_capital}."),
        (f"Which language do most people in {one} speak?", f"Most people in {one} speak {language}."),
    ]


def _order(rng: np.random.Generator) -> list[Turn]:
    names = _several(rng, _NAMES, int(rng.integers(3, 6)))
    numbers = [int(n) for n in rng.permutation(90)[: len(names)] + 10]
    return [
        (f"Put these names in alphabetical order: {', '.join(names)}.", f"{', '.join(sorted(names))}."),
        ("And the other way round?", f"{', '.join(sorted(names, reverse=True))}."),
        (f"Now sort {', '.join(map(str, numbers))}.", f"{', '.join(map(str, sorted(numbers)))}."),
    ]


def _small_talk(rng: np.random.Generator) -> list[Turn]:
    return _several(rng, _SMALL_TALK, int(rng.integers(1, 3)))


_SUBJECTS = (_sum, _conversion, _definition, _list, _fact, _order, _small_talk)


def main(argv: Sequence[str] | None = None) -> None:
    """Writes the file and says how much is in it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--conversations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help=".jsonl or .parquet")
    options = parser.parse_args(argv)
    rng = np.random.default_rng(options.seed)
    conversations = [scripted_conversation(rng) for _ in range(options.conversations)]
    try:
        written = write_conversations(options.out, conversations)
    except DatasetError as error:
        sys.exit(str(error))
    distinct = len({one.messages for one in conversations})
    messages = sum(len(one.messages) for one in conversations)
    print(f"{options.out}: {written} conversations, {distinct} distinct, {messages} messages")


if __name__ == "__main__":
    main()
