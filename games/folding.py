"""One fold for all that compares words: what looks like an ASCII letter is one, and invisible characters are ignored.

Source of the look-alikes: Unicode's confusables (UTS 39) as the package ``confusable-homoglyphs`` carries them.
"""

import functools
import re
import unicodedata

from dfc.games.printable import without_unseen

# The names of letters that are a Latin one with a stroke, a hook or a circle, turned around or in small capitals.
_NAMED = re.compile(
    r"(?:LATIN (?:SMALL|CAPITAL) LETTER (?:TURNED |REVERSED |DOTLESS |SCRIPT |LONG )?"
    r"|LATIN (?:(?:SMALL|CAPITAL) )?LETTER SMALL CAPITAL (?:TURNED |REVERSED )?|REGIONAL INDICATOR SYMBOL LETTER "
    r"|(?:(?:CROSSING )?NEGATIVE )?(?:CIRCLED|SQUARED) LATIN CAPITAL LETTER )([A-Z])(?: WITH .*)?"
)


def fold(text: str) -> str:
    r"""Returns a text in which words that look alike are alike; a text in ASCII comes back as it is.

    Removed is what is not seen (`dfc.games.printable.without_unseen`). The rest is brought to the form NFKC and loses
    its marks (category Mn); then letters that look like ASCII letters become these: those of other scripts by the
    confusables, Latin ones with strokes and the like by their names. Case and punctuation stay. Nothing in ASCII is
    changed but for control characters: white space among them becomes a blank, the line feed stays, the others go.

    It is made for comparing: Russian, Greek or Hindi text is no longer readable afterwards. What is alike only in
    meaning is not alike here: ``w4ter``, ``vvater`` in ASCII, a word of another language. Idempotent, and linear in the
    length.

    >>> fold("S\u00e3o \u0440\u0430ul\u043e \uff57\uff41\uff54\uff45\uff52 w\u200bater")
    'Sao paulo water water'
    """
    text = without_unseen(text)
    while not text.isascii():
        folded = unicodedata.normalize("NFKC", text).translate(_TABLE)
        if folded == text:
            break
        text = folded  # once more: what was between two parts of a character may be gone
    return text


class _Table(dict[int, str]):
    """The replacement of each character, computed on first use by `str.translate`."""

    def __missing__(self, code: int) -> str:
        found = self[code] = (
            "".join(map(_letter, unicodedata.normalize("NFKD", chr(code)))) if code > 0x7F else chr(code)
        )
        if not found.isascii():
            found = self[code] = unicodedata.normalize("NFC", found)  # syllables of Hangul stay whole
        return found


_TABLE = _Table()


def _letter(character: str) -> str:
    """Returns the replacement of a character that has no decomposition."""
    if character.isascii():
        return character
    if unicodedata.category(character) == "Mn":
        return ""
    named = _NAMED.fullmatch(unicodedata.name(character, ""))
    if named is not None:
        return named[1].lower() if " SMALL LETTER " in named[0] else named[1]
    alike = _look_alikes().get(character, ())
    # Of several (an upright stroke is an I or an l) the one of the same case, if there is one.
    return min(alike, key=lambda letters: (letters.isupper() != character.isupper(), letters), default=character)


@functools.cache
def _look_alikes() -> dict[str, tuple[str, ...]]:
    """Returns the ASCII letters that each other character looks like."""
    # Here, for its table takes a fifth of a second to read, and most runs meet ASCII alone.
    from confusable_homoglyphs import confusables  # noqa: PLC0415 (see above)

    found: dict[str, tuple[str, ...]] = {}
    for character, alike in confusables.confusables_data.items():
        letters = tuple(each["c"] for each in alike if each["c"].isascii() and each["c"].isalpha())
        if letters and not character.isascii():
            found[character] = letters
    return found
