"""What a game says of itself: how it ended for a seat, the verdict on a reply, and what is known before it starts."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Literal

# What begins the reason of a game that was broken off for a reply in which nothing could be read, or not of the form.
UNREADABLE, NOT_OF_FORM = "No action could be read.", "The reply does not have the form asked for."


class Outcome(enum.StrEnum):
    """How a game ended for one seat, apart from any reward.

    INVALID: this seat lost by a malformed or a repeatedly illegal reply; in a team every seat, whichever replied so,
    and also where the rules break the game off (`Game._abort`). TRUNCATED: an outside limit (a player's context, a
    number of actions) or unusable simulators stopped the game; no rule decided it.
    """

    WIN = "win"
    DRAW = "draw"
    LOSS = "loss"
    INVALID = "invalid"
    TRUNCATED = "truncated"


class Verdict(enum.StrEnum):
    """The verdict on one reply.

    PLAYED: legal, the game moved on. ILLEGAL: readable but against the rules, the same seat is asked again.
    FORFEIT_ILLEGAL: illegal with no try left. MALFORMED: no single action of this game could be read, or the reply is
    not of the form that its player was asked for; the same seat is asked again. FORFEIT_MALFORMED: the same with no
    try left. REFUSED: a reply of a simulator that cannot be used, it is asked again. DISCARDED: the same with no try
    left; the game is over and inconclusive about its players.
    """

    PLAYED = "played"
    ILLEGAL = "illegal"
    FORFEIT_ILLEGAL = "forfeit_illegal"
    MALFORMED = "malformed"
    FORFEIT_MALFORMED = "forfeit_malformed"
    REFUSED = "refused"
    DISCARDED = "discarded"


@dataclasses.dataclass(frozen=True)
class GameInfo:
    """What is known of a game before it starts.

    Attributes:
      id: the registered id, e.g. ``TicTacToe-v0``.
      seats: number of players, 1 or 2.
      start: ``fixed`` if every game begins in the same position with the same observations, else ``random``.
      max_game_length: the largest number of legal actions a game can take, all players together.
      grammar: what an action looks like, e.g. ``[col 3]``.
      open_actions: whether more can be said than `legal_actions` lists.
      simulators: roles that reply and are no players, e.g. ``("world", "judge")``.
      splits: number of tasks by split, e.g. ``{"train": 1515, "test": 800}``; empty where every seed is a deal.
      lists_actions: whether `legal_actions` names any; without, nobody can play random-legally.
      evaluation_only: whether a policy may be measured by this game but not trained on it.
      team: whether all seats share one outcome.
      player_roles: what the players are called, one for each seat, e.g. ``("describer", "guesser")``; often empty.
      has_quality: whether `Game.measures` says how good a game was that came to its end.
    """

    id: str
    seats: int
    start: Literal["fixed", "random"]
    max_game_length: int
    grammar: str = ""
    open_actions: bool = False
    simulators: tuple[str, ...] = ()
    splits: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)
    lists_actions: bool = True
    evaluation_only: bool = False
    team: bool = False
    player_roles: tuple[str, ...] = ()
    has_quality: bool = False
