"""Bots for the Wordles of clembench, for guesser and critic.

They know the word lists and what the seats were told; of the hidden word nothing. The strong ones know the table of
clues as well, where there is a clue.
"""

import functools
from collections.abc import Sequence

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.bots.wordle import best_word, possible_words
from dfc.games.dialogue.wordle import (
    CRITIC,
    GUESS,
    LENGTH,
    OPINION,
    ClemWordle,
    ClemWordleWithClue,
    ClemWordleWithCritic,
    clues,
    reply_of,
)
from dfc.games.paprika.wordle import marks
from dfc.games.rng import GameRng


def _simple(game: ClemWordle, seat: int, rng: GameRng) -> str:
    """Guesses a random word that agrees with all feedback; as a critic agrees with such words."""
    if seat == CRITIC:
        return _opinion(_fits(game))
    found = _allowed(game, possible_words(LENGTH, standard=True, turns=tuple(game.turns)))
    refused = _refused(game)
    return _guess(any_of([word for word in found if word != refused] or found, rng))


def _strong(game: ClemWordle, seat: int, rng: GameRng) -> str:
    """Guesses what the clue names, or else the word that agrees with all feedback and splits these best.

    As a critic: agrees with the word that the clue names, or, of an unknown clue, with what agrees with all feedback.
    """
    named = _named(game.clue) if isinstance(game, ClemWordleWithClue) else ()
    fitting = [word for word in named if all(marks(guess, word, standard=True) == told for guess, told in game.turns)]
    if seat == CRITIC and isinstance(game, ClemWordleWithCritic):
        return _opinion(game.proposal in fitting if fitting else _fits(game))
    if fitting:
        return _guess(any_of(_allowed(game, fitting), rng))
    best = best_word(LENGTH, standard=True, turns=tuple(game.turns))
    if best in game.allowed():
        return _guess(best)
    return _guess(any_of(_allowed(game, possible_words(LENGTH, standard=True, turns=tuple(game.turns))), rng))


def _allowed(game: ClemWordle, found: Sequence[str]) -> Sequence[str]:
    """Returns those words that may be guessed, or all that may if none: a file of instances has a list of its own."""
    return [word for word in found if word in game.allowed()] or sorted(game.allowed())


def _guess(word: str) -> str:
    return reply_of(GUESS, word, "It agrees with all that is known.")


def _opinion(agree: bool) -> str:
    if agree:
        return reply_of(OPINION, "yes", "It agrees with all that is known.")
    return reply_of(OPINION, "no", "It contradicts what is known.")


def _refused(game: ClemWordle) -> str:
    """Returns the proposal that the critic did not agree with, or an empty text."""
    return game.proposal if isinstance(game, ClemWordleWithCritic) and game.opinion == "no" else ""


def _fits(game: ClemWordle) -> bool:
    return isinstance(game, ClemWordleWithCritic) and all(
        marks(guess, game.proposal, standard=True) == told for guess, told in game.turns
    )


@functools.lru_cache(maxsize=1024)
def _named(clue: str) -> tuple[str, ...]:
    """Returns the words of the table that have a clue."""
    return tuple(word for table in clues().values() for word, its in table.items() if its == clue)


BOTS = (
    GameBots(ClemWordle, _simple, _strong),
    GameBots(ClemWordleWithClue, _simple, _strong),
    GameBots(ClemWordleWithCritic, _simple, _strong),
)
