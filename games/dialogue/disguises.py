"""Forbidden words in disguise: split, reversed, with digits, inside another word; and what is no word at all.

These rules are ours. clembench compares the stems of whole words, so a describer that wants to win without describing
can say the word itself and spell it otherwise. What is trained here has them on; where original instances are scored,
the rules of the source hold alone (`dfc.games.dialogue.dialogue_game.are_strict`).

What they cannot see: among other words an English word that is another one backwards (``god`` for ``dog``) or misses
one of its letters (``rain`` for ``train``), since such words stand in honest clues; a rhyme, a word of the same sound,
a translation, a code that two players agreed on, such as one half of a word in each of two clues; words of two letters.
"""

import functools
import re
from collections.abc import Iterator

from dfc.games.dialogue.english import common, known, spellings
from dfc.games.dialogue.words import STOP_WORDS, stem
from dfc.games.folding import fold

_WORD = re.compile(r"[^\W_]+")
_APOSTROPHES = re.compile("['`\u2018\u2019]")
# What is joined to a word by an apostrophe: without that "shouldn't" is no listed word, and spells "sun".
_JOINED = re.compile(
    "\\b(are|could|did|do|does|had|has|have|is|might|must|need|should|was|were|would)n['`\u2018\u2019]t\\b"
    "|['`\u2018\u2019](?:s|d|m|ll|re|ve)\\b"
)
_LETTERS = re.compile("[^a-z]+")
_JOINTS = re.compile(r'[-.,;:?()\[\]{}"/]')
_LIKE = {"0": "o", "1": "il", "3": "e", "4": "a", "5": "s", "7": "t", "8": "b", "9": "g", "@": "a", "$": "s", "!": "i"}
_FEWEST = 3  # letters of a word that is looked for in disguise
_SURE = 4  # letters from which a word inside one that is no English word is never chance
_MISSPELT = 5  # letters from which a word with one letter wrong that is no English word is that word
_VOWELS = tuple("aeiouy")
_DOUBLED = re.compile("[^aeiou]+[aeiou][^aeiouwxy]")
_NO_PIECES = ("ion", "ions")  # what "intention" ends in
# Endings of English words, and what may have stood in their place.
_FORMS = (
    ("s", ("",)),
    ("es", ("",)),
    ("ies", ("y",)),
    ("ing", ("", "e")),
    ("ed", ("", "e")),
    ("er", ("", "e")),
    ("ly", ("",)),
    ("ness", ("",)),
    ("king", ("",)),  # "picnicking"
    ("able", ("", "e")),
    ("ity", ("", "e", "ious")),
)
_STEPS = (2, 3)  # every second or third letter spells the word
# What may stand before or behind a word in a longer one of the same stem.
_PREFIXES = frozenset(["un", "re", "over", "under", "out", "up", "in", "mid", "non", "pre", "sub", "super", "anti"])
_LIST_OF_SUFFIXES = """
s y ed er ers ing ish ful less like ness ly able or ist ism ity ery wards ward wise dom hood let esque
"""
_SUFFIXES = frozenset(_LIST_OF_SUFFIXES.split())
# English words that hold a word of the table by chance, as a name, or as a part that nobody hears any more: found by
# going through all words of the list that the rules below would take.
_LIST_OF_ACCIDENTS = """
angelina appleton babylon bagdad baggage bahrain ballard ballsed ballute bally bedevil bedford bedlam bedrabble boyer
calcar cambridge cambridgeshire caraway carbide carbine carbon carboy cardamon cardie cardin carina carlin carline
carlist carlotta carlow carlyle carman carmel carmen carmichael carmine carnap carnation carnet carnot carpal carpet
carpus carrack carroll carrot carson cartier carton caruncle carven carvery catalan catamount cathay cathectic
cathexes cathie cationic catkin catskill catsup cattier churchill cobwebbed constable constrain content cornwall
distrain doggone engrain eyestrain forecastle gadwall hamsun handsome herringbone ingrain ingrained intent invoice
kirkwall knobbed newcastle offspring overstrain philemon phonemic phonetic phonetics phoney quatrain refrain remittent
restrain ringgit rockingham rosewall sacring samsun sherrington sockeye springfield sunchon sundries sundry sunken
sunnah sunnite tarkington tenter unhandsome unrestrained wallace waller wallsend warbeck warden wardress warley
warlock warrant warrington warsaw wartier warwick whitsun
"""
_ACCIDENTS = frozenset(_LIST_OF_ACCIDENTS.split())
_SHIPS = frozenset(["airship", "battleship", "flagship", "spaceship", "starship", "steamship", "troopship", "warship"])


