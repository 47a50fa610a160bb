"""Which guess tells most, of those that agree with everything told so far: what Wordle and Mastermind share."""

import collections
from collections.abc import Iterable, Sequence

from dfc.games.bots.information import entropy

# Bounds on the work of one choice; with them a choice takes some 10 ms.
GUESSES = 40  # candidates whose split is computed
SAMPLE = 250  # candidates among which it is computed


def information(answers: Iterable[object]) -> float:
    """Returns what an answer tells on average, in nats: the entropy of equally likely cases by their answer."""
    return entropy(collections.Counter(answers).values())


def spread(items: Sequence[str], number: int) -> Sequence[str]:
    """Returns at most `number` of the items, evenly spread over the sequence."""
    if len(items) <= number:
        return items
    return [items[position * len(items) // number] for position in range(number)]
