"""The protocol every game keeps: seats, turns, observations, legal actions, outcomes.

The rules never call a model and never see a token. A driver shows `observation(seat)` to the player to move,
extracts one action from the reply (`dfc.games.extraction`) and hands it to `step`.

Conventions: a seat is 0 or 1; an action is the bracketed text a player writes, such as ``[col 3]``; exactly one
action is played per turn.
"""

import abc
import copy
import dataclasses
import enum
from typing import Any, ClassVar, Literal, Self

from dfc.games.chance import Chance
from dfc.games.extraction import extract_action


class Outcome(enum.StrEnum):
    """How a game ended for one seat, apart from any reward.

    INVALID: this seat lost by a malformed or a repeatedly illegal reply. TRUNCATED: an outside limit (context,
    step cap) stopped the game; no rule decided it.
    """

    WIN = "win"
    DRAW = "draw"
    LOSS = "loss"
    INVALID = "invalid"
    TRUNCATED = "truncated"


class Verdict(enum.StrEnum):
    """What became of one reply.

    PLAYED: legal, the game moved on. ILLEGAL: readable but against the rules, the same seat is asked again.
    FORFEIT_ILLEGAL: illegal with no try left. FORFEIT_MALFORMED: no single action of this game could be read.
    """

    PLAYED = "played"
    ILLEGAL = "illegal"
    FORFEIT_ILLEGAL = "forfeit_illegal"
    FORFEIT_MALFORMED = "forfeit_malformed"


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known of a game before it starts.

    Attributes:
      id: the registered id, e.g. ``TicTacToe-v0``.
      seats: number of players, 1 or 2.
      start: ``fixed`` if every game begins in the same position with the same observations, else ``random``.
      longest: the largest number of legal actions a game can take, all seats together.
    """

    id: str
    seats: int
    start: Literal["fixed", "random"]
    longest: int


class Game(abc.ABC):
    """One game in progress. Subclasses hold the rules; this class holds turns, news, tries and outcomes.

    A subclass sets `seats` and `start` (class variables), defines keyword-only constructor values with defaults, and
    implements `longest`, `_begin`, `_rules`, `_read`, `_objection`, `_play`, `legal_actions`, `_state` and `_restore`.

    Attributes:
      id: the registered id.
      illegal_allowance: how many illegal replies in a row are answered with another try; the next one forfeits.
      to_move: the seat to move, or None before `reset` and after the end.
      outcomes: one per seat after the end, else None.
      illegal_tries: per seat, illegal replies so far (a legal move does not clear this count).
      forfeited_by: the seat whose invalid reply ended the game, or None.
      actions_played: number of legal actions so far.
    """

    seats: ClassVar[int]
    start: ClassVar[Literal["fixed", "random"]]

    def __init__(self, *, illegal_allowance: int = 1) -> None:
        if illegal_allowance < 0:
            raise ValueError(f"illegal_allowance must be 0 or more, got {illegal_allowance}")
        self.id = type(self).__name__
        self.illegal_allowance = illegal_allowance
        self.to_move: int | None = None
        self.outcomes: tuple[Outcome, ...] | None = None
        self.illegal_tries = [0] * self.seats
        self.forfeited_by: int | None = None
        self.actions_played = 0
        self._illegal_in_a_row = 0
        self._news: list[list[str]] = [[] for _ in range(self.seats)]
        self._rules_pending = [True] * self.seats
        self.chance = Chance(0)

    # ---- the rules, by subclass -------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def longest(self) -> int:
        """Largest number of legal actions a game can take."""

    @abc.abstractmethod
    def _begin(self) -> int:
        """Sets up the first position (draws from `self.chance`), tells seats their news; returns who moves first."""

    @abc.abstractmethod
    def _rules(self, seat: int) -> str:
        """What a seat is told once, before its first turn."""

    @abc.abstractmethod
    def _read(self, action: str) -> str | None:
        """Returns the action in its canonical spelling, or None if it is no action of this game's grammar."""

    @abc.abstractmethod
    def _objection(self, action: str) -> str | None:
        """Returns why a canonical action is against the rules now, as shown to the player, or None if it is legal."""

    @abc.abstractmethod
    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        """Plays a legal canonical action, tells seats the news; returns who moves next, or the outcomes."""

    @abc.abstractmethod
    def legal_actions(self) -> list[str]:
        """Returns every legal action of the seat to move, canonical, in a fixed order; [] after the end."""

    @abc.abstractmethod
    def _state(self) -> dict[str, Any]:
        """Returns the position as JSON-ready data that shares no list with the game; `_restore` inverts it."""

    @abc.abstractmethod
    def _restore(self, state: dict[str, Any]) -> None:
        """Sets the position from `_state`'s data, keeping none of its lists."""

    # ---- playing ----------------------------------------------------------------------------------------------

    @property
    def facts(self) -> Facts:
        """What is known before the start."""
        return Facts(self.id, self.seats, self.start, self.longest)

    @property
    def over(self) -> bool:
        """Whether the game has ended."""
        return self.outcomes is not None

    def reset(self, seed: int) -> None:
        """Starts a new game; the seed alone determines every deal and roll of it."""
        self.chance = Chance(seed)
        self.outcomes = None
        self.illegal_tries = [0] * self.seats
        self.forfeited_by = None
        self.actions_played = 0
        self._illegal_in_a_row = 0
        self._news = [[] for _ in range(self.seats)]
        self._rules_pending = [True] * self.seats
        self.to_move = self._begin()

    def observation(self, seat: int) -> str:
        """Returns what is new for a seat since its last reply: the rules first, then the news, one item a line.

        Raises:
          ValueError: the game has no such seat (a negative one would show the other seat's secrets).
        """
        if not 0 <= seat < self.seats:
            raise ValueError(f"{self.id}: seat must be from 0 to {self.seats - 1}, got {seat}")
        lines = [self._rules(seat)] if self._rules_pending[seat] else []
        return "\n".join(lines + self._news[seat])

    def step(self, reply: str) -> Verdict:
        """Takes the reply of the seat to move: reads one action, plays it, or asks again, or ends the game.

        Raises:
          ValueError: the game has not begun or is over.
        """
        seat = self._mover()
        self._rules_pending[seat] = False
        self._news[seat] = []
        extracted = extract_action(reply)
        action = None if extracted is None else self._read(extracted)
        if action is None:
            self._forfeit(seat)
            return Verdict.FORFEIT_MALFORMED
        objection = self._objection(action)
        if objection is not None:
            self.illegal_tries[seat] += 1
            self._illegal_in_a_row += 1
            if self._illegal_in_a_row > self.illegal_allowance:
                self._forfeit(seat)
                return Verdict.FORFEIT_ILLEGAL
            self._tell(seat, objection)
            return Verdict.ILLEGAL
        self._illegal_in_a_row = 0
        self.actions_played += 1
        result = self._play(action)
        if isinstance(result, int):
            self.to_move = result
        else:
            self._end(result)
        return Verdict.PLAYED

    def truncate(self) -> None:
        """Stops the game from outside: every seat's outcome becomes TRUNCATED."""
        if not self.over:
            self._end((Outcome.TRUNCATED,) * self.seats)

    # ---- copies and records -----------------------------------------------------------------------------------

    def clone(self) -> Self:
        """Returns an independent copy: the same actions lead both to the same positions and rolls."""
        twin = copy.copy(self)
        # deepcopy would also copy the tables that every game of a class shares and is 20 times slower.
        twin.chance = Chance(self.chance.seed, self.chance.draws)
        twin.illegal_tries = list(self.illegal_tries)
        twin._news = [list(lines) for lines in self._news]  # noqa: SLF001 (its own class)
        twin._rules_pending = list(self._rules_pending)  # noqa: SLF001 (its own class)
        twin._restore(self._state())  # noqa: SLF001 (its own class)
        return twin

    def to_json(self) -> dict[str, Any]:
        """Returns the whole state as JSON-ready data; constructor values are not part of it."""
        return {
            "chance": [self.chance.seed, self.chance.draws],
            "to_move": self.to_move,
            "outcomes": None if self.outcomes is None else [str(o) for o in self.outcomes],
            "illegal_tries": list(self.illegal_tries),
            "forfeited_by": self.forfeited_by,
            "actions_played": self.actions_played,
            "illegal_in_a_row": self._illegal_in_a_row,
            "news": [list(lines) for lines in self._news],
            "rules_pending": list(self._rules_pending),
            "state": self._state(),
        }

    def from_json(self, data: dict[str, Any]) -> None:
        """Sets the whole state from `to_json`'s data, on a game made with the same constructor values."""
        self.chance = Chance(*data["chance"])
        self.to_move = data["to_move"]
        self.outcomes = None if data["outcomes"] is None else tuple(Outcome(o) for o in data["outcomes"])
        self.illegal_tries = list(data["illegal_tries"])
        self.forfeited_by = data["forfeited_by"]
        self.actions_played = data["actions_played"]
        self._illegal_in_a_row = data["illegal_in_a_row"]
        self._news = [list(lines) for lines in data["news"]]
        self._rules_pending = list(data["rules_pending"])
        self._restore(data["state"])

    # ---- for subclasses ---------------------------------------------------------------------------------------

    def _mover(self) -> int:
        """Returns the seat to move where there must be one."""
        if self.to_move is None:
            raise ValueError(f"{self.id}: step() after the end or before reset(); check `over` first")
        return self.to_move

    def _tell(self, seat: int, line: str) -> None:
        self._news[seat].append(line)

    def _tell_all(self, line: str) -> None:
        for news in self._news:
            news.append(line)

    def _won_by(self, seat: int) -> tuple[Outcome, ...]:
        return tuple(Outcome.WIN if s == seat else Outcome.LOSS for s in range(self.seats))

    def _drawn(self) -> tuple[Outcome, ...]:
        return (Outcome.DRAW,) * self.seats

    def _end(self, outcomes: tuple[Outcome, ...]) -> None:
        self.outcomes = outcomes
        self.to_move = None

    def _forfeit(self, seat: int) -> None:
        self.forfeited_by = seat
        self._end(tuple(Outcome.INVALID if s == seat else Outcome.WIN for s in range(self.seats)))
