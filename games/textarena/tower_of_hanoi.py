"""Tower of Hanoi: one player moves a stack of disks from tower A to tower C."""

import re
from typing import Any, ClassVar, Literal, Unpack

from dfc.games.game import Common, Game, Outcome

_TOWERS = "ABC"
_MOST_DISKS = 64  # as in the legend; every observation names all of them
_MOVES = {f"[{a} {b}]": (_TOWERS.index(a), _TOWERS.index(b)) for a in _TOWERS for b in _TOWERS}
# Possessive: each run of blanks is read once, however long; backtracking over two of them is quadratic.
_SPELLING = re.compile(r"\[([ABC])\s*+,?+\s*+([ABC])\]", re.IGNORECASE)


class TowerOfHanoi(Game):
    """Tower of Hanoi.

    Rules: `num_disks` disks of sizes 1 to num_disks lie on tower A, the largest at the bottom. A move takes the top
    disk of one tower to another one and never onto a smaller disk. All disks on tower C wins; `max_turns` legal
    moves without that end in a draw. The shortest solution takes 2**num_disks - 1 moves.

    Action: source and target, ``[A C]``; ``[A, C]``, ``[AC]`` and lower case are read as the same.

    Differs from 0.6.4:
      - ``[A A]`` is illegal (there a move that changes nothing and uses up a turn).
      - One move per reply (there every pair found in the text is carried out within one turn, and pairs after an
        illegal one still are, so a whole solution counts as one turn).
      - Exactly one bracketed group per reply; a malformed reply forfeits at once (there it is asked again once).
      - The position and the reason for another try are reported in shorter words.

    Differs from 0.7.4, besides the above:
      - The registered limits are 100 moves (there 14 with three disks and 30 with four).
      - The limit is exact (there one move more is allowed).
      - The limit is a draw (there it pays the share of disks that lie right, and so does an invalid reply).

    Attributes:
      num_disks: number of disks.
      max_turns: number of legal moves after which the game ends in a draw.
      towers: disk sizes on A, B and C, bottom first.
    """

    seats: ClassVar[int] = 1
    start: ClassVar[Literal["fixed", "random"]] = "fixed"
    grammar: ClassVar[str] = "[A C]"

    def __init__(self, *, num_disks: int = 3, max_turns: int = 100, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        if not 1 <= num_disks <= _MOST_DISKS:
            raise ValueError(f"num_disks must be from 1 to {_MOST_DISKS}, got {num_disks}")
        if max_turns < 1:
            raise ValueError(f"max_turns must be 1 or more, got {max_turns}")
        self.num_disks = num_disks
        self.max_turns = max_turns
        self.towers: list[list[int]] = [[], [], []]

    @property
    def max_game_length(self) -> int:
        """The turn limit."""
        return self.max_turns

    def _begin(self) -> int:
        self.towers = [list(range(self.num_disks, 0, -1)), [], []]
        self._tell_towers()
        return 0

    def _rules(self, seat: int) -> str:
        del seat  # there is one only
        return (
            f"Tower of Hanoi with {self.num_disks} disks. Move the stack from tower A to tower C in at most "
            f"{self.max_turns} moves. Take one top disk at a time and never put it on a smaller one. "
            "Reply with source and target in brackets, for example [A C]."
        )

    def _read(self, action: str) -> str | None:
        if action in _MOVES:
            return action
        match = _SPELLING.fullmatch(action)
        return None if match is None else f"[{match[1].upper()} {match[2].upper()}]"

    def _objection(self, action: str) -> str | None:
        source, target = _MOVES[action]
        if source == target:
            return "Source and target are the same tower. Try again."
        if not self.towers[source]:
            return "That source tower is empty. Try again."
        if not self._fits(source, target):
            return "That disk is larger than the one below it. Try again."
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        source, target = _MOVES[action]
        self.towers[target].append(self.towers[source].pop())
        self._tell_towers()
        if len(self.towers[2]) == self.num_disks:
            return self._won_by(0)
        return 0 if self.actions_played < self.max_turns else self._drawn()

    def legal_actions(self) -> list[str]:
        """Returns the legal moves, by source, then target."""
        if self.to_move is None:
            return []
        return [action for action, (a, b) in _MOVES.items() if a != b and self.towers[a] and self._fits(a, b)]

    def _fits(self, source: int, target: int) -> bool:
        return not self.towers[target] or self.towers[source][-1] < self.towers[target][-1]

    def _tell_towers(self) -> None:
        for name, disks in zip(_TOWERS, self.towers, strict=True):
            self._tell(0, f"{name}: {disks}")

    def _state(self) -> dict[str, Any]:
        return {"towers": [list(disks) for disks in self.towers]}

    def _restore(self, state: dict[str, Any]) -> None:
        self.towers = [list(disks) for disks in state["towers"]]
