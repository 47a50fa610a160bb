"""Checks of an answer's form that a program can decide: words, paragraphs, bullets, JSON, capitals, beginnings.

In the manner of IFEval (arXiv 2311.07911, table 1): each check is a sentence that can be asked of a model and a pure
function of the answer. Checks are written in JSON, an object with the check's ``kind`` and its parameters:

    {"kind": "words", "at_least": 20, "at_most": 50}     {"kind": "begins_with", "text": "Dear"}

Departures from IFEval: words are what white space separates (IFEval counts word characters between marks), a sentence
ends with ``.``, ``!``, ``?`` or ``…`` before white space or the end (IFEval asks nltk), letters' case is that of the
letters that have one, and languages are not detected. Every check reads `LONGEST_ANSWER` characters at most, in
linear time; a longer answer fulfils no check.
"""

import dataclasses
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np

from dfc.config.fields import fields_of, range_problems, type_problems
from dfc.config.ranges import Range
from dfc.errors import shown
from dfc.scoring.scorer import LONGEST_ANSWER, Scores, checked_pairs, scores_of

_MOST = 10_000  # of any count that a check may ask for
_DEEPEST = 100  # brackets of a JSON answer within each other: the parser recurses
_Number = Annotated[int, Range(0, _MOST)]


@dataclasses.dataclass(frozen=True)
class Bounded:
    """A check of a number of things.

    Attributes:
      at_least: the smallest number that is right.
      at_most: the largest one; None: any.
    """

    at_least: _Number = 0
    at_most: _Number | None = None

    def holds(self, count: int) -> bool:
        """Returns whether a number is right."""
        return count >= self.at_least and (self.at_most is None or count <= self.at_most)

    def wanted(self) -> str:
        """Returns the numbers as text, such as ``at least 3``."""
        if self.at_most is None:
            return f"at least {self.at_least}"
        return f"exactly {self.at_least}" if self.at_least == self.at_most else f"{self.at_least} to {self.at_most}"


@dataclasses.dataclass(frozen=True)
class Words(Bounded):
    """How many words, separated by white space."""


@dataclasses.dataclass(frozen=True)
class Sentences(Bounded):
    """How many sentences."""


@dataclasses.dataclass(frozen=True)
class Paragraphs(Bounded):
    """How many paragraphs, separated by lines without a sign or by the divider ``***``."""


@dataclasses.dataclass(frozen=True)
class Bullets(Bounded):
    """How many lines that are bullets: ``* `` or ``- `` and text."""


@dataclasses.dataclass(frozen=True)
class Placeholders(Bounded):
    """How many placeholders in square brackets, such as ``[address]``."""


@dataclasses.dataclass(frozen=True)
class Highlights(Bounded):
    """How many parts between stars, ``*so*`` or ``**so**``, on one line."""


@dataclasses.dataclass(frozen=True)
class Capitals(Bounded):
    """How many words all of whose letters (at least two) are capital."""


@dataclasses.dataclass(frozen=True)
class Keyword(Bounded):
    """How often a word or phrase stands in the answer, as whole words, whatever its case."""

    text: str = ""


@dataclasses.dataclass(frozen=True)
class Letter(Bounded):
    """How often a sign stands in the answer, whatever its case."""

    text: str = ""


@dataclasses.dataclass(frozen=True)
class Json:
    """Whether the answer is JSON and nothing else; a code fence around it is allowed."""


@dataclasses.dataclass(frozen=True)
class NoCommas:
    """Whether there is no comma."""


@dataclasses.dataclass(frozen=True)
class LowerCase:
    """Whether there are letters with a case, and all are small."""


@dataclasses.dataclass(frozen=True)
class UpperCase:
    """Whether there are letters with a case, and all are capital."""


@dataclasses.dataclass(frozen=True)
class BeginsWith:
    """Whether the answer begins with a text, white space before it aside."""

    text: str = ""


@dataclasses.dataclass(frozen=True)
class EndsWith:
    """Whether the answer ends with a text, white space behind it aside."""

    text: str = ""


@dataclasses.dataclass(frozen=True)
class Quoted:
    """Whether the whole answer stands in double quotation marks."""


@dataclasses.dataclass(frozen=True)
class Title:
    """Whether a line is a title in double angular brackets, such as ``<<Spring>>``."""


@dataclasses.dataclass(frozen=True)
class Postscript:
    """Whether a line near the end begins a postscript, which `marker` begins."""

    marker: Literal["P.S.", "P.P.S"] = "P.S."


@dataclasses.dataclass(frozen=True)
class TwoAnswers:
    """Whether there are exactly two different answers with ``******`` between them."""


