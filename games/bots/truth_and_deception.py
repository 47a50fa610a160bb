"""Bots for Truth and Deception."""

import re

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.rng import GameRng
from dfc.games.textarena.truth_and_deception import ASSERTIONS, DECEIVER, TruthAndDeception

_QUESTION = "Which fact is true?"
_CLAIM = re.compile(r"fact ([12])\b([^.!?]{0,60}?)\b(true|right|correct|false|wrong|mistake)", re.IGNORECASE)
_NEGATION = re.compile(r"\bnot\b|n't\b", re.IGNORECASE)


def _simple(game: TruthAndDeception, seat: int, rng: GameRng) -> str:
    """The Deceiver claims that a fact is true, by a coin each time; the Guesser flips a coin."""
    if seat == DECEIVER:
        return f"Fact {1 + rng.randrange(2)} is true."
    return f"[Fact {1 + rng.randrange(2)}]" if game.last_turn else _QUESTION


def _strong(game: TruthAndDeception, seat: int, rng: GameRng) -> str:
    """The Deceiver asserts the false fact in changing words; the Guesser names the fact that was asserted less.

    The Guesser knows no facts: a Deceiver that tells the truth beats it every time, one that flips coins half the time.
    """
    if seat == DECEIVER:
        truth = game.true_fact(seat)
        return any_of(ASSERTIONS, rng).format(3 - truth, truth)
    if not game.last_turn:
        return _QUESTION
    asserted = sum(_asserted(line) for line in game.claims())
    guess = 1 + (asserted > 0) if asserted else 1 + rng.randrange(2)
    return f"[Fact {guess}]"


def _asserted(line: str) -> int:
    """Returns how often a line claims that fact 1 is the true one, less how often that fact 2 is."""
    total = 0
    for number, between, word in _CLAIM.findall(line):
        affirmed = (word.lower() in {"true", "right", "correct"}) != bool(_NEGATION.search(between))
        total += 1 if affirmed == (number == "1") else -1
    return total


BOTS = (GameBots(TruthAndDeception, _simple, _strong),)
