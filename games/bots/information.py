"""How much is not known: what strategies that ask or try for information have in common."""

import math
from collections.abc import Iterable


def entropy(weights: Iterable[float]) -> float:
    """Returns the entropy in nats of cases with these weights: -sum(p * ln p), p = weight / sum of all weights.

    Weights of 0 count for nothing.

    >>> round(entropy([1, 1, 2]) / math.log(2), 12)
    1.5
    """
    counted = [weight for weight in weights if weight > 0.0]
    total = sum(counted)
    return -sum(weight / total * math.log(weight / total) for weight in counted)
