"""Reads which candidates of a pool some words name; rules and scripts of Twenty Questions and Guess My City share it.

The reader knows the pool and not the secret. So what the rules say of words that name several candidates tells nothing
of the secret. It knows names, in any case, number and punctuation; not misspelt ones, those of other languages that are
no alias, or descriptions ("the striped cat").
"""

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping

from dfc.games.paprika.world import fold, words_of

ARTICLES = frozenset(("a", "an", "the"))
_WORD = re.compile(r"[^\W_]+")
_APOSTROPHES = re.compile("['`\u00b4\u02bc\u2018\u2019]")
_PLURAL = re.compile(r"(?<=\w\w\w[^suoi])s$")
_CLAUSE = re.compile(r"[.,;:!?()\"\u2013\u2014]")
_ASIDES = re.compile(
    r"(?<![^\W_])(?:(?:yes )?or no|or not|by any chance|(?:thinking|city|town|name)\s{1,4}of(?=\W)"
    r"|go(?:ing)?\s{1,4}with)(?![^\W_])"
)
_FILLER_WORDS = frozenset(  # a clause of these words and a candidate guesses it, whatever their order
    words_of(
        "i im id ill it its is was are were be been am this that thats these those they theyre he hes she shes you "
        "your youre yours my me we our the a an guess guessing think thinking thought believe suspect suppose say "
        "saying mean bet answer solution final last first next best secret topic named called so then well ok okay "
        "now maybe perhaps probably possibly likely surely definitely certainly really actually simply please right "
        "correct must may might could would should will going"
    )
)
_CITY_WORDS = frozenset(words_of("hometown home town city from live come"))
_UNLESS_BE = frozenset(words_of("must may might could would should will"))  # "could it fly?" where a topic is a fly
_CANDIDATE, _HOME = "\0", "\1"  # stand for a name and for its country where a guess is looked for; nobody can say them


@dataclasses.dataclass
class _Node:
    """A place in a tree of names: what the words down to here mean, and the words that can follow."""

    meaning: str | None = None
    below: "dict[str, _Node]" = dataclasses.field(default_factory=dict)

    def add(self, name: str, meaning: str) -> None:
        """Adds a name, with and without its apostrophes, as it is and in the singular ("a glove" names gloves)."""
        for spelling in {_APOSTROPHES.sub("", name), _APOSTROPHES.sub(" ", name)}:
            words = [word for word in words_of(spelling) if word not in ARTICLES]
            for last in {words[-1], _PLURAL.sub("", words[-1])} if words else ():
                node = self
                for word in (*words[:-1], last):
                    node = node.below.setdefault(word, _Node())
                node.meaning = node.meaning or meaning

    def longest(self, words: list[re.Match[str]], at: int) -> tuple[int, str] | None:
        """Returns where the longest name ends that begins at a word, and what it means; each word in any number."""
        found = None if self.meaning is None else (at, self.meaning)
        for form in _forms(words[at][0]) if at < len(words) else ():
            longer = self.below[form].longest(words, at + 1) if form in self.below else None
            if longer is not None and (found is None or longer[0] > found[0]):
                found = longer
        return found


def _forms(word: str) -> Iterator[str]:
    """Yields a word and what it may be the plural of; also "tigeres", which nobody but a cheat writes."""
    yield word
    if word.endswith("s"):
        yield word[:-1]
        if word.endswith("es"):
            yield word[:-2]
            if word.endswith("ies"):
                yield f"{word[:-3]}y"


class Pool:
    """Candidates and how they are called.

    Attributes:
      home: the country of each candidate that has one.
      kind: the word for what they are, e.g. ``animal``; empty if there is none.
    """

    def __init__(self, names: Iterable[tuple[str, str]], *, home: Mapping[str, str] | None = None, kind: str) -> None:
        """Makes a pool; of two pairs, of a name and the candidate that it means, with one name the first counts.

        About `home` and `kind` see the class; a country that may be named for itself is among the candidates.
        """
        self.home = home or {}
        self.kind = kind
        self._tree = _Node()
        for name, candidate in names:
            self._tree.add(name, candidate)

    def mentions(self, words: list[re.Match[str]]) -> list[tuple[int, int, str]]:
        """Returns where in the text that words were found in names begin and end, and what they mean."""
        found = []
        at = 0
        while at < len(words):
            end, meaning = self._tree.longest(words, at) or (at + 1, None)
            if meaning is not None:
                found.append((words[at].start(), words[end - 1].end(), meaning))
            at = end
        return found


