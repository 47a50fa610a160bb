"""What customer service and murder mystery share: a briefing, and listed sentences that the world understands."""

import abc
from typing import ClassVar

from dfc.games.paprika.world import AGENT, World
from dfc.games.rng import GameRng


class Case(World):
    """A world whose agent reads a briefing and finds out the rest by asking.

    A subclass of this one sets `lead` and implements `_listed` beside what `World` asks for.

    Attributes:
      lead: what stands before the briefing.
    """

    lead: ClassVar[str]

    @abc.abstractmethod
    def _listed(self) -> tuple[str, ...]:
        """Returns the sentences that `legal_actions` lists, in a fixed order that does not depend on the secret."""

    def legal_actions(self) -> list[str]:
        """Returns a selection of what the agent can say: the sentences that the scripted world understands."""
        return list(self._listed()) if self.to_move == AGENT else []

    @property
    def used(self) -> list[str]:
        """Sentences of `legal_actions` that the agent has said, in order."""
        listed = self._listed()
        return [asked for asked, _ in self.heard if asked in listed]

    def _set_up(self, rng: GameRng) -> None:
        super()._set_up(rng)
        if self.scenario is not None:
            self._tell(AGENT, f"{self.lead} {self.scenario.briefing}")
