"""Bots for Mastermind: guesses that agree with everything told so far; they know all codes, not the hidden one."""

import functools

from dfc.games.bots.bot import GUESSES, SAMPLE, GameBots, any_of, information, spread
from dfc.games.paprika.mastermind import CODES, Mastermind, matches
from dfc.games.paprika.task import tagged
from dfc.games.rng import GameRng

_OPENING = "0012"  # one pair; digits are all alike before the first answer


def _simple(game: Mastermind, _seat: int, rng: GameRng) -> str:
    """A random code that agrees with every answer so far."""
    found = _possible_codes(tuple(game.turns))
    return _spaced(any_of(found, rng))


def _strong(game: Mastermind, _seat: int, _chance: GameRng) -> str:
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


BOTS = (GameBots(Mastermind, _simple, _strong),)
