"""Invisible characters in texts of others: written out for a terminal, or removed between seats.

Control characters (escape sequences begin with one), formats (bidirectional and zero-width marks, tags), separators of
lines, halves of a surrogate pair, and letters, marks and symbols that are drawn as nothing.
"""

import re
import unicodedata

# Not seen although Unicode counts them as marks, letters or symbols: Default_Ignorable_Code_Point outside the
# categories C*, and what is drawn as nothing: blank Braille, the mark of an object, a Khitan filler, a null note.
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
    "\u2800\ufffc\U00016fe4\U0001d159]"
)
_EMOJI_STYLE = frozenset("\ufe0e\ufe0f")  # variation selectors of ordinary text; a terminal may see them
_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
_KEPT = frozenset("\n\t")
_BLANKS = re.compile(r"[^\S\n ]")
_ASCII = {code: " " if chr(code).isspace() else None for code in (*range(32), 127) if code != ord("\n")}


def printable(text: str) -> str:
    r"""Returns a text with every character that moves the cursor, turns lines around or has no width written out.

    Line feeds and tabs stay; an escape becomes the four characters ``\x1b``, a right-to-left override ``\u202e``. What
    is shown can still be another word than it looks like: letters of other scripts stay.

    >>> printable("[4] \x1b[2J\u202e")
    '[4] \\x1b[2J\\u202e'
    """
    if text.isprintable() and not _IGNORABLE.search(text):
        return text
    return "".join(_written_out(character) if _is_harmful(character) else character for character in text)


def without_unseen(text: str) -> str:
    r"""Returns a text without characters that are not seen: what one seat says to another must not hold any.

    Every white space but the line feed becomes a blank. Removed are Unicode's categories Cc (control), Cf (format:
    zero-width and bidirectional characters, tags), Cs (surrogates), Co (private use) and Cn (unassigned in the Unicode
    of this Python), and what shows nothing (variation selectors, fillers, blank Braille). That costs some
    writing its detail: joiners of Hindi, Persian and of emoji made of several, the colour of a heart. The time is
    linear in the length.

    >>> without_unseen("Is\tit\u200b a\u202e tiger?")
    'Is it a tiger?'
    """
    if text.isascii():
        return text if text.isprintable() else text.translate(_ASCII)
    text = _BLANKS.sub(" ", _IGNORABLE.sub("", text))
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c for c in text if c.isprintable() or c == "\n")


def _is_harmful(character: str) -> bool:
    if character.isprintable():
        return _IGNORABLE.match(character) is not None and character not in _EMOJI_STYLE
    return unicodedata.category(character) in _CATEGORIES and character not in _KEPT


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
