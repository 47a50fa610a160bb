"""Reads which properties a question of Twenty Questions asks for; what it does not read whole, it does not read.

A question is taken apart into a frame ("is it", "do people", "can you") and what is asked. Of that every word must
belong to a phrase of a property (`dfc.games.paprika.properties`), to a word that changes nothing ("usually"), or to
"and", "or", "not". One word more, and there is no reading: a phrase inside of other words may mean anything ("bigger
than a car", "eaten by animals", "a tiger shark").
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence

from dfc.games.paprika.properties import Property, properties
from dfc.games.paprika.twenty_questions import Topic
from dfc.games.paprika.world import fold, words_of

_LONGEST = 300  # characters of a question that is read
_NOUNS = (
    "thing topic item object place person individual human animal creature plant food dish job profession occupation "
    "sport activity event vehicle tool building structure concept landmark location figure character part instrument "
    "body part|musical instrument|famous person|historical event|scientific concept|answer word subject mystery secret "
    "piece of clothing|article of clothing|type of clothing|clothing item|garment|mystery item|secret topic|secret word"
)
_KIND = "|".join(sorted({n for part in _NOUNS.split("|") for n in [part, *part.split()]} - {"of"}, key=len)[::-1])
_AUX = "is|are|was|were|am|do|does|did|can|could|would|will|may|might|must|has|have|had|should"
_PRONOUN = (
    rf"it|he|she|(?:this|that|these|those|the|your|his|her) (?:{_KIND})s?(?= \w)|they|this one|that one|this|that|these"
    r"|those"
)
_SOMEBODY = "you|i|we|one|people|humans|human beings|someone|somebody|anyone|most people|a person|a human"
_ABOUT_IT = re.compile(rf"(?:(?:{_AUX}) (?:{_PRONOUN})|(?:{_PRONOUN}) (?:{_AUX}))(?= )")
_ABOUT_YOU = re.compile(rf"(?:(?:{_AUX}) (?:{_SOMEBODY})|(?:{_SOMEBODY}) (?:can|could|would|usually))(?= )")
_BARE = re.compile(rf"(?:{_AUX})(?= )")
_LEADS = re.compile(
    r"^(?:(?:ok|okay|so|well|hmm+|first|next|now|then|also|and|alright|all right|yes or no|please|great|got it|question"
    r"(?: \d+)?|my (?:next |first )?question is|let s see|let me ask(?: you)?|in general|generally speaking"
    r"|(?:can|could) you tell me (?:if|whether)|tell me (?:if|whether)|i (?:wonder|want to know|would like to know)"
    r" (?:if|whether)|would you say(?: that)?|do you think(?: that)?|is it true that|is it correct that"
    r"|would you (?:consider|call|classify|describe) it(?: as)?)(?: ,)? )+(?=[a-z])"
)
_TAILS = re.compile(
    r"(?: yes or no| or not| by any chance| right| correct| at all| in general| in everyday life| in any way"
    r"| or something| or similar| or something (?:similar|like that)| to (?:play|do|use|wear|eat) it)+$"
)
_HEDGES = re.compile(
    r"\b(?:really|actually|usually|typically|generally|commonly|often|normally|mostly|mainly|primarily|frequently"
    r"|currently|widely|ever|sometimes|specifically|physically|naturally(?= (?:found|considered))|traditionally|also"
    r"|just|simply|probably|basically|either"
    r"|(?:considered|classified|categori[sz]ed|regarded|thought of|described|known)(?: (?:to be|as(?: being)?))?"
    r"(?! for)"
    r"|(?:a |an )?(?:type|kind|sort|form|example|piece|variety|category|species|breed|item|article)s? of(?! \w+ing\b))"
    r"(?= |$)"
)
_REWRITTEN = tuple(
    (re.compile(rf"\b(?:{pattern})(?= |$)"), instead)
    for pattern, instead in (
        (
            (
                r"(?:strongly |closely )?(?:related (?:to|with)|associated with|linked (?:with|to)"
                r"|connected (?:with|to)|(?:have |has |had )?(?:something |anything )?to do with|involve[sd]?|involving"
                r"|concerned with|(?:in|part of|from) the (?:field|area|realm|world) of|deals? with|about)"
            ),
            "linked with",
        ),
        (r"takes? place|took place|occur(?:s|red)?|happen(?:s|ed)?|(?:is |was )?fought", "happen"),
        (
            r"come(?:s)? from|came from|originat(?:e|es|ed) (?:from|in)|originally from|(?:grew up|born|raised) in",
            "from",
        ),
        (r"(?:located|situated|found|based|set|placed|kept|present|seen|visible)(?= (?:in|on|near|at|inside) )", ""),
        (r"made (?:out of|from|up of|mostly of|mainly of)|composed of|consist(?:s|ing)? of", "made of"),
        (r"(?:find|see|have|keep) (?:it|this|one|them)(?= (?:in|on|at|inside|around) )", ""),
        (r"(?:larger|greater|taller|heavier in size) than", "bigger than"),
        (r"(?:the )?(?:united states of america|u s a|u s|usa|us|united states)", "united states"),
        (r"(?:the )?(?:u k|united kingdom)", "uk"),
        (r"(?:some|any)thing|thing|things", ""),
        (r"colours?|colors?", "color"),
        (r"20th century|twentieth century|1900s", "20th century"),
        (r"human beings?", "human"),
        (r"equipped with|with", "have"),
        (r"uses? (?:it|this|them)|using|used|uses", "use"),
        (r"(?<=use )(?:it|this|them|when|while|as)(?= \w+ing\b)", "for"),
    )
)
_FORMS = {
    **dict.fromkeys(("has", "had", "having", "have got"), "have"),
    **dict.fromkeys(("people", "humans", "folks", "i", "we", "everyone", "kids"), "you"),
    **dict.fromkeys(("lived", "lives", "living in"), "live"),
    **dict.fromkeys(("wears", "wearing", "wore"), "wear"),
    **dict.fromkeys(("flies", "flew", "flying"), "fly"),
    **dict.fromkeys(("goes", "went"), "go"),
    **dict.fromkeys(("eats", "eating"), "eat"),
    "kitchens": "kitchen",
    "won": "win",
    "received": "receive",
    "wrote": "write",
    "invented": "invent",
    "composed": "compose",
    "buildings": "building",
    "carries": "carry",
    "died": "die",
}
_DROPPED = frozenset(
    words_of(
        "a an the some any it its them him her his their your our my is are was were be been being can could would "
        "does did will ever one"
    )
)
_AND = frozenset(("and", "that", "which", "who", "but", ","))
_CLOSER = ("you", "use", "made", "live", "have", "worn", "for", "in", "by", "from", "eat", "played", "linked")


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a question asks: whether all of this is true, or in one of these ways.

    Attributes:
      ways: of each, properties with whether they are denied; one way is enough.
    """

    ways: tuple[tuple[tuple[Property, bool], ...], ...]

    def of(self, topic: Topic) -> bool | None:
        """Returns whether it is true of a topic; None if that is unsure."""
        found = [_all([_denied(each.of(topic), denied) for each, denied in way]) for way in self.ways]
        denied = _all([_denied(way, denied=True) for way in found])  # none of the ways
        return _denied(denied, denied=True)


