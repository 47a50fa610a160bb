"""Playing a recorded game again, reply by reply, to show it and to prove that the record is true."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from dfc.games import registry
from dfc.games.game import Game, Outcome, Verdict

ReplyStatus = Literal["policy", "opponent", "replaced", "simulator"]
_STATUSES = ("policy", "opponent", "replaced", "simulator")
_KEYS = ("game", "options", "seed", "replies", "outcomes", "forfeited_by")


class ReplayError(ValueError):
    """A record that the rules contradict, or that is no record; names the first difference."""


@dataclasses.dataclass(frozen=True)
class ReplayedTurn:
    """One reply of a recorded game with what surrounded it.

    Attributes:
      seat: whose reply it is.
      observation: what was new for that seat.
      reply: what was played, as recorded.
      status: ``policy``, ``opponent`` or ``simulator``: who wrote it; ``replaced``: a random legal action was played
        instead of the policy's own.
      verdict: the game's.
      well_formed: whether it had the form that its player was asked for.
      board: after the reply, for a person (`Game.board_text`).
      aside: whether it was asked aside (`Game.aside`).
    """

    seat: int
    observation: str
    reply: str
    status: ReplyStatus
    verdict: Verdict
    well_formed: bool = True
    board: str | None = None
    aside: bool = False


def replay(record: Mapping[str, Any]) -> Iterator[ReplayedTurn]:
    """Plays a line of episodes.jsonl again and yields its turns; the end of the iteration proves the record.

    The seed alone determines every deal and roll, so the same replies must lead to the same outcomes. A record whose
    outcomes are all ``truncated`` is truncated after its last reply; an unfinished game with other ones was stopped at
    a limit of actions, and its standing (`Game.standing`) must be those.

    Args:
      record: `game`, `options`, `seed`, `replies` as [seat, text, status] each, with False after that for a reply of a
        player that did not have the form asked for, and True after that (or after True) for one that was aside,
        `outcomes`, `forfeited_by`, and where there are any `abort_reason`, `lost_by` and `loss_reason`; other keys are
        ignored.

    Raises:
      ReplayError: a key is absent or malformed, the game cannot be made, or is a class that this process has not
        imported, a reply comes from a seat that is not to
        move or after the end, the game does not end with the last reply, or it ends otherwise than recorded. Turns
        before the first difference have been yielded by then.
    """
    absent = [key for key in _KEYS if key not in record]
    if absent:
        raise ReplayError(f"the record lacks {', '.join(absent)}; expected a line of episodes.jsonl")
    game = _begin(record)
    for number, entry in enumerate(record["replies"]):
        seat, reply, status, formed, noted_aside = _reply(entry, number)
        if game.over:
            raise ReplayError(f"{game.id}: over after {number} replies, but {len(record['replies'])} are recorded")
        if seat != game.to_move:
            raise ReplayError(f"{game.id}, reply {number}: recorded from seat {seat}, but seat {game.to_move} moves")
        aside = game.aside
        if noted_aside and not aside:
            raise ReplayError(
                f"{game.id}, reply {number}: recorded as an aside, but seat {seat} is asked nothing aside"
            )
        observation = game.observation(seat)
        verdict = game.step(reply) if formed else game.step(reply, well_formed=False)
        yield ReplayedTurn(seat, observation, reply, status, verdict, formed, game.board_text(), aside)
    _check_end(game, record)


def _begin(record: Mapping[str, Any]) -> Game:
    options = record["options"]
    if not isinstance(options, Mapping) or type(record["seed"]) is not int or not isinstance(record["replies"], list):
        raise ReplayError("expected options to be an object, seed a whole number and replies a list")
    if registry.is_code(record["game"]):
        raise ReplayError(
            f"{record['game']!r} names code, which no record makes this process run; if you trust it, import it first: "
            f"dfc.games.registry.kind({record['game']!r})"
        )
    try:
        game = registry.make(record["game"], **options)
    except ValueError as error:  # an unknown id, an unknown option, a value outside its range
        raise ReplayError(f"cannot make {record['game']!r} with options {dict(options)!r}: {error}") from error
    game.reset(record["seed"])
    return game


def _reply(entry: object, number: int) -> tuple[int, str, ReplyStatus, bool, bool]:
    match entry:
        case [int(seat), str(text), str(status)] if status in _STATUSES:
            return seat, text, cast("ReplyStatus", status), True, False
        case [int(seat), str(text), str(status), False] if status in ("policy", "opponent"):
            return seat, text, cast("ReplyStatus", status), False, False
        case [int(seat), str(text), str(status), bool(formed), True] if status in _STATUSES[:3]:
            return seat, text, cast("ReplyStatus", status), formed, True
        case _:
            raise ReplayError(
                f"reply {number}: expected [seat, text, one of {', '.join(_STATUSES)}], and after that at most False "
                f"(of a policy or opponent), or whether it was well formed and True for an aside, got {entry!r}"
            )


def _check_end(game: Game, record: Mapping[str, Any]) -> None:
    recorded = record["outcomes"]
    if not game.over and recorded and all(outcome == Outcome.TRUNCATED for outcome in recorded):
        game.truncate()
    if not game.over:
        if game.standing() is None:
            raise ReplayError(
                f"{game.id}: not over after all {len(record['replies'])} replies, but {recorded!r} is recorded"
            )
        game.stop()
    outcomes = [str(outcome) for outcome in game.outcomes or ()]
    if outcomes != list(recorded):
        raise ReplayError(f"{game.id}: ended with outcomes {outcomes}, but {recorded!r} is recorded")
    if game.abort_reason != record.get("abort_reason", game.abort_reason):
        raise ReplayError(
            f"{game.id}: broken off because {game.abort_reason!r}, but {record['abort_reason']!r} is recorded"
        )
    if (game.lost_by, game.loss_reason) != (
        record.get("lost_by", game.lost_by),
        record.get("loss_reason", game.loss_reason),
    ):
        raise ReplayError(
            f"{game.id}: lost by seat {game.lost_by} because {game.loss_reason!r}, but {record.get('lost_by')!r} and "
            f"{record.get('loss_reason')!r} are recorded"
        )
    if game.forfeited_by != record["forfeited_by"]:
        raise ReplayError(
            f"{game.id}: forfeited by seat {game.forfeited_by}, but {record['forfeited_by']!r} is recorded"
        )
