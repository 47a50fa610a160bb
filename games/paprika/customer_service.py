"""Customer service: find out what is wrong with a customer's device and propose the remedy that helps.

Source: Paprika, section 3.1 and appendix B.4.3.
"""

import functools
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dfc.games.paprika.case import Case
from dfc.games.paprika.scenario import Scenario
from dfc.games.paprika.world import AGENT, GOAL, NOT_VALID, VALID, WORLD

GENERIC = ("Switch it off and on again.", "Have it looked at in a workshop.")  # of every domain; they never help
_OPEN_QUESTIONS = (  # for scenarios of other sources, whose domain is not known
    "Please describe what you see and hear.",
    "When did it begin?",
    "Is there a message or a lamp that blinks?",
    "Did you change anything before it began?",
    "Are all plugs and cables pushed in?",
    *GENERIC,
)
_FILE = pathlib.Path(__file__).parent / "data" / "service_cases.json"


@functools.cache
def _data() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return read


@functools.cache
def topics(domain: str) -> Mapping[str, tuple[str, ...]]:
    """Returns what can be asked about in a domain: topic -> words by which it is recognised.

    Raises:
      KeyError: there is no such domain.
    """
    return {topic: tuple(words.split()) for topic, (words, _) in _data()["domains"][domain].items()}


@functools.cache
def cases(domain: str) -> tuple[Scenario, ...]:
    """Returns the scenarios of a domain, of both splits, in the order of their remedies' spelling."""
    both = (scenario for split in CustomerService.splits for scenario in CustomerService.scenarios(split))
    return tuple(sorted((s for s in both if s.group == domain), key=lambda s: str(s.facts["remedy"])))


def check(topic: str) -> str:
    """Returns how the listed actions ask about a topic.

    >>> check("battery")
    'Tell me about the battery.'
    """
    return f"Tell me about the {topic}."


@functools.cache
def _templates(domain: str) -> tuple[str, ...]:
    return (*map(check, topics(domain)), *(str(s.facts["remedy"]) for s in cases(domain)), *GENERIC)


@functools.cache
def _scenarios(split: str) -> tuple[Scenario, ...]:
    return tuple(map(_scenario, _data()[split]))


def _scenario(case: Mapping[str, Any]) -> Scenario:
    domain, cause, remedy = case["domain"], case["cause"], case["remedy"]
    usual = {topic: finding for topic, (_, finding) in _data()["domains"][domain].items()}
    return Scenario(
        name=f"{domain}: {cause}",
        briefing=case["complaint"],
        truth=f"The cause: {cause}. The remedy: {remedy}",
        names=(re.sub("^(?:a|an|the) ", "", cause), remedy.rstrip(".")),
        group=domain,
        facts={
            "remedy": remedy,
            "keys": tuple(tuple(words.split()) for words in case["keys"]),
            "checks": usual | case["checks"],
        },
    )


class CustomerService(Case):
    """Customer service of Paprika: an agent helps a customer who knows little about the device.

    Rules: the agent reads a complaint. Each turn it asks the customer to look at something or proposes a remedy. The
    world is the customer, who reports what is found, and says "Goal reached" once a proposal is the remedy. The judge
    says whether the agent's last message proposes the remedy for the true cause. The agent has `max_turns` turns.

    Action: anything in words; what stands behind the last ``</think>`` counts. `legal_actions` lists sentences: one
    check for each topic of the domain, the remedies of all its cases, and two remedies that never help; the list is
    the same for all cases of a domain. Every sentence of it is understood by the scripted customer.

    Our scenarios: 160 cases from 20 domains of eight cases each, six of which are in ``train`` and two in ``test``.
    `Scenario.facts` holds ``remedy``, ``keys`` (alternatives; all words of one must occur in a proposal) and
    ``checks`` (topic -> what the customer finds; where a case says nothing, the usual finding of its domain).

    Differs from the paper / its code:
      * 120 and 40 scenarios of our own instead of 628 and 200; `scenarios` loads the original ones.
      * The agent's own prompt is one line; it need not be polite at length.
      * The customer is checked: a reply that names the cause or the remedy word by word, before the agent does, is
        refused and asked for again. The paper only requests this of its model.
      * A success is the judge's <VALID> alone, as in the paper's code; what the customer concedes without it is a
        failure.
    """

    lead: ClassVar[str] = "The customer says:"
    splits: ClassVar[Mapping[str, int]] = {"train": 120, "test": 40}

    @classmethod
    def scenarios(cls, split: str) -> Sequence[Scenario]:
        """Returns our own scenarios of a split; the same objects at every call."""
        return _scenarios(split)

    def measures(self) -> dict[str, float]:
        """Returns ``checks``: how many findings of `Scenario.facts` the agent was told."""
        return {"checks": float(len(self.seen))}

    @property
    def seen(self) -> list[str]:
        """Topics whose findings the agent was told in the words of `Scenario.facts`."""
        checks = {} if self.scenario is None else self.scenario.facts.get("checks", {})
        return [topic for topic, finding in checks.items() if any(finding in reply for _, reply in self.heard)]

    def _listed(self) -> tuple[str, ...]:
        scenario = self.scenario
        return _OPEN_QUESTIONS if scenario is None or not scenario.facts else _templates(scenario.group)

    def _rules(self, seat: int) -> str:
        if seat == AGENT:
            return (
                "You are a support agent. A customer who knows little about technology has a problem; you represent "
                "whoever made the device and send nobody elsewhere. Find the cause with short, plain questions and "
                "checks, then propose the remedy; each turn, say the one thing that tells you most. You have "
                f"{self.max_turns} turns. Reply with what you say to the customer."
            )
        if self.scenario is None:
            return ""
        if seat == WORLD:
            return (
                f'You play a customer who knows little about technology. You said: "{self.scenario.briefing}" What '
                f"is wrong, which you know and never say yourself: {self.scenario.truth} The support agent speaks to "
                "you. Answer only what is asked, in one or two short sentences, with what you would find if you "
                "looked. If the agent proposes something that does not help, say so. If the agent proposes what "
                f'solves your problem, say "{GOAL}" and nothing else. Reply with what you say as the customer.'
            )
        return (
            f'You judge a support agent. The customer said: "{self.scenario.briefing}" {self.scenario.truth} You see '
            "the agent's last message. It is right only if doing what it proposes solves the problem for this cause; "
            f"a question that merely comes near is not. Reply with {VALID} if it is right, else with {NOT_VALID}, and "
            "nothing more."
        )
