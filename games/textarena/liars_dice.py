"""Liar's Dice for two: bids on dice of which each player sees one half."""

import re
from typing import Any, ClassVar, Literal, Unpack

from dfc.games.game import Common, Game, Outcome
from dfc.games.parsing import read_number

_CALL = "[Call]"
# Possessive: each run of blanks is read once, however long; backtracking over two of them is quadratic.
_SPELLING = re.compile(r"\[(?:call|bid\s*+:?+\s*+([0-9]+)[,\s]+([0-9]+))\]", re.IGNORECASE)
_FACES = 6
_MOST_DICE = 100  # of a player; every bid is listed as a legal action


class LiarsDice(Game):
    """Liar's Dice.

    Rules: both players roll `num_dice` dice and see their own. Seat 0 opens with a bid: so many dice of one face lie
    in both hands together. The other raises the bid (neither quantity nor face goes down and one goes up) or calls
    it. After a call the dice are counted: fewer than bid and the bidder loses a die, otherwise the caller. All
    remaining dice are rolled again and the player who did not call opens. No face is wild. Whoever has no dice left
    loses; there is no draw.

    Action: ``[Bid: 3, 4]`` (quantity, face) or ``[Call]``; any case, the colon may be missing and blanks may stand
    for the comma. Numbers keep one wording for every count ("1 dice"), so that each line has a fixed form.

    Differs from 0.6.4:
      - A quantity from 1 to the number of dice in play (there 0 or 999 dice can be bid).
      - Two players (there up to 15).
      - Exactly one bracketed group per reply (there a call anywhere in the text goes before any bid).
      - A malformed reply forfeits at once (there it is asked again once).
      - After a forfeit the other player has won (there the reward is 0).
      - Dice follow from the seed of the game (there they are drawn from a generator shared by all games, and the
        first ones before that is seeded).
      - Own dice are shown sorted, and a player reads news about "Opponent", not about a numbered player.
      - The reason for another try is reported to the offender only.

    Differs from 0.7.4: the same, except that there, too, a forfeit is a win for the other player and its reason is
    reported to the offender only.

    Attributes:
      num_dice: dice of each player at the start.
      dice_left: dice of each seat now.
      bid: the last bid of this round as (quantity, face), (0, 0) before the first one.
    """

    seats: ClassVar[int] = 2
    start: ClassVar[Literal["fixed", "random"]] = "random"
    grammar: ClassVar[str] = "[Bid: 3, 4] or [Call]"

    def __init__(self, *, num_dice: int = 5, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        if not 1 <= num_dice <= _MOST_DICE:
            raise ValueError(f"num_dice must be from 1 to {_MOST_DICE}, got {num_dice}")
        self.num_dice = num_dice
        self.dice_left = [num_dice, num_dice]
        self.bid = (0, 0)
        self._dice: list[list[int]] = [[], []]
        quantities = range(1, 2 * num_dice + 1)
        self._bids = {f"[Bid: {q}, {f}]": (q, f) for q in quantities for f in range(1, _FACES + 1)}
        self._texts = {bid: action for action, bid in self._bids.items()}

    @property
    def max_game_length(self) -> int:
        """Sum of d + 6 over rounds with d = 2 to 2 * num_dice dice.

        From (1, 1) to (d, 6) a bid can rise (d - 1) + 5 times, so a round has at most d + 5 bids and one call; every
        call takes a die and with one die in play the game is over.
        """
        return sum(d + 6 for d in range(2, 2 * self.num_dice + 1))

    def hand(self, seat: int) -> tuple[int, ...]:
        """Returns a seat's own dice, sorted; a secret of that seat."""
        return tuple(self._dice[seat])

    def _begin(self) -> int:
        self.dice_left = [self.num_dice, self.num_dice]
        self._roll()
        return 0

    def _roll(self) -> None:
        randrange = self.rng.randrange
        self.bid = (0, 0)
        self._dice = [sorted(randrange(_FACES) + 1 for _ in range(left)) for left in self.dice_left]
        for seat, dice in enumerate(self._dice):
            shown = ", ".join(map(str, dice))
            self._tell(seat, f"Your dice: {shown}. Opponent has {self.dice_left[1 - seat]} dice.")

    def _rules(self, seat: int) -> str:
        return (
            f"Liar's Dice. You are Player {seat}. Bid how many dice of one face lie on the table in both hands "
            "together: raise the quantity or the face and lower neither, or call the last bid. If a called bid is too "
            "high the bidder loses a die, else the caller does. Whoever has no dice left loses. "
            "Reply with quantity and face, for example [Bid: 3, 4], or with [Call]."
        )

    def _read(self, action: str) -> str | None:
        if action in self._bids or action == _CALL:
            return action
        match = _SPELLING.fullmatch(action)
        if match is None:
            return None
        return _CALL if match[1] is None else f"[Bid: {read_number(match[1])}, {read_number(match[2])}]"

    def _objection(self, action: str) -> str | None:
        if action == _CALL:
            return None if self.bid[0] else "There is no bid to call. Try again."
        bid = self._bids.get(action)
        if bid is None or bid[0] > sum(self.dice_left):
            return "There are no such dice on the table. Try again."
        if bid == self.bid or bid[0] < self.bid[0] or bid[1] < self.bid[1]:
            return "A bid must raise the quantity or the face and lower neither. Try again."
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        seat = self._mover()
        other = 1 - seat
        if action != _CALL:
            self.bid = self._bids[action]
            self._tell(other, f"Opponent bids {action}.")
            return other
        quantity, face = self.bid
        count = sum(dice.count(face) for dice in self._dice)
        loser = other if count < quantity else seat
        for told in range(2):
            caller = "You call" if told == seat else "Opponent calls"
            losing = "you lose" if told == loser else "the opponent loses"
            self._tell(told, f"{caller}: {count} dice show face {face}, {losing} a die.")
        self.dice_left[loser] -= 1
        if not self.dice_left[loser]:
            return self._won_by(1 - loser)
        self._roll()
        return other

    def legal_actions(self) -> list[str]:
        """Returns the legal bids by quantity, then face, and last the call."""
        if self.to_move is None:
            return []
        texts = self._texts
        quantities = range(self.bid[0] or 1, sum(self.dice_left) + 1)
        faces = range(self.bid[1] or 1, _FACES + 1)
        actions = [texts[q, f] for q in quantities for f in faces]
        return [*actions[1:], _CALL] if self.bid[0] else actions  # the first one is the bid that stands

    def _state(self) -> dict[str, Any]:
        return {
            "dice": [list(dice) for dice in self._dice],
            "dice_left": list(self.dice_left),
            "bid": list(self.bid),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self._dice = [list(dice) for dice in state["dice"]]
        self.dice_left = list(state["dice_left"])
        self.bid = (state["bid"][0], state["bid"][1])
