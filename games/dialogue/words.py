"""Words as dialogue games compare them: folded, without case, punctuation and endings."""

import functools
import re
import string
from collections.abc import Iterator

import snowballstemmer

from dfc.games.folding import fold

_STEMMER = snowballstemmer.stemmer("english")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NOT_A_LETTER = re.compile(r"[\W_]+")
_SPELLED = re.compile(r"(?<![^\W_])(?:[^\W_][\W_]+)+[^\W_](?![^\W_])")
_STOP_WORDS = """
a about above after again against all also am an and any are as at be because been before being below between both but
by can could did do does doing down during each either else ever every few for from further had has have having he her
here hers him his how however i if in into is it its itself just like may me might more most must my neither no nor not
of off often on once one only or other our ours out over own per quite rather same shall she should so some such than
that the their theirs them then there these they this those through thus to too under until up upon us usually very was
we were what when where which while who whom whose why will with within without would you your yours
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""English words that carry no meaning of their own."""


@functools.lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Returns an English word without its endings, folded and in lower case: Snowball's "Porter2" stemmer.

    >>> stem("Running"), stem("teachers"), stem("leaf")
    ('run', 'teacher', 'leaf')
    """
    stemmed: str = _STEMMER.stemWord(fold(word).lower())
    return stemmed


def bare(text: str) -> str:
    """Returns a text folded (`dfc.games.folding.fold`), in lower case, without punctuation and with single blanks.

    >>> bare(" It's an  ice-cream!")
    'its an icecream'
    """
    return " ".join(fold(text).lower().translate(_NO_PUNCTUATION).split())


def stems(text: str) -> Iterator[str]:
    """Yields the stems of a text's words, stop words and single letters left out.

    What punctuation joins is a word as a whole, and its parts are words; so are letters that are spelled one by one.

    >>> sorted(set(stems("The wa-ter's running"))), sorted(set(stems("it is i c e.")))
    (['run', 'ter', 'wa', 'water'], ['ice'])
    """
    text = fold(text).lower()
    spelled = {"".join(_NOT_A_LETTER.split(run)) for run in _SPELLED.findall(text)}
    for word in {*bare(text).split(), *_NOT_A_LETTER.split(text), *spelled} - STOP_WORDS - {""}:
        if len(word) > 1:
            yield stem(word)
