"""Bots for Guess what, for both seats. They know the table; the guesser never looks at the target."""

import functools

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.dialogue.guess_what import (
    ANSWER,
    ANSWERER,
    GUESS,
    QUESTION,
    GuessWhat,
    questions,
    questions_needed,
    splitting,
)
from dfc.games.dialogue.words import bare, stems
from dfc.games.rng import GameRng

_ALIKE = 0.5  # share of words that a question has in common with one of the table that is answered in its place


def _simple(game: GuessWhat, seat: int, rng: GameRng) -> str:
    """Asks any question that divides what is left, guesses among the last two; says no to questions it does not know.

    It does so too in the last round, whatever is left.
    """
    if seat == ANSWERER:
        return _answer(game, alike=1.0)
    left = _left(game)
    if len(left) <= 2 or game.round == game.rounds or not splitting(left):
        return f"{GUESS} {bare(any_of(sorted(left), rng))}"
    return f"{QUESTION} {any_of(list(splitting(left)), rng)}"


def _strong(game: GuessWhat, seat: int, rng: GameRng) -> str:
    """Asks the question after which fewest are needed at worst; takes one of the table for a question like it."""
    if seat == ANSWERER:
        return _answer(game, alike=_ALIKE)
    left = _left(game)
    if len(left) == 1 or game.round == game.rounds or not splitting(left):
        return f"{GUESS} {bare(any_of(sorted(left), rng))}"
    scores = {
        question: (max(map(questions_needed, (some, left - some))), abs(2 * len(some) - len(left)))
        for question, some in splitting(left).items()
    }
    best = min(scores.values())
    return f"{QUESTION} {any_of([question for question, value in scores.items() if value == best], rng)}"


def _left(game: GuessWhat) -> frozenset[str]:
    """Returns the candidates that agree with all answers to questions of the table; all of them if none does."""
    everything = left = frozenset(game.instance.candidates)
    for question, answer in zip(game.questions, game.answers, strict=False):
        yes = questions().get(question)
        if yes is not None:
            left &= yes if answer == "yes" else everything - yes
    return left or everything


def _answer(game: GuessWhat, alike: float) -> str:
    asked = game.questions[-1]
    known = questions().get(asked)
    if known is None:
        said = set(stems(bare(asked)))
        share, similar = max(
            (len(said & words) / max(1, len(said | words)), question) for question, words in _stems_of_table()
        )
        known = questions()[similar] if share >= alike else frozenset()
    return f"{ANSWER} {'yes' if game.instance.target in known else 'no'}"


@functools.cache
def _stems_of_table() -> tuple[tuple[str, frozenset[str]], ...]:
    return tuple((question, frozenset(stems(question))) for question in questions())


BOTS = (GameBots(GuessWhat, _simple, _strong),)
