"""A recorded game as each of its seats saw it: what stood before every reply, turn by turn.

Source: "Playpen", section 3.2: a game is a sequence of (who, to whom, what); a perspective holds what one player was
shown and said. No record of its own is needed: replies and rules give all of it again (`dfc.games.replay`).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dfc.games.replay import ReplayedTurn, replay
from dfc.records.trajectories import Message


class Exchange(NamedTuple):
    """One reply of a seat and all that the seat had seen before it.

    Attributes:
      context: what it had been shown and had said, the new observation last; of what was asked aside before, nothing.
      turn: the reply with the game's verdict.
      number: of the reply among those of all seats, from 0.
    """

    context: tuple[Message, ...]
    turn: ReplayedTurn
    number: int

    @property
    def messages(self) -> tuple[Message, ...]:
        """The context and the reply."""
        return (*self.context, Message("assistant", self.turn.reply))


def exchanges(turns: Iterable[ReplayedTurn], seat: int, system: str | None = None) -> Iterator[Exchange]:
    """Yields the replies of one seat, each with what the seat had seen.

    Args:
      turns: of a game, in order.
      seat: a player's, or a simulator's.
      system: what the seat was shown before the first observation; None for nothing.
    """
    past: tuple[Message, ...] = () if system is None else (Message("system", system),)
    for number, turn in enumerate(turns):
        if turn.seat == seat:
            found = Exchange((*past, Message("user", turn.observation)), turn, number)
            yield found
            if not turn.aside:
                past = found.messages


def perspective(record: Mapping[str, Any], seat: int, system: str | None = None) -> list[Exchange]:
    """Returns a recorded game from one seat; both seats of a game for two give two perspectives.

    Args:
      record: a line of episodes.jsonl, or `dfc.records.trajectories.Trajectory.record`.
      seat: whose.
      system: what the seat was shown before the first observation; None for nothing.

    Raises:
      ReplayError: it is no record, or the rules contradict it.
    """
    return list(exchanges(replay(record), seat, system))
