"""Murder mystery: investigate a death among invented people and accuse the culprit.

Source: Paprika, section 3.1 and appendix B.4.4.
"""

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Unpack

from dfc.games.chance import Chance
from dfc.games.game import Common, Outcome
from dfc.games.paprika.case import Case
from dfc.games.paprika.scenario import Scenario
from dfc.games.paprika.world import AGENT, GOAL, JUDGE, NOT_VALID, VALID, WORLD

_OPEN_ACTIONS = (  # for scenarios of other sources, whose people and places are not known
    "Inspect the body.",
    "Inspect the scene of the crime.",
    "Ask every suspect where they were.",
    "Ask the witnesses what they saw.",
    "Check the alibis.",
    "Look for the weapon.",
    "Ask who had a motive.",
)
_LONGEST = 4000  # characters of a text in which accusations are looked for
_NEARBY = 60  # characters before an accusation that can deny it
_FILE = pathlib.Path(__file__).parent / "data" / "mysteries.json"


@dataclasses.dataclass(frozen=True)
class Clue:
    """What an investigator is told at one place.

    Attributes:
      action: the sentence of `MurderMystery.legal_actions` that asks for it.
      kind: ``says`` for a suspect's own words, ``alibi`` for what became of checking them, ``thing`` for the rest.
      subject: the suspect's name, or the thing or place.
      words: other words by which a thing is recognised.
      text: what the investigator is told.
      against: the suspect it points to, or empty.
      clears: the suspect it clears, or empty.
    """

    action: str
    kind: Literal["says", "alibi", "thing"]
    subject: str
    words: tuple[str, ...]
    text: str
    against: str = ""
    clears: str = ""


def accusation(suspect: str) -> str:
    """Returns how the listed actions accuse a suspect.

    >>> accusation("Ann Lee")
    'Accuse Ann Lee.'
    """
    return f"Accuse {suspect}."


@functools.cache
def _scenarios(split: str) -> tuple[Scenario, ...]:
    data = json.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(map(_scenario, data[split]))


def _scenario(mystery: Mapping[str, Any]) -> Scenario:
    culprit = mystery["culprit"]
    people = mystery["people"]
    clues = [
        Clue(f"Question {name}.", "says", name, (), f'{name} says: "{said}"') for name, (said, _, _) in people.items()
    ]
    for name, (_, alibi, mark) in people.items():
        clues.append(Clue(f"Check the alibi of {name}.", "alibi", name, (), alibi, **_meaning(mark, culprit)))
    for thing, words, text, mark in mystery["things"]:
        clues.append(
            Clue(f"Inspect the {thing}.", "thing", thing, tuple(words.split()), text, **_meaning(mark, culprit))
        )
    return Scenario(
        name=mystery["name"],
        briefing=mystery["briefing"],
        truth=f"{mystery['truth']} The culprit: {culprit}.",
        group=f"{len(people)} suspects",
        facts={"culprit": culprit, "suspects": tuple(people), "clues": tuple(clues)},
    )


def _meaning(mark: str, culprit: str) -> dict[str, str]:
    if mark == "+":
        return {"against": culprit}
    return {"clears": mark[1:]} if mark else {}


# ---- reading an accusation ------------------------------------------------------------------------------------------

# In these patterns a suspect stands as @ and a number, and all blanks are single.
_LIST = "(@[0-9](?:(?:, and |, or |, | and | or )@[0-9]){0,9})(?!'s)"
_ROLE = "(?:(?:murderer|killer|culprit|perpetrator)s?|guilty (?:party|person|one))"
_IS = "(?:is|are|was|were|must be|has to be|must have been)"
_SUFFERS = "(?:is|are|was|were|be|been|being|got)"  # "Ann was killed" accuses nobody
_ACCUSATIONS = tuple(
    re.compile(pattern, re.IGNORECASE | re.ASCII)
    for pattern in (
        rf"\b(?:accuse|accusing|arrest|arresting|charge|charging|blame):? (?:\w+ ){{0,2}}?{_LIST}",
        rf"{_LIST},? (?:{_IS} )?(?:\w+ ){{0,3}}?(?:{_ROLE}|guilty)\b",
        rf"{_LIST},? (?:(?!{_SUFFERS}\b)\w+ ){{0,2}}?(?:did it|did this|killed|murdered|committed)\b",
        rf"\b(?:killed|murdered|committed) by (?:\w+ ){{0,2}}?{_LIST}",
        rf"\b{_ROLE} {_IS} (?:\w+ ){{0,2}}?{_LIST}",
    )
)
_DENIAL = re.compile(
    r"\b(?:not|never|no|cannot|without|before|nobody|neither|hardly|doubt|unlikely|\w+n't)\b", re.IGNORECASE | re.ASCII
)
# "I accuse everyone except Ann": between the accusing words and the name only ("I was unsure, but I accuse Ann").
_EXCEPTION = re.compile(r"\b(?:except|excepting|excluding|but|besides)\b", re.IGNORECASE | re.ASCII)
_REPORT = re.compile(
    r"^(?:ask|question|interview|tell me|suppose)\b|\b(?:if|whether|says|said|claims|thinks)\b",
    re.IGNORECASE | re.ASCII,
)
_PLAIN = re.compile(r"(?:^|[.!,;:] )(?:i (?:(?!cannot|never)\w+ )?)?accuse\b", re.IGNORECASE | re.ASCII)
_TITLE = re.compile(r"\b(mr|mrs|ms|dr)\.", re.IGNORECASE | re.ASCII)
_END = re.compile(r"(?<=[.!?;]) ")