def _all(said: Sequence[bool | None]) -> bool | None:
    return False if False in said else None if None in said else True


def _denied(said: bool | None, denied: bool) -> bool | None:
    return said if said is None else said != denied


@functools.lru_cache(maxsize=4096)
def read_question(text: str) -> Reading | None:
    """Returns what a question asks, or None if not all of its words are understood.

    "Isn't it big?" asks whether it is big; in "an animal that is not big" the part behind "that" is denied. "A or b" is
    true of what is a, or b, or both.

    >>> read_question("Is it usually found in the kitchen?") == read_question("Would I find it in a kitchen?") != None
    True
    >>> read_question("Is it bigger than a whale?"), read_question("What is it?")
    (None, None)
    """
    asked = _asked(text)
    if asked is None:
        return None
    ways = _either(asked)
    return None if ways is None else Reading(tuple(tuple(way) for way in ways))


def _asked(text: str) -> list[str] | None:
    """Returns the words of what is asked, behind its frame; None if it is no single question."""
    if len(text) > _LONGEST:
        return None
    said = fold(text.replace("\u2019", "'")).strip()
    said = re.sub(r"^(?:yes or no|question(?: \d+)?|next|ok(?:ay)?|so|hmm+|well)[:.!]\s", "", said)
    sentences = [part for part in re.split(r"[.?!;]+(?:\s|$)", said) if part.strip()]
    if len(sentences) != 1:
        return None
    said = re.sub(r"^([a-z]{2,6})n't ", r"\1 ", sentences[0]).replace("n't", " not")
    said = re.sub(r"\b(it|that|this|he|she)'s\b", r"\1 is", said).replace("they're", "they are")
    said = " ".join(re.findall(r"[^\W_]+|,", said.replace("'s", "")))
    said = _TAILS.sub("", _LEADS.sub("", said.replace(", or ", " or ").replace(", and ", " and "))).removesuffix(" ,")
    said = _LEADS.sub("", said.lstrip(", "))
    return _plain(_framed(said)) if said else None


