"""Bots for the games of TextArena for two where each seat knows something that the other one does not.

In Poker they see their own two cards, board, bets and chips, and deal unseen cards again at random.
"""

import functools
import itertools
import math
import random
import re
from collections.abc import Iterator, Sequence

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.rng import GameRng
from dfc.games.textarena.liars_dice import LiarsDice
from dfc.games.textarena.poker import Poker
from dfc.games.textarena.poker_hands import CARDS, WEIGHTS, category, strength, strength_of_sum
from dfc.games.textarena.simple_negotiation import (
    BASE_VALUES,
    RESOURCES,
    VALUE_RANGES,
    Amounts,
    SimpleNegotiation,
    amounts,
    offer_text,
)
from dfc.games.textarena.truth_and_deception import ASSERTIONS, DECEIVER, TruthAndDeception

# ---- Liar's Dice ------------------------------------------------------------------------------------------------


def _simple_liars_dice(game: LiarsDice, seat: int, rng: GameRng) -> str:
    """Calls a bid for which more than a third of the hidden dice would be needed; else raises by the least it can.

    The least is the same quantity on the next face it holds itself, or one more of the same face. It opens with one of
    a face it holds.
    """
    own, hidden = game.hand(seat), game.dice_left[1 - seat]
    quantity, face = game.bid
    if not quantity:
        return f"[Bid: 1, {any_of(own, rng)}]"
    if quantity == len(own) + hidden or quantity - own.count(face) > hidden / 3:
        return "[Call]"
    higher = [f for f in own if f > face]
    return f"[Bid: {quantity}, {higher[0]}]" if higher else f"[Bid: {quantity + 1}, {face}]"


def _strong_liars_dice(game: LiarsDice, seat: int, _chance: GameRng) -> str:
    """Calls what is less likely than not to be true; else makes the lowest raise that is, or the likeliest one.

    Whoever bids a face is taken to hold one of it; all other hidden dice are taken to be fair. Without that trust the
    player calls every honest bid and loses to `_simple_liars_dice`.
    """
    own, hidden = game.hand(seat), game.dice_left[1 - seat]

    quantity, face = game.bid

    def holds(wanted: int, shown: int) -> float:
        trusted = int(quantity > 0 and shown == face)
        return _at_least(wanted - own.count(shown) - trusted, hidden - trusted)

    call_wins = 1.0 - holds(quantity, face) if quantity else 0.0
    if call_wins > 0.5:
        return "[Call]"
    quantities = range(max(quantity, 1), len(own) + hidden + 1)
    raises = [(q, f) for q in quantities for f in range(max(face, 1), 7) if (q, f) != (quantity, face)]
    plausible = next((bid for bid in raises if holds(*bid) >= 0.5), None)
    bid = plausible or max(raises, key=lambda bid: holds(*bid), default=None)
    if bid is None or (plausible is None and holds(*bid) < call_wins):
        return "[Call]"
    return f"[Bid: {bid[0]}, {bid[1]}]"


@functools.cache
def _at_least(count: int, dice: int) -> float:
    """Returns the probability that at least `count` of `dice` fair dice show one given face."""
    return sum(math.comb(dice, k) * 5.0 ** (dice - k) for k in range(max(count, 0), dice + 1)) / 6.0**dice


_CHECK, _FOLD, _CALL = "[Check]", "[Fold]", "[Call]"

# Share of the pot, in percent, that two cards win of a random hand when all five cards come (16,000 deals each):
# ranks from ace to two, two cards of one suit above the diagonal.
_PREFLOP = tuple(
    tuple(map(int, row.split()))
    for row in (
        "85 67 66 66 64 63 62 61 60 60 59 58 57",
        "65 82 63 62 62 60 58 58 56 56 55 54 54",
        "64 62 80 60 59 58 56 54 54 53 52 51 50",
        "64 61 58 77 58 55 54 52 51 49 50 49 47",
        "63 60 58 56 75 53 52 51 48 47 47 45 45",
        "61 58 55 53 52 72 51 49 47 46 44 43 42",
        "59 56 53 52 49 48 69 48 46 45 43 40 41",
        "59 55 52 50 48 46 44 66 45 44 42 40 38",
        "58 54 51 48 46 44 43 42 63 43 41 40 38",
        "57 53 50 47 44 43 42 40 39 59 42 40 37",
        "57 52 48 46 44 40 39 38 38 39 57 39 37",
        "55 52 48 45 43 40 38 37 36 36 35 53 36",
        "55 50 48 44 41 39 37 34 34 34 33 32 50",
    )
)
_DEALS = 150  # per decision on flop and turn: the standard error is 4 percent
_ACE = 12


