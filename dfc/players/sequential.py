"""Plays one game among scripted players, people and remote players, without an engine and one reply after another."""

import concurrent.futures
import dataclasses
import sys
from collections.abc import Callable, Sequence

from dfc.games.game import Game, Verdict
from dfc.games.rng import GameRng
from dfc.games.scripted import Player
from dfc.players.remote import ChatMessage, Remote

MOST_REPLIES = 10_000  # of one game, those that were refused included

AskRemote = Callable[[Remote, list[ChatMessage]], str]
"""How a remote player is asked: (player, its chat, whose last message is the game's) -> its reply."""


@dataclasses.dataclass(frozen=True)
class SequentialReply:
    """One reply: its seat, text and result, whether it had the form asked for, whether it was aside."""

    seat: int
    text: str
    verdict: Verdict
    well_formed: bool = True
    aside: bool = False


_LONGEST_WAIT = 1.0  # seconds for a remote player, between two checks whether to stop


def _ask(player: Remote, chat: list[ChatMessage]) -> str:
    return player.ask(chat).result()


def ask_until_stop(check_stop: Callable[[], None]) -> AskRemote:
    """Returns how remote players are asked where a stop does not wait for their replies.

    Args:
      check_stop: called at least once a second; its exception ends the wait (`dfc.runs.stop_signals.Stop.check_stop`).
    """

    def ask(player: Remote, chat: list[ChatMessage]) -> str:
        call = player.ask(chat)
        while not call.done():
            check_stop()
            concurrent.futures.wait([call], _LONGEST_WAIT)
        return call.result()

    return ask


def play_sequentially(
    game: Game,
    players: Sequence[Player | Remote],
    rng: GameRng,
    most_replies: int = MOST_REPLIES,
    *,
    max_actions: int = 0,
    ask: AskRemote = _ask,
    system: str | None = None,
) -> list[SequentialReply]:
    """Plays a game that has begun to its end; returns every reply.

    Args:
      game: after `reset`; it is over afterwards, by its rules or by one of the limits.
      players: by seat, simulators included.
      rng: the scripted players' randomness, never the stream of the game.
      most_replies: before the game is truncated.
      max_actions: legal actions of players after which it is stopped (`Game.stop`); 0: its own longest play.
      ask: how remote players are asked, such as by a function that shows a waiting message.
      system: what remote players in players' seats read before the first observation: to think first. What they say
        must then have that form (`dfc.games.game.Game.well_formed`).

    Raises:
      ValueError: there is not one player for each seat, or the game has not begun.
      TypeError: a player is neither a scripted player nor a remote player, such as a bare function.
      PlayerError: a remote player failed.
    """
    seats = game.seats + len(game.simulators)
    if len(players) != seats:
        raise ValueError(f"{game.id} has {seats} seats, simulators included; got {len(players)} players")
    for number, given in enumerate(players):
        _check(given, number)
    if game.to_move is None and not game.over:
        raise ValueError(f"{game.id} has not begun: call reset(seed) before it is played")
    chats: dict[int, list[ChatMessage]] = {}
    sequential_replies: list[SequentialReply] = []
    most_actions = max_actions or game.max_game_length
    while (seat := game.to_move) is not None:
        if seat < game.seats and game.actions_played >= most_actions:
            game.stop()
            break
        if len(sequential_replies) >= most_replies:
            game.truncate()
            break
        player = players[seat]
        told = system if isinstance(player, Remote) and seat < game.seats else None
        aside = game.aside
        if isinstance(player, Remote):
            if game.role(seat) in game.stateless_roles:
                chats.pop(seat, None)
            chat = chats.setdefault(seat, [ChatMessage(role="system", content=told)] if told else [])
            chat.append(ChatMessage(role="user", content=game.observation(seat)))
            text = ask(player, chat)
            if aside:
                del chat[-1]
            else:
                chat.append(ChatMessage(role="assistant", content=text))
        else:
            text = player.act(game, rng)
        formed = not told or game.well_formed(text)
        verdict = game.step(text) if formed else game.step(text, well_formed=False)
        sequential_replies.append(SequentialReply(seat, text, verdict, formed, aside))
    return sequential_replies


def refusal(game: Game, seat: int, reply: str) -> str | None:
    """Returns why a reply of a seat cannot be played, in the game's words for it; None if it can. Changes nothing.

    This seat is to move, or has just ended the game by a reply that was not played.
    """
    twin = game.clone()
    twin.to_move = seat
    twin.outcomes = None
    twin.forfeited_by = None
    # The reason is reported to a seat that has a try left.
    twin.allowances = _patient  # type: ignore[method-assign]
    if twin.step(reply) not in (Verdict.ILLEGAL, Verdict.MALFORMED, Verdict.REFUSED):
        return None
    return twin.observation(seat).split("\n")[-1]


def _patient(seat: int) -> tuple[int, int]:
    del seat  # whatever the seat is, and whatever the game says
    return sys.maxsize, sys.maxsize


def _check(player: object, seat: int) -> None:
    if isinstance(player, Remote) or callable(getattr(player, "act", None)):
        return
    hint = (
        "wrap a function of a chat: dfc.players.remote.FunctionPlayer(f)"
        if callable(player)
        else "see dfc.players.factory"
    )
    raise TypeError(
        f"players[{seat}] must be a Remote or have act(game, rng) -> str, got {type(player).__name__}; {hint}"
    )
