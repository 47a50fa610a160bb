"""Reads whom a detective's message accuses; the rules and the script of murder mystery share this one reader.

A pattern cannot know every way to accuse. So it says of every suspect one of three things: accused; named in a
statement that may accuse in words of its own, which the judge decides; or neither, as in a question, an order ("Ask Ann
Lee ..."), a denial, a suspicion ("might be"), or what somebody else says.
"""

import dataclasses
import functools
import re
from collections.abc import Sequence

from dfc.games.folding import fold

_LONGEST = 4000  # characters of a text in which accusations are looked for
_NEARBY = 60  # characters before an accusation that can deny it

# In these patterns a suspect stands as @ and a number, and all blanks are single.
_LIST = "(@[0-9](?:(?:, and |, or |, | and | or | & )@[0-9]){0,9})(?!'s)"
_CRIME = "(?:murder|killing|crime|deed|death|homicide|poisoning|stabbing|strangling|shooting)"
_ROLE = "(?:(?:murderer|murderess|killer|culprit|perpetrator|poisoner|assassin)s?|guilty (?:party|person|one))(?!'s)"
_MODAL = "(?:might|may|could|must|can only|could only|has to|have to|had to|seems to|appears to)"
_IS = rf"(?:is|are|was|were|{_MODAL} (?:be|have been)|turns out to be|proves to be)"
_SURE = r"(?:(?:\w+ly|indeed|thus|also|now|hereby|not|never) ){0,2}"
_WHOM = r"(?:none other than )?(?:(?:the|his|her|their|our) (?:\w+,? ){1,2}?|(?:mr|mrs|ms|dr|miss|captain|professor) )?"
_END = r"(?=[.!;:,)]|$| (?:because|since|as|for|with|in|at|on|by|who|and|when|while|after|using|from|to|all|alone)\b)"
_STOP = r"(?:,? (?:all along|alone|after all|of course|then|the \w+))?(?=[.!;)]|$|,? (?:because|since|as|for)\b)"
_PERSON = (
    r"(?:victim|boy|girl|husband|wife|brother|sister|uncle|aunt|father|mother|niece|nephew|cousin|son|daughter|friend"
    r"|partner|rival|boss|host|hostess|captain|professor|doctor|teacher|owner|merchant|farmer|banker|baker|explorer"
    r"|singer|actor|actress|painter|poet|inventor|editor|trainer|driver|dancer|officer|guard|manager|director|sculptor"
    r"|collector|auctioneer|miller|tailor|soprano|heiress|\w*(?:man|woman|maker|keeper|grower|seller|master|dealer|ist))"
)
# "Ann killed time" accuses nobody: who was killed must be a person, or stay unsaid.
_VICTIM = (
    r"(?:(?=[.!;:,)]|$)| (?:him|them)\b"
    r"| her(?=[.!;:,)]|$| (?:with|by|in|at|on|to|because|when|while|for|since|and|as|after|during|using|out|from)\b)"
    rf"| (?:(?:the|our|that|this|his|her|their|poor|old) ){{0,2}}(?:{_PERSON}\b|(?-i:[A-Z]\w*|@[0-9])))"
)
_LOWER_VICTIM = rf"(?:{_VICTIM}| (?!time\b|the\b|an?\b)\w+(?=[.!;:,)]|$))"  # where names have no capital letters
_KILLED = (
    r"(?:killed|murdered|poisoned|stabbed|strangled|throttled|choked|shot|smothered|suffocated|drowned|bludgeoned"
    r"|electrocuted|hanged|assassinated|slew)"
)
_FOR_IT = rf"(?: for (?:it|this|that|everything|(?:the|this|that|his|her|\w+'s) (?:\w+ )?{_CRIME})\b|(?=[.!;,)]|$))"
_TO_BLAME = rf"(?:(?:responsible|to blame){_FOR_IT}|behind (?:it|this|(?:the|this|his|her|\w+'s) (?:\w+ )?{_CRIME})\b)"
_GUILTY = rf"guilty\b(?! (?:party|person|one)\b)(?! of (?!(?:the |this |his |her |\w+'s )?(?:it\b|{_CRIME}|killing)))"
_ONE = "(?:one|person|man|woman|suspect|individual)"
_LINK = (
    r"(?:(?:who|that|you|has|have|had|must|might|may|could|alone|also|then|both|together|himself|herself|\w+ly) ){0,4}"
)
_ACCUSE = "(?:accuse|accusing|arrest|arresting|charge|charging|blame|blaming|denounce)"
_ANSWER = "(?:accusation|verdict|conclusion|answer|solution)"
_CUSTODY = "(?:under arrest|arrested|charged|taken into custody|convicted)"
_IS_THE = rf"{_IS},? {_SURE}(?:(?:the|a|an|our|your|his|her) (?:\w+ ){{0,2}}?)?"