# ---- Poker: simple ----------------------------------------------------------------------------------------------


def _simple_poker(game: Poker, seat: int, _chance: GameRng) -> str:
    """Plays its two cards by rank before the flop, and later a pair or better that its own cards make."""
    low, high = sorted(card >> 2 for card in game.hand(seat))
    if game.street == 0:
        good = low == high or low >= 8 or high == _ACE  # a pair, two cards from the ten on, or an ace
        fair = high >= 9  # one card from the jack on
    else:
        table = {card >> 2 for card in game.board}
        made = category(strength([*game.hand(seat), *game.board]))
        good = low == high or not table.isdisjoint((low, high)) or made in {"straight", "flush"}
        fair = high >= 11  # king or ace
    actions = game.legal_actions()
    calm = game.smallest_raise == game.big_blind  # nobody has raised by more than the least
    if good and calm and game.can_raise(seat):
        return actions[-2]
    if actions[0] == _CHECK or good or (fair and calm):
        return actions[0]
    return _FOLD


# ---- Poker: strong ----------------------------------------------------------------------------------------------


def _strong_poker(game: Poker, seat: int, rng: GameRng) -> str:
    """Compares its chance to win with the price of a call; bets for value; sits on a lead that blinds cannot take."""
    actions = game.legal_actions()
    hands_after = game.num_rounds - game.round
    lead = game.chips[seat] - game.chips[1 - seat] - game.pot  # if it folds now
    if lead > 2 * (-(-hands_after // 2) * game.big_blind + hands_after // 2 * game.small_blind):
        return _CHECK if actions[0] == _CHECK else _FOLD
    if hands_after == 0 and lead + 2 * game.pot < 0 and game.can_raise(seat):  # this pot would not be enough
        return actions[-1]
    due = min(game.due(seat), game.chips[seat])
    pot = game.pot - game.due(seat) + due  # what a call can win
    share = win_share(game, seat, rng) - _caution(game, due, game.chips[seat])
    size = _size(game, share, due, rng) if game.can_raise(seat) else None
    if size is not None:
        return _sized(actions, game, seat, size)
    if actions[0] == _CHECK:
        return _CHECK
    stays = share > due / (pot + due) or (hands_after == 0 and lead < 0)  # there a fold loses the match
    return _CALL if stays else _FOLD


def _size(game: Poker, share: float, due: int, rng: GameRng) -> float | None:
    """Returns the part of the pot to bet or raise, or None."""
    opens = game.street == 0 and game.smallest_raise == game.big_blind
    if share > 0.85:
        return 1.0
    if share > 0.68 or (share > 0.58 and not due) or (share > 0.5 and opens):
        return 0.6
    bluffs = not due and game.street > 0 and rng.randrange(2) == 0
    return 0.5 if bluffs else None


def _caution(game: Poker, due: int, chips: int) -> float:
    """Returns what a bet takes from the share won of a random hand: who bets holds more, and more for more chips.

    The figures were found by playing against the simple player and random play.
    """
    if not due:
        return 0.0
    relative = 0.12 * min(1.0, due / (game.pot - due)) if game.street else 0.04 * min(1.0, due / (4 * game.big_blind))
    return relative + (0.08 if 3 * due > chips else 0.0)


def _sized(actions: Sequence[str], game: Poker, seat: int, share: float) -> str:
    """Returns the listed bet or raise nearest to a share of the pot after a call."""
    wanted = share * (game.pot + game.due(seat))
    amounts = [action for action in actions if action[1] in "BR"]
    return min(amounts, key=lambda action: abs(int(action[:-1].split()[1]) - wanted))


def win_share(game: Poker, seat: int, rng: GameRng) -> float:
    """Returns the share of the pot that a seat wins on average of a random hand, from 0 to 1.

    Before the flop from a table, on flop and turn by dealing the unseen cards `_DEALS` times, on the river over all
    hands that the opponent can have. Uses nothing but the seat's cards and the board.
    """
    own = game.hand(seat)
    if game.street == 0:
        high, low = sorted(_ACE - (card >> 2) for card in own)
        return _PREFLOP[high][low] / 100 if own[0] & 3 == own[1] & 3 else _PREFLOP[low][high] / 100
    board = list(game.board)
    seen = {*own, *board}
    unseen = [card for card in range(CARDS) if card not in seen]
    if game.street == 3:
        return _share_on_river(own, board, unseen)
    won = 0
    missing = 5 - len(board)
    sample = random.Random(rng.randrange(1 << 62)).sample
    for _ in range(_DEALS):
        drawn = sample(unseen, 2 + missing)
        table = board + drawn[2:]
        first, second = strength([*own, *table]), strength(drawn[:2] + table)
        won += 2 if first > second else first == second
    return won / (2 * _DEALS)


def _share_on_river(own: Sequence[int], board: list[int], unseen: list[int]) -> float:
    value = strength([*own, *board])
    table = sum([WEIGHTS[card] for card in board])
    won = 0
    for k, one in enumerate(unseen):
        with_one = table + WEIGHTS[one]
        for other in unseen[:k]:
            second = strength_of_sum(with_one + WEIGHTS[other], (one, other, *board))
            won += 2 if value > second else value == second
    return won / (len(unseen) * (len(unseen) - 1))


# ---- Simple Negotiation -----------------------------------------------------------------------------------------

_KINDS = range(len(RESOURCES))
_MEANS = tuple((low + high) / 2 for low, high in VALUE_RANGES)
_TAKEN = (1, 2, 3, 5, 8, 12, 16, 20)  # units asked for that the strong player considers
_START = 21  # equally likely numbers of units at the start, 5 to 25
_ACCEPT = "[Accept]"
_WORDS = ("I have no offer for you now.", "Let me hear your offer.", "That is not enough for me.")


def _simple_negotiation(game: SimpleNegotiation, seat: int, rng: GameRng) -> str:
    """Accepts every own gain; offers a little of what it values least for what it values most, beside base values."""
    own = game.values[seat]
    if _acceptable(game, seat) and _own_gain(game, seat) > 0:
        return _ACCEPT
    low, high = (pick(_KINDS, key=lambda k: own[k] / BASE_VALUES[k]) for pick in (min, max))
    a, b = next((a, b) for a in range(1, 9) for b in range(1, 9) if a * BASE_VALUES[low] == b * BASE_VALUES[high])
    if low == high or game.stock[seat][low] < a or a * own[low] >= b * own[high]:
        return any_of(_WORDS, rng)
    return _single(low, a, high, b)


def _strong_negotiation(game: SimpleNegotiation, seat: int, rng: GameRng) -> str:
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


# ---- Truth and Deception ----------------------------------------------------------------------------------------

_QUESTION = "Which fact is true?"
_CLAIM = re.compile(r"fact ([12])\b([^.!?]{0,60}?)\b(true|right|correct|false|wrong|mistake)", re.IGNORECASE)
_NEGATION = re.compile(r"\bnot\b|n't\b", re.IGNORECASE)


def _simple_truth_and_deception(game: TruthAndDeception, seat: int, rng: GameRng) -> str:
    """The Deceiver claims that a fact is true, by a coin each time; the Guesser flips a coin."""
    if seat == DECEIVER:
        return f"Fact {1 + rng.randrange(2)} is true."
    return f"[Fact {1 + rng.randrange(2)}]" if game.last_turn else _QUESTION


def _strong_truth_and_deception(game: TruthAndDeception, seat: int, rng: GameRng) -> str:
    """The Deceiver asserts the false fact in changing words; the Guesser names the fact that was asserted less.

    The Guesser knows no facts: a Deceiver that tells the truth beats it every time, one that flips coins half the time.
    """
    if seat == DECEIVER:
        truth = game.true_fact(seat)
        return any_of(ASSERTIONS, rng).format(3 - truth, truth)
    if not game.last_turn:
        return _QUESTION
    asserted = sum(_asserted(line) for line in game.claims())
    guess = 1 + (asserted > 0) if asserted else 1 + rng.randrange(2)
    return f"[Fact {guess}]"


def _asserted(line: str) -> int:
    """Returns how often a line claims that fact 1 is the true one, less how often that fact 2 is."""
    total = 0
    for number, between, word in _CLAIM.findall(line):
        affirmed = (word.lower() in {"true", "right", "correct"}) != bool(_NEGATION.search(between))
        total += 1 if affirmed == (number == "1") else -1
    return total


BOTS = (
    GameBots(LiarsDice, _simple_liars_dice, _strong_liars_dice),
    GameBots(Poker, _simple_poker, _strong_poker),
    GameBots(SimpleNegotiation, _simple_negotiation, _strong_negotiation),
    GameBots(TruthAndDeception, _simple_truth_and_deception, _strong_truth_and_deception),
)
