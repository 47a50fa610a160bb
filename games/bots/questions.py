"""What the bots and simulators of Twenty Questions and Guess My City share.

The agents know what everybody may know, the pool of topics or cities of both splits with the table of answers, and
what they have heard (`World.heard`); not the secret.

World and judge answer from the scenario's facts. Which candidates of the pool some words name, and whether as a guess,
is read by `dfc.games.paprika.candidates`, which knows the pool and not the secret. So an answer depends on the secret
in two ways only: by its facts, and by the one candidate that is guessed. Words that name several
candidates are answered by the games themselves.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from dfc.games.bots.bot import any_of, any_of_the_best, entropy
from dfc.games.paprika.world import World
from dfc.games.rng import GameRng


@dataclasses.dataclass(frozen=True)
class Table:
    """What an agent can ask, and which secrets give which answer; a set of secrets is a number with a bit for each.

    Attributes:
      guesses: the question that names each secret.
      masks: by question, by answer, the secrets that give it.
    """

    guesses: tuple[str, ...]
    masks: Mapping[str, Mapping[str, int]]

    def left(self, heard: Iterable[tuple[str, str]]) -> int:
        """Returns the secrets that agree with what was heard; all of them again where none does.

        Of a reply that is none of the known answers, "yes" or "no" at its beginning counts, and else nothing.
        """
        everything = left = (1 << len(self.guesses)) - 1
        named = {question: number for number, question in enumerate(self.guesses)}
        for question, reply in heard:
            if question in named:
                left &= ~(1 << named[question])
                continue
            answers = self.masks.get(question)
            if answers is None:
                continue
            if reply in answers:
                left &= answers[reply]
                continue
            first = reply[:3].lower().rstrip(".,! ")
            if first in {"yes", "no"}:
                alike = [mask for answer, mask in answers.items() if answer.lower().startswith(first)]
                left &= alike[0] if alike else everything
        return left or everything

    def splitting(self, left: int) -> list[tuple[float, str]]:
        """Returns the questions that tell some of these secrets apart, with what their answer tells, in nats."""
        found = []
        for question, answers in self.masks.items():
            counts = [count for mask in answers.values() if (count := (mask & left).bit_count())]
            if len(counts) > 1:
                found.append((entropy(counts), question))
        return found


def masks_of(rows: Iterable[Iterable[tuple[str, str]]]) -> dict[str, dict[str, int]]:
    """Returns `Table.masks` from the (question, answer) pairs of each secret."""
    masks: dict[str, dict[str, int]] = {}
    for number, row in enumerate(rows):
        for question, answer in row:
            answers = masks.setdefault(question, {})
            answers[answer] = answers.get(answer, 0) | 1 << number
    return masks


def simple(table_of: Callable[[World], Table]) -> Callable[[World, int, GameRng], str]:
    """Returns the simple bot of a game whose table `table_of` gives."""

    def choose(game: World, _seat: int, rng: GameRng) -> str:
        """Half of its turns it asks at random what can still tell something, then it guesses what agrees."""
        table = table_of(game)
        if not table.guesses:
            return any_of(game.legal_actions(), rng)  # of a pool that is not ours nothing is known
        left = table.left(game.heard)
        splitting = table.splitting(left)
        if splitting and 2 * len(game.heard) < game.max_turns:
            return any_of(splitting, rng)[1]
        return _any_guess(table, left, rng)

    return choose


def strong(table_of: Callable[[World], Table]) -> Callable[[World, int, GameRng], str]:
    """Returns the strong bot of a game whose table `table_of` gives."""

    def choose(game: World, _seat: int, rng: GameRng) -> str:
        """It asks the question whose answer tells most; with two secrets left, or none to ask, it guesses."""
        table = table_of(game)
        if not table.guesses:
            return any_of(game.legal_actions(), rng)  # of a pool that is not ours nothing is known
        left = table.left(game.heard)
        splitting = table.splitting(left) if left.bit_count() > 2 else []
        if splitting and len(game.heard) + 1 < game.max_turns:
            return any_of_the_best(splitting, [told for told, _ in splitting], rng)[1]
        return _any_guess(table, left, rng)

    return choose


def _any_guess(table: Table, left: int, rng: GameRng) -> str:
    return any_of([guess for number, guess in enumerate(table.guesses) if left >> number & 1], rng)
