"""Chooses the pieces of a small tokenizer from messages: fixed sentences, words, and single letters of hidden words.

`dfc.tools.small_models.build_tokenizer` ranks the parts of messages by how often they occur, which is right for games
of a few phrases. Messages in words need a choice: what always comes as a whole is one piece, other sentences are pieces
of words, and what a player must look at sign by sign (digits, cells of a board, letters of a guess) stays separate.
"""

import collections
import re
from collections.abc import Callable, Iterable, Mapping

from dfc.tools.small_models.build_tokenizer import items

# Where a message is always cut: around tags, numbers, cells of a board, and the letters of a guess and of its marks.
_CUTS = re.compile(
    r"(</?[A-Z][a-z]+>)"
    r"|(^[X▢](?: [X▢]){4}$| ?▢)"  # a row of a grid, or an empty cell in one with other letters
    r"|((?:, )?[01]{3}: )"  # a neighbourhood of an automaton
    r"|([0-9]+ ?|[#*] ?)"
    r"|(\n)"
    r"|(^(?:Accuse|Question|Check the alibi of|Inspect the)(?= ))"  # names are spelled, so that new ones can be
    r"|(^[a-z]+(?=: [a-z] (?:in place|elsewhere|not in))|(?<= )[a-z](?= (?:in place|elsewhere|not in the word)))",
    re.MULTILINE,
)
_SENTENCE_ENDS = re.compile(r"(?<=[.!?:;])(?= )")
_WORDS = re.compile(r" ?[A-Za-z']+| ?[^A-Za-z' ]+| +")
_STRETCHES, _SENTENCES = 0.25, 0.1  # shares of the pieces; words take the rest
_LONG, _OFTEN = 12, 0.002  # a piece of more words must be this share of the most frequent one: no single task's text
_SHORT = 5  # letters of a word that could be a part of a guess
_BEGINNINGS = range(3, 6)  # characters of the beginnings of words, blank included, that can be pieces


def choose(messages: Iterable[str], number: int) -> list[str]:
    """Returns at most `number` pieces; equal for every order of the messages.

    A quarter are whole stretches between cuts, a tenth sentences of the other stretches, the rest words and beginnings
    of words; of each kind those that save the most tokens. Repetitions of messages count.
    """
    stretches = _parts(collections.Counter(messages), lambda message: [part for part in _CUTS.split(message) if part])
    often = _OFTEN * max(stretches.values(), default=0)
    chosen = _sentences(stretches, int(_STRETCHES * number), often)
    sentences = _parts(_without(stretches, chosen), _SENTENCE_ENDS.split)
    chosen += _sentences(sentences, int(_SENTENCES * number), often)
    words = _parts(_without(sentences, chosen), _WORDS.findall)
    for word, times in list(words.items()):
        for end in _BEGINNINGS:
            if end < len(word):
                words[word[:end]] += times // len(word)  # a rough share: the word itself may become a piece
    saved = {word: times * (len(word.encode()) - 1) for word, times in _without(words, chosen).items()}
    return chosen + _best(saved, number - len(chosen))


def _sentences(counts: Mapping[str, int], number: int, often: float) -> list[str]:
    """Returns the texts that save most tokens, beside pieces that are words; long ones only if they come often."""
    words = {part: len(_WORDS.findall(part)) for part in counts}
    return _best({p: n * (words[p] - 1) for p, n in counts.items() if n >= often or words[p] <= _LONG}, number)


def _parts(counts: Mapping[str, int], cut: Callable[[str], list[str]]) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()
    for text, times in counts.items():
        for part in cut(text):
            found[part] += times
    return found


def _without(counts: Mapping[str, int], chosen: list[str]) -> collections.Counter[str]:
    taken = frozenset(chosen)
    return collections.Counter({part: times for part, times in counts.items() if part not in taken})


def _best(saved: Mapping[str, int], number: int) -> list[str]:
    """Returns the pieces that save most tokens over all messages, those first that save more."""
    useful = [piece for piece, num_tokens in saved.items() if num_tokens > 0 and _allowed(piece)]
    return sorted(useful, key=lambda piece: (-saved[piece], piece))[:number]


def _allowed(piece: str) -> bool:
    """Whether a piece leaves the letters of a hidden word apart: those stand without a blank before them."""
    inside = piece[0].islower() and piece.isalpha() and len(piece) <= _SHORT
    return len(piece.encode()) > 1 and not inside and items(piece) <= 1
