"""Bots for Codenames, for both seats. They know the table of groups; the guesser never sees whose a word is."""

import functools

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.dialogue.codenames import ASSASSIN, GIVER, NEUTRAL, OPPONENT, OWN, Codenames, groups, pool
from dfc.games.rng import GameRng

_VALUE_OF = {OWN: 1.0, NEUTRAL: -1.0, OPPONENT: -2.0, ASSASSIN: -100.0}  # of the word that a guess reveals


def _simple(game: Codenames, seat: int, rng: GameRng) -> str:
    """Gives a clue for as many words as it fits, whoever else it fits; guesses at random among words that fit."""
    if seat == GIVER:
        actions = game.legal_actions()
        most = max(action.count(",") for action in actions)
        return any_of([action for action in actions if action.count(",") == most], rng)
    return _random_guess(game, rng)


def _strong(game: Codenames, seat: int, rng: GameRng) -> str:
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


BOTS = (GameBots(Codenames, _simple, _strong),)
