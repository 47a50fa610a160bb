"""Guess the Number: one player looks for a hidden number by hints."""

from typing import Any, ClassVar, Literal, Unpack

from dfc.games.game import Common, Game, Outcome
from dfc.games.parsing import read_number

_LARGEST = 100_000  # every number is listed as a legal action


class GuessTheNumber(Game):
    """Guess the Number.

    Rules: a number between `min_number` and `max_number`, both included and all equally likely, is hidden. After a
    wrong guess the player learns whether the target is higher or lower. The right guess wins; `max_turns` wrong
    guesses end in a draw. A number out of range or guessed before is illegal. Bisection needs at most
    floor(log2(n)) + 1 guesses for n numbers: 5 of 20, 6 of 50.

    Action: the number in digits, ``[13]``; leading zeros are dropped.

    Differs from 0.6.4:
      - Exactly one bracketed group per reply (there the first bracketed number of the text counts).
      - A malformed reply forfeits at once (there it is asked again once).
      - The target follows from the seed of the game (there it is drawn from a generator shared by all games, before
        that is seeded).

    Differs from 0.7.4, besides the above:
      - The registered limit of the hardcore game is 7 guesses (there 10).
      - The limit is exact (there one guess more is allowed).
      - The limit is a draw (there it pays 1 - distance / range, and so does an invalid reply).

    Attributes:
      min_number: smallest number.
      max_number: largest number.
      max_turns: number of wrong guesses after which the game ends in a draw.
      guesses: the numbers guessed so far, in order.
      low: smallest number that the hints leave.
      high: largest number that the hints leave.
    """

    seats: ClassVar[int] = 1
    start: ClassVar[Literal["fixed", "random"]] = "random"
    grammar: ClassVar[str] = "[5]"

    def __init__(
        self, *, min_number: int = 1, max_number: int = 20, max_turns: int = 20, **common: Unpack[Common]
    ) -> None:
        super().__init__(**common)
        if min_number < 0:
            raise ValueError(f"min_number must be 0 or more (guesses have no sign), got {min_number}")
        if max_number < min_number:
            raise ValueError(f"max_number must be min_number={min_number} or more, got {max_number}")
        if max_number > _LARGEST:
            raise ValueError(f"max_number must be {_LARGEST} or less, got {max_number}")
        if max_turns < 1:
            raise ValueError(f"max_turns must be 1 or more, got {max_turns}")
        self.min_number = min_number
        self.max_number = max_number
        self.max_turns = max_turns
        self.guesses: list[int] = []
        self.low = min_number
        self.high = max_number
        self._target = min_number
        self._numbers = {f"[{number}]": number for number in range(min_number, max_number + 1)}

    @property
    def max_game_length(self) -> int:
        """The turn limit, or the number of numbers if that is smaller."""
        return min(self.max_turns, self.max_number - self.min_number + 1)

    def _begin(self) -> int:
        self._target = self.min_number + self.rng.randrange(self.max_number - self.min_number + 1)
        self.guesses = []
        self.low = self.min_number
        self.high = self.max_number
        return 0

    def _rules(self, seat: int) -> str:
        del seat  # there is one only
        return (
            f"Guess the number between {self.min_number} and {self.max_number} in at most {self.max_turns} guesses. "
            "Reply with the number in brackets, for example [5]."
        )

    def _read(self, action: str) -> str | None:
        if action in self._numbers:
            return action
        number = read_number(action[1:-1])
        return None if number is None else f"[{number}]"

    def _objection(self, action: str) -> str | None:
        number = self._numbers.get(action)
        if number is None:
            return "That number is out of range. Try again."
        if number in self.guesses:
            return "That number was guessed before. Try again."
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        number = self._numbers[action]
        self.guesses.append(number)
        if number == self._target:
            self.low = self.high = number
            return self._won_by(0)
        if number < self._target:
            self.low = max(self.low, number + 1)
            self._tell(0, "The target is higher.")
        else:
            self.high = min(self.high, number - 1)
            self._tell(0, "The target is lower.")
        return 0 if self.actions_played < self.max_turns else self._drawn()

    def legal_actions(self) -> list[str]:
        """Returns every number not guessed yet, upwards."""
        if self.to_move is None:
            return []
        return [action for action, number in self._numbers.items() if number not in self.guesses]

    def _state(self) -> dict[str, Any]:
        return {"target": self._target, "guesses": list(self.guesses), "low": self.low, "high": self.high}

    def _restore(self, state: dict[str, Any]) -> None:
        self._target = state["target"]
        self.guesses = list(state["guesses"])
        self.low = state["low"]
        self.high = state["high"]
