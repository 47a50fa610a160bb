"""Nim: two players take objects from piles, whoever takes the last one wins."""

from typing import Any, ClassVar, Literal, Unpack

from dfc.games.game import Common, Game, Outcome
from dfc.games.parsing import read_number

_MOST_PILES = 20
_LARGEST_PILE = 99


class Nim(Game):
    """Nim, normal play.

    Rules: seat 0 starts. A player takes one or more objects from exactly one pile. Whoever takes the last object of all
    piles wins; there is no draw. The player to move can force a win if and only if the exclusive or of the pile sizes
    is not 0 (Bouton, "Nim, a game with a complete mathematical theory", 1901); (3, 4, 5) is such a position.

    Action: pile and quantity, ``[0 3]``; piles are numbered from 0. More blanks and leading zeros are dropped.

    Differs from 0.6.4:
      - The piles are told once a turn, to the player to move (there to both players, after every reply).
      - Exactly one bracketed group per reply (there the first bracketed pair of numbers in the text counts).
      - A malformed reply forfeits at once (there it is asked again once).
      - After a forfeit the other player has won (there the reward is 0).
      - The reason for another try is reported to the offender only, and no pile is empty at the start.

    Differs from 0.7.4: the same, except that there, too, a forfeit is a win for the other player and its reason is
    reported to the offender only.

    Attributes:
      initial_piles: size of each pile at the start (the constructor's `piles`).
      piles: size of each pile now.
    """

    seats: ClassVar[int] = 2
    start: ClassVar[Literal["fixed", "random"]] = "fixed"
    grammar: ClassVar[str] = "[1 2]"

    def __init__(self, *, piles: tuple[int, ...] = (3, 4, 5), **common: Unpack[Common]) -> None:
        super().__init__(**common)
        if not 1 <= len(piles) <= _MOST_PILES or not all(1 <= size <= _LARGEST_PILE for size in piles):
            raise ValueError(
                f"piles must be 1 to {_MOST_PILES} sizes from 1 to {_LARGEST_PILE} each, got {tuple(piles)}"
            )
        self.initial_piles = piles
        self.piles = list(piles)
        # Two views of the actions that exist at the start; legal_actions and step are too hot to build texts in.
        self._texts = [[f"[{pile} {take}]" for take in range(1, size + 1)] for pile, size in enumerate(piles)]
        self._takes = {
            text: (pile, take) for pile, texts in enumerate(self._texts) for take, text in enumerate(texts, start=1)
        }

    @property
    def max_game_length(self) -> int:
        """One action per object."""
        return sum(self.initial_piles)

    def _begin(self) -> int:
        self.piles = list(self.initial_piles)
        self._tell_all(self._piles_line())
        return 0

    def _rules(self, seat: int) -> str:
        return (
            f"Nim. You are Player {seat}. Take one or more objects from one pile; whoever takes the last object wins. "
            "Piles are numbered from 0. Reply with pile and quantity in brackets, for example [0 3]."
        )

    def _read(self, action: str) -> str | None:
        if action in self._takes:
            return action
        words = action[1:-1].split()
        if len(words) != 2:
            return None
        pile, take = map(read_number, words)
        return None if pile is None or take is None else f"[{pile} {take}]"

    def _objection(self, action: str) -> str | None:
        known = self._takes.get(action)
        if known is not None and known[1] <= self.piles[known[0]]:
            return None
        # Not int(): the numbers may be too long for it.
        pile, take = action[1:-1].split()
        if pile not in map(str, range(len(self.piles))):
            return "There is no such pile. Try again."
        if take == "0":
            return "Take at least one object. Try again."
        return "That pile holds fewer objects. Try again."

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        seat = self._mover()
        other = 1 - seat
        pile, take = self._takes[action]
        self.piles[pile] -= take
        # Whatever was told to the other seat before is the line of the first piles, out of date by now.
        self._news[other] = [f"Opponent plays {action}.", self._piles_line()]
        return other if any(self.piles) else self._won_by(seat)

    def _piles_line(self) -> str:
        return f"Piles: {', '.join(map(str, self.piles))}."

    def legal_actions(self) -> list[str]:
        """Returns every quantity of every pile, pile by pile, upwards."""
        if self.to_move is None:
            return []
        return [text for texts, size in zip(self._texts, self.piles, strict=True) for text in texts[:size]]

    def _state(self) -> dict[str, Any]:
        return {"piles": list(self.piles)}

    def _restore(self, state: dict[str, Any]) -> None:
        self.piles = list(state["piles"])