def _patterns(victim: str) -> tuple[re.Pattern[str], ...]:
    did = (
        rf"(?:(?:did|done) (?:it|this|that|the deed)\b|{_KILLED}{victim}"
        rf"|committed (?:it\b|(?:the|this|that) (?:\w+ )?(?:{_CRIME}|act)\b))"
    )
    who = rf"(?:the {_ONE} (?:who {_LINK}{did}|{_TO_BLAME}|responsible|to blame|guilty)|who(?:ever)? {_LINK}{did})"
    named_as = rf"(?:as |to be |is )?(?:the |our )?(?:\w+ )?(?:{_ROLE}|{_ONE}\b|{_GUILTY}|responsible\b)"
    forms = (
        rf"\bit(?:'s| {_IS}) {_SURE}{_WHOM}{_LIST}{_STOP}",  # the first: see `told`
        rf"(?:^|[,:;] )(?:so |then )?(?:must be|has to be) {_WHOM}{_LIST}{_STOP}",
        rf"\b{_ACCUSE}:? (?:\w+ ){{0,2}}?{_LIST}",
        rf"\b(?:name|identify|declare|pronounce|find|hold) {_LIST} {named_as}",
        rf"\b{_ANSWER}(?: is)?:? (?:is |that |against )?(?:it (?:was|is) )?{_WHOM}{_LIST}{_STOP}",
        rf"\b(?:{_ROLE}|{_ONE} responsible|guilty): ?(?:it (?:was|is) )?{_WHOM}{_LIST}{_END}",
        rf"\bpoint(?:ing)? (?:the|my|an|a) (?:\w+ )?finger (?:\w+ly )?(?:at|to|towards?) {_WHOM}{_LIST}",
        rf"{_LIST},? (?:you are|you're|is|are|(?:shall|should|must|will) be) (?:hereby |now )?{_CUSTODY}\b",
        rf"\bunder arrest,? {_WHOM}{_LIST}",
        rf"\b(?:put|putting|place|placing|take|taking|have) {_LIST} (?:under arrest|arrested|in(?:to)? custody)\b",
        rf"{_LIST}(?:,? you)?,? {_IS_THE}(?:{_ROLE}|{_GUILTY})",
        rf"{_LIST}(?:,|:| -)? (?:the (?:\w+ )?{_ROLE}|guilty)(?=[.!;]|$)",
        rf"{_LIST}(?:,? you)?,? {_IS} {_SURE}(?:(?:the|our) (?:\w+ )?{_ONE} )?(?:{_TO_BLAME}|who {_LINK}{did})",
        rf"{_LIST},? {_LINK}{did}",
        rf"\b(?:{_KILLED}|committed|done) by {_WHOM}{_LIST}{_END}",
        rf"\b{_ROLE}(?: (?:of|behind)(?: [\w']+){{1,3}}?)? {_IS},? {_SURE}{_WHOM}{_LIST}",
        rf"\b{who}(?: \w+){{0,2}}? ?(?:{_IS}|:) ?{_WHOM}{_LIST}{_END}",
    )
    return tuple(re.compile(form, re.IGNORECASE | re.ASCII) for form in forms)


