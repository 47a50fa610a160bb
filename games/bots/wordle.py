"""Bots for Wordle: guesses that agree with everything told; they know the public word list, not the hidden word."""

import collections
import functools

from dfc.games.bots.bot import GUESSES, SAMPLE, GameBots, any_of, information, spread
from dfc.games.paprika.task import tagged
from dfc.games.paprika.wordle import Wordle, marks, words
from dfc.games.rng import GameRng


def _simple(game: Wordle, _seat: int, rng: GameRng) -> str:
    """A random word that agrees with every answer so far."""
    found = possible_words(game.length, game.feedback == "standard", tuple(game.turns))
    return tagged(any_of(found, rng))


def _strong(game: Wordle, _seat: int, _chance: GameRng) -> str:
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


BOTS = (GameBots(Wordle, _simple, _strong),)
