"""Strategies for Wordle and Mastermind: guesses that agree with everything told so far.

They know the public word list or all codes, and what the player was told; of the hidden word or code nothing.
"""

import collections
import functools
from collections.abc import Iterable, Sequence

from dfc.games.chance import Chance
from dfc.games.paprika.mastermind import CODES, Mastermind, matches
from dfc.games.paprika.task import tagged
from dfc.games.paprika.wordle import Wordle, marks, words
from dfc.games.strategies.information import entropy
from dfc.games.strategies.strategy import Strategies

# Bounds on the work of one choice; with them a choice takes some 10 ms.
_GUESSES = 40  # candidates whose split is computed
_SAMPLE = 250  # candidates among which it is computed


# ---- Wordle -------------------------------------------------------------------------------------------------------


def _wordle_simple(game: Wordle, _seat: int, chance: Chance) -> str:
    """A random word that agrees with every answer so far."""
    found = _possible_words(game.length, game.feedback == "standard", tuple(game.turns))
    return tagged(found[chance.below(len(found))])


def _wordle_strong(game: Wordle, _seat: int, _chance: Chance) -> str:
    """Of the words that agree with every answer so far the one whose answer has the highest entropy."""
    return tagged(_best_word(game.length, game.feedback == "standard", tuple(game.turns)))


@functools.lru_cache(maxsize=256)
def _possible_words(length: int, standard: bool, turns: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Returns the words that agree with all turns; all words if none does (a target from elsewhere)."""
    if not turns:
        return words(length)
    guess, told = turns[-1]
    before = _possible_words(length, standard, turns[:-1])
    found = tuple(word for word in before if word != guess and marks(guess, word, standard=standard) == told)
    return found or words(length)


@functools.lru_cache(maxsize=4096)
def _best_word(length: int, standard: bool, turns: tuple[tuple[str, str], ...]) -> str:
    found = _possible_words(length, standard, turns)
    if len(found) <= 2:
        return found[0]
    # Words of letters that about half of the candidates have split them best; the count of a letter stands for that.
    having = collections.Counter(letter for word in found for letter in set(word))
    worth = {letter: count * (len(found) - count) for letter, count in having.items()}
    guesses = sorted(found, key=lambda word: (-sum(worth[letter] for letter in set(word)), word))[:_GUESSES]
    sample = _spread(found, _SAMPLE)
    return max(guesses, key=lambda guess: _told(marks(guess, word, standard=standard) for word in sample))


# ---- Mastermind ---------------------------------------------------------------------------------------------------

_OPENING = "0012"  # one pair; digits are all alike before the first answer


def _mastermind_simple(game: Mastermind, _seat: int, chance: Chance) -> str:
    """A random code that agrees with every answer so far."""
    found = _possible_codes(tuple(game.turns))
    return _spaced(found[chance.below(len(found))])


def _mastermind_strong(game: Mastermind, _seat: int, _chance: Chance) -> str:
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
    sample = _spread(found, _SAMPLE)
    return max(_spread(found, _GUESSES), key=lambda guess: _told(matches(guess, code) for code in sample))


def _spaced(code: str) -> str:
    return tagged(" ".join(code))


# ---- both ---------------------------------------------------------------------------------------------------------


def _told(answers: Iterable[object]) -> float:
    """Returns what an answer tells on average, in nats: the entropy of equally likely cases by their answer."""
    return entropy(collections.Counter(answers).values())


def _spread(items: Sequence[str], number: int) -> Sequence[str]:
    """Returns at most `number` of the items, evenly spread over the sequence."""
    if len(items) <= number:
        return items
    return [items[position * len(items) // number] for position in range(number)]


STRATEGIES = (
    Strategies(Wordle, _wordle_simple, _wordle_strong),
    Strategies(Mastermind, _mastermind_simple, _mastermind_strong),
)