Check = (
    Words | Sentences | Paragraphs | Bullets | Placeholders | Highlights | Capitals | Keyword | Letter | Json | NoCommas
    | LowerCase | UpperCase | BeginsWith | EndsWith | Quoted | Title | Postscript | TwoAnswers
)  # fmt: skip
_CHECKS: tuple[type[Any], ...] = typing.get_args(Check)


def _kind(check: type[Any]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", check.__name__).lower()


KINDS: Mapping[str, type[Any]] = {_kind(check): check for check in _CHECKS}
"""The checks by the names that JSON calls them by."""


# ---- counting --------------------------------------------------------------------------------------------------------

# No expression below can match a part of its text in two ways: none takes more than linear time.
_SENTENCE_END = re.compile(r"(?<![.!?\u2026])[.!?\u2026]++[\"')\]\u201d]*+(?=\s|$)")
_DIVIDER = re.compile(r"\n[ \t]*+(?:\*\*\*)?[ \t]*+(?=\n)")
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]+\]")
_HIGHLIGHT = re.compile(r"\*\*[^*\n]+\*\*|\*[^*\n]+\*")
_FENCE = re.compile(r"```(?:json|JSON|Json)?[ \t]*\n")


def _sentences(text: str) -> int:
    parts = _SENTENCE_END.split(text)
    return sum(any(sign.isalnum() for sign in part) for part in parts)


def _paragraphs(text: str) -> int:
    return sum(bool(part.strip(" \t\n*")) for part in _DIVIDER.split(text))


def _bullets(text: str) -> int:
    lines = (line.strip() for line in text.splitlines())
    return sum(line[:2] in ("* ", "- ") and bool(line[2:].strip()) for line in lines)


def _capitals(text: str) -> int:
    words = ("".join(sign for sign in word if sign.isalpha()) for word in text.split())
    return sum(len(word) > 1 and word.isupper() for word in words)


def _keyword(text: str, keyword: str) -> int:
    pattern = r"\s++".join(map(re.escape, keyword.split()))
    return len(re.findall(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE)) if pattern else 0


