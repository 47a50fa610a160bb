"""Mastermind: find a hidden code of four digits. Source: Paprika, appendix B.4.7."""

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from dfc.games.game import Common
from dfc.games.paprika.task import USELESS, AnswerGame, tagged
from dfc.games.rng import GameRng
from dfc.games.task import count_of, dealt

LENGTH = 4
CODES = tuple(f"{number:04}" for number in range(10**LENGTH))


@functools.cache
def targets(split: str) -> tuple[str, ...]:
    """Returns the hidden codes of a split by task number."""
    return dealt("Mastermind", CODES, Mastermind.splits, split)


def matches(guess: str, target: str) -> tuple[int, int]:
    """Returns (exact, partial): digits in place, and further digits that both have, repeats counted.

    >>> matches("1608", "1706")
    (2, 1)
    """
    exact = sum([digit == hidden for digit, hidden in zip(guess, target, strict=True)])
    common = sum([min(guess.count(digit), target.count(digit)) for digit in set(guess)])
    return exact, common - exact


@functools.cache
def _listed() -> tuple[str, ...]:
    return tuple(tagged(" ".join(code)) for code in CODES)


class Mastermind(AnswerGame):
    """Mastermind with digits.

    Rules: a code of four digits from 0 to 9 is hidden; digits may repeat. Each guess is answered with the number of
    exact matches (right digit in the right place) and of partial ones (further digits that the code has in other
    places; each digit of the code counts once). Four exact matches win; `max_turns` guesses without lose.

    Action: ``<Answer>1 2 3 4</Answer>``; blanks may be anywhere or missing. An answer that is not four digits is the
    action ``<Answer>?</Answer>``: it costs a turn, with a message. `legal_actions` lists all 10,000 codes.

    Differs from the paper / its code:
      - Other codes: 1000 for training and 500 for the test, all different, by our own order of the 10,000 codes.
      - Only the digits 0 to 9 (there also those of other scripts).
      - The two numbers are told in one line, with the turns that are left.
      - Two different answers in a reply are no answer (there the first one counts), nor is an empty one.

    Attributes:
      turns: the guesses so far as (code, exact, partial); answers that were no guess are not among them.
    """

    open_actions: ClassVar[bool] = True
    grammar: ClassVar[str] = tagged("1 2 3 4")
    splits: ClassVar[Mapping[str, int]] = {"train": 1000, "test": 500}

    def __init__(self, *, split: str = "train", max_turns: int = 12, **common: Unpack[Common]) -> None:
        super().__init__(split=split, max_turns=max_turns, **common)
        self.turns: list[tuple[str, int, int]] = []
        self._target = ""

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the task's number decides
        self._target = targets(self.split)[self.task]
        self.turns = []

    def _rules(self, seat: int) -> str:
        del seat  # there is one only
        return (
            "Mastermind: find the hidden code of 4 digits from 0 to 9, which may repeat, in at most "
            f"{self.max_turns} guesses. After a guess you are told the number of exact matches (right digit, right "
            "place) and of partial matches (further digits that the code has at another place; each digit of the code "
            "counts once), but not which digits they are. An answer that is not 4 digits wastes a turn. "
            "Reply with <Think>your thoughts, if any</Think> and 4 digits in tags, for example "
            f"{tagged('1 2 3 4')}."
        )

    def _read_answer(self, answer: str) -> str | None:
        digits = "".join(answer.split())
        if len(digits) == LENGTH and digits.isascii() and digits.isdigit():
            return " ".join(digits)
        return USELESS if digits else None

    def _take(self, answer: str) -> bool | None:
        left = self.max_turns - self.actions_played
        rest = f"{count_of(left, 'turn')} left."
        if answer == USELESS:
            self._tell(0, f"That is not a code of 4 digits. {rest}")
            return None
        code = answer.replace(" ", "")
        exact, partial = matches(code, self._target)
        self.turns.append((code, exact, partial))
        if exact == LENGTH:
            self._tell(0, f"{answer}: this is the code.")
            return True
        self._tell(0, f"{answer}: {exact} exact, {partial} partial. {rest}")
        return None

    def legal_answers(self) -> list[str]:
        """Returns all codes upwards."""
        return [" ".join(code) for code in CODES]

    def legal_actions(self) -> list[str]:
        """Returns `legal_answers` in their tags."""
        return [] if self.to_move is None else list(_listed())

    def _position(self) -> dict[str, Any]:
        return {"target": self._target, "turns": [list(turn) for turn in self.turns]}

    def _set_position(self, position: dict[str, Any]) -> None:
        self._target = position["target"]
        self.turns = [(code, exact, partial) for code, exact, partial in position["turns"]]
