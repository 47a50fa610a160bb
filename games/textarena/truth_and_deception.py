"""Truth and Deception: one player knows which of two statements is true and misleads the other."""

import functools
import json
import pathlib
import re
from typing import Any, ClassVar, Literal, Unpack

from dfc.games.game import Common, Game, Outcome
from dfc.games.parsing import spoken
from dfc.games.textarena.free_text import read_talk, split_talk

DECEIVER, GUESSER = 0, 1  # seats
_FACTS = pathlib.Path(__file__).parent / "data" / "fact_pairs.json"
_GUESSES = ("[Fact 1]", "[Fact 2]")
_OPENING = re.compile(r"\[ ?fact(?![^\W\d_])", re.IGNORECASE)
_NO_ACTION = re.compile(r"(?!)")  # before the last turn everything is words
_GUESS = re.compile(r"\[ ?fact ?([12]) ?\]", re.IGNORECASE)
ASSERTIONS = (  # {0} is the fact that is said to be true, {1} the other
    "Fact {0} is true.",
    "I am sure that fact {1} is false.",
    "Believe me, fact {0} is the true one.",
    "I know this matter well: fact {0} is true.",
    "Fact {1} is a common mistake, it is false.",
    "You can look it up anywhere: fact {0} is correct.",
    "I have no reason to lie, fact {1} is wrong.",
    "If I were you, I would choose fact {0}, it is right.",
)
_CLAIMS = tuple(sentence.format(*numbers) for sentence in ASSERTIONS for numbers in ((1, 2), (2, 1)))
_QUESTIONS = (
    "Which fact is true?",
    "Why should I believe you?",
    "Tell me more about fact 1.",
    "Tell me more about fact 2.",
    "I think fact 1 is true.",
    "I think fact 2 is true.",
)


@functools.cache
def fact_pairs() -> dict[str, list[tuple[str, str]]]:
    """Returns by split the pairs of (true statement, false statement about the same matter)."""
    found = json.loads(_FACTS.read_text(encoding="utf-8"))
    return {split: [(true, false) for true, false in pairs] for split, pairs in found.items()}