_ACCUSATIONS, _LOWER_ACCUSATIONS = _patterns(_VICTIM), _patterns(_LOWER_VICTIM)
_DENIAL = re.compile(
    r"\b(?:not|never|no|cannot|without|before|nobody|neither|nor|hardly|doubt|unlikely|\w+n't"
    r"|might|may|maybe|perhaps|possibly|probably|could(?! only)|seems|appears|likely|alleged|supposed|presumed|either"
    r"|thought|believed|assumed|suspected|(?:i|we) suspect|ready to|whether|unless)\b| or @",
    re.IGNORECASE | re.ASCII,
)
# "I accuse everyone except Ann": between the accusing words and the name only ("I was unsure, but I accuse Ann").
_EXCEPTION = re.compile(r"\b(?:except|excepting|excluding|but|besides)\b", re.IGNORECASE | re.ASCII)
_REPORT = re.compile(
    r"\b(?:if|whether|says|said|told|claims|thinks|believes|insists|swears|alleges|suppose|imagine|wonder|unless)\b",
    re.IGNORECASE | re.ASCII,
)
_ORDER = re.compile(
    r"(?:(?:first|next|now|then|please|okay|ok|well|so|and|action:|to|let's|let (?:us|me)|(?:i|we)(?:'ll|'d)?|will"
    r"|would|shall|must|should|can|like to|want to|need to|going to|am|are|my next (?:action|step) is to),? ){0,6}"
    r"(?:ask|question|interview|interrogate|confront|talk|speak|show|search|inspect|examine|investigate|look|check|verify"
    r"|visit|go|find out|follow|compare|watch|observe|listen|read|study|collect|test|analy[sz]e|review|consider"
    r"|request|wait|(?:tell|inform|warn)(?! (?:\w+ ){0,2}(?:police|inspector|authorities|sheriff|court|jury)\b))\b",
    re.IGNORECASE | re.ASCII,
)
_TITLE = re.compile(r"\b(mr|mrs|ms|dr)\.", re.IGNORECASE | re.ASCII)
_CERTAIN = re.compile(  # no denials
    r"\b(?:(?:there is |there's )?no (?:doubt|question)(?: (?:about it|that))?|without (?:a |any )?doubt"
    r"|beyond (?:a |any |all )?(?:reasonable |shadow of a )?doubt),? ?"
    r"|(?<=@[0-9]) and (?:nobody|no one) else\b|\bnot @[0-9],? but (?=@)",
    re.IGNORECASE | re.ASCII,
)
_ASKED_AND_ANSWERED = re.compile(
    rf"\b(?:(?:the )?{_ROLE}|who (?:did it|did this|{_KILLED} (?:\w+ )?\w+)|whodunn?it)\? {_LIST}(?=[.!;]|$)",
    re.IGNORECASE | re.ASCII,
)
_ONLY = re.compile(
    r"\bonly (@[0-9]|(?:one|person|man|woman|suspect) (?:who|that)) could (?=have\b)", re.IGNORECASE | re.ASCII
)
_FACED = re.compile(r"\b(?:confront|tell|face) (@[0-9])(?: \w+)?[:,] (?=you\b)", re.IGNORECASE | re.ASCII)
_HIM = re.compile(  # "Ann lied. I accuse her.", "Ann lied, so she is the killer."
    r"@([0-9])([^@]{0,80}\b(?:accuse|arrest|charge|blame) |[^@.!?]{1,80}, (?:so|and|hence|thus|therefore) )"
    r"(?:him|her|them|he|she|they)\b",
    re.IGNORECASE | re.ASCII,
)
_PRONOUN = re.compile(r"(?:(?:and|so|thus|therefore),? )?(?:she|he|they)\b(?:'s\b)?", re.IGNORECASE | re.ASCII)
_ORDER_ENDS = re.compile(r",? (?:and|then|and then) (?=(?:i )?(?:\w+ )?(?:accuse|arrest)\b)", re.IGNORECASE | re.ASCII)
_JOINED = re.compile("@[0-9](?:(?:, and |, or |, | and | or | & )@[0-9]){1,9}")
_MENTION = re.compile("@([0-9])(?!'s)")
_SENTENCES = re.compile(r"(?<=[.!?;])\)? ")


@dataclasses.dataclass(frozen=True)
class AccusationReading:
    """What a message says of the suspects.

    Attributes:
      accused: whom it accuses.
      named: who stands in a statement that may accuse them in unforeseen words, alone (not "Ann or Bo").
      states: whether it states anything at all: not questions and orders only.
    """

    accused: frozenset[str]
    named: frozenset[str]
    states: bool


def accused(text: str, suspects: Sequence[str]) -> frozenset[str]:
    """Returns the suspects whom a text accuses.

    "I accuse Ann Lee", "arrest Ann", "it was Ann.", "Final answer: Ann", "Ann is the murderer", "the one who did it is
    Ann Lee", "Ann and Bo did it", "Ann poisoned him", "he was killed by Ann", "Ann, you are under arrest". Questions,
    orders ("Tell Bo that Ann did it"), denials ("Ann is not the killer"), suspicions ("Ann might be", "Ann or Bo"),
    exceptions ("everyone but Ann"), conditions, and what somebody else is asked or says are no accusations. A suspect
    is named in full, or by a part of the name that no other suspect has, with its capital letters unless the text has
    none at all; the text is folded (`dfc.games.folding.fold`). The first 4000 characters are read; the time is
    linear in their number.

    >>> sorted(accused("Bo has an alibi, so Ann is the culprit.", ("Ann Lee", "Bo Lee")))
    ['Ann Lee']
    """
    return read(text, suspects).accused


def told(text: str, suspects: Sequence[str]) -> frozenset[str]:
    """Returns whom an answer to a question says to be the culprit: "It was Ann." may answer who left the room."""
    return _read(fold(text[:_LONGEST]), tuple(suspects[:10]), answer=True).accused


def read(text: str, suspects: Sequence[str]) -> AccusationReading:
    """Returns what a text says of the suspects; see `accused` and `AccusationReading`."""
    return _read(fold(text[:_LONGEST]), tuple(suspects[:10]), answer=False)


