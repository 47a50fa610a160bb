"""Bots for Poker: they see their own two cards, board, bets and chips, and deal unseen cards again at random."""

import random
from collections.abc import Sequence

from dfc.games.bots.bot import GameBots
from dfc.games.rng import GameRng
from dfc.games.textarena.poker import Poker
from dfc.games.textarena.poker_hands import CARDS, WEIGHTS, category, strength, strength_of_sum

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


# ---- simple -----------------------------------------------------------------------------------------------------


def _simple(game: Poker, seat: int, _chance: GameRng) -> str:
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


# ---- strong -----------------------------------------------------------------------------------------------------


def _strong(game: Poker, seat: int, rng: GameRng) -> str:
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


BOTS = (GameBots(Poker, _simple, _strong),)
