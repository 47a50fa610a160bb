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

from dfc.games.game import Common, Outcome
from dfc.games.paprika.accusations import accused, read, told
from dfc.games.paprika.case import Case
from dfc.games.paprika.scenario import Scenario
from dfc.games.paprika.world import AGENT, GOAL, NOT_VALID, VALID, WORLD, marked_words, one_of
from dfc.games.rng import GameRng

NO_ACCUSATION = "<NONE>"
"""What the judge says of a message that accuses nobody."""
_OPEN_ACTIONS = (  # for scenarios of other sources, whose people and places are not known
    "Inspect the body.",
    "Inspect the scene of the crime.",
    "Ask every suspect where they were.",
    "Ask the witnesses what they saw.",
    "Check the alibis.",
    "Look for the weapon.",
    "Ask who had a motive.",
)
_FILE = pathlib.Path(__file__).parent / "data" / "mysteries.json"


@dataclasses.dataclass(frozen=True)
class Clue:
    """What an investigator is told at one place.

    Attributes:
      action: the sentence of `MurderMystery.legal_actions` that asks for it.
      kind: ``says`` for a suspect's own words, ``alibi`` for the result of checking them, ``thing`` for the rest.
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


_PLAIN = re.compile(r"(?:^|[.!,;:] )(?:i (?:(?!cannot|never)\w+ )?)?accuse\b", re.IGNORECASE | re.ASCII)


class MurderMystery(Case):
    """Murder mystery of Paprika: a detective acts in words, a world narrates the effect.

    Rules: the agent reads who died, where, and who is suspected. Each turn it does one thing: inspects, asks,
    checks, accuses. The world narrates; it knows everything. The judge says whether the agent's last message accuses
    the culprit and nobody else (`VALID`), anybody else (`NOT_VALID`), or nobody (`NO_ACCUSATION`). The agent has
    `max_turns` turns, and its first accusation ends the case (`accusations`).

    Action: anything in words; what stands after the last ``</think>`` counts. `legal_actions` lists sentences that
    ask each suspect, check each alibi, inspect each thing, and accuse each suspect. It depends on the scene and not on
    who did it. Every sentence of it is understood by the scripted world. Which texts accuse somebody says
    `dfc.games.paprika.accusations.accused`, to the rules and to the script alike.

    Trying all suspects shall not pay, whoever plays world and judge, so an accusation is counted if the rules read one
    or the judge finds one. In detail, the judge's `VALID` wins only if the rules read that the culprit alone is
    accused, or read no accusation and a statement about the culprit that may be one in unforeseen words. A message that
    accuses several suspects is one accusation and never wins. `NOT_VALID` is an accusation if the message states
    something of a suspect; for a question, an order ("Ask ...") or a message without a suspect it is taken as
    `NO_ACCUSATION`, so a judge with two tags in mind ends no case at its first look around. What remains open: a judge
    that finds right accusations in unforeseen words right, and calls wrong ones in the same words none.

    Our scenarios: 60 in ``train``, 20 in ``test``. `Scenario.facts` holds ``culprit``, ``suspects`` and ``clues`` (of
    `Clue`). At least two clues point to the culprit and every other suspect is cleared by one.

    Differs from the paper / its code:
      * 60 and 20 scenarios of our own instead of 203 and 50; `scenarios` loads the original ones. In ours the culprit
        is always one of the suspects.
      * `accusations` is enforced here. The paper says that an accusation ends the game and leaves this to its world;
        where the world does not, an agent wins by accusing all in turn. 1 is the paper's rule, 0 allows any number.
      * The judge has three tags. The paper's has two, which cannot tell a wrong accusation from none; without that, the
        limit would hold for accusations in foreseen words only.
      * A reply of the world that itself accuses the culprit, before the agent does, is refused and asked for again.

    Attributes:
      accusations: how many accusations a task allows, 0 for any number.
      accusations_made: messages of the agent so far that accuse somebody, by the rules' reading or the judge's.
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
                f"their guilt and may lie, things do not. Never say yourself who did it. {accuses} "
                f"{marked_words('answer')} Reply with what the detective sees or hears only."
            )
        return (
            f"You judge a detective. The case: {self.scenario.briefing} What really happened: {self.scenario.truth} "
            "You see the detective's last message. It is right only if it accuses the true culprit and nobody else; a "
            f"suspicion or a question is not enough. {marked_words('judge')} Reply with {VALID} if it is right, with "
            f"{NOT_VALID} if it accuses anybody else, with {NO_ACCUSATION} if it accuses nobody, and nothing more."
        )

    def _set_up(self, rng: GameRng) -> None:
        super()._set_up(rng)
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
            if told(reply, suspects) == culprit != accused(self.asked, suspects):
                return "Your reply says who did it. Answer again without that."
        return None

    def _judged(self, said: str) -> str | int | tuple[Outcome, ...]:
        nobody = one_of(said, (NO_ACCUSATION,)) is not None
        result = super()._judged(NOT_VALID if nobody else said)
        if isinstance(result, str):
            return f"Reply with exactly one of {VALID}, {NOT_VALID} and {NO_ACCUSATION}, and nothing else."
        read_here, found, right = self._accuses(self.asked), False, result == (Outcome.WIN,)
        if not nobody:
            found = self._may_be_right() if right else self._may_accuse()
        self.accusations_made += found and not read_here  # one that was read is counted since it was made
        if right and found:
            return result
        if right:
            result = super()._judged(NOT_VALID)
        if result == AGENT and (read_here or found) and 0 < self.accusations <= self.accusations_made:
            return (Outcome.LOSS,)
        return result

    def _may_be_right(self) -> bool:
        """Whether the agent's last message can be an accusation of the culprit alone."""
        reading = read(self.asked, self._suspects)
        if self.scenario is None or not self._suspects:
            return reading.states
        culprit = self.scenario.facts["culprit"]
        return reading.accused == {culprit} or (not reading.accused and culprit in reading.named)

    def _may_accuse(self) -> bool:
        """Whether the agent's last message can be an accusation of anybody."""
        reading = read(self.asked, self._suspects)
        return bool(reading.accused or reading.named) if self._suspects else reading.states

    def _position(self) -> dict[str, Any]:
        return super()._position() | {"accusations_made": self.accusations_made}

    def _set_position(self, position: dict[str, Any]) -> None:
        super()._set_position(position)
        self.accusations_made = position["accusations_made"]
