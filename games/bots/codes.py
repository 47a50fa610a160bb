"""Bots that guess a hidden code or word: Mastermind, PAPRIKA's Wordle, clembench's Wordles.

They know all codes, the word lists and what the seats were told; of the hidden code or word nothing. Those of clembench
play guesser and critic; the strong ones know the table of clues as well, where there is a clue.
"""

import collections
import functools
from collections.abc import Sequence

from dfc.games.bots.bot import GUESSES, SAMPLE, GameBots, any_of, information, spread
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
from dfc.games.paprika.mastermind import CODES, Mastermind, matches
from dfc.games.paprika.task import tagged
from dfc.games.paprika.wordle import Wordle, marks, words
from dfc.games.rng import GameRng

# ---- Mastermind -------------------------------------------------------------------------------------------------

_OPENING = "0012"  # one pair; digits are all alike before the first answer


def _simple_mastermind(game: Mastermind, _seat: int, rng: GameRng) -> str:
    """A random code that agrees with every answer so far."""
    found = _possible_codes(tuple(game.turns))
    return _spaced(any_of(found, rng))


def _strong_mastermind(game: Mastermind, _seat: int, _chance: GameRng) -> str:
    """Of a sample of the codes that agree with every answer so far the one whose answer has the highest entropy."""
    return _spaced(_best_code(tuple(game.turns)))


@functools.lru_cache(maxsize=64)
def _possible_codes(turns: tuple[tuple[str, int, int], ...]) -> tuple[str, ...]:
    if not turns:
        return CODES
    guess, exact, partial = turns[-1]
    return tuple(code for code in _possible_codes(turns[:-1]) if matches(guess, code) == (exact, partial))


@functools.lru_cache(maxsize=4096)
def _best_code(turns: tuple[tuple[str, int, int], ...]) -> str:
    if not turns:
        return _OPENING
    found = _possible_codes(turns)
    sample = spread(found, SAMPLE)
    return max(spread(found, GUESSES), key=lambda guess: information(matches(guess, code) for code in sample))


def _spaced(code: str) -> str:
    return tagged(" ".join(code))


# ---- Wordle -----------------------------------------------------------------------------------------------------


def _simple_wordle(game: Wordle, _seat: int, rng: GameRng) -> str:
    """A random word that agrees with every answer so far."""
    found = possible_words(game.length, game.feedback == "standard", tuple(game.turns))
    return tagged(any_of(found, rng))


def _strong_wordle(game: Wordle, _seat: int, _chance: GameRng) -> str:
    """Of the words that agree with every answer so far the one whose answer has the highest entropy."""
    return tagged(best_word(game.length, game.feedback == "standard", tuple(game.turns)))


@functools.lru_cache(maxsize=256)
def possible_words(length: int, standard: bool, turns: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Returns the words that agree with all turns; all words if none does (a target from elsewhere)."""
    if not turns:
        return words(length)
    guess, told = turns[-1]
    before = possible_words(length, standard, turns[:-1])
    found = tuple(word for word in before if word != guess and marks(guess, word, standard=standard) == told)
    return found or words(length)


@functools.lru_cache(maxsize=4096)
def best_word(length: int, standard: bool, turns: tuple[tuple[str, str], ...]) -> str:
    """Returns, of the words that agree with all turns, the one whose answer has the highest entropy."""
    found = possible_words(length, standard, turns)
    if len(found) <= 2:
        return found[0]
    # Words of letters that about half of the candidates have split them best; the count of a letter stands for that.
    having = collections.Counter(letter for word in found for letter in set(word))
    scores = {letter: count * (len(found) - count) for letter, count in having.items()}
    guesses = sorted(found, key=lambda word: (-sum(scores[letter] for letter in set(word)), word))[:GUESSES]
    sample = spread(found, SAMPLE)
    return max(guesses, key=lambda guess: information(marks(guess, word, standard=standard) for word in sample))


# ---- clembench's Wordles ----------------------------------------------------------------------------------------


def _simple_clem_wordle(game: ClemWordle, seat: int, rng: GameRng) -> str:
    """Guesses a random word that agrees with all feedback; as a critic agrees with such words."""
    if seat == CRITIC:
        return _opinion(_fits(game))
    found = _allowed(game, possible_words(LENGTH, standard=True, turns=tuple(game.turns)))
    refused = _refused(game)
    return _guess(any_of([word for word in found if word != refused] or found, rng))


def _strong_clem_wordle(game: ClemWordle, seat: int, rng: GameRng) -> str:
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
    GameBots(Mastermind, _simple_mastermind, _strong_mastermind),
    GameBots(Wordle, _simple_wordle, _strong_wordle),
    GameBots(ClemWordle, _simple_clem_wordle, _strong_clem_wordle),
    GameBots(ClemWordleWithClue, _simple_clem_wordle, _strong_clem_wordle),
    GameBots(ClemWordleWithCritic, _simple_clem_wordle, _strong_clem_wordle),
)
