"""Kinds of bad queries; and the earlier queries, which a new one must not repeat.

A query has the first kind of these that applies: ``empty``; ``cut`` by the limit of its length; ``tags`` of the prompt
left in it (`dfc.methods.language_self_play.prompts.forbidden_tags`); ``template``, which it does not follow; ``echo``,
at least half of its 8-grams of words stand in its prompt; ``duplicate`` of one of this iteration or of the last 1,000,
white space and case apart; ``near_duplicate``, the Jaccard similarity of its set of character 5-grams with that of one
of these is 0.9 or more. Texts are compared folded (`dfc.games.folding.fold`): invisible characters do not count, in a
query, in what fills its template or inside a tag, and letters of other scripts that look like Latin ones make no other
query.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from dfc.games.folding import fold
from dfc.methods.language_self_play.prompts import Template, forbidden_tags, holds

KINDS = ("empty", "cut", "tags", "template", "echo", "duplicate", "near_duplicate")
REMEMBERED = 1000
_ECHO_WORDS, _ECHO_SHARE = 8, 0.5
_CHARACTERS, _SIMILAR = 5, 0.9
_LONGEST = 8000  # characters of a query that are compared; what is longer is compared by its beginning
_SPACE = re.compile(r"\s+")


@dataclasses.dataclass(frozen=True)
class Written:
    """One query as it was written.

    Attributes:
      text: of the query.
      prompt: that it answers, without the template, whose wording belongs into the query.
      template: that it is to follow.
      ended: whether the policy ended it; False: the limit did.
      tags: that it may not hold, those of the prompt it answers.
    """

    text: str
    prompt: str = ""
    template: str = ""
    ended: bool = True
    tags: tuple[str, ...] = forbidden_tags()


def without_template(prompt: str, template: str) -> str:
    """Returns a prompt without the template in it, for `Written.prompt`."""
    return prompt.replace(template, " ") if template else prompt


class Memory:
    """The last queries of a run, which new ones are compared with; its `state` goes into a checkpoint.

    Near duplicates are found exactly, without comparing with all: two sets of similarity s or more share one of the
    first n - ceil(s n) + 1 of their n elements, in any fixed order (prefix filtering, Chaudhuri et al., A Primitive
    Operator for Similarity Joins in Data Cleaning, 2006). Only queries that do are compared. The `texts` are those of a
    `state`, oldest first; `size` of them are remembered.
    """

    def __init__(self, texts: Iterable[str] = (), size: int = REMEMBERED) -> None:
        self._size = size
        self._grams: collections.OrderedDict[int, frozenset[str]] = collections.OrderedDict()
        self._texts: dict[int, str] = {}
        self._exact: collections.Counter[str] = collections.Counter()
        self._of_prefix: dict[str, set[int]] = collections.defaultdict(set)
        self._next = 0
        for text in texts:
            self.add(text)

    def state(self) -> list[str]:
        """Returns all that is remembered, ready for JSON, oldest first."""
        return [self._texts[number] for number in self._grams]

    def add(self, text: str) -> None:
        """Remembers a query; the oldest one makes room."""
        text = _plain(text)
        if len(self._grams) == self._size:
            self._forget()
        grams, self._next = _grams(text), self._next + 1
        self._grams[self._next], self._texts[self._next] = grams, text
        self._exact[text] += 1
        for gram in _prefix(grams):
            self._of_prefix[gram].add(self._next)

    def repeats(self, text: str) -> str | None:
        """Returns ``duplicate`` or ``near_duplicate`` if a query repeats one that is remembered, else None."""
        text = _plain(text)
        if self._exact[text]:
            return "duplicate"
        grams = _grams(text)
        candidates = {number for gram in _prefix(grams) for number in self._of_prefix.get(gram, ())}
        near = any(similarity(grams, self._grams[number]) >= _SIMILAR for number in candidates)
        return "near_duplicate" if near else None

    def _forget(self) -> None:
        number, grams = self._grams.popitem(last=False)
        text = self._texts.pop(number)
        self._exact[text] -= 1
        if not self._exact[text]:
            del self._exact[text]
        for gram in _prefix(grams):
            self._of_prefix[gram].discard(number)
            if not self._of_prefix[gram]:
                del self._of_prefix[gram]


def inspect(queries: Sequence[Written], memory: Memory) -> list[str | None]:
    """Returns what is wrong with each query, one of `KINDS`, or None; all that are not empty are remembered.

    Of queries that repeat each other within an iteration the first one is no duplicate.
    """
    found: list[str | None] = []
    for query in queries:
        kind = _form(query)
        if kind != "empty":
            kind = kind or memory.repeats(query.text)
            memory.add(query.text)
        found.append(kind)
    return found


def counts(kinds: Sequence[str | None]) -> dict[str, int]:
    """Returns how many queries are of each of `KINDS`."""
    return {kind: sum(one == kind for one in kinds) for kind in KINDS}


def duplicates_by_difficulty(kinds: Sequence[str | None], difficulties: Sequence[int | None]) -> dict[int, int]:
    """Returns how many queries of each difficulty repeat another one: easy ones are few, so they repeat more often."""
    repeated = ("duplicate", "near_duplicate")
    found: Mapping[int, int] = collections.Counter(
        level for kind, level in zip(kinds, difficulties, strict=True) if kind in repeated and level is not None
    )
    return dict(sorted(found.items()))


def similarity(grams: frozenset[str], other: frozenset[str]) -> float:
    """Returns the Jaccard similarity of two sets, 1 for two empty ones.

    >>> similarity(frozenset("abc"), frozenset("bcd"))
    0.5
    """
    shared = len(grams & other)
    whole = len(grams) + len(other) - shared
    return shared / whole if whole else 1.0


def _form(query: Written) -> str | None:
    """What is wrong with a query alone."""
    text = fold(query.text)
    if not text.strip():
        return "empty"
    if not query.ended:
        return "cut"
    if holds(text, tuple(map(fold, query.tags))):
        return "tags"
    if Template(fold(query.template)).filled(text) is None:
        return "template"
    own = _word_grams(text)
    of_prompt = set(_word_grams(fold(query.prompt))) if own else set()
    echoed = sum(gram in of_prompt for gram in own)
    return "echo" if own and echoed >= _ECHO_SHARE * len(own) else None


def _word_grams(text: str) -> list[tuple[str, ...]]:
    words = text.lower().split()
    return [tuple(words[i : i + _ECHO_WORDS]) for i in range(len(words) - _ECHO_WORDS + 1)]


def _plain(text: str) -> str:
    return _SPACE.sub(" ", fold(text)).strip().lower()[:_LONGEST]


def _grams(text: str) -> frozenset[str]:
    return frozenset(text[i : i + _CHARACTERS] for i in range(max(1, len(text) - _CHARACTERS + 1)))


def _prefix(grams: frozenset[str]) -> list[str]:
    count = len(grams)
    return sorted(grams)[: count - math.ceil(_SIMILAR * count) + 1]
