"""Bots for Simple Negotiation."""

import functools
import itertools
from collections.abc import Iterator

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.rng import GameRng
from dfc.games.textarena.simple_negotiation import (
    BASE_VALUES,
    RESOURCES,
    VALUE_RANGES,
    Amounts,
    SimpleNegotiation,
    amounts,
    offer_text,
)

_KINDS = range(len(RESOURCES))
_MEANS = tuple((low + high) / 2 for low, high in VALUE_RANGES)
_TAKEN = (1, 2, 3, 5, 8, 12, 16, 20)  # units asked for that the strong player considers
_START = 21  # equally likely numbers of units at the start, 5 to 25
_ACCEPT = "[Accept]"
_WORDS = ("I have no offer for you now.", "Let me hear your offer.", "That is not enough for me.")


def _simple(game: SimpleNegotiation, seat: int, rng: GameRng) -> str:
    """Accepts every own gain; offers a little of what it values least for what it values most, beside base values."""
    own = game.values[seat]
    if _acceptable(game, seat) and _own_gain(game, seat) > 0:
        return _ACCEPT
    low, high = (pick(_KINDS, key=lambda k: own[k] / BASE_VALUES[k]) for pick in (min, max))
    a, b = next((a, b) for a in range(1, 9) for b in range(1, 9) if a * BASE_VALUES[low] == b * BASE_VALUES[high])
    if low == high or game.stock[seat][low] < a or a * own[low] >= b * own[high]:
        return any_of(_WORDS, rng)
    return _single(low, a, high, b)


def _strong(game: SimpleNegotiation, seat: int, rng: GameRng) -> str:
    """Accepts an own gain that is larger than the opponent's estimated one; else makes its best offer.

    An offer is one resource for another. Its worth is the probability that it is accepted times the lead it is then
    expected to bring: own gain less the opponent's, whose values are uniform over those of the rules' ranges by which
    it would not have gained by any offer that it refused.
    """
    if _acceptable(game, seat):
        give, take = amounts(game.offer or "")
        other_gain = sum(mean * (got - paid) for mean, got, paid in zip(_MEANS, take, give, strict=True))
        if _own_gain(game, seat) > max(0.0, other_gain):
            return _ACCEPT
    refused = _refused(game, seat)
    best, choice = 0.0, ""
    for (i, a, j, b), holds in _candidates(game, seat):
        accepted, other_gain = _answer(i, a, j, b, refused.get((i, j), ()))
        value = holds * accepted * (b * game.values[seat][j] - a * game.values[seat][i] - other_gain)
        if value > best:
            best, choice = value, _single(i, a, j, b)
    return choice or any_of(_WORDS, rng)


def _candidates(game: SimpleNegotiation, seat: int) -> Iterator[tuple[tuple[int, int, int, int], float]]:
    """Yields offers (i, a, j, b), a of i for b of j, of an own gain, and how likely the opponent holds the b of j.

    Only offers that an opponent with fitting values would accept; of the possible a at most seven per b.
    """
    own, stock = game.values[seat], game.stock[seat]
    net = _bought_by_opponent(game, seat)
    for i, j in itertools.permutations(_KINDS, 2):
        for b in _TAKEN:
            holds = min(1.0, (26 - b + net[j]) / _START)
            if holds <= 0.0:
                break
            most = min(stock[i], (b * own[j] - 1) // own[i])
            least = b * VALUE_RANGES[j][0] // VALUE_RANGES[i][1] + 1
            for a in range(least, most + 1, max(1, (most - least + 6) // 7)):
                yield (i, a, j, b), holds


def _acceptable(game: SimpleNegotiation, seat: int) -> bool:
    if game.offer is None:
        return False
    return all(held >= units for held, units in zip(game.stock[seat], amounts(game.offer)[1], strict=True))


def _own_gain(game: SimpleNegotiation, seat: int) -> int:
    give, take = amounts(game.offer or "")
    return sum(value * (got - paid) for value, got, paid in zip(game.values[seat], give, take, strict=True))


def _bought_by_opponent(game: SimpleNegotiation, seat: int) -> list[int]:
    """Returns by resource how many units the opponent has more than at the start."""
    net = [0] * len(RESOURCES)
    for maker, offer, accepted in game.offers:
        if accepted:
            sign = 1 if maker == seat else -1
            give, take = amounts(offer)
            net = [n + sign * (g - t) for n, g, t in zip(net, give, take, strict=True)]
    return net


def _refused(game: SimpleNegotiation, seat: int) -> dict[tuple[int, int], tuple[tuple[int, int], ...]]:
    """Returns by (resource given, resource asked for) the units (a, b) of own offers that were not accepted."""
    found: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}
    for maker, offer, accepted in game.offers:
        give, take = amounts(offer)
        if maker == seat and not accepted and len(RESOURCES) - 1 == give.count(0) == take.count(0):
            i, j = (next(k for k in _KINDS if side[k]) for side in (give, take))
            found[i, j] = (*found.get((i, j), ()), (give[i], take[j]))
    return found


@functools.lru_cache(maxsize=1 << 16)
def _answer(i: int, a: int, j: int, b: int, refused: tuple[tuple[int, int], ...]) -> tuple[float, float]:
    """Returns the probability that a of i for b of j is accepted, and the mean gain of whoever accepts.

    The opponent is equally likely one that accepts any gain and one that also wants more than the proposer gains by
    mean values. Its values of i and j are not such that it would have gained by an offer (units of i, of j) in
    `refused`.
    """
    (low_i, high_i), (low_j, high_j) = VALUE_RANGES[i], VALUE_RANGES[j]
    values = [
        (u, v)
        for u in range(low_i, high_i + 1)
        for v in range(low_j, high_j + 1)
        if all(p * u <= q * v for p, q in refused)
    ]
    gains = [a * u - b * v for u, v in values]
    bar = max(0.0, b * _MEANS[j] - a * _MEANS[i])
    weights = [((gain > 0) + (gain > bar)) / 2 for gain in gains]
    total = sum(weights)
    if not total:
        return 0.0, 0.0
    return total / len(gains), sum(w * gain for w, gain in zip(weights, gains, strict=True)) / total


def _single(i: int, a: int, j: int, b: int) -> str:
    give: Amounts = tuple(a * (k == i) for k in _KINDS)
    take: Amounts = tuple(b * (k == j) for k in _KINDS)
    return offer_text(give, take)


BOTS = (GameBots(SimpleNegotiation, _simple, _strong),)