def accused(text: str, suspects: Sequence[str]) -> frozenset[str]:
    """Returns the suspects whom a text accuses.

    "I accuse Ann Lee", "arrest Ann", "Ann is the murderer", "the culprit is Ann Lee", "Ann and Bo did it", "he was
    killed by Ann". Questions, denials ("Ann is not the killer"), exceptions ("everyone but Ann"), conditions, and what
    somebody else is asked or says are no accusations. A suspect is named in full, or by a part of the name that no
    other suspect has, with its capital letters unless the text has none at all. The first 4000 characters are read; the
    time is linear in their number.

    >>> sorted(accused("Bo has an alibi, so Ann is the culprit.", ("Ann Lee", "Bo Lee")))
    ['Ann Lee']
    """
    names = suspects[:10]
    marked = " ".join(text[:_LONGEST].replace("@", " ").replace("\u2019", "'").split())
    marked = _marked(_TITLE.sub(r"\1", marked), tuple(names))
    found: set[str] = set()
    for sentence in _END.split(marked):
        if sentence.endswith("?"):
            continue
        report = _REPORT.search(sentence)
        own = len(sentence) if report is None else report.start()  # behind it stand others' words and conditions
        for pattern in _ACCUSATIONS:
            for match in pattern.finditer(sentence, 0, own):
                before = sentence[max(match.start() - _NEARBY, 0) : match.start()]
                nearby = " ".join(before.rpartition(",")[2].split()[-4:])
                if not _DENIAL.search(f"{nearby} {match[0]}") and not _EXCEPTION.search(match[0]):
                    found.update(names[int(digit)] for digit in re.findall("@([0-9])", match[1]))
    return frozenset(found)


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


