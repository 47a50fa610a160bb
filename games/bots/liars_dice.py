"""Bots for Liar's Dice."""

import functools
import math

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.rng import GameRng
from dfc.games.textarena.liars_dice import LiarsDice


def _liars_dice_simple(game: LiarsDice, seat: int, rng: GameRng) -> str:
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


def _liars_dice(game: LiarsDice, seat: int, _chance: GameRng) -> str:
    """Calls what is less likely than not to be true; else makes the lowest raise that is, or the likeliest one.

    Whoever bids a face is taken to hold one of it; all other hidden dice are taken to be fair. Without that trust the
    player calls every honest bid and loses to `_liars_dice_simple`.
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


BOTS = (GameBots(LiarsDice, _liars_dice_simple, _liars_dice),)
