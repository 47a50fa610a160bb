"""Families of queries whose truth follows from the query by an exact program, so that a Challenger may write them.

A query that a Challenger invents has no reference answer. These have one all the same: a program reads the query, and
works out what is right. Each family has a difficulty from 1 to 8, the length of its text less two (3 to 10), and
differs in what has to be done with it. A query of no family is worth 0 whatever is answered, as nothing is right then.
"""

import collections
import dataclasses
import re
import string
from collections.abc import Callable, Sequence

from dfc.games.rng import GameRng
from dfc.self_play.prompts import Template

LEVELS = range(1, 9)  # of difficulty
_SHORTEST = 3  # the length of a text at level 1
_LETTERS = string.ascii_lowercase
_LONGEST_READ = 1000  # characters of a query that a reader looks at; none of a family is longer
_FEW = 5  # letters that a word to count in is made of, so that counts differ
_SHIFTS = range(1, 10)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A query that was read.

    Attributes:
      family: its name.
      difficulty: 1 to 8.
      truth: the right answer.
    """

    family: str
    difficulty: int
    truth: str


@dataclasses.dataclass(frozen=True)
class Family:
    """One kind of query.

    Attributes:
      name: of the family.
      task: in words, for the Challenger's prompt.
      template: the form of its queries.
      fields: what may stand in place of each placeholder; the first one is the text that difficulty is the length of.
      solve: what is right, from these.
      make: texts for the placeholders, of a length, from a stream of random numbers.
    """

    name: str
    task: str
    template: str
    fields: tuple[re.Pattern[str], ...]
    solve: Callable[..., str]
    make: Callable[[int, GameRng], tuple[str, ...]]

    def read(self, query: str) -> Problem | None:
        """Returns a query's problem; None if it is not of this family."""
        if len(query) > _LONGEST_READ:
            return None
        found = Template(self.template).filled(query)
        if found is None or not all(form.fullmatch(text) for form, text in zip(self.fields, found, strict=True)):
            return None
        difficulty = len(found[0]) - _SHORTEST + 1
        return Problem(self.name, difficulty, self.solve(*found)) if difficulty in LEVELS else None

    def query(self, difficulty: int, rng: GameRng) -> str:
        """Returns a random query.

        Args:
          difficulty: 1 to 8.
          rng: random numbers.

        Raises:
          ValueError: there is no such difficulty.
        """
        if difficulty not in LEVELS:
            raise ValueError(f"expected a difficulty of {LEVELS[0]} to {LEVELS[-1]}, got {difficulty}")
        texts = iter(self.make(difficulty + _SHORTEST - 1, rng))
        return re.sub(r"\{[^{}]+\}", lambda _: next(texts), self.template)


def _some(characters: str, length: int, rng: GameRng) -> str:
    return "".join(characters[rng.randrange(len(characters))] for _ in range(length))


def _one(characters: str) -> Callable[[int, GameRng], tuple[str, ...]]:
    return lambda length, rng: (_some(characters, length, rng),)


def _to_count(length: int, rng: GameRng) -> tuple[str, ...]:
    few = _some(_LETTERS, _FEW, rng)
    return _some(few, length, rng), few[rng.randrange(_FEW)]


def _to_shift(length: int, rng: GameRng) -> tuple[str, ...]:
    return _some(_LETTERS, length, rng), str(_SHIFTS[rng.randrange(len(_SHIFTS))])


def _shifted(word: str, places: str) -> str:
    return "".join(_LETTERS[(_LETTERS.index(letter) + int(places)) % len(_LETTERS)] for letter in word)


_DIGITS, _WORD = re.compile(r"[0-9]+"), re.compile(r"[a-z]+")

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "sort_digits",
            "sorting digits",
            "Sort the digits {digits} from small to large.",
            (_DIGITS,),
            lambda digits: "".join(sorted(digits)),
            _one(string.digits),
        ),
        Family(
            "reverse_letters",
            "writing letters backwards",
            "Write the letters {letters} backwards.",
            (_WORD,),
            lambda word: word[::-1],
            _one(_LETTERS),
        ),
        Family(
            "add_digits",
            "adding digits",
            "Add up the digits {digits}.",
            (_DIGITS,),
            lambda digits: str(sum(map(int, digits))),
            _one(string.digits),
        ),
        Family(
            "count_letter",
            "counting a letter",
            "In the letters {letters}, count the letter {letter}.",
            (_WORD, re.compile(r"[a-z]")),
            lambda word, letter: str(word.count(letter)),
            _to_count,
        ),
        Family(
            "shift_letters",
            "shifting letters in the alphabet",
            "Shift the letters {letters} forward by {places}; after z comes a.",
            (_WORD, re.compile(r"[1-9]")),
            _shifted,
            _to_shift,
        ),
    )
}


def read(query: str, families: Sequence[str] = tuple(FAMILIES)) -> Problem | None:
    """Returns a query's problem, of the first of the families that it is of; None if it is of none.

    White space at the query's ends does not matter; everything else does.

    >>> read("Add up the digits 407.")
    Problem(family='add_digits', difficulty=1, truth='11')
    """
    problems = (FAMILIES[name].read(query) for name in families)
    return next((problem for problem in problems if problem is not None), None)


def is_right(answer: str, truth: str) -> bool:
    """Returns whether an answer is the right one and nothing else; white space around it and a full stop do not matter.

    >>> is_right(" 11. ", "11"), is_right("It is 11", "11")
    (True, False)
    """
    return answer.strip().removesuffix(".").rstrip() == truth


def probe(families: Sequence[str], count: int, seed: int) -> list[str]:
    """Returns fixed queries, as equal numbers of every family and difficulty as their count allows.

    Args:
      families: names.
      count: queries.
      seed: names them.
    """
    rng, cells = GameRng(seed), [(name, level) for level in LEVELS for name in families]
    return [FAMILIES[name].query(level, rng) for name, level in (cells[i % len(cells)] for i in range(count))]


def by_difficulty(problems: Sequence[Problem | None]) -> dict[int, int]:
    """Returns how many queries there are of each difficulty."""
    return dict(sorted(collections.Counter(p.difficulty for p in problems if p is not None).items()))
