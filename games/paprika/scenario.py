"""One task of Paprika's simulated groups: what the agent is told, and what only world and judge know."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One task of a simulated group.

    Attributes:
      name: what the task is called in tables; the secret itself where that is a name (a topic, a city).
      briefing: what the agent is told, e.g. the category of the topic, the customer's complaint, the crime scene.
      truth: what only world and judge know, in full sentences or as the name to be guessed.
      names: spellings of the secret that the world must not utter before the agent does; () where nothing is secret
        by name.
      group: a label for tables and curricula, e.g. a category.
      difficulty: ``easy``, ``medium`` or ``hard``, or empty.
      facts: what the scripted world answers from; empty for scenarios that were loaded from elsewhere.
    """

    name: str
    briefing: str
    truth: str
    names: tuple[str, ...] = ()
    group: str = ""
    difficulty: str = ""
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