def _is_json(text: str) -> bool:
    body = text.strip()
    if (fence := _FENCE.match(body)) is not None and body.endswith("```"):
        body = body[fence.end() : -3].strip()
    depth = deepest = 0
    for sign in body:  # brackets within texts count too: a bound, not a parser
        depth += (sign in "[{") - (sign in "]}")
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:
        return False

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _has_title(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    return any(line.startswith("<<") and line.endswith(">>") and bool(line[2:-2].strip(" <>")) for line in lines)


def _has_postscript(text: str, marker: str) -> bool:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    later = (line for line in lines[1:] if line.upper().startswith(marker))
    return any(line[len(marker) :].strip(" .:") for line in later)


def _two_answers(text: str) -> bool:
    parts = [part.strip() for part in text.split("******")]
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


# Of a text and the check, whose class says what its parameters are.
_COUNTS: Mapping[type[Any], Callable[[str, Any], int]] = {
    Words: lambda text, _: len(text.split()),
    Sentences: lambda text, _: _sentences(text),
    Paragraphs: lambda text, _: _paragraphs(text),
    Bullets: lambda text, _: _bullets(text),
    Placeholders: lambda text, _: len(set(_PLACEHOLDER.findall(text))),
    Highlights: lambda text, _: len(_HIGHLIGHT.findall(text)),
    Capitals: lambda text, _: _capitals(text),
    Keyword: lambda text, check: _keyword(text, check.text),
    Letter: lambda text, check: text.lower().count(check.text.lower()),
}
_FACTS: Mapping[type[Any], Callable[[str, Any], bool]] = {
    Json: lambda text, _: _is_json(text),
    NoCommas: lambda text, _: "," not in text and bool(text.strip()),
    LowerCase: lambda text, _: text.islower(),
    UpperCase: lambda text, _: text.isupper(),
    BeginsWith: lambda text, check: text.lstrip().startswith(check.text),
    EndsWith: lambda text, check: text.rstrip().endswith(check.text),
    Quoted: lambda text, _: len(text.strip()) > 2 and text.strip()[0] == text.strip()[-1] == '"',
    Title: lambda text, _: _has_title(text),
    Postscript: lambda text, check: _has_postscript(text, check.marker),
    TwoAnswers: lambda text, _: _two_answers(text),
}


def fulfils(answer: str, check: Check) -> bool:
    """Returns whether an answer has the form of a check; one of more than `LONGEST_ANSWER` characters fulfils nothing.

    >>> fulfils("One. Two! Three?", Sentences(at_least=3, at_most=3)), fulfils("Yes, sir", NoCommas())
    (True, False)
    """
    if len(answer) > LONGEST_ANSWER:
        return False
    text = answer.replace("\r\n", "\n")
    if isinstance(check, Bounded):
        return check.holds(_COUNTS[type(check)](text, check))
    return _FACTS[type(check)](text, check)


# ---- in JSON, and in words -------------------------------------------------------------------------------------------


def read(data: object) -> Check:
    """Returns the check that an object of JSON means.

    Raises:
      ValueError: no such kind or parameter, or a value out of its range; the nearest fix is named.

    >>> read({"kind": "keyword", "text": "rain", "at_least": 2})
    Keyword(at_least=2, at_most=None, text='rain')
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"a format check must be an object with a kind, got {shown(data)}")  # noqa: TRY004 - input
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"a format check of kind {shown(kind)}: expected one of {', '.join(KINDS)}")
    known = fields_of(KINDS[kind])
    if unknown := [name for name in data if name != "kind" and name not in known]:
        raise ValueError(f"format check {kind}: no parameter {shown(unknown[0])}; it has {', '.join(known) or 'none'}")
    check: Check = KINDS[kind](**{name: value for name, value in data.items() if name != "kind"})
    if found := type_problems(check) or range_problems(check) or _problems(check):
        raise ValueError(f"format check {kind}: {'; '.join(found)}")
    return check


def _problems(check: Check) -> list[str]:
    found = []
    if isinstance(check, Bounded):
        if check.at_most is None and check.at_least == 0:
            found.append("asks for nothing; give at_least or at_most")
        elif check.at_most is not None and check.at_most < check.at_least:
            found.append(f"at_most={check.at_most} is below at_least={check.at_least}")
    if isinstance(check, Keyword | BeginsWith | EndsWith) and not check.text.strip():
        found.append("text is empty")
    if isinstance(check, Letter) and len(check.text) != 1:
        found.append(f"text={check.text!r}: must be one sign")
    return found


def written(check: Check) -> dict[str, Any]:
    """Returns a check as an object of JSON; `read` reads it."""
    return {"kind": _kind(type(check)), **dataclasses.asdict(check)}


def described(check: Check) -> str:
    """Returns the sentence that asks for a form, to be put beside a query."""
    return _ASKED[type(check)].format(check, count=check.wanted() if isinstance(check, Bounded) else "")


_ASKED: Mapping[type[Any], str] = {
    Words: "Answer with {count} words.",
    Sentences: "Answer with {count} sentences.",
    Paragraphs: "Write {count} paragraphs, with an empty line between two of them.",
    Bullets: "Write {count} bullet points, each a line that begins with '* '.",
    Placeholders: "Use {count} different placeholders in square brackets, such as [address].",
    Highlights: "Set {count} parts of your answer between stars, such as *this*.",
    Capitals: "Write {count} words in capital letters.",
    Keyword: "Use the word or phrase {0.text!r} {count} times.",
    Letter: "Use the sign {0.text!r} {count} times.",
    Json: "Answer with JSON and nothing else.",
    NoCommas: "Use no comma.",
    LowerCase: "Write in small letters only.",
    UpperCase: "Write in capital letters only.",
    BeginsWith: "Begin your answer with {0.text!r}.",
    EndsWith: "End your answer with {0.text!r} and write nothing behind it.",
    Quoted: "Put the whole answer in double quotation marks.",
    Title: "Give your answer a title on a line of its own, in double angular brackets, such as <<joy>>.",
    Postscript: "At the end, add a postscript that begins with {0.marker}",
    TwoAnswers: "Give two different answers, with ****** between them.",
}


class Formats:
    """Scores the share of its checks that an answer fulfils; a scorer (`dfc.scoring.scorer.Scorer`).

    `checks` are query -> the checks of its answers; None, or no entry, means those of `everywhere`.
    """

    def __init__(self, checks: Mapping[str, Sequence[Check]], everywhere: Sequence[Check] = ()) -> None:
        self._checks, self._everywhere = dict(checks), tuple(everywhere)

    def __call__(self, queries: Sequence[str], answers: Sequence[str]) -> Scores:
        """Returns shares from 0 to 1; a query without a check cannot be scored."""
        return scores_of(self._score(query, answer) for query, answer in checked_pairs(queries, answers))

    def _score(self, query: str, answer: str) -> tuple[float | None, str]:
        checks = self._checks.get(query, self._everywhere)
        if not checks:
            return None, "no_check"
        share = float(np.mean([fulfils(answer, check) for check in checks]))
        return share, "passed" if share == 1 else "failed"
