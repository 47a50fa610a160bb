"""What the bots and simulators of Twenty Questions and Guess My City share.

The agents know what everybody may know, the pool of topics or cities of both splits with the table of answers, and
what they have heard (`World.heard`); not the secret.

World and judge answer from the scenario's facts. Which candidates of the pool some words name, and whether as a guess,
is read by `dfc.games.paprika.candidates`, which knows the pool and not the secret. So an answer depends on the secret
in two ways only: by the table of its facts, and by the one candidate that is guessed. Words that name several
candidates are answered by the games themselves.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from dfc.games.bots.information import entropy
from dfc.games.paprika.scenario import Scenario
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
    """Returns the simple strategy of a game whose table `table_of` gives."""

    def choose(game: World, _seat: int, rng: GameRng) -> str:
        """Half of its turns it asks at random what can still tell something, then it guesses what agrees."""
        table = table_of(game)
        if not table.guesses:
            return _anything(game, rng)
        left = table.left(game.heard)
        splitting = table.splitting(left)
        if splitting and 2 * len(game.heard) < game.max_turns:
            return splitting[rng.randrange(len(splitting))][1]
        return _any_guess(table, left, rng)

    return choose


def strong(table_of: Callable[[World], Table]) -> Callable[[World, int, GameRng], str]:
    """Returns the strong strategy of a game whose table `table_of` gives."""

    def choose(game: World, _seat: int, rng: GameRng) -> str:
        """It asks the question whose answer tells most; with two secrets left, or none to ask, it guesses."""
        table = table_of(game)
        if not table.guesses:
            return _anything(game, rng)
        left = table.left(game.heard)
        splitting = table.splitting(left) if left.bit_count() > 2 else []
        if splitting and len(game.heard) + 1 < game.max_turns:
            best = max(told for told, _ in splitting)
            equal = [question for told, question in splitting if told == best]
            return equal[rng.randrange(len(equal))]
        return _any_guess(table, left, rng)

    return choose


def _any_guess(table: Table, left: int, rng: GameRng) -> str:
    candidates = [number for number in range(len(table.guesses)) if left >> number & 1]
    return table.guesses[candidates[rng.randrange(len(candidates))]]


def _anything(game: World, rng: GameRng) -> str:
    """Returns any listed action: of a pool that is not ours nothing is known."""
    actions = game.legal_actions()
    return actions[rng.randrange(len(actions))]


def scenario_of(game: World) -> Scenario:
    """Returns the scenario of a game.

    Raises:
      ValueError: the game has not begun.
    """
    if game.scenario is None:
        raise ValueError(f"{game.id}: no task before reset(); call reset(seed) first")
    return game.scenario


def with_facts(game: World) -> Scenario:
    """Returns the scenario of a game.

    Raises:
      ValueError: the game has not begun, or the scenario has no facts.
    """
    scenario = scenario_of(game)
    if not scenario.facts:
        raise ValueError(
            f"{game.id}: scenarios loaded from a file hold no facts, so no script can answer for their world; seat a "
            "chat model as world (an endpoint), or leave `scenarios` empty to play this package's own"
        )
    return scenario
