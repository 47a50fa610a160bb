"""Families of queries whose correct answer a program computes from the query, so that a Challenger may write them.

A query that a Challenger invents has no reference answer. These have one nevertheless: a program reads the query and
computes the correct answer. Each family has a difficulty from 1 to 8, for most the length of its text less two (3 to
10), and differs in what has to be done with it. A query of no family is worth 0 whatever is answered, as nothing is
right then.
"""

import collections
import dataclasses
import re
import string
from collections.abc import Callable, Sequence

from dfc.games.rng import GameRng
from dfc.methods.language_self_play.prompts import Template

LEVELS = range(1, 9)  # of difficulty
_SHORTEST = 3  # the length of a text at level 1
_LETTERS = string.ascii_lowercase
_SMALL = _LETTERS[:10]  # an alphabet that a small model can learn to count in
_LONGEST_READ = 1000  # characters of a query that is parsed; none of a family is longer
_FEW = 5  # letters that a word to count in is made of, so that counts differ
_SHIFTS = range(1, 5)
_ENCODED = range(6, 8)  # letters


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
      task: its description in the Challenger's prompt.
      template: the form of its queries.
      fields: what may stand in place of each placeholder; the last one is the text that something is done with.
      solve: what is right, from these.
      make: texts for the placeholders, of a difficulty, from a stream of random numbers.
      mistake: what a solver answers that does not follow the right rule, from the texts; a copy unless given.
      level: the difficulty, from the texts; by the length of the last one unless given. Not within 1 to 8: the
        query is of no family.
    """

    name: str
    task: str
    template: str
    fields: tuple[re.Pattern[str], ...]
    solve: Callable[..., str]
    make: Callable[[int, GameRng], tuple[str, ...]]
    mistake: Callable[..., str] = lambda *texts: texts[-1]
    level: Callable[..., int] = lambda *texts: len(texts[-1]) - _SHORTEST + 1

    def read(self, query: str) -> Problem | None:
        """Returns a query's problem; None if it is not of this family."""
        if len(query) > _LONGEST_READ:
            return None
        found = Template(self.template).filled(query)
        if found is None or not all(form.fullmatch(text) for form, text in zip(self.fields, found, strict=True)):
            return None
        difficulty = self.level(*found)
        return Problem(self.name, difficulty, self.solve(*found)) if difficulty in LEVELS else None

    def query(self, difficulty: int, rng: GameRng) -> str:
        """Returns a random query.

        Difficulties are 1 to 8.

        Raises:
          ValueError: there is no such difficulty.
        """
        if difficulty not in LEVELS:
            raise ValueError(f"expected a difficulty of {LEVELS[0]} to {LEVELS[-1]}, got {difficulty}")
        return self.beyond(difficulty, rng)

    def beyond(self, difficulty: int, rng: GameRng) -> str:
        """Returns a random query as `query` does, of any difficulty from 1 on; above 8 it is of no family."""
        texts = iter(self.make(difficulty, rng))
        return re.sub(r"\{[^{}]+\}", lambda _: next(texts), self.template)


def _some(characters: str, length: int, rng: GameRng) -> str:
    return "".join(characters[rng.randrange(len(characters))] for _ in range(length))


def _length(difficulty: int) -> int:
    return difficulty + _SHORTEST - 1


def _one(characters: str) -> Callable[[int, GameRng], tuple[str, ...]]:
    return lambda difficulty, rng: (_some(characters, _length(difficulty), rng),)


def _to_count(difficulty: int, rng: GameRng) -> tuple[str, ...]:
    few = _some(_LETTERS, _FEW, rng)
    return few[rng.randrange(_FEW)], _some(few, _length(difficulty), rng)


def _to_shift(difficulty: int, rng: GameRng) -> tuple[str, ...]:
    return str(_SHIFTS[rng.randrange(len(_SHIFTS))]), _some(_SMALL, _length(difficulty), rng)


def _to_encode(difficulty: int, rng: GameRng) -> tuple[str, ...]:
    return str(difficulty), _some(_SMALL, _ENCODED[rng.randrange(len(_ENCODED))], rng)


def _shifted(places: str, word: str) -> str:
    return "".join(_SMALL[(_SMALL.index(letter) + int(places)) % len(_SMALL)] for letter in word)


# By which shift each key encodes, and by which one a solver does that mistakes it. What is right for one key is the
# mistake for another, each such pair in both directions: what is learned at one difficulty helps little at the others.
_RIGHT_KEYS, _WRONG_KEYS = (1, 2, 3, 4, 2, 3, 4, 1), (2, 3, 4, 1, 1, 2, 3, 4)


def _encoded(keys: Sequence[int]) -> Callable[[str, str], str]:
    return lambda key, word: _shifted(str(keys[(int(key) - 1) % len(keys)]), word)


_DIGITS, _WORD, _SMALL_WORD = re.compile(r"[0-9]+"), re.compile(r"[a-z]+"), re.compile(r"[a-j]+")

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
            "Count the letter {letter} in {letters}.",
            (re.compile(r"[a-z]"), _WORD),
            lambda letter, word: str(word.count(letter)),
            _to_count,
        ),
        Family(
            "shift_letters",
            "shifting letters in an alphabet of ten",
            "Shift forward by {places} the letters {letters}; after j comes a.",
            (re.compile(r"[1-4]"), _SMALL_WORD),
            _shifted,
            _to_shift,
        ),
        Family(
            "encode_letters",
            "encoding letters",
            "Encode by the key {key} the letters {letters}.",
            (re.compile(r"[1-8]"), re.compile(r"[a-j]{6,7}")),
            _encoded(_RIGHT_KEYS),
            _to_encode,
            _encoded(_WRONG_KEYS),
            lambda key, _: int(key),
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
    """Returns fixed queries, as equal numbers of every family and difficulty as their count allows."""
    rng, cells = GameRng(seed), [(name, level) for level in LEVELS for name in families]
    return [FAMILIES[name].query(level, rng) for name, level in (cells[i % len(cells)] for i in range(count))]


def by_difficulty(problems: Sequence[Problem | None]) -> dict[int, int]:
    """Returns how many queries there are of each difficulty."""
    return dict(sorted(collections.Counter(p.difficulty for p in problems if p is not None).items()))