def _framed(said: str) -> str:
    """Returns a clause without its frame; what somebody does with the thing keeps "you" in front."""
    said = _HEDGES.sub("", said)
    said = re.sub(" +", " ", said).strip()
    about = _ABOUT_YOU.match(said)
    if about:
        return re.sub(rf" (?:this|that|these|the) (?:{_KIND})s?$", "", f"you {said[about.end() :].strip()}")
    about = _ABOUT_IT.match(said) or _BARE.match(said)
    return (said[about.end() :] if about else said).strip().removeprefix("there ")


def _plain(said: str) -> list[str]:
    """Returns the words of a clause in the form in which phrases are compared."""
    for pattern, instead in _REWRITTEN:
        said = pattern.sub(instead, said)
    said = re.sub(r"\byou (?=use\b|in\b|on\b|at\b|inside\b|around\b)", "", re.sub(" +", " ", said).strip())
    words = [word for word in map(_form, said.split()) if word not in _DROPPED or word == ","]
    purpose = words[:1] == ["use"] and words[1:2] in (["to"], ["for"])
    if purpose and len(words) > 2:
        words[1:3] = ["for", _stem(words[2])]
    return [word for word in words if word != "to"]


def _form(word: str) -> str:
    if word in _FORMS:
        return _FORMS[word]
    if len(word) <= 3 or word.endswith(("ss", "us", "is")) or not word.endswith("s"):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > 4 else word[:-1]


def _stem(word: str) -> str:
    """Returns a verb without "ing": "used to write" and "used for writing" are one."""
    word = re.sub(r"(?<=\w\w)ing$", "", word)
    return re.sub(r"(\w)\1$", r"\1", word).rstrip("e")


_Ways = list[list[tuple[Property, bool]]]


@functools.cache
def _phrases() -> tuple[dict[tuple[str, ...], Property], frozenset[tuple[str, ...]]]:
    """Returns the properties by the words of their phrases, and which of these are nouns."""
    table: dict[tuple[str, ...], Property] = {}
    nouns = set()
    for each in properties().found:
        for phrase in each.phrases:
            words = tuple(_plain(_HEDGES.sub("", phrase.replace("-", " "))))
            table.setdefault(words, each)
            if phrase.startswith(("a ", "an ")):
                nouns.add(words)
    return table, frozenset(nouns)


def _either(words: list[str]) -> _Ways | None:
    """Reads words with "or" between them."""
    whole = _part(words)
    if whole is not None:
        return [whole]
    parts = list(_split(words, {"or"} | ({","} if "or" in words else set())))
    ways: _Ways = []
    for number, part in enumerate(parts):
        read = _every(part)
        for length in range(len(parts[0]) - 1, 0, -1) if number and read is None else ():
            read = _every([*parts[0][:length], *part])  # "in Africa or Asia": the first part's beginning serves both
            if read is not None:
                break
        if read is None:
            return None
        ways.append(read)
    return ways or None


def _every(words: list[str]) -> list[tuple[Property, bool]] | None:
    """Reads words with "and" or "that" between them, all of which must be true."""
    found: list[tuple[Property, bool]] = []
    whole = _part(words)
    if whole is not None:
        return whole
    for number, part in enumerate(_split(words, _AND)):
        denied = part[:1] == ["not"] and (bool(number) or words[0] in _AND)  # "something that is not big"
        read = _part(part[1:] if denied else part)
        if read is None or (denied and len(read) > 1):
            return None
        found += [(each, denied) for each, _ in read]
    return found or None


def _split(words: list[str], between: frozenset[str] | set[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in [*words, next(iter(between))]:
        if word not in between:
            part.append(word)
        elif part:
            yield part
            part = []


def _part(words: list[str]) -> list[tuple[Property, bool]] | None:
    """Reads words without "and" and "or": a phrase, with adjectives before it or a clause behind it."""
    table, nouns = _phrases()
    words = words[:-1] if words[-1:] == ["animal"] and len(words) > 1 and words[-2] == "of" else words
    found = table.get(tuple(words))
    if found is not None:
        return [(found, False)]
    first = words[0] if words else ""
    if first in properties().adjectives and (first,) in table and len(words) > 1:
        behind = _part(words[1:])
        if behind is not None and tuple(words[1:]) in nouns:
            return [(table[(first,)], False), *behind]
    for at in range(1, len(words)):
        if words[at] in _CLOSER and tuple(words[:at]) in nouns:
            behind = _part(words[at:])
            if behind is not None:
                return [(table[tuple(words[:at])], False), *behind]
    return None
