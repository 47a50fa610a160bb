"""Wordle: find a hidden word from what each guess says about its letters. Source: Paprika, appendices B and I.8."""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from dfc.games.game import Common, GameInfo
from dfc.games.paprika.task import USELESS, AnswerGame, tagged
from dfc.games.rng import GameRng
from dfc.games.task import count_of, dealt

LENGTHS = range(4, 11)
FEEDBACKS = ("naive", "standard")
IN_PLACE, ELSEWHERE, ABSENT = "+", "?", "-"
_SIZES = {"train": 150, "test": 100}  # of every length but 5
_EXAMPLES = {  # one for each length; never a target
    4: "plan",
    5: "crane",
    6: "planet",
    7: "journey",
    8: "mountain",
    9: "butterfly",
    10: "watermelon",
}
_SAYS = {IN_PLACE: "in place", ELSEWHERE: "elsewhere", ABSENT: "not in the word"}
_FILE = pathlib.Path(__file__).parent / "data" / "words.txt"


@functools.cache
def words(length: int) -> tuple[str, ...]:
    """Returns the public words of a length from 4 to 10 in alphabetical order, the targets of every split and more.

    Raises:
      ValueError: there are no words of this length.
    """
    found = tuple(word for word in _FILE.read_text(encoding="utf-8").split() if len(word) == length)
    if not found:
        raise ValueError(f"length must be from {LENGTHS[0]} to {LENGTHS[-1]}, got {length}")
    return found


@functools.cache
def targets(length: int, split: str) -> tuple[str, ...]:
    """Returns the hidden words of a split by task number."""
    return dealt("Wordle", words(length), _sizes(length), split)


def marks(guess: str, target: str, *, standard: bool = False) -> str:
    """Returns what a guess says about a target of the same length: per letter IN_PLACE, ELSEWHERE or ABSENT.

    Naive: a letter that is not in place is ELSEWHERE if it occurs anywhere in the target. Standard: repeats are
    counted; letters in place first, then from left to right, each letter of the target explains one of the guess.

    >>> marks("toast", "boost"), marks("toast", "boost", standard=True)
    ('?+-++', '-+-++')
    """
    if not standard:
        pairs = zip(guess, target, strict=True)
        return "".join([IN_PLACE if a == b else ELSEWHERE if a in target else ABSENT for a, b in pairs])
    free = [hidden for letter, hidden in zip(guess, target, strict=True) if letter != hidden]
    found = []
    for letter, hidden in zip(guess, target, strict=True):
        if letter == hidden:
            found.append(IN_PLACE)
        elif letter in free:
            free.remove(letter)
            found.append(ELSEWHERE)
        else:
            found.append(ABSENT)
    return "".join(found)


@functools.cache
def _listed(length: int) -> tuple[str, ...]:
    return tuple(tagged(word) for word in words(length))


def _sizes(length: int) -> dict[str, int]:
    return dict(Wordle.splits) if length == 5 else _SIZES


class Wordle(AnswerGame):
    """Wordle.

    Rules: a word of `length` letters is hidden. Each guess is answered letter by letter: in place, elsewhere in the
    word, or not in it. The guess that is the word wins; `max_turns` guesses without it lose.

    Action: ``<Answer>crane</Answer>``; any case, blanks around it do not count. Every string of `length` letters a to
    z is taken, whether it is a word or not. Any other answer is the action ``<Answer>?</Answer>``: it costs a turn,
    with a message. `legal_actions` lists the public words of the length.

    Differs from the paper / its code:
      - Words of our own list (5 letters: 1515 train, 800 test; other lengths: 150 train, 100 test), not those of
        a newspaper. The paper plays lengths 4 and 6 to 10 for evaluation only, with `max_turns=10`.
      - Only the letters a to z (there any characters of the right number).
      - All news about a guess stands in one line, with the turns that are left.
      - `feedback="standard"` counts repeated letters, as the newspaper's game does. The paper's rule, ``naive``,
        says "elsewhere" also of a letter whose only places in the word are already found.
      - Two different answers in a reply are no answer (there the first one counts), nor is an empty one.

    Attributes:
      length: letters of the word.
      feedback: ``naive`` or ``standard``.
      turns: the guesses so far with their `marks`; answers that were no guess are not among them.
    """

    open_actions: ClassVar[bool] = True
    grammar: ClassVar[str] = tagged("crane")
    splits: ClassVar[Mapping[str, int]] = {"train": 1515, "test": 800}

    def __init__(
        self,
        *,
        split: str = "train",
        length: int = 5,
        max_turns: int = 6,
        feedback: str = "naive",
        **common: Unpack[Common],
    ) -> None:
        super().__init__(split=split, max_turns=max_turns, **common)
        if length not in LENGTHS:
            raise ValueError(f"length must be from {LENGTHS[0]} to {LENGTHS[-1]}, got {length}")
        if feedback not in FEEDBACKS:
            raise ValueError(f"feedback must be one of {', '.join(FEEDBACKS)}, got {feedback!r}")
        self.length = length
        self.feedback = feedback
        self.turns: list[tuple[str, str]] = []
        self._target = ""

    @property
    def number_of_tasks(self) -> int:
        """How many tasks the split has for this length."""
        return _sizes(self.length)[self.split]

    @property
    def info(self) -> GameInfo:
        """What is known before the start; the splits are those of this length."""
        return dataclasses.replace(super().info, splits=_sizes(self.length))

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the task's number decides
        self._target = targets(self.length, self.split)[self.task]
        self.turns = []

    def _rules(self, seat: int) -> str:
        del seat  # there is one only
        repeats = (
            "A letter is elsewhere if the word has it at any other place, however often you guess it."
            if self.feedback == "naive"
            else "Each letter of the word counts for one letter of the guess at most, letters in place first."
        )
        return (
            f"Find the hidden English word of {self.length} letters in at most {self.max_turns} guesses. After a "
            "guess you are told of each letter whether it is in place, elsewhere in the word, or not in the word. "
            f"{repeats} An answer that is not {self.length} letters a to z wastes a turn. "
            "Reply with <Think>your thoughts, if any</Think> and one word in tags, for example "
            f"{tagged(_EXAMPLES[self.length])}."
        )

    def _read_answer(self, answer: str) -> str | None:
        word = answer.strip()
        if len(word) == self.length and word.isascii() and word.isalpha():
            return word.lower()
        return USELESS if word else None

    def _take(self, answer: str) -> bool | None:
        left = self.max_turns - self.actions_played
        rest = f"{count_of(left, 'turn')} left."
        if answer == USELESS:
            self._tell(0, f"That is not a word of {self.length} letters a to z. {rest}")
            return None
        found = marks(answer, self._target, standard=self.feedback == "standard")
        self.turns.append((answer, found))
        if answer == self._target:
            self._tell(0, f"{answer}: this is the word.")
            return True
        said = ", ".join([f"{letter} {_SAYS[mark]}" for letter, mark in zip(answer, found, strict=True)])
        self._tell(0, f"{answer}: {said}. {rest}")
        return None

    def legal_answers(self) -> list[str]:
        """Returns the public words of the length, of every split, by alphabet; other strings of letters count too."""
        return list(words(self.length))

    def legal_actions(self) -> list[str]:
        """Returns `legal_answers` in their tags."""
        return [] if self.to_move is None else list(_listed(self.length))

    def _position(self) -> dict[str, Any]:
        return {"target": self._target, "turns": [list(turn) for turn in self.turns]}

    def _set_position(self, position: dict[str, Any]) -> None:
        self._target = position["target"]
        self.turns = [(guess, found) for guess, found in position["turns"]]