@functools.lru_cache(maxsize=1024)  # rules and script read the same messages
def _read(text: str, names: tuple[str, ...], *, answer: bool) -> AccusationReading:
    patterns = (_LOWER_ACCUSATIONS if text == text.lower() else _ACCUSATIONS)[1 if answer else 0 :]
    blamed: set[str] = set()
    denied: set[str] = set()
    stated: set[str] = set()
    states = False
    for sentence, whole in _statements(_prepared(text, names)):
        states = True
        stated.update(_MENTION.findall(_JOINED.sub(" ", sentence)) if whole else ())
        for pattern in patterns:
            for match in pattern.finditer(sentence):
                before = sentence[max(match.start() - _NEARBY, 0) : match.start()]
                nearby = " ".join(before.rpartition(",")[2].split()[-4:])
                refuted = _DENIAL.search(f"{nearby} {match[0]}") or _EXCEPTION.search(match[0])
                (denied if refuted else blamed).update(re.findall("@([0-9])", match[1]))
    return AccusationReading(
        accused=frozenset(names[int(digit)] for digit in blamed),
        named=frozenset(names[int(digit)] for digit in stated - denied),
        states=states,
    )


def _prepared(text: str, names: tuple[str, ...]) -> str:
    """Returns the text on one line, without formatting, with suspects as @ and their number."""
    text = text.replace("@", " ").replace("\u2019", "'").replace("\u2014", ", ").replace("\u2013", ", ")
    text = re.sub('</?[a-z]{1,10}>|[*_`#"\u201c\u201d]', " ", text, flags=re.IGNORECASE)
    text = re.sub(" (?=[.,:;!?])", "", " ".join(text.split()))
    if names:
        text = _marked(_TITLE.sub(r"\1", text), names)
    text = re.sub("(@[0-9])'s (?=(?:the|our|a|clearly|definitely|guilty)\\b)", r"\1 is ", text)
    text = _HIM.sub(r"@\1\2@\1", _FACED.sub(r"\1, ", _ONLY.sub(r"\1 ", text)))
    return _ASKED_AND_ANSWERED.sub(r"culprit: \1", _CERTAIN.sub("", text))


def _statements(text: str) -> list[tuple[str, bool]]:
    """Returns what a prepared text states: parts of sentences, each with whether it may accuse in unforeseen words."""
    found: list[tuple[str, bool]] = []
    last: set[str] = set()  # suspects of the sentence before, whom "She is the killer." may mean
    for sentence in _SENTENCES.split(text):
        said = sentence
        if len(last) == 1 and _PRONOUN.match(sentence):
            said = _PRONOUN.sub(f"@{next(iter(last))}", sentence, count=1)
        last = set(re.findall("@([0-9])", said)) or last
        if said.endswith("?"):
            continue
        if _ORDER.match(said):
            accusing = _ORDER_ENDS.split(said, maxsplit=1)[1:]  # "Ask Bo, then accuse Ann."
            found += [(part, False) for part in accusing]
            continue
        report = _REPORT.search(said)
        if report is None:
            found.append((said, True))
        elif said[: report.start()].strip():  # after it stand others' words and conditions
            found.append((said[: report.start()], False))
    return found


def _marked(text: str, suspects: tuple[str, ...]) -> str:
    """Returns the text with each mention of a suspect replaced by @ and the suspect's number, e.g. ``@0``."""
    full, parts = _mentions(suspects)
    by_name = {spelling.lower(): i for spelling, i in full.items()}
    text = _any_of(tuple(full), folded=True).sub(lambda m: f"@{by_name[m[0].lower()]}", text)
    if not parts:
        return text
    folded = {part.lower(): i for part, i in parts.items()}
    # "Best" is a name and "best" is not, unless the writer uses no capitals.
    return _any_of(tuple(parts), folded=text == text.lower()).sub(lambda m: f"@{folded[m[0].lower()]}", text)


@functools.cache
def _mentions(suspects: tuple[str, ...]) -> tuple[dict[str, int], dict[str, int]]:
    """Returns full names and those parts of names that belong to one suspect, with the suspects' numbers."""
    parts = [part for name in suspects for part in name.split()]
    single = {part: i for i, name in enumerate(suspects) for part in name.split() if parts.count(part) == 1}
    return {name: i for i, name in enumerate(suspects)}, single


@functools.cache
def _any_of(spellings: tuple[str, ...], *, folded: bool) -> re.Pattern[str]:
    longest_first = sorted(spellings, key=len, reverse=True)
    return re.compile(
        rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.ASCII | (re.IGNORECASE if folded else 0)
    )