class TruthAndDeception(Game):
    """Truth and Deception.

    Rules: both players see two statements, Fact 1 and Fact 2, of which one is true. Seat 0, the Deceiver, knows which;
    seat 1, the Guesser, does not. They speak in turn, seat 0 first, `max_turns` times in all. In the last turn the
    Guesser names the fact it holds to be true: it wins if it is, else the Deceiver does. There is no draw. A Guesser
    that flips a coin wins half of its games.

    Action: words; in the last turn ``[Fact 1]`` or ``[Fact 2]``, in any case, with words around it if wanted. Words are
    shown on one line, cut after `max_talk` characters, square brackets turned into round ones: a guess before the last
    turn is words. A last reply that names no fact, both, or begins a bracket with Fact and means neither is
    unreadable, and so is an empty reply at any time. Nothing readable is illegal. `legal_actions` lists a few
    sentences, and in the last turn the two guesses.

    Statements: written for this package, in a ``train`` and an ``eval`` split that share no fact; within a pair of one
    form and of nearly one length. Which pair is shown and in which order follows from the seed of the game.

    Differs from 0.6.4:
      - A last reply that names both facts is unreadable (there it is always right).
      - A last reply that names no fact forfeits at once (there it is asked again once).
      - After a forfeit the other player has won (there the reward is 0).
      - An empty reply is unreadable (there it is words).
      - Own statements (there 260 other pairs, without splits), drawn from the seed (there before the seed is set).
      - The Guesser alone is told that it must guess now.
      - A blank in the brackets of a guess may be missing or added.

    Differs from 0.7.4: the same, except that there, too, a forfeit is a win for the other player and the seed fixes
    the statements.

    Attributes:
      max_turns: turns of both players together, an even number.
      split: which statements, a key of `splits`.
      max_talk: characters of words that are kept of a reply.
      facts_shown: the two statements, Fact 1 first; ("", "") before the first `reset`.
      guess: 1 or 2 after the guess, else 0.
    """

    seats: ClassVar[int] = 2
    start: ClassVar[Literal["fixed", "random"]] = "random"
    grammar: ClassVar[str] = "your words, and [Fact 1] or [Fact 2] in the Guesser's last turn"
    open_actions: ClassVar[bool] = True
    splits: ClassVar[dict[str, int]] = {"train": 303, "eval": 101}

    def __init__(
        self, *, max_turns: int = 6, split: str = "train", max_talk: int = 500, **common: Unpack[Common]
    ) -> None:
        super().__init__(**common)
        if max_turns < 2 or max_turns % 2:
            raise ValueError(f"max_turns must be an even number from 2 on, so that the guess is last, got {max_turns}")
        if split not in self.splits:
            raise ValueError(f"split must be one of {', '.join(self.splits)}, got {split!r}")
        if max_talk < 1:
            raise ValueError(f"max_talk must be 1 or more, got {max_talk}")
        self.max_turns = max_turns
        self.split = split
        self.max_talk = max_talk
        self.guess = 0
        self._pair = -1
        self._true = 0  # 1 or 2: the number of the true fact
        self._claims: list[str] = []  # what the Deceiver has said
        self._talk = [0, 0]

    @property
    def max_game_length(self) -> int:
        """The turn limit; every game that is not forfeited takes as many."""
        return self.max_turns

    @property
    def facts_shown(self) -> tuple[str, str]:
        """The two statements, Fact 1 first."""
        if self._pair < 0:
            return "", ""
        true, false = fact_pairs()[self.split][self._pair]
        return (true, false) if self._true == 1 else (false, true)

    @property
    def last_turn(self) -> bool:
        """Whether the reply that is due is the guess."""
        return self.actions_played == self.max_turns - 1

    def true_fact(self, seat: int) -> int:
        """Returns 1 or 2, the number of the true fact; a secret of the Deceiver.

        Raises:
          ValueError: another seat asks.
        """
        if seat != DECEIVER:
            raise ValueError(f"only seat {DECEIVER} knows which fact is true, got {seat}")
        return self._true

    def claims(self) -> tuple[str, ...]:
        """Returns what the Deceiver has said so far, one line each; both players know it."""
        return tuple(self._claims)

    def measures(self) -> dict[str, float]:
        """Returns whether the guess was right (0 also without a guess), and by seat the characters of words."""
        return {
            "correct": float(self.guess != 0 and self.guess == self._true),
            "talk_0": float(self._talk[0]),
            "talk_1": float(self._talk[1]),
        }

    def _begin(self) -> int:
        self._pair = self.rng.randrange(self.splits[self.split])
        self._true = 1 + self.rng.randrange(2)
        self.guess = 0
        self._claims = []
        self._talk = [0, 0]
        for number, fact in enumerate(self.facts_shown, 1):
            self._tell_all(f"Fact {number}: {fact}")
        self._tell(DECEIVER, f"Fact {self._true} is true, Fact {3 - self._true} is false.")
        return DECEIVER

    def _rules(self, seat: int) -> str:
        lead = f"Truth and Deception. You are Player {seat}, the {'Guesser' if seat else 'Deceiver'}."
        if seat == DECEIVER:
            return (
                f"{lead} Of two facts one is true, and you alone know which. You and the Guesser speak in turn, "
                f"{self.max_turns} turns in all; in the last one the Guesser names the fact it holds to be true. You "
                "win if it names the false one. Reply with your words."
            )
        return (
            f"{lead} Of two facts one is true; the Deceiver knows which and wants you to name the false one. You speak "
            f"in turn, {self.max_turns} turns in all, and win if you name the true one in the last. Reply with your "
            "words, and when told to guess with [Fact 1] or [Fact 2]."
        )

    def extract(self, reply: str) -> str | None:
        """Returns what the reply says aloud as one line, a guess last; None if unreadable."""
        said = spoken(reply)
        return None if said is None else self._read(said)

    def is_action(self, said: str) -> bool:
        """Returns whether anything can be read: words are free."""
        return self.extract(said) is not None

    def _canonical(self, reply: str) -> str | None:
        return self.extract(reply)

    def _read(self, action: str) -> str | None:
        if not self.last_turn:
            return read_talk(action, _NO_ACTION, _read_guess, self.max_talk)
        line = read_talk(action, _OPENING, _read_guess, self.max_talk)
        return line if line is not None and line.endswith("]") else None

    def _objection(self, action: str) -> str | None:
        del action  # words are free, and both guesses are legal
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        seat = self._mover()
        other = 1 - seat
        words, guess = split_talk(action)
        self._talk[seat] += len(words)
        self._tell(other, f"Opponent: {action}")
        if guess:
            self.guess = 1 + _GUESSES.index(guess)
            right = self.guess == self._true
            self._tell_all(f"The end: Fact {self._true} is true, the guess is {'right' if right else 'wrong'}.")
            return self._won_by(GUESSER if right else DECEIVER)
        if seat == DECEIVER:
            self._claims.append(words)
            if self.last_turn:
                self._tell(other, "Guess now which fact is true: [Fact 1] or [Fact 2].")
        return other

    def legal_actions(self) -> list[str]:
        """Returns the two guesses in the last turn, before it a few sentences."""
        if self.to_move is None:
            return []
        if self.last_turn:
            return list(_GUESSES)
        return list(_CLAIMS if self.to_move == DECEIVER else _QUESTIONS)

    def _state(self) -> dict[str, Any]:
        return {
            "pair": self._pair,
            "true": self._true,
            "guess": self.guess,
            "claims": list(self._claims),
            "talk": list(self._talk),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self._pair = state["pair"]
        self._true = state["true"]
        self.guess = state["guess"]
        self._claims = list(state["claims"])
        self._talk = list(state["talk"])


def _read_guess(group: str) -> str | None:
    match = _GUESS.fullmatch(group)
    return None if match is None else _GUESSES[int(match[1]) - 1]