class MurderMystery(Case):
    """Murder mystery of Paprika: a detective acts in words, a world tells what comes of it.

    Rules: the agent reads who died, where, and who is suspected. Each turn it does one thing: inspects, asks,
    checks, accuses. The world narrates; it knows everything. The judge says whether the agent's last message accuses
    the culprit. The agent has `max_turns` turns.

    Action: anything in words; what stands behind the last ``</think>`` counts. `legal_actions` lists sentences that
    ask each suspect, check each alibi, inspect each thing, and accuse each suspect. It depends on the scene and not on
    who did it. Every sentence of it is understood by the scripted world. Which texts accuse somebody: `accused`.

    Our scenarios: 60 in ``train``, 20 in ``test``. `Scenario.facts` holds ``culprit``, ``suspects`` and ``clues`` (of
    `Clue`). At least two clues point to the culprit and every other suspect is cleared by one.

    Differs from the paper / its code:
      * 60 and 20 scenarios of our own instead of 203 and 50; `scenarios` loads the original ones. In ours the culprit
        is always one of the suspects.
      * `accusations` is enforced here. The paper says that an accusation ends the game and leaves this to its world;
        where the world does not, an agent wins by accusing all in turn. 1 is the paper's rule, 0 allows any number.
      * A reply of the world that itself accuses the culprit, before the agent does, is refused and asked for again.

    Attributes:
      accusations: how many accusations a task allows, 0 for any number.
      accusations_made: messages of the agent so far that accuse somebody.
    """

    lead: ClassVar[str] = "The case:"
    splits: ClassVar[Mapping[str, int]] = {"train": 60, "test": 20}

    def __init__(
        self,
        *,
        split: str = "train",
        max_turns: int = 20,
        scenarios: str = "",
        accusations: int = 1,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(split=split, max_turns=max_turns, scenarios=scenarios, **common)
        if accusations < 0:
            raise ValueError(f"accusations must be 0 (any number) or more, got {accusations}")
        self.accusations = accusations
        self.accusations_made = 0

    @classmethod
    def scenarios(cls, split: str) -> Sequence[Scenario]:
        """Returns our own scenarios of a split; the same objects at every call."""
        return _scenarios(split)

    def measures(self) -> dict[str, float]:
        """Returns ``clues``: how many clues the agent was told, and ``accusations``: how many it made."""
        return {"clues": float(len(self.seen)), "accusations": float(self.accusations_made)}

    @property
    def seen(self) -> list[Clue]:
        """Clues that the agent was told in their own words."""
        return [clue for clue in self._clues if any(clue.text in reply for _, reply in self.heard)]

    @property
    def _suspects(self) -> tuple[str, ...]:
        return () if self.scenario is None else tuple(self.scenario.facts.get("suspects", ()))

    @property
    def _clues(self) -> tuple[Clue, ...]:
        return () if self.scenario is None else tuple(self.scenario.facts.get("clues", ()))

    def _listed(self) -> tuple[str, ...]:
        return (*(clue.action for clue in self._clues), *map(accusation, self._suspects)) or _OPEN_ACTIONS

    def _rules(self, seat: int) -> str:
        if seat == AGENT:
            allowed = {0: "", 1: " You can accuse once, which ends the case."}.get(
                self.accusations, f" You can accuse {self.accusations} times."
            )
            return (
                "You are a detective. Find out who is to blame for a death. Each turn you do one thing: ask one "
                "person about one matter, check what somebody claims, inspect a thing or a place, or accuse. Compare "
                "what people say with what you find, suspect everybody at first, and accuse when the evidence is "
                f"clear.{allowed} You have {self.max_turns} turns. Reply with your next action in words."
            )
        if self.scenario is None:
            return ""
        if seat == WORLD:
            if self.accusations == 1:
                accuses = f'If the detective accuses somebody, rightly or wrongly, say "{GOAL}" and nothing else.'
            else:
                accuses = (
                    f'If the detective accuses the culprit, say "{GOAL}" and nothing else. If the detective accuses '
                    "anybody else, say that the evidence does not support it."
                )
            return (
                f"You tell the world of a murder mystery. The detective knows: {self.scenario.briefing} What really "
                f"happened: {self.scenario.truth} The detective acts; tell in one to three short sentences what comes "
                "of it: only what this one action brings to light, and always in keeping with the truth. People hide "
                f"their guilt and may lie, things do not. Never say yourself who did it. {accuses} Reply with what "
                "the detective sees or hears only."
            )
        return (
            f"You judge a detective. The case: {self.scenario.briefing} What really happened: {self.scenario.truth} "
            "You see the detective's last message. It is right only if it accuses the true culprit and nobody else; a "
            f"suspicion or a question is not enough. Reply with {VALID} if it is right, else with {NOT_VALID}, and "
            "nothing more."
        )

    def _set_up(self, chance: Chance) -> None:
        super()._set_up(chance)
        self.accusations_made = 0

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        self.accusations_made += self._accuses(action)
        return super()._play(action)

    def _accuses(self, action: str) -> bool:
        suspects = self._suspects
        # The people of other sources are not known by name: only the plain word counts.
        return bool(accused(action, suspects)) if suspects else bool(_PLAIN.search(action))

    def _form_objection(self, reply: str) -> str | None:
        suspects = self._suspects
        if suspects:
            culprit = frozenset({self.scenario.facts["culprit"]}) if self.scenario is not None else frozenset()
            if accused(reply, suspects) == culprit != accused(self.asked, suspects):
                return "Your reply says who did it. Answer again without that."
        return None

    def _answered(self, seat: int, reply: str) -> str | int | tuple[Outcome, ...]:
        result = super()._answered(seat, reply)
        if seat == JUDGE and result == AGENT and 0 < self.accusations <= self.accusations_made:
            return (Outcome.LOSS,)
        return result

    def _position(self) -> dict[str, Any]:
        return super()._position() | {"accusations_made": self.accusations_made}

    def _set_position(self, position: dict[str, Any]) -> None:
        super()._set_position(position)
        self.accusations_made = position["accusations_made"]
