"""Ranks of poker hands: the best five of five to seven cards, as one integer to compare.

A card is an integer 4 * rank + suit: ranks 0 (two) to 12 (ace), suits in the order of `SUITS`. In text it is a rank of
`RANKS` and a suit, ``Th`` is the ten of hearts.

How: every card has a weight that holds one counter per rank (3 bits) and one per suit (4 bits); the sum of the weights
of a hand is its histogram. Which ranks come how often decides the strength unless five cards have one suit. There are
49,205 such histograms of seven cards; each is ranked when it is first met and then looked up.
"""

from collections.abc import Iterable, Sequence

RANKS = "23456789TJQKA"
SUITS = "cdhs"
CATEGORIES = (
    "high card",
    "pair",
    "two pair",
    "three of a kind",
    "straight",
    "flush",
    "full house",
    "four of a kind",
    "straight flush",
)
CARDS = len(RANKS) * len(SUITS)

_SUIT_BITS = 3 * len(RANKS)  # the counters of suits begin above those of ranks
_RANK_MASK = (1 << _SUIT_BITS) - 1
# 3 more than it counts, so that bit 3 of a suit's counter is set from five cards on.
_BIAS = sum(3 << _SUIT_BITS + 4 * suit for suit in range(4))
_FLUSH = sum(8 << _SUIT_BITS + 4 * suit for suit in range(4))
_WHEEL = 0b1000000001111  # ace to five, where the ace counts as one

WEIGHTS = tuple((1 << 3 * (card >> 2)) + (1 << _SUIT_BITS + 4 * (card & 3)) for card in range(CARDS))
"""One weight per card; the sum over a hand is what `strength_of_sum` takes."""

_TEXTS = tuple(rank + suit for rank in RANKS for suit in SUITS)


def text(cards: Iterable[int]) -> str:
    """Returns cards in words, e.g. ``Ah Td``."""
    return " ".join([_TEXTS[card] for card in cards])


def cards(names: str) -> list[int]:
    """Returns the cards named in a text such as ``Ah Td``; inverts `text`.

    Raises:
      ValueError: a name is no card.
    """
    known = {name: card for card, name in enumerate(_TEXTS)}
    for name in names.split():
        if name not in known:
            raise ValueError(f"a card is a rank of {RANKS} and a suit of {SUITS}, got {name!r}")
    return [known[name] for name in names.split()]


def strength(hand: Sequence[int]) -> int:
    """Returns the strength of the best five of five to seven different cards; the larger one wins, equal ones tie.

    The value is category * 16**5 + the deciding ranks as five hexadecimal digits, the most important first: the ranks
    of four, three or two alike, then the single cards; of a straight its highest card only.
    """
    return strength_of_sum(sum([WEIGHTS[card] for card in hand]), hand)


def strength_of_sum(weight: int, hand: Sequence[int]) -> int:
    """Returns `strength` of a hand whose sum of `WEIGHTS` is known; the cards themselves only count for a flush."""
    flush = weight + _BIAS & _FLUSH
    if not flush:
        return _BY_RANKS[weight & _RANK_MASK]
    suit = (flush.bit_length() - 4 - _SUIT_BITS) >> 2
    # Five cards of one suit leave no room for four alike or a full house among seven.
    ranks = 0
    for card in hand:
        if card & 3 == suit:
            ranks |= 1 << (card >> 2)
    return _BY_FLUSH[ranks]


def category(value: int) -> str:
    """Returns the name in `CATEGORIES` of a strength."""
    return CATEGORIES[value >> 20]


def _value(kind: str, ranks: Iterable[int]) -> int:
    digits = [*ranks, 0, 0, 0, 0, 0][:5]
    value = CATEGORIES.index(kind)
    for digit in digits:
        value = value << 4 | digit
    return value


def _highest_straight(ranks: int) -> int | None:
    """Returns the highest card of the best straight in a set of ranks (bit r: rank r), or None."""
    runs = ranks & ranks >> 1 & ranks >> 2 & ranks >> 3 & ranks >> 4
    if runs:
        return runs.bit_length() + 3
    return 3 if ranks & _WHEEL == _WHEEL else None


class _ByFlush(dict[int, int]):
    """Strength by the set of ranks of one suit, five or more."""

    def __missing__(self, ranks: int) -> int:
        top = _highest_straight(ranks)
        if top is None:
            value = _value("flush", [rank for rank in range(12, -1, -1) if ranks >> rank & 1])
        else:
            value = _value("straight flush", [top])
        self[ranks] = value
        return value


class _ByRanks(dict[int, int]):
    """Strength without a flush, by the histogram of ranks (3 bits each)."""

    def __missing__(self, histogram: int) -> int:
        value = self[histogram] = self._rank(histogram)
        return value

    @staticmethod
    def _rank(histogram: int) -> int:
        count = {rank: histogram >> 3 * rank & 7 for rank in range(12, -1, -1)}
        held = [rank for rank in count if count[rank]]
        best = max(held, key=lambda rank: (count[rank], rank))
        rest = [rank for rank in held if rank != best]
        pairs = [rank for rank in rest if count[rank] >= 2]
        top = _highest_straight(sum(1 << rank for rank in held))
        most = count[best]
        if most == 4:
            kind, ranks = "four of a kind", [best, rest[0]]
        elif most == 3 and pairs:
            kind, ranks = "full house", [best, pairs[0]]
        elif top is not None:
            kind, ranks = "straight", [top]
        elif most == 3:
            kind, ranks = "three of a kind", [best, *rest[:2]]
        elif pairs:
            kind, ranks = "two pair", [best, pairs[0], next(rank for rank in rest if rank != pairs[0])]
        elif most == 2:
            kind, ranks = "pair", [best, *rest[:3]]
        else:
            kind, ranks = "high card", held[:5]
        return _value(kind, ranks)


_BY_FLUSH = _ByFlush()
_BY_RANKS = _ByRanks()