@dataclasses.dataclass(frozen=True)
class GuessReading:
    """What words say of the candidates of a pool.

    Attributes:
      named: the candidates that they name, each once, in order.
      guess: whether they guess; only one candidate alone is ever guessed.
    """

    named: tuple[str, ...]
    guess: bool


@functools.lru_cache(maxsize=1024)  # rules, world and judge read the same words
def read(text: str, pool: Pool) -> GuessReading:
    """Returns which candidates a text names, and whether it names a single one as a guess.

    The longest name at a place counts ("New York" is not York), in any case and number, with anything between its
    words. A country beside a city of it is no second candidate. The secret plays no part.

    >>> pool = Pool([("tiger", "tiger"), ("lion", "lion")], kind="animal")
    >>> read("Is it a tiger?", pool)
    GuessReading(named=('tiger',), guess=True)
    >>> read("I'd say it's the tiger, or not?", pool)
    GuessReading(named=('tiger',), guess=True)
    >>> read("Is it bigger than TIGERS?", pool)
    GuessReading(named=('tiger',), guess=False)
    >>> read("Is it a lion, a tiger?", pool)
    GuessReading(named=('lion', 'tiger'), guess=False)
    """
    folded = fold(_APOSTROPHES.sub("", text))
    mentions = pool.mentions([word for word in _WORD.finditer(folded) if word[0] not in ARTICLES])
    every = dict.fromkeys(meaning for _, _, meaning in mentions)
    homes = {pool.home[meaning] for meaning in every if meaning in pool.home}
    named = tuple(meaning for meaning in every if meaning not in homes)
    if len(named) != 1:
        return GuessReading(named, guess=False)
    marked, behind = [], 0
    for start, end, meaning in mentions:
        marked += [folded[behind:start], _CANDIDATE if meaning == named[0] else _HOME]
        behind = end
    said = "".join([*marked, folded[behind:]])
    return GuessReading(named, _guessing(pool.kind).search(said) is not None or _only_filler(said, pool.kind))


@functools.cache
def _guessing(kind: str) -> re.Pattern[str]:
    """Returns what finds a candidate as a guess: "is it a X?", "it's X.", "maybe X!"; not "bigger than a X".

    An apostrophe is removed before, so that "it's" is "its".
    """
    leads = ["it", "its", "is", "was", "be", "guess", "answer", "topic", "say", "mean", "called", "thinking of"]
    leads += ["maybe", "perhaps", "probably", "possibly"]
    leads += ["this", "that", "these", "those", "they", *([kind] if kind else [])]
    ends = ["because", "since", "given", "based", "the"]
    if kind == "city":
        leads += ["come from", "you from", "are from", "youre from"]  # not "far from", "south from"
        leads += ["live in", "city of", "hometown"]
        ends.append("in")
    before = rf"(?:^|[.;:!?,\"(]|(?<![^\W_])(?:{'|'.join(map(_spelled, leads))}))"
    article = r"[\s\"*(]{0,4}(?:(?:an?|the)\s{1,4})?[\"*(]{0,4}"
    behind = rf"[\s\"*)]{{0,4}}(?=$|[.,;:!?){_HOME}]|(?:{'|'.join(ends)})(?![^\W_]))"
    return re.compile(f"{before}{article}{_CANDIDATE}{behind}")


def _only_filler(said: str, kind: str) -> bool:
    """Returns whether a clause holds a candidate and words that say nothing of it: "I'd guess it's X or not?"."""
    light = _FILLER_WORDS | set(words_of(kind)) | (_CITY_WORDS if kind == "city" else frozenset())
    for clause in _CLAUSE.split(_ASIDES.sub(" ", said)):
        words = _WORD.findall(clause) if _CANDIDATE in clause else ["", ""]
        if light.issuperset(words) and ("be" in words or _UNLESS_BE.isdisjoint(words)):
            return True
    return False


def _spelled(name: str) -> str:
    """Returns a pattern of a name's words with whatever may stand between them."""
    return r"[\W_]+".join(map(re.escape, words_of(name)))
