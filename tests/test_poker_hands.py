"""The ranking of poker hands against counting five cards at a time, and against the known numbers of hands."""

import itertools
import random
from collections import Counter

import pytest

from dfc.games.textarena import poker_hands
from dfc.games.textarena.poker_hands import CARDS, CATEGORIES, WEIGHTS, category, strength, strength_of_sum


def rank_of_five(hand):
    """(category, deciding ranks) of five cards by counting, written as the rule books say it."""
    ranks = sorted((card // 4 + 2 for card in hand), reverse=True)
    groups = sorted(Counter(ranks).items(), key=lambda group: (group[1], group[0]), reverse=True)
    shape, order = [count for _, count in groups], [rank for rank, _ in groups]
    one_suit = len({card % 4 for card in hand}) == 1
    if ranks == [14, 5, 4, 3, 2]:
        straight = 5
    elif all(a - b == 1 for a, b in itertools.pairwise(ranks)):
        straight = ranks[0]
    else:
        straight = 0
    if straight and one_suit:
        return (8, (straight,))
    if shape == [4, 1]:
        return (7, tuple(order))
    if shape == [3, 2]:
        return (6, tuple(order))
    if one_suit:
        return (5, tuple(ranks))
    if straight:
        return (4, (straight,))
    return ({(3, 1, 1): 3, (2, 2, 1): 2, (2, 1, 1, 1): 1}.get(tuple(shape), 0), tuple(order))


def best_of(hand):
    return max(rank_of_five(five) for five in itertools.combinations(hand, 5))


def in_same_order(hands, oracle):
    """Both rankings agree on every category and give the same order with the same ties."""
    pairs = {(strength(hand), oracle(hand)) for hand in hands}
    ours, theirs = zip(*sorted(pairs), strict=True)
    assert len(set(ours)) == len(set(theirs)) == len(pairs)  # one strength per rank and the other way round
    assert list(theirs) == sorted(theirs)
    assert [CATEGORIES.index(category(value)) for value in ours] == [rank[0] for rank in theirs]


def test_five_cards_rank_as_counting_ranks_them():
    rng = random.Random(1)
    hands = [rng.sample(range(CARDS), 5) for _ in range(100_000)]
    low = range(24)  # few ranks: the rare hands become common
    hands += [rng.sample(low, 5) for _ in range(20_000)]
    hands += [rng.sample(range(suit, CARDS, 4), 5) for suit in range(4) for _ in range(2_000)]
    in_same_order(hands, rank_of_five)


@pytest.mark.parametrize("size", [6, 7])
def test_more_cards_rank_as_their_best_five(size):
    rng = random.Random(size)
    hands = [rng.sample(range(CARDS), size) for _ in range(3_000)]
    hands += [rng.sample(range(24), size) for _ in range(2_000)]  # full houses of two triples, three pairs, four alike
    hands += [rng.sample(sorted({*range(0, CARDS, 4), *range(8)}), size) for _ in range(2_000)]  # flushes of many cards
    in_same_order(hands, best_of)


def test_every_hand_of_five_among_sixteen_cards_ranks_as_counting_ranks_it():
    deck = [*range(12), *range(48, 52)]  # 2 to 4 and the ace
    in_same_order(list(itertools.combinations(deck, 5)), rank_of_five)


def test_the_kinds_of_hands_are_as_many_as_they_must_be():
    # All hands of five, by shape of ranks and suits: the number of hands of each kind is known to combinatorics.
    found = Counter()
    seen = set()
    for ranks in itertools.combinations_with_replacement(range(13), 5):
        counts = Counter(ranks)
        if max(counts.values()) > 4:
            continue
        ways = 1
        suits = Counter()
        hand = []
        for rank, count in counts.items():
            ways *= (0, 4, 6, 4, 1)[count]
            hand += [4 * rank + suit for suit in sorted(range(4), key=lambda s: (suits[s], s))[:count]]
            suits.update(card % 4 for card in hand[-count:])
        if len(counts) == 5:  # the only hands that four of all choices of suits make a flush
            value = strength([4 * rank for rank in ranks])
            found[category(value)] += 4
            seen.add(value)
            ways -= 4
        value = strength(hand)
        found[category(value)] += ways
        seen.add(value)
    assert [found[name] for name in CATEGORIES] == [
        1_302_540,
        1_098_240,
        123_552,
        54_912,
        10_200,
        5_108,
        3_744,
        624,
        40,
    ]
    assert len(seen) == 7_462  # different strengths


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("2c 3c 4c 5c 6c 7c Ac", "Ac 2c 3c 4c 5c 9d 9h"),  # the higher of two straights of one suit
        ("Ac 2d 3h 4s 5c 6d 6h", "Ac 2d 3h 4s 5c 5d 9h"),
        ("9c Td Jh Qs Kc Ad 2h", "9c Td Jh Qs Kc 8d 2h"),
        ("2c 2d 2h Ks Kc Ad Qh", "Ac Kc Qc Jc 9c 2d 2h"),
        ("3c 3d 3h 2s 2c 2d Ah", "3c 3d 3h 2s 2c 8d Ah"),  # the same full house in fact
        ("Ac Ad Kh Ks Qc Qd 2h", "Ac Ad Kh Ks Jc 2d 3h"),
    ],
)
def test_famous_comparisons(better, worse):
    same = better.startswith("3c")
    first, second = (strength(poker_hands.cards(hand)) for hand in (better, worse))
    assert (first == second) if same else (first > second)


def test_an_ace_is_low_only_in_a_straight_to_the_five():
    assert category(strength(poker_hands.cards("Qc Kd Ah 2s 3c"))) == "high card"
    assert category(strength(poker_hands.cards("Ah 2s 3c 4d 5h"))) == "straight"
    assert strength(poker_hands.cards("Ah 2s 3c 4d 5h")) < strength(poker_hands.cards("2s 3c 4d 5h 6h"))


def test_the_strength_of_a_sum_of_weights_is_that_of_the_hand():
    rng = random.Random(5)
    for _ in range(2_000):
        hand = rng.sample(range(CARDS), 7)
        shuffled = rng.sample(hand, 7)
        assert strength_of_sum(sum(WEIGHTS[card] for card in hand), shuffled) == strength(hand)


def test_cards_are_read_as_they_are_written():
    assert poker_hands.cards(poker_hands.text(range(CARDS))) == list(range(CARDS))
    assert poker_hands.text(poker_hands.cards("Ah Td 2c")) == "Ah Td 2c"
    with pytest.raises(ValueError, match="got 'Xh'"):
        poker_hands.cards("Xh")
