"""Texas Hold'em for two without a limit, over a fixed number of hands."""

from typing import Any, ClassVar, Literal, Unpack

from dfc.games.game import Common, Game, Outcome
from dfc.games.parsing import read_number
from dfc.games.textarena.poker_hands import CARDS, category, strength, text

_CHECK, _FOLD, _CALL = "[Check]", "[Fold]", "[Call]"
_PLAIN = {"check": _CHECK, "fold": _FOLD, "call": _CALL}
_AMOUNT = {"bet": "Bet", "raise": "Raise"}
_STREETS = ("Preflop", "Flop", "Turn", "River")
_SHOWN = (0, 3, 4, 5)  # cards on the board by street
_MOST_DIGITS = 12  # of an amount; one with more is more than anyone has


class Poker(Game):
    """Texas Hold'em, two players, no limit.

    Rules: a match of `num_rounds` hands; both start with `starting_chips`. Seat 0 deals the first hand, then the deal
    alternates. The dealer posts the small blind and acts first before the flop; the other posts the big blind and acts
    first on flop, turn and river. After a limp the big blind may still raise. A bet is at least the big blind; a raise
    is at least the big blind and the last raise of the street; an all-in may be less. Chips that the other player did
    not match go back to their owner (so there is no side pot). Is a player all-in and the bets are even, the rest of
    the board is dealt and the hands are compared: the best five of seven cards win. The pot holds as much of one
    player as of the other, so it is even, and equal hands share it with no odd chip.
    The match ends after the last hand, or when a player has no chips, or after `max_actions` actions, when the bets of
    an unfinished hand go back. More chips win; equal chips are a draw. A driver that stops the match earlier ends it
    in the same way (`standing`).

    Action: ``[Check]``, ``[Fold]``, ``[Call]``, ``[Bet N]`` (brings one's chips on this street to N) or ``[Raise N]``
    (to N above the highest bet); any case, and a number after the word Call is ignored. Bet and Raise mean the same
    whether or not a bet stands, an N beyond one's chips is all-in. A fold is legal when nothing is due, but not listed.
    `legal_actions` lists check, or call and fold, then the smallest bet, half the pot, the pot and all that both can
    match, as numbers.

    Differs from 0.6.4:
      - After an all-in the other player calls or folds (there the hands are compared at once, for the whole pot).
      - Only matched chips can be won (there a stack of 100 can win 1900).
      - After a limp the big blind may raise (there the flop follows at once).
      - A bet or raise has a minimum (there none, and ``[Bet N]`` below a standing bet calls a part of it).
      - A raise is illegal where the other player is all-in or the raiser cannot exceed the bet (there it calls).
      - A call with nothing due is illegal (there it can be repeated without end).
      - Of several straights in seven cards the highest counts (there the lowest).
      - Where a blind is all-in and matched, nobody is asked (there the other player is).
      - At most `max_actions` actions (there no bound but the chips).
      - Seat 0 posts the first small blind and is called the dealer (there seat 1, and the big blind is the dealer).
      - Two players (there up to 15).
      - Exactly one bracketed group per reply (there check, fold, call, bet, raise are looked for in this order).
      - A malformed reply forfeits at once (there it is asked again once).
      - After a forfeit the other player has won (there the reward is 0).
      - Cards follow from the seed of the game, for every hand (there from a generator shared by all games).
      - Cards are ASCII, a ten is T; a player reads about "Opponent" and only at its own turn what the chips are.
      - The reason for another try is reported to the offender only.

    Differs from 0.7.4: matched chips, the option after a limp, the minimum, `max_actions`, the number of players,
    reading and forfeits as above, and more: there the big blind acts first before the flop in most hands, a reply that
    is no action or an illegal check can be repeated without end, seat 1 wins a tie in chips, of three pairs the third
    is no kicker, and a reward can exceed 1.

    Attributes:
      num_rounds: hands of a match.
      starting_chips: of each player.
      small_blind: in chips.
      big_blind: in chips.
      max_actions: legal actions after which the match ends.
      chips: of each seat, without those in the pot.
      paid: chips of each seat in the pot, of the whole hand.
      bets: chips of each seat in the pot, of this street.
      smallest_raise: how much a raise must at least add to the highest bet now.
      round: number of this hand, from 1.
      hands_played: number of finished hands.
      dealer: seat that posts the small blind of this hand.
      street: 0 before the flop, 1 flop, 2 turn, 3 river.
    """

    seats: ClassVar[int] = 2
    start: ClassVar[Literal["fixed", "random"]] = "random"
    grammar: ClassVar[str] = "[Check], [Fold], [Call], [Bet 40] or [Raise 40]"
    open_actions: ClassVar[bool] = True

    def __init__(
        self,
        *,
        num_rounds: int = 10,
        starting_chips: int = 1000,
        small_blind: int = 10,
        big_blind: int = 20,
        max_actions: int = 200,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        if num_rounds < 1:
            raise ValueError(f"num_rounds must be 1 or more, got {num_rounds}")
        if small_blind < 1:
            raise ValueError(f"small_blind must be 1 or more, got {small_blind}")
        if big_blind < small_blind:
            raise ValueError(f"big_blind must be {small_blind} (small_blind) or more, got {big_blind}")
        if starting_chips <= big_blind:
            raise ValueError(f"starting_chips must be more than {big_blind} (big_blind), got {starting_chips}")
        if max_actions < 1:
            raise ValueError(f"max_actions must be 1 or more, got {max_actions}")
        self.num_rounds = num_rounds
        self.starting_chips = starting_chips
        self.small_blind = small_blind
        self.big_blind = big_blind
        self.max_actions = max_actions
        self.chips = [starting_chips, starting_chips]
        self.paid = [0, 0]
        self.bets = [0, 0]
        self.smallest_raise = big_blind
        self.round = 0
        self.hands_played = 0
        self.dealer = 0
        self.street = 0
        self._acted = [False, False]
        self._hands: list[list[int]] = [[], []]
        self._board: list[int] = []  # all five; `board` shows those on the table

    @property
    def max_game_length(self) -> int:
        """`max_actions`, or num_rounds * (9 + starting_chips // big_blind) if that is less.

        A hand has at most two actions per street that do not raise, and one all-in; every other raise adds a big blind
        or more to what both can match, which is at most `starting_chips`.
        """
        return min(self.max_actions, self.num_rounds * (9 + self.starting_chips // self.big_blind))

    @property
    def board(self) -> tuple[int, ...]:
        """The cards on the table."""
        return tuple(self._board[: _SHOWN[self.street]])

    @property
    def pot(self) -> int:
        """All chips in the pot, those of this street included."""
        return self.paid[0] + self.paid[1]

    def hand(self, seat: int) -> tuple[int, ...]:
        """Returns a seat's own two cards; a secret of that seat."""
        return tuple(self._hands[seat])

    def due(self, seat: int) -> int:
        """Returns how many chips a seat lacks to the highest bet."""
        return max(self.bets[1 - seat] - self.bets[seat], 0)

    def can_raise(self, seat: int) -> bool:
        """Returns whether a seat can bet or raise: it can exceed the highest bet and the other player has chips."""
        return self.chips[1 - seat] > 0 and self.chips[seat] > self.due(seat)

    def measures(self) -> dict[str, float]:
        """Returns the chips of each seat, its bets of an unfinished hand included, and the number of finished hands."""
        return {
            "chips_0": float(self.chips[0] + self.paid[0]),
            "chips_1": float(self.chips[1] + self.paid[1]),
            "hands_played": float(self.hands_played),
        }

    # ---- a hand -----------------------------------------------------------------------------------------------

    def _begin(self) -> int:
        self.chips = [self.starting_chips, self.starting_chips]
        self.round = self.hands_played = 0
        self._deal()
        self._tell(self.dealer, self._position(self.dealer))  # both have chips left after the first blinds
        return self.dealer

    def _deal(self) -> None:
        """Deals a hand and posts the blinds."""
        randrange = self.rng.randrange
        deck = list(range(CARDS))
        for k in range(9):  # the first nine of a shuffled deck
            other = k + randrange(CARDS - k)
            deck[k], deck[other] = deck[other], deck[k]
        self._hands = [sorted(deck[0:2], reverse=True), sorted(deck[2:4], reverse=True)]
        self._board = deck[4:9]
        self.dealer = self.round & 1
        self.round += 1
        self.street = 0
        self.paid = [0, 0]
        self._open_street()
        for seat, blind in ((self.dealer, self.small_blind), (1 - self.dealer, self.big_blind)):
            self._put(seat, min(blind, self.chips[seat]))
        for seat in range(2):
            deals = "you deal and post" if seat == self.dealer else "Opponent deals, you post"
            self._tell(
                seat,
                f"Hand {self.round} of {self.num_rounds}: {deals} {self.bets[seat]}, "
                f"Opponent posts {self.bets[1 - seat]}.",
            )

    def _open_street(self) -> None:
        self.bets = [0, 0]
        self.smallest_raise = self.big_blind
        self._acted = [False, False]

    def _put(self, seat: int, amount: int) -> None:
        self.chips[seat] -= amount
        self.bets[seat] += amount
        self.paid[seat] += amount

    def _turn(self, seat: int) -> int | tuple[Outcome, ...]:
        """Gives the turn to a seat if it has a choice, else ends the street."""
        other = 1 - seat
        lacks = self.bets[other] - self.bets[seat]
        if self.chips[seat] and (lacks > 0 or (self.chips[other] and not self._acted[seat])):
            self._tell(seat, self._position(seat))
            return seat
        return self._end_street()

    def _end_street(self) -> int | tuple[Outcome, ...]:
        self._return_unmatched()
        if self.street == 3:
            return self._compare()
        self.street += 1
        self._open_street()
        return self._turn(1 - self.dealer)  # ends the street at once if a player is all-in

    def _return_unmatched(self) -> None:
        excess = self.bets[0] - self.bets[1]
        if excess:
            self._put(0 if excess > 0 else 1, -abs(excess))

    def _compare(self) -> int | tuple[Outcome, ...]:
        """Shows both hands and pays the pot."""
        values = [strength(hand + self._board) for hand in self._hands]
        shown = [f"{text(hand)} ({category(value)})" for hand, value in zip(self._hands, values, strict=True)]
        pot = self.pot
        for seat in range(2):
            if values[0] == values[1]:
                end = f"the pot of {pot} is shared"
            else:
                end = f"{'you win' if values[seat] > values[1 - seat] else 'Opponent wins'} the pot of {pot}"
            self._tell(
                seat,
                f"Hand {self.round} ends: board {text(self._board)}, you {shown[seat]}, Opponent {shown[1 - seat]}, "
                f"{end}.",
            )
        for seat in range(2):
            if values[seat] >= values[1 - seat]:
                self.chips[seat] += pot // 2 if values[0] == values[1] else pot
        return self._end_hand()

    def _fold(self, seat: int) -> int | tuple[Outcome, ...]:
        self._return_unmatched()
        other = 1 - seat
        pot = self.pot
        self._tell(seat, f"Hand {self.round} ends: you fold, Opponent wins the pot of {pot}.")
        self._tell(other, f"Hand {self.round} ends: Opponent folds, you win the pot of {pot}.")
        self.chips[other] += pot
        return self._end_hand()

    def _end_hand(self) -> int | tuple[Outcome, ...]:
        self.paid, self.bets = [0, 0], [0, 0]
        self.hands_played += 1
        if self.hands_played == self.num_rounds or not all(self.chips) or self.actions_played >= self.max_actions:
            return self._end_match()
        self._deal()
        return self._turn(self.dealer)

    def _end_match(self) -> tuple[Outcome, ...]:
        for seat in range(2):
            self._tell(seat, f"The match ends: you have {self.chips[seat]} chips, Opponent {self.chips[1 - seat]}.")
        return self.standing()

    def standing(self) -> tuple[Outcome, ...]:
        """Returns who has more chips, those in the pot of an unfinished hand given back; equal chips are a draw."""
        own, other = (chips + paid for chips, paid in zip(self.chips, self.paid, strict=True))
        return self._drawn() if own == other else self._won_by(0 if own > other else 1)

    # ---- what is said -----------------------------------------------------------------------------------------

    def _position(self, seat: int) -> str:
        board = f"board {text(self.board)}, " if self.street else ""
        line = (
            f"Your cards {text(self._hands[seat])}, {board}pot {self.pot}, chips {self.chips[seat]}, "
            f"Opponent {self.chips[1 - seat]}, to call {min(self.due(seat), self.chips[seat])}"
        )
        if not self.can_raise(seat):
            return line + "."
        return f"{line}, smallest {'raise' if any(self.bets) else 'bet'} {self.smallest_raise}."

    def _rules(self, seat: int) -> str:
        return (
            f"Texas Hold'em poker for two, no limit. You are Player {seat}. {self.num_rounds} hands, both start with "
            f"{self.starting_chips} chips. The dealer posts a blind of {self.small_blind} and acts first before the "
            f"flop, the other player posts {self.big_blind} and acts first from the flop on; the deal alternates. A "
            "hand has betting before the flop, on the flop, on the turn and on the river. The best five of the two own "
            "cards and the five on the board win the pot; Th is the ten of hearts. A bet or raise below the smallest "
            "one is allowed only all-in. Whoever has more chips at the end wins the match. After "
            f"{self.max_actions} actions it ends in any case, and bets of an unfinished hand go back. "
            "Reply with [Check], [Fold], [Call], [Bet 40] to bet 40 or [Raise 40] to raise the highest bet by 40."
        )

    def _read(self, action: str) -> str | None:
        words = action[1:-1].lower().split(maxsplit=2)
        number = read_number(words[1]) if len(words) == 2 else None
        if not words or (len(words) > 1 and number is None):
            return None
        if number is None or words[0] == "call":
            return _PLAIN.get(words[0])
        name = _AMOUNT.get(words[0])
        most = 2 * self.starting_chips
        return name and f"[{name} {most if len(number) > _MOST_DIGITS else min(int(number), most)}]"

    def _total(self, action: str, seat: int) -> int:
        """Returns to how much a bet or raise brings a seat's chips on this street."""
        name, number = action[1:-1].split()
        total = int(number) + (max(self.bets) if name == "Raise" else 0)
        return min(total, self.bets[seat] + self.chips[seat])

    def _objection(self, action: str) -> str | None:
        seat = self._mover()
        due = self.due(seat)
        if action == _FOLD:
            return None
        if action == _CHECK:
            return "There is a bet to call. Try again." if due else None
        if action == _CALL:
            return None if due else "There is nothing to call. Try again."
        return self._objection_to_amount(action, seat)

    def _objection_to_amount(self, action: str, seat: int) -> str | None:
        if not self.chips[1 - seat]:
            return "The opponent is all-in, you can only call or fold. Try again."
        if not self.can_raise(seat):
            return "You have too few chips to raise. Try again."
        total = self._total(action, seat)
        if total - max(self.bets) < self.smallest_raise and total < self.bets[seat] + self.chips[seat]:
            return "That is less than the smallest bet or raise. Try again."
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        seat = self._mover()
        self._acted[seat] = True
        if action == _FOLD:
            return self._fold(seat)
        if action == _CHECK:
            said = "checks"
        elif action == _CALL:
            amount = min(self.due(seat), self.chips[seat])
            self._put(seat, amount)
            said = f"calls {amount}"
        else:
            highest = max(self.bets)
            total = self._total(action, seat)
            self._put(seat, total - self.bets[seat])
            self.smallest_raise = max(self.smallest_raise, total - highest)
            said = f"raises to {total}" if highest else f"bets {total}"
        all_in = "" if self.chips[seat] or action == _CHECK else ", all-in"
        self._tell(1 - seat, f"{_STREETS[self.street]}: Opponent {said}{all_in}.")
        result = self._turn(1 - seat)
        if isinstance(result, int) and self.actions_played >= self.max_actions:
            return self._stop()
        return result

    def _stop(self) -> tuple[Outcome, ...]:
        """Ends the match within a hand; the bets go back."""
        self._tell_all(f"Hand {self.round} is not finished, the bets go back.")
        self.chips = [chips + paid for chips, paid in zip(self.chips, self.paid, strict=True)]
        self.paid, self.bets = [0, 0], [0, 0]
        return self._end_match()

    def legal_actions(self) -> list[str]:
        """Returns check, or call and fold, then up to four amounts: smallest, half pot, pot and all that both have."""
        seat = self.to_move
        if seat is None:
            return []
        due = self.due(seat)
        actions = [_CALL, _FOLD] if due else [_CHECK]
        if not self.can_raise(seat):
            return actions
        highest = max(self.bets)
        name = "Raise" if highest else "Bet"
        own, other = (self.bets[s] + self.chips[s] - highest for s in (seat, 1 - seat))
        most = min(own, max(other, self.smallest_raise))  # what is above goes back anyway
        after_call = self.pot + due
        amounts = {amount for amount in (after_call // 2, after_call) if self.smallest_raise <= amount < most}
        amounts |= {min(self.smallest_raise, most), most}
        return actions + [f"[{name} {amount}]" for amount in sorted(amounts)]

    # ---- copies and records -----------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return {
            "chips": list(self.chips),
            "paid": list(self.paid),
            "bets": list(self.bets),
            "smallest_raise": self.smallest_raise,
            "round": self.round,
            "hands_played": self.hands_played,
            "dealer": self.dealer,
            "street": self.street,
            "acted": list(self._acted),
            "hands": [list(hand) for hand in self._hands],
            "board": list(self._board),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.chips = list(state["chips"])
        self.paid = list(state["paid"])
        self.bets = list(state["bets"])
        self.smallest_raise = state["smallest_raise"]
        self.round = state["round"]
        self.hands_played = state["hands_played"]
        self.dealer = state["dealer"]
        self.street = state["street"]
        self._acted = list(state["acted"])
        self._hands = [list(hand) for hand in state["hands"]]
        self._board = list(state["board"])
