"""Which words English has, by the list of the package ``pyspellchecker``: for rules about what is a word at all.

The list has 128,000 words of ASCII letters, forms and many names among them, with how often each is met. Words of no
count have its smallest; of two or three letters these are mostly abbreviations, and are left out here. Its spelling is
American: a British one is a word where its American one is.
"""

import functools
import gzip
import importlib.resources
import json
import re

_SHORT = 3  # letters of a word that is one only if it has been counted
_UNCOUNTED = 50
# Words that are younger than the list, or British without an American spelling that a rule below would find.
_LIST_OF_OTHERS = """
aluminium app apps cheque cheques emoji emojis inbox jewellery kerb manoeuvre playlist programme programmes selfie
selfies smartphone smartphones storey storeys wifi
"""
_OTHERS = frozenset(_LIST_OF_OTHERS.split())
# British spelling, American spelling: "theatres", "colour", "organised", "analyse", "travelled", "defence", "mould".
_SPELLINGS = (
    (re.compile("tre(s|d)?$"), r"ter\1"),
    (re.compile("our"), "or"),
    (re.compile("is(?=(e|ed|er|ers|es|ing|ation|ations)$)"), "iz"),
    (re.compile("ys(?=(e|ed|es|er|ing)$)"), "yz"),
    (re.compile("ll(?=(ed|er|ers|ing|ings)$)"), "l"),
    (re.compile("ence(s?)$"), r"ense\1"),
    (re.compile("oul(?=[dt])"), "ol"),
    (re.compile("[ao]e"), "e"),
)


@functools.cache
def _counts() -> dict[str, int]:
    """Returns how often each word of the list is met, `_UNCOUNTED` where that is not known; reading takes 0.2 s."""
    listed = importlib.resources.files("spellchecker") / "resources" / "en.json.gz"
    found: dict[str, int] = json.loads(gzip.decompress(listed.read_bytes()))
    return found


@functools.lru_cache(maxsize=65536)
def known(word: str) -> bool:
    """Returns whether a word in lower case is English: of the list, names of people and places among them.

    Nothing with an apostrophe, a hyphen or a digit is one. It lacks rare words, slang and brands.

    >>> known("nice"), known("theatres"), known("colour"), known("horapp"), known("cdr")
    (True, True, True, False, False)
    """
    if not (word.isascii() and word.isalpha()):
        return False
    return word in _OTHERS or any(map(_listed, spellings(word)))


@functools.lru_cache(maxsize=65536)
def spellings(word: str) -> tuple[str, ...]:
    """Returns a word in lower case and what an American may spell in its place, words or not.

    >>> spellings("centres"), spellings("house")
    (('centres', 'centers'), ('house',))
    """
    patterns = _SPELLINGS[:1] if _listed(word) else _SPELLINGS  # mourning is not morning, nor poet pet
    return tuple(dict.fromkeys((word, *(pattern.sub(into, word) for pattern, into in patterns))))


def common(word: str) -> bool:
    """Returns whether a word in lower case is one that has been counted: no rare one.

    >>> common("fall"), common("azoth")
    (True, False)
    """
    return _counts().get(word, 0) > _UNCOUNTED


def _listed(word: str) -> bool:
    return word in _counts() if len(word) > _SHORT else common(word)
