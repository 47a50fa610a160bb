"""Bots for Taboo, for both seats. They know the table of words; the guesser sees the clues only, never the target."""

import functools
from collections.abc import Iterable

from dfc.games.bots.bot import GameBots, any_of, any_of_the_best
from dfc.games.dialogue.taboo import DESCRIBER, Taboo, table
from dfc.games.dialogue.words import bare, stem, stems
from dfc.games.rng import GameRng

_HINT, _TABOO = 2, 1  # what a word of a clue says for a target


def _simple(game: Taboo, seat: int, rng: GameRng) -> str:
    """Gives a hint that was not given yet, at random; guesses at random among words that fit the last clue."""
    if seat == DESCRIBER:
        hints = _hints(game)
        fresh = [hint for hint in hints if hint not in game.clues]
        return f"CLUE: {any_of(fresh or hints, rng)}"
    return _guess(game, game.clues[-1:], rng, least=1)


def _strong(game: Taboo, seat: int, rng: GameRng) -> str:
    """Describes with all hints at once; guesses the word for which the words of all clues say most."""
    if seat == DESCRIBER:
        return f"CLUE: {', '.join(_hints(game))}"
    return _guess(game, game.clues, rng)


def _hints(game: Taboo) -> list[str]:
    """Returns the table's hints for the target that are no taboo; for a word from elsewhere what is listed."""
    known = next((entry.hints for entry in table() if entry.target == game.target), ())
    allowed = [hint for hint in known if game.may_be_said(hint)]
    return allowed or [action.removeprefix("CLUE: ") for action in game.legal_actions()]


def _guess(game: Taboo, clues: Iterable[str], rng: GameRng, least: int = 0) -> str:
    """Returns a guess that was not made yet: one of the best, or with `least` any of which the clues say that much."""
    said = {found for clue in clues for found in stems(clue)}
    tried = {bare(guess) for guess in game.guesses}
    scores = {
        target: _HINT * len(said & hints) + _TABOO * len(said & taboo)
        for target, hints, taboo in _stems_of_table()
        if target not in tried
    }
    fitting = [target for target, value in scores.items() if value >= least] if least else []
    if fitting:
        return f"GUESS: {any_of(fitting, rng)}"
    return f"GUESS: {any_of_the_best(list(scores), list(scores.values()), rng)}"


@functools.cache
def _stems_of_table() -> tuple[tuple[str, frozenset[str], frozenset[str]], ...]:
    return tuple(
        (entry.target, frozenset(map(stem, entry.hints)), frozenset(map(stem, entry.taboo))) for entry in table()
    )


BOTS = (GameBots(Taboo, _simple, _strong),)
