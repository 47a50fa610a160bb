"""Bots for the word games of clembench, for all seats; no guesser looks at what it has to guess.

Codenames: they know the table of groups; the guesser never sees whose a word is. Guess what: they know the table.
Private and shared: both answer what is asked; they differ in what they remember of it. Taboo: they know the table of
words; the guesser sees the clues only.
"""

import functools
from collections.abc import Iterable

from dfc.games.bots.bot import GameBots, any_of, any_of_the_best
from dfc.games.dialogue import private_shared
from dfc.games.dialogue.codenames import ASSASSIN, GIVER, NEUTRAL, OPPONENT, OWN, Codenames, groups, pool
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
from dfc.games.dialogue.private_shared import PrivateShared
from dfc.games.dialogue.taboo import DESCRIBER, Taboo, table
from dfc.games.dialogue.words import bare, stem, stems
from dfc.games.rng import GameRng

# ---- Codenames --------------------------------------------------------------------------------------------------

_VALUE_OF = {OWN: 1.0, NEUTRAL: -1.0, OPPONENT: -2.0, ASSASSIN: -100.0}  # of the word that a guess reveals


def _simple_codenames(game: Codenames, seat: int, rng: GameRng) -> str:
    """Gives a clue for as many words as it fits, whoever else it fits; guesses at random among words that fit."""
    if seat == GIVER:
        actions = game.legal_actions()
        most = max(action.count(",") for action in actions)
        return any_of([action for action in actions if action.count(",") == most], rng)
    return _random_guess(game, rng)


def _strong_codenames(game: Codenames, seat: int, rng: GameRng) -> str:
    """Gives the clue to which the most words of the team are nearest; guesses the open words nearest to the clue."""
    if seat == GIVER:
        return _best_clue(game)
    rank = _nearness(game.clue)
    near = sorted((word for word in game.hidden() if word in rank), key=lambda word: rank[word])
    return f"GUESS: {', '.join(near[: len(game.targets)])}" if near else _random_guess(game, rng)


def _best_clue(game: Codenames) -> str:
    """Returns the clue by which the strong guesser finds most: a name of a group, or another word of the table."""
    hidden, own = game.hidden(), game.hidden(OWN)
    found = []
    for clue in (*groups(), *sorted(pool("all"))):
        rank = _nearness(clue)
        near = sorted((word for word in hidden if word in rank), key=lambda word: rank[word])
        number = next((at for at, word in enumerate(near) if game.kinds[word] != OWN), len(near))
        value = float(number) if number or not near else _VALUE_OF[game.kinds[near[0]]]
        found.append((value, f"CLUE: {clue}\nTARGETS: {', '.join(near[:number] or own[:1])}", clue))
    found.sort(key=lambda each: -each[0])
    allowed = (action for _, action, clue in found if game.clue_problem(clue) is None)
    return next(allowed, game.legal_actions()[0])


@functools.cache
def _nearness(clue: str) -> dict[str, int]:
    """Returns the words of the table, numbered: those of the clue's groups, then of groups that share a word, ...

    In a list the words beside the clue are nearer than others.
    """
    found = dict.fromkeys(groups().get(clue, ()))
    beside = [
        (abs(at - words.index(clue)), w) for words in groups().values() if clue in words for at, w in enumerate(words)
    ]
    found |= dict.fromkeys(word for _, word in sorted(beside, key=lambda each: each[0]))
    queue = list(found)
    for word in queue:
        for words in groups().values():
            if word in words:
                queue += [other for other in words if other not in found]
                found |= dict.fromkeys(words)
    return {word: rank for rank, word in enumerate(found)}


def _random_guess(game: Codenames, rng: GameRng) -> str:
    hidden = game.hidden()
    fitting = [word for word in groups().get(game.clue, ()) if word in hidden]
    number = min(len(game.targets), len(fitting))
    words = [fitting.pop(rng.randrange(len(fitting))) for _ in range(number)]
    return f"GUESS: {', '.join(words or [any_of(hidden, rng)])}"


# ---- Guess what -------------------------------------------------------------------------------------------------

_ALIKE = 0.5  # share of words that a question has in common with one of the table that is answered in its place


def _simple_guess_what(game: GuessWhat, seat: int, rng: GameRng) -> str:
    """Asks any question that divides what is left, guesses among the last two; says no to questions it does not know.

    It does so too in the last round, whatever is left.
    """
    if seat == ANSWERER:
        return _answer(game, alike=1.0)
    left = _left(game)
    if len(left) <= 2 or game.round == game.rounds or not splitting(left):
        return f"{GUESS} {bare(any_of(sorted(left), rng))}"
    return f"{QUESTION} {any_of(list(splitting(left)), rng)}"


def _strong_guess_what(game: GuessWhat, seat: int, rng: GameRng) -> str:
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
            (len(said & words) / max(1, len(said | words)), question) for question, words in _stems_of_questions()
        )
        known = questions()[similar] if share >= alike else frozenset()
    return f"{ANSWER} {'yes' if game.instance.target in known else 'no'}"


@functools.cache
def _stems_of_questions() -> tuple[tuple[str, frozenset[str]], ...]:
    return tuple((question, frozenset(stems(question))) for question in questions())


# ---- Private and shared -----------------------------------------------------------------------------------------


def _simple_private_shared(game: PrivateShared, _seat: int, _chance: GameRng) -> str:
    """Remembers of the conversation only what it answered last."""
    return _reply(game, game.aside and game.probe[0] == len(game.filled) - 1)


def _strong_private_shared(game: PrivateShared, _seat: int, _chance: GameRng) -> str:
    """Remembers all that it was asked."""
    return _reply(game, game.aside and game.shared_from[game.probe[0]] < len(game.filled))


def _reply(game: PrivateShared, known: bool) -> str:
    if game.aside:
        return f"{private_shared.ASIDE} {'yes' if known else 'no'}"
    return f"{private_shared.ANSWER} {game.form.values[len(game.filled)]}"


# ---- Taboo ------------------------------------------------------------------------------------------------------

_HINT, _TABOO = 2, 1  # what a word of a clue says for a target


def _simple_taboo(game: Taboo, seat: int, rng: GameRng) -> str:
    """Gives a hint that was not given yet, at random; guesses at random among words that fit the last clue."""
    if seat == DESCRIBER:
        hints = _hints(game)
        fresh = [hint for hint in hints if hint not in game.clues]
        return f"CLUE: {any_of(fresh or hints, rng)}"
    return _guess(game, game.clues[-1:], rng, least=1)


def _strong_taboo(game: Taboo, seat: int, rng: GameRng) -> str:
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


BOTS = (
    GameBots(Codenames, _simple_codenames, _strong_codenames),
    GameBots(GuessWhat, _simple_guess_what, _strong_guess_what),
    GameBots(PrivateShared, _simple_private_shared, _strong_private_shared),
    GameBots(Taboo, _simple_taboo, _strong_taboo),
)