@functools.lru_cache(maxsize=4096)
def disguises(text: str, target: str, taboo: tuple[str, ...]) -> bool:
    """Returns whether a text holds the target, or a taboo word, in disguise.

    Forms with the same stem are `dfc.games.dialogue.words.stems`' and not looked for here. Of words of three letters
    or more these count:

    - several words or letters of the text in a row that are the word together (``wa ter``), unless all are stop
      words (``do or``) and not the whole clue;
    - with digits or signs in place of some letters, or beside them (``w4ter``, ``water1``);
    - in what is no English word: the word backwards (``retaw``; what is an English word only where it is the whole
      clue), with letters doubled, as every second or third letter; the word with an English word or an ending
      beside it (``waterlike``); the target of four letters or more with two letters swapped or anything around it
      (``xwaterx``), and of five or more with one letter wrong;
    - the target in an English word that is made of it (``underwater``, ``waterfall``; ``nice`` is not made of ice);
    - the target, of four letters or more, as initials of words in a row.

    `text`, a clue, is folded here (`dfc.games.folding.fold`); `target` is of one word or several; `taboo` must not be
    said either.
    """
    folded = fold(text).lower()
    said = _APOSTROPHES.sub("", folded)
    words = _WORD.findall(said)
    alone = _WORD.findall(_APOSTROPHES.sub("", _JOINED.sub(r"\1", folded)))
    chunks = said.split()
    targets = _WORD.findall(fold(target).lower())
    for part in dict.fromkeys((*targets, *_WORD.findall(fold(" ".join(taboo)).lower()))):
        if len(part) < _FEWEST or part in STOP_WORDS:
            continue
        is_target = part in targets
        if (
            any(_with_signs(chunk, part) for chunk in chunks)
            or _split(words, part)
            or any(
                _misspelt(word, part, is_target=is_target) or _inside(word, part, is_target=is_target) for word in alone
            )
            or (is_target and len(part) >= _SURE and part in "".join(word[0] for word in words))
        ):
            return True
    return _nothing_but(words, target)


def _nothing_but(words: list[str], target: str) -> bool:
    """Whether a clue says the target backwards or split in English words, and nothing else but stop words."""
    content = {word for word in words if word not in STOP_WORDS}
    return content == {target[::-1]} or (len(words) > 1 and "".join(words) in (target, target[::-1]))


def is_a_word(clue: str) -> bool:
    """Returns whether a clue in lower case is one English word; what a hyphen joins is none unless it is without it.

    >>> is_a_word("royalty"), is_a_word("e-mail"), is_a_word("kit-dol-cas"), is_a_word("kitdol")
    (True, True, False, False)
    """
    return known(fold(clue).lower().replace("-", ""))


def _with_signs(chunk: str, part: str) -> bool:
    """Whether a chunk between blanks is a word with signs beside its letters or in place of some of them."""
    if chunk.isalpha() or not any(map(str.isalnum, chunk)):
        return False
    letters = _LETTERS.sub("", chunk)
    if stem(letters) == stem(part):
        return True
    core = _JOINTS.sub("", chunk)
    return any(len(core) == len(form) and _stands_for(core, form) for form in (part, f"{part}s"))


def _stands_for(core: str, form: str) -> bool:
    """Whether each character is that of a word of as many, looks like it, or is any sign (of up to half of them)."""
    signs = 0
    for character, wanted in zip(core, form, strict=True):
        if character == wanted or wanted in _LIKE.get(character, ""):
            continue
        if character.isalpha():
            return False
        signs += 1
    return signs * 2 <= len(form) and not core.isdecimal()


def _split(words: list[str], part: str) -> bool:
    """Whether words in a row are a word together, forwards or, if one of them is no word, backwards."""
    wanted = stem(part)
    longest = len(part) + 3  # an ending
    for at in range(len(words) - 1):
        joined = words[at]
        for end in range(at + 1, len(words)):
            joined += words[end]
            if len(joined) > longest:
                break
            pieces = words[at : end + 1]
            if stem(joined) == wanted and not STOP_WORDS.issuperset(pieces):
                return True
            if joined[::-1] == part and not all(len(piece) > 1 and known(piece) for piece in pieces):
                return True
    return False


