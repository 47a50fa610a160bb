"""What Paprika's task groups share: the tags of an answer, and the games that are played with them.

Source: "Training a Generally Curious Agent" (Paprika), section 3.1, table 1 and appendix B.
"""

import abc
from typing import ClassVar

from dfc.games.game import Outcome
from dfc.games.parsing import extract_answer
from dfc.games.task import Task

OPENING, CLOSING = "<Answer>", "</Answer>"
USELESS = "?"  # canonical spelling of every answer that is no guess of the game
MAX_REPLY_TOKENS = 1024  # of one reply: appendix E


def tagged(answer: str) -> str:
    """Returns an answer as a player writes it."""
    return f"{OPENING}{answer}{CLOSING}"


class AnswerGame(Task):
    """A task whose actions are answers in Paprika's tags.

    A subclass sets `splits`, and implements `_set_up`, `_read_answer`, `_take`, `legal_answers`, `_rules`,
    `_position` and `_set_position`.
    """

    grammar: ClassVar[str] = tagged("...")
    max_reply_tokens: ClassVar[int | None] = MAX_REPLY_TOKENS

    @abc.abstractmethod
    def _read_answer(self, answer: str) -> str | None:
        """Returns what stands between the tags in its canonical spelling, or None if it is none of this game's."""

    @abc.abstractmethod
    def _take(self, answer: str) -> bool | None:
        """Takes a canonical answer and tells the news: True for success, False for failure, None to continue."""

    @abc.abstractmethod
    def legal_answers(self) -> list[str]:
        """Returns canonical answers in a fixed order; all of them, unless `open_actions`."""

    def extract(self, reply: str) -> str | None:
        """Returns the reply's only tagged answer, tags included, or None."""
        answer = extract_answer(reply)
        return None if answer is None else tagged(answer)

    def legal_actions(self) -> list[str]:
        """Returns the legal answers in their tags."""
        return [] if self.to_move is None else [tagged(answer) for answer in self.legal_answers()]

    def _read(self, action: str) -> str | None:
        answer = self._read_answer(action[len(OPENING) : -len(CLOSING)])
        return None if answer is None else tagged(answer)

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        success = self._take(action[len(OPENING) : -len(CLOSING)])
        if success is None and self.actions_played < self.max_turns:
            return 0
        return (Outcome.WIN if success else Outcome.LOSS,)