def _misspelt(word: str, part: str, *, is_target: bool) -> bool:
    """Whether what is no English word is a word backwards, doubled, among other letters or misspelt."""
    if word == part:
        return False
    if word not in STOP_WORDS and not _stems(word).isdisjoint(_stems(part)):  # color and colour, and so "watre"
        return True
    if known(word):
        return False
    return (
        stem(word[::-1]) == stem(part)
        or _single(word) == _single(part)
        or any(word[start::step] == part for step in _STEPS for start in range(step))
        or (is_target and _one_wrong(word, part))
    )


def _stems(word: str) -> set[str]:
    return set(map(stem, spellings(word)))


def _single(word: str) -> str:
    return re.sub(r"(.)\1+", r"\1", word)


def _one_wrong(word: str, part: str) -> bool:
    """Whether a word is a long one with a letter more, less or changed, or one that is not short with two swapped."""
    if abs(len(word) - len(part)) > 1 or len(part) < _SURE:
        return False
    same = next((i for i, (a, b) in enumerate(zip(word, part, strict=False)) if a != b), min(len(word), len(part)))
    a, b = word[same:], part[same:]
    swapped = a[:2] == b[1::-1] and a[2:] == b[2:]
    return swapped or (len(part) >= _MISSPELT and b[1:] in (a, a[1:])) or (len(part) >= _MISSPELT and a[1:] == b)


def _inside(word: str, part: str, *, is_target: bool) -> bool:
    """Whether a longer word holds a word that it is made of."""
    if part not in word or len(word) == len(part) or word in _ACCIDENTS:
        return False
    if known(word):
        return is_target and _is_made_of(word, part)
    if _is_made_of(word, part):
        return True
    if not is_target or any(_apart(word, part)):
        return False
    return len(part) >= _SURE or len(word) <= len(part) + 2


def _is_made_of(word: str, part: str) -> bool:
    """Whether a word is another one, or what stands around that in it is an English word or an ending."""
    if part not in word or word in _ACCIDENTS:
        return False
    listed = known(word)
    bases = list(_bases(word)) if listed else []
    if bases:
        return any(base == part or _is_made_of(base, part) for base in bases)
    one = word.removesuffix("s")
    if part == "ship" and one.endswith("ship"):  # an ending of its own: friendship
        return one in _SHIPS
    for found in re.finditer(f"(?={re.escape(part)})", word):
        before, behind = word[: found.start()], word[found.start() + len(part) :]
        # In the middle of an English word one of three letters is there by chance.
        if listed and len(part) < _SURE and ((before and behind) or (behind in _SUFFIXES and _doubles(part, behind))):
            continue
        if _is_piece(before, _PREFIXES) and _is_piece(behind, _SUFFIXES) and behind not in _NO_PIECES:
            return True
    return False


def _bases(word: str) -> Iterator[str]:
    """Yields the words of which an English word is a form: stab of "stabbed", veracious of "veracity"."""
    for end, added in _FORMS:
        base = word.removesuffix(end)
        if base != word:
            found = (base + letters for letters in added if len(base) >= _FEWEST)
            yield from (each for each in found if known(each) and not (each == base and _doubles(base, end)))
    for end, other in (("ing", "ed"), ("ed", "ing"), ("able", "ing")):  # a letter is doubled, but not in "earring"
        base = word.removesuffix(end)
        if base != word and base[-2:-1] == base[-1:] and known(base + other) and known(base[:-1]):
            yield base[:-1]


def _doubles(word: str, ending: str) -> bool:
    """Whether a word's last letter is doubled before an ending: "cared" is no form of car, for it is no "carred"."""
    return ending[:1] in _VOWELS and re.fullmatch(_DOUBLED, word) is not None


def _is_piece(piece: str, affixes: frozenset[str]) -> bool:
    return not piece or piece in affixes or (len(piece) >= _FEWEST and common(piece))


def _apart(word: str, part: str) -> Iterator[bool]:
    """Yields whether a word is two pieces of which one holds a word by chance: ``stringlike`` and ring."""
    for at in range(1, len(word)):
        pieces = word[:at], word[at:]
        if _is_piece(pieces[0], _PREFIXES) and _is_piece(pieces[1], _SUFFIXES):
            yield any(part in piece and not piece.startswith(part) and not _is_made_of(piece, part) for piece in pieces)
